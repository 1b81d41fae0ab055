/*-------------------------------------------------------------------------
 *
 * start.c
 *		Starting a job, and waiting for its end.
 *
 * A job begins with the COMMIT of the transaction that starts it.  At that time
 * nothing may fail, so all is made ready before.
 *
 * Who waits looks at the queue and at what is stored.  It holds nothing meanwhile, and
 * is no part of the job: only a cancel by the user stops that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch/settings.h"
#include "batch/start.h"
#include "batch/tell.h"
#include "clock.h"
#include "executor/spi.h"
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
	SubTransactionId subid;
	DtQueued	queued;
} Pending;

static List *pending = NIL;		/* in TopTransactionContext */

/* At PRE_COMMIT, so that the COMMIT cannot fail, and finds all that it needs. */
static void
reserve(const Pending *p)
{
	if (!dt_queue_reserve(&p->queued))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many batches run or wait"),
				 errhint("Start them again when others have ended; the view dirty_throttle_batches lists them.")));
}

static void
transaction_ends(XactEvent event, void *arg)
{
	foreach_ptr(Pending, p, pending)
	{
		if (p->subid == InvalidSubTransactionId)
			continue;
		if (event == XACT_EVENT_PRE_PREPARE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that has started batches"),
					 errhint("Use COMMIT.")));
		if (event == XACT_EVENT_PRE_COMMIT)
			reserve(p);
		if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
			dt_queue_settle(p->queued.job, event == XACT_EVENT_COMMIT);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT)
		pending = NIL;
}

static void
subtransaction_ends(SubXactEvent event, SubTransactionId mine,
					SubTransactionId parent, void *arg)
{
	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	foreach_ptr(Pending, p, pending)
	{
		if (p->subid == mine)
			p->subid = event == SUBXACT_EVENT_COMMIT_SUB ? parent :
				InvalidSubTransactionId;
	}
}

static void
start_at_commit(const DtJob *job, Oid store)
{
	static bool registered = false;
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Pending    *p = palloc0(sizeof(Pending));

	if (!registered)
	{
		RegisterXactCallback(transaction_ends, NULL);
		RegisterSubXactCallback(subtransaction_ends, NULL);
		registered = true;
	}
	p->subid = GetCurrentSubTransactionId();
	p->queued.database = MyDatabaseId;
	p->queued.login = job->login;
	/* who loses LOGIN while the job waits is not let in */
	p->queued.connection_flags = dt_settings_can_log_in() ? 0 : DT_BGWORKER_ANY_LOGIN;
	p->queued.store = store;
	p->queued.job = job->id;
	pending = lappend(pending, p);
	MemoryContextSwitchTo(old);
}

/* Returns what has become of it. */
static DtStart
start(const DtJobOptions *options)
{
	DtStart		started = dt_job_start(options);

	dt_tell_start(&started, options);
	if (!options->dry_run && !started.finished && started.state == DT_QUEUE_ABSENT)
	{
		if (dt_queue_is_full(started.job->login))
			dt_tell_waits(options->name);
		start_at_commit(started.job, options->store);
	}
	return started;
}

void
dt_start(const DtJobOptions *options)
{
	SPI_connect();
	(void) start(options);
	SPI_finish();
}

/* ------------------------------------------------------------- waiting for it */

static void
check_can_commit(bool atomic)
{
	if (IsTransactionBlock() && !IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("run_in_batches() cannot run inside a transaction block"),
				 errdetail("It waits for batches that begin when the transaction commits."),
				 errhint("Use SELECT start_batches(...) with the same arguments, which does not wait, or send the CALL by itself, in autocommit mode.")));
	if (atomic || IsSubTransaction())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TRANSACTION_TERMINATION),
				 errmsg("run_in_batches() cannot be called where no COMMIT is possible"),
				 errdetail("It waits for batches that begin when the transaction commits."),
				 errhint("Use SELECT start_batches(...) with the same arguments, which does not wait.")));
}

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
		errhint("The batches end after the present one. %s goes on with them.", waiting->again);
	else
		errhint("The batches go on. To end them, use SELECT stop_batches(%s).",
				quote_literal_cstr(waiting->name));
}

/* Has the user canceled it, and not a timeout? */
static bool
is_canceled(void)
{
	return QueryCancelPending && !get_timeout_indicator(STATEMENT_TIMEOUT, false) &&
		!get_timeout_indicator(LOCK_TIMEOUT, false);
}

