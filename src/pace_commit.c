/*-------------------------------------------------------------------------
 *
 * pace_commit.c
 *		The safe point after a transaction.
 *
 * Nobody waits for a session that sleeps after its transaction, if it sleeps
 * late enough.  When the locks have been released (the resource owner's
 * AFTER_LOCKS phase), files are still to be deleted, listeners to be told, a
 * prepared transaction to be let go.  So that phase only decides that a pause
 * is due, and hangs it on the reset of TopTransactionContext, the last thing
 * that the core does for a transaction.
 *
 * There the transaction is over but interrupts are held: an ERROR, or an exit,
 * would be a PANIC.  See dt_pause_after_transaction().
 *
 * Commands that commit in between while they hold locks for the session
 * (VACUUM, CREATE INDEX CONCURRENTLY, ...) must not pause at those commits;
 * they pay at the commit that follows the command.  CALL and DO hold none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "account.h"
#include "miscadmin.h"
#include "pace.h"
#include "pause.h"
#include "session.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

int			dt_pace_commit_hold = 0;

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};
static bool callback_registered = false;

static void
after_transaction(void *arg)
{
	callback_registered = false;
	dt_pause_after_transaction();
}

/*
 * Called in each phase for each resource owner, and for other owners than
 * transactions', too.
 */
static void
resources_released(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
				   void *arg)
{
	if (likely(!dt_session_active() && !dt_pause_xact_begun &&
			   MyBackendType == B_BACKEND) ||
		phase != RESOURCE_RELEASE_AFTER_LOCKS || !isTopLevel ||
		CurrentResourceOwner != TopTransactionResourceOwner ||
		IsParallelWorker() || callback_registered)
		return;

	dt_session_attach();
	dt_session_follow_background_group();
	if (MyBackendType == B_AUTOVAC_WORKER && dt_account_is_open())
		dt_pace_vacuum_start_autovacuum();

	if (dt_pause_end_transaction(isCommit, dt_pace_commit_hold == 0))
	{
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
		callback_registered = true;
	}
}

/*
 * A parallel worker that ends well leaves word of what it has charged, before
 * its leader adds up.  What a leader did not use of that is void when the
 * (sub)transaction fails.
 */
static void
transaction_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PARALLEL_COMMIT)
		dt_account_publish_worker();
}

static void
subtransaction_event(SubXactEvent event, SubTransactionId mySubid,
					 SubTransactionId parentSubid, void *arg)
{
	/* from 17 on it may be one within a parallel query that goes on */
	if (dt_session_active() && event == SUBXACT_EVENT_ABORT_SUB &&
		!IsInParallelMode())
		dt_account_forget_workers();
}

void
dt_pace_commit_init(void)
{
	RegisterResourceReleaseCallback(resources_released, NULL);
	RegisterXactCallback(transaction_event, NULL);
	RegisterSubXactCallback(subtransaction_event, NULL);
}
