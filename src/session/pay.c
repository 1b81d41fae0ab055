/*-------------------------------------------------------------------------
 *
 * pay.c
 *		The places where a member pays what it owes.
 *
 * There are four, a function each:
 *
 * gate()					before the first statement of a transaction whose kind
 *							writes (any, if the last one slipped), when it holds
 *							as little as possible: see hooks.c
 * pause_in_flight()		between two rows and at checks for interrupts, once the
 *							transaction owes more than the grace
 * pay_after() (commit.c)	after its end, when its locks are released
 * dt_pay_before_leaving()	before the session leaves its group by its own choice
 *
 * Each charges, and if something is due and the process may sleep there, it
 * sleeps.  Which of them a transaction meets is decided by phase.c.  Whether others
 * wait for the session is asked by sleep.c, before each slice of a pause.
 *
 * How a block that an INSERT dirties makes its session pause, and comes into
 * the counters, file by file:
 *
 * hooks.c		The statement begins: begin().  Its executor runs: dt_ExecutorRun().
 * session.c	With the statement the session follows what dirty_throttle.group
 *				says, or whoever has moved it.
 * phase.c		The statement writes: it has to pass the gate, where what was not
 *				paid after earlier transactions is paid; most often that is nothing.
 * rows.c		When the executor runs, the top of the plan is wrapped, and what
 *				feeds an INSERT.  Then the core counts the block, and calls nobody.
 *				Between two rows dt_pay_if_due(), in pay.h, finds that the core's
 *				counter has grown by what is worth a charge.  (So does a check for
 *				interrupts that a timer has requested, where no row comes: tick.c,
 *				check.c.)
 * pay.c		pause_in_flight() has what was used charged, and decides whether
 *				that leads to a pause.
 * account.c	dt_account_charge() adds to the counters of the group and of the
 *				member, which the views show, charges the group's rate engine, and
 *				returns what is due and owed.
 * rate.c		The rate engine: until when does the group need to earn that?
 * sleep.c		The session sleeps, slice by slice.  let_go.c decides before each
 *				of them whether it goes on instead, for one that waits for it;
 *				src/waiters finds out who that is.
 * commit.c		The transaction ends.  When its locks are released, and all else
 *				of it is done, the session charges the rest, and sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
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
#include "shared/role_debt.h"
#include "tcop/pquery.h"
#include "utils/snapmgr.h"

#include "compat.h"

/* false: none between rows.  Only test/core-suites wants that. */
#ifndef DT_ROW_PAUSES
#define DT_ROW_PAUSES	true
#endif

/*
 * Checks for interrupts have to be worth their cost: one that takes 1 us of
 * CPU time is worth a pause of this many us.
 */
#define WORTH_OF_CHECKS			50

/* The longest pause at one check for interrupts, unless more was used. */
#define LONGEST_AT_CHECK_US		INT64CONST(200000)

/* What must not pause is charged once in this time while it runs. */
#define CHARGES_APART_US			INT64CONST(100000)

/*
 * No record that reading writes, to prune a page for instance, has more bytes than
 * this besides the images of pages.
 */
#define RECORD_OF_READING	(4 * MaxHeapTuplesPerPage + 128)

/* Where it cannot pause it may use what it pays for in this time. */
#define TOO_MUCH_US			INT64CONST(30000000)

/* The cost of the checks that this transaction makes. */
typedef struct CheckCost
{
	int64		unpaused_us;	/* how much longer a pause has to be than what
								 * is owed, for the checks to be worth it */
	int64		cost_noted_us;	/* when that was set */
	bool		paused;			/* at the check that is not over yet */
} CheckCost;

static CheckCost checks;

/* The core's counters of images of pages, and of records, at the last look. */
typedef struct WalSeen
{
	int64		images;
	int64		records;
} WalSeen;

static WalSeen seen;

/* In how long is paid what was used where interrupts are held? */
static int64 held_us;

