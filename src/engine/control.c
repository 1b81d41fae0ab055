/*-------------------------------------------------------------------------
 *
 * control.c
 *		Limits that follow the server's pressure.
 *
 * A step asks the law of each controller how fast all groups that follow its
 * signal may go together.  From that comes each group's share, and the lowest of
 * its shares is its rate.
 *
 * What others write counts where it is part of what the law measures: the WAL of
 * sessions that are in none of these groups is subtracted.  Where only a level
 * is measured, dirty memory for instance, a queue is made of it from what the
 * groups themselves have written, and what others do is seen as a drain that is
 * slower.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/control.h"

#include <string.h>

#define SECOND_US		INT64_C(1000000)

/* More than can be used, so that no sum overflows. */
#define BYTES_MAX		(INT64_C(1) << 50)

/* Longer than this since the last step, when the sampler was late, is as this. */
#define STEP_MAX_US		SECOND_US

/* Rates of use are means over that time, as long as a pause can be. */
#define USE_WINDOW_US	SECOND_US

/*
 * In which time room may be used up.  That of a queue: the time in which what
 * it is to hold drains, as the horizon must grow with the queue.  At least e
 * times the delay with which those who are limited follow, which is some 0.5 s;
 * at most, or nothing could be written while nothing drains.  Above a reserve room
 * is left for as long as debts take at most.  A budget leaves some for those who are
 * not limited, and do not go evenly.
 *
 * In the simulators half or twice of QUEUE_MIN_US fails, and twice of the last two.
 */
#define QUEUE_MIN_US	(2 * SECOND_US)
#define QUEUE_MAX_US	(30 * SECOND_US)
#define RESERVE_US		(30 * SECOND_US)
#define BUDGET_MORE_US	(2 * SECOND_US)

/*
 * Of a budget of each second this part is for what others begin to write: in wal_sim
 * the busiest second, with others who vary by a third, is at the budget.
 */
#define RATE_SPARE		60

/* A burst of others by more than this part of it is theirs at once. */
#define RATE_BURST		20

/*
 * A group that is not limited any more is let go slowly: its rate doubles in a
 * second, for EASE_US at most, as the signal may be back at once.  Not so when
 * it is free because the user has said so.
 */
#define EASE_US			(10 * SECOND_US)
#define EASE_PERCENT	70		/* a second, in steps of a fifth: doubles */

/* A change by less than this part is not worth that all members charge. */
#define CHANGE_MIN		64

/* What there is to know, in a step, of all groups that share a signal. */
typedef struct Use
{
	bool		only_observed;	/* all are in mode observe, and count as if
								 * they obeyed */
	int64_t		used;			/* by those that obey, bytes/s */
	int64_t		used_now;		/* the same, since the last step, */
	int64_t		bytes;			/* and how many that are */
	int64_t		rest;			/* of that, in a probe: what floors leave */
	int64_t		observed;		/* by those that do not */
	int64_t		observed_bytes;
	int64_t		rates;			/* in force, the sum; at DT_LAW_MAX somebody
								 * has none */
	bool		decided;		/* one of these is from the signal */
	int64_t		floors;			/* of that, what these may use in any case */
	int64_t		weights;		/* of those that use up their shares */
	int64_t		modest;			/* used by those that do not */

	/* of those with the same threshold */
	bool		obeyed;			/* somebody obeys */
	bool		presses;		/* a law may limit somebody */
} Use;

/*
 * Start a group at the rates now in force, which change from there without a
 * jump.  Also when a group takes the place of another one.  "used" are its
 * counters of bytes; NULL: it has begun since the last step, and all that it has used
 * it has used since then.  "decides" are the signals that the rates are from; -1, or
 * NULL: not known.
 */
void
dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
					   const int64_t *used, const int *decides)
{
	memset(g, 0, sizeof(*g));
	g->floor = DT_PRESSURE_DEFAULT_FLOOR;
	g->weight = 1;
	g->is_new = used != NULL;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		g->rate[r] = rate[r];
		g->decides[r] = decides != NULL ? decides[r] : -1;
		g->used[r] = g->last_used[r] = used != NULL ? used[r] : 0;
		g->ease_us[r] = rate[r] > 0 ? EASE_US : 0;
	}
}

