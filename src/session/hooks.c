/*-------------------------------------------------------------------------
 *
 * hooks.c
 *		The hooks of the server that this library uses, except those of its
 *		parameters, of EXPLAIN and of stored batch jobs.
 *
 * In the order in which they are called: at server start, those for shared
 * memory; when a statement begins, post_parse_analyze, planner, object_access (a call
 * by the protocol for that), ExecutorRun, fmgr (functions with a SET clause),
 * ExecutorFinish and ProcessUtility; when something is logged,
 * emit_log, by which checks for interrupts are found; when a subtransaction ends,
 * its callback.
 * The rest of the library knows of no hook, except that check.c tests
 * whether emit_log still leads here, sql/explain.c installs those of EXPLAIN, and
 * batch/store.c a ProcessUtility hook of its own, which protects its relations.
 * Other callbacks are registered where they are needed, as some of
 * them cost every transaction something: those for the end of a transaction in
 * at_end.c (for commit.c), session.c, load.c, commits.c and batch/start.c, for the exit
 * of a process in session.c, sampler.c and queue.c, for a relation that is out of date in load.c, and
 * for a timeout in tick.c.
 *
 * For a session in no group a hook that is called for each statement looks at
 * a few variables and calls the next one; what members need is in functions
 * of its own.
 *
 * What has to be paid before a statement of a writing kind (kind.c) is paid in the
 * first of these hooks that sees it, so that the session holds as little as possible
 * meanwhile.  If the transaction has not read before:
 *
 *	post_parse_analyze (a query)			locks on the tables that it names
 *	the same (a command)					nothing; EXPLAIN is a query here
 *	planner (a query parsed earlier)		these locks, and a snapshot that is
 *											given back
 *	ProcessUtility (one parsed earlier)		nothing; a snapshot if it has rows
 *	ExecutorRun (a plan made earlier)		a snapshot, and what starting to
 *											execute takes
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
#include "catalog/objectaccess.h"
#include "executor/executor.h"
#include "nodes/parsenodes.h"
#include "optimizer/planner.h"
#include "parser/analyze.h"
#include "session/activity.h"
#include "session/at_end.h"
#include "session/check.h"
#include "session/commit.h"
#include "session/hooks.h"
#include "session/kind.h"
#include "session/parallel_apply.h"
#include "session/pay.h"
#include "session/rows.h"
#include "session/session.h"
#include "session/sigterm.h"
#include "session/sleep.h"
#include "session/syntax_hint.h"
#include "session/tick.h"
#include "session/workers.h"
#include "shared/load.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "waiters/waiters.h"

#include "compat.h"

/* Those that were there before, or what the server does without any. */
static struct
{
	shmem_request_hook_type shmem_request;
	shmem_startup_hook_type shmem_startup;
	post_parse_analyze_hook_type post_parse_analyze;
	object_access_hook_type object_access;
	planner_hook_type planner;
	needs_fmgr_hook_type needs_fmgr;
	fmgr_hook_type fmgr;
	ExecutorRun_hook_type ExecutorRun;
	ExecutorFinish_hook_type ExecutorFinish;
	ProcessUtility_hook_type ProcessUtility;
	emit_log_hook_type emit_log;
}			prev;

static void
dt_shmem_request_hook(void)
{
	if (prev.shmem_request)
		prev.shmem_request();
	dt_shmem_request();
	dt_waiters_shmem_request();
}

static void
dt_shmem_startup_hook(void)
{
	if (prev.shmem_startup)
		prev.shmem_startup();
	dt_shmem_startup();
	dt_waiters_shmem_startup();
	dt_sleep_init();
}

/* A statement begins.  Is the session in a group? */
static pg_attribute_always_inline bool
note_statement(void)
{
	bool		is_member;

	dt_load();
	dt_at_end_need(true);
	is_member = dt_session_begin_statement();
	if (is_member)
	{
		dt_sigterm_watch();
		dt_check_test();
		if (!dt_process_is_servers_own())
			dt_tick_start();
	}
	return is_member;
}

/* A command begins that may use much at once. */
static void
start_command(void)
{
	if (dt_account.group != NULL && !dt_process_is_servers_own())
		dt_pay_watch_command();
}

/*
 * A statement of this kind begins.  What was used in the transaction before is paid,
 * if it is paid in flight, at the first row of a query, or where a command begins.
 */
static void
begin(DtEvent kind, bool snapshot_is_new, bool is_command)
{
	if (!note_statement() || kind == DT_NO_EVENT)
		return;
	dt_pay_begin(kind, snapshot_is_new);
	if (!is_command)
		return;
	/* not before the pause, which would stop the timer that this sets */
	if (kind == DT_WRITES)
		start_command();
	dt_pay_if_due();
}

