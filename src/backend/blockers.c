/*-------------------------------------------------------------------------
 *
 * blockers.c
 *		Has a session outside the group waited too long for this one?
 *
 * A member that pauses in flight holds its heavyweight locks, and one that
 * pauses before a transaction those of a query's parse analysis.  It looks now
 * and then whether a process outside its group has waited for such a lock for
 * dirty_throttle.max_blocking_time.  That is a look at a few variables in
 * shared memory for each process, without a lock.
 *
 * For a process that has waited so long the holders of the lock are looked up,
 * with the lock manager's partition lock in shared mode.  If a holder is a
 * member of the group and waits itself, so are the holders of what it waits
 * for, and so on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/account.h"
#include "backend/blockers.h"
#include "backend/session.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"

/* All processes are not looked at more often than this. */
#define SHORTEST_INTERVAL_US	10000

/* How many waiting members to follow in a row, and for one lock. */
#define LONGEST_CHAIN	4
#define MOST_HOLDERS	8

/* Among so many locks, each is looked at once, however many wait for it. */
#define LOCKS_SEEN		16

/* Whether others still wait is not looked at more often than this. */
#define RELEASED_US		20000

int			dt_max_blocking_time_ms = 100;

int64
dt_blockers_interval(void)
{
	if (dt_max_blocking_time_ms < 0)
		return PG_INT64_MAX;
	return Max(dt_max_blocking_time_ms * INT64CONST(1000) / 4,
			   SHORTEST_INTERVAL_US);
}

static bool
is_member(PGPROC *proc, DtGroup *group)
{
	return group != NULL && dt_member_of(proc)->group == group;
}

/*
 * Does this process wait for "us", a lock group leader, or for a member of the
 * group that does?  All lock modes that anybody waits for count, since the
 * process may be queued behind others that wait for us.
 */
static bool
waits_for(PGPROC *proc, PGPROC *us, DtGroup *group, bool begun, int chain)
{
	LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;
	PGPROC	   *waiting[MOST_HOLDERS];
	int			n_waiting = 0;
	bool		result = false;
	LWLock	   *partition;
	LOCKTAG		tag;

	if (lock == NULL)
		return false;
	tag = lock->tag;			/* the memory stays, but may be of another
								 * lock by now; checked below */
	if (tag.locktag_lockmethodid != DEFAULT_LOCKMETHOD &&
		(tag.locktag_lockmethodid != USER_LOCKMETHOD || !begun))
		return false;
	partition = LockHashPartitionLock(LockTagHashCode(&tag));
	LWLockAcquire(partition, LW_SHARED);
	if (proc->waitLock == lock && proc->pid != 0 &&
		memcmp(&lock->tag, &tag, sizeof(tag)) == 0)
	{
		LockMethod	method = GetLocksMethodTable(lock);
		LOCKMASK	conflicts = 0;
		PROCLOCK   *holder = NULL;
		LOCKMODE	mode;

		for (mode = 1; mode <= method->numLockModes; mode++)
			if (lock->waitMask & LOCKBIT_ON(mode))
				conflicts |= method->conflictTab[mode];
		while (!result && (holder = dt_next_holder(lock, holder)) != NULL)
		{
			PGPROC	   *its = holder->tag.myProc;

			if ((holder->holdMask & conflicts) == 0)
				continue;
			if (holder->groupLeader == us)
				result = true;
			else if (n_waiting < MOST_HOLDERS && is_member(its, group) &&
					 its->waitStatus == PROC_WAIT_STATUS_WAITING)
				waiting[n_waiting++] = its;
		}
	}
	LWLockRelease(partition);
	while (!result && chain > 1 && n_waiting > 0)
		result = waits_for(waiting[--n_waiting], us, group, begun, chain - 1);
	return result;
}

/*
 * The process ID of one outside the group that waits for this one, and has
 * done so for max_blocking_time; 0 when there is none.  With "already" any
 * time is enough.
 */
static int
find_waiting(bool already, bool begun)
{
	PGPROC	   *us = MyProc->lockGroupLeader ? MyProc->lockGroupLeader : MyProc;
	DtGroup    *group = dt_member_of(MyProc)->group;
	LOCK	   *seen[LOCKS_SEEN] = {NULL};
	int			n_seen = 0;
	TimestampTz since;
	int			i;
	int			s;

	if (dt_max_blocking_time_ms < 0)
		return 0;
	since = GetCurrentTimestamp();
	if (!already)
		since -= dt_max_blocking_time_ms * INT64CONST(1000);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		TimestampTz started = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
		LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;

		if (proc->waitStatus != PROC_WAIT_STATUS_WAITING || proc->pid == 0 ||
			lock == NULL || started == 0 || started > since ||
			is_member(proc, group))
			continue;
		for (s = 0; s < LOCKS_SEEN && seen[s] != lock; s++)
			;
		if (s < LOCKS_SEEN)
			continue;
		if (waits_for(proc, us, group, begun, LONGEST_CHAIN))
			return proc->pid;
		seen[n_seen++ % LOCKS_SEEN] = lock;
	}
	return 0;
}

bool
dt_blockers_is_released(void)
{
	return dt_now_us() < dt_session_slot->released_until;
}

bool
dt_blockers_check_release(bool begun)
{
	bool		already = dt_session_slot->released_until != 0;
	int			pid;

	if (dt_account_is_suspended(true))
		return false;
	if (dt_blockers_is_released())
		return true;
	pid = find_waiting(already, begun);
	if (pid == 0)
	{
		if (already)
			dt_session_slot->released_until = 0;
		return false;
	}
	dt_session_slot->released_until = dt_now_us() + RELEASED_US;
	if (!already)
		dt_account_lock_and_count_release(pid);
	return true;
}
