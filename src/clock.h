/*-------------------------------------------------------------------------
 *
 * clock.h
 *		The time, sleeping, and chance.
 *
 * All that pauses, rates and readings depend on, but for what sessions use,
 * comes from here.  So a library that is compiled with DT_TEST_CLOCK has a
 * clock that only tests move; see test/clock/clock.c, which has its part of
 * these functions.  This is the only file that tests that macro.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CLOCK_H
#define DT_CLOCK_H

#include <time.h>

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"
#include "utils/timestamp.h"

/*
 * Microseconds of the machine's monotonic clock.  Where tests move the clock,
 * the timers still use this one: they decide when a charge is made, and not what
 * that costs.
 *
 * Such times are in shared memory, so all processes must have the same clock.
 * That of instr_time need not be: from 19 on a parameter, timing_clock_source,
 * selects it, which each session may set.
 */
static inline int64
dt_machine_now_us(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
}

#ifdef DT_TEST_CLOCK

/* At server start, before the library's own shared memory. */
extern void dt_clock_init(void);

/* Microseconds of a monotonic clock; rates never see the wall clock. */
extern int64 dt_now_us(void);

/* How long ago, in us, it was that time on the wall clock. */
extern int64 dt_clock_since(TimestampTz start);

/*
 * Sleep until the process latch is set, and for so many us at most if they are
 * not negative.  Returns what WaitLatch() does.
 */
extern int	dt_clock_sleep(int64 us, int on_postmaster_death,
						   uint32 wait_event);

/* The same for who waits for a process that does: the machine's time, and briefly. */
static inline int
dt_clock_wait(int64 us, int on_postmaster_death, uint32 wait_event)
{
	return WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | on_postmaster_death, 10,
					 PG_WAIT_ACTIVITY);
}

/* A random number in [0, 1). */
extern double dt_clock_jitter(void);

#else

static inline void
dt_clock_init(void)
{
}

static inline int64
dt_now_us(void)
{
	return dt_machine_now_us();
}

static inline int64
dt_clock_since(TimestampTz start)
{
	return GetCurrentTimestamp() - start;
}

static inline int
dt_clock_sleep(int64 us, int on_postmaster_death, uint32 wait_event)
{
	return WaitLatch(MyLatch,
					 WL_LATCH_SET | on_postmaster_death |
					 (us >= 0 ? WL_TIMEOUT : 0),
					 us >= 0 ? (long) ((us + 999) / 1000) : -1, wait_event);
}

static inline int
dt_clock_wait(int64 us, int on_postmaster_death, uint32 wait_event)
{
	return dt_clock_sleep(us, on_postmaster_death, wait_event);
}

static inline double
dt_clock_jitter(void)
{
	return pg_prng_uint32(&pg_global_prng_state) / 4294967296.0;
}

#endif							/* DT_TEST_CLOCK */

#endif							/* DT_CLOCK_H */
