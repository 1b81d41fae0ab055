/*-------------------------------------------------------------------------
 *
 * blockers.h
 *		Has somebody outside the group waited too long for this session?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BLOCKERS_H
#define DT_BLOCKERS_H

#include "nodes/pg_list.h"

/* Instead of a process ID: WAL replay waits for a page or a snapshot. */
#define DT_REPLAY	(-1)

/*
 * How long to pause before dt_blockers_check_release() looks again, us;
 * PG_INT64_MAX: it does not.
 */
extern int64 dt_blockers_interval(void);

/*
 * Must this session go on without a pause?  Yes, when a process outside its
 * group has waited for dirty_throttle.max_blocking_time for a heavyweight
 * lock that this session, its parallel leader or one of its parallel workers
 * holds, or for a member of the group that waits for such a lock, and so on;
 * or when replay of WAL waits for this process.  From then on the answer is
 * yes for as long as any process outside the group waits for it, but not
 * beyond the end of the transaction.  The column "releases" of the views
 * counts how often this has begun, and "released_time" how long it has
 * lasted.
 *
 * False in a group that is suspended hard: its members keep their locks.
 *
 * in_flight: false before the first statement of a transaction.  Then the
 * session holds the locks on the tables that its first query names, and maybe
 * advisory locks from earlier.  The latter do not count, as they do not
 * prevent the pause after a transaction either.
 */
extern bool dt_blockers_check_release(bool in_flight);

/*
 * Nobody waits any more, or the transaction is over and its locks are free:
 * pauses are possible again.  To be called where released_until is not 0.
 */
extern void dt_blockers_end_release(void);

extern bool dt_blockers_extends_relation(void);
extern bool dt_blockers_has_locks(void);

/*
 * The process IDs of all that wait for the member with that proc number,
 * directly or behind members of its group; DT_REPLAY among them if it goes on
 * without pausing for that.
 */
extern List *dt_blockers_list(int number);

#endif							/* DT_BLOCKERS_H */
