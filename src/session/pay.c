/*-------------------------------------------------------------------------
 *
 * pay.c
 *		Where the current transaction may and must pay what it owes.
 *
 * A small transaction pays after its end, when it holds no locks (commit.c).  One
 * that comes to owe more than dirty_throttle.transaction_grace pays while it runs.
 * What cannot be paid after a transaction (it was rolled back, and the client
 * gets its error at once; the client has waited for max_commit_pause, or has
 * canceled the pause) is paid before the first statement of the next one.
 *
 * How a block that an INSERT dirties makes its session pause, and comes into
 * the counters, as nine files that are read once each, in this order:
 *
 * hooks.c		The statement begins: begin_statement().  Its executor runs:
 *				dt_ExecutorRun().
 * session.c	With the statement the session follows what dirty_throttle.group
 *				says, or whoever has moved it.
 * rows.c		When the executor runs, the top of the plan is wrapped, and what
 *				feeds an INSERT.  Then the core counts the block, and calls nobody.
 *				Between two rows dt_pay_if_due(), in pay.h, finds that the core's
 *				counter has grown by what is worth a charge.  (So does a check for
 *				interrupts that a timer has requested, where no row comes: tick.c,
 *				check.c.)
 * pay.c		Twice: first, with the statement, dt_pay_before() pays what was not
 *				paid after earlier transactions, and what the session has taken
 *				over from its role; most often that is nothing.  Then
 *				charge_and_pause_at() has what was used charged, and decides
 *				whether that leads to a pause.  It does not while the transaction
 *				only reads and has not used much; where the process may not sleep;
 *				while it owes less than the grace, unless this transaction has owed
 *				that before or its group is suspended with "hard"; nor while others
 *				wait for it.
 * account.c	dt_account_charge() adds to the counters of the group and of the
 *				member, which the views show, tells the group's rate engine, and
 *				returns what is due and owed.
 * rate.c		The rate engine: until when does the group need to earn that?
 * let_go.c		While others wait the session goes on for 20 ms at a time.  The
 *				first charge after these asks again.  Who is let go in the middle
 *				of a pause goes on with that pause when they are over and the next
 *				tick has requested a check (DT_DUE_GOES_ON), but not beyond its
 *				commit.
 * sleep.c		The session sleeps.  One of all who sleep looks for the others who
 *				waits for whom, every 25 to 50 ms, and marks and wakes the members
 *				that are in the way (src/waiters); any sleeper that finds the last
 *				look too old looks itself.  Before each slice the session asks
 *				let_go.c again, which finds that mark; after each it counts that
 *				slice and looks at its account.
 * commit.c		The transaction ends.  Whether something is left to be charged or
 *				to be paid is found out when its locks are released.  When all else
 *				of the transaction is done, the session charges that, and sleeps.
 *
 * What was used is counted in meter.c, pauses are counted in member.c, and both are
 * shown by src/sql/views.c.
 *
 * What a transaction has begun, and what it has owed, is written in this file only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/check.h"
#include "session/let_go.h"
#include "session/pay.h"
#include "session/sigterm.h"
#include "session/sleep.h"
#include "session/tick.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

#include "compat.h"

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

/* What must not pause is charged so often while it runs. */
#define CHARGES_APART_US			INT64CONST(100000)

/*
 * For so long a message of a parallel worker may wait at a check.  If it could
 * end the pause, a worker could end each pause of its leader.
 */
#define LONGEST_PUT_OFF_US			INT64CONST(1000000)

/*
 * What only reads may use so much within a minute before it pauses in flight, in
 * bytes of one resource.  To set hint bits in the pages that a health check
 * reads takes less.
 */
#define READING_FREE		(64 * (int64) BLCKSZ)
#define READING_FREE_US		INT64CONST(60000000)

DtPayState	dt_pay_state = DT_PAY_NOTHING;

/* The rest of the transaction's state. */
static struct
{
	bool		paces;			/* it has once owed more than the grace */
	int64		longest_us;		/* the longest pause at that check */
	int64		owed_us;		/* what was owed before the last one */
	int64		unpaused_us;	/* how much longer a pause has to be than what
								 * is owed, for the checks to be worth it */
	int64		cost_noted_us;	/* when that was set */
	bool		paused_there;	/* at the check that is not over yet */
	bool		has_used;		/* something, as far as it only reads */
}			xact;

