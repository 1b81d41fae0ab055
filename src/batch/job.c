/*-------------------------------------------------------------------------
 *
 * job.c
 *		A job that is run in batches: what is wanted, found and stored.
 *
 * The first start defines the job, and the last key of the table is noted, where it
 * is to end.  Later starts must want the same, and go on where the last batch has
 * ended, with the settings of the first one.  As long as no batch was committed, a
 * start is the first one: so a statement that was mended can be started
 * without forgetting the job first.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "batch/job.h"
#include "batch/walk.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "session/work.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"

/*
 * A role has at most this many jobs, and each of them at most this many bytes of
 * arguments and settings.
 */
#define MOST_JOBS			100
#define LONGEST_ARGUMENT	(100 * 1024)
#define LONGEST_SETTINGS	8192

/* --------------------------------------------------------------- settings */

/* What belongs to the session, its client or its transaction. */
static const char *const others[] = {
	"application_name", "client_encoding", "default_transaction_read_only",
	"dirty_throttle.group", "is_superuser", "role", "session_authorization", "transaction_deferrable",
	"transaction_isolation", "transaction_read_only", "transaction_timeout"
};

static bool
is_wanted(const struct config_generic *variable)
{
	if (strcmp(variable->name, "search_path") == 0)
		return true;
	for (int i = 0; i < lengthof(others); i++)
		if (strcmp(variable->name, others[i]) == 0)
			return false;
	return (variable->source == PGC_S_CLIENT || variable->source == PGC_S_SESSION) &&
		(variable->context == PGC_USERSET ||
		 (variable->context == PGC_SUSET &&
		  pg_parameter_aclcheck(variable->name, GetUserId(), ACL_SET) == ACLCHECK_OK));
}

/*
 * The worker connects as the user of this session, so it has the settings of the server,
 * the database and that role anyway.  What the session has set itself is stored with the
 * job, as those of a function's SET clause are, custom parameters included; search_path
 * in any case, as the statement depends on it.  The worker sets them as the job's owner, so
 * what this role may not set is left out.  Values may be secrets: nothing shows them.
 */
static ArrayType *
get_settings(void)
{
	int			n;
	struct config_generic **variables = dt_guc_variables(&n);
	ArrayBuildState *state = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ArrayType  *settings;

	for (int i = 0; i < n; i++)
		if (is_wanted(variables[i]))
			(void) accumArrayResult(state,
									CStringGetTextDatum(psprintf("%s=%s", variables[i]->name,
																 GetConfigOption(variables[i]->name, false, false))),
									false, TEXTOID, CurrentMemoryContext);
	settings = DatumGetArrayTypeP(makeArrayResult(state, CurrentMemoryContext));
	if (VARSIZE(settings) > LONGEST_SETTINGS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the settings of this session are too long to be stored"),
				 errdetail("They have %d bytes; %d are allowed.",
						   (int) VARSIZE(settings), LONGEST_SETTINGS),
				 errhint("RESET what the batches do not need.")));
	return settings;
}

/* ---------------------------------------------------------------- context */

bool
dt_job_user_can_log_in(void)
{
	HeapTuple	user = SearchSysCacheCopy1(AUTHOID, ObjectIdGetDatum(GetSessionUserId()));

	return HeapTupleIsValid(user) && ((Form_pg_authid) GETSTRUCT(user))->rolcanlogin;
}

static void
check_context(void)
{
	HeapTuple	database = SearchSysCacheCopy1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));

	PreventCommandDuringRecovery("start_batches()");
	PreventCommandIfReadOnly("start_batches()");
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batches cannot be run in single-user mode"),
				 errhint("Start the server, which has background workers.")));
	/* RESET ROLE, refused there, would lead the worker to the caller's rights */
	if (InSecurityRestrictedOperation() || InLocalUserIdChange())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot start batches within a SECURITY DEFINER function or a security-restricted operation"),
				 errhint("Start the job outside of that; to run it as another role, first use SET ROLE.")));
	if (DT_BGWORKER_ANY_LOGIN == 0 && !dt_job_user_can_log_in())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("role \"%s\" may not log in, so no background worker can run batches for it",
						GetUserNameFromId(GetSessionUserId(), false)),
				 errhint("Start the job in a session of a role with LOGIN, and use SET ROLE there.")));
	if (HeapTupleIsValid(database) && !((Form_pg_database) GETSTRUCT(database))->datallowconn)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("database \"%s\" does not allow connections, so no background worker can run batches in it",
						get_database_name(MyDatabaseId)),
				 errhint("First use ALTER DATABASE %s ALLOW_CONNECTIONS true.",
						 quote_identifier(get_database_name(MyDatabaseId)))));
}