/*
 * Another threshold is another controller.  A rate that has to be found by trying
 * goes on from that of the former one, or the group would run free until one is found
 * anew.  What was asked and seen at the other threshold says nothing about this one.
 */
void
dt_controller_take_over(DtController *c, const DtController *before)
{
	DtLawKind	law = dt_signals[c->signal].law;

	if (law != DT_LAW_BRAKE && law != DT_LAW_DROOP)
		return;
	c->state = before->state;
	c->value = before->value;
	c->read_at = before->read_at;
	c->fresh_us = before->fresh_us;
	c->rate = before->rate;
	c->brake = before->brake;
	c->obeyed = before->obeyed;
	c->worked_us = before->worked_us;
	c->droop = before->droop;
}

/* -------------------------------------------------------------------- use */

/* How fast g uses everything. */
static void
update_use_of(DtPressureGroup *g, int64_t dt)
{
	if (g->is_new)
		dt = 0;
	g->is_new = false;
	g->watched_us = min64(g->watched_us + min64(dt, USE_WINDOW_US),
						  USE_WINDOW_US);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64_t		before = g->used[r] < g->last_used[r] ? 0 : g->last_used[r];

		g->bytes[r] = dt == 0 ? 0 :
			min64(advanced(before, g->used[r]), BYTES_MAX);
		g->last_used[r] = g->used[r];
		if (dt == 0)
			continue;
		g->use_now[r] = dt_speed(g->bytes[r], dt);
		g->use_rate[r] = mean64(g->use_rate[r], g->use_now[r], dt,
								g->watched_us);
	}
}

static void
update_use(DtPressure *p, DtPressureGroup *const *groups, int n, int64_t wal,
		   int64_t now)
{
	int64_t		dt = p->stepped_at != 0 ? advanced(p->stepped_at, now) : 0;

	p->elapsed = dt;
	if (dt > 0)
	{
		p->watched_us = min64(p->watched_us + min64(dt, USE_WINDOW_US),
							  USE_WINDOW_US);
		p->wal_now = dt_speed(advanced(p->wal, wal), dt);
		p->wal_rate = mean64(p->wal_rate, p->wal_now, dt, p->watched_us);
	}
	p->wal = wal;
	for (int i = 0; i < n; i++)
		update_use_of(groups[i], dt);
	p->stepped_at = now;
}

/* Does g share with others what c leaves to all? */
static bool
shares(const DtController *c, const DtPressureGroup *g)
{
	const DtController *other = g->follows[c->signal];

	/* each name under which something is reported is a signal */
	return other == c || (other != NULL && c->signal != DT_REPORTED);
}

/* What g uses: on average, or just now if that is more. */
static int64_t
use_of(const DtPressureGroup *g, DtResource r)
{
	return max64(g->use_rate[r], g->use_now[r]);
}

/*
 * Does g use up its share?  More than its floor it must not give away, so it is
 * as if it did not when that is all it uses.
 */
static bool
uses_up(const DtController *c, const DtPressureGroup *g)
{
	DtResource	r = dt_signals[c->signal].resource;

	return use_of(g, r) >
		max64(g->share[c->signal] / 4 * 3, max64(g->floor, 0) / 4 * 5);
}

/*
 * May a law limit g?  What is written by others is no reason to begin
 * with a group that writes less than its floor.  One that is limited, or was a
 * moment ago, may write little for that.
 */
static bool
may_press(const DtPressureGroup *g, DtResource r)
{
	return g->use_rate[r] > g->floor ||
		(g->ease_us[r] > 0 && g->rate[r] != g->limit[r]);
}