/* That of the session itself, and not of a parallel worker of it. */
static void
show_phase(void)
{
	if (IsParallelWorker())
		return;
	dt_account.slot->phase = dt_xact.phase;
	dt_account.slot->slips = dt_phase_slips();
}

static void
note_event(DtEvent event)
{
	dt_phase_note(event);
	show_phase();
}

void
dt_pay_start(void)
{
	if (IsParallelWorker())
		dt_phase_take(dt_account.slot->phase);
	else if (dt_process_is_servers_own())
		dt_phase_take(DT_WRITING);
}

static inline bool
has_xid(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny());
}

/*
 * Is there a sign that the transaction has written: an xid, or WAL that no reader
 * writes, by its length, or so much of it within a minute?  Without one, has it
 * used more than reading does?  To be called before a charge.  A transaction that
 * has used nothing so far is not stopped for others before it.
 */
static void
look_for_signs(void)
{
	DtReading  *reading = &dt_account.slot->reading;
	int64		now = dt_now_us();
	int64		used = Max(dt_account_uncharged(DT_DIRTY),
						   dt_account_uncharged(DT_WAL));
	int64		wal = Max(dt_account_uncharged(DT_WAL) -
						  (pgWalUsage.wal_fpi - seen.images) * BLCKSZ, 0);
	int64		most = (pgWalUsage.wal_records - seen.records) * RECORD_OF_READING;

	seen.images = pgWalUsage.wal_fpi;
	seen.records = pgWalUsage.wal_records;
	if (dt_xact.phase > DT_READING)
		return;
	/* a parallel worker adds to what its leader has used */
	dt_reading_add(reading, used, wal, now);
	if (has_xid() || wal > most || (wal > 0 && reading->wal >= DT_READING_FREE))
		note_event(DT_SIGN);
	if (used > 0 && reading->bytes >= DT_READING_FREE)
		dt_phase_note_much();
}

/* Has the session slipped in the suspension that goes on? */
static inline bool
slips_suspension(void)
{
	return dt_account.group != NULL &&
		dt_slips_suspension(dt_account.group, dt_account.slot->slipped_in);
}

/* Is nothing due any more, as of the last look at the account? */
static void
note_paid(void)
{
	if (dt_account.is_due)
		return;
	dt_account.slot->reading.bytes = 0;
	dt_tick_note_paid();
	if (!slips_suspension())
		dt_phase_note_paid();
}

static DtDue
charge(bool heeds_suspension)
{
	DtDue		due;

	look_for_signs();
	due = dt_account_charge(heeds_suspension);
	(void) dt_let_go_note(&due);
	note_paid();
	return due;
}

void
dt_pay_catch_up(void)
{
	if (charge(false).pause_us > 0)
		dt_account_charge_at_next_safe_point();
}

void
dt_pay_watch_command(void)
{
	/* how soon the timer expires follows from the limit in force */
	if (!dt_account_is_current())
		dt_pay_catch_up();
	dt_tick_start_command();
}

/*
 * Pause until all is paid, if nothing intervenes.  After an ERROR there is
 * nothing to undo: what is not paid is still owed.  In mode observe the pause is
 * only counted.  Returns whether the process has slept.
 *
 * A pause at a check goes on at the next one, if more is owed: wherever that
 * is, nobody waits for long.  But as the command works in between, a pause pays at
 * least for what it has used since the one before.  Messages of parallel workers
 * wait for that, or a worker could end each pause of its leader.
 */
