/*-------------------------------------------------------------------------
 *
 * start.c
 *		Starting a job, and waiting for its end.
 *
 * A job begins with the COMMIT of the transaction that starts it.  At that time
 * nothing may fail, so all is made ready before.
 *
 * A CALL that waits looks at the queue and at what is stored.  It holds nothing meanwhile, and
 * is no part of the job: only a cancel by the user stops that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch/start.h"
#include "batch/message.h"
#include "clock.h"
#include "executor/spi.h"
#include "lib/ilist.h"
#include "miscadmin.h"
#include "session/work.h"
#include "storage/latch.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "compat.h"

/* A waiting session looks after this time, and has a notice after that one; us. */
#define LOOK_US				INT64CONST(1000000)
#define NOTICE_US			INT64CONST(10000000)

/* ------------------------------------------------------------- starting it */

/* What the transaction is going to start. */
typedef struct Pending
{
	dlist_node	node;
	MemoryContextCallback callback;
	DtQueued	queued;
} Pending;

static dlist_head pending = DLIST_STATIC_INIT(pending);

/* The transaction has ended, or the subtransaction was rolled back. */
static void
forget(void *arg)
{
	dlist_delete(&((Pending *) arg)->node);
}

/* Before the COMMIT, so that this cannot fail, and finds all that it needs. */
static void
transaction_ends(XactEvent event, void *arg)
{
	dlist_iter	iter;

	dlist_foreach(iter, &pending)
	{
		Pending    *p = dlist_container(Pending, node, iter.cur);

		if (event == XACT_EVENT_PRE_PREPARE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has started batches"),
					 errhint("Use COMMIT.")));
		if (event == XACT_EVENT_PRE_COMMIT && !dt_queue_reserve(&p->queued))
			ereport(ERROR,
					(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
					 errmsg("too many batches run or wait"),
					 errhint("Start it again when others have ended; the view dirty_throttle_batches lists them.")));
		if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
			dt_queue_settle(p->queued.job, event == XACT_EVENT_COMMIT);
	}
}

static void
start_at_commit(const DtJob *job, Oid store)
{
	static bool registered = false;
	Pending    *p = MemoryContextAllocZero(CurTransactionContext, sizeof(Pending));

	if (!registered)
		RegisterXactCallback(transaction_ends, NULL);
	registered = true;
	p->queued.database = MyDatabaseId;
	p->queued.login = GetSessionUserId();
	/* a user that loses LOGIN while the job waits is not let in */
	p->queued.connection_flags = dt_job_user_can_log_in() ? 0 : DT_BGWORKER_ANY_LOGIN;
	p->queued.store = store;
	p->queued.job = job->id;
	p->callback.func = forget;
	p->callback.arg = p;
	dlist_push_tail(&pending, &p->node);
	MemoryContextRegisterResetCallback(CurTransactionContext, &p->callback);
}

/* Returns what has become of it. */
static DtStart
start(const DtJobOptions *options)
{
	DtStart		started = dt_job_start(options);

	dt_message_start(&started, options);
	if (!options->dry_run && started.job->finished == 0 && started.state == DT_QUEUE_ABSENT)
	{
		if (dt_queue_is_full(GetSessionUserId()))
			dt_message_waits(options->job.name);
		start_at_commit(started.job, options->store);
	}
	return started;
}

/* ------------------------------------------------------------- waiting for it */

/* For what ends the CALL. */
typedef struct Waiting
{
	const char *name;
	const char *again;			/* what to type to go on */
	bool		stopped;		/* it was canceled */
} Waiting;

static void
add_hint(void *arg)
{
	const Waiting *waiting = arg;

	if (geterrcode() != ERRCODE_QUERY_CANCELED && geterrcode() != ERRCODE_ADMIN_SHUTDOWN)
		return;
	if (waiting->stopped)
		errhint("The job ends after the current batch. %s continues it.", waiting->again);
	else
		errhint("The job continues. To end it, use SELECT stop_batches(%s).",
				quote_literal_cstr(waiting->name));
}

