/*-------------------------------------------------------------------------
 *
 * drain.c
 *		How fast something drains that has a speed of its own.
 *
 * The capacity is a mean of the speed over some three seconds, and it is
 * learned only from samples that tell something about it:
 *
 * - With no backlog to speak of, it is not less than the speed.
 * - When much more arrives than drains, or the backlog is older than any
 *   delay, there is a queue for sure, and the speed is the capacity.
 * - Otherwise there may be one.  A byte that was written, and of which it is
 *   not known that it has drained, may just be on its way, there or back; then
 *   the speed is only that at which it was written.  Taking the speed for the
 *   capacity lowers it until less is written.  If there is a queue, as much
 *   drains as before, so the backlog gets younger.  If it does not, then most
 *   of it is on its way, and the capacity stays at five eighths of the one that
 *   was known for sure.
 *
 * In a queue the mean goes up and down alike: the highest of some noisy speeds
 * is more than the capacity.
 *
 * A backlog that drains in a moment, or is small, is no queue: what trickles
 * through an idle server at night would be taken for its capacity.  Nor does
 * one of which nothing has drained yet tell anything, as long as it may be on
 * its way.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/drain.h"

#include <stddef.h>

#define SECOND_US			INT64_C(1000000)
#define RATE_WINDOW_US		SECOND_US
#define CAPACITY_WINDOW_US	(3 * SECOND_US)
#define FAST_WINDOW_US		SECOND_US	/* it has changed by a quarter */

/* The longest window: of a level, which may be noisy, and changes slowly. */
#define LEARNED_MAX_US		(15 * SECOND_US)

/* A backlog that arrived in less time may be on its way. */
#define DELAY_MAX_US		(3 * SECOND_US)

/* A backlog that drains in less time, or has fewer bytes, is no queue. */
#define QUEUE_MIN_US		(SECOND_US / 8)
#define QUEUE_MIN			INT64_C(64000)

#define LAG_MAX_US			(3600 * SECOND_US)

int64_t
dt_drain_backlog(const DtDrain *d)
{
	return advanced(d->drained, d->written);
}

/* The capacity is seen to be this speed, for dt. */
static void
learn(DtDrain *d, int64_t speed, int64_t dt, int64_t window)
{
	d->learned_us = min64(d->learned_us + min64(dt, LEARNED_MAX_US),
						  LEARNED_MAX_US);
	d->capacity = mean64(d->capacity, speed, dt,
						 min64(d->learned_us, window));
}

/* Learn from a sample of positions. */
static void
learn_positions(DtDrain *d, int64_t speed, int64_t dt, bool is_much)
{
	int64_t		backlog = dt_drain_backlog(d);
	int64_t		age = muldiv64(backlog, SECOND_US, max64(d->arrival, 1));
	bool		is_old = backlog > muldiv64(max64(d->arrival, d->speed),
											DELAY_MAX_US, SECOND_US);
	bool		is_sure = is_much &&
		(is_old || d->arrival > d->speed + d->speed / 4 ||
		 d->growing_us > DELAY_MAX_US);
	int64_t		least = d->proven - d->proven / 8 * 3;

	if (!is_much)
		d->capacity = max64(d->capacity, d->speed);
	else if (is_old || d->speed > 0)
	{
		bool		is_far = is_sure ||
			d->speed > d->capacity + d->capacity / 4;

		learn(d, speed, dt, is_far ? FAST_WINDOW_US : CAPACITY_WINDOW_US);
		if (is_sure)
			d->proven = d->capacity;
		else if (d->capacity < least)
		{
			if (age < d->age - d->age / 4)
				d->proven = d->capacity;
			else
				d->capacity = least;
		}
	}

	d->proven = max64(d->proven, d->capacity);
	if (!is_much || d->capacity > d->proven - d->proven / 8)
		d->age = age;
	else
		d->age = max64(d->age, age);
}

