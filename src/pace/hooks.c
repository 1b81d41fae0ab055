/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		All hooks of the server that this library uses, except those of its
 *		parameters.
 *
 * In the order in which they are called: at server start, those for shared
 * memory; when a statement begins, post_parse_analyze, object_access,
 * ExecutorRun and ProcessUtility; when something is logged, emit_log, by which
 * checks for interrupts are found; when a subtransaction ends, its callback.
 * The rest of the library knows of no hook, except that interrupt.c tests
 * whether emit_log still leads here, and sql/explain.c installs those of
 * EXPLAIN.  Other callbacks are registered where they are needed, as some of
 * them cost every transaction something: those for the end of a transaction in
 * pace_commit.c, session.c and load.c, for the exit of a process in
 * session.c, and for a timeout in live.c.
 *
 * For a session in no group a hook that is called for each statement looks at
 * a few variables and calls the next one; what members need is in functions
 * of its own.
 *
 * What has to be paid before a transaction is paid in the first of these hooks
 * that is called, so that the session holds as little as possible meanwhile:
 *
 *	post_parse_analyze (a query)			locks on the tables that it names
 *	the same (a command)					nothing; EXPLAIN is a query here
 *	ProcessUtility (one parsed earlier)		nothing; a snapshot if it has rows
 *	object_access (function-call protocol)	a snapshot
 *	ExecutorRun (a query parsed earlier)	a snapshot, and what planning it
 *											and starting its execution take
 *
 * A library that was loaded later may run a command itself, without calling
 * dt_ProcessUtility: TimescaleDB does that with every VACUUM, and with COPY,
 * CREATE INDEX and others on hypertables.  Such a command is known from its
 * parse analysis only, so that is where commands begin, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "backend/account_parallel.h"
#include "backend/activity.h"
#include "backend/interrupt.h"
#include "backend/live.h"
#include "backend/pause.h"
#include "backend/session.h"
#include "backend/transaction.h"
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pace/hooks.h"
#include "pace/pace.h"
#include "parser/analyze.h"
#include "registry/load.h"
#include "registry/grant.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "tcop/utility.h"
#include "utils/snapmgr.h"

#include "compat.h"

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;
static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;
static object_access_hook_type prev_object_access = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ProcessUtility_hook_type prev_ProcessUtility = NULL;
static emit_log_hook_type prev_emit_log = NULL;

/*
 * The start time of the client's message whose statement has called
 * begin_statement() when it was analyzed; 0 when that statement has run.
 */
static TimestampTz analyzed_at = 0;

static void
dt_shmem_request_hook(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	dt_shmem_request();
}

static void
dt_shmem_startup_hook(void)
{
	if (prev_shmem_startup)
		prev_shmem_startup();
	dt_shmem_startup();
	dt_pause_init();
}

/*
 * A statement begins that must not wait.  Is the session in a group?
 */
static pg_attribute_always_inline bool
note_statement(bool is_command)
{
	bool		is_member;

	dt_load();
	dt_pace_commit_need(true);
	is_member = dt_session_begin_statement();
	if (is_member && dt_session_background_group() == NULL)
		dt_live_start(is_command);
	return is_member;
}

/*
 * A statement begins that waits until what was used before the transaction is
 * paid for.  For what was used in it, a query waits at its first row.
 */
static void
begin_statement(bool snapshot_is_new, bool is_command)
{
	if (dt_debt_any && dt_session_change_waits())
		dt_transaction_pay_between_rows();	/* makes room for the change */
	/* also after a commit within a procedure, and between its commands */
	if (note_statement(is_command) || dt_debt_any)
		dt_transaction_pay_before(snapshot_is_new);
}

