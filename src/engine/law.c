/*-------------------------------------------------------------------------
 *
 * law.c
 *		The laws by which a limit follows a signal: room, the brake, and the droop.
 *
 * Each decides how fast all those together may go whom it limits.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/law.h"

#include "engine/arith.h"

#define SECOND_US		INT64_C(1000000)

/*
 * Room, for everything that is measured in bytes.
 *
 * What drains may be written, and of the room as much as uses it up within the
 * horizon:
 *
 *		rate = drain + bytes / horizon
 *
 * The room is an integral of the rate, so this is a loop of first order: left
 * alone, it comes nearer to no room by the factor e in each horizon.  Those who
 * are limited follow with a delay d.  With that the loop is stable with a
 * horizon of more than 2 d / pi, and does not overshoot with more than e d.
 *
 * "before" is the rate that was in force, and "used" what was used of it.  No
 * limit begins as long as there is enough room.  One that there is ends when
 * there is enough room and at most half of it is used, so that nothing changes
 * by its end: what is written until a queue is seen again may be many
 * thresholds.
 */
int64_t
dt_law_room(int64_t before, const DtRoom *room, int64_t used)
{
	int64_t		rate = max64(room->drain, 0) +
		clamp64(muldiv64(room->bytes, SECOND_US, max64(room->horizon, 1)),
				-DT_LAW_MAX, DT_LAW_MAX);
	bool		is_needed = before > 0 && used > before / 2;

	if (room->bytes >= room->begin && !is_needed)
		return 0;
	return clamp64(rate, 1, DT_LAW_MAX);
}

/*
 * Brake, where only more or less is known.
 *
 * Above the threshold those whom it limits are slowed down, beginning with what
 * they use: by half in a second at twice the threshold or more, by less the
 * nearer it is.  Below nine tenths of it they go faster again, by a twentieth in
 * a second, and by up to six times that far below.  But they do so only while
 * they use up what they may: an idle group shows nothing.  In between nothing
 * changes.
 *
 * It hears each value once, at the time "now" when that has come.  An old value
 * has no more to say, so each counts for a second at most: those that come every
 * second and every five minutes have the same effect.  What those whom it limits
 * use is what they have used since the value before, or just now ("used"),
 * whichever is more: a group that works by fits and starts is judged by its work.
 *
 * The rate is not less than what they write that they may write in any case.  From
 * further down it would not come back for long, and nobody would have been slower
 * for it.
 *
 * None of these is tuned: half and twice of each hold in all simulators.
 */
#define VALUE_MAX_US	SECOND_US	/* so much a value counts */
#define DOWN_PART		2		/* down by at most this part in a second */
#define UP_PERCENT		5		/* up in a second just below, ... */
#define UP_MORE			25		/* ... and so much more at 0 */
#define UNUSED_US		(30 * SECOND_US)	/* not used up for so long: free,
											 * as a job that has ended */

static void
brake(DtBrake *b, int64_t value, int64_t threshold, int64_t used, int64_t dt)
{
	int64_t		excess = min64(value - threshold, threshold);

	/* used up, but for noise; half and twice hold in pressure_sim */
	if (b->rate == 0 || b->rate > used + used / 4)
		b->rate = used;
	b->rate -= muldiv64(b->rate / DOWN_PART, muldiv64(excess, dt, SECOND_US),
						threshold);
	b->rate = max64(b->rate, max64(b->least, 1));
}

static void
go_faster(DtBrake *b, int64_t value, int64_t enough, int64_t dt)
{
	int64_t		percent = UP_PERCENT +
		muldiv64(UP_MORE, enough - value, enough);

	b->rate = max64(b->rate, b->least);
	b->rate += muldiv64(b->rate, percent * dt, 100 * SECOND_US) + 1;
	b->rate = min64(b->rate, DT_LAW_MAX);
}

int64_t
dt_law_brake(DtBrake *b, int64_t value, int64_t threshold, int64_t used,
			 int64_t now)
{
	int64_t		enough = dt_brake_enough(threshold);
	int64_t		dt = b->seen_at == 0 ? VALUE_MAX_US :
		min64(advanced(b->seen_at, now), VALUE_MAX_US);

	used = clamp64(muldiv64(b->used, SECOND_US, max64(b->used_us, 1)),
				   used, DT_RATE_MAX);
	b->seen_at = now;
	b->used = b->used_us = 0;
	/* by the same measure as those who share: see uses_up() in control.c */
	b->unused_us = used < b->rate / 4 * 3 ? b->unused_us + dt : 0;
	if (value > threshold)
		brake(b, value, threshold, used, dt);
	else if (value < enough && b->unused_us >= UNUSED_US)
		b->rate = 0;
	else if (value < enough && b->rate > 0 && b->unused_us < SECOND_US)
		go_faster(b, value, enough, dt);
	return b->rate;
}

