/*-------------------------------------------------------------------------
 *
 * run.c
 *		The batches of a job, one after the other.
 *
 * Each batch is a transaction: its statement, and the row that says how far the job has
 * come.  What fails because others hold locks is tried again, with fewer keys; and so is
 * a batch that takes many times as long as it may, since its rows are heavier than
 * those before.
 *
 * A batch is to get out of everybody's way.  It waits for a lock only briefly,
 * and looks for a deadlock before anybody else does who waits for it, so it is
 * always the batch that gives way.
 *
 * The process pays for a batch after its COMMIT, as all background workers do, or
 * where that is not possible before the next one takes its snapshot.  It holds nothing
 * then.  The transaction that stores the end pays nothing: the process leaves its group
 * before, or nobody could end a job in a group that is suspended.
 *
 * What changes between batches is in run->job.  It is what has been committed:
 * a batch works with a copy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "batch/holder.h"
#include "batch/run.h"
#include "batch/settings.h"
#include "batch/tell.h"
#include "batch/walk.h"
#include "clock.h"
#include "engine/batch.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/interrupt.h"
#include "session/work.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

/* A batch waits at most this time for a lock, ms. */
#define LONGEST_LOCK_WAIT_MS	200

/* It looks for a deadlock after this time, ms. */
#define DEADLOCK_CHECK_MS		50

/* One that has failed this often in a row is given up. */
#define MOST_TRIES				10

/* The first wait before another try, then twice as long, ...; us. */
#define FIRST_WAIT_US			INT64CONST(200000)
#define LONGEST_WAIT_US			INT64CONST(10000000)

/* A batch that takes this many times as long as it may is undone. */
#define MUCH_TOO_LONG			8

/* The server's statistics get what was done after this time, us. */
#define REPORT_US				INT64CONST(1000000)

/* The rate is that of windows of this time, the last one weighing most; us. */
#define RATE_WINDOW_US			INT64CONST(5000000)

/* Fewer keys than this are never too many. */
#define KEYS_TO_COUNT			10000

typedef struct Run
{
	Oid			store;
	DtJob	   *job;
	DtStatement *statement;
	MemoryContext context;		/* lasts as long as the job */
	MemoryContext batch_context;	/* of a transaction */
	int			tries;			/* of the present batch, that have failed */
	ErrorData  *error;			/* of the last one; the job refers to it */
	int64		limit_us;		/* for the statement of the present batch */
	TimestampTz statement_start;	/* when that has begun; 0: it has not */
	int64		last_us;		/* what the last batch took */
	int64		size;			/* of the present one, without what is equal
								 * to its last key */
	XLogRecPtr	redo;			/* where the last checkpoint begins */
	DtBatchFixed fixed;
	bool		told_fixed;
	int64		keys_to_count;	/* when there are more: does the key move? */
	int64		window_us;		/* begin of the present window, */
	int64		window_keys;	/* how far it was then, */
	double		rate;			/* and the rate up to that */
	int64		started_us;
	int64		elapsed_before_us;
	int64		reported_us;	/* to the server's statistics, last */
} Run;

/* What is done in a transaction of its own; it changes the job. */
typedef void (*Action) (Run *run, DtJob *job, DtBatchCost *cost);

/* --------------------------------------------------------- times and sizes */

static DtBatchBounds
get_bounds(const DtJob *job)
{
	DtBatchBounds bounds = {.keys = job->max_rows,.us = job->batch_us};

	for (int r = 0; r < DT_RESOURCES; r++)
		bounds.bytes[r] = dt_work_without_pause(r);
	return bounds;
}

/* Be cautious after a checkpoint has begun; at the beginning as well. */
static int64
get_size(Run *run)
{
	XLogRecPtr	redo = GetRedoRecPtr();
	DtBatchBounds bounds = get_bounds(run->job);
	int64		size = Min(run->job->size, bounds.keys);

	if (redo != run->redo)
		size = dt_batch_cautious(size, &bounds, BLCKSZ);
	run->redo = redo;
	return size;
}

