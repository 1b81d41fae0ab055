/*-------------------------------------------------------------------------
 *
 * run.c
 *		The background worker that runs a job: its batches, one after the other.
 *
 * Each batch is a transaction: its statement, and the row that says how far the job has
 * come.  What fails because others hold locks is tried again, with fewer keys; and so is
 * a batch that takes many times as long as it may, since its rows are heavier than
 * those before.
 *
 * A batch is to be in no session's way.  It waits for a lock only briefly,
 * and looks for a deadlock before any other process does that waits for it, so it is
 * always the batch that gives way.
 *
 * The process pays for a batch after its COMMIT, as all background workers do, or
 * where that is not possible before the next one takes its snapshot.  It holds nothing
 * then.  The transaction that stores the end pays nothing: the process leaves its group
 * before, or nobody could end a job in a group that is suspended.
 *
 * The process is the session that has started the job, and never more.  It connects as
 * the user of that session, and takes the role of the job's owner by SET ROLE, so RESET
 * ROLE in a trigger leads back to what the session could do anyway.  It is in the group in
 * which the session was, and has its settings.
 *
 * stop_batches() sends SIGINT, as a cancel does, with a flag in the queue: the present
 * batch is to end as it would.  So the signal does not cancel a running statement.  It
 * cancels a pause, which may last for ever, a wait for a standby, and anything when it
 * comes again.
 * Timeouts come by SIGINT, too.
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
#include "batch/job.h"
#include "batch/message.h"
#include "batch/walk.h"
#include "clock.h"
#include "engine/batch.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "session/work.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

extern PGDLLEXPORT void dt_batches_main(Datum main_arg);

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

/* The rate is that of windows of this time, the last one weighing most; us. */
#define RATE_WINDOW_US			INT64CONST(5000000)

/* Fewer keys than this are never too many. */
#define KEYS_TO_COUNT			10000

typedef struct Run
{
	Oid			store;
	DtJob	   *job;
	MemoryContext context;		/* lasts as long as the job */
	MemoryContext batch_context;	/* of a transaction */
	MemoryContext error_context;	/* of the last error, to which the job
									 * refers */
	int			tries;			/* of the present batch, that have failed */
	int64		limit_us;		/* for the statement of the present batch */
	TimestampTz statement_start;	/* when that has begun; 0: it has not */
	int64		last_us;		/* what the last batch took */
	int64		next_size;		/* keys of the next batch, and of the present
								 * one, */
	int64		size;			/* without what is equal to its last key */
	XLogRecPtr	redo;			/* where the last checkpoint begins */
	DtBatchFixed fixed;
	bool		logged_fixed;
	int64		keys_to_count;	/* when there are more: does the key move? */
	int64		window_us;		/* begin of the present window, */
	int64		window_keys;	/* how far it was then, */
	double		rate;			/* and the rate up to that */
	int64		started_us;
	int64		elapsed_earlier_us;
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
	int64		size = Min(run->next_size, bounds.keys);

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

	job->elapsed_us = run->elapsed_earlier_us + dt_now_us() - run->started_us;
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

/* --------------------------------------------------------- the process */

static void
handle_sigint(SIGNAL_ARGS)
{
	static volatile bool is_stopping = false;
	int			save_errno = errno;
	bool		is_cancel = is_stopping || dt_queue_stops() != 1;

	is_stopping = dt_queue_stops() > 0; /* what comes later is a cancel */
	if (get_timeout_indicator(LOCK_TIMEOUT, false))
		dt_holder_note_lock();
	if (is_cancel || dt_work_is_pausing() ||
		get_timeout_indicator(LOCK_TIMEOUT, false) ||
		get_timeout_indicator(STATEMENT_TIMEOUT, false) ||
		MyProc->syncRepState == SYNC_REP_WAITING)
		StatementCancelHandler(DT_SIGNAL_PASSED);
	else
		SetLatch(MyLatch);		/* it may wait before another try */
	errno = save_errno;
}

static void
check_owner(const DtJob *job)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(job->owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the role that started batch job \"%s\" no longer exists", job->name),
				 errhint("To run it as another role, start it from the beginning there. A superuser can use forget_batches().")));
}

