/*-------------------------------------------------------------------------
 *
 * pressure.c
 *		Limits that follow the server's pressure.
 *
 * A step brings the readings up to date and asks, for each group and each
 * signal that it uses, the signal's law (law.c) how fast all groups that use
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
#include "engine/pressure.h"

#include <string.h>

#define SECOND_US		INT64_C(1000000)

/* Longer than this since the last step is as this. */
#define STEP_MAX_US		SECOND_US

/* Rates of use are means over that time. */
#define USE_WINDOW_US	SECOND_US

/*
 * A sample of the buffers is off by a percent of all, which is much beside
 * what can be dirtied between two samples; hence a mean over an eighth of the
 * time in which they drain.
 */
#define SAMPLE_MIN_US	(2 * SECOND_US)
#define SAMPLE_MAX_US	(8 * SECOND_US)

/* The two windows of DT_IO_PRESSURE. */
static const int64_t stall_windows[] = {2 * SECOND_US, 10 * SECOND_US};

/*
 * A group that is not limited any more is let go slowly: its rate doubles in a
 * second, for EASE_US at most, as the signal may be back at once.  Not so when
 * it is free because the user has said so.
 */
#define EASE_US			(10 * SECOND_US)

/* A change by less than this part is not worth waking all members. */
#define CHANGE_MIN		64

void
dt_pressure_init(DtPressure *p)
{
	memset(p, 0, sizeof(*p));
}

void
dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
					   const int64_t *used)
{
	int			r;

	memset(g, 0, sizeof(*g));
	g->floor = DT_PRESSURE_DEFAULT_FLOOR;
	g->signal = -1;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		g->rate[r] = rate[r];
		g->decides[r] = -1;
		g->used[r] = g->last_used[r] = used[r];
		g->ease_us[r] = rate[r] > 0 ? EASE_US : 0;
	}
}

void
dt_pressure_group_redefined(DtPressureGroup *g)
{
	g->redefined = true;
}

void
dt_pressure_group_restart(DtPressureGroup *g, DtSignal signal)
{
	memset(&g->law[signal], 0, sizeof(g->law[signal]));
	if (signal == DT_REPLICA_LAG)
		g->drain_seen_at = 0;
}

/* There is a new reading.  Returns the time since the last one, or 0. */
static int64_t
set_read(DtSignalReading *s, int64_t now)
{
	now = clock64(now);
	s->interval = s->read_at != 0 ? advanced(s->read_at, now) : 0;
	s->watched_us += min64(s->interval, SECOND_US);
	s->read_at = now;
	s->is_new = true;
	return s->interval;
}

/* Over what time is the value a mean? */
static int64_t
sample_window(DtSignal signal, const DtSignalReading *s)
{
	if (signal != DT_DIRTY_BUFFERS)
		return 0;
	return min64(s->watched_us, clamp64(dt_drain_lag_us(&s->drain) / 8,
										SAMPLE_MIN_US, SAMPLE_MAX_US));
}

void
dt_pressure_read(DtPressure *p, DtSignal signal, int64_t value, int64_t now)
{
	DtSignalReading *s = &p->signal[signal];
	bool		first = s->read_at == 0;
	int64_t		dt = set_read(s, now);

	value = max64(value, 0);
	s->value = first ? value :
		mean64(s->value, value, dt, sample_window(signal, s));
}

void
dt_pressure_read_drains(DtPressure *p, const DtDrain *drains, int n,
						int64_t now)
{
	DtSignalReading *s = &p->signal[DT_REPLICA_LAG];
	const DtDrain *worst = dt_drain_worst(drains, n, 0, now);

	p->drains = drains;
	p->n_drains = n;
	if (worst == NULL)
		dt_pressure_absent(p, DT_REPLICA_LAG);
	else if (worst->seen_at != s->read_at && worst->seen_at <= clock64(now))
	{
		set_read(s, worst->seen_at);
		s->value = dt_drain_lag_us(worst);
	}
}

void
dt_pressure_read_budget(DtPressure *p, int64_t bytes_left, int64_t time_left,
						int64_t now)
{
	DtSignalReading *s = &p->signal[DT_CHECKPOINT];

	set_read(s, now);
	s->value = max64(bytes_left, 0);
	s->time_left = max64(time_left, 0);
}