/* --------------------------------------------------------------- the table */

Relation
dt_job_open_table(Oid oid, const char *name)
{
	Relation	table = try_relation_open(oid, AccessShareLock);

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the table of batch job \"%s\" no longer exists",
						name),
				 errhint("Use SELECT forget_batches(%s).",
						 quote_literal_cstr(name))));
	if (table->rd_rel->relkind != RELKIND_RELATION &&
		table->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("relation \"%s\" cannot be processed in batches",
						RelationGetRelationName(table)),
				 errdetail_relkind_not_supported(table->rd_rel->relkind),
				 errhint("Name an ordinary or partitioned table. The statement may use others, with {batch} for the columns of its key.")));
	if (table->rd_rel->relhassubclass)
		list_free(find_all_inheritors(oid, AccessShareLock, NULL));
	return table;
}

/*
 * How many rows the table has, as ANALYZE or VACUUM have counted, whatever its size
 * is now: the job itself makes it larger.  -1: not known; so it is, too, where there are
 * no statistics of this column, if it is not NULL.
 */
static double
count_rows(Oid table, const char *column)
{
	double		rows = 0;

	foreach_oid(oid, find_all_inheritors(table, NoLock, NULL))
	{
		HeapTuple	tuple = SearchSysCacheCopy1(RELOID, ObjectIdGetDatum(oid));
		Form_pg_class form = HeapTupleIsValid(tuple) ? (Form_pg_class) GETSTRUCT(tuple) : NULL;

		if (form == NULL || form->relkind != RELKIND_RELATION)
			continue;
		if (form->reltuples < 0 ||
			(form->reltuples > 0 && column != NULL &&
			 !SearchSysCacheExists3(STATRELATTINH, ObjectIdGetDatum(oid),
									Int16GetDatum(get_attnum(oid, column)), BoolGetDatum(false))))
			return -1;
		rows += form->reltuples;
	}
	return rows;
}

/* ----------------------------------------------------------------- ranges */

DtRange
dt_job_rest(const DtJob *job, const DtKey *key)
{
	return (DtRange)
	{
		.low_inclusive = (job->position == NULL),
			.low = dt_key_from_text(key, job->position ? job->position : job->start),
			.high = dt_key_from_text(key, job->until)
	};
}

/* How many keys there are in all, from what is left; -1: not known. */
static int64
expect(const DtJob *job, const DtKey *key, Oid table)
{
	bool		all = job->position == NULL && job->start == NULL && job->finish == NULL;
	double		rows = count_rows(table, all ? NULL :
								  get_attname(table, key->column[0].attnum, false));
	DtRange		whole = {0};
	DtRange		rest = dt_job_rest(job, key);

	if (job->until == NULL)
		return job->keys;
	if (rows < 0 || all)
		return (int64) rows;
	/* the planner knows the part better than the whole */
	return job->keys + (int64) (rows * dt_walk_expect(key, &rest) /
								Max(dt_walk_expect(key, &whole), 1));
}

static void
set_end(DtJob *job, const DtKey *key)
{
	DtRange		range;

	job->until = job->finish;
	range = dt_job_rest(job, key);
	if (job->until == NULL)
		job->until = dt_walk_to_end(key, &range);
}

/* ------------------------------------------------------------ what is wanted */

static void
check_size(const char *argument, Size size)
{
	if (size > LONGEST_ARGUMENT)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"%s\" is too long", argument),
				 errdetail("It has %zu bytes; %d are allowed.", size, LONGEST_ARGUMENT),
				 errhint("Put long values into a table, and refer to it.")));
}

/* A job as the options want it. */
static DtJob *
get_wanted(const DtJobOptions *options, Relation table, DtKey **key)
{
	DtJob	   *job = palloc(sizeof(DtJob));
	DtBound		start;
	DtBound		finish;

	*key = dt_key_find(table, options->key, NULL);
	start = dt_key_from_user(*key, &options->start);
	finish = dt_key_from_user(*key, &options->finish);
	if (start.n > 0 && finish.n > 0 && dt_key_is_after(*key, &start, &finish))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"start\" comes after \"finish\""),
				 errhint("Swap the two values.")));
	*job = options->job;
	job->columns = (*key)->columns;
	job->ordering = (*key)->ordering;
	job->start = dt_key_to_text(*key, &start);
	job->finish = dt_key_to_text(*key, &finish);
	check_size("statement", strlen(job->statement));
	check_size("start", job->start ? VARSIZE(job->start) : 0);
	check_size("finish", job->finish ? VARSIZE(job->finish) : 0);
	return job;
}