/* What is stored of it now, or NULL; nothing is held afterwards. */
static DtJob *
look(Oid store_oid, Oid id)
{
	DtStore		store = dt_store_open(store_oid, AccessShareLock);
	DtJob	   *job;

	/* what is stored out of line is not read without a snapshot */
	PushActiveSnapshot(GetCatalogSnapshot(InvalidOid));
	job = dt_store_get(&store, id);
	PopActiveSnapshot();
	dt_store_close(&store, AccessShareLock);
	InvalidateCatalogSnapshot();
	return job;
}

/* The user has canceled the CALL: so is the job, which may wait for a worker yet. */
static void
stop(Oid store_oid, Oid id)
{
	DtQueueState state = dt_queue_stop(id);
	DtStore		store;
	DtJob	   *job;

	if (state == DT_QUEUE_ABSENT || state >= DT_QUEUE_RUNS)
		return;
	QueryCancelPending = false; /* not before that is stored */
	store = dt_store_open(store_oid, RowExclusiveLock);
	PushActiveSnapshot(GetTransactionSnapshot());
	job = dt_store_get(&store, id);
	if (job != NULL)
		dt_job_store_stop(&store, job->owner, job->name);
	PopActiveSnapshot();
	dt_store_close(&store, NoLock);
	dt_work_commit_and_wait();
	InterruptPending = QueryCancelPending = true;
}

static void
wait_until_absent(Oid store, Oid id, Waiting *waiting)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "waiting for batches",
												  ALLOCSET_DEFAULT_SIZES);
	uint32		wait_event = WaitEventExtensionNew("DirtyThrottleBatches");
	int64		told_us = dt_now_us();

	while (dt_queue_wait_for(id) != DT_QUEUE_ABSENT)
	{
		if (dt_now_us() - told_us >= NOTICE_US)
		{
			MemoryContext old = MemoryContextSwitchTo(context);

			told_us = dt_now_us();
			dt_tell_progress(look(store, id));
			MemoryContextSwitchTo(old);
			MemoryContextReset(context);
		}
		if (is_canceled())
		{
			waiting->stopped = true;
			stop(store, id);
		}
		CHECK_FOR_INTERRUPTS();
		(void) dt_clock_wait(LOOK_US, WL_EXIT_ON_PM_DEATH, wait_event);
		ResetLatch(MyLatch);
	}
	MemoryContextDelete(context);
}

/* Raise the error with which it has ended. */
static void
raise_error(const DtJob *job)
{
	const char *p = job->sqlstate;

	if (job->outcome != NULL && strcmp(job->outcome, DT_FAILED) == 0)
		ereport(ERROR,
				(errcode(p ? MAKE_SQLSTATE(p[0], p[1], p[2], p[3], p[4]) :
						 ERRCODE_INTERNAL_ERROR),
				 errmsg_internal("%s", job->error),
				 job->detail ? errdetail_internal("%s", job->detail) : 0,
				 job->hint ? errhint("%s", job->hint) : 0));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("batches \"%s\" were interrupted", job->name),
			 errdetail("The background worker that has run them is gone."),
			 errhint("See the server log. %s goes on after the last batch.", dt_tell_start_again(job))));
}

static DtJob *
wait_for(const DtJobOptions *options, Oid id, const char *again)
{
	Waiting		waiting = {.name = options->name,.again = again};
	ErrorContextCallback callback = {
		.callback = add_hint,
		.arg = &waiting,
		.previous = error_context_stack
	};
	DtJob	   *job;

	error_context_stack = &callback;
	wait_until_absent(options->store, id, &waiting);
	error_context_stack = callback.previous;
	job = look(options->store, id);
	if (job == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("what is stored of batches \"%s\" is gone", options->name),
				 errhint("Start them again to begin anew.")));
	if (job->finished == 0 &&
		(job->outcome == NULL || strcmp(job->outcome, DT_STOPPED) != 0))
		raise_error(job);
	dt_tell_end(job);
	return job;
}

int64
dt_start_and_wait(const DtJobOptions *options, bool atomic, bool *finished)
{
	DtStart		started;
	int64		rows = 0;

	if (!options->dry_run)
		check_can_commit(atomic);
	SPI_connect_ext(atomic ? 0 : SPI_OPT_NONATOMIC);
	started = start(options);
	*finished = started.finished;
	if (!options->dry_run && !started.finished)
	{
		int64		rows_before = started.is_new ? 0 : started.job->rows;
		Oid			id = started.job->id;
		const char *again = dt_tell_start_again(started.job);
		DtJob	   *job;

		dt_statement_end_deferred();
		dt_work_commit_and_wait();
		job = wait_for(options, id, again);
		rows = job->rows - rows_before;
		*finished = job->finished != 0;
	}
	SPI_finish();
	return rows;
}
