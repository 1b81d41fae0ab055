/*-------------------------------------------------------------------------
 *
 * other_extension.c
 *		Another extension, for test/t/059_other_extensions.pl.
 *
 * With other_extension.runs_commands = on it runs some commands itself, without
 * the hooks of the libraries that were loaded before it, as TimescaleDB does,
 * whose background workers do the same to a C function as launch_work().  With
 * other_extension.wraps_node = on it has its own wrapper around the top node of
 * each plan, as extensions that measure nodes do.  And it tells what the core has
 * counted in this process.
 *
 *	blocks_dirtied()	what the core has counted, so far
 *	work()				as if 2500 shared buffers had been dirtied
 *	idle_work()			the same, in a time in which it uses hardly any CPU
 *	launch_work(oid)	a worker that evaluates this function, no statement
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "postmaster/bgworker.h"
#include "start_worker.h"
#include "tcop/pquery.h"
#include "tcop/utility.h"
#include "utils/guc.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(blocks_dirtied);
PG_FUNCTION_INFO_V1(work);
PG_FUNCTION_INFO_V1(idle_work);
PG_FUNCTION_INFO_V1(launch_work);
extern PGDLLEXPORT void other_worker_main(Datum function);
void		_PG_init(void);

static ProcessUtility_hook_type next = NULL;
static ExecutorRun_hook_type next_run = NULL;
static bool runs_commands = false;
static bool wraps_node = false;
static bool was_called = false;

#if PG_VERSION_NUM >= 180000
#define RUN_PARAMS QueryDesc *query, ScanDirection direction, uint64 count
#define RUN_ARGS query, direction, count
#else
#define RUN_PARAMS QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define RUN_ARGS query, direction, count, once
#endif

static TupleTableSlot *
wrapper(PlanState *node)
{
	was_called = true;
	return node->ExecProcNodeReal(node);
}

static void
run_plan(RUN_PARAMS)
{
	PlanState  *top = query->planstate;
	bool		wrapped = wraps_node && top;

	if (wrapped)
	{
		was_called = false;
		top->ExecProcNode = wrapper;
	}
	(next_run ? next_run : standard_ExecutorRun) (RUN_ARGS);
	if (wrapped && !was_called)
		elog(ERROR, "somebody else has taken the place of the wrapper");
}

static void
run_utility(PlannedStmt *pstmt, const char *query, bool read_only,
			ProcessUtilityContext context, ParamListInfo params,
			QueryEnvironment *environment, DestReceiver *dest,
			QueryCompletion *completion)
{
	Node	   *command = pstmt->utilityStmt;
	bool		mine = runs_commands && (IsA(command, VacuumStmt) ||
										 IsA(command, CopyStmt) ||
										 IsA(command, IndexStmt));

	(mine || next == NULL ? standard_ProcessUtility : next)
		(pstmt, query, read_only, context, params, environment, dest, completion);
}

Datum
blocks_dirtied(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(pgBufferUsage.shared_blks_dirtied);
}

Datum
work(PG_FUNCTION_ARGS)
{
	volatile int spin;
	int			i;

	for (i = 0; i < 2500; i++)
	{
		pgBufferUsage.shared_blks_dirtied++;
		for (spin = 0; spin < 20000; spin++)
			;					/* a timer of CPU time is to expire */
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_VOID();
}

/* No timer of CPU time expires. */
Datum
idle_work(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < 250; i++)
	{
		pgBufferUsage.shared_blks_dirtied += 10;
		pg_usleep(1000);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_VOID();
}

void
other_worker_main(Datum function)
{
	Oid			database;
	EState	   *estate;
	ExprState  *call;
	Portal		portal;
	bool		is_null;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(database));
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, 0);
	portal = ActivePortal = CreatePortal("", true, true);
	portal->resowner = CurrentResourceOwner;
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	estate = CreateExecutorState();
	call = ExecPrepareExpr((Expr *) makeFuncExpr(DatumGetObjectId(function),
												 VOIDOID, NIL, InvalidOid,
												 InvalidOid,
												 COERCE_EXPLICIT_CALL),
						   estate);
	(void) ExecEvalExpr(call, GetPerTupleExprContext(estate), &is_null);
	PopActiveSnapshot();
	CommitTransactionCommand();
	ActivePortal = NULL;
	PortalDrop(portal, false);
}

Datum
launch_work(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {.bgw_main_arg = PG_GETARG_DATUM(0)};
	BackgroundWorkerHandle *handle;

	memcpy(worker.bgw_extra, &MyDatabaseId, sizeof(MyDatabaseId));
	handle = start_worker(&worker, "other extension", other_worker_main, "other_worker_main");
	if (WaitForBackgroundWorkerShutdown(handle) != BGWH_STOPPED)
		elog(ERROR, "the worker has not run");
	PG_RETURN_VOID();
}

void
_PG_init(void)
{
	DefineCustomBoolVariable("other_extension.runs_commands",
							 "Runs some commands itself.",
							 NULL, &runs_commands, false, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	DefineCustomBoolVariable("other_extension.wraps_node",
							 "Has a wrapper around the top of each plan.",
							 NULL, &wraps_node, false, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	next_run = ExecutorRun_hook;
	ExecutorRun_hook = run_plan;
	next = ProcessUtility_hook;
	ProcessUtility_hook = run_utility;
}
