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
 * While a command runs, there is an active portal, and no client waits for the
 * end of the transaction.
 *
 * A prepared transaction keeps its locks, and whoever coordinates it waits for
 * our answer: no pause follows it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "account.h"
#include "apply_feedback.h"
#include "live.h"
#include "miscadmin.h"
#include "pace.h"
#include "pause.h"
#include "session.h"
#include "tcop/pquery.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};
static bool callback_registered = false;
static emit_log_hook_type next_emit_log = NULL;

bool		dt_pace_commit_needed = true;

/*
 * Is it one of several of a command that may hold locks for the session
 * meanwhile?  CALL and DO commit between statements, when they hold none.
 */
static bool
command_goes_on(void)
{
	return ActivePortal != NULL && ActivePortal->commandTag != CMDTAG_CALL &&
		ActivePortal->commandTag != CMDTAG_DO;
}

static void
after_transaction(void *arg)
{
	callback_registered = false;
	dt_pause_after_transaction(ActivePortal == NULL);
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
	if (!isCommit)
		dt_pace_vacuum_end();
	/*
	 * These run no statements.  In an apply worker a timer would end its pauses.
	 */
	if ((MyBackendType == B_AUTOVAC_WORKER || dt_apply_copies_table()) &&
		dt_account_is_open())
		dt_live_start(false);
	else if (ActivePortal == NULL)
		dt_live_stop();

	if (dt_pause_end_transaction(isCommit, command_goes_on(),
								 ActivePortal == NULL))
	{
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
		callback_registered = true;
	}
}

/*
 * What a leader did not use of what its workers have left is void when the
 * (sub)transaction fails.
 */
static void
subtransaction_event(SubXactEvent event, SubTransactionId mySubid,
					 SubTransactionId parentSubid, void *arg)
{
	/* from 17 on it may be one within a parallel query that goes on */
	if (dt_session_active() && event == SUBXACT_EVENT_ABORT_SUB &&
		!IsInParallelMode())
		dt_account_forget_workers();
}

/*
 * An error that ends the transaction is reported before it does.
 */
static void
error_reported(ErrorData *error)
{
	if (error->elevel == ERROR)
		dt_pause_note_error(error->sqlerrcode);
	if (next_emit_log)
		next_emit_log(error);
}

void
dt_pace_commit_toggle(void)
{
	/* what has begun has an end */
	if (MyBackendType != B_BACKEND || dt_pause_xact_begun)
		return;
	dt_pace_commit_needed = !dt_pace_commit_needed;
	if (dt_pace_commit_needed)
		RegisterResourceReleaseCallback(resources_released, NULL);
	else
		UnregisterResourceReleaseCallback(resources_released, NULL);
}

/*
 * The end of its first transaction is of interest in each process.
 */
void
dt_pace_commit_init(void)
{
	RegisterResourceReleaseCallback(resources_released, NULL);
	RegisterSubXactCallback(subtransaction_event, NULL);
	next_emit_log = emit_log_hook;
	emit_log_hook = error_reported;
}
