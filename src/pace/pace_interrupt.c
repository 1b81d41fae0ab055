/*-------------------------------------------------------------------------
 *
 * pace_interrupt.c
 *		The safe points at the checks for interrupts.
 *
 * Nearly everything that runs long calls CHECK_FOR_INTERRUPTS again and again,
 * in sessions, autovacuum workers and parallel workers.  The timer of live.c
 * requests a pause there.  When a running session is put into a group, the
 * process that does so requests one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/activity.h"
#include "backend/live.h"
#include "backend/session.h"
#include "backend/transaction.h"
#include "miscadmin.h"
#include "pace/pace.h"
#include "storage/proc.h"

#include "compat.h"

/*
 * Does this process extend a relation?  Whoever inserts into the same one waits
 * for that, also the other members, who would then all pause for one.
 */
static bool
extends_relation(void)
{
	bool		found = false;
	int			i;

	for (i = 0; i < NUM_LOCK_PARTITIONS && !found; i++)
	{
		LWLock	   *partition = LockHashPartitionLockByIndex(i);
		PROCLOCK   *held = NULL;

		LWLockAcquire(partition, LW_SHARED);
		while (!found && (held = dt_next_lock(MyProc, i, held)) != NULL)
			found = held->tag.myLock->tag.locktag_type == LOCKTAG_RELATION_EXTEND;
		LWLockRelease(partition);
	}
	return found;
}

/*
 * A VACUUM that is urgent is not slowed by requests, either.  Called in a
 * signal handler.
 */
bool
dt_pace_wants_check(int64 owed_us)
{
	return !dt_pace_vacuum_is_urgent() && dt_transaction_wants_check(owed_us);
}

void
dt_pace_at_check(void)
{
	/* others wait for reads that this process has prepared and not begun */
	if (!dt_session_active() || !dt_activity_is_working() || extends_relation() ||
		dt_io_is_staged())
		return;
	dt_pace_commit_need(true);
	dt_transaction_mark_begun();
	dt_live_start(false);
	if (!dt_pace_vacuum_is_urgent())
		dt_transaction_pay_at_check();
}
