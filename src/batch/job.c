/*-------------------------------------------------------------------------
 *
 * job.c
 *		A job that is run in batches: what is wanted, found and stored.
 *
 * Who starts it first defines the job, and the last key of the table is noted, where it
 * is to end.  Later starts must want the same, and go on where the last batch has
 * ended, with the settings of the first one.  As long as no batch was committed, a
 * start is the first one: after a statement was mended, the job need not be forgotten before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/transam.h"
#include "access/xact.h"
#include "batch/job.h"
#include "batch/settings.h"
#include "batch/walk.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_statistic.h"
#include "miscadmin.h"
#include "session/work.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"

/* A statement, "start" and "finish" have at most this many bytes. */
#define LONGEST_ARGUMENT	(100 * 1024)

/* A role has at most this many jobs. */
#define MOST_JOBS			100

/* More rows that share a key than this are worth a warning. */
#define MANY_OF_A_KEY		1000

/* ---------------------------------------------------------------- context */

static void
check_context(void)
{
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
				 errhint("Start them outside of it, and use SET ROLE before to run them as another role.")));
	dt_settings_check_connection();
}

/* --------------------------------------------------------------- the table */

static void
check_kind(Relation table)
{
	char		kind = table->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("batches cannot go along relation \"%s\"",
						RelationGetRelationName(table)),
				 errdetail_relkind_not_supported(kind),
				 errhint("Name an ordinary or partitioned table. The statement may use others, with {batch} for the columns of its key.")));
}

Relation
dt_job_open_table(Oid oid, const char *name)
{
	Relation	table = try_relation_open(oid, AccessShareLock);

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("the table of batches \"%s\" does not exist any more",
						name),
				 errhint("Use SELECT forget_batches(%s).",
						 quote_literal_cstr(name))));
	check_kind(table);
	if (table->rd_rel->relhassubclass)
		list_free(find_all_inheritors(oid, AccessShareLock, NULL));
	return table;
}

/* ----------------------------------------------------------------- ranges */

DtRange
dt_job_rest(const DtJob *job, const DtKey *key)
{
	DtRange		range = {0};

	range.low_inclusive = (job->position == NULL);
	range.low = dt_key_from_text(key, job->position ? job->position :
								 job->start);
	range.high = dt_key_from_text(key, job->until);
	return range;
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
		HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(oid));
		Form_pg_class form;

		if (!HeapTupleIsValid(tuple))
			continue;
		form = (Form_pg_class) GETSTRUCT(tuple);
		if (form->relkind == RELKIND_RELATION)
		{
			if (form->reltuples < 0 ||
				(form->reltuples > 0 && column != NULL &&
				 !SearchSysCacheExists3(STATRELATTINH, ObjectIdGetDatum(oid),
										Int16GetDatum(get_attnum(oid, column)),
										BoolGetDatum(false))))
				rows = -1;
			else if (rows >= 0)
				rows += form->reltuples;
		}
		ReleaseSysCache(tuple);
		if (rows < 0)
			break;
	}
	return rows;
}

/* How many keys there are in all, from what is left; -1: not known. */
static int64
expect(const DtJob *job, const DtKey *key, Relation table)
{
	bool		all = (job->position == NULL && job->start == NULL &&
					   job->finish == NULL);
	double		rows = count_rows(RelationGetRelid(table), all ? NULL :
								  get_attname(RelationGetRelid(table), key->column[0].attnum, false));
	DtRange		whole = {0};
	DtRange		rest;

	if (job->until == NULL)
		return job->keys;
	if (rows < 0 || all)
		return (int64) rows;
	/* the planner knows the part better than the whole */
	rest = dt_job_rest(job, key);
	return job->keys + (int64) (rows * dt_walk_expect(key, &rest) /
								Max(dt_walk_expect(key, &whole), 1));
}

/*
 * All rows of a key are in one batch.  That is worth a word if they are many, as far
 * as the statistics know.
 */
