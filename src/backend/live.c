/*-------------------------------------------------------------------------
 *
 * live.c
 *		The timer that charges a running statement and requests a pause.
 *
 * Many statements use a lot between two rows, or have none: CREATE INDEX, a
 * rewrite of a table, a scan that rejects all rows, a C function.  The timer
 * charges them, so that the views show it and the other members slow down at
 * once.  When they owe enough it requests a pause at the next check for
 * interrupts; see interrupt.c.
 *
 * It expires when the statement, at its speed since the last pause, has used
 * what the member is worth a pause for: with less there would be many short
 * pauses, with more a burst.  Until that speed is known the interval grows
 * with the time since the last pause, so that what comes in one piece, like
 * the rows that COPY collects, is noticed before the next piece.  For a
 * statement that waits and uses nothing it grows further.
 *
 * The handler runs in a signal handler; see dt_account_try_charge().  Setting
 * a timer is not cheap, so a statement leaves its timer to the next one, and
 * the handler does not set it again when it finds the session idle.
 *
 * All state is local to this process; there are no locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "backend/account.h"
#include "backend/activity.h"
#include "backend/interrupt.h"
#include "backend/live.h"
#include "commands/vacuum.h"
#include "miscadmin.h"
#include "storage/lock.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

#define AT_ONCE_US			15
#define SHORTEST_TICK_US	50
#define USUAL_TICK_US		1000
#define UNLIMITED_TICK_US	100000
#define LONGEST_TICK_US		1000000

/* What is used between two pauses, in thresholds; see dt_rate_threshold(). */
#define QUANTUM				4

/* Nothing uses more than this, in bytes/us. */
#define HIGHEST_SPEED		1000

/* What the group may use in this time is not worth a tick. */
#define UNNOTICED_US		20000

/* By which part of the time since the last pause a tick may come late. */
#define LATE_PART			4

/*
 * One of those who wait to extend a relation works soon, and may then use much
 * at once.  Together they look in such intervals, however many they are.
 */
#define EXTEND_TICK_US		100

/*
 * Who waits for the other processes of a parallel query or command goes on
 * soon, and may then use much at once: a leader all of a B-tree.
 */
#define PARALLEL_TICK_US	10000

/*
 * A tick ends a sleep of vacuum_cost_delay too early.  So while VACUUM sleeps
 * there is a tick for so many sleeps only.
 */
#define NAPS_PER_TICK		20

bool		dt_interrupt_pauses = true; /* parameter */

static TimeoutId live_timeout = MAX_TIMEOUTS;	/* not registered */
static bool (*wants_check) (int64 owed_us);

static volatile sig_atomic_t running = 0;	/* a statement that is charged */
static volatile sig_atomic_t has_rows = 0;	/* it can pause between rows */
static volatile sig_atomic_t due = 0;	/* a pause, since the last row */
static int64 tick_us;			/* the time to the next tick */
static int64 first_for_rows_us; /* the time to the first one, as last set */
static int64 after_check_us = 0;	/* the time to the tick after a pause at a
									 * check */
static int64 resumed;			/* when the last pause ended, us */
static int64 used_then[DT_RESOURCES];	/* counters at that time */

static void
set_timer(int64 us)
{
	tick_us = us;
	enable_timeout_at(live_timeout, GetCurrentTimestamp() + us);
}

/* No statement uses something worth a tick in less time, in us. */
static int64
soonest_tick(DtResource resource)
{
	int64		rate = dt_account_rate(resource);

	if (rate == 0)
		return UNLIMITED_TICK_US;
	return Min((int64) ((double) rate / USECS_PER_SEC * UNNOTICED_US / HIGHEST_SPEED),
			   UNLIMITED_TICK_US);
}

static int64
soonest_of_all(void)
{
	return Min(soonest_tick(DT_DIRTY), soonest_tick(DT_WAL));
}

/*
 * How long the interval may grow while the process waits and uses nothing, in
 * us; 0 when it works.
 */
static int64
longest_interval(void)
{
	uint32		class = *my_wait_event_info & 0xFF000000;
	LOCK	   *lock;

	if (class == 0 || class == PG_WAIT_IO || class == PG_WAIT_LWLOCK)
		return 0;
	if (*my_wait_event_info == (PG_WAIT_LOCK | LOCKTAG_RELATION_EXTEND))
	{
		/* others take it away when the wait ends; its memory stays */
		lock = ((volatile PGPROC *) MyProc)->waitLock;
		return lock == NULL ? USUAL_TICK_US :
			Min(Max(lock->nRequested * EXTEND_TICK_US, USUAL_TICK_US),
				UNLIMITED_TICK_US);
	}
	if (class == PG_WAIT_IPC && IsInParallelMode())
		return PARALLEL_TICK_US;
	return class == PG_WAIT_CLIENT ? UNLIMITED_TICK_US : LONGEST_TICK_US;
}

