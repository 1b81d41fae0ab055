/*-------------------------------------------------------------------------
 *
 * run.c
 *		A CALL of run_in_batches(): the loop, and its transactions.
 *
 * Each batch is a transaction.  Its statement, and the row that says how far the
 * job has come, are in a subtransaction, so that an error of them can be caught;
 * one of the COMMIT is caught as well.  What fails because others hold locks is
 * undone and tried again, with fewer keys.
 *
 * A batch is to get out of everybody's way.  It waits for a lock only briefly,
 * and looks for a deadlock before anybody else does who waits for it, so it is
 * always the batch that gives way.
 *
 * The session pays for a batch after its COMMIT, or where that is not possible,
 * in a background worker, before the next one; it holds nothing then.
 *
 * What changes between batches is in run->job.  It is what has been committed:
 * a batch works with a copy.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "batch/run.h"
#include "batch/tell.h"
#include "batch/walk.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "commands/trigger.h"
#include "engine/batch.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "replication/syncrep.h"
#include "session/account.h"
#include "shared/claim.h"
#include "storage/pmsignal.h"
#include "storage/proc.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"

/* A batch waits for a lock for so long at most, ms. */
#define LONGEST_LOCK_WAIT_MS	200

/* It looks for a deadlock after so long, ms. */
#define DEADLOCK_CHECK_MS		50

/* One that has failed so often in a row is given up. */
#define MOST_TRIES				10

/* After the first failure it waits for so long, then twice as long, ...; us. */
#define FIRST_WAIT_US			INT64CONST(200000)
#define LONGEST_WAIT_US			INT64CONST(10000000)

/* After so long the server is told of what was done, us. */
#define REPORT_US				INT64CONST(1000000)

/* "follow" looks again after so long, us. */
#define LOOK_AGAIN_US			INT64CONST(1000000)

/* The rate is that of the last one or two windows of so long, us. */
#define RATE_WINDOW_US			INT64CONST(60000000)

/* How far the job was at some time. */
typedef struct Mark
{
	int64		us;
	int64		keys;
} Mark;

/* What is needed for the loop only. */
typedef struct Loop
{
	DtRun	   *run;
	MemoryContext context;		/* of a transaction */
	bool		at_end;			/* no keys are left, as far as is known */
	bool		has_looked;		/* beyond the end, some time ago */
	int			tries;			/* of the present batch, that have failed */
	int64		too_many;		/* rows that it has changed, if these are more
								 * than it has keys */
	bool		were_too_many;	/* the same of the one before */
	bool		warned;			/* of that */
	XLogRecPtr	redo;			/* where the last checkpoint begins */
	DtBatchLeast least;			/* of batches that take long however small */
	Mark		old;			/* begin of the last window, */
	Mark		new;			/* and of the present one */
	Mark		last;			/* that was noted */
	int64		told_us;		/* of the last notice */
	int64		reported_us;	/* to the server's statistics, last */
} Loop;

/* What is done in a transaction of its own; it changes the job. */
typedef void (*Action) (Loop *loop, DtJob *job, DtBatchCost *cost);

/* --------------------------------------------------------- times and sizes */

/* How large may a batch be? */
static DtBatchBounds
get_bounds(const DtRun *run)
{
	DtBatchBounds bounds = {
		.keys = run->options->max_rows,
		.us = run->options->batch_us
	};

	for (int r = 0; r < DT_RESOURCES; r++)
		bounds.bytes[r] = dt_account_without_pause(r);
	return bounds;
}

/* Be cautious after a checkpoint has begun; at the begin of the CALL as well. */
static int64
get_size(Loop *loop)
{
	XLogRecPtr	redo = GetRedoRecPtr();
	DtBatchBounds bounds = get_bounds(loop->run);
	int64		size = Min(loop->run->job.progress.size, bounds.keys);

	if (redo != loop->redo)
		size = dt_batch_cautious(size, &bounds, BLCKSZ);
	loop->redo = redo;
	return size;
}

/* The job has come so far: its times and its rate. */
static void
note_time(Loop *loop, DtProgress *progress)
{
	DtRun	   *run = loop->run;
	int64		now = dt_now_us();

	progress->elapsed_us = run->elapsed_before_us + now - run->started_us;
	progress->updated = GetCurrentTimestamp();
	if (now > loop->old.us)
		progress->rate = (progress->keys - loop->old.keys) * 1e6 /
			(now - loop->old.us);
	loop->last = (Mark)
	{
		.us = now,.keys = progress->keys
	};
}

