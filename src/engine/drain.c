/*-------------------------------------------------------------------------
 *
 * drain.c
 *		A queue, and how fast it drains.
 *
 * The speed of a queue is a mean of what has drained.  Without a backlog that
 * is only what had come in, and all that is known is that the queue is not
 * slower.  So the mean rises whenever more drains, and falls only while there
 * is a backlog.  An hour in which nobody writes, or somebody writes a little,
 * does not change it.  But what drained fast then, or long ago, says little of how
 * fast a new backlog does, which may come at many times that speed: so when one has
 * lasted for a second, the mean falls at once to what has drained meanwhile.
 *
 * Positions move in steps: an archiver's by segments, a consumer's when it
 * reports.  Such a step has drained in all of the time in which the position
 * stood with a backlog.  A position that stands means nothing for as long as it
 * stood before the last step; from then on, that the drain stands still.
 *
 * What is on its way, to a standby and back, is part of the backlog.  By
 * Little's law backlog / speed is the time that a byte spends there and in the
 * queue together, which is what the lag of a standby means; nothing here has
 * to distinguish the two.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/drain.h"

#include <stddef.h>

#define SECOND_US			INT64_C(1000000)

/*
 * Windows of the mean: replay goes in steps of a second or so, and with 4 s it takes
 * too long until a halved speed is known.
 */
#define WINDOW_US			(2 * SECOND_US)

/* A backlog is new for so long: as long as a step of replay may take. */
#define NEW_US				SECOND_US

/* A level is a difference of two noisy numbers, and changes slowly. */
#define LEVEL_WINDOW_US		(8 * SECOND_US)

/* Fewer bytes are no backlog: they are what a checkpoint record comes to ... */
#define BACKLOG_MIN			INT64_C(64000)

/*
 * ... nor are those that drain in an eighth of a second, before the next look.  With
 * a quarter a standby beside which others write a little is not kept busy.
 */
#define BACKLOG_PART		8

/* Bytes that have not drained yet. */
int64_t
dt_drain_backlog(const DtDrain *d)
{
	return advanced(d->drained, d->written);
}

/* Is there enough to know how fast it drains? */
static bool
is_queued(const DtDrain *d)
{
	return dt_drain_backlog(d) > max64(BACKLOG_MIN, d->speed / BACKLOG_PART);
}

/* Bytes of a level may be negative. */
static int64_t
speed_of(int64_t bytes, int64_t us)
{
	return clamp64(muldiv64(bytes, SECOND_US, us), -DT_RATE_MAX, DT_RATE_MAX);
}

/* See above; not of a level, which may stand for long before it falls. */
static void
notice_new_backlog(DtDrain *d, int64_t bytes, int64_t time)
{
	bool		was_new = d->begun_us < NEW_US;

	d->begun_bytes = add64(d->begun_bytes, bytes);
	d->begun_us = add64(d->begun_us, time);
	if (was_new && d->begun_us >= NEW_US)
		d->speed = min64(d->speed, speed_of(d->begun_bytes, d->begun_us));
}

/*
 * In "time", which is over, this many bytes have drained.
 */
static void
add_speed(DtDrain *d, int64_t bytes, int64_t time, int64_t window)
{
	int64_t		speed = speed_of(bytes, time);

	if (is_queued(d))
	{
		d->queued_us = min64(d->queued_us + time, window);
		d->speed = mean64(d->speed, speed, time, d->queued_us);
		if (window == WINDOW_US)
			notice_new_backlog(d, bytes, time);
	}
	else if (speed > d->speed)
		d->speed = mean64(d->speed, speed, time, window);
}

static void
add_sample(DtDrain *d, int64_t written, int64_t drained, int64_t now,
		   int64_t window)
{
	int64_t		dt = advanced(d->seen_at, now);
	int64_t		bytes = advanced(d->drained, drained) -
		advanced(drained, d->drained);
	bool		first = d->seen_at == 0;

	if (!first && now == d->seen_at)
		return;					/* no time for anything to have happened */
	if (is_queued(d))
		d->stands_us = min64(d->stands_us + dt, DT_LAG_MAX_US);
	else
		d->begun_us = d->begun_bytes = 0;
	d->seen_at = now;
	d->written = written;
	d->drained = drained;
	if (first || dt == 0)
		return;					/* or the clock was set back */
	if (bytes != 0)
	{
		add_speed(d, bytes, max64(d->stands_us, dt), window);
		d->step_us = d->stands_us;
		d->stands_us = 0;
	}
	else if (d->stands_us > d->step_us)
		add_speed(d, 0, dt, max64(window, d->step_us));
}

/*
 * A sample: how much has been written, and how much of that has drained (drained
 * <= written).  Call it only when something was seen or heard of the queue, be it
 * that it stands: how old the last sample is decides whether it still counts.
 */
void
dt_drain_sample(DtDrain *d, int64_t written, int64_t drained, int64_t now)
{
	add_sample(d, written, drained, clock64(now), WINDOW_US);
}

/*
 * The same where all that is known is how much has not drained yet, and what
 * those who are limited have written.  What others write makes it drain more
 * slowly.
 */
void
dt_drain_sample_level(DtDrain *d, int64_t written, int64_t level, int64_t now)
{
	add_sample(d, written, add64(written, -max64(level, 0)), clock64(now),
			   LEVEL_WINDOW_US);
}

/*
 * Instead of a sample, when nothing was written since the last one, so that
 * nothing new may be heard for long: the backlog is assumed to have drained at
 * the speed that is known.
 */
void
dt_drain_assume(DtDrain *d, int64_t now)
{
	int64_t		dt = advanced(d->seen_at, now);

	if (d->seen_at == 0 || dt == 0)
		return;
	d->drained = add64(d->drained,
					   min64(dt_drain_backlog(d),
							 muldiv64(dt_drain_speed(d), dt, SECOND_US)));
	d->seen_at = now;
}

/*
 * The time, in us, in which the backlog drains, at most an hour; 0 as long as
 * the speed is not known.
 */
int64_t
dt_drain_lag_us(const DtDrain *d)
{
	if (!dt_drain_knows(d))
		return 0;
	return min64(muldiv64(dt_drain_backlog(d), SECOND_US,
						  max64(d->speed, 1)), DT_LAG_MAX_US);
}

/* Does a lag more than b?  No two count as equal, so that there is an order. */
static bool
lags_more(const DtDrain *a, const DtDrain *b)
{
	int64_t		lag_a = dt_drain_lag_us(a);
	int64_t		lag_b = dt_drain_lag_us(b);

	return lag_a != lag_b ? lag_a > lag_b : a < b;
}

/*
 * Of n queues, the one that lags most, without the "ignore" worst ones; NULL
 * if there is none.  Queues without a sample that counts are none.
 */
const DtDrain *
dt_drain_worst(const DtDrain *const *drains, int n, int ignore, int64_t now)
{
	const DtDrain *worst = NULL;

	now = clock64(now);
	for (; ignore >= 0; ignore--)
	{
		const DtDrain *before = worst;

		worst = NULL;
		for (int i = 0; i < n; i++)
			if (dt_signal_state(drains[i]->seen_at, DT_STALE_US, now) !=
				DT_SIGNAL_ABSENT &&
				(before == NULL || lags_more(before, drains[i])) &&
				(worst == NULL || lags_more(drains[i], worst)))
				worst = drains[i];
		if (worst == NULL)
			return NULL;
	}
	return worst;
}
