/*-------------------------------------------------------------------------
 *
 * held.c
 *		Which heavyweight locks does this process hold?
 *
 * Its list of them is read with one partition of the lock table locked at a time.
 * Weak locks that it has noted in its PGPROC are not among them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lock.h"
#include "storage/proc.h"
#include "waiters/waiters.h"

#include "compat.h"

/* Is there one that matters? */
static bool
holds_lock(bool (*matters) (const PROCLOCK *held))
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *partition = LockHashPartitionLockByIndex(i);
		PROCLOCK   *held = NULL;
		bool		found = false;

		/* a weak lock that another process adds to the list is none of these */
		if (dt_next_lock(MyProc, i, NULL) == NULL)
			continue;
		LWLockAcquire(partition, LW_SHARED);
		while ((held = dt_next_lock(MyProc, i, held)) != NULL)
			found |= matters(held);
		LWLockRelease(partition);
		if (found)
			return true;
	}
	return false;
}

static bool
is_extension(const PROCLOCK *held)
{
	return held->tag.myLock->tag.locktag_type == LOCKTAG_RELATION_EXTEND;
}

/*
 * Does this process extend a relation?  All that insert into the same one wait
 * for that, also the other members, which would then all pause for one.
 */
bool
dt_waiters_extends_relation(void)
{
	return holds_lock(is_extension);
}

static bool
is_any(const PROCLOCK *held)
{
	return true;
}

/*
 * Does this process hold locks?  Not counted are those that statements take on
 * the tables that they read and write, as long as nobody waits for them.
 */
bool
dt_waiters_has_locks(void)
{
	return holds_lock(is_any);
}

/* A transaction that has written holds the lock of its ID. */
static bool
is_more_than_for_reading(const PROCLOCK *held)
{
	LOCKMASK	mask = held->holdMask;

	if (MyProc->waitProcLock == held)
		mask |= LOCKBIT_ON(MyProc->waitLockMode);
	return held->tag.myLock->tag.locktag_type != LOCKTAG_VIRTUALTRANSACTION &&
		(mask & ~LOCKBIT_ON(AccessShareLock)) != 0;
}

/* Does it hold, or wait for, a lock that reading does not need? */
bool
dt_waiters_has_more_than_read_locks(void)
{
	return holds_lock(is_more_than_for_reading);
}