/* Sum up the use of g.  Of those who are only observed, nobody obeys a rate. */
static void
add_use(Use *u, const DtController *c, const DtPressureGroup *g)
{
	DtResource	r = dt_signals[c->signal].resource;

	u->used += g->use_rate[r];
	u->used_now += g->use_now[r];
	u->bytes += g->bytes[r];
	u->rest += min64(g->floor, g->use_now[r]);
	u->rates = min64(u->rates + (g->rate[r] > 0 ? g->rate[r] : DT_LAW_MAX),
					 DT_LAW_MAX);
	u->decided |= g->decides[r] == c->signal && g->rate[r] != g->limit[r];
	u->floors += min64(use_of(g, r),
					   clamp64(g->floor, 0, g->limit[r] > 0 ? g->limit[r] : DT_RATE_MAX));
	if (uses_up(c, g))
		u->weights += g->weight;
	else
		u->modest += use_of(g, r);
}

static Use
sum_up(const DtController *c, DtPressureGroup *const *groups, int n)
{
	DtResource	r = dt_signals[c->signal].resource;
	Use			u = {.only_observed = true};

	for (int i = 0; i < n; i++)
		if (shares(c, groups[i]))
			u.only_observed &= groups[i]->observe;
	for (int i = 0; i < n; i++)
	{
		const DtPressureGroup *g = groups[i];

		if (!shares(c, g))
			continue;
		if (g->follows[c->signal] == c)
		{
			u.obeyed |= !g->observe;
			u.presses |= may_press(g, r);
		}
		if (u.only_observed || !g->observe)
			add_use(&u, c, g);
		else
		{
			u.observed += g->use_rate[r];
			u.observed_bytes += g->bytes[r];
		}
	}
	return u;
}

/* ------------------------------------------------------------------- laws */

/* A value per threshold, in thousandths. */
static int64_t
pressure_of(int64_t value, int64_t per)
{
	return clamp64(muldiv64(value, 1000, max64(per, 1)), 0, DT_PRESSURE_MAX);
}

/*
 * Room in a queue that is to hold two thirds of a threshold, in bytes.  It is
 * the threshold that is not to be exceeded, a longer queue does not make
 * anything drain faster, and when what drains becomes half as fast, the same
 * queue takes twice as long.  A limit begins when it is half as long as the
 * threshold.
 */
static DtRoom
room_in_queue(int64_t backlog, int64_t speed, int64_t threshold)
{
	int64_t		target = threshold / 3 * 2;
	DtRoom		room = {
		.bytes = target - backlog,
		.drain = speed,
		.horizon = clamp64(muldiv64(target, SECOND_US, max64(speed, 1)),
						   QUEUE_MIN_US, QUEUE_MAX_US),
		.begin = threshold / 6
	};

	return room;
}

/* The threshold of a queue, in bytes. */
static int64_t
threshold_of_queue(const DtController *c)
{
	if (dt_signals[c->signal].unit != DT_UNIT_US)
		return c->threshold;
	return dt_drain_knows(c->queue) ?
		muldiv64(dt_drain_speed(c->queue), c->threshold, SECOND_US) :
		INT64_MAX;
}

static DtRoom
room_of(DtController *c)
{
	DtRoom		room = {.begin = INT64_MAX};

	switch (dt_signals[c->signal].law)
	{
		case DT_LAW_QUEUE:
			return room_in_queue(dt_drain_backlog(c->queue),
								 dt_drain_speed(c->queue),
								 threshold_of_queue(c));
		case DT_LAW_LEVEL:
			dt_drain_sample_level(&c->level, c->written, c->value,
								  c->read_at);
			return room_in_queue(c->value,
								 dt_drain_speed(&c->level),
								 c->threshold);
		case DT_LAW_BUDGET:
			room.bytes = c->value;
			room.horizon = clamp64(c->other, 0, INT64_MAX / 2) + BUDGET_MORE_US;
			break;
		case DT_LAW_RATE:
			room.bytes = c->threshold - c->threshold / RATE_SPARE;
			room.horizon = SECOND_US;
			break;
		default:				/* DT_LAW_RESERVE */
			room.bytes = c->value - c->threshold;
			room.horizon = RESERVE_US;
			room.begin = c->threshold;
	}
	return room;
}

