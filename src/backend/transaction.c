/*-------------------------------------------------------------------------
 *
 * transaction.c
 *		Where the current transaction may and must pay what it owes.
 *
 * A small transaction pays after its end, when it holds no locks.  One that
 * comes to owe more than dirty_throttle.transaction_grace pays while it runs.
 * What cannot be paid after a transaction (the client has waited for
 * max_commit_pause, the user has canceled something) is paid before the first
 * statement of the next one.
 *
 * The state of the transaction is local to this file: its beginning is noted
 * when a member's first statement begins or is found running, its end by
 * pace_commit.c, which calls dt_transaction_end().  account.c knows what is
 * owed and takes the group's lock; pause.c sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/account.h"
#include "backend/account_parallel.h"
#include "backend/apply_feedback.h"
#include "backend/blockers.h"
#include "backend/interrupt.h"
#include "backend/live.h"
#include "backend/pause.h"
#include "backend/pause_log.h"
#include "backend/session.h"
#include "backend/transaction.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

#include "compat.h"

/*
 * The longest pause after a transaction of an autovacuum worker, which keeps
 * its table locked, and of an apply worker that cannot tell its publisher that
 * it is alive.
 */
#define BACKGROUND_PAUSE_US			INT64CONST(1000000)

/* false: none between rows.  Only test/core-suites wants that. */
#ifndef DT_ROW_PAUSES
#define DT_ROW_PAUSES	true
#endif

/*
 * Checks for interrupts have to be worth their cost: one that takes 1 us of
 * CPU time is worth a pause of so many us.
 */
#define WORTH_OF_CHECKS			50

/* The longest pause at one check for interrupts, and how far that may grow. */
#define LONGEST_AT_CHECK_US		INT64CONST(200000)
#define LONGEST_EVER_US			INT64CONST(3600000000)

typedef enum Place
{
	BETWEEN_ROWS,
	AT_CHECK,					/* for interrupts; the core serves them */
	BEFORE_TRANSACTION
} Place;

/* Parameters. */
int			dt_transaction_grace_ms = 50;
int			dt_max_commit_pause_ms = 30000;

bool		dt_transaction_begun = false;

/* The rest of the transaction's state. */
static struct
{
	bool		paces;			/* it has once owed more than the grace */
	bool		continues;		/* the last pause has not paid all, and goes
								 * on */
	int64		longest_us;		/* the longest pause at that check */
	int64		owed_us;		/* what was owed before the last one */
	int64		unpaused_us;	/* by how much the pauses at checks are
								 * shorter than the checks are worth */
	bool		cancelled;		/* by the user, a timeout or NOWAIT */
	bool		prepared;		/* by PREPARE TRANSACTION */
}			xact;

/* What is carried from one transaction to the next. */
static bool pay_first = false;	/* something is to be paid before it */
static int	commit_pause_ms = 0;	/* max_commit_pause in the transaction */
static bool pause_is_due = false;	/* after the transaction */
static int64 last_pause_end = 0;	/* after a transaction, us */

/*
 * Serve the interrupts that have ended a pause.  The timer of live.c, which
 * the pause has stopped, is set again only if there is an error: what it
 * requests meanwhile would be withdrawn by the rest of the pause, and a genuine
 * request of pg_log_backend_memory_contexts() along with it.
 */
static void
serve_interrupts(void)
{
	bool		was_cancelled = xact.cancelled;

	PG_TRY();
	{
		/* a check of the client connection resets the latch: look again */
		while (InterruptPending)
		{
			xact.cancelled = true;	/* if there is an error */
			CHECK_FOR_INTERRUPTS();
			xact.cancelled = was_cancelled;
		}
	}
	PG_CATCH();
	{
		dt_live_after_pause();
		PG_RE_THROW();
	}
	PG_END_TRY();
}

/*
 * Pause until all is paid, if nothing intervenes.  After an ERROR there is
 * nothing to undo: what is not paid is still owed.
 */
static void
pause_at(Place place)
{
	bool		in_flight = place != BEFORE_TRANSACTION;
	int64		until = place == AT_CHECK ?
		dt_now_us() + xact.longest_us : PG_INT64_MAX;
	bool		first = place != AT_CHECK || !xact.continues;
	DtPauseEnd	end;

	for (;;)
	{
		dt_live_before_pause();
		end = dt_pause_interruptible(first, in_flight, until);
		xact.continues = end != DT_PAUSE_PAID;
		if (end != DT_PAUSE_INTERRUPTED)
			break;

		/* if the error is caught, the pause goes on at the next safe point */
		dt_account_charge_at_next_safe_point();
		if (place == AT_CHECK)
			break;
		serve_interrupts();
		if (dt_blockers_check_release(in_flight))
			break;
		first = false;
	}
	if (place == AT_CHECK)
		dt_live_after_pause_at_check(xact.continues);
	else
		dt_live_after_pause();
}

