/*-------------------------------------------------------------------------
 *
 * job.c
 *		A job that is run in batches: what a CALL wants, finds and stores.
 *
 * The first CALL with a name defines the job, and notes the last key of the
 * table, where it is to end.  Later ones must want the same, and go on where the
 * last batch has ended.  As long as no batch was committed, a CALL is the first
 * one: somebody who has mended his statement need not forget the job before.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "batch/job.h"
#include "batch/walk.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"

/* The first batch of a job has so many keys at most. */
#define FIRST_SIZE		100

/* A statement, "start" and "finish" are at most so long, bytes. */
#define LONGEST_ARGUMENT	(1024 * 1024)

/* ---------------------------------------------------------------- context */

void
dt_job_check_primary(const char *what)
{
	if (RecoveryInProgress())
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot %s batches during recovery", what),
				 errhint("Do it on the primary.")));
}

void
dt_job_check_writable(const char *what)
{
	dt_job_check_primary(what);
	if (XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 errmsg("cannot %s batches in a read-only transaction", what),
				 errhint("Use SET default_transaction_read_only = off before.")));
}

void
dt_job_check_can_commit(const DtJobOptions *options)
{
	/* in a block with EXCEPTION the server says that, too */
	if (IsTransactionBlock() && !IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("run_in_batches() cannot run inside a transaction block"),
				 errdetail("It commits after each batch."),
				 errhint("Send the CALL by itself: without BEGIN, not with psql -1, not with other commands in one psql -c, and from a driver or migration tool in autocommit mode.")));
	if (options->atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("run_in_batches() cannot be called where no COMMIT is possible"),
				 errdetail("It commits after each batch, which is not possible in a function, a procedure with SET or SECURITY DEFINER, a block with EXCEPTION, and after SAVEPOINT."),
				 errhint("Use CALL run_in_batches(...) as a command of its own, or in a DO block or procedure without these, with variables for \"rows\" and \"finished\".")));
}

/* --------------------------------------------------------------- the table */

static void
check_kind(Relation table)
{
	const char *name = RelationGetRelationName(table);

	switch (table->rd_rel->relkind)
	{
		case RELKIND_RELATION:
		case RELKIND_PARTITIONED_TABLE:
			return;
		case RELKIND_VIEW:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is a view, which has no key to go along",
							name),
					 errhint("Name the table under the view. The statement may use the view, with {batch} for the columns of the key.")));
			break;
		case RELKIND_FOREIGN_TABLE:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is a foreign table, which has no key to go along",
							name),
					 errhint("Call run_in_batches() on the server where the table is.")));
			break;
		default:
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("\"%s\" is not a table", name),
					 errhint("Name an ordinary or partitioned table.")));
	}
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

/*
 * The planner would leave out rows whose key is NULL.  One that comes later is
 * not seen, as others that come behind the position.
 */
static void
check_no_nulls(const DtKey *key)
{
	int64		n = dt_walk_nulls(key);
	StringInfoData condition;

	if (n == 0)
		return;
	initStringInfo(&condition);
	(void) dt_key_null_condition(&condition, key, NULL);
	ereport(ERROR,
			(errcode(ERRCODE_NOT_NULL_VIOLATION),
			 errmsg_plural("%lld row of table %s has no key, as a column of it is null",
						   "%lld rows of table %s have no key, as a column of it is null",
						   (unsigned long) n, (long long) n, key->table),
			 errhint("Run the statement on them first, with (%s) instead of {batch}, and declare the columns NOT NULL, or choose another \"key\".",
					 condition.data)));
}

/* Does the planner know how many rows it has and, if not NULL, this column? */
static bool
is_analyzed(Oid table, const char *column)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
	Form_pg_class form;
	bool		analyzed;

	if (!HeapTupleIsValid(tuple))
		return true;
	form = (Form_pg_class) GETSTRUCT(tuple);
	analyzed = form->relkind == RELKIND_PARTITIONED_TABLE ||
		form->reltuples == 0 ||
		(form->reltuples > 0 &&
		 (column == NULL ||
		  SearchSysCacheExists3(STATRELATTINH, ObjectIdGetDatum(table),
								Int16GetDatum(get_attnum(table, column)),
								BoolGetDatum(false))));
	ReleaseSysCache(tuple);
	return analyzed;
}

DtJobName
dt_job_name(const DtJob *job)
{
	DtJobName	name = {.database = MyDatabaseId,.owner = job->owner};

	strlcpy(name.name, job->name, NAMEDATALEN);
	return name;
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
 * For a part of the table the planner needs statistics of the key; without them
 * it guesses.
 */
int64
dt_job_expect(const DtJob *job, const DtKey *key, Relation table)
{
	bool		all = (job->position == NULL && job->start == NULL &&
					   job->finish == NULL);
	const char *column = all ? NULL :
		get_attname(RelationGetRelid(table), key->column[0].attnum, false);
	DtRange		rest = {0};

	if (job->until == NULL)
		return job->progress.keys;
	foreach_oid(oid, find_all_inheritors(RelationGetRelid(table), NoLock, NULL))
	{
		if (!is_analyzed(oid, column))
			return -1;
	}
	if (!all)
		rest = dt_job_rest(job, key);
	return job->progress.keys + dt_walk_expect(key, &rest);
}

/* ------------------------------------------------------------- the CALL */

static void
set_bounds(DtRun *run)
{
	const DtJobOptions *options = run->options;
	DtBound		start = dt_key_from_user(run->key, &options->start);
	DtBound		finish = dt_key_from_user(run->key, &options->finish);

	if (start.n > 0 && finish.n > 0 &&
		dt_key_is_after(run->key, &start, &finish))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"start\" comes after \"finish\""),
				 options->descending ?
				 errhint("With descending => true, \"start\" is the larger one.") :
				 errhint("Exchange them, or use descending => true.")));
	if (options->follow && finish.n > 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"finish\" and \"follow\" exclude each other"),
				 errhint("Leave out one of them.")));
	run->job.start = dt_key_to_text(run->key, &start);
	run->job.finish = dt_key_to_text(run->key, &finish);
}