/* What was noted is committed. */
static void
move_windows(Loop *loop)
{
	if (loop->last.us - loop->new.us < RATE_WINDOW_US)
		return;
	loop->old = loop->new;
	loop->new = loop->last;
}

/* ---------------------------------------------------------- a transaction */

static void
set_locally(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
}

/*
 * A transaction begins.  Who has to pay before it does so now, when it holds
 * nothing: to the session's hooks a function begins here.
 *
 * The log would have no message of these waits either without our deadlock
 * check, since they are shorter than the server's own deadlock_timeout.
 */
static void
begin_transaction(const DtRun *run)
{
	int			wait_ms = Min(LONGEST_LOCK_WAIT_MS, DeadlockTimeout / 2);
	int			check_ms = Min(DEADLOCK_CHECK_MS, DeadlockTimeout);

	InvokeFunctionExecuteHook(run->options->routine);
	if (LockTimeout > 0)
		wait_ms = Min(wait_ms, LockTimeout);
	set_locally("lock_timeout", psprintf("%d", Max(wait_ms, 1)));
	set_locally("deadlock_timeout", psprintf("%d", check_ms));
	set_locally("log_lock_waits", "off");
}

/* The error that is being handled; the transaction goes on. */
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

/* Is a COMMIT that is over not what its synchronous standbys have confirmed? */
static bool
is_unconfirmed(void)
{
	int			mode = synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_WRITE ?
		SYNC_REP_WAIT_WRITE :
		synchronous_commit == SYNCHRONOUS_COMMIT_REMOTE_APPLY ?
		SYNC_REP_WAIT_APPLY : SYNC_REP_WAIT_FLUSH;
	bool		unconfirmed;

	if (!SyncRepRequested() || !TransactionIdIsValid(GetTopTransactionIdIfAny()))
		return false;
	/* who wakes those that wait has the lock until all of it is there to see */
	LWLockAcquire(SyncRepLock, LW_SHARED);
	unconfirmed = dt_sync_standbys_are_defined() &&
		WalSndCtl->lsn[mode] < XactLastCommitEnd;
	LWLockRelease(SyncRepLock);
	return unconfirmed;
}

/*
 * Only a cancel ends the wait for a standby like that.  To the server it is a
 * warning then, and is over; so the next batch would wait in its turn.  For a
 * transaction that has written no WAL the server has not waited.
 */
static void
keep_cancel(XactEvent event, void *arg)
{
	static bool has_written = false;

	if (event == XACT_EVENT_PRE_COMMIT)
		has_written = XactLastRecEnd != InvalidXLogRecPtr;
	if (event != XACT_EVENT_COMMIT || !has_written || !is_unconfirmed())
		return;
	QueryCancelPending = true;
	InterruptPending = true;
}

/*
 * COMMIT, or return the error that it has ended with.  A cancel that has ended its wait
 * is pending again.
 */
static ErrorData *
commit(MemoryContext context)
{
	ErrorData  *volatile error = NULL;

	RegisterXactCallback(keep_cancel, NULL);
	PG_TRY();
	{
		SPI_commit();
	}
	PG_CATCH();
	{
		error = take_error(context);
	}
	PG_END_TRY();
	UnregisterXactCallback(keep_cancel, NULL);
	MemoryContextSwitchTo(context);
	return error;
}

static void
commit_or_fail(MemoryContext context)
{
	ErrorData  *error = commit(context);

	if (error != NULL)
		ReThrowError(error);
	CHECK_FOR_INTERRUPTS();
}

