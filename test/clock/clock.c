/*-------------------------------------------------------------------------
 *
 * clock.c
 *		A clock that only tests move; part of the library when it is compiled
 *		with DT_TEST_CLOCK, which only test/run does.
 *
 * The clock stands still while statements run, so that they take no time.  It
 * is in shared memory, with a list of those who sleep and until when.
 * dt_test_advance() sets it to the time at which the first of them is due,
 * wakes that one, and waits until it sleeps again, or has come to the end of
 * its statement, or waits for somebody else; then the next one is due.  Those
 * who are due at the same time wake in the order in which they have fallen
 * asleep.  So one process at a time goes on, and what they do is the same on
 * any machine.
 *
 * The core's timers, which are those of the machine, stand still for who sleeps.
 *
 * Only who is in a group, or owes to one, who runs batches, and the sampler are waited for; but
 * not a process that a test has stopped; and one other that a test names.
 * That a client has sent a statement cannot be seen from here: the client has
 * to wait until it runs; see dt_test_state().
 *
 * SQL functions are not in the extension; test/perl/DirtyThrottle/Clock.pm
 * creates them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "clock.h"
#include "fmgr.h"
#include "shared/member.h"
#include "shared/shmem.h"
#include "storage/ipc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "test/clock/readings.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "waiters/waits.h"

#include "compat.h"

/* So many times at which the clock was moved are remembered. */
#define MOVES			65536

/* Everything that must happen does so within this, in us of the wall clock. */
#define LIMIT_US		INT64CONST(180000000)

/* A process that sleeps. */
typedef struct Sleeper
{
	int			pid;			/* 0: nobody */
	bool		woken;			/* it is due, and about to go on */
	int64		until;			/* when it is due */
	int64		order;			/* of falling asleep */
} Sleeper;

/* The clock was moved. */
typedef struct Move
{
	TimestampTz at;				/* on the wall clock */
	int64		to;
} Move;

typedef struct Clock
{
	pg_atomic_uint64 now;
	pg_atomic_uint32 jitter;	/* the last one, in 2^-32, and by how much */
	pg_atomic_uint32 jitter_step;	/* the next one is more, modulo 1 */
	pg_atomic_uint32 mover;		/* proc number of who moves it, to be woken */
	DtTestReadings readings;
	volatile int stopped;		/* this process does not go on */
	volatile int watched;		/* this one is waited for, too */
	slock_t		lock;			/* guards the rest */
	int64		n_slept;
	int64		n_moves;
	Move		moves[MOVES];
	Sleeper		sleepers[FLEXIBLE_ARRAY_MEMBER];
} Clock;

/* The linker has those who call this function call the one here; see Makefile. */
extern void __real_dt_member_put(DtMember *member, DtGroup *g);
extern void __wrap_dt_member_put(DtMember *member, DtGroup *g);

static bool allowed = false;	/* parameter */
static Clock *test_clock = NULL;
static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
clock_size(void)
{
	return add_size(offsetof(Clock, sleepers),
					mul_size(MaxBackends, sizeof(Sleeper)));
}

static void
request(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(clock_size());
}

/* With the lock, unless nobody else runs yet. */
static void
set_clock(int64 now)
{
	Move	   *move = &test_clock->moves[test_clock->n_moves++ % MOVES];

	move->at = GetCurrentTimestamp();
	move->to = now;
	pg_atomic_write_u64(&test_clock->now, now);
}

static void
startup(void)
{
	bool		found;

	if (prev_shmem_startup)
		prev_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	test_clock = ShmemInitStruct("dirty_throttle test clock", clock_size(),
								 &found);
	if (!found)
	{
		memset(test_clock, 0, clock_size());
		pg_atomic_init_u64(&test_clock->now, 0);
		pg_atomic_init_u32(&test_clock->jitter, 0);
		pg_atomic_init_u32(&test_clock->jitter_step, 0);
		pg_atomic_init_u32(&test_clock->mover, (uint32) INVALID_PROC_NUMBER);
		SpinLockInit(&test_clock->lock);
		SpinLockInit(&test_clock->readings.lock);
		set_clock(DT_TEST_START_US);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * This comes before the library's own hooks, so its start finds the clock.
 */
void
dt_clock_init(void)
{
	DefineCustomBoolVariable("dirty_throttle.test_clock",
							 "Allows a library whose clock only tests move.",
							 NULL, &allowed, false, PGC_POSTMASTER,
							 GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE, NULL, NULL, NULL);
	if (!allowed)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this build of dirty_throttle is for tests: its clock stands still"),
				 errhint("Install dirty_throttle as its README says.")));
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = startup;
}