/*
 * Something that the client has not sent itself begins, within what it has sent, or in
 * a background worker.
 */
static void
begin_nested(bool is_command)
{
	if (unlikely(InterruptHoldoffCount > 0))
		dt_pay_where_held();
	else if (dt_activity_all_counts())
		begin(DT_WRITES, false, is_command);
	else if (dt_xact.phase == DT_OUT && dt_activity_client_waits())
		begin(DT_READS, false, is_command); /* in the analysis of what was
											 * sent */
	else
	{
		/* of an apply worker nothing else tells when a limit has changed */
		if (dt_account.group != NULL && !dt_account_is_current())
			dt_pay_catch_up();
		if (!is_command)
			return;
		start_command();
		dt_pay_if_due();
	}
}

/* Does this command lead out of the group, as far as it says where to? */
static bool
leaves_group(VariableSetStmt *set)
{
	char	   *name;

	if (set->name == NULL || pg_strcasecmp(set->name, "dirty_throttle.group") != 0)
		return false;
	name = ExtractSetVariableArgs(set);
	return name == NULL || strcmp(name, dt_show_group()) != 0;
}

/*
 * Outside of a transaction, whoever leaves the group by SET or RESET pays before
 * that.  RESET ALL and DISCARD ALL do not: by these a pooler takes a connection
 * from one client and gives it to the next one, who would wait.
 */
static void
set_group(Node *command, ProcessUtilityContext context)
{
	if (IsA(command, VariableSetStmt) && context == PROCESS_UTILITY_TOPLEVEL &&
		!IsTransactionBlock() && leaves_group((VariableSetStmt *) command))
		dt_pay_before_leaving(false);
}

/*
 * Who coordinates a two-phase commit holds locks elsewhere, or until the command that
 * finishes it has ended.  A PREPARE TRANSACTION that fails rolls back, and there is no
 * pause after that either; in a block that has failed, that was before.
 */
static void
note_two_phase(Node *command)
{
	TransactionStmtKind kind;

	if (!IsA(command, TransactionStmt) || IsAbortedTransactionBlockState() ||
		(dt_account.group == NULL && dt_xact.phase == DT_OUT))
		return;
	kind = ((TransactionStmt *) command)->kind;
	/* the other two fail within a block, which may go on from a savepoint */
	if (kind == TRANS_STMT_PREPARE ||
		(!IsTransactionBlock() && (kind == TRANS_STMT_COMMIT_PREPARED ||
								   kind == TRANS_STMT_ROLLBACK_PREPARED)))
		dt_phase_note_prepared();
}

/*
 * Is the snapshot one that was just taken, and nothing but the statement has?  That of
 * a background worker may be older than the subtransaction that it is in.
 */
static bool
is_snapshot_new(void)
{
	return dt_process() == DT_SESSION || GetCurrentTransactionNestLevel() == 1;
}

/*
 * The statement that the client has just sent, and not one that something
 * within it has analyzed.
 */
static pg_noinline void
member_analyzes(ParseState *pstate, Query *query)
{
	if (dt_activity_client_waits() &&
		dt_activity_is_clients_text(pstate->p_sourcetext))
		begin(dt_kind_of_query(query), is_snapshot_new(),
			  query->commandType == CMD_UTILITY);
}

static pg_noinline void
chain_post_parse_analyze(ParseState *pstate, Query *query,
						 DT_JUMBLE_STATE * jstate)
{
	prev.post_parse_analyze(pstate, query, jstate);
	if (dt_session_active())
		member_analyzes(pstate, query);
}

/* With nobody to call before, there is nothing to save on the stack. */
static void
dt_post_parse_analyze(ParseState *pstate, Query *query, DT_JUMBLE_STATE * jstate)
{
	if (unlikely(prev.post_parse_analyze != NULL))
		chain_post_parse_analyze(pstate, query, jstate);
	else if (dt_session_active())
		member_analyzes(pstate, query);
}

/*
 * A function is going to be called: by the protocol for that, in the analysis of
 * what the client has sent, or by a background worker that evaluates it in an
 * expression, as the jobs of TimescaleDB do.  Nothing else tells of such a call.
 */
static pg_noinline void
function_begins(void)
{
	if (dt_activity_all_counts())
		begin(DT_WRITES, false, true);
	else if (dt_process() == DT_SESSION && dt_activity_client_waits())
		begin(DT_READS, false, true);
}

static inline void
note_object_access(ObjectAccessType access, Oid classId, Oid objectId, void *arg)
{
	if (access != OAT_FUNCTION_EXECUTE)
		dt_load_object_accessed(access, classId, objectId, arg);
	else if (dt_session_active() && IsTransactionState() &&
			 (dt_xact.phase == DT_OUT || debug_query_string == NULL))
		function_begins();
}

