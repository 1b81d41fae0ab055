/*-------------------------------------------------------------------------
 *
 * control.c
 *		Limits that follow the server's pressure.
 *
 * A step brings the readings up to date and asks, for each signal and each
 * group that uses it, the signal's law (law.c) how fast all groups that use
 * this signal may go together.  From that comes the group's share, and the
 * lowest of its shares is its rate.
 *
 * What others write counts where they are part of what the law measures: the
 * WAL of sessions that are in none of these groups is subtracted.  Where only
 * a level is measured, dirty memory for instance, the queue that the law looks
 * at is made up from what the groups themselves have written, and what others
 * do is seen as a drain that is slower.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/control.h"

#include <string.h>

#define SECOND_US		INT64_C(1000000)

/* Longer than this since the last step is as this. */
#define STEP_MAX_US		SECOND_US

/* Rates of use are means over that time. */
#define USE_WINDOW_US	SECOND_US

/* The two windows of DT_IO_PRESSURE. */
static const int64_t stall_windows[] = {2 * SECOND_US, 10 * SECOND_US};

/*
 * A group that is not limited any more is let go slowly: its rate doubles in a
 * second, for EASE_US at most, as the signal may be back at once.  Not so when
 * it is free because the user has said so.
 */
#define EASE_US			(10 * SECOND_US)

/* In that time a level may come to its threshold, and free space to its. */
#define RAMP_US			(4 * SECOND_US)
#define RESERVE_US		(30 * SECOND_US)

/* A change by less than this part is not worth that all members charge. */
#define CHANGE_MIN		64

/*
 * Members are charged for records of WAL, but not for what is between them and
 * for page headers, which is less than this part.
 */
#define UNCHARGED		16

/* What there is to know, in a step, of all groups that use a signal. */
typedef struct Sharing
{
	DtSignal	signal;
	DtResource	resource;
	DtPressureGroup *const *groups;
	int			n;
	int64_t		used;			/* by those that share, bytes/s */
	int64_t		used_now;		/* the same, since the last step */
	int64_t		observed;		/* by those in mode observe */
	int64_t		rest;			/* by all of these in a probe: what their
								 * floors leave of it */
	int64_t		weights;		/* sum */
	int64_t		all;			/* what was split last; -1: nothing yet */
	int64_t		left;			/* of that to those who share by weight, */
	int64_t		left_weights;	/* and the sum of theirs */
} Sharing;

/* ---------------------------------------------------------------- readings */

/*
 * Start a group at the rates now in force (0 = none), which change from there
 * without a jump.  Also when a group takes the place of another one.  "used"
 * are its counters of bytes.
 */
void
dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
					   const int64_t *used)
{
	int			r;

	memset(g, 0, sizeof(*g));
	g->floor = DT_PRESSURE_DEFAULT_FLOOR;
	g->weight = 1;
	g->signal = -1;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		g->rate[r] = rate[r];
		g->decides[r] = -1;
		g->used[r] = g->last_used[r] = used[r];
		g->ease_us[r] = rate[r] > 0 ? EASE_US : 0;
	}
}

/* The part of the time in which somebody waits, from a counter of that time. */
static int64_t
mean_stall(DtSignalReading *s, int64_t counter)
{
	int64_t		delta = advanced(s->other, counter);
	int			i;

	s->other = counter;
	for (i = 0; i < 2 && s->interval > 0; i++)
		s->means[i] = mean64(s->means[i],
							 min64(muldiv64(delta, 1000000, s->interval), 1000000),
							 s->interval, min64(s->watched_us, stall_windows[i]));
	return s->means[1];
}

/*
 * A value, of that time; the same time again is the same value.  For a budget
 * "other" is the time that is left, for a ramp the bytes that are the whole.
 * Of DT_IO_PRESSURE the value is a counter of microseconds.  With the law
 * latency both are counters, of commits and of the microseconds they took; the
 * next step makes a value of them.
 */
void
dt_pressure_read(DtPressure *p, DtSignal signal, int64_t value, int64_t other,
				 int64_t now)
{
	DtSignalReading *s = &p->signal[signal];

	now = clock64(now);
	if (now == s->read_at)
		return;
	s->interval = s->read_at != 0 ? advanced(s->read_at, now) : 0;
	s->watched_us += min64(s->interval, SECOND_US);
	s->read_at = now;
	s->is_new = true;
	if (signal == DT_IO_PRESSURE)
		s->value = mean_stall(s, value);
	else
	{
		s->value = max64(value, 0);
		s->other = max64(other, 0);
	}
}

