/*-------------------------------------------------------------------------
 *
 * batches.c
 *		start_batches(), run_in_batches(), and functions for such jobs.
 *
 * Everybody may call them.  A statement runs as its caller; and a job belongs to
 * the role that has started it first: others do not find it, unless
 * they have the privileges of that role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "batch/start.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "shared/shmem.h"
#include "sql/sql.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Arguments of start_batches() and run_in_batches(), in their order. */
enum
{
	ARG_NAME,
	ARG_TABLE,
	ARG_STATEMENT,
	ARG_KEY,
	ARG_START,
	ARG_FINISH,
	ARG_RESTART,
	ARG_BATCH_TIME,
	ARG_MAX_ROWS,
	ARG_RUN_TIME,
	ARG_ROW_SECURITY,
	ARG_UNTHROTTLED,
	ARG_DRY_RUN,
	ARGS
};

static const char *const arg_names[ARGS] = {
	"name", "table_name", "statement", "key", "start", "finish", "restart",
	"batch_time", "max_rows", "run_time", "row_security", "unthrottled", "dry_run"
};

static void
check_given(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", arg_names[arg]),
				 errhint("Give it a value, or leave it out if it has a default.")));
}

static char *
get_string(FunctionCallInfo fcinfo, int arg)
{
	return PG_ARGISNULL(arg) ? NULL :
		text_to_cstring(PG_GETARG_TEXT_PP(arg));
}

/* The first argument, of NAMEDATALEN bytes. */
static char *
get_job_name(FunctionCallInfo fcinfo)
{
	const char *flaw;
	char	   *name;
	Name		result = palloc0(sizeof(NameData));

	check_given(fcinfo, ARG_NAME);
	name = get_string(fcinfo, ARG_NAME);
	flaw = strlen(name) >= NAMEDATALEN ? "be longer than 63 bytes" :
		dt_name_flaw(name);
	if (flaw != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the name of a batch job must not %s", flaw),
				 errhint("Write a name of 1 to %d bytes, without blanks around it, for example 'purge log'.",
						 NAMEDATALEN - 1)));
	namestrcpy(result, name);
	return NameStr(*result);
}

static bool
get_bool(FunctionCallInfo fcinfo, int arg)
{
	check_given(fcinfo, arg);
	return PG_GETARG_BOOL(arg);
}

/* An argument of any type. */
static DtUserValue
get_value(FunctionCallInfo fcinfo, int arg)
{
	DtUserValue value = {.type = InvalidOid};

	if (!PG_ARGISNULL(arg))
	{
		value.type = get_fn_expr_argtype(fcinfo->flinfo, arg);
		value.value = PG_GETARG_DATUM(arg);
	}
	return value;
}

/* A time in us, from min_us to a year; 0 for NULL. */
static int64
get_time(FunctionCallInfo fcinfo, int arg, int64 min_us, const char *example)
{
	Interval   *interval;
	double		us;

	if (PG_ARGISNULL(arg))
		return 0;
	interval = PG_GETARG_INTERVAL_P(arg);
	us = (interval->month * (double) DAYS_PER_MONTH + interval->day) *
		USECS_PER_DAY + interval->time;
	if (us < min_us || us > 366.0 * USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" is out of range", arg_names[arg]),
				 errdetail("Valid values are from %s to one year.",
						   min_us == 0 ? "0" : min_us == 1000 ? "1 ms" : "1 s"),
				 errhint("Write a time with its unit, for example %s => '%s'.",
						 arg_names[arg], example)));
	return (int64) us;
}

static void
get_options(FunctionCallInfo fcinfo, DtJobOptions *options)
{
	DtJob	   *job = &options->job;

	dt_sql_need_library();
	options->store = dt_store_oid(fcinfo->flinfo->fn_oid);
	job->owner = GetUserId();
	job->name = get_job_name(fcinfo);
	if (!PG_ARGISNULL(ARG_TABLE) || !PG_ARGISNULL(ARG_STATEMENT))
	{
		check_given(fcinfo, ARG_TABLE);
		check_given(fcinfo, ARG_STATEMENT);
		job->table = PG_GETARG_OID(ARG_TABLE);
		job->statement = get_string(fcinfo, ARG_STATEMENT);
	}
	options->key = get_string(fcinfo, ARG_KEY);
	options->start = get_value(fcinfo, ARG_START);
	options->finish = get_value(fcinfo, ARG_FINISH);
	options->restart = get_bool(fcinfo, ARG_RESTART);
	check_given(fcinfo, ARG_BATCH_TIME);
	job->batch_us = get_time(fcinfo, ARG_BATCH_TIME, 1000, "100 ms");
	check_given(fcinfo, ARG_MAX_ROWS);
	job->max_rows = PG_GETARG_INT32(ARG_MAX_ROWS);
	if (job->max_rows < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"%s\" must be 1 or more",
						arg_names[ARG_MAX_ROWS]),
				 errhint("Leave it out, and batches are as large as \"batch_time\" and the limits of the group allow.")));
	job->run_us = get_time(fcinfo, ARG_RUN_TIME, USECS_PER_SEC, "4 h");
	job->row_security = get_bool(fcinfo, ARG_ROW_SECURITY);
	options->unthrottled = get_bool(fcinfo, ARG_UNTHROTTLED);
	options->dry_run = get_bool(fcinfo, ARG_DRY_RUN);
}

