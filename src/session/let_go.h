/*-------------------------------------------------------------------------
 *
 * let_go.h
 *		Does this session go on without pausing, for another one that waits for it?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LET_GO_H
#define DT_LET_GO_H

#include "session/account.h"

/* To be called after each charge. */
extern bool dt_let_go_note(const DtDue *due);

/*
 * To be asked before each slice of a pause: does it still go on, as it was let go a
 * moment ago?  If not, is it let go now, for a process that the last look has found, or
 * as the queue of notifications is full?
 */
extern bool dt_let_go_holds(const DtDue *due);
extern bool dt_let_go(bool in_flight, bool queue_is_full, const DtDue *due);
extern void dt_let_go_end(void);

#endif							/* DT_LET_GO_H */