DtTestReadings *
dt_test_readings(void)
{
	return &test_clock->readings;
}

int64
dt_now_us(void)
{
	return (int64) pg_atomic_read_u64(&test_clock->now);
}

double
dt_clock_jitter(void)
{
	uint32		step = pg_atomic_read_u32(&test_clock->jitter_step);

	return pg_atomic_fetch_add_u32(&test_clock->jitter, step) / 4294967296.0;
}

/*
 * From where the clock was at that time on; negative, if the wall clock has not come
 * there yet.
 */
int64
dt_clock_since(TimestampTz start)
{
	int64		ahead = start - GetCurrentTimestamp();
	int64		then;
	int64		i;

	if (ahead > 0)
		return -ahead;
	dt_spin_lock(&test_clock->lock);
	then = test_clock->n_moves > MOVES ? -1 : DT_TEST_START_US;
	for (i = test_clock->n_moves - 1;
		 i >= Max(test_clock->n_moves - MOVES, 0); i--)
	{
		if (test_clock->moves[i % MOVES].at <= start)
		{
			then = test_clock->moves[i % MOVES].to;
			break;
		}
	}
	dt_spin_unlock(&test_clock->lock);
	if (then < 0)
		elog(PANIC, "the clock was moved more than %d times since then", MOVES);
	return dt_now_us() - then;
}

static void
wake_mover(void)
{
	uint32		mover = pg_atomic_read_u32(&test_clock->mover);

	if (mover != (uint32) INVALID_PROC_NUMBER)
		SetLatch(&GetPGProcByNumber(mover)->procLatch);
}

/*
 * Who is woken by the clock when its latch is also set goes on for the first of
 * these reasons only.  A timer, which sets the latch whenever it expires, has to
 * wait, lest a sleeper look at its account at a time that is not its own.
 */
int
dt_clock_sleep(int64 us, int on_postmaster_death, uint32 wait_event)
{
	Sleeper    *me = &test_clock->sleepers[MyProcNumber];
	sigset_t	alarm;
	bool		woken;
	bool		is_set;
	int			events;

	if (us == 0)
		return WL_TIMEOUT;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	dt_spin_lock(&test_clock->lock);
	me->woken = false;
	me->until = us < 0 ? PG_INT64_MAX : dt_now_us() + us;
	me->order = test_clock->n_slept++;
	me->pid = MyProcPid;
	dt_spin_unlock(&test_clock->lock);
	wake_mover();
	events = WaitLatch(MyLatch, WL_LATCH_SET | on_postmaster_death, -1,
					   wait_event);
	dt_spin_lock(&test_clock->lock);
	me->pid = 0;
	woken = me->woken;
	dt_spin_unlock(&test_clock->lock);
	if (woken)
	{
		ResetLatch(MyLatch);
		events = (events & ~WL_LATCH_SET) | WL_TIMEOUT;
	}
	is_set = MyLatch->is_set;
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	if (!is_set && !InterruptPending)
		ResetLatch(MyLatch);
	return events;
}

/* -------------------------------------------------------------- the mover */

static bool
is_sampler(int number)
{
	return pg_atomic_read_u32(&dt_shared->sampler) == (uint32) number + 1;
}

/* When it has fallen asleep, in the order of all, or -1 if it is not. */
static int64
asleep_since(int number)
{
	Sleeper    *sleeper = &test_clock->sleepers[number];
	int64		result = -1;

	dt_spin_lock(&test_clock->lock);
	if (sleeper->pid != 0 && sleeper->pid == GetPGProcByNumber(number)->pid &&
		!sleeper->woken)
		result = sleeper->order;
	dt_spin_unlock(&test_clock->lock);
	return result;
}

/*
 * Does it sleep until the clock is moved, and has nobody set its latch?  It
 * resets its latch only while it does not sleep.
 */
static bool
sleeps(int number)
{
	int64		since = asleep_since(number);

	return since >= 0 &&
		!((volatile Latch *) &GetPGProcByNumber(number)->procLatch)->is_set &&
		asleep_since(number) == since;
}