/* The job has come so far: its times and its rate. */
static void
note_time(Run *run, DtJob *job)
{
	int64		us;

	job->elapsed_us = run->elapsed_before_us + dt_now_us() - run->started_us;
	us = job->elapsed_us - run->window_us;
	job->updated = GetCurrentTimestamp();
	if (us > 0)
	{
		double		rate = (job->keys - run->window_keys) * 1e6 / us;
		double		weight = run->rate <= 0 ? 1 :
			Min((double) us / RATE_WINDOW_US, 1) / 2;

		job->rate = weight * rate + (1 - weight) * run->rate;
	}
}

/* What was noted is committed. */
static void
move_window(Run *run)
{
	if (run->job->elapsed_us - run->window_us < RATE_WINDOW_US)
		return;
	run->window_us = run->job->elapsed_us;
	run->window_keys = run->job->keys;
	run->rate = run->job->rate;
}

/* ------------------------------------------- what is done in a transaction */

/*
 * The server's log would have no message of these waits either without our deadlock
 * check, since they are shorter than its own deadlock_timeout.  statement_timeout is
 * for the statement of each batch, as there is no other one.
 */
static void
get_out_of_the_way(void)
{
	int			wait_ms = Min(LONGEST_LOCK_WAIT_MS, DeadlockTimeout / 2);
	int			check_ms = Min(DEADLOCK_CHECK_MS, DeadlockTimeout);

	if (LockTimeout > 0)
		wait_ms = Min(wait_ms, LockTimeout);
	dt_settings_set("lock_timeout", psprintf("%d", Max(wait_ms, 1)));
	dt_settings_set("deadlock_timeout", psprintf("%d", check_ms));
	dt_settings_set("log_lock_waits", "off");
}

/* A position that has been found is beyond the last one, or we would stay. */
static void
check_moves(const DtJob *job, ArrayType *found)
{
	if (job->position != NULL && found != NULL &&
		VARSIZE(job->position) == VARSIZE(found) &&
		memcmp(job->position, found, VARSIZE(found)) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("batches \"%s\" cannot go along %s", job->name,
						job->columns),
				 errdetail("The text of a value does not tell it from others."),
				 errhint("Use SELECT forget_batches(%s), and start them anew with the columns of another index as the \"key\".",
						 quote_literal_cstr(job->name))));
}

/*
 * A trigger may move the key of each row to where it is met again, for ever if "finish"
 * is far away.  Rows that were updated are still there, so if the job has come past
 * twice as many as there are, it has met some of them again.
 */
static void
check_key_stays(Run *run, const DtJob *job, const DtKey *key, SPIPlanPtr plan)
{
	DtRange		all = {0};
	int64		n;

	/* without a "finish" it ends where the last one was at the beginning */
	if (job->keys <= run->keys_to_count || job->finish == NULL || !dt_statement_updates(plan))
		return;
	run->keys_to_count = 2 * job->keys;
	n = dt_walk_count(key, &all, job->keys / 2 + 1);
	if (job->keys > 2 * n && job->rows > 2 * n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batches \"%s\" have come past %lld rows, but table %s has %lld",
						job->name, (long long) job->keys, key->table, (long long) n),
				 errdetail("A trigger, or another session, moves rows ahead along %s.", key->columns),
				 errhint("Use SELECT forget_batches(%s), and start them anew with the columns of another index as the \"key\", or with a \"finish\" in the past.",
						 quote_literal_cstr(job->name))));
}

static int64
run_statement(Run *run, SPIPlanPtr plan, const DtKey *key, const DtRange *range)
{
	DtBatchBounds bounds = get_bounds(run->job);
	int64		rows;

	run->limit_us = StatementTimeout * INT64CONST(1000);
	if (run->size > 1)
	{
		int64		us = MUCH_TOO_LONG *
			Max(dt_batch_allowed_us(&bounds, &run->fixed), run->last_us);

		if (run->limit_us == 0 || us < run->limit_us)
			run->limit_us = us;
	}
	run->statement_start = GetCurrentTimestamp();
	if (run->limit_us > 0)
		enable_timeout_after(STATEMENT_TIMEOUT, Min(run->limit_us / 1000 + 1, INT_MAX / 2));
	rows = dt_statement_run(plan, key, range);
	dt_statement_end_deferred();
	disable_timeout(STATEMENT_TIMEOUT, false);
	return rows;
}