/*
 * Droop, where there is a knee: up to some rate others do not notice anything, and a
 * little above it they suffer.
 *
 * The knee is found once, and then followed.  From START_RATE on it rises by half in a
 * second, until the value has been above the threshold for FOUND_US, longer as far as the
 * rate is not used; then it is what the rate is.  Afterwards it goes up or down in
 * proportion to how far the value is below or above.  It rises only while the rate is
 * used, and falls only while it is obeyed, and as far as it is used: or nothing would
 * follow from more of the same.
 * When the threshold has risen, as it follows from what is measured, the knee is to be
 * found again.  It is not less than what they may write in any case, as that of a brake.
 *
 * The rate is the knee, less at once when the value is above the threshold, by half at
 * most, and more when it is below, by a quarter at most.  So those who are limited are
 * half as fast a moment after others begin to suffer, while noise moves the knee hardly.
 *
 * In latency_sim half and twice of FOUND_PART and STEP_MAX_US hold.  With those of the
 * others one to six of its cases fail, most by some hundredths: a disk or commits that
 * have changed, and much noise.
 */
#define START_RATE		INT64_C(16000000)	/* bytes/s: one segment a second */
#define START_PART		2		/* up by this part in a second at first, ... */
#define FOUND_US		SECOND_US	/* ... until it was above for so long */
#define FOUND_PART		4		/* a threshold higher by this part is another */
#define KNEE_PART		3		/* in a second, of how far the value is off */
#define DROOP_LEAST		500		/* of the knee, thousandths */
#define DROOP_MOST		1250
#define VALUE_MAX		(INT64_C(1) << 50)	/* more than can be */
#define KNEE_LEAST		1000	/* from further down it would not come back */
#define STEP_MAX_US		(2 * SECOND_US) /* a window with few commits shows no
										 * more */

/* By how many thousandths the knee changes in a second. */
static int64_t
knee_speed(const DtDroop *d, int64_t over, int64_t used)
{
	if (over > 0 ? used < d->rate / 2 : used > d->rate + d->rate / 4)
		return 0;
	if (d->found == 0)
		return over > 0 ? 1000 / START_PART : 0;
	return over > 0 ? over / KNEE_PART :
		muldiv64(over / KNEE_PART, min64(used, d->rate), max64(d->rate, 1));
}

/* A value that was measured for dt; a threshold of 0 is not known yet. */
int64_t
dt_law_droop(DtDroop *d, int64_t value, int64_t threshold, int64_t used,
			 int64_t dt)
{
	int64_t		over;

	if (d->knee == 0)
		d->knee = START_RATE;
	if (d->rate == 0)
		d->rate = d->knee;
	if (threshold <= 0)
		return d->rate;
	threshold = min64(threshold, VALUE_MAX);
	value = clamp64(value, 1, VALUE_MAX);
	over = muldiv64(threshold - value, 1000, max64(threshold, value));
	dt = clamp64(dt, 0, STEP_MAX_US);	/* the clock may be set back */
	d->found = min64(d->found, 2 * threshold);
	if (threshold > d->found + d->found / FOUND_PART)
		d->found = 0;
	d->above_us = over >= 0 ? 0 :
		d->above_us + muldiv64(dt, min64(2 * used, d->rate), d->rate);
	if (d->found == 0 && d->above_us >= FOUND_US)
	{
		d->found = threshold;
		d->knee = d->rate;
	}
	d->knee = clamp64(d->knee + muldiv64(d->knee, knee_speed(d, over, used) * dt,
										 1000 * SECOND_US),
					  max64(d->least, KNEE_LEAST), DT_LAW_MAX);
	d->rate = muldiv64(d->knee, clamp64(muldiv64(threshold, 1000, value),
										DROOP_LEAST, DROOP_MOST), 1000);
	d->rate = min64(d->rate, DT_LAW_MAX);
	return d->rate;
}

/*
 * What part of the time somebody waits, in 1e-6, from a counter of that time,
 * in us: a mean, since a single write makes somebody wait all of a moment.  Half
 * and twice of the window hold in pressure_sim.
 */
#define STALL_WINDOW_US	(4 * SECOND_US)
#define STALL_GAP_US	(20 * SECOND_US)	/* for this time nobody looked */

int64_t
dt_stall_sample(DtStall *s, int64_t counter, int64_t now)
{
	int64_t		dt = s->seen_at != 0 ? advanced(s->seen_at, clock64(now)) : 0;
	int64_t		part = min64(muldiv64(advanced(s->counter, counter), 1000000,
									  max64(dt, 1)), 1000000);

	if (s->seen_at != 0 && dt == 0)
		return s->mean;			/* nothing new */
	s->seen_at = clock64(now);
	s->counter = counter;
	if (dt > STALL_GAP_US)
		s->watched_us = s->mean = 0;
	else if (dt > 0)
	{
		s->watched_us = min64(s->watched_us + dt, STALL_WINDOW_US);
		s->mean = mean64(s->mean, part, dt, s->watched_us);
	}
	return s->mean;
}