/*
 * Is this a place where a process may sleep?
 */
static bool
may_pause_here(void)
{
	return CritSectionCount == 0 && InterruptHoldoffCount == 0 &&
		QueryCancelHoldoffCount == 0 && !proc_exit_inprogress;
}

static bool
exceeds_grace(int64 owed_us)
{
	return owed_us >= dt_transaction_grace_ms * INT64CONST(1000);
}

/*
 * Does the transaction pay while it runs?  Once it has owed more than the
 * grace it does so to its end, for a smooth rate.  May be called in a signal
 * handler.
 */
static bool
pays_in_flight(int64 owed_us)
{
	return xact.paces || dt_account_is_suspended(true) ||
		dt_session_change_waits() || exceeds_grace(owed_us);
}

bool
dt_transaction_wants_check(int64 owed_us)
{
	return dt_interrupt_pauses && pays_in_flight(owed_us) &&
		(owed_us >= xact.unpaused_us || dt_account_is_suspended(true)) &&
		!dt_blockers_is_released() &&
		MyProc->waitStatus != PROC_WAIT_STATUS_WAITING;
}

/*
 * What has a check, or a part of one, cost?  That is several times more than
 * usual where many functions have called each other, since the core collects
 * the context of a message; see interrupt.c.
 */
void
dt_transaction_note_check(void)
{
	xact.unpaused_us += WORTH_OF_CHECKS * dt_interrupt_take_cost();
}

/*
 * Between two checks at which the same pause goes on the command works, if only
 * for a moment.  When that has cost more than the pause has paid, pauses have
 * to be longer, or the debt would grow without end.
 */
static void
set_longest_at_check(int64 owed_us)
{
	if (!xact.continues || xact.longest_us == 0)
		xact.longest_us = Max(LONGEST_AT_CHECK_US, xact.unpaused_us);
	else if (owed_us >= xact.owed_us)
		xact.longest_us = Min(2 * xact.longest_us, LONGEST_EVER_US);
	xact.owed_us = owed_us;
}

static void
charge_and_pause_at(Place place)
{
	int64		owed_us;

	if (dt_account_lock_and_charge(true, &owed_us) == 0)
		return;
	/* what is not paid here is paid at a later safe point */
	if (!may_pause_here() || !pays_in_flight(owed_us) ||
		dt_blockers_check_release(true))
		return;
	if (exceeds_grace(owed_us))
		xact.paces = true;
	if (place == AT_CHECK)
		set_longest_at_check(owed_us);
	pause_at(place);
}

void
dt_transaction_pay_between_rows(void)
{
	if (!DT_ROW_PAUSES)
		return;
	dt_live_note_row();
	if (dt_session_background_group() == NULL)
		charge_and_pause_at(BETWEEN_ROWS);
}

void
dt_transaction_pay_at_check(void)
{
	int64		start = dt_now_us();

	dt_transaction_note_check();
	charge_and_pause_at(AT_CHECK);
	xact.unpaused_us = Max(xact.unpaused_us - (dt_now_us() - start), 0);
}

/*
 * A pause before the transaction must not hold a snapshot, which would keep
 * VACUUM from removing dead rows.  These two release and replace it.  When a
 * utility command runs it belongs to the portal; when a query has just been
 * analyzed, to nobody.
 */
static void
release_snapshot(void)
{
	InvalidateCatalogSnapshot();
	PopActiveSnapshot();
	if (ActivePortal != NULL)
		ActivePortal->portalSnapshot = NULL;
}