static bool
same_array(ArrayType *a, ArrayType *b)
{
	return a == b || (a != NULL && b != NULL && VARSIZE(a) == VARSIZE(b) &&
					  memcmp(a, b, VARSIZE(a)) == 0);
}

/* In what does the stored job differ from the one that is wanted? */
static const char *
find_difference(const DtJob *stored, const DtKey *key, const DtJob *wanted)
{
	return stored->table != wanted->table ? "table" :
		strcmp(key->columns, wanted->columns) != 0 ? "key" :
		!same_array(stored->start, wanted->start) ? "start" :
		!same_array(stored->finish, wanted->finish) ? "finish" :
		strcmp(stored->statement, wanted->statement) != 0 ? "statement" : NULL;
}

/*
 * What goes on must be the same.  But a statement that has failed may be mended, and
 * with "restart" the end may be another one: a nightly job has a new one each time.
 */
static void
take_differences(DtJob *stored, const DtJob *wanted, const DtKey *key, bool restart)
{
	const char *difference = find_difference(stored, key, wanted);

	if (difference != NULL && strcmp(difference, "finish") == 0 && restart)
	{
		stored->finish = wanted->finish;
		set_end(stored, key);
		difference = find_difference(stored, key, wanted);
	}
	if (difference == NULL)
		return;
	if (strcmp(difference, "statement") != 0 || stored->outcome == NULL ||
		strcmp(stored->outcome, DT_FAILED) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("batch job \"%s\" already exists with a different \"%s\"",
						stored->name, difference),
				 strcmp(difference, "statement") == 0 ?
				 errdetail("Its statement is \"%s\".", stored->statement) : 0,
				 errhint("Use another name or, if the old job is no longer needed, SELECT forget_batches(%s).",
						 quote_literal_cstr(stored->name))));
	ereport(WARNING,
			(errmsg("batch job \"%s\" continues with another statement", stored->name),
			 errdetail("%lld rows were changed by the previous one: %s",
					   (long long) stored->rows, stored->statement)));
	stored->statement = wanted->statement;
}

static void
count(const DtJob *job, void *arg)
{
	*(int *) arg += job->owner == GetUserId();
}

static void
check_number(const DtStore *store)
{
	int			n = 0;

	dt_store_each(store, count, &n);
	if (n >= MOST_JOBS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("role \"%s\" already has %d batch jobs",
						GetUserNameFromId(GetUserId(), false), n),
				 errhint("Use forget_batches() for those that have finished.")));
}

/* After a crash an unlogged table is empty, but where the job was is known. */
static bool
was_emptied(const DtJob *stored, const DtKey *key, Relation table)
{
	DtRange		all = {0};

	if (table->rd_rel->relpersistence != RELPERSISTENCE_UNLOGGED ||
		stored->finished != 0 || dt_walk_count(key, &all, 1) > 0)
		return false;
	ereport(NOTICE,
			(errmsg("batch job \"%s\" starts from the beginning, as unlogged table \"%s\" is empty",
					stored->name, RelationGetRelationName(table))));
	return true;
}

/* In which group is it to be, and with which settings? */
static void
set_environment(DtStart *start, const DtJobOptions *options)
{
	DtJob	   *job = start->job;
	int64		group_id = dt_work_group(start->group);

	/*
	 * others may not be allowed to use that of the first start any more, or
	 * it is gone
	 */
	if (group_id != 0 || start->is_new || !superuser() ||
		!dt_work_find_group(job->group_id, start->group))
		job->group_id = group_id;
	if (job->group_id == 0 && !options->unthrottled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batch job \"%s\" would not be throttled, as this session is in no resource group",
						job->name),
				 superuser() ?
				 errhint("First use SELECT set_group_dirty_limit('batch', '10 MB'), set_group_wal_limit('batch', '10 MB'); SET dirty_throttle.\"group\" = 'batch'. To run it at full speed, use unthrottled => true.") :
				 errhint("First use SELECT join_group('batch'). A superuser can create that group with set_group_dirty_limit('batch', '10 MB'), and open it with grant_group_use('batch', %s). To run it at full speed, use unthrottled => true.",
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	if (start->is_new)
		job->settings = get_settings();
	if (OidIsValid(options->job.table))
	{
		job->batch_us = options->job.batch_us;
		job->max_rows = options->job.max_rows;
	}
	job->run_us = options->job.run_us;
}

void
dt_job_check_rows(const DtJob *job, bool applies)
{
	if (applies != job->row_security)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 applies ?
				 errmsg("batch job \"%s\" would now see other rows, because row security applies",
						job->name) :
				 errmsg("batch job \"%s\" would now see other rows, because row security no longer applies",
						job->name),
				 errhint("Start it as before, or use forget_batches() and start it from the beginning.")));
}

