/*-------------------------------------------------------------------------
 *
 * blockers.h
 *		Has a session outside the group waited too long for this one?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BLOCKERS_H
#define DT_BLOCKERS_H

/* Parameter; -1 = no bound. */
extern int	dt_max_blocking_time_ms;

/* How long to pause before looking again, us; PG_INT64_MAX: do not look. */
extern int64 dt_blockers_interval(void);

/*
 * Must this session go on without a pause?  Yes, when a process outside its
 * group has waited for dirty_throttle.max_blocking_time for a heavyweight lock
 * that it holds, or its parallel leader; from then on for as long as any such
 * process waits, but not beyond the end of the transaction.  When that begins,
 * it is counted in the column "releases" of the views.
 *
 * False in a group that is suspended hard: its members keep their locks.
 *
 * Before the transaction has begun, its only locks are those on the tables that
 * its first query names.  Advisory locks, which the session may hold since
 * earlier, do not count then: for these it pauses after transactions, too.
 */
extern bool dt_blockers_check_release(bool begun);

/*
 * Did dt_blockers_check_release() say so a moment ago?  May be called in a
 * signal handler.
 */
extern bool dt_blockers_is_released(void);

/* The transaction is over: pauses are possible again. */
extern void dt_blockers_end_transaction(void);

#endif							/* DT_BLOCKERS_H */