/* Run the statement on the next keys, if there are any. */
static void
run_batch(Run *run, DtJob *job, DtBatchCost *cost)
{
	int64		start_us = dt_now_us();
	DtStore		store = dt_store_open(run->store, RowExclusiveLock);
	Relation	table = dt_job_open_table(job->table, job->name);
	DtKey	   *key = dt_key_find(table, job->columns, job->ordering);
	DtRange		range = dt_job_rest(job, key);
	ArrayType  *last = NULL;
	SPIPlanPtr	plan;

	/* what is granted to PUBLIC is still granted to it */
	dt_settings_check_owner(job->owner, job->name);
	/* the tables are locked before the transaction's snapshot is taken */
	PushActiveSnapshot(GetCatalogSnapshot(InvalidOid));
	plan = dt_statement_prepare(run->statement, key, &range);
	PopActiveSnapshot();
	dt_statement_check_again(plan, job->table, job->row_security);
	PushActiveSnapshot(GetTransactionSnapshot());
	if (job->until != NULL)
		cost->keys = dt_walk_ahead(key, &range, job->size, &last);
	check_moves(job, last);
	if (last != NULL)
	{
		int			n = range.high.n;

		range.high = dt_key_from_text(key, last);
		if (range.high.n != n)
			plan = dt_statement_prepare(run->statement, key, &range);
	}
	else
		job->finished = GetCurrentTimestamp();
	if (last == NULL)
		last = job->until;
	if (last != NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(run->context);

		job->position = DatumGetArrayTypePCopy(PointerGetDatum(last));
		MemoryContextSwitchTo(old);
	}
	if (cost->keys > 0)
	{
		job->rows += run_statement(run, plan, key, &range);
		job->keys += cost->keys;
		job->batches++;
		check_key_stays(run, job, key, plan);
	}
	note_time(run, job);
	dt_store_update_progress(&store, job);
	dt_store_close(&store, NoLock);
	relation_close(table, NoLock);
	PopActiveSnapshot();
	cost->us = dt_now_us() - start_us;
}

/*
 * Note how it has ended, though its table may be gone; or the error after which a batch
 * is tried again.
 */
static void
store_state(Run *run, DtJob *job, DtBatchCost *cost)
{
	char	   *holder = dt_holder_describe(job);
	DtStore		store;

	if (holder != NULL)
		job->detail = MemoryContextStrdup(run->context, holder);
	if (job->outcome != NULL)
	{
		note_time(run, job);
		/* it is the last thing to do, so it may wait, for the store as well */
		dt_settings_set("lock_timeout", "0");
	}
	store = dt_store_open(run->store, RowExclusiveLock);
	if (dt_queue_stops() > 0)
		(void) set_config_option("synchronous_commit", "local", PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_LOCAL, true, ERROR, false);
	PushActiveSnapshot(GetTransactionSnapshot());
	dt_store_update_progress(&store, job);
	PopActiveSnapshot();
	dt_store_close(&store, NoLock);
}

/* ---------------------------------------------------------- a transaction */

/* The error that is being handled. */
static ErrorData *
take_error(MemoryContext context)
{
	ErrorData  *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	/* not copied, and perhaps a part of a parallel worker's message */
	if (error->funcname != NULL)
		error->funcname = pstrdup(error->funcname);
	FlushErrorState();
	return error;
}

/* A transaction that does this.  Returns the error with which it has ended, if any. */
static ErrorData *
run_transaction(Run *run, Action action, DtBatchCost *cost)
{
	DtJob		job = *run->job;
	ErrorData  *volatile error = NULL;
	bool		is_end = job.finished != 0 || job.outcome != NULL;
	int64		paused_us = dt_work_paused_us();
	int64		before[DT_RESOURCES];

	memset(cost, 0, sizeof(*cost));
	run->statement_start = 0;
	for (int r = 0; r < DT_RESOURCES; r++)
		before[r] = dt_work_used(r);
	PG_TRY();
	{
		SetCurrentStatementStartTimestamp();
		StartTransactionCommand();
		if (is_end)
			dt_work_leave();
		else
			dt_work_pay_before();
		MemoryContextSwitchTo(run->batch_context);
		SPI_connect();
		MemoryContextSwitchTo(run->batch_context);
		run->size = job.size = get_size(run);
		/* it may have waited for long, and is to stop by now */
		if (is_end || dt_queue_stops() == 0)
			action(run, &job, cost);
		SPI_finish();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		error = take_error(run->context);
		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(run->batch_context);
		dt_holder_note_row();
		AbortCurrentTransaction();
		QueryCancelPending = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run->context);
	for (int r = 0; r < DT_RESOURCES; r++)
		cost->bytes[r] = dt_work_used(r) - before[r];
	if (error == NULL)
	{
		ArrayType  *old = run->job->position;

		*run->job = job;
		if (old != NULL && old != job.position)
			pfree(old);
		move_window(run);
	}
	/* who was moved into another group counts anew there */
	run->job->paused_us += Max(dt_work_paused_us() - paused_us, 0);
	MemoryContextReset(run->batch_context);
	return error;
}

