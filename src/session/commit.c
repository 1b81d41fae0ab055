/*-------------------------------------------------------------------------
 *
 * commit.c
 *		The safe point after a transaction.
 *
 * A session that sleeps after its transaction keeps nobody waiting, if it
 * sleeps late enough.  When its locks have been released (the resource owner's
 * AFTER_LOCKS phase), files are still to be deleted, listeners to be notified
 * and a prepared transaction to be finished.  So that phase only finds that
 * something is left to be done, and registers a callback for the reset of
 * TopTransactionContext, which is the last thing that the core does for a
 * transaction.  There the transaction is over but interrupts are held, and an
 * ERROR would be a PANIC; see sleep.c.  Then the rest is charged, and paid.
 *
 * Commands that commit in between and keep session locks (VACUUM, CREATE INDEX
 * CONCURRENTLY, ...) do not pause at those commits.  They pay at the commit
 * that follows the command.  CALL and DO keep none, and pause at each commit.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "postmaster/interrupt.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/apply.h"
#include "session/at_end.h"
#include "session/commit.h"
#include "session/let_go.h"
#include "session/parallel_apply.h"
#include "session/pause_log.h"
#include "session/pay.h"
#include "session/session.h"
#include "session/sigterm.h"
#include "session/sleep.h"
#include "session/tick.h"
#include "session/workers.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "waiters/waiters.h"

/*
 * The longest pause after a transaction of an autovacuum worker, which keeps
 * its table locked, and of an apply worker that cannot report to its publisher that
 * it is alive.
 */
#define SERVERS_OWN_PAUSE_US		INT64CONST(1000000)

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};

typedef struct AfterTransaction
{
	/* carried from one transaction to the next */
	int64		pause_end;		/* of the last pause after a transaction, us */
	DtXactTimes times;			/* of this command, so far */

	/*
	 * Of a transaction that has ended and is not over yet: max_commit_pause,
	 * but 0 after an abort, and log_min_pause.
	 */
	int			commit_pause_ms;
	int			log_min_pause;
	bool		more_follows;	/* in the client's message, after its COMMIT */
} AfterTransaction;

static AfterTransaction after;

void
dt_commit_note_command(const PlannedStmt *pstmt, const char *source)
{
	const char *rest = source + pstmt->stmt_location + pstmt->stmt_len;

	after.more_follows = pstmt->stmt_len > 0 &&
		rest[strspn(rest, "; \t\n\v\f\r")] != '\0';
}

static void
forget_transaction(void)
{
	dt_pay_forget_transaction();
	dt_activity_end_login();
	after.more_follows = false;
}

/*
 * A pause before its first statement is no part of it, where that holds no snapshot
 * yet.
 */
static void
note_times(void)
{
	const DtXactPauses *pauses = &dt_account.slot->xact;

	after.times.us +=
		dt_clock_since(GetCurrentTransactionStartTimestamp()) -
		(pauses->before_us - after.times.before_us);
	after.times.before_us = pauses->before_us;
	after.times.paused_us = pauses->stats[DT_PAUSED_US] - pauses->before_us;
}

/*
 * The transaction has ended and has released its locks.  True when something
 * is left to be done: there is something to charge or to pay, or a message to
 * log.  Then the session's group stays the same until after_transaction().
 */
static bool
end_transaction(bool committed)
{
	if (committed)
		dt_account_leave_workers_out();
	else
		dt_workers_fail();
	if (unlikely(dt_account.slot->released_until != 0))
		dt_let_go_end();
	dt_waiters_end_transaction();
	if (unlikely(dt_xact.prepared) && committed &&
		TransactionIdIsValid(GetTopTransactionIdIfAny()))
		dt_waiters_note_prepared(GetTopTransactionIdIfAny(),
								 dt_account.group ? dt_account.group->id : 0);

	if (!dt_pause_log_is_empty() ||
		(!dt_account_is_quiet() && dt_account_is_member()))
	{
		/*
		 * The end of the transaction is about to undo a SET LOCAL of it.
		 * After an abort the client gets its answer at once.
		 */
		after.commit_pause_ms = committed ? dt_parameters.max_commit_pause : 0;
		after.log_min_pause = dt_parameters.log_min_pause;
		note_times();
		/* after a ROLLBACK in a procedure no client waits for an answer */
		dt_pay_end_transaction(committed || dt_activity_runs_procedure());
		return true;
	}
	dt_account_renew_allowance();
	forget_transaction();
	if (!dt_activity_command_goes_on())
		dt_pause_log_forget_times(&after.times);
	return false;
}

/*
 * How long may the pause be that begins now, in us?  Sets *feedback if it can
 * send feedback to the publisher.
 *
 * If an apply worker cannot do that, only its main loop sends feedback, and
 * reads a changed configuration, when nothing is left to apply.  So the worker
 * must be able to catch up: a pause is no longer than the time since the last
 * one, so that the worker pauses for half of the time at most.
 */
static int64
longest_pause(bool client_waits, bool *feedback)
{
	int64		longest = client_waits && dt_process() != DT_JOB ?
		after.commit_pause_ms * INT64CONST(1000) : PG_INT64_MAX / 2;

	*feedback = dt_process() == DT_APPLY && !ConfigReloadPending &&
		dt_apply_feedback_possible();
	if (*feedback)
		return Min(longest, dt_apply_feedback_longest_silence());
	if (dt_process_is_servers_own())
		longest = Min(longest, SERVERS_OWN_PAUSE_US);
	if (dt_process() == DT_APPLY)
		longest = Min(longest, dt_now_us() - after.pause_end);
	return longest;
}