/*
 * There is nothing to measure: no standby, no slot.  It presses nobody from
 * now on.  When a value just cannot be read, do not call this, nor the one
 * above: then it goes stale.
 */
void
dt_pressure_absent(DtPressure *p, DtSignal signal)
{
	memset(&p->signal[signal], 0, sizeof(DtSignalReading));
}

/* How old is each reading? */
static void
update_states(DtPressure *p, int64_t now)
{
	int			i;

	for (i = 0; i < DT_SIGNALS; i++)
	{
		DtSignalReading *s = &p->signal[i];

		if (s->read_at == 0)
			continue;
		if (now < s->read_at)
			s->read_at = now;	/* the clock was set back */
		if (now - s->read_at <= DT_STALE_US)
			s->state = DT_SIGNAL_FRESH;
		else if (now - s->read_at <= DT_STALE_US + DT_STALE_COUNTS_US)
			s->state = DT_SIGNAL_STALE;
		else
			dt_pressure_absent(p, i);
	}
}

/* How fast g uses everything, and what of it goes into levels. */
static void
update_use_of(DtPressure *p, DtPressureGroup *g, int64_t dt)
{
	int			r;
	int			s;

	g->watched_us = min64(g->watched_us + min64(dt, USE_WINDOW_US),
						  USE_WINDOW_US);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64_t		delta = advanced(g->last_used[r], g->used[r]);

		g->last_used[r] = g->used[r];
		if (dt == 0)
			continue;
		g->use_now[r] = dt_speed(delta, dt);
		g->use_rate[r] = mean64(g->use_rate[r], dt_speed(delta, dt), dt,
								g->watched_us);
		for (s = 0; s < DT_SIGNALS; s++)
			if (g->threshold[s] > 0 && dt_signals[s].resource == r)
				p->signal[s].written = add64(p->signal[s].written, delta);
	}
}

static void
update_use(DtPressure *p, DtPressureGroup *const *groups, int n, int64_t wal,
		   int64_t now)
{
	int64_t		dt = p->stepped_at != 0 ? advanced(p->stepped_at, now) : 0;
	int			i;

	if (now == p->stepped_at)
		return;
	if (dt > 0)
	{
		p->watched_us = min64(p->watched_us + min64(dt, USE_WINDOW_US),
							  USE_WINDOW_US);
		p->wal_now = dt_speed(advanced(p->wal, wal), dt);
		p->wal_rate = mean64(p->wal_rate, p->wal_now, dt, p->watched_us);
	}
	p->wal = wal;
	for (i = 0; i < n; i++)
		update_use_of(p, groups[i], dt);
	p->stepped_at = now;
}

/* ----------------------------------------------------------------- sharing */

/* Does g take part in sharing what signal s leaves to the groups? */
static bool
takes_part(const DtPressureGroup *g, DtSignal s)
{
	return g->threshold[s] > 0 && !g->observe;
}

/*
 * What it would use if it were not limited to what it uses now.  One that has
 * just begun wants what it uses now, so that others make room at once.
 */
static int64_t
wants(const Sharing *sh, const DtPressureGroup *g)
{
	int64_t		use = max64(g->use_rate[sh->resource],
							g->use_now[sh->resource]);

	return use + use / 4;
}

static void
sum_up(Sharing *sh)
{
	int			i;

	sh->all = -1;
	for (i = 0; i < sh->n; i++)
	{
		const DtPressureGroup *g = sh->groups[i];

		if (takes_part(g, sh->signal))
		{
			sh->used += g->use_rate[sh->resource];
			sh->used_now += g->use_now[sh->resource];
			sh->weights += g->weight;
		}
		else if (g->threshold[sh->signal] > 0)
			sh->observed += g->use_rate[sh->resource];
		if (g->threshold[sh->signal] > 0)
			sh->rest += min64(g->floor, g->use_now[sh->resource]);
	}
}

/* The use of the groups that share, with g. */
static int64_t
use_of_all(const Sharing *sh, const DtPressureGroup *g)
{
	return sh->used +
		(takes_part(g, sh->signal) ? 0 : g->use_rate[sh->resource]);
}

/*
 * What is used by those who do not share, of what the law has counted.  From a
 * budget of each second a burst of others is taken away at once, unless it is
 * small, which is three times what ask_law() leaves free: members are charged a
 * little later than they write.
 */