void
dt_pressure_read_stall(DtPressure *p, int64_t stalled, int64_t now)
{
	DtSignalReading *s = &p->signal[DT_IO_PRESSURE];
	int64_t		delta = advanced(s->stalled, stalled);
	int64_t		dt = set_read(s, now);
	int			i;

	s->stalled = stalled;
	if (dt == 0)
		return;					/* the first one, or the clock was set back */
	for (i = 0; i < 2; i++)
		s->means[i] = mean64(s->means[i],
							 min64(muldiv64(delta, 1000000, dt), 1000000),
							 dt, min64(s->watched_us, stall_windows[i]));
	s->value = s->means[1];
}

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

/* Does g take part in sharing what signal s leaves to the groups? */
static bool
takes_part(const DtPressureGroup *g, DtSignal s)
{
	return g->threshold[s] > 0 && !g->observe;
}

/*
 * At the first step the brake of a group that is limited goes on from there;
 * the other laws learn quickly enough where they should be.
 */
static void
start_brakes(DtPressureGroup *groups, int n)
{
	int64_t		sum = 0;
	int			i;

	for (i = 0; i < n; i++)
		if (takes_part(&groups[i], DT_IO_PRESSURE))
			sum += groups[i].rate[DT_DIRTY];
	for (i = 0; i < n; i++)
		if (groups[i].rate[DT_DIRTY] > 0)
			groups[i].law[DT_IO_PRESSURE].rate =
				max64(sum, groups[i].rate[DT_DIRTY]);
}

/* How fast everything is used, up to now; what goes into the queues. */
static void
update_use(DtPressure *p, DtPressureGroup *groups, int n, int64_t wal,
		   int64_t now)
{
	int64_t		dt = p->stepped_at != 0 ? advanced(p->stepped_at, now) : 0;
	int			i;
	int			s;

	if (now == p->stepped_at)
		return;
	if (dt > 0)
	{
		p->watched_us = min64(p->watched_us + min64(dt, USE_WINDOW_US),
							  USE_WINDOW_US);
		p->wal_rate = mean64(p->wal_rate, dt_speed(advanced(p->wal, wal), dt),
							 dt, p->watched_us);
	}
	p->wal = wal;
	for (i = 0; i < n; i++)
	{
		DtPressureGroup *g = &groups[i];
		int64_t		delta[DT_RESOURCES];
		int			r;

		if (dt > 0)
			g->watched_us = min64(g->watched_us + min64(dt, USE_WINDOW_US),
								  USE_WINDOW_US);
		for (r = 0; r < DT_RESOURCES; r++)
		{
			delta[r] = advanced(g->last_used[r], g->used[r]);
			if (dt > 0)
				g->use_rate[r] = mean64(g->use_rate[r], dt_speed(delta[r], dt),
										dt, g->watched_us);
			g->last_used[r] = g->used[r];
		}
		for (s = 0; s < DT_SIGNALS; s++)
			if (dt > 0 && g->threshold[s] > 0)
				p->signal[s].written = add64(p->signal[s].written,
											 delta[dt_signal_resource(s)]);
	}
	p->stepped_at = now;
}

/*
 * Bring the queues that belong to a value up to date.  A value that is a mean,
 * hence late, belongs to a position that is as late.
 */
static void
update_queues(DtPressure *p)
{
	static const DtSignal levels[] = {DT_DIRTY_BUFFERS, DT_KERNEL_DIRTY};
	DtSignalReading *s = &p->signal[DT_SLOT_LAG];
	int			i;

	if (s->is_new)
		dt_drain_sample(&s->drain, p->wal, add64(p->wal, -s->value),
						s->read_at);
	for (i = 0; i < 2; i++)
	{
		s = &p->signal[levels[i]];
		if (!s->is_new)
			continue;
		s->entered = add64(s->entered,
						   mean64(0, advanced(s->entered, s->written),
								  s->interval, sample_window(levels[i], s)));
		dt_drain_sample_level(&s->drain, s->entered, s->value, s->read_at);
	}
}

/* A group without a fixed limit counts as much as the largest. */
static int64_t
weight(const DtSignalReading *reading, const DtPressureGroup *g, DtResource r)
{
	return g->limit[r] > 0 ? g->limit[r] : reading->largest;
}

/* What it would use if it were not limited to what it uses now. */
static int64_t
wants(const DtPressureGroup *g, DtResource r)
{
	return g->use_rate[r] + g->use_rate[r] / 4;
}