/* Does a member's process wait for one that sleeps until the clock is moved? */
static bool
waits_for_worker(PGPROC *leader)
{
	int			i;

	for (i = 0; i < dt_shared->n_members; i++)
		if (GetPGProcByNumber(i) != leader &&
			GetPGProcByNumber(i)->lockGroupLeader == leader && sleeps(i))
			return true;
	return false;
}

/* Does this process run batches, or, with 0, is one on its way for that? */
static bool
runs_batches(int pid)
{
	for (int i = 0; i < dt_shared->n_members; i++)
		if (dt_queue[i].launched_us != 0 && dt_queue[i].pid == pid)
			return true;
	return false;
}

/* Is it in a group, does it run batches, or is it watched by a test? */
static bool
counts(PGPROC *proc)
{
	DtMember   *member = dt_member_of(proc);

	return runs_batches(proc->pid) || proc->pid == test_clock->watched ||
		(proc->pid != test_clock->stopped && member->group != NULL);
}

/*
 * What a process does, as far as the clock has to know: it "sleeps" until the
 * clock is moved, is "idle", as its client is to say what to do, "waits" for
 * another process, or "runs".
 */
static const char *
state_of(int number)
{
	PGPROC	   *proc = GetPGProcByNumber(number);
	uint32		event = ((volatile PGPROC *) proc)->wait_event_info;

	if (sleeps(number) || proc->pid == test_clock->stopped)
		return "sleeps";
	if (event == WAIT_EVENT_BUFFER_CLEANUP || event == WAIT_EVENT_SAFE_SNAPSHOT)
		return "waits";
	switch (event & 0xFF000000)
	{
		case PG_WAIT_CLIENT:
			return "idle";
		case PG_WAIT_LOCK:
			return ((volatile PGPROC *) proc)->waitStatus ==
				PROC_WAIT_STATUS_WAITING ? "waits" : "runs";
		case PG_WAIT_IPC:
			return waits_for_worker(proc) ? "waits" : "runs";
		case PG_WAIT_ACTIVITY:
			return ((volatile Latch *) &proc->procLatch)->is_set ?
				"runs" : "waits";
		default:
			return "runs";
	}
}

/* The process ID of one that goes on by itself, or 0. */
static int
find_running(void)
{
	int			i;

	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		int			pid = ((volatile PGPROC *) proc)->pid;

		if (pid != 0 && proc != MyProc && (is_sampler(i) || counts(proc)) &&
			strcmp(state_of(i), "runs") == 0)
			return pid;
	}
	return runs_batches(0) ? PostmasterPid : 0;
}