/*
 * May this command wait until what was used before it is paid for?  Not one by
 * which a session can leave a suspended group, nor one that ends a
 * transaction, also a prepared one: that releases locks, and pays afterwards.
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

static inline bool
is_prepare(Node *command)
{
	return IsA(command, TransactionStmt) &&
		((TransactionStmt *) command)->kind == TRANS_STMT_PREPARE;
}

static bool
is_vacuum(Node *command)
{
	return IsA(command, VacuumStmt) && ((VacuumStmt *) command)->is_vacuumcmd;
}

/* A command begins, or is going to. */
static void
begin_command(Node *command, bool snapshot_is_new)
{
	begin_statement(snapshot_is_new, !IsA(command, TransactionStmt));
	dt_pace();
}

/*
 * The statement that the client has just sent, and not one that something
 * within it has analyzed.
 */
static pg_noinline void
member_analyzes(ParseState *pstate, Query *query, DT_JUMBLE_STATE * jstate)
{
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
	if (debug_query_string == NULL ||
		pstate->p_sourcetext != debug_query_string || ActivePortal != NULL)
		return;
	if (query->commandType == CMD_UTILITY)
	{
		if (!may_pause_before(query->utilityStmt))
			return;
		begin_command(query->utilityStmt, true);
	}
	else
		begin_statement(true, false);
	analyzed_at = GetCurrentStatementStartTimestamp();
}

static void
dt_post_parse_analyze(ParseState *pstate, Query *query, DT_JUMBLE_STATE * jstate)
{
	if (dt_session_active())
		member_analyzes(pstate, query, jstate);
	else if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

/*
 * Does something begin here that is not a statement?
 *
 * The function-call protocol calls the hook before it calls a function, and so
 * does everything that evaluates an expression.  Bind does that without a
 * statement, to check its parameters and to plan.  The function-call protocol
 * is recognized by having no query string.
 *
 * A background worker may do all of its work in a C function, which it
 * evaluates in an expression, perhaps with a portal of its own, as the jobs of
 * TimescaleDB do.
 */
static bool
function_begins(void)
{
	if (!IsTransactionState())
		return false;
	if (MyBackendType == B_BACKEND)
		return dt_activity_note_call() ||
			(ActivePortal == NULL && !dt_transaction_begun);
	return MyBackendType == B_BG_WORKER && !dt_transaction_begun &&
		!IsParallelWorker() && !IsLogicalWorker();
}

static pg_noinline void
handle_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					 int subId, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
	if (access != OAT_FUNCTION_EXECUTE)
		dt_grant_object_accessed(access, classId, objectId, arg);
	else if (function_begins())
	{
		begin_statement(false, false);
		dt_pace();
	}
	else if (MyBackendType == B_BACKEND && IsTransactionState())
		(void) note_statement(false);	/* Bind plans a query */
}

/*
 * Of a client's statement that was analyzed and does not run yet, the planner
 * may evaluate expressions.  That it has begun is known already.
 */
static void
dt_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId,
				 void *arg)
{
	if (access != OAT_FUNCTION_EXECUTE ||
		(dt_session_active() &&
		 (MyBackendType == B_BG_WORKER ||
		  (ActivePortal == NULL &&
		   analyzed_at != GetCurrentStatementStartTimestamp()))))
		handle_object_access(access, classId, objectId, subId, arg);
	else if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
}

static inline void
call_ExecutorRun(EXECUTOR_RUN_PARAMS)
{
	if (prev_ExecutorRun)
		prev_ExecutorRun(EXECUTOR_RUN_ARGS);
	else
		standard_ExecutorRun(EXECUTOR_RUN_ARGS);
}

static pg_noinline void
member_runs(EXECUTOR_RUN_PARAMS)
{
	DtCallbackCut cut;

	/* the time is that of a client's message, not of a transaction */
	if (!dt_transaction_begun ||
		analyzed_at != GetCurrentStatementStartTimestamp())
		begin_statement(false, false);
	analyzed_at = 0;
	dt_pace_rows_of(queryDesc);
	dt_interrupt_begin_cut(&cut);
	call_ExecutorRun(EXECUTOR_RUN_ARGS);
	dt_interrupt_end_cut(&cut);
	if (queryDesc->plannedstmt->parallelModeNeeded)
		dt_account_lock_and_skip_workers();
}

