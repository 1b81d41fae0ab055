/*-------------------------------------------------------------------------
 *
 * law.c
 *		The laws by which a limit follows a signal.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/law.h"

#define SECOND_US		INT64_C(1000000)

/*
 * Zones.
 *
 * The backlog is an integral: it grows by what is written beyond the capacity
 * C.  So the rate is C, give or take what makes the backlog reach the target
 * within a time tau: C + (target - backlog) / tau.  It is a real queue that
 * keeps what drains it busy, and that tells its capacity.
 *
 * Which tau?  A reading is late, by anything up to two seconds, and so is the
 * effect of a rate; a loop with the delay d is stable with tau > 2 d / pi and
 * does not overshoot with tau > e d.  So tau is the time that the target
 * takes to drain, but at least TAU_MIN_US, however small the target is.  At
 * most TAU_MAX_US, or nothing could be written any more below the target when
 * C is zero, as it is between two bursts of a drain.
 *
 * Far above the target the backlog is to shrink as fast as it can, so there
 * the rate falls with the square of the excess, too; less so when the target
 * is small beside what drains in tau, as then any delay makes it far.  An
 * eighth of C remains, as the backlog may be known late.
 *
 * Below half of the target there may be no queue, hence nothing may be known
 * about the capacity but that it is not less.  So the rate grows, the faster
 * the emptier the queue is, by at most GROWTH_PERCENT in a second: with
 * a delay of two seconds a queue that forms is seen when the rate is too high
 * by half.  When the rate is far above all that is asked for, it ends.
 */
#define TAU_MIN_US		INT64_C(4500000)
#define TAU_MAX_US		INT64_C(30000000)
#define GROWTH_PERCENT	45

int64_t
dt_law_zones(DtLaw *law, const DtDrain *d, int64_t target, int64_t dt)
{
	int64_t		c = d->capacity;
	int64_t		excess = dt_drain_backlog(d) - target;
	int64_t		tau;
	int64_t		rate;

	if (law->rate == 0 && excess <= -target / 2)
		return DT_FREE;

	tau = clamp64(muldiv64(target, SECOND_US, max64(c, 1)),
				  TAU_MIN_US, TAU_MAX_US);
	rate = c - muldiv64(excess, SECOND_US, tau);
	if (excess > 0)
	{
		int64_t		drained = max64(muldiv64(c, tau, SECOND_US), 1);
		int64_t		more = muldiv64(muldiv64(excess, excess, drained),
									3 * min64(target, drained), drained);

		rate = max64(rate, 0) - muldiv64(more, SECOND_US, tau);
	}
	rate = max64(rate, c / 8);

	if (law->rate > 0 && excess < -target / 2)
	{
		int64_t		growth = muldiv64(law->rate, GROWTH_PERCENT * dt,
									  100 * SECOND_US);

		/* all of it with no backlog, nothing of it at half of the target */
		growth = muldiv64(growth, -excess - target / 2, max64(target / 2, 1));
		rate = max64(rate, law->rate + growth);
		if (rate / 8 >= max64(c, d->arrival))
		{
			law->rate = 0;
			return DT_FREE;
		}
	}
	law->rate = clamp64(rate, 1, 8 * DT_RATE_MAX);
	return law->rate;
}

/*
 * Budget.
 *
 * What is left is spread evenly over the time that is left.  RESERVE_US of it
 * remains to the end, for those who are not limited: they do not go evenly.
 */
#define RESERVE_US		INT64_C(2000000)

int64_t
dt_law_budget(int64_t bytes_left, int64_t time_left)
{
	return muldiv64(max64(bytes_left, 0), SECOND_US,
					clamp64(time_left, 0, INT64_MAX / 2) + RESERVE_US);
}

/*
 * Brake.
 *
 * Over the threshold it slows down, the more the farther over, by at most half
 * in a second, beginning with what is used.  BRAKE_HOLD_US after that it goes
 * faster again, by a twentieth in a second just below the threshold and more
 * far below, but only while what it allows is used up: an idle group tells
 * nothing.  Between nine tenths of the threshold and all of it, it stays.
 * What has not been used up for BRAKE_UNUSED_US ends.
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