/* Wait until nobody goes on by himself. */
static void
settle(void)
{
	TimestampTz deadline = GetCurrentTimestamp() + LIMIT_US;
	int			pid;

	while ((pid = find_running()) != 0)
	{
		if (GetCurrentTimestamp() > deadline)
			ereport(ERROR,
					(errcode(ERRCODE_QUERY_CANCELED),
					 errmsg("process %d runs on and on", pid),
					 errhint("A test moves the clock only while all members sleep or wait.")));
		if (WaitLatch(MyLatch,
					  WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					  1, PG_WAIT_EXTENSION) & WL_LATCH_SET)
			ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

/*
 * Set the clock to the time at which the first one is due, "end" at the latest, and
 * wake that one.  False: nobody is due, and the clock is set to "end"; or, with
 * "pauses", nobody but the sampler sleeps.
 *
 * Somebody who is not waited for, such as a parallel worker that starts, may wake a
 * sleeper at any time.  So the lock is held from the choice on, and the clock does
 * not move while one is about to go on for that.
 */
static bool
wake_next(int64 end, bool pauses)
{
	Sleeper    *sleepers = test_clock->sleepers;
	int			due = -1;
	bool		any = !pauses;
	bool		woken_by_others = false;
	int			i;

	dt_spin_lock(&test_clock->lock);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		Sleeper    *s = &sleepers[i];

		if (s->pid == 0 || s->pid != GetPGProcByNumber(i)->pid || s->woken ||
			s->pid == test_clock->stopped)
			continue;
		if (((volatile Latch *) &GetPGProcByNumber(i)->procLatch)->is_set)
			woken_by_others = true;
		if (!is_sampler(i))
			any = true;
		if (s->until <= end &&
			(due < 0 || s->until < sleepers[due].until ||
			 (s->until == sleepers[due].until &&
			  s->order < sleepers[due].order)))
			due = i;
	}
	if (!any || woken_by_others)
		due = -1;
	if (due >= 0)
	{
		sleepers[due].woken = true;
		if (sleepers[due].until > dt_now_us())
			set_clock(sleepers[due].until);
	}
	else if (!pauses && !woken_by_others)
		set_clock(end);
	dt_spin_unlock(&test_clock->lock);
	if (due >= 0)
		SetLatch(&GetPGProcByNumber(due)->procLatch);
	return due >= 0 || woken_by_others;
}

/* Move the clock on, at most to "end"; with "pauses" while anybody pauses. */
static void
move(int64 end, bool pauses)
{
	pg_atomic_write_u32(&test_clock->mover, (uint32) MyProcNumber);
	do
	{
		CHECK_FOR_INTERRUPTS();
		settle();
	} while (wake_next(end, pauses));
	pg_atomic_write_u32(&test_clock->mover, (uint32) INVALID_PROC_NUMBER);
}

/*
 * A member that another process moves may be woken just before that, and go on.  Here
 * each is, and goes on as far as it can without the lock of who moves it.
 */
void
__wrap_dt_member_put(DtMember *member, DtGroup *g)
{
	int			number = member - dt_members;
	PGPROC	   *proc = GetPGProcByNumber(number);

	if (proc != MyProc && member->group != NULL && proc->pid != test_clock->stopped)
	{
		TimestampTz until = GetCurrentTimestamp() + 10 * USECS_PER_SEC;

		SetLatch(&proc->procLatch);
		while (strcmp(state_of(number), "runs") == 0 && GetCurrentTimestamp() < until &&
			   (((volatile PGPROC *) proc)->wait_event_info & 0xFF000000) != PG_WAIT_LWLOCK)
			pg_usleep(100);
	}
	__real_dt_member_put(member, g);
}

/* ------------------------------------------------------------------- SQL */

PG_FUNCTION_INFO_V1(dt_test_now);
PG_FUNCTION_INFO_V1(dt_test_advance);
PG_FUNCTION_INFO_V1(dt_test_run);
PG_FUNCTION_INFO_V1(dt_test_run_on);
PG_FUNCTION_INFO_V1(dt_test_state);
PG_FUNCTION_INFO_V1(dt_test_running);
PG_FUNCTION_INFO_V1(dt_test_set_jitter);
PG_FUNCTION_INFO_V1(dt_test_interrupt_at_commit);
PG_FUNCTION_INFO_V1(dt_test_hold_look);
PG_FUNCTION_INFO_V1(dt_test_stopped);
PG_FUNCTION_INFO_V1(dt_test_watch);
PG_FUNCTION_INFO_V1(dt_test_wait_start);
PG_FUNCTION_INFO_V1(dt_test_looker);
PG_FUNCTION_INFO_V1(dt_test_age_of_look);

/* dt_test_now() returns bigint: the time, in us since the start */
Datum
dt_test_now(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(dt_now_us() - DT_TEST_START_US);
}

/* dt_test_advance(bigint): moves the clock by so many us */
Datum
dt_test_advance(PG_FUNCTION_ARGS)
{
	move(dt_now_us() + PG_GETARG_INT64(0), false);
	PG_RETURN_VOID();
}

/*
 * dt_test_run(bigint) returns bigint: moves the clock until nobody pauses, but
 * by no more than so many us; by how many it has.
 */
Datum
dt_test_run(PG_FUNCTION_ARGS)
{
	int64		start = dt_now_us();

	move(start + PG_GETARG_INT64(0), true);
	PG_RETURN_INT64(dt_now_us() - start);
}

/* dt_test_run_on(): the same whenever anybody pauses, until it is cancelled */
Datum
dt_test_run_on(PG_FUNCTION_ARGS)
{
	for (;;)
	{
		move(PG_INT64_MAX - 1, true);
		(void) WaitLatch(MyLatch, WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 1,
						 PG_WAIT_EXTENSION);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_VOID();
}

/* dt_test_state(int) returns text: what this process does; NULL: it is gone */
Datum
dt_test_state(PG_FUNCTION_ARGS)
{
	PGPROC	   *proc = BackendPidGetProc(PG_GETARG_INT32(0));

	if (proc == NULL)
		PG_RETURN_NULL();
	PG_RETURN_TEXT_P(cstring_to_text(state_of(GetNumberFromPGProc(proc))));
}

/* Does it go on, or has it, so that its client has to look for an answer? */
static bool
is_running(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	const char *state;

	if (proc == NULL)
		return true;
	state = state_of(GetNumberFromPGProc(proc));
	return strcmp(state, "sleeps") != 0 && strcmp(state, "waits") != 0;
}

/*
 * dt_test_running(int[]) returns int: one of these processes, or of those that run
 * batches, that neither sleeps nor waits for another; NULL: there is none
 */
Datum
dt_test_running(PG_FUNCTION_ARGS)
{
	ArrayType  *array = PG_GETARG_ARRAYTYPE_P(0);
	int		   *pids = (int *) ARR_DATA_PTR(array);
	int			n = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));
	int			i;

	for (i = 0; i < n; i++)
		if (is_running(pids[i]))
			PG_RETURN_INT32(pids[i]);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		int			pid = dt_queue[i].pid;

		if (dt_queue[i].launched_us != 0 && BackendPidGetProc(pid) != NULL &&
			is_running(pid))
			PG_RETURN_INT32(pid);
	}
	PG_RETURN_NULL();
}