/*
 * What is used by those who do not follow the signal, of what the law has
 * counted.  From a budget of each second a burst of theirs is taken away at
 * once, unless it is small: members are charged a little later than they write.
 */
static int64_t
use_of_others(const DtPressure *p, const DtController *c, const Use *u)
{
	int64_t		mean = max64(p->wal_rate - u->used, 0);
	int64_t		now = p->wal_now - u->used_now;

	switch (dt_signals[c->signal].law)
	{
		case DT_LAW_BRAKE:
		case DT_LAW_DROOP:
			return 0;			/* these are about what followers use */
		case DT_LAW_RATE:
			return now > mean + c->threshold / RATE_BURST ? now : mean;
		default:
			return dt_signals[c->signal].resource == DT_WAL ? mean :
				u->observed;
	}
}

/*
 * Ask the law: how fast may all together go that follow the signal, with what
 * others use of that?
 */
static void
ask_law(DtPressure *p, DtController *c, const Use *u)
{
	DtLawKind	law = dt_signals[c->signal].law;
	DtRoom		room;

	c->others = use_of_others(p, c, u);
	if (law == DT_LAW_DROOP)
		c->rate = dt_latency_law(&c->droop, &p->latency, c->by_share ? 0 : c->threshold,
								 c->by_share ? c->threshold : 0, u->obeyed);
	else if (law == DT_LAW_BRAKE)
	{
		/*
		 * That it is too much is heard when they have worked for a second: a
		 * group that uses no more than its floor is not the reason, and one
		 * that has just begun is to be judged by what it uses.
		 */
		if (c->read_at != c->brake.seen_at && u->presses &&
			c->brake.used_us > 0 &&
			(c->value <= c->threshold || c->worked_us >= USE_WINDOW_US))
			c->rate = dt_law_brake(&c->brake, c->value, c->threshold, u->used,
								   c->read_at);
	}
	else
	{
		room = room_of(c);
		if (u->presses || room.begin == INT64_MAX)
			c->rate = dt_law_room(c->rate, &room, u->used + c->others);
	}
}

/* What the signal measures, and what pressure that is. */
static void
show(const DtPressure *p, DtController *c)
{
	c->shown = c->value;
	c->allowed = c->threshold;
	switch (dt_signals[c->signal].law)
	{
		case DT_LAW_QUEUE:
			c->shown = dt_signals[c->signal].unit == DT_UNIT_US ?
				dt_drain_lag_us(c->queue) : dt_drain_backlog(c->queue);
			break;
		case DT_LAW_BUDGET:
			c->allowed = 0;		/* it has none */
			c->pressure = pressure_of(p->wal_rate, c->rate);
			return;
		case DT_LAW_RATE:
			c->shown = p->wal_rate;
			break;
		case DT_LAW_RESERVE:
			c->pressure = pressure_of(c->threshold, c->value);
			return;
		case DT_LAW_DROOP:
			c->base = dt_latency_base(&p->latency);
			c->shown = p->latency.p90;
			c->allowed = dt_latency_allowed(&p->latency, c->by_share ? 0 : c->threshold,
											c->by_share ? c->threshold : 0);
			if (c->shown == 0)
				return;			/* nobody commits */
			break;
		default:
			break;
	}
	c->pressure = c->allowed > 0 ? pressure_of(c->shown, c->allowed) : 0;
}

/* ----------------------------------------------------------------- shares */

/*
 * The share of g of what c leaves to all that follow the signal, if g used all
 * of it.  Those who use up theirs share by weight.  What a group uses that does
 * not, or that has its floor, is its own.
 */
static int64_t
share_of(const DtController *c, const Use *u, const DtPressureGroup *g)
{
	DtResource	r = dt_signals[c->signal].resource;
	int64_t		left = c->rate - c->others - u->modest;
	int64_t		weights = u->weights;

	if (!u->only_observed && g->observe)
	{
		left += g->use_rate[r];
		weights += g->weight;
	}
	else if (!uses_up(c, g))
	{
		left += use_of(g, r);
		weights += g->weight;
	}
	return max64(muldiv64(max64(left, 0), g->weight, max64(weights, 1)), 1);
}

