/*-------------------------------------------------------------------------
 *
 * readings.c
 *		Readings of signals that a test makes up.
 *
 * The linker has the sampler and the views call these functions instead of
 * those in src/pressure (see Makefile), which they call where a test has set
 * nothing.
 *
 * A queue, that is, replica_lag, slot_lag, dirty_buffers or kernel_dirty, is as
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
#include "pressure/signals.h"
#include "registry/shmem.h"
#include "registry/threshold.h"
#include "test/clock/readings.h"
#include "utils/builtins.h"

/* The names by which the linker knows the functions and what stands before. */
#define REAL(name)	__real_##name
#define WRAP(name)	__wrap_##name

extern XLogRecPtr WRAP(GetXLogInsertRecPtr) (void);
extern bool REAL(dt_signal_is_available) (DtSignal signal, DtUnit unit,
										  char *reason);
extern bool WRAP(dt_signal_is_available) (DtSignal signal, DtUnit unit,
										  char *reason);
extern DtLook REAL(dt_look_replicas) (DtReplicas *r, int64 now, char *reason);
extern DtLook WRAP(dt_look_replicas) (DtReplicas *r, int64 now, char *reason);
extern DtLook REAL(dt_look_slot_lag) (int64 wal, int64 *bytes, char *reason);
extern DtLook WRAP(dt_look_slot_lag) (int64 wal, int64 *bytes, char *reason);
extern void REAL(dt_look_checkpoint) (DtCheckpointSeen *seen, int64 now,
									  int64 *bytes_left, int64 *time_left);
extern void WRAP(dt_look_checkpoint) (DtCheckpointSeen *seen, int64 now,
									  int64 *bytes_left, int64 *time_left);
extern int64 REAL(dt_look_dirty_quarter) (int quarter);
extern int64 WRAP(dt_look_dirty_quarter) (int quarter);
extern DtLook REAL(dt_look_kernel_dirty) (int64 *bytes, char *reason);
extern DtLook WRAP(dt_look_kernel_dirty) (int64 *bytes, char *reason);
extern DtLook REAL(dt_look_kernel_limit) (int64 *bytes, char *reason);
extern DtLook WRAP(dt_look_kernel_limit) (int64 *bytes, char *reason);
extern DtLook REAL(dt_look_io_stall) (int64 *us, char *reason);
extern DtLook WRAP(dt_look_io_stall) (int64 *us, char *reason);

static DtTestReading
get(int which)
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

	for (i = 0; i < dt_shared->max_groups; i++)
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
level(int which, const DtTestReading *reading)
{
	DtTestReadings *all = dt_test_readings();
	DtTestReading *r = &all->of[which];
	int64		now = dt_now_us();
	int64		entered;

	if (reading->other < 0)
		return reading->value;
	dt_spin_lock(&all->lock);
	entered = position_locked(all, dt_signal_resource(which));
	r->value = Max(r->value + entered - r->entered -
				   muldiv64(r->other, now - r->at, 1000000), 0);
	r->entered = entered;
	r->at = now;
	dt_spin_unlock(&all->lock);
	return r->value;
}

static DtLook
result_of(const DtTestReading *reading, char *reason)
{
	if (reading->look == DT_TEST_MEASURED)
		return DT_LOOK_MEASURED;
	strlcpy(reason, "The test says so.", DT_REASON_SIZE);
	return reading->look == DT_TEST_NOTHING ? DT_LOOK_NOTHING : DT_LOOK_FAILED;
}

/* A position that is not 0, since that would be no position. */
XLogRecPtr
WRAP(GetXLogInsertRecPtr) (void)
{
	return (XLogRecPtr) (position(DT_WAL) + INT64CONST(1000000000));
}

/* What is made up can be had on any machine. */
bool
WRAP(dt_signal_is_available) (DtSignal signal, DtUnit unit, char *reason)
{
	return get(signal).look != DT_TEST_REAL ||
		REAL(dt_signal_is_available) (signal, unit, reason);
}

