/*-------------------------------------------------------------------------
 *
 * statement.c
 *		Where statements begin.
 *
 * A member's statement is told to those who want to know: to session.c, which
 * may have a group to join; to pause.c, which may have a pause to make up for;
 * to account.c in a parallel worker; and to live.c, which charges while it runs.
 * A session that is no member pays a look at three variables.
 *
 * What has to be paid before a transaction is paid at the first place of it at
 * which we are called, so that as little as possible is held: before a command
 * (BEGIN, ALTER TABLE), nothing, but a snapshot before those that return rows
 * (EXECUTE, EXPLAIN); for a query, after its parse analysis, the locks on the
 * tables that it names; for the function-call protocol, which is no statement,
 * before the call, a snapshot; for a query that was parsed earlier, a snapshot
 * and what planning it and starting its execution take.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "account.h"
#include "executor/executor.h"
#include "grant.h"
#include "live.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pace.h"
#include "parser/analyze.h"
#include "pause.h"
#include "session.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

#include "compat.h"

static ProcessUtility_hook_type next_process_utility = NULL;
static ExecutorRun_hook_type next_executor_run = NULL;
static post_parse_analyze_hook_type next_post_parse_analyze = NULL;
static object_access_hook_type next_object_access = NULL;

static void
note_statement(bool is_command)
{
	dt_pace_commit_need(true);
	dt_session_begin_statement();
	if (dt_account_is_open() && dt_session_background_group() == NULL)
		dt_live_start(is_command);
}

static void
begin_statement(bool snapshot_is_new, bool is_command)
{
	if (dt_session_change_waits())
		dt_pause_in_flight();	/* makes room for the change */
	note_statement(is_command);
	/* also after a commit within a procedure, and between its commands */
	if (dt_account_may_owe())
	{
		dt_pause_before_transaction(snapshot_is_new);
		dt_pace();
	}
}

/*
 * The statement that the client has just sent, and not one that something
 * within it has analyzed.
 */
static void
statement_analyzed(ParseState *pstate, Query *query, JumbleState *jstate)
{
	if (next_post_parse_analyze)
		next_post_parse_analyze(pstate, query, jstate);
	if (dt_session_active() && !dt_pause_xact_begun &&
		query->commandType != CMD_UTILITY && debug_query_string != NULL &&
		pstate->p_sourcetext == debug_query_string &&
		ActivePortal == NULL && GetCurrentTransactionNestLevel() == 1)
		begin_statement(true, false);
}

/*
 * The function-call protocol asks for this before it calls a function, and so
 * does whatever evaluates an expression: Bind does that without a statement, to
 * check its parameters and to plan.  Only with the former there is no query.
 */
static void
object_accessed(ObjectAccessType access, Oid classId, Oid objectId, int subId,
				void *arg)
{
	if (next_object_access)
		next_object_access(access, classId, objectId, subId, arg);
	if (access != OAT_FUNCTION_EXECUTE)
		dt_grant_object_accessed(access, classId, objectId);
	else if (dt_session_active() && ActivePortal == NULL &&
			 (!dt_pause_xact_begun || debug_query_string == NULL) &&
			 MyBackendType == B_BACKEND && IsTransactionState())
		begin_statement(false, false);
}

static void
statement_executor_run(EXECUTOR_RUN_PARAMS)
{
	/* the worker's part of a plan, and not what a function in it runs */
	bool		worker_runs = IsParallelWorker() &&
		queryDesc->sourceText == debug_query_string;

	if (dt_session_active())
	{
		if (worker_runs)
			dt_account_begin_worker();
		begin_statement(false, false);
		dt_pace_executor_wrap(queryDesc);
	}
	else
		dt_pace_commit_need(false);
	if (next_executor_run)
		next_executor_run(EXECUTOR_RUN_ARGS);
	else
		standard_ExecutorRun(EXECUTOR_RUN_ARGS);
	dt_account_settle_workers();
	if (worker_runs)
	{
		dt_live_stop();
		dt_account_end_worker_run();
	}
}

/*
 * May this command wait until what was used before it is paid for?  Who is
 * stopped may leave, and who ends a transaction, also one that was prepared,
 * lets go of its locks and pays then.
 */
static bool
may_pause_before(Node *command)
{
	if (IsA(command, TransactionStmt))
	{
		TransactionStmtKind kind = ((TransactionStmt *) command)->kind;

		return kind == TRANS_STMT_BEGIN || kind == TRANS_STMT_START;
	}
	return !IsA(command, VariableSetStmt) && !IsA(command, DiscardStmt);
}

static void
statement_utility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	/* also that of a session that is moved into a group meanwhile */
	bool		is_vacuum = IsA(pstmt->utilityStmt, VacuumStmt) &&
		((VacuumStmt *) pstmt->utilityStmt)->is_vacuumcmd;

	if (dt_session_active())
	{
		if (may_pause_before(pstmt->utilityStmt))
			begin_statement(context == PROCESS_UTILITY_TOPLEVEL &&
							GetCurrentTransactionNestLevel() == 1 &&
							ActivePortal != NULL && ActiveSnapshotSet() &&
							ActivePortal->portalSnapshot == GetActiveSnapshot(),
							!IsA(pstmt->utilityStmt, TransactionStmt));
		else
			note_statement(false);
		if (is_vacuum)
			dt_pace_vacuum_begin();
		if (CreateCommandTag(pstmt->utilityStmt) == CMDTAG_PREPARE_TRANSACTION)
			dt_pause_note_prepare();
	}
	else
		dt_pace_commit_need(false);
	if (next_process_utility)
		next_process_utility(pstmt, queryString, readOnlyTree, context, params,
							 queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
	if (is_vacuum)
		dt_pace_vacuum_end();
}

void
dt_statement_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = statement_utility;
	next_executor_run = ExecutorRun_hook;
	ExecutorRun_hook = statement_executor_run;
	next_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = statement_analyzed;
	next_object_access = object_access_hook;
	object_access_hook = object_accessed;
}