static int64_t
use_of_others(const DtPressure *p, const Sharing *sh, const DtPressureGroup *g)
{
	int64_t		mean = max64(p->wal_rate - use_of_all(sh, g), 0);

	if (dt_signals[sh->signal].law == DT_LAW_LATENCY)
		return 0;				/* it is not about them */
	if (dt_signals[sh->signal].law == DT_LAW_RATE)
	{
		int64_t		now = p->wal_now - sh->used_now -
			(takes_part(g, sh->signal) ? 0 : g->use_now[DT_WAL]);

		return now > mean + g->threshold[sh->signal] / 20 ?
			now : mean;
	}
	if (sh->resource == DT_WAL)
		return mean;
	return sh->observed -
		(takes_part(g, sh->signal) ? 0 : g->use_rate[sh->resource]);
}

/*
 * What g is to get less, or more, than its share by weight: its floor, or what
 * it wants.
 */
static int64_t
bound_of(const Sharing *sh, const DtPressureGroup *g, bool floor)
{
	return floor ? min64(max64(g->floor, 0), wants(sh, g)) : wants(sh, g);
}

/*
 * Settle those who would get less than their floor, or more than they want.
 * Returns by how much that changes what is left to the others.
 */
static int64_t
settle(Sharing *sh, bool floor, bool only_sum)
{
	int64_t		left = sh->left;
	int64_t		weights = sh->left_weights;
	int64_t		sum = 0;
	int			i;

	for (i = 0; i < sh->n; i++)
	{
		DtPressureGroup *g = sh->groups[i];
		int64_t		beyond;

		if (g->settled >= 0)
			continue;
		beyond = bound_of(sh, g, floor) - muldiv64(left, g->weight, weights);
		if (floor ? beyond <= 0 : beyond > 0)
			continue;
		sum += floor ? beyond : -beyond;
		if (only_sum)
			continue;
		g->settled = bound_of(sh, g, floor);
		sh->left = max64(sh->left - g->settled, 0);
		sh->left_weights -= g->weight;
		sum = max64(sum, 1);
	}
	return sum;
}

/*
 * Split what all that use the signal may use together by weight, as water
 * fills vessels: nobody gets less than his floor, and who wants less than his
 * share leaves it to the others.  What moves more water comes first.
 */
static void
split(Sharing *sh, int64_t all)
{
	int			i;

	if (all == sh->all)
		return;					/* groups with the same threshold */
	sh->all = sh->left = all;
	sh->left_weights = sh->weights;
	for (i = 0; i < sh->n; i++)
		sh->groups[i]->settled = takes_part(sh->groups[i], sh->signal) ? -1 : 0;
	while (sh->left_weights > 0 &&
		   settle(sh, settle(sh, true, true) > settle(sh, false, true),
				  false) > 0)
		;
}

/* The share of g, if it used all of it. */
static int64_t
share_of(Sharing *sh, DtPressureGroup *g, int64_t all)
{
	split(sh, all);
	return muldiv64(sh->left + max64(g->settled, 0), g->weight,
					max64(sh->left_weights +
						  (g->settled < 0 ? 0 : g->weight), 1));
}

/* -------------------------------------------------------------------- laws */

/*
 * At the first step the law of a group that is limited goes on from there;
 * the other laws learn quickly enough where they should be.
 */
static void
start_law(const Sharing *sh)
{
	int64_t		sum = 0;
	int			i;

	for (i = 0; i < sh->n; i++)
		if (takes_part(sh->groups[i], sh->signal))
			sum += sh->groups[i]->rate[sh->resource];
	for (i = 0; i < sh->n; i++)
		if (sh->groups[i]->rate[sh->resource] > 0)
			sh->groups[i]->law[sh->signal].rate =
				max64(sum, sh->groups[i]->rate[sh->resource]);
}

/*
 * May a law limit g?  What is written by somebody else is no reason to begin
 * with a group that writes less than its floor.  One that is limited, or was a
 * moment ago, may write little for that.
 */
static bool
may_press(const DtPressureGroup *g, DtResource r)
{
	return g->use_rate[r] > g->floor ||
		(g->ease_us[r] > 0 && g->rate[r] != g->limit[r]);
}

/*
 * Ask the law: how fast may all go that use the signal?  Sets the pressure, if
 * the signal has a value.
 */
