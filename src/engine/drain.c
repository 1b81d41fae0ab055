/*-------------------------------------------------------------------------
 *
 * drain.c
 *		How fast something drains that has a speed of its own.
 *
 * The capacity is a mean of the speed over some three seconds, and it is
 * learned only from samples that tell something about it:
 *
 * - While there is a queue, the speed is the capacity.  There is one when more
 *   arrives than drains, or when the backlog is older than any delay: a byte
 *   that was written, and of which it is not known that it has drained, may
 *   just be on its way, there or back.
 * - It is not less than the speed, ever.
 * - When as much drains as arrives, and less than the capacity, either that
 *   has fallen a little or there is no queue.  Lowering it slowly tells: if
 *   there is a queue, less arrives from then on, and as much drains as before.
 *   If there is none, this must not go on for ever, so it ends at one half.
 *
 * A backlog that drains in a moment is no queue: what trickles through an idle
 * server at night would be taken for its capacity.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/drain.h"

#include <string.h>

#define SECOND_US			INT64_C(1000000)
#define RATE_WINDOW_US		SECOND_US
#define CAPACITY_WINDOW_US	(3 * SECOND_US)
#define FAST_WINDOW_US		(3 * SECOND_US / 2) /* the queue grows fast */
#define SLOW_WINDOW_US		(5 * SECOND_US) /* perhaps it is no queue */

/* The longest window: of a level, which may be noisy, and changes slowly. */
#define LEARNED_MAX_US		(15 * SECOND_US)

/* A backlog that arrived in less time may be on its way. */
#define DELAY_MAX_US		(3 * SECOND_US)

/* A backlog that drains in less time is no queue. */
#define QUEUE_MIN_US		(SECOND_US / 8)

#define LAG_MAX_US			(3600 * SECOND_US)

void
dt_drain_init(DtDrain *d)
{
	memset(d, 0, sizeof(*d));
}

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
	d->proven = d->capacity;
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
	backlog = dt_drain_backlog(d);
	is_much = backlog > muldiv64(d->capacity, QUEUE_MIN_US, SECOND_US);

	if (is_level)
	{
		/* the speed is a difference of two numbers, and no lower bound */
		if (is_much || speed > d->capacity)
			learn(d, speed, dt, clamp64(dt_drain_lag_us(d) / 4,
										CAPACITY_WINDOW_US, LEARNED_MAX_US));
		return;
	}
	if (is_much && (d->arrival > d->speed + d->speed / 32 ||
					backlog > muldiv64(d->arrival, DELAY_MAX_US, SECOND_US)))
		learn(d, speed, dt, d->arrival > d->speed + d->speed / 4 ?
			  FAST_WINDOW_US : CAPACITY_WINDOW_US);
	else if (is_much)
		d->capacity = max64(d->proven / 2, mean64(d->capacity, speed, dt,
												  SLOW_WINDOW_US));
	d->capacity = max64(d->capacity, d->speed);
	d->proven = max64(d->proven, d->capacity);
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
dt_drain_worst(const DtDrain *drains, int n, int ignore, int64_t now)
{
	const DtDrain *worst = NULL;

	now = clock64(now);
	for (; ignore >= 0; ignore--)
	{
		const DtDrain *before = worst;
		int			i;

		worst = NULL;
		for (i = 0; i < n; i++)
			if (counts(&drains[i], now) &&
				(before == NULL || lags_more(before, &drains[i])) &&
				(worst == NULL || lags_more(&drains[i], worst)))
				worst = &drains[i];
		if (worst == NULL)
			return NULL;
	}
	return worst;
}