/* What reading has used since nothing was owed, but within a minute at most. */
static struct
{
	int64		bytes;
	int64		since;			/* us */
}			reading;

/*
 * Pause until all is paid, if nothing intervenes.  After an ERROR there is
 * nothing to undo: what is not paid is still owed.  In mode observe the pause is
 * only counted.
 */
static void
pause_at(DtPlace place, DtHeed heed, DtDue due, bool is_new)
{
	int64		start = dt_now_us();
	int64		until = place == DT_AT_CHECK ?
		start + xact.longest_us : PG_INT64_MAX;
	bool		messages = false;

	if (due.observed)
	{
		dt_account_forgive();
		return;
	}
	for (;;)
	{
		dt_tick_before_pause();
		if (!dt_sleep(place, heed, due, is_new, until))
			break;

		/* if the error is caught, the pause goes on at the next safe point */
		dt_account_charge_at_next_safe_point();
		is_new = false;
		if (place == DT_AT_CHECK)
		{
			if (!dt_sleep_put_off_messages())
				break;
			messages = true;
			until = Min(until, start + LONGEST_PUT_OFF_US);
		}
		else
		{
			/* a check of the client connection resets the latch: look again */
			while (InterruptPending)
				CHECK_FOR_INTERRUPTS();
		}
		due = dt_account_charge(heed);
		if (due.pause_us == 0)
			break;
	}
	dt_tick_after_pause();
	if (messages)
	{
		ParallelMessagePending = true;
		InterruptPending = true;
	}
}

/* Is this a place where a process may sleep, and a time? */
static bool
may_pause_here(void)
{
	return CritSectionCount == 0 && InterruptHoldoffCount == 0 &&
		QueryCancelHoldoffCount == 0 && !dt_sigterm_came() &&
		!dt_activity_forbids_pauses();
}

/*
 * Add the time that the cost of this check, or of a part of it, is worth, and
 * forget of it what has passed since the last call.  A check costs many times
 * more than usual where calls are deeply nested or texts are long, since the core
 * collects the context of a message; see check.c.
 */
static void
note_cost_of_check(void)
{
	int64		now = dt_now_us();

	xact.unpaused_us = Max(xact.unpaused_us - (now - xact.cost_noted_us), 0) +
		WORTH_OF_CHECKS * dt_check_take_cost();
	xact.cost_noted_us = now;
}

void
dt_pay_note_check(void)
{
	note_cost_of_check();
	dt_tick_after_check(xact.paused_there, xact.unpaused_us);
	xact.paused_there = false;
}

/*
 * How long may the pause at this check be?  A pause that goes on at the next
 * check lets the command work in between, if only for a moment.  When what the
 * command has used then is more than the pause has paid, pauses have to be
 * longer, or the debt would grow without end; and no check may cost more than
 * the pause at it is worth.
 */
static void
set_longest_at_check(bool is_new, int64 owed_us)
{
	if (is_new)
		xact.longest_us = LONGEST_AT_CHECK_US;
	else if (owed_us >= xact.owed_us)
		xact.longest_us = Min(2 * xact.longest_us, LONGEST_EVER_US);
	xact.longest_us = Max(xact.longest_us, xact.unpaused_us);
	xact.owed_us = owed_us;
}

/* Has the membership begun in the middle of this transaction? */
static inline bool
joined_midway(void)
{
	return LocalTransactionIdIsValid(dt_account.joined_in) &&
		dt_account.joined_in == dt_local_xid(MyProc);
}

/*
 * Is a session about to begin something?  As long as no hook has told of that, it
 * reads, analyzes or plans what the client has sent, or has just begun to run its
 * portal, where there are checks, too.  One that came into the group in the middle
 * of a portal had no hook before.
 */
static inline bool
is_to_begin(void)
{
	return dt_pay_state == DT_PAY_NOTHING && dt_process() == DT_SESSION &&
		(dt_activity_client_waits() || !joined_midway());
}