/*
 * dt_test_set_jitter(float8, float8): the next pause has this jitter, in [0, 1),
 * and each after it so much more than the one before it, modulo 1.
 */
Datum
dt_test_set_jitter(PG_FUNCTION_ARGS)
{
	pg_atomic_write_u32(&test_clock->jitter,
						(uint32) (PG_GETARG_FLOAT8(0) * PG_UINT32_MAX));
	pg_atomic_write_u32(&test_clock->jitter_step,
						(uint32) (PG_GETARG_FLOAT8(1) * PG_UINT32_MAX));
	PG_RETURN_VOID();
}

/* A callback cannot unregister itself in 15. */
static enum
{
	UNREGISTERED, REGISTERED, WANTED
}			interrupt_state;

static void
interrupt_at_commit(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT || interrupt_state != WANTED)
		return;
	InterruptPending = true;
	interrupt_state = REGISTERED;
}

/*
 * dt_test_interrupt_at_commit(): when this transaction commits there is an
 * interrupt without a reason, which ends the pause that follows
 */
Datum
dt_test_interrupt_at_commit(PG_FUNCTION_ARGS)
{
	if (interrupt_state == UNREGISTERED)
		RegisterXactCallback(interrupt_at_commit, NULL);
	interrupt_state = WANTED;
	PG_RETURN_VOID();
}

/* dt_test_hold_look(bool): as if this process had been stopped in a look */
Datum
dt_test_hold_look(PG_FUNCTION_ARGS)
{
	if (PG_GETARG_BOOL(0))
	{
		LWLockAcquire(dt_waits->look_lock, LW_EXCLUSIVE);
		pg_atomic_write_u64(&dt_waits->began_at, dt_now_us());
	}
	else
		LWLockRelease(dt_waits->look_lock);
	PG_RETURN_VOID();
}

/* dt_test_stopped(int): this process was stopped, or with 0 none (any more) */
Datum
dt_test_stopped(PG_FUNCTION_ARGS)
{
	test_clock->stopped = PG_GETARG_INT32(0);
	PG_RETURN_VOID();
}

/* dt_test_watch(int): the clock waits for this process, too, or with 0 for none */
Datum
dt_test_watch(PG_FUNCTION_ARGS)
{
	test_clock->watched = PG_GETARG_INT32(0);
	PG_RETURN_VOID();
}

/* dt_test_wait_start(int, timestamptz): this process waits for its lock since then */
Datum
dt_test_wait_start(PG_FUNCTION_ARGS)
{
	PGPROC	   *proc = BackendPidGetProc(PG_GETARG_INT32(0));

	if (proc != NULL)
		pg_atomic_write_u64(&proc->waitStart, PG_GETARG_TIMESTAMPTZ(1));
	PG_RETURN_VOID();
}

/* dt_test_looker() returns int: who looks, or 0 */
Datum
dt_test_looker(PG_FUNCTION_ARGS)
{
	uint32		number = pg_atomic_read_u32(&dt_waits->looker);

	PG_RETURN_INT32(number == 0 ? 0 : GetPGProcByNumber(number - 1)->pid);
}

/* dt_test_age_of_look() returns bigint: how long ago the last one was, us */
Datum
dt_test_age_of_look(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT64(dt_now_us() -
					(int64) pg_atomic_read_u64(&dt_waits->looked_at));
}