static void
warn_of_equal_keys(const DtKey *key, Relation table)
{
	AttrNumber	attnum = key->column[0].attnum;
	double		rows = count_rows(RelationGetRelid(table), NULL);
	HeapTuple	tuple;
	double		distinct;

	if (key->is_unique || key->n > 1)
		return;
	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(RelationGetRelid(table)),
							Int16GetDatum(attnum),
							BoolGetDatum(table->rd_rel->relkind == RELKIND_PARTITIONED_TABLE));
	if (!HeapTupleIsValid(tuple))
		return;
	distinct = ((Form_pg_statistic) GETSTRUCT(tuple))->stadistinct;
	ReleaseSysCache(tuple);
	if (distinct < 0)
		distinct *= -rows;
	if (distinct > 0 && rows / distinct > MANY_OF_A_KEY)
		ereport(WARNING,
				(errmsg("about %.0f rows have the same %s, and all of these are in one batch",
						rows / distinct, key->columns),
				 errhint("Name the columns of a unique index, for example key => '%s, id'.",
						 key->columns)));
}

/* ------------------------------------------------------------ what is wanted */

static void
set_bounds(DtJob *job, const DtKey *key, const DtJobOptions *options)
{
	DtBound		start = dt_key_from_user(key, &options->start);
	DtBound		finish = dt_key_from_user(key, &options->finish);

	if (start.n > 0 && finish.n > 0 && dt_key_is_after(key, &start, &finish))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"start\" comes after \"finish\""),
				 errhint("Exchange them.")));
	job->start = dt_key_to_text(key, &start);
	job->finish = dt_key_to_text(key, &finish);
}

static void
check_size(const char *argument, Size size)
{
	if (size > LONGEST_ARGUMENT)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("argument \"%s\" is too long", argument),
				 errdetail("It has %zu bytes; %d are allowed.", size,
						   LONGEST_ARGUMENT),
				 errhint("Put long values into a table, and refer to it.")));
}

/* A job as the options want it. */
static DtJob *
get_wanted(const DtJobOptions *options, Relation table, DtKey **key)
{
	DtJob	   *job = palloc0(sizeof(DtJob));

	*key = dt_key_find(table, options->key, NULL);
	job->owner = GetUserId();
	job->name = options->name;
	job->table = options->table;
	job->statement = options->statement;
	check_size("statement", strlen(job->statement));
	job->columns = (*key)->columns;
	job->ordering = (*key)->ordering;
	job->size = 1;
	set_bounds(job, *key, options);
	check_size("start", job->start ? VARSIZE(job->start) : 0);
	check_size("finish", job->finish ? VARSIZE(job->finish) : 0);
	return job;
}

static bool
same_array(ArrayType *a, ArrayType *b)
{
	if (a == NULL || b == NULL)
		return a == b;
	return VARSIZE(a) == VARSIZE(b) && memcmp(a, b, VARSIZE(a)) == 0;
}

/* In what does the stored job differ from the one that is wanted? */
static const char *
find_difference(const DtJob *stored, const DtJob *wanted)
{
	if (stored->table != wanted->table)
		return "table";
	if (strcmp(stored->columns, wanted->columns) != 0)
		return "key";
	if (!same_array(stored->start, wanted->start))
		return "start";
	if (!same_array(stored->finish, wanted->finish))
		return "finish";
	if (strcmp(stored->statement, wanted->statement) != 0)
		return "statement";
	return NULL;
}

/* Has no batch of it been committed? */
static bool
is_untouched(const DtJob *stored)
{
	return stored->position == NULL && stored->finished == 0;
}

/*
 * What goes on must be the same.  But a statement that has failed may be mended, and
 * with "restart" the end may be another one: a nightly job has a new one each time.
 */