/* In a transaction. */
static void
become(const DtJob *job)
{
	SetConfigOption("application_name", job->name, PGC_SUSET, PGC_S_SESSION);
	debug_query_string = MemoryContextStrdup(TopMemoryContext, job->statement);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	process_session_preload_libraries();
	check_owner(job);
	/* the user may have a setting of "role", which is not that of the session */
	SetConfigOption("role", job->owner == GetSessionUserId() ? "none" :
					GetUserNameFromId(job->owner, false), PGC_SUSET, PGC_S_SESSION);
	ProcessGUCArray(job->settings, superuser() ? PGC_SUSET : PGC_USERSET, PGC_S_SESSION,
					GUC_ACTION_SET);
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		SetConfigOption("transaction_timeout", "0", PGC_SUSET, PGC_S_SESSION);	/* new in 17 */
	if (!dt_work_join(job->group_id))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the resource group of batch job \"%s\" no longer exists", job->name),
				 errhint("Start it again in a session that is in another group.")));
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
	SetConfigOption("lock_timeout", psprintf("%d", Max(wait_ms, 1)), PGC_SUSET, PGC_S_SESSION);
	SetConfigOption("deadlock_timeout", psprintf("%d", check_ms), PGC_SUSET, PGC_S_SESSION);
	SetConfigOption("log_lock_waits", "off", PGC_SUSET, PGC_S_SESSION);
}

/*
 * A trigger may move the key of each row to where it is met again, for ever if "finish"
 * is far away.  Rows that were updated are still there, so if the job has come past
 * twice as many as there are, it has met some of them again.
 */
static void
check_key_stays(Run *run, const DtJob *job, const DtKey *key)
{
	DtRange		all = {0};
	int64		n;

	/* without a "finish" it ends where the last one was at the beginning */
	if (job->keys <= run->keys_to_count || job->finish == NULL)
		return;
	run->keys_to_count = 2 * job->keys;
	n = dt_walk_count(key, &all, job->keys / 2 + 1);
	if (job->keys > 2 * n && job->rows > 2 * n)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batch job \"%s\" has passed %lld rows, but table %s has only %lld",
						job->name, (long long) job->keys, key->table, (long long) n),
				 errdetail("A trigger or another session moves rows ahead of the job in the order of %s.", key->columns),
				 errhint("Use SELECT forget_batches(%s), and start it again with the columns of another index as the \"key\", or with a \"finish\" in the past.",
						 quote_literal_cstr(job->name))));
}

static void
run_statement(Run *run, SPIPlanPtr plan, const DtKey *key, const DtRange *range)
{
	DtBatchBounds bounds = get_bounds(run->job);

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
	dt_statement_run(plan, key, range);
	disable_timeout(STATEMENT_TIMEOUT, true);
	/* what came after its last check is no cancel of the job */
	CHECK_FOR_INTERRUPTS();
}

/* A batch, from its beginning to its end. */
typedef struct Batch
{
	DtStore		store;
	Relation	table;
	DtKey	   *key;
	DtRange		range;			/* what is left of the job, then that of the
								 * batch */
	SPIPlanPtr	plan;
	DtStatement statement;
} Batch;

/* Lock what it needs, take its snapshot, and check that the statement may still run. */
static Batch
open_batch(const Run *run, const DtJob *job)
{
	Batch		batch;

	batch.store = dt_store_open(run->store, RowExclusiveLock);
	batch.table = dt_job_open_table(job->table, job->name);
	batch.key = dt_key_find(batch.table, job->columns, job->ordering);
	batch.range = dt_job_rest(job, batch.key);
	/* what is granted to PUBLIC is still granted to a role that is gone */
	check_owner(job);
	/* the tables are locked before the transaction's snapshot is taken */
	PushActiveSnapshot(GetCatalogSnapshot(InvalidOid));
	batch.plan = dt_statement_prepare(job->statement, batch.key, &batch.range);
	PopActiveSnapshot();
	batch.statement = dt_statement_check(batch.plan, batch.key, job->table);
	dt_job_check_rows(job, batch.statement.row_security);
	PushActiveSnapshot(GetTransactionSnapshot());
	return batch;
}

/* Close it.  Its locks stay until the transaction ends. */
static void
close_batch(Batch *batch)
{
	dt_store_close(&batch->store, NoLock);
	relation_close(batch->table, NoLock);
	PopActiveSnapshot();
}

/*
 * Find where the batch ends, which is the position of the job from then on, and whether
 * the job ends there.  Returns how many keys the batch has.
 */
