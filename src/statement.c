/*-------------------------------------------------------------------------
 *
 * statement.c
 *		Where statements begin and end.
 *
 * A member's outermost statement is told to those who want to know: to
 * session.c, which may have a group to join; to pause.c, which may have a
 * pause to make up for, and wants to know when it fails, since during the
 * abort it is not to be known any more whether that was a cancel; to account.c
 * in a parallel worker; and to live.c, which charges while it runs.  Of a
 * session that is no member only the query that runs is noted; see moved.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "account.h"
#include "executor/executor.h"
#include "live.h"
#include "miscadmin.h"
#include "moved.h"
#include "nodes/parsenodes.h"
#include "pace.h"
#include "pause.h"
#include "session.h"
#include "statement.h"
#include "tcop/utility.h"

#include "compat.h"

static ProcessUtility_hook_type next_process_utility = NULL;
static ExecutorRun_hook_type next_executor_run = NULL;
static ExecutorFinish_hook_type next_executor_finish = NULL;

static int	depth = 0;			/* of statements within statements */

/*
 * What may fail comes first, while nothing has to be undone.
 */
static void
begin_statement(bool may_pause, bool charge_live)
{
	if (depth == 0)
	{
		dt_session_begin_statement();
		if (dt_account_is_open())
		{
			if (may_pause)
				dt_pause_before_transaction();
			else
				dt_pause_excuse_transaction();
			dt_account_begin_worker_run();
			if (charge_live)
				dt_live_start();
		}
	}
	depth++;
}

static void
end_statement(int outer_depth)
{
	depth = outer_depth;
	/* or who was moved in an inner query, goes on with the outer one */
	if (depth > 0 || dt_moved_running != NULL)
		return;
	dt_live_stop();
	dt_account_end_worker_run();
}

/* Only in a PG_CATCH block. */
static void
fail_statement(int outer_depth)
{
	depth = outer_depth;
	if (depth == 0)
		dt_live_stop();
	dt_pause_note_error();
}

static void
run(EXECUTOR_RUN_PARAMS)
{
	if (next_executor_run)
		next_executor_run(EXECUTOR_RUN_ARGS);
	else
		standard_ExecutorRun(EXECUTOR_RUN_ARGS);
}

static void
statement_executor_run(EXECUTOR_RUN_PARAMS)
{
	int			outer_depth = depth;
	volatile bool active = dt_session_active();	/* gcc warns else */
	QueryDesc  *outer_running = dt_moved_running;

	if (active)
		begin_statement(true, true);
	PG_TRY();
	{
		if (active)
			dt_pace_executor_wrap_plan(queryDesc);	/* should it be older */
		dt_moved_running = queryDesc;
		run(EXECUTOR_RUN_ARGS);
		dt_moved_running = outer_running;
	}
	PG_CATCH();
	{
		dt_moved_running = outer_running;
		if (active || dt_session_active())
			fail_statement(outer_depth);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (active)
		dt_account_settle_workers();
	end_statement(outer_depth);
	if (outer_running != NULL && dt_session_active())
		dt_pace_executor_wrap_plan(outer_running);
}

static void
finish(QueryDesc *queryDesc)
{
	if (next_executor_finish)
		next_executor_finish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
}

static void
statement_executor_finish(QueryDesc *queryDesc)
{
	int			outer_depth = depth;

	if (!dt_session_active())
	{
		finish(queryDesc);
		return;
	}
	begin_statement(true, true);
	PG_TRY();
	{
		finish(queryDesc);
	}
	PG_CATCH();
	{
		fail_statement(outer_depth);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_statement(outer_depth);
}

void
dt_process_utility(ProcessUtility_hook_type next, PlannedStmt *pstmt,
				   const char *queryString, bool readOnlyTree,
				   ProcessUtilityContext context, ParamListInfo params,
				   QueryEnvironment *queryEnv, DestReceiver *dest,
				   QueryCompletion *qc)
{
	if (next)
		next(pstmt, queryString, readOnlyTree, context, params, queryEnv,
			 dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
}

/*
 * May this command commit while it holds locks for the session?  CALL and DO
 * commit between statements, when they hold none; BEGIN, COMMIT and the like
 * are done when they return.
 */
static bool
may_hold_locks(Node *command)
{
	return !IsA(command, CallStmt) && !IsA(command, DoStmt) &&
		!IsA(command, TransactionStmt);
}

static void
statement_utility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	int			outer_depth = depth;
	int			outer_hold = dt_pace_commit_hold;
	volatile bool active = dt_session_active();	/* gcc warns else */
	bool		hold = may_hold_locks(pstmt->utilityStmt);

	if (!active && !hold)
	{
		dt_process_utility(next_process_utility, pstmt, queryString,
						   readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}
	/* who is stopped may leave; VACUUM is charged by pace_vacuum.c */
	if (active)
		begin_statement(!IsA(pstmt->utilityStmt, VariableSetStmt) &&
						!IsA(pstmt->utilityStmt, DiscardStmt),
						!IsA(pstmt->utilityStmt, VacuumStmt));

	/* who is no member now may be made one while the command runs */
	if (hold)
		dt_pace_commit_hold++;
	PG_TRY();
	{
		dt_process_utility(next_process_utility, pstmt, queryString,
						   readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_CATCH();
	{
		dt_pace_commit_hold = outer_hold;
		if (active || dt_session_active())
			fail_statement(outer_depth);
		PG_RE_THROW();
	}
	PG_END_TRY();
	dt_pace_commit_hold = outer_hold;
	if (active || dt_session_active())
		end_statement(outer_depth);
}

void
dt_statement_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = statement_utility;
	next_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = statement_executor_run;
	next_executor_finish = ExecutorFinish_hook;
	ExecutorFinish_hook = statement_executor_finish;
}
