/*-------------------------------------------------------------------------
 *
 * let_go.h
 *		Does this session go on without pausing, for somebody who waits for it?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LET_GO_H
#define DT_LET_GO_H

#include "session/account.h"

extern bool dt_let_go(DtHeed heed, const DtDue *due);
extern void dt_let_go_note_debt(const DtDue *due);
extern void dt_let_go_end(void);

#endif							/* DT_LET_GO_H */