/*
 * Is nothing known of this transaction that may write?
 */
static inline bool
only_reads(void)
{
	return dt_pay_state == DT_PAY_READS || is_to_begin();
}

/*
 * To be called once before a charge of what may have been used by reading: is it
 * more than that may use, with what was used before?  A transaction that has used
 * nothing so far is not stopped for others before it.
 */
static bool
exceeds_reading(void)
{
	int64		now = dt_now_us();
	int64		used = Max(dt_account_uncharged(DT_DIRTY),
						   dt_account_uncharged(DT_WAL));

	if (now - reading.since > READING_FREE_US)
	{
		reading.since = now;
		reading.bytes = 0;
	}
	reading.bytes += used;
	xact.has_used |= used > 0;
	return xact.has_used && reading.bytes >= READING_FREE;
}

/*
 * To be called once before a charge in flight: may the transaction be made to pause
 * by it?
 */
static bool
may_be_paused(void)
{
	return !only_reads() || exceeds_reading();
}

DtDue
dt_pay_charge(DtHeed heed)
{
	DtDue		due = dt_account_charge(heed);

	dt_let_go_note_debt(&due);
	if (due.pause_us == 0)
		reading.bytes = 0;
	return due;
}

/*
 * Charge, and pause if the transaction has to pay while it runs: once it has
 * owed more than the grace, it pays in flight to its end, for a smooth rate.
 * Returns whether there was a pause.  What is not paid here is paid at a later
 * safe point.
 */
static bool
charge_and_pause_at(DtPlace place, DtHeed heed)
{
	/* these two before the charge, which changes what they look at */
	bool		is_new = xact.longest_us == 0 || !dt_account_is_due_before();
	bool		may_pause = may_be_paused() && may_pause_here();
	int64		grace_us = dt_parameters.transaction_grace * INT64CONST(1000);
	int64		from_us = xact.paces || heed != DT_HEED_HARD ? 0 : grace_us;
	DtDue		due = dt_pay_charge(heed);

	if (due.pause_us == 0 || !may_pause ||
		(due.owed_us < from_us && due.cause != DT_BY_SUSPEND) ||
		dt_let_go(heed, &due))
		return false;
	if (due.owed_us >= grace_us)
		xact.paces = true;
	if (place == DT_AT_CHECK)
		set_longest_at_check(is_new, due.owed_us);
	pause_at(place, heed, due, is_new);
	return !due.observed;
}

/*
 * A background worker may write without any statement.  Then it pays at its
 * checks what is to be paid before a transaction, and the transaction has begun
 * when that is done.
 */
static bool
pay_before_at_check(void)
{
	bool		paused = charge_and_pause_at(DT_AT_CHECK, DT_HEED_ANY);

	if (!dt_account_is_due_before())
		dt_pay_state = DT_PAY_BEGUN;
	return paused;
}

void
dt_pay_between_rows(void)
{
	if (DT_ROW_PAUSES && !dt_process_is_servers_own())
		(void) charge_and_pause_at(DT_BETWEEN_ROWS, DT_HEED_HARD);
}

void
dt_pay_at_check(void)
{
	note_cost_of_check();
	xact.paused_there =
		dt_process() == DT_JOB && dt_pay_state == DT_PAY_NOTHING ?
		pay_before_at_check() : charge_and_pause_at(DT_AT_CHECK, DT_HEED_HARD);
}

void
dt_pay_later(void)
{
	dt_account_catch_up();
	dt_tick_rest(Max(CHARGES_APART_US, WORTH_OF_CHECKS * dt_check_take_cost()));
}

/*
 * A pause before the transaction must not hold a snapshot, which would keep
 * VACUUM from removing dead rows.  These two release and replace that of a query.
 * When a utility command runs it belongs to the portal; when a query has just been
 * analyzed, to nobody.
 */
