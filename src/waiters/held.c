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

/* Of this type, or with LOCKTAG_LAST_TYPE + 1 of any? */
static bool
holds_lock(int type)
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
			found |= type > LOCKTAG_LAST_TYPE ||
				held->tag.myLock->tag.locktag_type == type;
		LWLockRelease(partition);
		if (found)
			return true;
	}
	return false;
}

/*
 * Does this process extend a relation?  Whoever inserts into the same one waits
 * for that, also the other members, who would then all pause for one.
 */
bool
dt_waiters_extends_relation(void)
{
	return holds_lock(LOCKTAG_RELATION_EXTEND);
}

/*
 * Does this process hold locks?  Not counted are those that statements take on
 * the tables that they read and write, as long as nobody waits for them.
 */
bool
dt_waiters_has_locks(void)
{
	return holds_lock(LOCKTAG_LAST_TYPE + 1);
}