/* ------------------------------------------------------------------ the loop */

static bool
may_go_on(const Run *run)
{
	return run->job->finished == 0 && run->job->outcome == NULL &&
		dt_queue_stops() == 0 &&
		(run->job->run_us == 0 ||
		 dt_now_us() - run->started_us < run->job->run_us);
}

/* A cancel where there is nothing to be canceled ends the job. */
static void
serve_interrupts(Run *run)
{
	if (QueryCancelPending)
	{
		QueryCancelPending = false;
		run->job->outcome = DT_STOPPED;
	}
	CHECK_FOR_INTERRUPTS();
}

/* Wait before another try. */
static void
wait_us(Run *run, int64 us)
{
	static uint32 wait_event = 0;
	int64		until = dt_now_us() + us;
	int64		left;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("DirtyThrottleBatches");
	while ((left = until - dt_now_us()) > 0 && may_go_on(run))
	{
		if (dt_clock_sleep(left, WL_EXIT_ON_PM_DEATH, wait_event) & WL_LATCH_SET)
			ResetLatch(MyLatch);
		serve_interrupts(run);
	}
}

/* Does it fail because of what others do at the same time? */
static bool
is_temporary(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE ||
		error->sqlerrcode == ERRCODE_T_R_DEADLOCK_DETECTED ||
		error->sqlerrcode == ERRCODE_T_R_SERIALIZATION_FAILURE;
}

/*
 * Has somebody wanted it to end?  A foreign server may report that it has canceled
 * something, and so may a function.
 */
static bool
is_cancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/* Was it canceled as its time was over? */
static bool
timed_out(const Run *run, const ErrorData *error)
{
	return is_cancel(error) && run->statement_start != 0 && run->limit_us > 0 &&
		GetCurrentTimestamp() - run->statement_start >= run->limit_us;
}

/* It has ended by this error. */
static void
fail(Run *run, const ErrorData *error)
{
	DtJob	   *job = run->job;

	if (is_cancel(error) && !timed_out(run, error))
	{
		job->outcome = DT_STOPPED;
		return;
	}
	job->outcome = DT_FAILED;
	job->error = error->message;
	job->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	job->detail = error->detail;
	job->hint = error->hint;
	if (run->tries >= MOST_TRIES)
		job->hint = psprintf(_("This was the %dth time in a row, each with fewer rows. What was committed stays. %s goes on after the last batch."),
							 run->tries, dt_tell_start_again(job));
	else if (job->hint == NULL && job->batches > 0)
		job->hint = psprintf(_("What was committed stays. %s goes on after the last batch."),
							 dt_tell_start_again(job));
}

/* That is for who looks: no batch depends on it. */
static void
store_retry(Run *run)
{
	DtBatchCost cost;
	ErrorData  *error = run_transaction(run, store_state, &cost);

	if (error != NULL && is_cancel(error))
		fail(run, error);
}

/* Try again, unless it has failed for good. */
static void
handle_error(Run *run, ErrorData *error, const DtBatchCost *cost)
{
	DtJob	   *job = run->job;

	if (dt_queue_stops() > 0)
		return;
	if (run->size > 1 && timed_out(run, error))
	{
		job->retries++;
		job->size = dt_batch_much_smaller(Min(run->size, cost->keys));
		FreeErrorData(error);
		store_retry(run);
		return;
	}
	if (!is_temporary(error) || ++run->tries >= MOST_TRIES)
	{
		fail(run, error);
		return;
	}
	job->retries++;
	job->size = dt_batch_smaller(job->size);
	job->error = error->message;
	job->detail = error->detail;
	store_retry(run);
	if (run->error != NULL)
		FreeErrorData(run->error);
	run->error = error;
	wait_us(run, Min(FIRST_WAIT_US << (run->tries - 1), LONGEST_WAIT_US));
}

