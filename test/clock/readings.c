/*-------------------------------------------------------------------------
 *
 * readings.c
 *		Readings of signals that a test makes up.
 *
 * The linker has the sampler and the views call the function here instead of
 * that in src/pressure (see Makefile), which it calls where a test has set
 * nothing.
 *
 * A queue, that is, replica_lag, slot_lag or kernel_dirty, is as
 * long as the test has said, plus what has entered it since, less what has
 * drained at the speed that the test gives: so that a test sees where a law
 * ends up.  With a speed of -1 it stays as it is.  What enters is what groups
 * use, and what the test says that others do; that is also what the sampler
 * takes for all WAL there is, so that no process of the server disturbs it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "shared/commits.h"
#include "shared/shmem.h"
#include "shared/text.h"
#include "test/clock/readings.h"
#include "utils/builtins.h"

/* The names by which the linker knows the functions and what stands before. */
#define REAL(name)	__real_##name
#define WRAP(name)	__wrap_##name

extern XLogRecPtr WRAP(GetXLogInsertRecPtr) (void);
extern DtLook REAL(dt_signal_look) (DtSignal signal, int64 now,
									DtFound *found);
extern DtLook WRAP(dt_signal_look) (DtSignal signal, int64 now,
									DtFound *found);

extern void REAL(dt_commits_read) (bool anew, DtCommits *commits,
								   int64 *waiting);
extern void WRAP(dt_commits_read) (bool anew, DtCommits *commits,
								   int64 *waiting);

static DtTestReading
get(DtSignal which)
{
	DtTestReadings *all = dt_test_readings();
	DtTestReading result;

	dt_spin_lock(&all->lock);
	result = all->of[which];
	dt_spin_unlock(&all->lock);
	return result;
}

/*
 * How much was used of a resource, by anybody.  A counter that was reset counts
 * from 0.  The caller holds the lock.
 */
static int64
position_locked(DtTestReadings *all, DtResource resource)
{
	DtTestPosition *p = &all->position[resource];
	int64		now = dt_now_us();
	int64		sum = 0;
	int			i;

	for (i = 0; i < dt_shared->n_groups; i++)
		if (dt_groups[i].id != 0)
			sum += dt_groups[i].usage[resource].used;
	p->bytes += sum < p->in_groups ? sum : sum - p->in_groups;
	p->bytes += p->others * (now - p->at) / 1000000;
	p->in_groups = sum;
	p->at = now;
	return p->bytes;
}

static int64
position(DtResource resource)
{
	DtTestReadings *all = dt_test_readings();
	int64		result;

	dt_spin_lock(&all->lock);
	result = position_locked(all, resource);
	dt_spin_unlock(&all->lock);
	return result;
}

/* How long a queue is now; *reading is a copy. */
static int64
level(DtSignal which, const DtTestReading *reading)
{
	DtTestReadings *all = dt_test_readings();
	DtTestReading *r = &all->of[which];
	int64		now = dt_now_us();
	int64		entered;

	if (reading->other < 0)
		return reading->value;
	dt_spin_lock(&all->lock);
	entered = position_locked(all, dt_signals[which].resource);
	r->value = Max(r->value + entered - r->entered -
				   muldiv64(r->other, now - r->at, 1000000), 0);
	r->entered = entered;
	r->at = now;
	dt_spin_unlock(&all->lock);
	return r->value;
}

/* A position that is not 0, since that would be no position. */
XLogRecPtr
WRAP(GetXLogInsertRecPtr) (void)
{
	return (XLogRecPtr) (position(DT_WAL) + INT64CONST(1000000000));
}

/* A queue; when a look fails, nothing new is known of it. */
static void
look_at_queue(DtSignal signal, const DtTestReading *reading, DtFound *found)
{
	static DtDrain drains[DT_SIGNALS];
	static const DtDrain *all[DT_SIGNALS];
	DtDrain    *d = &drains[signal];
	int64		wal = position(DT_WAL);

	all[signal] = d;
	if (reading->look == DT_TEST_NOTHING)
		memset(d, 0, sizeof(*d));
	else if (reading->look == DT_TEST_MEASURED)
		dt_drain_sample(d, wal, wal - level(signal, reading), found->at);
	found->drains = &all[signal];
	found->n = 1;
	found->value = dt_signals[signal].unit == DT_UNIT_US ?
		dt_drain_lag_us(d) : dt_drain_backlog(d);
}

DtLook
WRAP(dt_signal_look) (DtSignal signal, int64 now, DtFound *found)
{
	static DtStall stall;
	DtTestReading reading = get(signal);

	if (reading.look == DT_TEST_REAL)
		return REAL(dt_signal_look) (signal, now, found);
	memset(found, 0, sizeof(*found));
	found->at = now;
	switch (dt_signals[signal].law)
	{
		case DT_LAW_QUEUE:
			look_at_queue(signal, &reading, found);
			break;
		case DT_LAW_LEVEL:
			found->value = level(signal, &reading);
			break;
		case DT_LAW_BUDGET:
			found->value = reading.value;
			found->other = reading.other;
			if (reading.look == DT_TEST_NEARER)
			{
				found->value -= position(DT_WAL) - reading.entered;
				found->other -= dt_now_us() - reading.at;
			}
			break;
		case DT_LAW_RATE:
			break;				/* the laws know it */
		case DT_LAW_RESERVE:
			found->value = reading.value;
			found->other = reading.other;
			break;
		case DT_LAW_BRAKE:
			found->value = dt_stall_sample(&stall, reading.other +
										   muldiv64(reading.value,
													dt_now_us() - reading.at, 1000000),
										   dt_now_us());
			break;
		case DT_LAW_DROOP:
			break;				/* the sampler reads them itself */
	}
	if (reading.look == DT_TEST_MEASURED || reading.look == DT_TEST_NEARER)
		return DT_LOOK_MEASURED;
	return dt_no_look(found, reading.look == DT_TEST_NOTHING ?
					  DT_LOOK_NOTHING : DT_LOOK_FAILED, "The test says so.");
}

