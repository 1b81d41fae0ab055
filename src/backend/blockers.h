/*-------------------------------------------------------------------------
 *
 * blockers.h
 *		Has a session outside the group waited too long for this one?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BLOCKERS_H
#define DT_BLOCKERS_H

#include "backend/session.h"

/* Parameter; -1 = no bound. */
extern int	dt_max_blocking_time_ms;

/* How long to pause before looking again, us; PG_INT64_MAX: do not look. */
extern int64 dt_blockers_interval(void);

/*
 * Must this session go on without a pause?  Yes, when a process outside its
 * group has waited for dirty_throttle.max_blocking_time for a heavyweight lock
 * that this session, its parallel leader or one of its parallel workers holds.
 * From then on the answer is yes for as long as any process outside the group
 * waits for it, but not beyond the end of the transaction.  The column
 * "releases" of the views counts how often this has begun.
 *
 * False in a group that is suspended hard: its members keep their locks.
 *
 * begun: false before the first statement of a transaction.  Then the session
 * holds the locks on the tables that its first query names, and maybe advisory
 * locks from earlier.  The latter do not count, as they do not prevent the
 * pause after a transaction either.
 */
extern bool dt_blockers_check_release(bool begun);

/*
 * Did dt_blockers_check_release() say so a moment ago?  May be called in a
 * signal handler.
 */
extern bool dt_blockers_is_released(void);

/* The transaction is over: pauses are possible again. */
static inline void
dt_blockers_end_transaction(void)
{
	dt_session_slot->released_until = 0;
}

#endif							/* DT_BLOCKERS_H */
