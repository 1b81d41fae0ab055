/*-------------------------------------------------------------------------
 *
 * moved.h
 *		A session that is put into a group in the middle of a query.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MOVED_H
#define DT_MOVED_H

#include <signal.h>

#include "executor/execdesc.h"

/* The innermost query that is being run, NULL when there is none. */
extern QueryDesc *dt_moved_running;

/* It was told in the middle of that, and has not passed a safe point since. */
extern volatile sig_atomic_t dt_moved_told;

/*
 * From now on this process can be told by DT_MOVED_SIGNAL.  False when it
 * cannot, because somebody else uses the signal.
 */
extern bool dt_moved_listen(void);

#define DT_MOVED_SIGNAL		SIGUSR2

#endif							/* DT_MOVED_H */