static void
release_snapshot(void)
{
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

/* What is due before a transaction, which has not begun to write? */
static DtDue
due_before(void)
{
	if (joined_midway() || !may_pause_here() ||
		dt_process_is_servers_own())
		return (DtDue)
	{
		0
	};
	if (dt_pay_state == DT_PAY_READS)
		(void) exceeds_reading();	/* it counts, though it is charged here */
	return dt_account_charge(DT_HEED_ANY);
}

bool
dt_pay_is_due_before_slow(void)
{
	return due_before().pause_us > 0;
}

/*
 * This pause cannot be avoided other than by not running the statement, unless
 * others wait for a table that it has locked: then what is owed is paid in
 * flight.
 */
static pg_noinline void
pause_before(bool snapshot_is_new)
{
	DtDue		due = due_before();

	if (due.pause_us == 0)
		return;
	snapshot_is_new &= ActiveSnapshotSet() && !IsolationUsesXactSnapshot();
	if (snapshot_is_new)
		release_snapshot();
	InvalidateCatalogSnapshot();
	pause_at(DT_BEFORE_TRANSACTION, DT_HEED_ANY, due, true);
	if (snapshot_is_new)
		take_snapshot();
}

/* Its parallel workers do, too, if it has some. */
static void
begin_to_write(void)
{
	dt_pay_state = DT_PAY_BEGUN;
	dt_pay_tell_workers();
}

void
dt_pay_before_slow(bool snapshot_is_new)
{
	if (unlikely(dt_pay_may_be_due_before()))
		pause_before(snapshot_is_new);
	/* not after an error: if it is caught, the next statement pays */
	begin_to_write();
}

/*
 * A check has found the transaction at work, of which nothing was noticed until
 * now.  When something is due, the statement is yet to come that pays: between
 * two transactions of a procedure there are checks, too.  A background worker may
 * have none, and pays at its checks; when nothing is due first, its grace holds
 * from the first one on.  So it does for one that comes into a group in the middle
 * of a transaction, and may have written for long.
 */
void
dt_pay_mark_begun(void)
{
	if (dt_pay_state != DT_PAY_NOTHING)
		return;
	if (dt_process() == DT_PARALLEL_WORKER)
		dt_pay_ask_leader();	/* it starts, and has run nothing yet */
	else if (dt_process() == DT_JOB ?
			 joined_midway() || !dt_pay_may_be_due_before() :
			 !dt_account_is_due_before() && !is_to_begin())
		begin_to_write();
}

/*
 * Outside of a transaction the session is about to leave its group by SET or
 * RESET, unless it was moved: pay what is owed there.  A suspension does not hold
 * it.
 */
void
dt_pay_before_leaving(void)
{
	DtDue		due;

	if (dt_account.group == NULL || dt_account.slot->moved || !may_pause_here())
		return;
	due = dt_account_charge(DT_HEED_NONE);
	if (due.pause_us > 0)
		pause_at(DT_BEFORE_TRANSACTION, DT_HEED_NONE, due, true);
}

void
dt_pay_tell_workers(void)
{
	dt_account.slot->only_reads = dt_pay_state == DT_PAY_READS;
}

void
dt_pay_ask_leader(void)
{
	dt_pay_state = dt_account.slot->only_reads ? DT_PAY_READS : DT_PAY_BEGUN;
}

/*
 * Has the transaction that ends done more than to read, or to set parameters?  A
 * login, or a command that does that, is not suspended.  While a command runs, all
 * of its transactions have begun: one in a procedure may evaluate expressions only,
 * of which no hook tells.  Who has used more than reading may has as good as written:
 * many small transactions would never come to a place where they pause in flight.
 */
bool
dt_pay_has_written(void)
{
	if (dt_pay_state != DT_PAY_BEGUN && exceeds_reading())
		dt_pay_state = DT_PAY_BEGUN;
	return dt_pay_state == DT_PAY_BEGUN || !dt_activity_client_waits() ||
		dt_process_is_servers_own();
}

void
dt_pay_forget_transaction(void)
{
	if (dt_activity_client_waits())
	{
		if (dt_account.due != DT_DUE_NOTHING)
			dt_account.due = dt_process() == DT_JOB ? DT_DUE_GOES_ON :
				DT_DUE_BEFORE;
		dt_tick_end_transaction();
	}
	if (!dt_activity_command_goes_on())
		dt_pay_state = DT_PAY_NOTHING;
	memset(&xact, 0, sizeof(xact));
}
