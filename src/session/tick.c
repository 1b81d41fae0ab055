/*-------------------------------------------------------------------------
 *
 * tick.c
 *		The timers that request checks for interrupts.
 *
 * Many statements use a lot between two rows, or have none: CREATE INDEX, a
 * rewrite of a table, a scan that rejects all rows, a C function.  They are
 * charged, and pause, at checks for interrupts; see check.c.  A check has its
 * cost, so one is requested only when a charge is worth that.  A statement
 * with rows is charged for less between two of them, and so needs no checks.
 *
 * A timer of the process's CPU time tells that it works.  It is set when the
 * process becomes a member, stays set for as long as it is one, and expires
 * every 1 ms to 5 ms of its work, as the kernel looks at such timers only at its
 * own ticks.  While the process waits, it does not expire.  A tick requests
 * checks within transactions only; it does not matter by what these use
 * something: a statement, or a background worker that calls the table access
 * methods itself.
 *
 * For a command that uses much under a low limit that is too late.  So there
 * is a timer of wall-clock time, too.  It is set when a command begins, or a
 * function that no statement has called, and after a check where a pause was
 * made or that came soon after the last one.  It expires when the command could
 * have used what is worth a check.  As long as the command is so fast that the
 * CPU timer would come too late, it is set for the same time again.
 * Otherwise, as on a busy machine the CPU timer may be late, it is set for
 * twice the time, and so on up to LONGEST_TICK_US.  It is not set again in a
 * nap of VACUUM, which a signal would cut short.
 *
 * Only on Linux there are timers of CPU time.  Elsewhere, and where none can be
 * created or somebody else has their signal, the core's timer of wall-clock time
 * expires every 4 ms from the beginning of a statement to the end of its
 * transaction, also while it waits.
 *
 * The handlers charge nothing, and take no lock.  They read variables of this
 * process and a few in shared memory, and may set when the next charge is due.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <time.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "miscadmin.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/check.h"
#include "session/sigterm.h"
#include "session/tick.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

/* The wall clock's ticks, in us; after a longer one it is not set again. */
#define AT_ONCE_US			15
#define SHORTEST_TICK_US	50
#define LONGEST_TICK_US		64000

/* Most of the other timer's ticks are not longer than this. */
#define CPU_TICK_MOST_US	4000

/* Nothing uses more than this, in bytes/us. */
#define HIGHEST_SPEED		1000

/* Of CPU time. */
#define CPU_TICK_US			1000

static struct
{
	volatile bool cpu_timer_runs;
	volatile bool pausing;		/* the process pauses */
	volatile bool goes_on;		/* a pause has begun, and was not finished */
	int64		worth_us;		/* see dt_tick_after_check() */
	int64		rests_until_us; /* no check is due until then; 0: no rest */
	int64		since_us;		/* when the command began, or the last check
								 * ended */
	int64		wall_us;		/* the wall clock's timer was set for that; 0:
								 * it is not set */
	int64		seen[DT_RESOURCES]; /* counters at its last tick */
	TimeoutId	timeout;		/* where it is the core's, else 0 */
	bool		works;			/* the next two exist */
#ifdef __linux__
	timer_t		cpu_timer;
	timer_t		wall_timer;
#endif
}			my;

static void cpu_tick(void);
static void wall_tick(void);

#ifdef __linux__
/* not in the headers of older C libraries */
#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static void
handle_signal(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;

	if (info->si_value.sival_ptr == &my.wall_timer)
		wall_tick();
	else
		cpu_tick();
	errno = save_errno;
}

static bool
create_timer(clockid_t clock, timer_t *timer)
{
	struct sigevent event = {
		.sigev_notify = SIGEV_THREAD_ID,.sigev_signo = SIGWINCH,
		.sigev_value.sival_ptr = timer,.sigev_notify_thread_id = MyProcPid
	};

	return timer_create(clock, &event, timer) == 0;
}