static void
pay_after(bool client_waits, DtDue due)
{
	bool		feedback;
	bool		slept = false;
	int64		longest_us = longest_pause(client_waits, &feedback);

	if (due.observed)
	{
		dt_account_forgive();
		return;
	}
	/* a tick is to deliver a SIGTERM that comes meanwhile */
	if (dt_process() == DT_JOB && !(dt_tick_comes() && dt_sigterm_hold_back()))
		return;
	(void) dt_sleep(feedback ? DT_AFTER_APPLYING : DT_AFTER_TRANSACTION,
					due, true, dt_now_us() + longest_us, &slept);

	/* a cancel has ended the pause: what is done must not fail now */
	if (client_waits && dt_process() == DT_SESSION && !after.more_follows)
		QueryCancelPending = false;
	if (dt_account.slot->released_until != 0)
		dt_let_go_end();		/* it may be idle now */
	after.pause_end = dt_now_us();
	if (dt_sigterm_let_go())
		dt_tick_soon();
}

/*
 * May a background worker pause after this transaction?  Not while it holds
 * session locks, as a command does that it runs itself.
 */
static bool
job_may_pause_after(void)
{
	return !dt_sigterm_came() && !dt_waiters_has_locks();
}

/*
 * Charge the rest, pause, and log what the transaction has paused.  When the
 * client waits, the pause takes max_commit_pause at most, also in a suspended
 * group: the transaction is committed, and its client has to hear of that.
 * Cannot fail.
 */
static void
pay_after_transaction(void)
{
	bool		client_waits = dt_activity_client_waits();
	bool		command_goes_on = dt_activity_command_goes_on();
	bool		may_pause;
	DtDue		due;

	/*
	 * A command that goes on with its next transaction may hold locks
	 * meanwhile.  An apply worker does not pause after an abort, when
	 * feedback is not possible.
	 */
	may_pause = dt_xact.at_end == DT_PAY_AFTER && !command_goes_on &&
		!dt_activity_forbids_pauses() &&
		!(client_waits && after.commit_pause_ms == 0) &&
		(dt_process() != DT_JOB || job_may_pause_after());

	due = dt_pay_charge_rest();
	dt_account_renew_allowance();
	/* of a parallel apply worker its leader pays */
	if (due.pause_us > 0 && !dt_parallel_apply_pass_debt(may_pause) && may_pause)
		pay_after(client_waits, due);
	forget_transaction();
	dt_session_allow_changes();
	if (!command_goes_on)
		dt_pause_log_end(after.log_min_pause, &after.times);
}

/*
 * Processes that run no statements begin a command with each transaction.  An
 * apply worker gets no timer, since it would end the worker's pauses.
 */
static pg_noinline void
begin_background_command(void)
{
	if ((dt_process() == DT_AUTOVACUUM || dt_apply_copies_table()) &&
		dt_account_follow())
		dt_pay_watch_command();
}

static void
after_transaction(void *arg)
{
	pay_after_transaction();
	if (unlikely(dt_process_is_servers_own()))
		begin_background_command();
}

/* Processes that run no statements are in the group of a parameter. */
static pg_noinline void
background_transaction_ends(void)
{
	dt_session_follow_background_group();
	begin_background_command();
}

/*
 * In a parallel worker a transaction ends before its work begins.  That may be
 * to build an index, which no hook reports.
 */
static void
begin_worker(void)
{
	dt_session_attach();
	if (dt_worker_begins())
		dt_pay_watch_command();
}

/*
 * The first transaction of a process ends, or one of a process that is no
 * session, or one for the second time: there was an error in what follows the
 * first.  False: end_transaction() is not to be called.  For a parallel
 * worker its leader pays.
 */
static pg_noinline bool
unusual_end(void)
{
	if (IsParallelWorker())
	{
		if (dt_session_state & DT_UNATTACHED)
			begin_worker();
		return false;
	}
	if (dt_xact.phase == DT_ENDED)
		return false;
	dt_session_attach();
	if (dt_process_is_servers_own())
		background_transaction_ends();
	return true;
}

static void
locks_released(bool isCommit)
{
	if (unlikely((dt_session_state & DT_UNATTACHED) != 0 ||
				 dt_xact.phase == DT_ENDED ||
				 dt_process() != DT_SESSION) && !unusual_end())
		return;
	if (end_transaction(isCommit))
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
}

/*
 * This is called in each phase for each resource owner, also for owners that
 * are not those of a transaction.
 */
static void
resources_released(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
				   void *arg)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && isTopLevel &&
		CurrentResourceOwner == TopTransactionResourceOwner &&
		(dt_session_active() || dt_process() != DT_SESSION))
		locks_released(isCommit);
}

/*
 * An apply worker pays for what its parallel workers have passed to it.  It is in
 * no transaction, and holds no lock.  Cannot fail.
 */
void
dt_commit_for_workers(void)
{
	after.commit_pause_ms = dt_parameters.max_commit_pause;
	after.log_min_pause = dt_parameters.log_min_pause;
	dt_pay_end_transaction(true);
	pay_after_transaction();
}

/*
 * At server start: each process attaches at the end of its first transaction.
 */
void
dt_commit_init(void)
{
	dt_at_end_init(resources_released);
}
