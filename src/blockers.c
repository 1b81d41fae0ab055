/*-------------------------------------------------------------------------
 *
 * blockers.c
 *		Has somebody waited too long for a member that pauses?
 *
 * A member that pauses in flight holds its locks.  It looks now and then
 * whether a process outside its group has waited for a heavyweight lock for
 * dirty_throttle.max_blocking_time, which is a look at a few variables in
 * shared memory for each process.  Only for one that has, the lock's holders
 * are looked up, under the lock manager's lock for that part of its table, and
 * those that they wait for, if they are members of the group, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "blockers.h"
#include "guc.h"
#include "member.h"
#include "registry.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Looks at all processes are not to be had too often. */
#define SHORTEST_INTERVAL_US	10000

/* How far to follow members that wait, and how many holders of a lock. */
#define LONGEST_CHAIN	4
#define MOST_HOLDERS	8

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
 * Does this process wait for "us", a leader, or for a member of the group that
 * does?  Where others wait for us for the same lock, it may stand behind them
 * in the queue.
 */
static bool
waits_for(PGPROC *proc, PGPROC *us, DtGroup *group, int chain)
{
	LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;
	PGPROC	   *waiting[MOST_HOLDERS];
	int			n_waiting = 0;
	bool		result = false;
	LWLock	   *partition;
	LOCKTAG		tag;

	if (lock == NULL)
		return false;
	tag = lock->tag;			/* locks stay in this part of shared memory */
	if (tag.locktag_lockmethodid != DEFAULT_LOCKMETHOD &&
		tag.locktag_lockmethodid != USER_LOCKMETHOD)
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
		result = waits_for(waiting[--n_waiting], us, group, chain - 1);
	return result;
}

bool
dt_blockers_waiting(bool already)
{
	PGPROC	   *us = MyProc->lockGroupLeader ? MyProc->lockGroupLeader : MyProc;
	DtGroup    *group = dt_member_of(MyProc)->group;
	TimestampTz since;
	int			i;

	if (dt_max_blocking_time_ms < 0)
		return false;
	since = GetCurrentTimestamp();
	if (!already)
		since -= dt_max_blocking_time_ms * INT64CONST(1000);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		TimestampTz started = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);

		if (proc->waitStatus == PROC_WAIT_STATUS_WAITING && proc->pid != 0 &&
			started != 0 && started <= since &&
			!is_member(proc, group) &&
			waits_for(proc, us, group, LONGEST_CHAIN))
			return true;
	}
	return false;
}
