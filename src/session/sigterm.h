/*-------------------------------------------------------------------------
 *
 * sigterm.h
 *		Has a background worker been told to end?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SIGTERM_H
#define DT_SIGTERM_H

#include "access/parallel.h"
#include "session/account.h"

extern bool dt_sigterm_watch_slow(void);

/*
 * From now on a SIGTERM to this process is noticed here, too.  To be called
 * when it becomes a member, and when a pause begins, as the handler of SIGTERM
 * may have changed.  A parallel worker heeds that of its leader.
 */
static inline void
dt_sigterm_watch(void)
{
	if (unlikely(MyBackendType == B_BG_WORKER) && !IsParallelWorker())
		(void) dt_sigterm_watch_slow();
}

/*
 * A pause after a transaction begins, and has ended.  In between SIGTERM is
 * noticed, but the worker's own handler is called later: that may end the process
 * at once, which must not happen before the core is done with the transaction.
 * The first says whether there may be a pause.  After the second returned true,
 * dt_sigterm_deliver() is to be called, in a signal handler, until it returns
 * true.
 */
extern bool dt_sigterm_hold_back(void);
extern bool dt_sigterm_let_go(void);
extern bool dt_sigterm_deliver(void);

/*
 * Has it been told to end, or its leader?  Then it pauses no more.  May be
 * called in a signal handler.
 */
static inline bool
dt_sigterm_came(void)
{
	return dt_account.slot->told_to_end;
}

#endif							/* DT_SIGTERM_H */