/* Do it in a subtransaction; returns the error, if any. */
static ErrorData *
do_undoably(Action action, Loop *loop, DtJob *job, DtBatchCost *cost)
{
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData  *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(loop->context);
	PG_TRY();
	{
		action(loop, job, cost);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		error = take_error(loop->run->context);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(loop->context);
	CurrentResourceOwner = owner;
	return error;
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
 * Has the user or this server wanted it to end?  A foreign server may report that it
 * has canceled something, and so may a function.
 */
static bool
is_cancel(const ErrorData *error)
{
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED &&
		error->funcname != NULL &&
		strcmp(error->funcname, "ProcessInterrupts") == 0;
}

/*
 * Wait between two batches.  The transaction that there always is holds nothing;
 * transaction_timeout is not to end it.
 */
static void
wait_us(int64 us)
{
	static uint32 wait_event = 0;
	int64		until = dt_now_us() + us;
	int64		left;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("DirtyThrottleBatches");
	while ((left = until - dt_now_us()) > 0 && !dt_claim_is_to_stop())
	{
		if (DT_TRANSACTION_TIMEOUT > 0)
		{
			SPI_commit();
			left = Min(left, DT_TRANSACTION_TIMEOUT * INT64CONST(500));
		}
		if (dt_clock_sleep(left, WL_EXIT_ON_PM_DEATH, wait_event) & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/* ------------------------------------------- what a transaction works with */

typedef struct Work
{
	Relation	store;
	ItemPointerData tid;		/* of the job's row there */
	Relation	table;
	DtKey	   *key;
	int64		start_us;
} Work;

/* What is stored of a job, but for what this process knows better. */
static void
take_stored(DtJob *job, DtJob *stored)
{
	stored->error = job->error;
	stored->progress.failed = job->progress.failed;
	stored->progress.size = job->progress.size;
	stored->progress.retries = job->progress.retries;
	stored->progress.paused_us = job->progress.paused_us;
	*job = *stored;
}

/* Begin with what is stored. */
static void
begin_work(Loop *loop, DtJob *job, Work *work)
{
	DtJob	   *stored;

	work->start_us = dt_now_us();
	SPI_connect();
	MemoryContextSwitchTo(loop->context);
	work->store = dt_store_open(loop->run->options->routine, RowExclusiveLock);
	stored = dt_store_find(work->store, job->owner, job->name, &work->tid);
	if (stored == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("what is stored of batches \"%s\" is gone", job->name),
				 errhint("Call run_in_batches() again to begin anew.")));
	take_stored(job, stored);
	work->table = dt_job_open_table(job->table, job->name);
	work->key = dt_key_find(work->table, job->columns, job->ordering,
							job->descending);
	/* the tables are locked before the transaction's snapshot is taken */
	PushActiveSnapshot(GetCatalogSnapshot(InvalidOid));
	dt_statement_lock(loop->run->statement, work->key,
					  job->names_table ? job->table : InvalidOid);
	PopActiveSnapshot();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
end_work(Loop *loop, DtJob *job, Work *work)
{
	note_time(loop, &job->progress);
	dt_store_update(work->store, &work->tid, job);
	table_close(work->store, NoLock);
	relation_close(work->table, NoLock);
	PopActiveSnapshot();
	SPI_finish();
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
				 errhint("Name the columns of another index as the \"key\".")));
}

/*
 * SET CONSTRAINTS ALL IMMEDIATE: what was deferred would run in the COMMIT that
 * follows, and its time is part of the batch's.
 */
static void
check_deferred(void)
{
	ConstraintsSetStmt *all = makeNode(ConstraintsSetStmt);

	all->deferred = false;
	AfterTriggerSetState(all);
}

/* ------------------------------------- what is done in such a transaction */

/* Run the statement on the next keys, if there are any. */
static void
run_batch(Loop *loop, DtJob *job, DtBatchCost *cost)
{
	DtRun	   *run = loop->run;
	Work		work;
	DtRange		range;
	ArrayType  *last = NULL;

	begin_work(loop, job, &work);
	range = dt_job_rest(job, work.key);
	if (job->until != NULL)
		cost->keys = dt_walk_ahead(work.key, &range, job->progress.size,
								   &last);
	check_moves(job, last);
	if (last != NULL)
		range.high = dt_key_from_text(work.key, last);
	else
		loop->at_end = true;
	job->position = last ? last : job->until;
	if (cost->keys > 0)
	{
		bool		changes;
		int64		rows = dt_statement_run(run->statement, work.key, &range,
											job->table, &changes);

		check_deferred();
		job->progress.rows += rows;
		job->progress.keys += cost->keys;
		job->progress.batches++;
		loop->too_many = changes && rows > cost->keys ? rows : 0;
	}
	if (loop->at_end && !run->options->follow)
		job->progress.finished = GetCurrentTimestamp();
	end_work(loop, job, &work);
	cost->us = dt_now_us() - work.start_us;
}

/* With "follow", at the end: look whether there are keys beyond it. */
static void
look_beyond(Loop *loop, DtJob *job, DtBatchCost *cost)
{
	Work		work;
	DtRange		beyond;
	ArrayType  *until;

	begin_work(loop, job, &work);
	beyond = dt_job_rest(job, work.key);
	beyond.high.n = 0;
	until = dt_walk_to_end(work.key, &beyond);
	if (until != NULL)
	{
		job->until = until;
		job->progress.expected = dt_job_expect(job, work.key, work.table);
		loop->at_end = false;
	}
	else if (loop->has_looked)
		job->progress.finished = GetCurrentTimestamp();
	end_work(loop, job, &work);
}

/* Note with what the job has ended, though its table may be gone. */
static void
store_end(Loop *loop, DtJob *job, DtBatchCost *cost)
{
	Relation	store = dt_store_open(loop->run->options->routine,
									  RowExclusiveLock);
	ItemPointerData tid;
	DtJob	   *stored;

	/* a long statement is in the TOAST table */
	PushActiveSnapshot(GetTransactionSnapshot());
	stored = dt_store_find(store, job->owner, job->name, &tid);
	if (stored != NULL)
	{
		take_stored(job, stored);
		note_time(loop, &job->progress);
		dt_store_update(store, &tid, job);
	}
	PopActiveSnapshot();
	table_close(store, NoLock);
}

/* ---------------------------------------------------------- a transaction */

static bool
may_go_on(const DtRun *run)
{
	return run->job.progress.finished == 0 && !dt_claim_is_to_stop() &&
		(run->options->run_us == 0 ||
		 dt_now_us() - run->started_us < run->options->run_us);
}

/*
 * One that does this.  Returns the error with which it has ended; then it has
 * changed nothing, and the transaction that has begun since is empty.  But
 * after a cancel, which is to be raised again, it is still the same one: its
 * rollback would have to pay first.
 */
static ErrorData *
run_transaction(Loop *loop, Action action, DtBatchCost *cost)
{
	DtRun	   *run = loop->run;
	DtJob		job = run->job;
	bool		at_end = loop->at_end;
	int64		paused_us = dt_account_paused_us();
	uint32		times_joined = dt_account.slot->times_joined;
	int64		before[DT_RESOURCES];
	ErrorData  *error;

	MemoryContextReset(loop->context);
	MemoryContextSwitchTo(loop->context);
	memset(cost, 0, sizeof(*cost));
	begin_transaction(run);
	job.progress.size = get_size(loop);
	for (int r = 0; r < DT_RESOURCES; r++)
		before[r] = dt_account_counter(r);
	/* it may have paused for long, and is to stop by now */
	error = action == store_end || may_go_on(run) ?
		do_undoably(action, loop, &job, cost) : NULL;
	if (error == NULL)
		error = commit(run->context);
	else if (!is_cancel(error))
		SPI_rollback();
	for (int r = 0; r < DT_RESOURCES; r++)
		cost->bytes[r] = dt_account_counter(r) - before[r];
	if (error == NULL)
	{
		run->job.progress = job.progress;
		move_windows(loop);
	}
	else
		loop->at_end = at_end;
	/* who was moved into another group counts anew there */
	if (dt_account.slot->times_joined != times_joined)
		paused_us = 0;
	run->job.progress.paused_us += dt_account_paused_us() - paused_us;
	MemoryContextSwitchTo(run->context);
	return error;
}

/* ------------------------------------------------------------------ the loop */

/* Note with what the job has ended, if that is possible. */
static void
write_down_end(Loop *loop)
{
	DtBatchCost cost;

	(void) run_transaction(loop, store_end, &cost);
}

/* The same, whatever ends the pause before that: what is told is the error. */
static void
write_down_error(Loop *loop)
{
	PG_TRY();
	{
		write_down_end(loop);
	}
	PG_CATCH();
	{
		FlushErrorState();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(loop->run->context);
}

/*
 * The job ends with this error.  It is raised again, and says how to go on.  Who
 * has canceled the CALL waits for nothing more.
 */
static void
fail(Loop *loop, ErrorData *error)
{
	DtRun	   *run = loop->run;

	if (!is_cancel(error))
	{
		run->job.progress.failed = true;
		run->job.error = error->message;
		write_down_error(loop);
		dt_tell_failure(run);
	}
	if (loop->tries >= MOST_TRIES)
		error->hint = psprintf(_("This was the %dth time in a row, each with fewer rows. What was committed stays. The same CALL goes on after the last batch."),
							   loop->tries);
	else if (error->hint == NULL)
		error->hint = pstrdup(_("What was committed stays. The same CALL goes on after the last batch."));
	ReThrowError(error);
}

/* Try again, unless it has failed for good. */
static void
handle_error(Loop *loop, ErrorData *error)
{
	DtRun	   *run = loop->run;
	DtProgress *progress = &run->job.progress;

	if (!is_temporary(error) || ++loop->tries >= MOST_TRIES)
		fail(loop, error);
	progress->retries++;
	progress->size = dt_batch_smaller(progress->size);
	if (run->job.error != NULL)
		pfree(run->job.error);
	run->job.error = pstrdup(error->message);
	FreeErrorData(error);
	wait_us(Min(FIRST_WAIT_US << (loop->tries - 1), LONGEST_WAIT_US));
}

/* False: what failed is to be tried again. */
static bool
try_transaction(Loop *loop, Action action, DtBatchCost *cost)
{
	ErrorData  *error = run_transaction(loop, action, cost);

	if (error != NULL)
		handle_error(loop, error);
	else
		loop->tries = 0;
	return error == NULL;
}

/*
 * Others may have written some rows since the keys were counted; not so many, and
 * hardly each time.
 */
static void
warn_of_too_many(Loop *loop, int64 keys)
{
	if (!loop->warned && loop->too_many > 0 &&
		(loop->were_too_many || loop->too_many / 2 > keys))
	{
		dt_tell_too_many(loop->run, loop->too_many, keys);
		loop->warned = true;
	}
	loop->were_too_many = loop->too_many > 0;
}

static void
next_batch(Loop *loop)
{
	DtRun	   *run = loop->run;
	DtBatchCost cost;
	DtBatchBounds bounds;

	if (!try_transaction(loop, run_batch, &cost))
		return;
	loop->has_looked = false;
	if (cost.keys == 0)
		return;
	warn_of_too_many(loop, cost.keys);
	bounds = get_bounds(run);
	run->job.progress.size = dt_batch_next(run->job.progress.size, &cost,
										   &bounds, &loop->least);
}

static void
follow(Loop *loop)
{
	DtBatchCost cost;

	if (!try_transaction(loop, look_beyond, &cost))
		return;
	if (loop->at_end && loop->run->job.progress.finished == 0)
	{
		loop->has_looked = true;
		wait_us(LOOK_AGAIN_US);
	}
}

/*
 * The server adds to its statistics what a session has done when that becomes idle,
 * and without these autovacuum would begin after the CALL.  The transaction that
 * there always is has done nothing yet; it ends lest it be taken to have ended now.
 *
 * Statistics of a function that runs must stay where they are until it returns, and a
 * procedure that has called this one may be such a function.  A server with assertions
 * has one against all of this.
 */
static void
report_statistics(Loop *loop)
{
	loop->run->functions_tracked |= pgstat_track_functions != TRACK_FUNC_OFF;
	if (loop->run->functions_tracked ||
		dt_now_us() - loop->reported_us < REPORT_US)
		return;
	loop->reported_us = dt_now_us();
#ifndef USE_ASSERT_CHECKING
	(void) pgstat_report_stat(true);
	SPI_commit();
#endif
}

/*
 * Nothing that the loop does waits for its client, so it would go on without a
 * postmaster, and no other one could start meanwhile.
 */
static void
check_postmaster(void)
{
	if (!PostmasterIsAlive())
		ereport(FATAL,
				(errcode(ERRCODE_ADMIN_SHUTDOWN),
				 errmsg("terminating connection due to unexpected postmaster exit")));
}

static void
run_loop(DtRun *run)
{
	Mark		begin = {.us = run->started_us,.keys = run->job.progress.keys};
	Loop		loop = {
		.run = run,
		.context = AllocSetContextCreate(run->context, "batch",
										 ALLOCSET_DEFAULT_SIZES),
		.old = begin,
		.new = begin,
		.told_us = run->started_us,
		.reported_us = run->started_us
	};

	while (may_go_on(run))
	{
		CHECK_FOR_INTERRUPTS();
		check_postmaster();
		if (loop.at_end)
			follow(&loop);
		else
			next_batch(&loop);
		report_statistics(&loop);
		if (run->options->notice_us > 0 &&
			dt_now_us() - loop.told_us >= run->options->notice_us)
		{
			MemoryContextSwitchTo(loop.context);
			dt_tell_progress(run);
			MemoryContextSwitchTo(run->context);
			loop.told_us = dt_now_us();
		}
	}
	write_down_end(&loop);
	dt_tell_end(run);
}

/* ------------------------------------------------------------------ the CALL */

static Relation
open_table(const DtJobOptions *options)
{
	Relation	table = dt_job_open_table(options->table, options->name);

	PushActiveSnapshot(GetTransactionSnapshot());
	return table;
}

static void
close_table(Relation table)
{
	PopActiveSnapshot();
	relation_close(table, NoLock);
}

static void
claim(const DtRun *run)
{
	DtJobName	name = dt_job_name(&run->job);
	int			pid = dt_claim(&name);

	if (pid != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("batches \"%s\" are being run by process %d",
						run->job.name, pid),
				 errhint("Wait for it, or end it after its present batch with SELECT stop_batches(%s).",
						 quote_literal_cstr(run->job.name))));
}

/*
 * The arguments needed a snapshot: end its transaction.  What SET LOCAL has set ends
 * with that.  As another role, or with another search_path, the statement would be
 * another one.
 */
static void
end_callers_transaction(DtRun *run)
{
	Oid			user = GetUserId();
	char	   *path = pstrdup(namespace_search_path);
	const char *ended;

	commit_or_fail(run->context);
	ended = GetUserId() != user ? "role" :
		strcmp(namespace_search_path, path) != 0 ? "search_path" : NULL;
	if (ended != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("run_in_batches() cannot run with a \"%s\" that SET LOCAL has set", ended),
				 errdetail("It commits after each batch, which ends that."),
				 errhint("Use SET before the CALL, and RESET after it.")));
}

static void
run_claimed(DtRun *run, Relation table)
{
	bool		begins = dt_job_begin(run, table);

	close_table(table);
	run->rows_before = run->job.progress.rows;
	if (!begins)
	{
		dt_tell_nothing_to_do(run);
		return;
	}
	commit_or_fail(run->context);
	run->started_us = dt_now_us();
	run->elapsed_before_us = run->job.progress.elapsed_us;
	dt_tell_begin(run);
	run_loop(run);
}

/* The claim ends with it, however it ends. */
static pg_noinline void
claim_and_run(DtRun *run, Relation table)
{
	claim(run);
	PG_TRY();
	{
		run_claimed(run, table);
	}
	PG_FINALLY();
	{
		dt_claim_release();
	}
	PG_END_TRY();
}

int64
dt_run(const DtJobOptions *options, bool *finished)
{
	DtRun		run = {
		.options = options,
		.functions_tracked = pgstat_track_functions != TRACK_FUNC_OFF
	};
	Relation	table;

	dt_job_check_writable("run");
	dt_job_check_can_commit(options);
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	run.context = CurrentMemoryContext;
	table = open_table(options);
	dt_job_check(&run, table);
	if (options->dry_run)
	{
		if (dt_job_look(&run, table))
			dt_tell_plan(&run);
		else
			dt_tell_nothing_to_do(&run);
		run.rows_before = run.job.progress.rows;
		close_table(table);
	}
	else
	{
		/* not before: what is refused commits nothing that was done before it */
		close_table(table);
		end_callers_transaction(&run);
		table = open_table(options);
		dt_job_find_key(&run, table);
		dt_statement_lock(run.statement, run.key,
						  run.job.names_table ? options->table : InvalidOid);
		claim_and_run(&run, table);
	}
	SPI_finish();
	*finished = run.job.progress.finished != 0;
	return run.job.progress.rows - run.rows_before;
}