static pg_noinline void
worker_runs(EXECUTOR_RUN_PARAMS)
{
	/* not for a query of a function that the worker calls */
	bool		is_its_part = queryDesc->sourceText == debug_query_string;

	if (is_its_part)
		dt_account_lock_and_begin_worker_run();
	if (dt_session_active())
		member_runs(EXECUTOR_RUN_ARGS);
	else
		call_ExecutorRun(EXECUTOR_RUN_ARGS);
	if (is_its_part)
	{
		dt_live_stop();
		dt_account_lock_and_end_worker_run();
	}
}

static void
dt_ExecutorRun(EXECUTOR_RUN_PARAMS)
{
	if (unlikely(IsParallelWorker()))
		worker_runs(EXECUTOR_RUN_ARGS);
	else if (dt_session_active())
		member_runs(EXECUTOR_RUN_ARGS);
	else
	{
		dt_pace_commit_need(false);
		call_ExecutorRun(EXECUTOR_RUN_ARGS);
	}
}

static void
dt_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	/* also that of a session that is moved into a group meanwhile */
	bool		ends_vacuum = is_vacuum(pstmt->utilityStmt);
	bool		is_active = dt_session_active();
	DtCallbackCut cut;

	if (is_active)
	{
		if (!may_pause_before(pstmt->utilityStmt))
			(void) note_statement(false);
		else if (context != PROCESS_UTILITY_TOPLEVEL ||
				 analyzed_at != GetCurrentStatementStartTimestamp())
			begin_command(pstmt->utilityStmt,
						  context == PROCESS_UTILITY_TOPLEVEL &&
						  GetCurrentTransactionNestLevel() == 1 &&
						  ActivePortal != NULL && ActiveSnapshotSet() &&
						  ActivePortal->portalSnapshot == GetActiveSnapshot());
		analyzed_at = 0;
		if (is_prepare(pstmt->utilityStmt))
			dt_transaction_note_prepare();
		dt_interrupt_begin_cut(&cut);
	}
	else
		dt_pace_commit_need(false);
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
	if (is_active)
		dt_interrupt_end_cut(&cut);
	if (ends_vacuum)
		dt_pace_vacuum_end();
}

/*
 * An error that ends the transaction is reported before it does, and the
 * failsafe of VACUUM when it is triggered.  Messages by
 * which the core serves our requests for a check are not logged.
 */
static void
dt_emit_log(ErrorData *error)
{
	if (error->elevel == ERROR)
	{
		dt_transaction_note_error(error->sqlerrcode);
		dt_pace_vacuum_end();
	}
	else if (error->elevel == WARNING)
		dt_pace_vacuum_note_warning(error);
	if (!dt_interrupt_takes_message(error) && prev_emit_log)
		prev_emit_log(error);
}

/*
 * When a subtransaction with a parallel query fails, the workers' counters may
 * never be added to the leader's.
 */
static void
dt_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					SubTransactionId parentSubid, void *arg)
{
	if (!dt_session_active() || event != SUBXACT_EVENT_ABORT_SUB)
		return;
	dt_interrupt_forget_listing();
	/* from 17 on a function of a running parallel query may have one, too */
	if (!IsInParallelMode())
		dt_account_lock_and_forget_workers();
	dt_live_renew_request();
}

/* A check for interrupts is over, and the next one can be requested. */
static void
check_ends(void)
{
	dt_transaction_note_check();
	dt_live_after_check();
}

void
dt_hooks_install(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = dt_shmem_request_hook;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = dt_shmem_startup_hook;

	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = dt_post_parse_analyze;
	prev_object_access = object_access_hook;
	object_access_hook = dt_object_access;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = dt_ExecutorRun;
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = dt_ProcessUtility;

	prev_emit_log = emit_log_hook;
	emit_log_hook = dt_emit_log;
	dt_interrupt_init(dt_pace_at_check, check_ends);
	dt_live_init(dt_pace_wants_check);

	RegisterSubXactCallback(dt_subxact_callback, NULL);
	dt_pace_commit_init();
}