/* What there is to know, in this step, of all groups that use the signal. */
static void
sum_up(DtPressure *p, const DtPressureGroup *groups, int n, DtSignal s)
{
	DtSignalReading *reading = &p->signal[s];
	DtResource	r = dt_signal_resource(s);
	int			i;

	reading->used = reading->observed = reading->weights = 0;
	reading->largest = 1;
	reading->split = -1;
	for (i = 0; i < n; i++)
	{
		if (takes_part(&groups[i], s))
		{
			reading->used += groups[i].use_rate[r];
			reading->largest = max64(reading->largest, groups[i].limit[r]);
		}
		else if (groups[i].threshold[s] > 0)
			reading->observed += groups[i].use_rate[r];
	}
	for (i = 0; i < n; i++)
		if (takes_part(&groups[i], s))
			reading->weights += weight(reading, &groups[i], r);
}

/* The use of the groups that share, with g. */
static int64_t
use_of_all(const DtPressure *p, const DtPressureGroup *g, DtSignal s)
{
	return p->signal[s].used +
		(takes_part(g, s) ? 0 : g->use_rate[dt_signal_resource(s)]);
}

/* What is used by those who do not share, of what the law has counted. */
static int64_t
use_of_others(const DtPressure *p, const DtPressureGroup *g, DtSignal s)
{
	if (dt_signal_resource(s) == DT_WAL)
		return max64(p->wal_rate - use_of_all(p, g, s), 0);
	return p->signal[s].observed -
		(takes_part(g, s) ? 0 : g->use_rate[DT_DIRTY]);
}

/*
 * Split what all that use the signal may use together in proportion to the
 * fixed limits.  Who wants less than his share leaves it to the others.
 */
static void
split(DtSignalReading *reading, DtPressureGroup *groups, int n, DtSignal s,
	  int64_t all)
{
	DtResource	r = dt_signal_resource(s);
	bool		again = true;
	int			i;

	if (all == reading->split)
		return;					/* groups with the same threshold */
	reading->split = reading->left = all;
	reading->left_weights = reading->weights;
	for (i = 0; i < n; i++)
		groups[i].is_content[s] = false;
	while (again)
	{
		again = false;
		for (i = 0; i < n && reading->left_weights > 0; i++)
		{
			DtPressureGroup *g = &groups[i];

			if (!takes_part(g, s) || g->is_content[s] ||
				wants(g, r) > muldiv64(reading->left, weight(reading, g, r),
									   reading->left_weights))
				continue;
			reading->left -= wants(g, r);
			reading->left_weights -= weight(reading, g, r);
			g->is_content[s] = true;
			again = true;
		}
	}
}