static void
take_snapshot(void)
{
	if (ActivePortal != NULL)
		EnsurePortalSnapshotExists();
	else
		PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * This pause cannot be avoided other than by not running the statement, unless
 * others wait for a table that it has locked: then it is paid as in flight.
 */
static pg_noinline void
pause_before(bool snapshot_is_new)
{
	snapshot_is_new &= ActiveSnapshotSet() && !IsolationUsesXactSnapshot();
	if (snapshot_is_new)
		release_snapshot();
	pause_at(BEFORE_TRANSACTION);
	dt_pause_log_note_begin();
	pay_first = false;
	if (snapshot_is_new)
		take_snapshot();
}

/*
 * Background workers of extensions pay only here and in flight: the core's
 * handler of SIGTERM may end them at any instruction, which must not happen in
 * the pause after a transaction.
 */
void
dt_transaction_pay_before_slow(bool snapshot_is_new)
{
	/* a ROLLBACK must not fail */
	if (IsAbortedTransactionBlockState())
		return;
	if (may_pause_here() && dt_session_background_group() == NULL &&
		(pay_first || dt_account_is_suspended(true) ||
		 dt_account_lock_and_pays_for_role()))
		pause_before(snapshot_is_new);
	/* not after an error: if it is caught, the next statement pays */
	dt_transaction_begun = true;
}

void
dt_transaction_mark_begun(void)
{
	dt_transaction_begun = true;
}

void
dt_transaction_note_prepare(void)
{
	xact.prepared = true;
}

void
dt_transaction_note_error(int code)
{
	if (code == ERRCODE_QUERY_CANCELED || code == ERRCODE_LOCK_NOT_AVAILABLE)
		xact.cancelled = true;
}

static inline void
forget_transaction(bool command_goes_on)
{
	if (!command_goes_on)
		dt_transaction_begun = false;
	memset(&xact, 0, sizeof(xact));
	dt_blockers_end_transaction();
	dt_account_end_transaction();
}

static pg_noinline bool
end_transaction(bool committed, bool command_goes_on, bool client_waits)
{
	bool		background = dt_session_background_group() != NULL;
	bool		has_begun = dt_transaction_begun || background || !client_waits;
	bool		may_pause = has_begun && !command_goes_on;
	int64		owed_us;
	int64		pause = 0;
	bool		is_suspended;
	bool		report = !command_goes_on &&
		dt_pause_log_note_end(dt_transaction_begun);

	/* the end of the transaction is about to undo a SET LOCAL of it */
	commit_pause_ms = dt_max_commit_pause_ms;

	/*
	 * A login, or a command that sets parameters, is not suspended.  While a
	 * command runs, all of its transactions have begun: one in a procedure
	 * may evaluate expressions only, of which no hook tells.
	 */
	is_suspended = has_begun && dt_account_lock_and_follow() &&
		dt_account_is_suspended(false);
	if (!dt_account_is_settled() || is_suspended)
		pause = dt_account_lock_and_charge(!has_begun, &owed_us);
	dt_account_lock_and_forget_workers();

	/*
	 * No pause after a cancel, since the user wants to go on now; nor after
	 * an abort of a transaction that has used nothing.  A coordinator that
	 * has prepared a transaction must hear of it at once, as it holds locks.
	 */
	if (xact.prepared || (client_waits && commit_pause_ms == 0) ||
		(!committed && (xact.cancelled ||
						(!dt_account_xact_has_used() && !is_suspended))))
		may_pause = false;
	if (MyBackendType == B_BG_WORKER && !background)
		may_pause = false;
	/* feedback is possible only after a commit */
	if (IsLogicalWorker() && !committed)
		may_pause = false;

	/* a transaction of SET commands only does not change it */
	pay_first = pause > 0 || (pay_first && !has_begun);

	forget_transaction(command_goes_on);

	pause_is_due = pause > 0 && may_pause && !proc_exit_inprogress;
	if (pause_is_due)
		dt_session_hold_changes();
	else if (!report && !command_goes_on)
		dt_pause_log_forget();
	return pause_is_due || report;
}

bool
dt_transaction_end(bool committed, bool command_goes_on, bool client_waits)
{
	if (!dt_account_is_quiet() || pay_first || !dt_pause_log_is_empty())
		return end_transaction(committed, command_goes_on, client_waits);
	forget_transaction(command_goes_on);
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
	int64		longest = client_waits ?
		commit_pause_ms * INT64CONST(1000) : PG_INT64_MAX / 2;

	*feedback = IsLogicalWorker() && !ConfigReloadPending &&
		dt_apply_feedback_possible();
	if (*feedback)
		return Min(longest, dt_apply_feedback_longest_silence());
	if (dt_session_background_group() != NULL)
		longest = Min(longest, BACKGROUND_PAUSE_US);
	if (IsLogicalWorker())
		longest = Min(longest, dt_now_us() - last_pause_end);
	return longest;
}

static void
pay_after(bool client_waits)
{
	bool		feedback;
	int64		longest_us = longest_pause(client_waits, &feedback);

	dt_live_before_pause();
	dt_pause_after_transaction(longest_us,
							   dt_session_background_group() != NULL,
							   feedback);
	last_pause_end = dt_now_us();
	dt_live_after_pause();
	pay_first = dt_account_pause_is_due();
	dt_session_allow_changes();
}

void
dt_transaction_finish(bool client_waits)
{
	if (pause_is_due)
		pay_after(client_waits);
	pause_is_due = false;
	dt_pause_log_report();
}