static void
take_differences(DtJob *stored, const DtJob *wanted, const DtKey *key, bool restart)
{
	const char *difference = find_difference(stored, wanted);

	if (difference != NULL && strcmp(difference, "finish") == 0 && restart)
	{
		DtRange		rest;

		stored->finish = stored->until = wanted->finish;
		rest = dt_job_rest(stored, key);
		if (stored->until == NULL)
			stored->until = dt_walk_to_end(key, &rest);
		difference = find_difference(stored, wanted);
	}
	if (difference != NULL && strcmp(difference, "statement") == 0 &&
		stored->outcome != NULL && strcmp(stored->outcome, DT_FAILED) == 0)
	{
		ereport(NOTICE,
				(errmsg("batches \"%s\" go on with another statement", stored->name),
				 errdetail("%lld rows were changed by the one before: %s",
						   (long long) stored->rows, stored->statement)));
		ereport(LOG_SERVER_ONLY,
				(errmsg("batches \"%s\" go on with another statement", stored->name)));
		stored->statement = wanted->statement;
		difference = NULL;
	}
	if (difference != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("batches \"%s\" exist already, with another \"%s\"",
						stored->name, difference),
				 strcmp(difference, "statement") == 0 ?
				 errdetail("The statement is: %s", stored->statement) : 0,
				 errhint("Use another name or, if those are not needed any more, SELECT forget_batches(%s).",
						 quote_literal_cstr(stored->name))));
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
				 errmsg("role \"%s\" has %d batch jobs already",
						GetUserNameFromId(GetUserId(), false), n),
				 errhint("Use forget_batches() for those that have finished.")));
}

/* After a crash an unlogged table is empty, but where the job was is known. */
static bool
was_emptied(const DtJob *stored, const DtKey *key, Relation table)
{
	DtRange		all = {0};

	if (table->rd_rel->relpersistence != RELPERSISTENCE_UNLOGGED ||
		stored->finished != 0 || dt_walk_to_end(key, &all) != NULL)
		return false;
	ereport(NOTICE,
			(errmsg("batches \"%s\" begin anew, as unlogged table \"%s\" is empty",
					stored->name, RelationGetRelationName(table))));
	return true;
}

/* In which group is it to be, and with which settings? */
static void
set_environment(DtStart *start, const DtJobOptions *options)
{
	DtJob	   *job = start->job;
	uint64		group_id = dt_work_group(start->group);

	job->login = GetSessionUserId();

	/*
	 * others may not be allowed to use that of the first start any more, or
	 * it is gone
	 */
	if (group_id != 0 || start->is_new || !superuser() ||
		!dt_work_find_group((uint64) job->group_id, start->group))
		job->group_id = (int64) group_id;
	if (job->group_id == 0 && !options->unthrottled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batches \"%s\" would not be throttled, as this session is in no resource group",
						job->name),
				 superuser() ?
				 errhint("Use SELECT set_group_dirty_limit('batch', '10 MB'), set_group_wal_limit('batch', '10 MB'); and SET dirty_throttle.\"group\" = 'batch'; before. To run them at full speed, use unthrottled => true.") :
				 errhint("Use SELECT join_group('batch'); before. A superuser can create that group with set_group_dirty_limit('batch', '10 MB'), and open it with grant_group_use('batch', %s). To run them at full speed, use unthrottled => true.",
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	if (start->is_new)
		job->settings = dt_settings_get();
	if (OidIsValid(options->table))
	{
		job->batch_us = options->batch_us;
		job->max_rows = options->max_rows;
	}
	job->run_us = options->run_us;
}

/* Is the statement right, and which rows does it see? */
static void
check_statement(DtStart *start, const DtJobOptions *options)
{
	DtJob	   *job = start->job;
	DtRange		sample = {.low.n = start->key->n,.high.n = start->key->n};
	SPIPlanPtr	plan = dt_statement_prepare(dt_statement_parse(job->statement),
											start->key, &sample);
	bool		applies = dt_statement_check(plan, start->key, job->table);

	SPI_freeplan(plan);
	if (!start->is_new && applies != job->row_security)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 applies ?
				 errmsg("batches \"%s\" would go on with other rows, as row security applies now",
						job->name) :
				 errmsg("batches \"%s\" would go on with other rows, as row security does not apply any more",
						job->name),
				 errhint("Start them as before, or begin anew, with forget_batches() before.")));
	if (applies && !options->row_security && start->is_new)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("row security may hide rows from batches \"%s\", which would be left out",
						job->name),
				 errhint("Run them as the owner of the table, unless it has FORCE ROW LEVEL SECURITY, or as a role with BYPASSRLS; or write row_security => true if only the visible rows are meant.")));
	job->row_security = applies;
}

