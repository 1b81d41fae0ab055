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

extern void dt_sigterm_watch_slow(void);

/*
 * From now on a SIGTERM to this process is noticed here, too.  To be called
 * when it becomes a member, and when a pause begins, as the handler of SIGTERM
 * may have changed.  A parallel worker heeds that of its leader.
 */
static inline void
dt_sigterm_watch(void)
{
	if (unlikely(MyBackendType == B_BG_WORKER) && !IsParallelWorker())
		dt_sigterm_watch_slow();
}

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