static void
note_start(void)
{
	int			r;

	resumed = dt_machine_now_us();
	for (r = 0; r < DT_RESOURCES; r++)
		used_then[r] = dt_account_counter(r);
}

/*
 * In how many us will the statement, at its speed since the last pause, have
 * used the next quantum?
 */
static int64
next_tick(void)
{
	int64		elapsed = dt_machine_now_us() - resumed;
	int64		next = UNLIMITED_TICK_US;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		used = dt_account_counter(r) - used_then[r];
		int64		next_r = Min(elapsed / LATE_PART, USUAL_TICK_US);

		if (used > 0)
			next_r = Min(next_r, (int64) ((double) QUANTUM *
										  dt_account_threshold(r) *
										  elapsed / used));
		next = Min(next, Max(next_r, soonest_tick(r)));
	}
	if (*my_wait_event_info == WAIT_EVENT_VACUUM_DELAY)
		next = Max(next, (int64) (vacuum_cost_delay * 1000 * NAPS_PER_TICK));
	return Min(Max(next, SHORTEST_TICK_US), LONGEST_TICK_US);
}

static void
tick(void)
{
	int64		longest;
	int64		owed_us;

	dt_interrupt_serve_others();
	if (dt_activity_is_idle())
		running = 0;
	if (!running)
		return;
	/* what a parallel worker uses during its start is charged after that */
	longest = InitializingParallelWorker ? USUAL_TICK_US : longest_interval();
	if (longest > 0 && (InitializingParallelWorker ||
						(!dt_account_has_used() &&
						 !dt_account_is_suspended(true))))
	{
		set_timer(Min(Max(2 * tick_us, USUAL_TICK_US), longest));
		return;
	}
	owed_us = dt_account_try_charge();
	if (owed_us <= 0 || !wants_check(owed_us))
		set_timer(owed_us < 0 ? USUAL_TICK_US : next_tick());
	else if (has_rows && !due)
	{
		due = 1;
		set_timer(SHORTEST_TICK_US);	/* a row may come */
	}
	else
	{
		/* the request may be refused: make it again */
		dt_interrupt_request();
		set_timer(Min(2 * tick_us, USUAL_TICK_US));
	}
}

void
dt_live_init(bool (*predicate) (int64 owed_us))
{
	wants_check = predicate;
}

static pg_noinline void
start_timer(bool soon)
{
	int64		first_us = Max(soonest_of_all(),
							   soon ? SHORTEST_TICK_US : USUAL_TICK_US);

	/* not at server start, since a fork loses the registrations */
	if (live_timeout == MAX_TIMEOUTS)
		live_timeout = RegisterTimeout(USER_TIMEOUT, tick);

	/* after the clock has been set back, the timer is too late */
	if (soon && get_timeout_active(live_timeout) && tick_us <= first_us &&
		get_timeout_finish_time(live_timeout) <=
		GetCurrentTimestamp() + first_us)
		return;
	if (!soon)
		first_for_rows_us = first_us;
	has_rows = !soon;
	note_start();
	set_timer(first_us);
}

void
dt_live_start(bool soon)
{
	running = 1;

	/*
	 * Is the timer of an earlier statement still set, and soon enough?  If
	 * the clock has been set back, a query notices that at a pause between
	 * rows.
	 */
	if (soon || live_timeout == MAX_TIMEOUTS ||
		!get_timeout_active(live_timeout) || tick_us > first_for_rows_us)
		start_timer(soon);
}

void
dt_live_stop(void)
{
	running = 0;
}

void
dt_live_note_row(void)
{
	has_rows = 1;
	due = 0;
}

void
dt_live_renew_request(void)
{
	if (!running)
		return;
	has_rows = 0;				/* one may not come before the next error */
	tick();
}

void
dt_live_before_pause(void)
{
	dt_interrupt_serve_others();
	if (!running)
		return;
	disable_timeout(live_timeout, false);
	dt_interrupt_withdraw();
	tick_us = next_tick();
}

void
dt_live_after_pause(void)
{
	if (!running)
		return;
	note_start();
	set_timer(tick_us);
}

void
dt_live_after_pause_at_check(bool at_once)
{
	has_rows = 0;
	after_check_us = at_once ? AT_ONCE_US : tick_us;
	tick_us = USUAL_TICK_US;	/* if an error comes before the call below */
	dt_live_after_pause();
}

void
dt_live_after_check(void)
{
	if (live_timeout == MAX_TIMEOUTS)
		return;
	note_start();
	set_timer(after_check_us > 0 ? after_check_us : USUAL_TICK_US);
	after_check_us = 0;
}