static int64_t
ask_law(DtPressure *p, DtPressureGroup *g, const Sharing *sh)
{
	DtSignal	s = sh->signal;
	const DtSignalKind *kind = &dt_signals[s];
	DtSignalReading *reading = &p->signal[s];
	const DtDrain *d = kind->law == DT_LAW_LEVEL ? &reading->drain : g->drain[s];
	DtLaw	   *law = &g->law[s];
	int64_t		threshold = g->threshold[s];
	int64_t		value = reading->value;
	int64_t		per = threshold;
	int64_t		dt = min64(reading->interval, STEP_MAX_US);
	bool		ask = reading->is_new && may_press(g, sh->resource);
	int64_t		rate = 0;

	switch (kind->law)
	{
		case DT_LAW_ZONES:
		case DT_LAW_LEVEL:
			if (d == NULL)
			{
				memset(law, 0, sizeof(*law));
				return DT_FREE;
			}
			value = dt_drain_backlog(d);
			if (kind->unit == DT_UNIT_US)
			{
				value = dt_drain_lag_us(d);
				threshold = dt_drain_knows(d) ?
					muldiv64(d->capacity, threshold, SECOND_US) : INT64_MAX;
			}
			dt = min64(advanced(law->seen_at, d->seen_at), STEP_MAX_US);
			if (d->seen_at != law->seen_at && may_press(g, sh->resource))
				dt_law_zones(law, d, threshold, dt);
			law->seen_at = d->seen_at;
			break;
		case DT_LAW_BUDGET:
			rate = dt_law_budget(value, reading->other);
			value = p->wal_rate;
			per = rate;
			break;
		case DT_LAW_RATE:
			/* what is free is for what others begin to write */
			rate = threshold - threshold / 60;
			value = p->wal_rate;
			break;
		case DT_LAW_RAMP:
			if (ask)
				dt_law_ramp(law, muldiv64(threshold - value, reading->other, 1000000),
							muldiv64(threshold / 2, reading->other, 1000000),
							RAMP_US, dt);
			break;
		case DT_LAW_RESERVE:
			if (ask)
				dt_law_ramp(law, value - threshold, threshold, RESERVE_US, dt);
			value = threshold;
			per = reading->value;
			break;
		case DT_LAW_BRAKE:
			if (s == DT_REPORTED && g->reported < 0)
			{
				memset(law, 0, sizeof(*law));
				return DT_FREE;
			}
			value = s == DT_REPORTED ? g->reported :
				min64(reading->means[0], reading->means[1]);
			if (ask)
				dt_law_brake(law, value, s == DT_REPORTED ? value :
							 max64(reading->means[0], reading->means[1]),
							 threshold, use_of_all(sh, g), dt);
			break;
		case DT_LAW_LATENCY:
			{
				int64_t		share = g->by_share[s] ? threshold : 0;

				threshold = muldiv64(threshold, 1000, 1);
				per = dt_latency_threshold(&reading->latency, threshold,
										   share);
				value = per > 0 ? reading->latency.recent : 0;
				if (reading->is_new)
					rate = dt_law_latency(law, &reading->latency, threshold,
										  share, !g->observe);
				g->probed = !g->observe && reading->latency.probe_us > 0;
				break;
			}
	}
	g->pressures[s] = clamp64(muldiv64(value, 1000, max64(per, 1)),
							  0, DT_PRESSURE_MAX);
	if (rate > 0 || kind->law == DT_LAW_BUDGET)
		return rate;
	return law->rate > 0 ? law->rate : DT_FREE;
}

/* What signal sh->signal leaves to each group; who has none gets all zeros. */
static void
set_shares(DtPressure *p, Sharing *sh)
{
	DtSignal	s = sh->signal;
	int			i;

	for (i = 0; i < sh->n; i++)
	{
		DtPressureGroup *g = sh->groups[i];
		int64_t		rate;
		int64_t		others;

		g->pressures[s] = -1;
		g->share[s] = 0;
		g->probed &= dt_signals[s].law != DT_LAW_LATENCY;
		if (g->threshold[s] <= 0 || p->signal[s].state == DT_SIGNAL_ABSENT)
		{
			memset(&g->law[s], 0, sizeof(g->law[s]));
			continue;
		}
		rate = ask_law(p, g, sh);
		if (rate == DT_FREE)
			continue;
		others = use_of_others(p, sh, g);
		if (s == DT_CHECKPOINT)
		{
			g->others = others;
			g->others_least = max64(others - use_of_all(sh, g) / UNCHARGED, 0);
			if (g->out_of_reach)
				continue;
		}
		g->share[s] = max64(share_of(sh, g, max64(rate - others, 0)), 1);
	}
}

/* ------------------------------------------------------------------- rates */

/*
 * Set the rate of g to what its signals leave to it, or DT_FREE; easing says
 * for how long it is let go slowly after that.
 */