static int64
find_end(const Run *run, DtJob *job, Batch *batch)
{
	ArrayType  *last = NULL;
	int64		keys = job->until == NULL ? 0 :
		dt_walk_ahead(batch->key, &batch->range, run->size, &last);

	if (last != NULL)
	{
		int			n = batch->range.high.n;

		/* or it would change the same rows again, for ever */
		if (job->position != NULL &&
			datumIsEqual(PointerGetDatum(job->position), PointerGetDatum(last), false, -1))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("batch job \"%s\" cannot use %s as its key", job->name, job->columns),
					 errdetail("The text of a value does not distinguish it from others."),
					 errhint("Use SELECT forget_batches(%s), and start it again with the columns of another index as the \"key\".",
							 quote_literal_cstr(job->name))));
		batch->range.high = dt_key_from_text(batch->key, last);
		if (batch->range.high.n != n)
			batch->plan = dt_statement_prepare(job->statement, batch->key, &batch->range);
	}
	else
	{
		job->finished = GetCurrentTimestamp();
		last = job->until;
	}
	if (last != NULL)
		job->position = (ArrayType *) memcpy(MemoryContextAlloc(run->context, VARSIZE(last)),
											 last, VARSIZE(last));
	return keys;
}

/* Run the statement on the next keys, if there are any. */
static void
run_batch(Run *run, DtJob *job, DtBatchCost *cost)
{
	int64		start_us;
	Batch		batch;

	dt_work_pay_before();
	/* it may have waited for long, and is to stop by now */
	if (dt_queue_stops() > 0)
		return;
	start_us = dt_now_us();
	run->size = get_size(run);
	batch = open_batch(run, job);
	cost->keys = find_end(run, job, &batch);
	if (cost->keys > 0)
	{
		run_statement(run, batch.plan, batch.key, &batch.range);
		job->rows += SPI_processed;
		job->keys += cost->keys;
		job->batches++;
		if (batch.statement.only_updates)
			check_key_stays(run, job, batch.key);
	}
	note_time(run, job);
	dt_store_put_progress(&batch.store, job);
	close_batch(&batch);
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
		job->detail = MemoryContextStrdup(run->error_context, holder);
	if (job->outcome != NULL)
	{
		/* it is the last thing to do, so it may wait, for the store as well */
		dt_work_leave();
		note_time(run, job);
		SetConfigOption("lock_timeout", "0", PGC_SUSET, PGC_S_SESSION);
		if (dt_queue_stops() > 0)
			SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_SESSION);
	}
	store = dt_store_open(run->store, RowExclusiveLock);
	PushActiveSnapshot(GetTransactionSnapshot());
	dt_store_put_progress(&store, job);
	PopActiveSnapshot();
	dt_store_close(&store, NoLock);
}

/* The first transaction: read what is stored, and make the process what it needs. */
static void
begin(Run *run, DtJob *job, DtBatchCost *cost)
{
	MemoryContextSwitchTo(run->context);
	*run->job = *job = *dt_store_read(run->store, job->id);
	run->elapsed_earlier_us = run->window_us = job->elapsed_us;
	run->window_keys = job->keys;
	run->keys_to_count = Max(2 * job->expected, KEYS_TO_COUNT) + job->keys;
	PushActiveSnapshot(GetTransactionSnapshot());
	become(job);
	PopActiveSnapshot();
	get_out_of_the_way();
	dt_message_begin(job, NULL, false);
}

/* ---------------------------------------------------------- a transaction */

/* The error that is being handled; the job has it. */
static ErrorData *
take_error(Run *run)
{
	DtJob	   *job = run->job;
	ErrorData  *error;

	MemoryContextReset(run->error_context);
	MemoryContextSwitchTo(run->error_context);
	error = CopyErrorData();
	/* not copied, and perhaps a part of a parallel worker's message */
	if (error->funcname != NULL)
		error->funcname = pstrdup(error->funcname);
	FlushErrorState();
	job->error = error->message;
	job->sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	job->detail = error->detail;
	job->hint = error->hint;
	return error;
}

