/*-------------------------------------------------------------------------
 *
 * live.c
 *		Charging while a statement runs, and asking for a pause in it.
 *
 * Many statements dirty a lot without passing a row: building an index,
 * rewriting a table, a scan that rejects all it reads, a C function.  A timer
 * charges them, so that the views show it and the other members make room at
 * once; and when they owe enough it asks for a pause at the next check for
 * interrupts; see interrupt.c.
 *
 * A tick comes when the statement, at the speed that it has had since the last
 * pause, has used what the group's rate earns in about 20 ms: less would be
 * many short pauses, more a burst.  A statement that waits and uses nothing is
 * looked at less and less often.
 *
 * The tick is the handler of a timeout, that is of a signal; see
 * dt_account_charge_live().  To set a timer is not cheap, so one that was set
 * for a statement is left to the next one; it is not set again when it finds
 * the session idle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "access/parallel.h"
#include "account.h"
#include "commands/vacuum.h"
#include "interrupt.h"
#include "live.h"
#include "miscadmin.h"
#include "storage/lwlock.h"
#include "tcop/pquery.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

#define AT_ONCE_US			15
#define SHORTEST_TICK_US	50
#define USUAL_TICK_US		1000
#define UNLIMITED_TICK_US	100000
#define LONGEST_TICK_US		1000000

/* What is used in one go, in time at the group's rate. */
#define QUANTUM_US			20000

/* A tick ends the nap of vacuum_cost_delay that it falls into: then not soon. */
#define NAPS_PER_TICK		20

static TimeoutId live_timeout = MAX_TIMEOUTS;	/* not registered */
static bool (*wants_check) (int64 owed_us);

static volatile sig_atomic_t running = 0;	/* a statement that is charged */
static volatile sig_atomic_t has_rows = 0;	/* between which it may pause */
static volatile sig_atomic_t due = 0;	/* a pause, and no row has come since */
static int64 tick_us;			/* the time to the next tick */
static int64 after_check_us = 0;	/* to the tick after a pause at a check */
static int64 resumed;			/* when the last pause ended, us */
static int64 used_then[DT_RESOURCES];	/* counters at that time */

static void
set_timer(int64 us)
{
	tick_us = us;
	enable_timeout_at(live_timeout, GetCurrentTimestamp() + us);
}

/* For how long may it wait for what it waits for, us? */
static int64
longest_wait(void)
{
	uint32		class = *my_wait_event_info & 0xFF000000;

	if (class == 0 || class == PG_WAIT_IO || class == PG_WAIT_LWLOCK)
		return 0;
	return class == PG_WAIT_CLIENT ? UNLIMITED_TICK_US : LONGEST_TICK_US;
}

static void
note_start(void)
{
	int			r;

	resumed = dt_now_us();
	for (r = 0; r < DT_RESOURCES; r++)
		used_then[r] = dt_account_counter(r);
}

/*
 * In how long will the statement use what is earned in QUANTUM_US, at its
 * speed since the last pause?  What begins to use something is looked at soon.
 */
static int64
next_tick(void)
{
	int64		elapsed = dt_now_us() - resumed;
	int64		next = UNLIMITED_TICK_US;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		rate = dt_account_rate(r);
		int64		used = dt_account_counter(r) - used_then[r];

		if (rate == 0)
			continue;
		next = Min(next, Min(2 * tick_us, USUAL_TICK_US));
		if (used > 0)
			next = Min(next, (int64) ((double) rate * QUANTUM_US / 1000000 *
									  elapsed / used));
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
	/* for the client's next command? */
	if (ActivePortal == NULL && *my_wait_event_info == WAIT_EVENT_CLIENT_READ)
		running = 0;
	if (!running)
		return;
	/* what a parallel worker uses by then its leader does not get */
	longest = InitializingParallelWorker ? USUAL_TICK_US : longest_wait();
	if (longest > 0 && (InitializingParallelWorker ||
						(!dt_account_has_used() &&
						 !dt_account_is_stopped(true))))
	{
		set_timer(Min(Max(2 * tick_us, USUAL_TICK_US), longest));
		return;
	}
	owed_us = dt_account_charge_live();
	if (owed_us <= 0 || !wants_check(owed_us))
		set_timer(owed_us < 0 ? USUAL_TICK_US : next_tick());
	else if (has_rows && !due)
	{
		due = 1;
		set_timer(SHORTEST_TICK_US);	/* a row may come */
	}
	else
	{
		/* it may be dropped, by a list that has not quite ended */
		dt_interrupt_request();
		set_timer(Min(2 * tick_us, USUAL_TICK_US));
	}
}

void
dt_live_init(bool (*predicate) (int64 owed_us))
{
	wants_check = predicate;
}

void
dt_live_start(bool soon)
{
	int64		first_us = USUAL_TICK_US;

	running = 1;
	/* the postmaster's registrations would not have survived the fork */
	if (live_timeout == MAX_TIMEOUTS)
		live_timeout = RegisterTimeout(USER_TIMEOUT, tick);
	if (dt_account_rate(DT_DIRTY) == 0 && dt_account_rate(DT_WAL) == 0)
		first_us = UNLIMITED_TICK_US;
	else if (soon)
		first_us = SHORTEST_TICK_US;
	/* it may have expired meanwhile, or an error may have disabled it */
	if (get_timeout_active(live_timeout) && tick_us <= first_us)
		return;
	has_rows = !soon;
	note_start();
	set_timer(first_us);
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
dt_live_suspend(void)
{
	dt_interrupt_serve_others();
	if (!running)
		return;
	disable_timeout(live_timeout, false);
	dt_interrupt_withdraw();
	tick_us = next_tick();
}

void
dt_live_resume(void)
{
	if (!running)
		return;
	note_start();
	set_timer(tick_us);
}

void
dt_live_resume_at_check(bool at_once)
{
	has_rows = 0;
	after_check_us = at_once ? AT_ONCE_US : tick_us;
	tick_us = USUAL_TICK_US;	/* should an error come first */
	dt_live_resume();
}

/*
 * Up to now, the core has listed memory contexts.
 */
void
dt_live_after_check(void)
{
	if (live_timeout == MAX_TIMEOUTS)
		return;
	note_start();
	set_timer(after_check_us > 0 ? after_check_us : USUAL_TICK_US);
	after_check_us = 0;
}