/* The share of g, if it used all of it. */
static int64_t
share_of(DtPressure *p, DtPressureGroup *groups, int n, DtPressureGroup *g,
		 DtSignal s, int64_t all)
{
	DtSignalReading *reading = &p->signal[s];
	DtResource	r = dt_signal_resource(s);
	int64_t		mine = weight(reading, g, r);

	split(reading, groups, n, s, all);
	if (!takes_part(g, s))
		return muldiv64(reading->left, mine, reading->left_weights + mine);
	if (g->is_content[s])
		return muldiv64(reading->left + wants(g, r), mine,
						reading->left_weights + mine);
	return muldiv64(reading->left, mine, reading->left_weights);
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
 * Ask the law: how fast may all go that use signal s?  Sets the pressure, if
 * the signal has a value.
 */
static int64_t
ask_law(DtPressure *p, DtPressureGroup *g, DtSignal s, int64_t now)
{
	const DtSignalReading *reading = &p->signal[s];
	DtLaw	   *law = &g->law[s];
	int64_t		threshold = g->threshold[s];
	int64_t		dt = min64(reading->interval, STEP_MAX_US);
	int64_t		value = reading->value;
	bool		ask = reading->is_new && may_press(g, dt_signal_resource(s));
	const DtDrain *d;
	int64_t		rate;

	switch (s)
	{
		case DT_REPLICA_LAG:
			d = dt_drain_worst(p->drains, p->n_drains, g->ignore, now);
			if (d == NULL)
			{
				memset(law, 0, sizeof(*law));
				return DT_FREE;
			}
			value = dt_drain_lag_us(d);
			dt = min64(advanced(g->drain_seen_at, d->seen_at), STEP_MAX_US);
			ask = d->seen_at != g->drain_seen_at && may_press(g, dt_signal_resource(s));
			g->drain_seen_at = d->seen_at;
			if (ask)
				dt_law_zones(law, d, dt_drain_knows(d) ?
							 muldiv64(d->capacity, threshold, SECOND_US) :
							 INT64_MAX, 0, dt);
			break;
		case DT_CHECKPOINT:
			rate = dt_law_budget(value, reading->time_left);
			g->pressures[s] = clamp64(muldiv64(p->wal_rate, 1000,
											   max64(rate, 1)),
									  0, DT_PRESSURE_MAX);
			return rate;
		case DT_IO_PRESSURE:
			value = min64(reading->means[0], reading->means[1]);
			if (ask)
				dt_law_brake(law, value,
							 max64(reading->means[0], reading->means[1]),
							 threshold, use_of_all(p, g, s), dt);
			break;
		default:
			if (ask)
				dt_law_zones(law, &reading->drain, threshold,
							 sample_window(s, reading), dt);
	}
	g->pressures[s] = clamp64(muldiv64(value, 1000, threshold),
							  0, DT_PRESSURE_MAX);
	return law->rate > 0 ? law->rate : DT_FREE;
}

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

/* Set the rates of g, one of the groups, and the signal that decides. */
static void
set_rates(DtPressure *p, DtPressureGroup *groups, int n, DtPressureGroup *g,
		  int64_t now, int64_t dt)
{
	int64_t		rates[DT_RESOURCES];
	int64_t		easing[DT_RESOURCES] = {0};
	int			r;
	int			s;

	g->budget = g->others = 0;
	for (r = 0; r < DT_RESOURCES; r++)
		rates[r] = DT_FREE;
	for (s = 0; s < DT_SIGNALS; s++)
	{
		const DtSignalReading *reading = &p->signal[s];
		int64_t		rate;
		int64_t		others;
		int64_t		share;

		g->pressures[s] = -1;
		g->share[s] = 0;
		if (g->threshold[s] <= 0 || reading->state == DT_SIGNAL_ABSENT)
		{
			memset(&g->law[s], 0, sizeof(g->law[s]));
			continue;
		}
		rate = ask_law(p, g, s, now);
		if (rate == DT_FREE)
			continue;
		others = use_of_others(p, g, s);
		if (s == DT_CHECKPOINT)
		{
			g->budget = rate;
			g->others = others;
		}
		rate -= others;
		r = dt_signal_resource(s);
		share = share_of(p, groups, n, g, s, max64(rate, 0));
		g->share[s] = max64(share, 1);
		if (share < rates[r])
		{
			rates[r] = share;
			g->decides[r] = s;
		}
		/* when a stale value ceases to count, this is over */
		easing[r] = max64(easing[r],
						  min64(EASE_US, reading->read_at + DT_STALE_US +
								DT_STALE_COUNTS_US - now));
	}
	for (r = 0; r < DT_RESOURCES; r++)
		set_rate(g, r, rates[r], easing[r], dt);
	g->redefined = false;
}

void
dt_pressure_step(DtPressure *p, DtPressureGroup *groups, int n, int64_t wal,
				 int64_t now)
{
	int64_t		dt;
	int			i;
	int			s;

	now = clock64(now);
	dt = p->stepped_at != 0 ?
		min64(advanced(p->stepped_at, now), STEP_MAX_US) : 0;
	if (p->stepped_at == 0)
		start_brakes(groups, n);
	update_states(p, now);
	update_use(p, groups, n, wal, now);
	update_queues(p);
	for (s = 0; s < DT_SIGNALS; s++)
		sum_up(p, groups, n, s);
	for (i = 0; i < n; i++)
	{
		DtPressureGroup *g = &groups[i];

		set_rates(p, groups, n, g, now, dt);
		g->signal = -1;
		g->pressure = 0;
		for (s = 0; s < DT_SIGNALS; s++)
			if (g->pressures[s] >= 0 &&
				(g->signal == -1 || g->pressures[s] > g->pressure))
			{
				g->signal = s;
				g->pressure = g->pressures[s];
			}
	}
	for (s = 0; s < DT_SIGNALS; s++)
		p->signal[s].is_new = false;
}