/* One standby; when a look fails, it has not replied. */
DtLook
WRAP(dt_look_replicas) (DtReplicas *r, int64 now, char *reason)
{
	static DtDrain drain;
	static DtDrain *real = NULL;
	DtTestReading reading = get(DT_REPLICA_LAG);
	int64		length;

	if (real == NULL)
		real = r->drains;
	r->drains = real;
	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_replicas) (r, now, reason);
	r->drains = &drain;
	r->n = reading.look == DT_TEST_NOTHING ? 0 : 1;
	if (reading.look == DT_TEST_MEASURED)
	{
		length = level(DT_REPLICA_LAG, &reading);
		dt_drain_sample(&drain, position(DT_WAL), position(DT_WAL) - length, now);
	}
	else if (reading.look == DT_TEST_NOTHING)
		dt_drain_init(&drain);
	return result_of(&reading, reason);
}

DtLook
WRAP(dt_look_slot_lag) (int64 wal, int64 *bytes, char *reason)
{
	DtTestReading reading = get(DT_SLOT_LAG);

	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_slot_lag) (wal, bytes, reason);
	*bytes = level(DT_SLOT_LAG, &reading);
	return result_of(&reading, reason);
}

void
WRAP(dt_look_checkpoint) (DtCheckpointSeen *seen, int64 now,
						  int64 *bytes_left, int64 *time_left)
{
	DtTestReading reading = get(DT_CHECKPOINT);

	if (reading.look == DT_TEST_REAL)
	{
		REAL(dt_look_checkpoint) (seen, now, bytes_left, time_left);
		return;
	}
	*bytes_left = reading.value;
	*time_left = reading.other;
	if (reading.look == DT_TEST_NEARER)
	{
		*bytes_left -= position(DT_WAL) - reading.entered;
		*time_left -= dt_now_us() - reading.at;
	}
}

int64
WRAP(dt_look_dirty_quarter) (int quarter)
{
	DtTestReading reading = get(DT_DIRTY_BUFFERS);

	return reading.look == DT_TEST_REAL ?
		REAL(dt_look_dirty_quarter) (quarter) : level(DT_DIRTY_BUFFERS, &reading);
}

DtLook
WRAP(dt_look_kernel_dirty) (int64 *bytes, char *reason)
{
	DtTestReading reading = get(DT_KERNEL_DIRTY);

	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_kernel_dirty) (bytes, reason);
	*bytes = level(DT_KERNEL_DIRTY, &reading);
	return result_of(&reading, reason);
}

DtLook
WRAP(dt_look_kernel_limit) (int64 *bytes, char *reason)
{
	DtTestReading reading = get(DT_TEST_KERNEL_LIMIT);

	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_kernel_limit) (bytes, reason);
	*bytes = reading.value;
	return result_of(&reading, reason);
}

DtLook
WRAP(dt_look_io_stall) (int64 *us, char *reason)
{
	DtTestReading reading = get(DT_IO_PRESSURE);

	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_io_stall) (us, reason);
	*us = reading.other +
		muldiv64(reading.value, dt_now_us() - reading.at, 1000000);
	return result_of(&reading, reason);
}

PG_FUNCTION_INFO_V1(dt_test_reading);

/*
 * dt_test_reading(signal text, look text, value bigint, other bigint): from now
 * on a look at the signal, or at "kernel_limit", finds this; look is "measured",
 * "nothing", "failed", or "real" for what there is; of a checkpoint also
 * "nearer", when these are what was left just now.  Value and other are, of
 *
 *		checkpoint		bytes of WAL that are left, and us until it comes by time
 *		io_pressure		the part of the time in which processes wait, in 1e-6
 *		kernel_limit	bytes
 *		a queue			bytes, and how fast it drains, bytes/s; see above
 */
Datum
dt_test_reading(PG_FUNCTION_ARGS)
{
	char	   *signal = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *look = text_to_cstring(PG_GETARG_TEXT_PP(1));
	int			which = strcmp(signal, "kernel_limit") == 0 ?
		DT_TEST_KERNEL_LIMIT : (int) dt_signal_of_name(signal);
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
	else if (which != DT_TEST_KERNEL_LIMIT)
		new.entered = position(dt_signal_resource(which));
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
	DtSignal	signal = dt_signal_of_name(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	int64		result;

	dt_spin_lock(&dt_shared->sampled.lock);
	result = dt_shared->sampled.signals[signal].read_at;
	dt_spin_unlock(&dt_shared->sampled.lock);
	PG_RETURN_INT64(result - DT_TEST_START_US);
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