/* Where it begins and ends, or goes on; stored: what is, or NULL. */
static void
find_place(DtStart *start, const DtJobOptions *options, Relation table, DtJob *stored)
{
	DtJob	   *wanted = NULL;

	if (OidIsValid(options->table))
		wanted = get_wanted(options, table, &start->key);
	start->is_new = wanted != NULL && start->state == DT_QUEUE_ABSENT &&
		(stored == NULL || is_untouched(stored) ||
		 (stored->finished != 0 && options->restart));
	if (!start->is_new)
	{
		/* there may be several indexes of these columns */
		start->key = dt_key_find(table, stored->columns, stored->ordering);
		if (wanted != NULL)
			take_differences(stored, wanted, start->key, options->restart);
		else
			wanted = stored;
		start->is_new = (stored->finished != 0 && options->restart) ||
			(start->state == DT_QUEUE_ABSENT && was_emptied(stored, start->key, table));
	}
	start->job = start->is_new ? wanted : stored;
	if (start->is_new)
	{
		DtJob	   *job = start->job;
		DtRange		range;

		job->position = NULL;
		job->size = 1;
		job->finished = 0;
		job->keys = job->rows = job->batches = job->retries = 0;
		job->elapsed_us = job->paused_us = 0;
		job->rate = 0;
		job->until = job->finish;
		range = dt_job_rest(job, start->key);
		if (job->until == NULL)
			job->until = dt_walk_to_end(start->key, &range);
		warn_of_equal_keys(start->key, table);
	}
	start->finished = start->job->finished != 0;
}

static void
store_start(const DtStore *store, DtStart *start, const DtJob *stored)
{
	DtJob	   *job = start->job;

	job->outcome = job->error = job->sqlstate = job->detail = job->hint = NULL;
	job->updated = GetCurrentTimestamp();
	if (stored == NULL)
	{
		check_number(store);
		job->id = GetNewObjectId();
		dt_store_insert(store, job);
	}
	else
	{
		job->id = stored->id;
		job->tid = stored->tid;
		job->progress_tid = stored->progress_tid;
		dt_store_update(store, job);
	}
}

DtStart
dt_job_start(const DtJobOptions *options)
{
	DtStart		start = {0};
	DtStore		store = dt_store_open(options->store, RowExclusiveLock);
	DtJob	   *stored;
	Relation	table;

	check_context();
	stored = options->dry_run ? dt_store_find(&store, GetUserId(), options->name) :
		dt_store_lock(&store, GetUserId(), options->name);
	if (stored == NULL && !OidIsValid(options->table))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("batches \"%s\" do not exist", options->name),
				 errhint("To define them, name the table and the statement, too. The view dirty_throttle_batches lists those that there are.")));
	table = dt_job_open_table(OidIsValid(options->table) ? options->table : stored->table,
							  options->name);
	/* its error with row_security = off, before a query of ours has it */
	(void) check_enable_rls(RelationGetRelid(table), InvalidOid, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (stored != NULL)
	{
		start.state = dt_queue_find(stored->id, &start.pid);
		/* what does not run stays so, and where it is, as its row is locked */
		if (!options->dry_run)
			stored = dt_store_get(&store, stored->id);
	}
	find_place(&start, options, table, stored);
	if (!start.finished && start.state == DT_QUEUE_ABSENT)
	{
		check_statement(&start, options);
		set_environment(&start, options);
		start.job->expected = expect(start.job, start.key, table);
		if (!options->dry_run)
			store_start(&store, &start, stored);
	}
	PopActiveSnapshot();
	relation_close(table, NoLock);
	dt_store_close(&store, NoLock);
	return start;
}

void
dt_job_store_stop(const DtStore *store, Oid owner, const char *name)
{
	DtJob	   *job = dt_store_lock(store, owner, name);

	/* it may have been started again before its row was locked */
	if (job == NULL || dt_queue_find(job->id, NULL) != DT_QUEUE_ABSENT)
		return;
	job->outcome = DT_STOPPED;
	dt_store_update_progress(store, job);
}