static pg_noinline void
chain_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId,
					void *arg)
{
	prev.object_access(access, classId, objectId, subId, arg);
	note_object_access(access, classId, objectId, arg);
}

/* With nobody to call before, there is nothing to save on the stack. */
static void
dt_object_access(ObjectAccessType access, Oid classId, Oid objectId, int subId,
				 void *arg)
{
	if (unlikely(prev.object_access != NULL))
		chain_object_access(access, classId, objectId, subId, arg);
	else
		note_object_access(access, classId, objectId, arg);
}

/*
 * Code of users runs while a query is planned (IMMUTABLE functions), and after
 * its last row (AFTER triggers), too.  There are no rows at which to pause, but
 * checks.  A statement that was parsed earlier is planned before it runs.
 */
static pg_noinline PlannedStmt *
member_plans(PLANNER_PARAMS)
{
	PlannedStmt *plan;
	DtCallbackCut cut;

	if (dt_xact.phase == DT_OUT && dt_activity_client_waits() &&
		dt_activity_is_clients_text(query_string))
		begin(dt_kind_of_query(parse), is_snapshot_new(), false);
	dt_check_begin_cut(&cut);
	plan = prev.planner(PLANNER_ARGS);
	dt_check_end_cut(&cut);
	return plan;
}

static PlannedStmt *
dt_planner(PLANNER_PARAMS)
{
	if ((dt_xact.phase != DT_OUT && dt_check_has_nothing_to_cut()) ||
		!dt_session_active())
		return prev.planner(PLANNER_ARGS);
	return member_plans(PLANNER_ARGS);
}

/*
 * A function with a SET clause may have brought the session into a group, for each row,
 * and evaluate nothing but expressions.
 */
static bool
dt_needs_fmgr(Oid function)
{
	return prev.needs_fmgr != NULL && prev.needs_fmgr(function);
}

static void
dt_fmgr(FmgrHookEventType event, FmgrInfo *function, Datum *arg)
{
	/* first, as it may fail, and the others would not hear of that */
	if (event == FHET_START && dt_session_active())
		dt_pay_where_function_begins();
	if (prev.fmgr)
		prev.fmgr(event, function, arg);
}

static pg_noinline void
member_finishes(QueryDesc *queryDesc)
{
	DtCallbackCut cut;

	dt_check_begin_cut(&cut);
	prev.ExecutorFinish(queryDesc);
	dt_check_end_cut(&cut);
}

static void
dt_ExecutorFinish(QueryDesc *queryDesc)
{
	if (dt_check_has_nothing_to_cut() || !dt_session_active())
		prev.ExecutorFinish(queryDesc);
	else
		member_finishes(queryDesc);
}

/* A plan that has parallel workers. */
static pg_noinline void
run_with_workers(EXECUTOR_RUN_PARAMS)
{
	int			outer = dt_workers_begin_plan();

	prev.ExecutorRun(EXECUTOR_RUN_ARGS);
	dt_workers_end_plan(outer);
}

static inline void
run(EXECUTOR_RUN_PARAMS)
{
	if (unlikely(queryDesc->plannedstmt->parallelModeNeeded) &&
		!IsParallelWorker())
		run_with_workers(EXECUTOR_RUN_ARGS);
	else
		prev.ExecutorRun(EXECUTOR_RUN_ARGS);
}

static pg_noinline void
member_runs(EXECUTOR_RUN_PARAMS)
{
	DtCallbackCut cut;

	if (!dt_activity_is_clients_text(queryDesc->sourceText) ||
		dt_process() != DT_SESSION)
		begin_nested(false);
	else if (dt_xact.phase <= DT_READING)
	{
		DtEvent		kind = dt_kind_of_plan(queryDesc->plannedstmt);

		/*
		 * what reads has begun with its analysis, if it was not analyzed
		 * earlier
		 */
		if (kind != DT_READS || dt_xact.phase == DT_OUT ||
			!dt_account_is_current())
			begin(kind, false, false);
	}
	dt_rows_pace(queryDesc);
	dt_check_begin_cut(&cut);
	run(EXECUTOR_RUN_ARGS);
	dt_check_end_cut(&cut);
}

static pg_noinline void
worker_runs(EXECUTOR_RUN_PARAMS)
{
	bool		is_its_part = ActivePortal == NULL &&
		dt_activity_is_clients_text(queryDesc->sourceText);

	if (is_its_part)
		dt_worker_begins_part();
	if (dt_session_active())
		member_runs(EXECUTOR_RUN_ARGS);
	else
		prev.ExecutorRun(EXECUTOR_RUN_ARGS);
	if (is_its_part)
	{
		dt_tick_end_transaction();
		dt_worker_ends_part();
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
		dt_at_end_need(false);
		run(EXECUTOR_RUN_ARGS);
	}
}