/* What is stored is rewritten with each batch, and read by who looks at the view. */
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

void
dt_job_find_key(DtRun *run, Relation table)
{
	run->key = dt_key_find(table, run->options->key, NULL,
						   run->options->descending);
	run->job.columns = run->key->columns;
	run->job.ordering = run->key->ordering;
}

void
dt_job_check(DtRun *run, Relation table)
{
	const DtJobOptions *options = run->options;
	DtJob	   *job = &run->job;
	DtRange		sample = {0};

	job->owner = GetUserId();
	job->name = options->name;
	job->table = options->table;
	job->statement = options->statement;
	job->descending = options->descending;
	job->progress.size = FIRST_SIZE;
	check_size("statement", strlen(job->statement));
	run->statement = dt_statement_parse(job->statement);
	dt_job_find_key(run, table);
	sample.low.n = sample.high.n = run->key->n;
	job->names_table = dt_statement_check(run->statement, run->key, job->table,
										  &sample);
	set_bounds(run);
	check_size("start", job->start ? VARSIZE(job->start) : 0);
	check_size("finish", job->finish ? VARSIZE(job->finish) : 0);
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
	if (stored->table != wanted->table ||
		(stored->names_table && !wanted->names_table))
		return "table";
	if (strcmp(stored->statement, wanted->statement) != 0)
		return "statement";
	if (strcmp(stored->columns, wanted->columns) != 0)
		return "key";
	if (stored->descending != wanted->descending)
		return "descending";
	if (!same_array(stored->start, wanted->start))
		return "start";
	if (!same_array(stored->finish, wanted->finish))
		return "finish";
	return NULL;
}

/* Has no batch of it been committed? */
static bool
is_untouched(const DtJob *stored)
{
	return stored->position == NULL && stored->progress.finished == 0;
}

static void
check_same(const DtJob *stored, const DtJob *wanted)
{
	const char *difference = find_difference(stored, wanted);

	if (difference == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("batches \"%s\" exist already, with another \"%s\"",
					stored->name, difference),
			 strcmp(difference, "statement") == 0 ?
			 errdetail("The statement is: %s", stored->statement) : 0,
			 errhint("Use another name or, if those are not needed any more, SELECT forget_batches(%s).",
					 quote_literal_cstr(stored->name))));
}

/* Where it is to end, which "finish" says, or else what there is. */
static void
set_until(DtRun *run)
{
	DtJob	   *job = &run->job;
	DtRange		range = dt_job_rest(job, run->key);

	job->until = job->finish ? job->finish :
		dt_walk_to_end(run->key, &range);
}

/* Where it begins and ends, or goes on; stored: what is, or NULL. */
static void
find_place(DtRun *run, Relation table, DtJob *stored)
{
	run->is_new = stored == NULL || is_untouched(stored) ||
		(stored->progress.finished != 0 && run->options->restart);
	if (stored != NULL && !is_untouched(stored))
		check_same(stored, &run->job);
	if (run->is_new)
	{
		check_no_nulls(run->key);
		if (stored != NULL)
			run->job.progress.size = stored->progress.size;
		set_until(run);
	}
	else
	{
		run->job = *stored;
		/* there may be several indexes of these columns */
		run->key = dt_key_find(table, stored->columns, stored->ordering,
							   stored->descending);
	}
	if (run->job.progress.finished == 0)
		run->job.progress.expected = dt_job_expect(&run->job, run->key, table);
}

/* Store that it begins, or goes on; tid: in the row there, if there is one. */
static void
store_begin(DtRun *run, Relation store, ItemPointer tid)
{
	DtJob	   *job = &run->job;

	job->error = NULL;
	job->progress.failed = false;
	job->progress.updated = GetCurrentTimestamp();
	if (run->is_new)
		job->progress.started = job->progress.updated;
	if (tid == NULL)
		dt_store_insert(store, job);
	else
		dt_store_update(store, tid, job);
}

bool
dt_job_look(DtRun *run, Relation table)
{
	Relation	store = dt_store_open(run->options->routine, AccessShareLock);

	find_place(run, table, dt_store_find(store, run->job.owner, run->job.name,
										 NULL));
	table_close(store, NoLock);
	return run->job.progress.finished == 0;
}

bool
dt_job_begin(DtRun *run, Relation table)
{
	Relation	store = dt_store_open(run->options->routine, RowExclusiveLock);
	ItemPointerData tid;
	DtJob	   *stored = dt_store_lock(store, run->job.owner, run->job.name,
									   &tid);

	find_place(run, table, stored);
	if (run->job.progress.finished == 0)
		store_begin(run, store, stored ? &tid : NULL);
	table_close(store, NoLock);
	return run->job.progress.finished == 0;
}