/* The user has canceled the CALL: so is the job, which may wait for a worker yet. */
static void
stop(Oid store_oid, Oid id)
{
	DtQueueState state = dt_queue_stop(id);
	DtStore		store;

	if (state == DT_QUEUE_ABSENT || state >= DT_QUEUE_RUNS)
		return;
	QueryCancelPending = false; /* not before that is stored */
	store = dt_store_open(store_oid, RowExclusiveLock);
	PushActiveSnapshot(GetTransactionSnapshot());
	dt_job_store_stop(&store, dt_store_get(&store, id));
	PopActiveSnapshot();
	dt_store_close(&store, NoLock);
	dt_work_commit_and_wait();
	InterruptPending = QueryCancelPending = true;
}

/* Wait for its end, with a notice from time to time. */
static void
wait_for_end(Oid store, Oid id, Waiting *waiting)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "waiting for batches",
												  ALLOCSET_DEFAULT_SIZES);
	uint32		wait_event = WaitEventExtensionNew("DirtyThrottleBatches");
	int64		noticed_us = dt_now_us();
	ErrorContextCallback callback = {
		.callback = add_hint,
		.arg = waiting,
		.previous = error_context_stack
	};

	error_context_stack = &callback;
	while (dt_queue_wait_for(id) != DT_QUEUE_ABSENT)
	{
		if (dt_now_us() - noticed_us >= NOTICE_US)
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			noticed_us = dt_now_us();
			dt_message_progress(dt_store_read(store, id));
			MemoryContextSwitchTo(old);
			MemoryContextReset(context);
		}
		/* by the user, and not by a timeout? */
		if (QueryCancelPending && !get_timeout_indicator(STATEMENT_TIMEOUT, false) &&
			!get_timeout_indicator(LOCK_TIMEOUT, false))
		{
			waiting->stopped = true;
			stop(store, id);
		}
		CHECK_FOR_INTERRUPTS();
		(void) dt_clock_wait(LOOK_US, WL_EXIT_ON_PM_DEATH, wait_event);
		ResetLatch(MyLatch);
	}
	error_context_stack = callback.previous;
}

/* It has ended: ERROR if by one, or in the middle. */
static void
check_end(const DtJob *job)
{
	ErrorData	error = {.elevel = ERROR};

	if (job->outcome != NULL && strcmp(job->outcome, DT_FAILED) == 0)
	{
		const char *p = job->sqlstate;

		error.sqlerrcode = MAKE_SQLSTATE(p[0], p[1], p[2], p[3], p[4]);
		error.message = job->error;
		error.detail = job->detail;
		error.hint = job->hint;
		ThrowErrorData(&error);
	}
	if (job->finished == 0 && job->outcome == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("batch job \"%s\" was interrupted", job->name),
				 errdetail("The background worker that ran it is gone."),
				 errhint("See the server log. %s continues after the last batch.", dt_message_start_again(job))));
}

int64
dt_start(const DtJobOptions *options, bool wait, bool atomic, bool *finished)
{
	DtStart		started;
	int64		rows = 0;

	wait = wait && !options->dry_run;
	if (wait && (atomic || IsSubTransaction() || IsTransactionBlock()))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("run_in_batches() cannot run inside a transaction block or a function"),
				 errdetail("It waits for batches, which begin only when the transaction commits."),
				 errhint("Use SELECT start_batches(...) with the same arguments, which does not wait, or send the CALL by itself, in autocommit mode.")));
	SPI_connect_ext(wait ? SPI_OPT_NONATOMIC : 0);
	started = start(options);
	*finished = started.job->finished != 0;
	if (wait && !*finished)
	{
		Waiting		waiting = {.name = options->job.name,.again = dt_message_start_again(started.job)};
		DtJob	   *job;

		dt_work_commit_and_wait();
		wait_for_end(options->store, started.job->id, &waiting);
		job = dt_store_read(options->store, started.job->id);
		check_end(job);
		dt_message_end(job, NOTICE);
		rows = job->rows - started.job->rows;
		*finished = job->finished != 0;
	}
	SPI_finish();
	return rows;
}
