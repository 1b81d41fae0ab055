/*-------------------------------------------------------------------------
 *
 * moved.h
 *		A session that is put into a group in the middle of a query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MOVED_H
#define DT_MOVED_H

#include "executor/execdesc.h"

/* The innermost query that is being run, NULL when there is none. */
extern QueryDesc *dt_moved_running;

/*
 * From now on this process can be told by DT_MOVED_SIGNAL.  False when it
 * cannot, because somebody else uses the signal.
 */
extern bool dt_moved_listen(void);

#define DT_MOVED_SIGNAL		SIGUSR2

#endif							/* DT_MOVED_H */