static void
add_sample(DtDrain *d, int64_t written, int64_t drained, int64_t now,
		   bool is_level)
{
	int64_t		dt = advanced(d->seen_at, now);
	int64_t		arrived = dt_speed(advanced(d->written, written), dt);
	int64_t		speed = dt_speed(advanced(d->drained, drained), dt);
	bool		first = d->seen_at == 0;
	int64_t		backlog;
	bool		is_much;

	if (!first && now == d->seen_at)
		return;					/* no time for anything to have happened */
	d->seen_at = now;
	d->written = written;
	d->drained = drained;
	if (first || dt == 0)
		return;					/* or the clock was set back */

	d->watched_us = min64(d->watched_us + min64(dt, RATE_WINDOW_US),
						  RATE_WINDOW_US);
	d->arrival = mean64(d->arrival, arrived, dt, d->watched_us);
	d->speed = mean64(d->speed, speed, dt, d->watched_us);
	/* what is on its way is full after a while, so more is a queue */
	d->growing_us = d->arrival > d->speed + d->speed / 32 ?
		min64(d->growing_us + dt, 2 * DELAY_MAX_US) : 0;
	backlog = dt_drain_backlog(d);
	is_much = backlog > QUEUE_MIN &&
		backlog > muldiv64(d->capacity, QUEUE_MIN_US, SECOND_US);
	if (!is_level)
	{
		learn_positions(d, speed, dt, is_much);
		return;
	}

	/*
	 * The speed is a difference of two numbers, and no lower bound.  When
	 * hardly anything is written, a level that stays tells nothing.
	 */
	if (d->arrival > min64(d->capacity / 16, QUEUE_MIN) ? is_much :
		speed > d->capacity)
		learn(d, speed, dt, clamp64(dt_drain_lag_us(d) / 4,
									CAPACITY_WINDOW_US, LEARNED_MAX_US));
	d->speed = d->capacity;
}

void
dt_drain_sample(DtDrain *d, int64_t written, int64_t drained, int64_t now)
{
	add_sample(d, written, drained, clock64(now), false);
}

void
dt_drain_sample_level(DtDrain *d, int64_t written, int64_t level, int64_t now)
{
	add_sample(d, written, add64(written, -level), clock64(now), true);
}

void
dt_drain_assume(DtDrain *d, int64_t now)
{
	int64_t		dt = advanced(d->seen_at, now);

	if (d->seen_at == 0 || dt == 0)
		return;
	d->drained = add64(d->drained,
					   min64(dt_drain_backlog(d),
							 muldiv64(d->capacity, dt, SECOND_US)));
	d->arrival = mean64(d->arrival, 0, dt, d->watched_us);
	d->seen_at = now;
}

int64_t
dt_drain_lag_us(const DtDrain *d)
{
	int64_t		backlog = dt_drain_backlog(d);

	if (!dt_drain_knows(d))
		return 0;
	return min64(muldiv64(backlog, SECOND_US, max64(d->capacity, 1)),
				 LAG_MAX_US);
}

/* Does a lag more than b?  No two count as equal, so that there is an order. */
static bool
lags_more(const DtDrain *a, const DtDrain *b)
{
	int64_t		lag_a = dt_drain_lag_us(a);
	int64_t		lag_b = dt_drain_lag_us(b);

	return lag_a != lag_b ? lag_a > lag_b : a < b;
}

static bool
counts(const DtDrain *d, int64_t now)
{
	return d->seen_at != 0 &&
		now >= d->seen_at &&	/* else the clock was set back */
		now - d->seen_at <= DT_STALE_US + DT_STALE_COUNTS_US;
}

const DtDrain *
dt_drain_worst(const DtDrain *const *drains, int n, int ignore, int64_t now)
{
	const DtDrain *worst = NULL;

	now = clock64(now);
	for (; ignore >= 0; ignore--)
	{
		const DtDrain *before = worst;
		int			i;

		worst = NULL;
		for (i = 0; i < n; i++)
			if (counts(drains[i], now) &&
				(before == NULL || lags_more(before, drains[i])) &&
				(worst == NULL || lags_more(drains[i], worst)))
				worst = drains[i];
		if (worst == NULL)
			return NULL;
	}
	return worst;
}