/* A transaction that does this.  Returns the error with which it has ended, if any. */
static ErrorData *
run_transaction(Run *run, Action action, DtBatchCost *cost)
{
	DtJob		job = *run->job;
	ErrorData  *volatile error = NULL;
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
		MemoryContextSwitchTo(run->batch_context);
		SPI_connect();
		MemoryContextSwitchTo(run->batch_context);
		action(run, &job, cost);
		SPI_finish();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		error = take_error(run);
		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(run->batch_context);
		/* of another error no lock is the reason, and it may hold LWLocks */
		if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			dt_holder_note_row();
		else
			dt_holder_forget();
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
	/* a process that was moved into another group counts anew there */
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
	uint32		wait_event = WaitEventExtensionNew("DirtyThrottleBatches");
	int64		until = dt_now_us() + us;
	int64		left;

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
 * Has the user wanted it to end?  A foreign server may report that it has canceled
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
	if (run->tries >= MOST_TRIES)
		job->hint = psprintf(_("The batch failed %d times in a row, each time with fewer rows. What was committed stays. %s continues after the last batch."),
							 run->tries, dt_message_start_again(job));
	else if (job->hint == NULL && job->batches > 0)
		job->hint = psprintf(_("What was committed stays. %s continues after the last batch."),
							 dt_message_start_again(job));
}

/* Try again, unless it has failed for good. */
static void
handle_error(Run *run, const ErrorData *error, DtBatchCost *cost)
{
	DtJob	   *job = run->job;
	int64		us = 0;

	if (dt_queue_stops() > 0)
		return;
	if (run->size > 1 && timed_out(run, error))
		run->next_size = dt_batch_much_smaller(Min(run->size, cost->keys));
	else if (is_temporary(error) && ++run->tries < MOST_TRIES)
	{
		run->next_size = dt_batch_smaller(run->size);
		us = Min(FIRST_WAIT_US << (run->tries - 1), LONGEST_WAIT_US);
	}
	else
	{
		fail(run, error);
		return;
	}
	job->retries++;
	/* that is for the views: no batch depends on it */
	error = run_transaction(run, store_state, cost);
	if (error != NULL && is_cancel(error))
		fail(run, error);
	wait_us(run, us);
}

static void
log_fixed_cost(Run *run, const DtBatchCost *cost)
{
	if (run->logged_fixed || run->fixed.us < run->job->batch_us / 4 ||
		run->fixed.us < cost->us / 4)
		return;
	run->logged_fixed = true;
	ereport(LOG,
			(errmsg("batch job \"%s\": each batch takes at least %lld ms, however few rows it has",
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
	run->next_size = dt_batch_next(run->size, &cost, &bounds, &run->fixed);
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
	(void) pgstat_report_stat(false);	/* once a second */
}

static void
end(Run *run)
{
	DtJob	   *job = run->job;
	DtBatchCost cost;
	ErrorData  *error;

	if (job->finished == 0 && job->outcome == NULL)
		job->outcome = DT_STOPPED;
	if (job->outcome != NULL && strcmp(job->outcome, DT_STOPPED) == 0)
		job->error = job->sqlstate = job->detail = job->hint = NULL;
	dt_message_end(job, LOG);
	if (job->finished != 0)
		return;					/* the last batch has stored that */
	HOLD_CANCEL_INTERRUPTS();	/* there is nothing left to be canceled */
	error = run_transaction(run, store_state, &cost);
	if (error != NULL)
		ThrowErrorData(error);
}

static void
run_job(Oid store, Oid id)
{
	MemoryContext context = AllocSetContextCreate(TopMemoryContext, "batches", ALLOCSET_DEFAULT_SIZES);
	Run			run = {
		.store = store,
		.job = MemoryContextAllocZero(context, sizeof(DtJob)),
		.context = context,
		.batch_context = AllocSetContextCreate(context, "batch", ALLOCSET_DEFAULT_SIZES),
		.error_context = AllocSetContextCreate(context, "error", ALLOCSET_DEFAULT_SIZES),
		.next_size = 1,
		.started_us = dt_now_us()
	};
	DtBatchCost cost;
	ErrorData  *error;

	run.job->id = id;
	error = run_transaction(&run, begin, &cost);
	if (error != NULL && run.job->name == NULL)
		ThrowErrorData(error);
	if (error != NULL)
		fail(&run, error);
	while (may_go_on(&run))
	{
		next_batch(&run);
		do_between(&run);
	}
	end(&run);
}

void
dt_batches_main(Datum main_arg)
{
	DtQueued	queued;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, handle_sigint);
	pqsignal(SIGTERM, die);
	if (!dt_shmem_available() ||
		!dt_queue_begin(DatumGetInt32(main_arg), &queued))
		proc_exit(0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(queued.database, queued.login,
											  queued.connection_flags);
	run_job(queued.store, queued.job);
	proc_exit(0);
}