PG_FUNCTION_INFO_V1(run_in_batches);
Datum
run_in_batches(PG_FUNCTION_ARGS)
{
	DtJobOptions options = {0};
	bool		finished;
	int64		rows;
	TupleDesc	tupdesc;
	Datum		values[2];
	bool		nulls[2] = {false, false};

	bool		atomic = !(fcinfo->context && IsA(fcinfo->context, CallContext) &&
						   !castNode(CallContext, fcinfo->context)->atomic);

	get_options(fcinfo, &options);
	rows = dt_start(&options, true, atomic, &finished);

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	values[0] = Int64GetDatum(rows);
	values[1] = BoolGetDatum(finished);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  values, nulls)));
}

PG_FUNCTION_INFO_V1(start_batches);
Datum
start_batches(PG_FUNCTION_ARGS)
{
	DtJobOptions options = {0};
	bool		finished;

	get_options(fcinfo, &options);
	(void) dt_start(&options, false, true, &finished);
	PG_RETURN_VOID();
}

/* Who else has a job with that name? */
typedef struct Owners
{
	const char *name;
	Oid			owner;			/* one of them */
	int			n;
} Owners;

static void
note_owner(const DtJob *job, void *arg)
{
	Owners	   *owners = arg;

	if (strcmp(job->name, owners->name) == 0 && has_privs_of_role(GetUserId(), job->owner))
	{
		owners->owner = job->owner;
		owners->n++;
	}
}

/*
 * The job with that name: the caller's own, or else that of the one role whose
 * privileges the caller has.
 */
static DtJob *
find_job(const DtStore *store, const char *name)
{
	Owners		owners = {.name = name};
	DtJob	   *job = dt_store_find(store, GetUserId(), name, true);

	if (job != NULL)
		return job;
	dt_store_each(store, note_owner, &owners);
	if (owners.n > 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("several roles have a batch job \"%s\"", name),
				 errhint("The view dirty_throttle_batches lists the owners. First use SET ROLE for one of them.")));
	return dt_store_find(store, owners.owner, name, false);
}

/* That with the name that was given, and the store. */
static DtJob *
open_job(FunctionCallInfo fcinfo, const char *function, DtStore *store)
{
	dt_sql_need_library();
	PreventCommandDuringRecovery(function);
	*store = dt_store_open(dt_store_oid(fcinfo->flinfo->fn_oid), RowExclusiveLock);
	return find_job(store, get_job_name(fcinfo));
}

PG_FUNCTION_INFO_V1(stop_batches);
Datum
stop_batches(PG_FUNCTION_ARGS)
{
	DtStore		store;
	DtJob	   *job = open_job(fcinfo, "stop_batches()", &store);
	DtQueueState state = dt_queue_stop(job->id);

	if (state == DT_QUEUE_ABSENT)
		ereport(NOTICE,
				(errmsg("batch job \"%s\" is not running", job->name)));
	else if (state < DT_QUEUE_RUNS && !XactReadOnly)
		dt_job_store_stop(&store, job);
	dt_store_close(&store, NoLock);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(forget_batches);
Datum
forget_batches(PG_FUNCTION_ARGS)
{
	DtStore		store;
	DtJob	   *job = open_job(fcinfo, "forget_batches()", &store);
	int			pid;

	PreventCommandIfReadOnly("forget_batches()");
	/* who starts it adds it to the queue before the lock is released */
	dt_store_lock(&store, job->owner, job->name);
	job = find_job(&store, job->name);
	if (dt_queue_find(job->id, &pid) != DT_QUEUE_ABSENT)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 pid != 0 ?
				 errmsg("batch job \"%s\" is being run by process %d", job->name, pid) :
				 errmsg("batch job \"%s\" waits for a background worker", job->name),
				 errhint("End it first, with SELECT stop_batches(%s).",
						 quote_literal_cstr(job->name))));
	dt_store_delete(&store, job);
	dt_store_close(&store, NoLock);
	PG_RETURN_VOID();
}

/*
 * For REFRESH MATERIALIZED VIEW, also where the library was not preloaded.  Each of the
 * functions with this symbol has the name of what it returns.
 */
PG_FUNCTION_INFO_V1(dirty_throttle_stored);
Datum
dirty_throttle_stored(PG_FUNCTION_ARGS)
{
	InitMaterializedSRF(fcinfo, 0);
	dt_store_copy(fcinfo->flinfo->fn_oid,
				  ((ReturnSetInfo *) fcinfo->resultinfo)->setResult);
	return (Datum) 0;
}