static bool
pause_at(DtPlace place, DtDue due)
{
	int64		until = place != DT_AT_CHECK ? PG_INT64_MAX :
		dt_now_us() + Max(Max(due.used_us, checks.unpaused_us), LONGEST_AT_CHECK_US);
	bool		is_new = place != DT_AT_CHECK || !dt_tick_pause_goes_on();
	bool		messages = false;
	bool		slept = false;

	if (due.observed)
	{
		dt_account_forgive();
		return false;
	}
	while (dt_sleep(place, due, is_new && !slept, until, &slept))
	{
		/* if the error is caught, the pause goes on at the next safe point */
		dt_account_charge_at_next_safe_point();
		if (place == DT_AT_CHECK)
		{
			if (!dt_sleep_put_off_messages())
				break;
			messages = true;
		}
		else
		{
			/* a check of the client connection resets the latch: look again */
			while (InterruptPending)
				CHECK_FOR_INTERRUPTS();
		}
		due = charge(due.heeds_suspension);
		if (due.pause_us == 0)
			break;
	}
	note_paid();
	if (messages)
	{
		ParallelMessagePending = true;
		InterruptPending = true;
	}
	return slept;
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
 * Charge, and pause if the transaction has to pay while it runs: once it has
 * owed more than the grace, it pays in flight to its end, for a smooth rate.
 * What is not paid here is paid at a later safe point.
 */
static bool
pause_in_flight(DtPlace place)
{
	bool		may_pause = may_pause_here();	/* the charge takes a lock */
	DtDue		due = charge(false);

	held_us = may_pause ? 0 : held_us + due.used_us;
	if (due.pause_us == 0)
		return false;
	if (due.owed_us >= dt_parameters.transaction_grace * INT64CONST(1000))
		dt_phase_note_pacing();
	return dt_xact.paces && may_pause &&
		dt_phase_action(DT_OWES) == DT_PAUSE && pause_at(place, due);
}

void
dt_pay_between_rows(void)
{
	if (DT_ROW_PAUSES && !dt_process_is_servers_own())
		(void) pause_in_flight(DT_BETWEEN_ROWS);
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

/*
 * This pause cannot be avoided other than by not running the statement, unless
 * others wait for a table that it has locked: then what is owed is paid in
 * flight.
 */
static void
gate(DtEvent kind, bool snapshot_is_new)
{
	DtDue		due;

	if (dt_account.group == NULL || !may_pause_here() ||
		(dt_xact.carried == DT_CARRIES_NOTHING &&
		 dt_account.group->suspended_since == 0))
		return;
	due = charge(kind == DT_WRITES || slips_suspension());
	if (due.pause_us == 0)
		return;
	snapshot_is_new &= ActiveSnapshotSet() && !IsolationUsesXactSnapshot();
	if (snapshot_is_new)
		release_snapshot();
	InvalidateCatalogSnapshot();
	(void) pause_at(DT_BEFORE_TRANSACTION, due);
	if (snapshot_is_new)
		take_snapshot();
}

void
dt_pay_begin(DtEvent kind, bool snapshot_is_new)
{
	bool		has_written = has_xid();

	/* most often nothing changes */
	if (dt_xact.phase == DT_WRITING ||
		(dt_xact.phase == DT_READING && kind == DT_READS && !has_written))
		return;
	/* nothing is gated in a transaction that may hold locks of rows */
	if (has_written)
		note_event(DT_SIGN);
	switch (dt_phase_action(kind))
	{
		case DT_GATE:
			gate(kind, snapshot_is_new);
			break;
		case DT_PAUSE:
			(void) pause_in_flight(DT_BETWEEN_ROWS);
			break;
		default:
			break;
	}
	/* not after an error: if it is caught, the next statement pays */
	note_event(kind);
}

/*
 * A background worker may write without any statement.  Then it passes the gate at
 * its checks.  So does a procedure whose pause between two transactions was cut.
 */
static bool
gate_at_check(void)
{
	DtDue		due = charge(true);
	bool		paused = due.pause_us > 0 && may_pause_here() &&
		pause_at(DT_AT_CHECK, due);

	if (!dt_account.is_due)
		note_event(DT_WRITES);
	return paused;
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

	checks.unpaused_us =
		Max(checks.unpaused_us - (now - checks.cost_noted_us), 0) +
		WORTH_OF_CHECKS * dt_check_take_cost();
	checks.cost_noted_us = now;
}

void
dt_pay_at_check(void)
{
	note_cost_of_check();
	checks.paused = dt_activity_all_counts() && !has_xid() ?
		gate_at_check() : pause_in_flight(DT_AT_CHECK);
}

void
dt_pay_note_check(void)
{
	note_cost_of_check();
	dt_tick_after_check(checks.paused, checks.unpaused_us);
	checks.paused = false;
}

void
dt_pay_later(void)
{
	dt_pay_catch_up();
	dt_tick_rest(Max(CHARGES_APART_US, WORTH_OF_CHECKS * dt_check_take_cost()));
}

void
dt_pay_where_held(void)
{
	DtDue		due = charge(false);

	held_us += due.used_us;
	if (due.observed || held_us <= TOO_MUCH_US || CritSectionCount > 0 ||
		due.owed_bytes[due.slowest] < DT_READING_FREE)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("a function that cannot pause has exceeded the limit of resource group \"%s\"",
					dt_account.slot->xact.group_name),
			 errdetail("It has written what the group may write in %lld s, while the server held a page of an index locked or could not be interrupted for other reasons.",
					   (long long) (held_us / USECS_PER_SEC)),
			 errhint("Functions that an index calls, such as subtype_diff of a range type, should not write.")));
}