static void
set_rate(DtPressureGroup *g, DtResource r, int64_t rate, int64_t easing,
		 int64_t dt)
{
	int64_t		limit = g->limit[r] > 0 ? g->limit[r] : DT_FREE;
	int64_t		floor = min64(max64(g->floor, 1), limit);
	int64_t		before = g->rate[r];
	bool		free = rate == DT_FREE;

	g->ease_us[r] = !free ? easing :
		g->redefined ? 0 : max64(g->ease_us[r] - dt, 0);
	if (free && before > 0 && g->ease_us[r] > 0)
	{
		rate = before + muldiv64(before, 7 * dt, 10 * SECOND_US) + 1;
		if (g->watched_us >= USE_WINDOW_US && rate / 8 > g->use_rate[r])
		{
			g->ease_us[r] = 0;
			rate = DT_FREE;
		}
	}
	rate = clamp64(rate, floor, limit);
	if (before >= floor && before <= limit && rate > floor && rate < limit &&
		rate - before < before / CHANGE_MIN &&
		before - rate < before / CHANGE_MIN)
		rate = before;
	g->rate[r] = rate < DT_RATE_MAX ? rate : g->limit[r];
}

/* Set the rates of g, the signal that decides, and the worst one. */
static void
set_rates(const DtPressure *p, DtPressureGroup *g, int64_t now, int64_t dt)
{
	int64_t		rates[DT_RESOURCES];
	int64_t		easing[DT_RESOURCES] = {0};
	int			r;
	int			s;

	g->signal = -1;
	g->pressure = 0;
	for (r = 0; r < DT_RESOURCES; r++)
		rates[r] = DT_FREE;
	for (s = 0; s < DT_SIGNALS; s++)
	{
		if (g->pressures[s] >= 0 &&
			(g->signal == -1 || g->pressures[s] > g->pressure))
		{
			g->signal = s;
			g->pressure = g->pressures[s];
		}
		if (g->share[s] == 0)
			continue;
		r = dt_signals[s].resource;
		if (g->share[s] < rates[r])
		{
			rates[r] = g->share[s];
			g->decides[r] = s;
		}
		if (dt_signals[s].law == DT_LAW_LATENCY)
			continue;			/* a probe is over at once */
		/* when a stale value ceases to count, this is over */
		easing[r] = max64(easing[r],
						  min64(EASE_US, p->signal[s].read_at + DT_STALE_US +
								DT_STALE_COUNTS_US - now));
	}
	for (r = 0; r < DT_RESOURCES; r++)
		set_rate(g, r, rates[r], easing[r], dt);
	g->redefined = false;
}

/*
 * Work out the rates of all groups.  One without any threshold, or with all
 * zeros, may be among them, and gets its fixed limits.  "wal" is the position
 * of the last WAL written, by anybody, in bytes.
 */
void
dt_pressure_step(DtPressure *p, DtPressureGroup *const *groups, int n,
				 int64_t wal, int64_t now)
{
	bool		first = p->stepped_at == 0;
	int64_t		dt;
	int			i;
	int			s;

	now = clock64(now);
	dt = first ? 0 : min64(advanced(p->stepped_at, now), STEP_MAX_US);
	update_states(p, now);
	update_use(p, groups, n, wal, now);
	for (i = 0; i < n; i++)
		groups[i]->others = groups[i]->others_least = 0;
	for (s = 0; s < DT_SIGNALS; s++)
	{
		DtSignalReading *reading = &p->signal[s];
		Sharing		sh = {.signal = s,.resource = dt_signals[s].resource,
		.groups = groups,.n = n};

		if (reading->is_new && dt_signals[s].law == DT_LAW_LEVEL)
			dt_drain_sample_level(&reading->drain, reading->written,
								  reading->value, reading->read_at);
		sum_up(&sh);
		if (reading->is_new && dt_signals[s].law == DT_LAW_LATENCY)
		{
			DtLatencyReading commits = {
				.commits = reading->value,.us = reading->other,
				.waiting = reading->waiting,.used = sh.used + sh.observed,
				.used_now = sh.used_now,.rest = sh.rest,
				.now = reading->read_at
			};

			dt_latency_read(&reading->latency, &commits);
			reading->value = reading->latency.recent / 1000;
		}
		if (first && (dt_signals[s].law == DT_LAW_BRAKE ||
					  dt_signals[s].law == DT_LAW_LATENCY))
			start_law(&sh);
		set_shares(p, &sh);
		if (s == DT_WAL_RATE)
			reading->value = p->wal_rate;
		reading->is_new = false;
	}
	for (i = 0; i < n; i++)
		set_rates(p, groups[i], now, dt);
}