/* A command that the client has sent begins.  It may have been analyzed earlier. */
static void
begin_clients_command(const PlannedStmt *pstmt, const char *queryString)
{
	DtEvent		kind = dt_kind_of_command(pstmt->utilityStmt);

	dt_commit_note_command(pstmt, queryString);
	note_two_phase(pstmt->utilityStmt);
	if (dt_xact.phase != DT_WRITING)
		begin(kind, GetCurrentTransactionNestLevel() == 1 &&
			  ActivePortal != NULL && ActiveSnapshotSet() &&
			  ActivePortal->portalSnapshot == GetActiveSnapshot(), true);
	else if (kind == DT_WRITES)
		start_command();
}

static void
dt_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	bool		is_active = dt_session_active();
	DtCallbackCut cut;

	dt_account_leave_workers_out();
	if (is_active)
	{
		set_group(pstmt->utilityStmt, context);
		if (context == PROCESS_UTILITY_TOPLEVEL && dt_process() == DT_SESSION)
			begin_clients_command(pstmt, queryString);
		else
			begin_nested(true);
		dt_check_begin_cut(&cut);
	}
	else
		dt_at_end_need(false);
	prev.ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
						queryEnv, dest, qc);
	dt_account_leave_workers_out();
	if (is_active)
		dt_check_end_cut(&cut);
}

/*
 * A check for interrupts, anywhere.  Nearly everything that runs long calls
 * CHECK_FOR_INTERRUPTS again and again, in sessions, autovacuum workers and
 * parallel workers.  The timers of tick.c request a check there.  When a
 * running session is put into a group, the process that does so requests one.
 */
static void
at_check(void)
{
	if (dt_process() == DT_APPLY)
		dt_parallel_apply_note_check(dt_commit_for_workers);
	if (!dt_session_active() || !dt_activity_is_working())
		return;
	dt_at_end_need(true);
	/* if the session has just been moved: from now on its timers ask */
	(void) dt_session_follow();
	dt_tick_start();
	/* others wait for reads that this process has prepared and not begun */
	if (MyProc->waitStatus == PROC_WAIT_STATUS_WAITING ||
		dt_waiters_extends_relation() || dt_io_is_staged())
		return;
	if (dt_activity_is_urgent())
		dt_pay_later();
	else
		dt_pay_at_check();
}

/* Messages by which the core serves our requests for checks are not logged. */
static void
dt_emit_log(ErrorData *error)
{
	if (dt_check_takes_message(error))
		return;
	dt_syntax_hint_add(error);
	if (prev.emit_log)
		prev.emit_log(error);
}

static void
dt_subxact_callback(SubXactEvent event, SubTransactionId mySubid,
					SubTransactionId parentSubid, void *arg)
{
	if (!dt_session_active() || event != SUBXACT_EVENT_ABORT_SUB)
		return;
	dt_check_forget_listing();
	dt_workers_fail();
	dt_tick_renew();
}

void
dt_hooks_install(void)
{
	prev.shmem_request = shmem_request_hook;
	shmem_request_hook = dt_shmem_request_hook;
	prev.shmem_startup = shmem_startup_hook;
	shmem_startup_hook = dt_shmem_startup_hook;

	prev.post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = dt_post_parse_analyze;
	prev.object_access = object_access_hook;
	object_access_hook = dt_object_access;
	prev.needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = dt_needs_fmgr;
	prev.fmgr = fmgr_hook;
	fmgr_hook = dt_fmgr;
	prev.planner = planner_hook ? planner_hook : standard_planner;
	planner_hook = dt_planner;
	prev.ExecutorRun = ExecutorRun_hook ? ExecutorRun_hook :
		standard_ExecutorRun;
	ExecutorRun_hook = dt_ExecutorRun;
	prev.ExecutorFinish = ExecutorFinish_hook ? ExecutorFinish_hook :
		standard_ExecutorFinish;
	ExecutorFinish_hook = dt_ExecutorFinish;
	prev.ProcessUtility = ProcessUtility_hook ? ProcessUtility_hook :
		standard_ProcessUtility;
	ProcessUtility_hook = dt_ProcessUtility;

	prev.emit_log = emit_log_hook;
	emit_log_hook = dt_emit_log;
	dt_check_init(at_check, dt_pay_note_check);

	RegisterSubXactCallback(dt_subxact_callback, NULL);
	dt_commit_init();
}