void
dt_pay_where_function_begins(void)
{
	DtDue		due;

	if (dt_xact.carried != DT_CARRIES_SLIPPED_DEBT)
	{
		dt_pay_if_due();
		return;
	}
	if (!may_pause_here())
		return;
	due = charge(false);
	if (due.pause_us > 0)
		(void) pause_at(DT_BETWEEN_ROWS, due);
}

void
dt_pay_before_leaving(bool in_flight)
{
	DtDue		due;

	if (dt_account.group == NULL || dt_account.slot->moved || !may_pause_here())
		return;
	if (in_flight)
		(void) pause_in_flight(DT_BETWEEN_ROWS);

	/*
	 * what has slipped out of a suspended group waits for that, as at a
	 * commit
	 */
	due = charge(in_flight && dt_phase_slips());
	if (due.pause_us > 0 && (!in_flight || due.cause == DT_BY_SUSPEND))
		(void) pause_at(in_flight ? DT_BETWEEN_ROWS : DT_BEFORE_TRANSACTION, due);
}

void
dt_pay_leave(void)
{
	if (dt_account.group == NULL)
		return;
	if (IsTransactionState())	/* or it is the end of SET LOCAL */
		look_for_signs();
	show_phase();
	dt_account_leave();
}

void
dt_pay_end_transaction(bool commits)
{
	look_for_signs();
	dt_phase_end(commits);
	show_phase();
}

/* Nothing may show when the next transaction of a worker begins to write. */
DtDue
dt_pay_charge_rest(void)
{
	return charge(dt_xact.at_end == DT_PAY_AFTER || dt_xact.slipped ||
				  slips_suspension() || dt_process() == DT_JOB);
}

void
dt_pay_forget_transaction(void)
{
	bool		is_due = dt_account.is_due;
	bool		is_procedure = dt_activity_runs_procedure();
	bool		is_cut = is_procedure && is_due;
	bool		slipped = dt_xact.slipped;

	dt_phase_over(is_due, is_procedure ? !is_due && !dt_activity_waits :
				  dt_activity_command_goes_on() || dt_process_is_servers_own());
	if (dt_xact.carried != DT_CARRIES_SLIPPED_DEBT)
		dt_account.slot->slipped_in = 0;
	else if (slipped)
		dt_account.slot->slipped_in = dt_account.group->suspended_since;
	show_phase();
	memset(&checks, 0, sizeof(checks));
	held_us = 0;
	if (dt_activity_client_waits() || is_cut)
		dt_tick_end_transaction();
	if (is_cut)
		dt_tick_renew();
}
