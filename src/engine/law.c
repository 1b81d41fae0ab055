/*-------------------------------------------------------------------------
 *
 * law.c
 *		The laws by which a limit follows a signal.
 *
 * Each takes a reading and tells how fast all those together that it limits
 * may go, in bytes/s; DT_FREE: as fast as they can.  For zones and a budget
 * what others write is part of that.  "dt" is the time, in us, since the law
 * was asked before.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/law.h"

#define SECOND_US		INT64_C(1000000)

/*
 * Zones, for what drains at a speed of its own: keeps the backlog at two thirds
 * of "threshold" bytes.
 *
 * The backlog is an integral: it grows by what is written beyond the capacity
 * C.  So the rate is C, give or take what makes the backlog reach a target
 * within a time tau: C + (target - backlog) / tau.  It is a real queue that
 * keeps what drains it busy, and that tells its capacity.
 *
 * The target is two thirds of the threshold: it is the threshold that is not
 * to be exceeded, a longer queue does not make anything drain faster, and when
 * the capacity is halved, the same queue takes twice as long.
 *
 * Which tau?  A loop with the delay d is stable with tau > 2 d / pi and does
 * not overshoot with tau > e d.  What is written is known here and now, so the
 * delay is that with which those who are limited follow.  So tau is the time
 * that the target takes to drain, but at least TAU_MIN_US.  At most TAU_MAX_US,
 * or nothing could be written any more below the target when C is zero, as it
 * is between two bursts of a drain.
 *
 * C is a mean of some seconds.  When it falls, the queue grows, and what
 * drains now tells more: above the target that counts, the more the farther
 * above, down to half of C.  An eighth of C remains in any case, as the
 * backlog may be known late.
 *
 * Below half of the threshold a law that limits nobody does not begin to.  One
 * that does limit lets the rate grow there, as there may be no queue, hence
 * nothing may be known about the capacity but that it is not less.  It must
 * not let go at once: what is written until that is seen may be many
 * thresholds.  The age of the backlog tells how soon a queue would be seen; in
 * that time the rate grows by up to nine tenths.  When it is twice what is
 * asked for, and the capacity, it ends.
 */
#define TAU_MIN_US		INT64_C(2000000)
#define TAU_MAX_US		INT64_C(30000000)
#define AGE_MAX_US		INT64_C(2000000)
#define GROWTH_PERCENT	90

int64_t
dt_law_zones(DtLaw *law, const DtDrain *d, int64_t threshold, int64_t dt)
{
	int64_t		capacity = dt_drain_knows(d) ? d->capacity : d->arrival;
	int64_t		backlog = dt_drain_backlog(d);
	int64_t		target = threshold / 3 * 2;
	int64_t		excess = backlog - target;
	int64_t		room = threshold / 2 - backlog;
	int64_t		tau = clamp64(muldiv64(target, SECOND_US, max64(capacity, 1)),
							  TAU_MIN_US, TAU_MAX_US);
	int64_t		rate;

	if (law->rate == 0 && room >= 0)
		return DT_FREE;

	rate = capacity - muldiv64(excess, SECOND_US, tau);
	if (excess > 0)
	{
		int64_t		all = max64(threshold / 3, 1);

		rate -= muldiv64(clamp64(capacity - d->speed, 0, capacity / 2),
						 min64(excess, all), all);
	}
	rate = max64(rate, capacity / 8);

	if (law->rate > 0 && room > 0)
	{
		int64_t		age = min64(muldiv64(backlog, SECOND_US,
										 max64(d->arrival, 1)), AGE_MAX_US);
		int64_t		growth = muldiv64(law->rate, GROWTH_PERCENT * dt,
									  max64(100 * (age + 2 * dt), 1));

		/* all of it with no backlog, nothing of it at half of the threshold */
		growth = muldiv64(growth, room, threshold / 2);
		rate = max64(rate, law->rate + growth);
		if (rate / 2 >= max64(capacity, d->arrival))
		{
			law->rate = 0;
			return DT_FREE;
		}
	}
	law->rate = clamp64(rate, 1, 8 * DT_RATE_MAX);
	return law->rate;
}

/*
 * Budget, for what has a date.
 *
 * The bytes that are left are spread evenly over the time that is left, in us,
 * and RESERVE_US, so that bytes for RESERVE_US remain at the end: those who are
 * not limited do not go evenly.
 */
#define RESERVE_US		INT64_C(2000000)

int64_t
dt_law_budget(int64_t bytes_left, int64_t time_left)
{
	return muldiv64(max64(bytes_left, 0), SECOND_US,
					clamp64(time_left, 0, INT64_MAX / 2) + RESERVE_US);
}

/*
 * Ramp, for a level below which, or above, there is room that must last.
 *
 * The room, in bytes, is spread over the next "us", again and again.  So the
 * level comes nearer to the threshold the more slowly the nearer it is, and
 * stays where as much drains as is written.  Nothing has to be known about the
 * drain, and no delay of less than us / e makes it swing.  The result is a mean,
 * as levels are noisy.  With more room than "begin" it limits nobody.
 */
int64_t
dt_law_ramp(DtLaw *law, int64_t room, int64_t begin, int64_t us, int64_t dt)
{
	int64_t		rate = max64(muldiv64(room, SECOND_US, us), 1);

	if (room >= begin)
		law->rate = 0;
	else
		law->rate = mean64(law->rate, rate, dt, law->rate > 0 ? SECOND_US : 0);
	return law->rate > 0 ? law->rate : DT_FREE;
}

/*
 * Brake, where only more or less is known.
 *
 * "low" and "high" are two readings of the same: both have to be over the
 * threshold, or below it.  "used" is how fast those that it limits go.  Over it
 * they are slowed down, the more the farther over, by at most half in a second,
 * beginning with what is used.  BRAKE_HOLD_US after that they go faster again,
 * by a twentieth in a second just below the threshold and more far below, but
 * only while what is allowed is used up: an idle group tells nothing.  Between
 * nine tenths of the threshold and all of it, the rate stays.  What has not been
 * used up for BRAKE_UNUSED_US ends.
 */
#define BRAKE_HOLD_US	INT64_C(3000000)
#define BRAKE_UNUSED_US	INT64_C(30000000)

int64_t
dt_law_brake(DtLaw *law, int64_t low, int64_t high, int64_t threshold,
			 int64_t used, int64_t dt)
{
	int64_t		enough = threshold - threshold / 10;

	law->hold_us = max64(law->hold_us - dt, 0);
	if (low > threshold)
	{
		int64_t		excess = min64(low - threshold, threshold);

		if (law->rate == 0 || law->rate > used + used / 4)
			law->rate = max64(used + used / 4, 1);
		law->rate -= muldiv64(law->rate / 2,
							  muldiv64(excess, dt, SECOND_US), threshold);
		law->rate = max64(law->rate, 1);
		law->hold_us = BRAKE_HOLD_US;
		law->unused_us = 0;
	}
	if (law->rate == 0)
		return DT_FREE;

	law->unused_us = used < law->rate - law->rate / 10 ?
		law->unused_us + dt : 0;
	if (high < enough && law->hold_us == 0)
	{
		int64_t		percent = 5 + muldiv64(25, enough - high, enough);

		if (law->unused_us >= BRAKE_UNUSED_US)
			law->rate = 0;
		else if (law->unused_us < SECOND_US)
			law->rate += muldiv64(law->rate, percent * dt, 100 * SECOND_US) +
				1;
		law->rate = min64(law->rate, 8 * DT_RATE_MAX);
	}
	return law->rate > 0 ? law->rate : DT_FREE;
}
