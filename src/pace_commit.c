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
 * would be a PANIC.  See dt_session_pause_after_transaction().
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
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pace.h"
#include "session.h"
#include "tcop/utility.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "compat.h"

static ProcessUtility_hook_type next_process_utility = NULL;
static ExecutorRun_hook_type next_executor_run = NULL;
static ExecutorFinish_hook_type next_executor_finish = NULL;

/* Utility commands under way that may hold locks over their own commits. */
static int	utility_depth = 0;

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};
static bool callback_registered = false;

static void
after_transaction(void *arg)
{
	callback_registered = false;
	dt_session_pause_after_transaction();
}

/*
 * Called in each phase for each resource owner, and for other owners than
 * transactions', too.
 */
static void
resources_released(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
				   void *arg)
{
	if (likely(!dt_session_active) ||
		phase != RESOURCE_RELEASE_AFTER_LOCKS || !isTopLevel ||
		CurrentResourceOwner != TopTransactionResourceOwner ||
		IsParallelWorker() || callback_registered)
		return;

	if (dt_session_end_transaction(isCommit, utility_depth == 0))
	{
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
		callback_registered = true;
	}
}

/*
 * These hooks see the errors that end a transaction: whether it was cancelled
 * is not to be known any more when it aborts.
 */
static void
pace_commit_executor_run(EXECUTOR_RUN_PARAMS)
{
	ExecutorRun_hook_type run =
		next_executor_run ? next_executor_run : standard_ExecutorRun;

	if (likely(!dt_session_active))
	{
		run(EXECUTOR_RUN_ARGS);
		return;
	}
	PG_TRY();
	{
		run(EXECUTOR_RUN_ARGS);
	}
	PG_CATCH();
	{
		dt_session_note_error();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static void
pace_commit_executor_finish(QueryDesc *queryDesc)
{
	ExecutorFinish_hook_type finish =
		next_executor_finish ? next_executor_finish : standard_ExecutorFinish;

	if (likely(!dt_session_active))
	{
		finish(queryDesc);
		return;
	}
	PG_TRY();
	{
		finish(queryDesc);
	}
	PG_CATCH();
	{
		dt_session_note_error();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

static void
pace_commit_utility(PlannedStmt *pstmt, const char *queryString,
					bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	ProcessUtility_hook_type process = next_process_utility ?
		next_process_utility : standard_ProcessUtility;
	int			outer_depth = utility_depth;

	if (likely(!dt_session_active))
	{
		process(pstmt, queryString, readOnlyTree, context, params, queryEnv,
				dest, qc);
		return;
	}

	dt_session_begin_statement();
	if (!IsA(pstmt->utilityStmt, CallStmt) && !IsA(pstmt->utilityStmt, DoStmt))
		utility_depth++;
	PG_TRY();
	{
		process(pstmt, queryString, readOnlyTree, context, params, queryEnv,
				dest, qc);
	}
	PG_CATCH();
	{
		utility_depth = outer_depth;
		dt_session_note_error();
		PG_RE_THROW();
	}
	PG_END_TRY();
	utility_depth = outer_depth;
}

void
dt_pace_commit_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = pace_commit_utility;
	next_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = pace_commit_executor_run;
	next_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = pace_commit_executor_finish;
	RegisterResourceReleaseCallback(resources_released, NULL);
}
