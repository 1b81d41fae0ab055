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
 * ends up.  WAL that enters is all of it, blocks are those of groups.  With a
 * speed of -1 it stays as it is.
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

/* What has entered the queue of a signal so far. */
static int64
entered(int which)
{
	int64		blocks = 0;
	int			i;

	if (dt_signal_resource(which) == DT_WAL)
		return (int64) GetXLogInsertRecPtr();
	for (i = 0; i < dt_shared->max_groups; i++)
		blocks += dt_groups[i].usage[DT_DIRTY].used;
	return blocks;
}

static int64
level(int which, const DtTestReading *reading)
{
	int64		drained;

	if (reading->other < 0)
		return reading->value;
	drained = muldiv64(reading->other, dt_now_us() - reading->set_at, 1000000);
	return Max(reading->value + entered(which) - reading->used - drained, 0);
}

static DtLook
result_of(const DtTestReading *reading, char *reason)
{
	if (reading->look == DT_TEST_MEASURED)
		return DT_LOOK_MEASURED;
	strlcpy(reason, "The test says so.", DT_REASON_SIZE);
	return reading->look == DT_TEST_NOTHING ? DT_LOOK_NOTHING : DT_LOOK_FAILED;
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
	int64		wal = (int64) GetXLogInsertRecPtr();

	if (real == NULL)
		real = r->drains;
	r->drains = real;
	if (reading.look == DT_TEST_REAL)
		return REAL(dt_look_replicas) (r, now, reason);
	r->drains = &drain;
	r->n = reading.look == DT_TEST_NOTHING ? 0 : 1;
	if (reading.look == DT_TEST_MEASURED)
		dt_drain_sample(&drain, wal, wal - level(DT_REPLICA_LAG, &reading), now);
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
		muldiv64(reading.value, dt_now_us() - reading.set_at, 1000000);
	return result_of(&reading, reason);
}

PG_FUNCTION_INFO_V1(dt_test_reading);

/*
 * dt_test_reading(signal text, look text, value bigint, other bigint): from now
 * on a look at the signal, or at "kernel_limit", finds this; look is "measured",
 * "nothing", "failed", or "real" for what there is.  Value and other are, of
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
		strcmp(look, "nothing") == 0 ? DT_TEST_NOTHING :
		strcmp(look, "failed") == 0 ? DT_TEST_FAILED : DT_TEST_REAL;
	new.value = PG_GETARG_INT64(2);
	new.other = PG_GETARG_INT64(3);
	new.set_at = dt_now_us();
	if (which == DT_IO_PRESSURE)	/* a counter goes on from where it was */
		new.other = before.other +
			muldiv64(before.value, new.set_at - before.set_at, 1000000);
	else if (which != DT_TEST_KERNEL_LIMIT)
		new.used = entered(which);
	dt_spin_lock(&all->lock);
	all->of[which] = new;
	dt_spin_unlock(&all->lock);
	PG_RETURN_VOID();
}