static void
set_shares(const DtController *c, const Use *u, DtPressureGroup *const *groups,
		   int n)
{
	for (int i = 0; i < n; i++)
		if (groups[i]->follows[c->signal] == c)
			groups[i]->share[c->signal] =
				c->rate == 0 || c->out_of_reach ? 0 :
				share_of(c, u, groups[i]);
}

/*
 * What those have used whom the brake may limit.  While nobody obeyed, its rate was
 * none that anybody kept, and so means nothing.
 */
static void
note_use(const DtPressure *p, DtController *c, const Use *u, int64_t dt)
{
	c->used = u->used;
	c->written = add64(c->written, u->bytes + u->observed_bytes);
	if (u->obeyed && !c->obeyed && dt_signals[c->signal].law == DT_LAW_BRAKE)
	{
		memset(&c->brake, 0, sizeof(c->brake));
		c->rate = 0;
	}
	c->obeyed = u->obeyed;
	if (!u->presses || c->worked_us == 0)
		c->brake.used = c->brake.used_us = 0;	/* work begins, or none does */
	if (u->presses)
	{
		c->brake.used = min64(c->brake.used + u->bytes, BYTES_MAX);
		c->brake.used_us = add64(c->brake.used_us, p->elapsed);
	}
	c->worked_us = u->used > u->floors ?
		min64(c->worked_us + dt, USE_WINDOW_US) : 0;
	c->brake.least = c->droop.least = min64(u->floors, DT_LAW_MAX);
}

/* The next readings of others' commits, which all controllers share. */
static void
read_commits(DtPressure *p, const DtController *c, const Use *u)
{
	DtLatencyReading r = {
		.commits = c->commits,.waiting = p->waiting,
		.used = u->used,.used_now = u->used_now,
		.rest = u->rest,.now = c->read_at
	};

	if (p->latency.read_at != c->read_at)
		p->new_window = dt_latency_read(&p->latency, &r);
}

/*
 * In the first second of a sampler a controller goes on from what is in force
 * because of it, which the brake and the droop would have to learn again, as if that
 * had been used; not where it limits nobody, or somebody has no limit at all.
 */
static void
start(DtController *c, const Use *u)
{
	if (!u->decided || u->rates >= DT_LAW_MAX)
		return;
	c->brake.rate = c->droop.knee = c->droop.rate = c->rate = u->rates;
	c->droop.found = DT_LAW_MAX;	/* at whatever threshold */
	c->brake.used = min64(u->rates, BYTES_MAX);
	c->worked_us = USE_WINDOW_US;
}

/* The signal is absent, so when it is back all begins anew. */
static void
forget(DtController *c)
{
	memset(&c->level, 0, sizeof(c->level));
	memset(&c->brake, 0, sizeof(c->brake));
	memset(&c->droop, 0, sizeof(c->droop));
	c->rate = 0;
}

/* What a controller leaves to each of its groups. */
static void
step_controller(DtPressure *p, DtController *c, DtPressureGroup *const *groups,
				int n, int64_t dt, int64_t now)
{
	Use			u = sum_up(c, groups, n);
	bool		is_new = c->state == DT_SIGNAL_ABSENT &&
		p->watched_us < USE_WINDOW_US;

	c->value = max64(c->value, 0);
	c->other = max64(c->other, 0);
	if (c->read_at > now)
		c->read_at = 0;			/* the clock was set back */
	c->state = dt_signal_state(c->read_at, c->fresh_us, now);
	c->pressure = -1;
	note_use(p, c, &u, dt);
	if (c->state != DT_SIGNAL_ABSENT)
	{
		if (is_new)
			start(c, &u);
		if (dt_signals[c->signal].law == DT_LAW_DROOP)
			read_commits(p, c, &u);
		ask_law(p, c, &u);
		show(p, c);
	}
	else
		forget(c);
	set_shares(c, &u, groups, n);
}