/*
 * Code of users can set the signal to its default, in trusted PL/Perl, too.  So it
 * is one that does nothing then, and not one that ends the process, and with it
 * all sessions of the server: SIGWINCH, of which nothing else in a server makes
 * use.  It goes to this thread, and not to one of a library that has its own.
 */
static bool
create_timers(void)
{
	struct sigaction action;

	if (sigaction(SIGWINCH, NULL, &action) != 0 ||
		(action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN))
		return false;
	action.sa_sigaction = handle_signal;
	action.sa_flags = SA_RESTART | SA_SIGINFO;
	sigfillset(&action.sa_mask);
	if (sigaction(SIGWINCH, &action, NULL) != 0 ||
		!create_timer(CLOCK_THREAD_CPUTIME_ID, &my.cpu_timer))
		return false;
	if (create_timer(CLOCK_MONOTONIC, &my.wall_timer))
		return true;
	(void) timer_delete(my.cpu_timer);
	return false;
}

static void
set_timer(timer_t timer, long us, bool again)
{
	struct itimerspec times = {.it_value.tv_nsec = us * 1000};

	if (again)
		times.it_interval = times.it_value;
	(void) timer_settime(timer, 0, &times, NULL);
}
#endif

/* 0: stop it.  May be called in a signal handler. */
static void
set_cpu_timer(int64 us)
{
#ifdef __linux__
	if (my.works)
		set_timer(my.cpu_timer, us, true);
	my.cpu_timer_runs = my.works && us > 0;
#endif
}

/* The same. */
static void
set_wall_timer(int64 us)
{
	my.wall_us = us;
#ifdef __linux__
	if (my.works)
	{
		set_timer(my.wall_timer, us, false);
		return;
	}
#endif
	if (my.timeout == 0)
		return;					/* start_timers() was never called */
	if (us == 0)
		disable_timeout(my.timeout, false);
	else
		enable_timeout_at(my.timeout,
						  GetCurrentTimestamp() + CPU_TICK_MOST_US);
}

/* May be called in a signal handler. */
bool
dt_tick_pause_goes_on(void)
{
	return my.goes_on && dt_account.is_due;
}

/* Is a charge worth a check for interrupts?  Or is one the gate? */
static bool
is_due(void)
{
	return ((dt_account.is_due && (my.goes_on ||
								   dt_activity_all_counts())) ||
			dt_account_check_is_due(my.worth_us)) &&
		!dt_account_is_released() &&
		!dt_sigterm_came() &&
		(my.rests_until_us == 0 || dt_machine_now_us() >= my.rests_until_us) &&
		!InitializingParallelWorker &&
		MyProc->waitStatus != PROC_WAIT_STATUS_WAITING;
}

/* Is this process a member that may be at work? */
static bool
may_work(void)
{
	return dt_account_is_member() && !my.pausing && !dt_activity_is_idle() &&
		!proc_exit_inprogress;
}

/* Is it so in the middle of a transaction?  To be called at each tick. */
static bool
is_at_work(void)
{
	dt_check_serve_others();
	return IsTransactionState() && may_work();
}

static bool
request_if_due(void)
{
	if (!is_due())
		return false;
	dt_account_charge_at_next_safe_point(); /* a row may come before */
	dt_check_request();
	return true;
}

static void
cpu_tick(void)
{
	if (!dt_account_is_member())
		set_cpu_timer(0);
	else if (is_at_work())
		(void) request_if_due();
}

/* The time in which nothing uses what is worth a check, in us. */
static int64
wall_interval(void)
{
	int64		us = Min(dt_account_quantum(DT_DIRTY),
						 dt_account_quantum(DT_WAL)) / HIGHEST_SPEED;

	return Min(Max(us, SHORTEST_TICK_US), CPU_TICK_MOST_US);
}

/*
 * At its speed since the last tick, does the process use what is worth a check
 * before the other timer expires?
 */