/*
 * Commits that a test makes up: 1000 a second, which all take as long as the reading says
 * at the end of the window.
 */
void
WRAP(dt_commits_read) (bool anew, DtCommits *commits, int64 *waiting)
{
	static int64 then;
	static int64 last;
	DtTestReading reading = get(DT_COMMIT_LATENCY);

	if (anew)
		then = last;
	last = (dt_now_us() - DT_TEST_START_US) / 1000;
	if (reading.look == DT_TEST_REAL)
	{
		REAL(dt_commits_read) (anew, commits, waiting);
		return;
	}
	memset(commits, 0, sizeof(*commits));
	commits->n = last - then;
	commits->weight[dt_latency_bucket(reading.value)] = 1000 * commits->n;
	*waiting = 0;
}

static DtSignal
signal_of_name(const char *name)
{
	DtSignal	signal = dt_signal_find(name);

	if (signal == DT_REPORTED)
		elog(ERROR, "signal \"%s\" does not exist", name);
	return signal;
}

PG_FUNCTION_INFO_V1(dt_test_reading);

/*
 * dt_test_reading(signal text, look text, value bigint, other bigint): from now
 * on a look at the signal finds this; look is "measured",
 * "nothing", "failed", or "real" for what there is; of a checkpoint also
 * "nearer", when these are what was left just now.  Value and other are, of
 *
 *		checkpoint		bytes of WAL that are left, and us until it comes by time
 *		io_pressure		the part of the time in which processes wait, in 1e-6
 *		commit_latency	us that each of 1000 commits a second takes
 *		disk_free		bytes, and the size of the file system
 *		a queue			bytes, and how fast it drains, bytes/s; see above
 */
Datum
dt_test_reading(PG_FUNCTION_ARGS)
{
	char	   *signal = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *look = text_to_cstring(PG_GETARG_TEXT_PP(1));
	DtSignal	which = signal_of_name(signal);
	DtTestReadings *all = dt_test_readings();
	DtTestReading new = {0};
	DtTestReading before = get(which);

	new.look = strcmp(look, "measured") == 0 ? DT_TEST_MEASURED :
		strcmp(look, "nearer") == 0 ? DT_TEST_NEARER :
		strcmp(look, "nothing") == 0 ? DT_TEST_NOTHING :
		strcmp(look, "failed") == 0 ? DT_TEST_FAILED : DT_TEST_REAL;
	new.value = PG_GETARG_INT64(2);
	new.other = PG_GETARG_INT64(3);
	new.at = dt_now_us();
	if (which == DT_IO_PRESSURE)	/* a counter goes on from where it was */
		new.other = before.other +
			muldiv64(before.value, new.at - before.at, 1000000);
	else
		new.entered = position(dt_signals[which].resource);
	dt_spin_lock(&all->lock);
	all->of[which] = new;
	dt_spin_unlock(&all->lock);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(dt_test_read_at);

/* dt_test_read_at(signal text) returns bigint: time of the last value, us */
Datum
dt_test_read_at(PG_FUNCTION_ARGS)
{
	DtSignal	signal = signal_of_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	int64		result;

	dt_spin_lock(&dt_shared->sampled.lock);
	result = dt_shared->sampled.signals[signal].read_at;
	dt_spin_unlock(&dt_shared->sampled.lock);
	PG_RETURN_INT64(result - DT_TEST_START_US);
}

PG_FUNCTION_INFO_V1(dt_test_commits);

/* dt_test_commits() returns bigint: commits of outsiders, so far */
Datum
dt_test_commits(PG_FUNCTION_ARGS)
{
	int64		commits = 0;

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		if (dt_members[i].commits)
			elog(ERROR, "a commit is under way");
		for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
			commits += dt_members[i].commit_times.n[b];
	}
	PG_RETURN_INT64(commits);
}

PG_FUNCTION_INFO_V1(dt_test_others);

/*
 * dt_test_others(wal bigint, dirty bigint): from now on who is in no group uses
 * so many bytes/s.
 */
Datum
dt_test_others(PG_FUNCTION_ARGS)
{
	DtTestReadings *all = dt_test_readings();

	dt_spin_lock(&all->lock);
	(void) position_locked(all, DT_WAL);
	(void) position_locked(all, DT_DIRTY);
	all->position[DT_WAL].others = PG_GETARG_INT64(0);
	all->position[DT_DIRTY].others = PG_GETARG_INT64(1);
	dt_spin_unlock(&all->lock);
	PG_RETURN_VOID();
}