static void
log_fixed_cost(Run *run, const DtBatchCost *cost)
{
	if (run->told_fixed || run->fixed.us < run->job->batch_us / 4 ||
		run->fixed.us < cost->us / 4)
		return;
	run->told_fixed = true;
	ereport(LOG,
			(errmsg("batches \"%s\": %lld ms of each batch are the same however small it is",
					run->job->name, (long long) (run->fixed.us / 1000)),
			 errhint("Does another table that the statement reads lack an index?"),
			 errhidestmt(true)));
}

static void
next_batch(Run *run)
{
	DtBatchCost cost;
	DtBatchBounds bounds;
	ErrorData  *error;

	dt_holder_forget();
	error = run_transaction(run, run_batch, &cost);
	if (error != NULL)
	{
		handle_error(run, error, &cost);
		return;
	}
	run->tries = 0;
	if (cost.keys == 0)
		return;
	run->last_us = cost.us;
	bounds = get_bounds(run->job);
	run->job->size = dt_batch_next(run->job->size, &cost, &bounds, &run->fixed);
	log_fixed_cost(run, &cost);
}

/* What a worker does between its transactions. */
static void
do_between(Run *run)
{
	serve_interrupts(run);
	/* nothing that it does waits for a client, so it would go on */
	if (!PostmasterIsAlive())
		proc_exit(1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
	if (dt_now_us() - run->reported_us >= REPORT_US)
	{
		(void) pgstat_report_stat(true);
		run->reported_us = dt_now_us();
	}
}

/* The first transaction: read what is stored.  False: it is gone. */
static bool
begin(Run *run, Oid id, void (*prepare) (const DtJob *job))
{
	DtStore		store;

	StartTransactionCommand();
	store = dt_store_open(run->store, AccessShareLock);
	MemoryContextSwitchTo(run->context);
	/* what is stored out of line is not read without one */
	PushActiveSnapshot(GetTransactionSnapshot());
	run->job = dt_store_get(&store, id);
	dt_store_close(&store, AccessShareLock);
	if (run->job != NULL)
	{
		run->elapsed_before_us = run->window_us = run->job->elapsed_us;
		run->window_keys = run->job->keys;
		run->keys_to_count = Max(2 * run->job->expected, KEYS_TO_COUNT) + run->job->keys;
		prepare(run->job);
		get_out_of_the_way();
		MemoryContextSwitchTo(run->context);
		run->statement = dt_statement_parse(run->job->statement);
		dt_tell_log_begin(run->job);
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	MemoryContextSwitchTo(run->context);
	return run->job != NULL;
}

static void
end(Run *run)
{
	DtJob	   *job = run->job;
	DtBatchCost cost;
	ErrorData  *error;

	if (job->finished == 0 && job->outcome == NULL)
		job->outcome = DT_STOPPED;
	dt_tell_log_end(job);
	HOLD_CANCEL_INTERRUPTS();	/* there is nothing left to be canceled */
	error = run_transaction(run, store_state, &cost);
	if (error != NULL)
		ThrowErrorData(error);
}

void
dt_run(Oid store, Oid id, void (*prepare) (const DtJob *job))
{
	int64		now = dt_now_us();
	Run			run = {
		.store = store,
		.context = AllocSetContextCreate(TopMemoryContext, "batches", ALLOCSET_DEFAULT_SIZES),
		.started_us = now,
		.reported_us = now
	};
	ErrorData  *volatile error = NULL;
	volatile bool exists = true;

	run.batch_context = AllocSetContextCreate(run.context, "batch", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(run.context);
	PG_TRY();
	{
		exists = begin(&run, id, prepare);
	}
	PG_CATCH();
	{
		error = take_error(run.context);
		AbortCurrentTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run.context);
	if (error != NULL && run.job == NULL)
		ReThrowError(error);
	if (error != NULL)
		fail(&run, error);
	if (!exists)
		return;
	while (may_go_on(&run))
	{
		next_batch(&run);
		do_between(&run);
	}
	end(&run);
}