static bool
is_fast(void)
{
	bool		fast = false;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		now = dt_account_counter(r);

		if ((now - my.seen[r]) * CPU_TICK_MOST_US >
			dt_account_quantum(r) * my.wall_us)
			fast = true;
		my.seen[r] = now;		/* a handler may do so in between */
	}
	return fast;
}

/*
 * A request may be refused, the core drops one that comes when it has not
 * quite finished with the one before, and the other timer may be late.  So a
 * tick that has made one is not the last.  Nor is one between two transactions
 * of a command, as VACUUM has some.
 */
static void
wall_tick(void)
{
	bool		fast = is_fast();
	int64		next_us = 2 * my.wall_us;
	bool		at_work;

	my.wall_us = 0;
	if (!dt_sigterm_deliver())
		set_wall_timer(CPU_TICK_MOST_US);
	at_work = is_at_work();
	if (!may_work())
		return;
	if (at_work && !request_if_due() && fast)
		next_us = wall_interval();
	if (next_us <= LONGEST_TICK_US &&
		*my_wait_event_info != WAIT_EVENT_VACUUM_DELAY)
		set_wall_timer(next_us);
	else if (at_work && !my.cpu_timer_runs)
		set_wall_timer(CPU_TICK_MOST_US);
}

/* From now on look at the speed of a command. */
static void
start_wall_timer(int64 first_us)
{
	my.since_us = dt_machine_now_us();
	(void) is_fast();
	set_wall_timer(first_us);
}

static pg_noinline void
start_timers(void)
{
	/* not at server start, since a fork loses them */
	if (!my.works && my.timeout == 0)
	{
#ifdef __linux__
		my.works = create_timers();
#endif
		if (!my.works)
			my.timeout = RegisterTimeout(USER_TIMEOUT, wall_tick);
	}
	set_cpu_timer(CPU_TICK_US);
	if (!my.works && !get_timeout_active(my.timeout))
		set_wall_timer(CPU_TICK_MOST_US);
}

void
dt_tick_start(void)
{
	my.pausing = false;
	if (unlikely(!my.cpu_timer_runs))
		start_timers();
}

bool
dt_tick_comes(void)
{
	dt_tick_start();
#ifdef __linux__
	if (my.works)
	{
		struct sigaction action;

		return sigaction(SIGWINCH, NULL, &action) == 0 &&
			(action.sa_flags & SA_SIGINFO) &&
			action.sa_sigaction == handle_signal;
	}
#endif
	return true;
}

void
dt_tick_start_command(void)
{
	dt_tick_start();
	start_wall_timer(wall_interval());
}

void
dt_tick_end_transaction(void)
{
	my.pausing = false;			/* an error may have ended a pause */
	my.goes_on = false;
	my.worth_us = my.rests_until_us = 0;
}

void
dt_tick_rest(int64 us)
{
	my.rests_until_us = dt_machine_now_us() + us;
}

void
dt_tick_before_pause(void)
{
	my.pausing = my.goes_on = true;
	if (my.wall_us > 0)
		set_wall_timer(0);
	dt_check_withdraw();
}

void
dt_tick_note_paid(void)
{
	my.goes_on = false;
}

void
dt_tick_soon(void)
{
	set_wall_timer(SHORTEST_TICK_US);
}

void
dt_tick_after_pause(void)
{
	my.pausing = false;
	if (!my.cpu_timer_runs && may_work())
		set_wall_timer(CPU_TICK_MOST_US);
}

void
dt_tick_renew(void)
{
	dt_tick_after_pause();
	if (may_work())				/* the subtransaction has ended */
		(void) request_if_due();
}

void
dt_tick_after_check(bool paused, int64 worth_us)
{
	int64		now = dt_machine_now_us();
	bool		soon = now - my.since_us < CPU_TICK_MOST_US;

	my.worth_us = worth_us;
	my.goes_on &= paused;
	my.since_us = now;
	if ((paused || soon) && is_at_work())
		start_wall_timer(dt_tick_pause_goes_on() ? AT_ONCE_US :
						 wall_interval());
}