/* Is the statement right, and which rows does it see? */
static void
check_statement(DtStart *start, const DtJobOptions *options)
{
	DtJob	   *job = start->job;
	DtRange		sample = {.low.n = start->key->n,.high.n = start->key->n};
	SPIPlanPtr	plan = dt_statement_prepare(job->statement, start->key, &sample);
	bool		applies = dt_statement_check(plan, start->key, job->table).row_security;

	SPI_freeplan(plan);
	if (!start->is_new)
		dt_job_check_rows(job, applies);
	else if (applies && !options->job.row_security)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row security may hide rows from batch job \"%s\", which the job would leave out",
						job->name),
				 errhint("Run it as the owner of the table, unless it has FORCE ROW LEVEL SECURITY, or as a role with BYPASSRLS; or write row_security => true if only the visible rows are meant.")));
	job->row_security = applies;
}

/* Where it begins and ends, or goes on; stored: what is, or NULL. */
static void
find_place(DtStart *start, const DtJobOptions *options, Relation table, DtJob *stored)
{
	DtJob	   *wanted = OidIsValid(options->job.table) ?
		get_wanted(options, table, &start->key) : NULL;
	bool		untouched = stored == NULL || (stored->position == NULL && stored->finished == 0);

	start->is_new = start->state == DT_QUEUE_ABSENT &&
		((untouched && wanted != NULL) || (options->restart && stored != NULL && stored->finished != 0));
	start->job = start->is_new && wanted != NULL ? wanted : stored;
	if (start->job == stored)
	{
		/* there may be several indexes of these columns */
		start->key = dt_key_find(table, stored->columns, stored->ordering);
		if (wanted != NULL)
			take_differences(stored, wanted, start->key, options->restart);
		start->is_new = start->is_new ||
			(start->state == DT_QUEUE_ABSENT && was_emptied(stored, start->key, table));
	}
	else if (stored != NULL)
	{
		wanted->id = stored->id;
		wanted->progress_tid = stored->progress_tid;
	}
	if (start->is_new)
	{
		memset(&start->job->position, 0, offsetof(DtJob, progress_tid) - offsetof(DtJob, position));
		set_end(start->job, start->key);
	}
}

DtStart
dt_job_start(const DtJobOptions *options)
{
	DtStart		start = {0};
	DtStore		store = dt_store_open(options->store, RowExclusiveLock);
	DtJob	   *stored;
	DtJob	   *job;
	Relation	table;

	check_context();
	if (!options->dry_run)
		dt_store_lock(&store, GetUserId(), options->job.name);
	stored = dt_store_find(&store, GetUserId(), options->job.name, OidIsValid(options->job.table));
	table = dt_job_open_table(OidIsValid(options->job.table) ? options->job.table : stored->table,
							  options->job.name);
	/* its error with row_security = off, before a query of ours has it */
	(void) check_enable_rls(RelationGetRelid(table), InvalidOid, false);
	/* that of the transaction may be older than the lock */
	PushActiveSnapshot(GetLatestSnapshot());
	if (stored != NULL)
	{
		start.state = dt_queue_find(stored->id, &start.pid);
		/* what does not run stays so, and where it is, as its name is locked */
		stored = dt_store_get(&store, stored->id);
	}
	find_place(&start, options, table, stored);
	job = start.job;
	if (job->finished == 0 && start.state == DT_QUEUE_ABSENT)
	{
		check_statement(&start, options);
		set_environment(&start, options);
		job->expected = expect(job, start.key, job->table);
		job->outcome = job->error = job->sqlstate = job->detail = job->hint = NULL;
		job->updated = GetCurrentTimestamp();
		if (stored == NULL)
			check_number(&store);
		if (!options->dry_run)
			dt_store_put(&store, job);
	}
	PopActiveSnapshot();
	relation_close(table, NoLock);
	dt_store_close(&store, NoLock);
	return start;
}

void
dt_job_store_stop(const DtStore *store, const DtJob *job)
{
	DtJob	   *stored;

	dt_store_lock(store, job->owner, job->name);
	stored = dt_store_find(store, job->owner, job->name, true);
	/* it may have been started again before its name was locked */
	if (stored == NULL || dt_queue_find(stored->id, NULL) != DT_QUEUE_ABSENT)
		return;
	stored->outcome = DT_STOPPED;
	dt_store_put_progress(store, stored);
}
