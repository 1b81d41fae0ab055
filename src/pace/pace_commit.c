/*-------------------------------------------------------------------------
 *
 * pace_commit.c
 *		The safe point after a transaction.
 *
 * A session that sleeps after its transaction keeps nobody waiting, if it
 * sleeps late enough.  When its locks have been released (the resource owner's
 * AFTER_LOCKS phase), files are still to be deleted, listeners to be notified
 * and a prepared transaction to be finished.  So that phase only decides that
 * a pause is due, and registers a callback for the reset of
 * TopTransactionContext, which is the last thing that the core does for a
 * transaction.  There the transaction is over but interrupts are held, and an
 * ERROR would be a PANIC; see dt_pause_after_transaction().
 *
 * Commands that commit in between and keep session locks (VACUUM, CREATE INDEX
 * CONCURRENTLY, ...) do not pause at those commits.  They pay at the commit
 * that follows the command.  CALL and DO keep none, and pause at each commit.
 *
 * While a command runs there is an active portal, and no client waits for the
 * end of the transaction.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "backend/account.h"
#include "backend/apply_feedback.h"
#include "backend/live.h"
#include "backend/session.h"
#include "backend/transaction.h"
#include "miscadmin.h"
#include "pace/pace.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};
static bool callback_registered = false;

bool		dt_pace_commit_needed = true;

/*
 * With an active portal: is this one of several transactions of its command,
 * which may hold session locks in between?  When the process exits the portal
 * is still there.
 */
static bool
command_goes_on(void)
{
	return !proc_exit_inprogress &&
		ActivePortal->commandTag != CMDTAG_CALL &&
		ActivePortal->commandTag != CMDTAG_DO;
}

static void
after_transaction(void *arg)
{
	callback_registered = false;
	dt_transaction_finish(ActivePortal == NULL);
}

/*
 * Processes that run no statements are in the group of a parameter.  An apply
 * worker gets no timer, since it would end the worker's pauses.
 */
static pg_noinline void
background_transaction_ends(void)
{
	dt_session_follow_background_group();
	if ((MyBackendType == B_AUTOVAC_WORKER || dt_apply_copies_table()) &&
		dt_account_lock_and_follow())
		dt_live_start(false);
}

static pg_noinline void
locks_released(bool isCommit)
{
	bool		client_waits = ActivePortal == NULL;

	if (CurrentResourceOwner != TopTransactionResourceOwner ||
		IsParallelWorker() || callback_registered)
		return;

	if (unlikely(dt_session_state & DT_UNATTACHED))
		dt_session_attach();
	if (client_waits)
		dt_live_stop();
	if (unlikely(MyBackendType != B_BACKEND))
		background_transaction_ends();
	if (client_waits || !isCommit)
		dt_pace_vacuum_end();

	if (dt_transaction_end(isCommit, !client_waits && command_goes_on(),
						   client_waits))
	{
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
		callback_registered = true;
	}
}

/*
 * This is called in each phase for each resource owner, also for owners that
 * are not those of a transaction.
 */
static void
resources_released(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
				   void *arg)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && isTopLevel &&
		(dt_session_active() || dt_transaction_begun ||
		 unlikely(MyBackendType != B_BACKEND)))
		locks_released(isCommit);
}

void
dt_pace_commit_toggle(void)
{
	/* the end of a transaction that has begun is needed in any case */
	if (MyBackendType != B_BACKEND || dt_transaction_begun)
		return;
	dt_pace_commit_needed = !dt_pace_commit_needed;
	if (dt_pace_commit_needed)
		RegisterResourceReleaseCallback(resources_released, NULL);
	else
		UnregisterResourceReleaseCallback(resources_released, NULL);
}

/*
 * At server start: each process attaches at the end of its first transaction.
 */
void
dt_pace_commit_init(void)
{
	RegisterResourceReleaseCallback(resources_released, NULL);
}