/* ------------------------------------------------------------------ rates */

/* The rate at which a group that is not limited any more is let go. */
static int64_t
ease(DtPressureGroup *g, DtResource r, int64_t dt)
{
	int64_t		rate = g->rate[r] +
		muldiv64(g->rate[r], EASE_PERCENT * dt, 100 * SECOND_US) + 1;

	g->ease_us[r] = g->redefined ? 0 : max64(g->ease_us[r] - dt, 0);
	if (g->rate[r] == 0 || g->ease_us[r] == 0)
		return 0;
	if (g->watched_us >= USE_WINDOW_US && rate / 8 > g->use_rate[r])
		g->ease_us[r] = 0;		/* it does not need it */
	return g->ease_us[r] > 0 ? rate : 0;
}

/*
 * The highest rate of g: its limit or, while it has a burst to spend within a budget
 * of each second, its share of that, which other signals may lower.
 */
static int64_t
highest_rate(const DtPressureGroup *g, DtResource r)
{
	int64_t		limit = g->limit[r] > 0 ? g->limit[r] : DT_RATE_MAX;

	return g->saved[r] && dt_signals[DT_WAL_RATE].resource == r ?
		max64(limit, g->share[DT_WAL_RATE]) : limit;
}

/* Set the rate of g to what its signals leave to it. */
static void
set_rate(DtPressureGroup *g, DtResource r, int64_t rate)
{
	int64_t		limit = highest_rate(g, r);
	int64_t		floor = min64(max64(g->floor, 1), limit);
	int64_t		before = g->rate[r];

	rate = rate == 0 ? limit : clamp64(rate, floor, limit);
	if (before >= floor && before <= limit && rate > floor && rate < limit &&
		max64(rate, before) - min64(rate, before) < before / CHANGE_MIN)
		rate = before;
	g->rate[r] = rate < DT_RATE_MAX ? rate : g->limit[r];
}

/* Set the rate of g for one resource, and the signal that decides. */
static void
decide(DtPressureGroup *g, DtResource r, int64_t dt, int64_t now)
{
	int64_t		lowest = 0;
	int64_t		easing = 0;

	for (int s = 0; s < DT_SIGNALS; s++)
	{
		const DtController *c = g->follows[s];

		if (dt_signals[s].resource != r)
			continue;
		if (c == NULL)
			g->share[s] = 0;
		if (g->share[s] == 0)
			continue;
		if (lowest == 0 || g->share[s] < lowest)
		{
			lowest = g->share[s];
			g->decides[r] = s;
		}

		/* when a stale value ceases to count, so does this */
		easing = max64(easing, c->read_at + c->fresh_us +
					   DT_STALE_COUNTS_US - now);
	}
	if (lowest > 0)
		g->ease_us[r] = min64(easing, EASE_US);
	else
		lowest = ease(g, r, dt);
	set_rate(g, r, lowest);
}

/*
 * Work out the rates of all groups.  One that follows no signal, or with all
 * zeros, may be among them, and gets its fixed limits.  "wal" is the position
 * of the last WAL written, by anybody, in bytes.
 */
void
dt_pressure_step(DtPressure *p, DtController *const *controllers,
				 int n_controllers, DtPressureGroup *const *groups, int n,
				 int64_t wal, int64_t now)
{
	int64_t		dt;

	now = clock64(now);
	update_use(p, groups, n, wal, now);
	dt = min64(p->elapsed, STEP_MAX_US);
	for (int i = 0; i < n_controllers; i++)
		step_controller(p, controllers[i], groups, n, dt, now);
	for (int i = 0; i < n; i++)
	{
		DtPressureGroup *g = groups[i];

		g->probed = g->follows[DT_COMMIT_LATENCY] != NULL && !g->observe &&
			p->latency.probe_us > 0;
		for (int r = 0; r < DT_RESOURCES; r++)
			decide(g, r, dt, now);
		g->redefined = false;
	}
}
