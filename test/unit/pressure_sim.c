/*-------------------------------------------------------------------------
 *
 * pressure_sim.c
 *		Simulator for the laws of pressure.
 *
 * A model of what a signal measures, some groups with jobs that write as fast
 * as they may, others who write at a speed of their own, and the sampler, five
 * times a second, with readings that are late.  What is asserted holds over a
 * grid of all that: capacities of 1 to 1000 MB/s, delays of 0.1 to 2 s,
 * thresholds of 0.5 to 30 s, other load, noise, and steps of the capacity.
 *
 * In the steady state jobs swing by at most 20 % of their mean (and by what the
 * others swing), 95 % of the drain is used, and the mean is at the set point,
 * two thirds of the threshold.  It is reached within 10 thresholds or 20 s,
 * but not before a backlog has drained: settling() says how long that takes.
 * Where less is promised, and why:
 *
 * - What is on its way is part of what is behind.  With a delay of more than
 *   two thirds of the threshold that ends at the floor; up to six tenths the
 *   standby is busy.  When the capacity has risen, that is only seen if there is
 *   room for a queue: up to a delay of half the threshold when it is doubled, of
 *   a third otherwise.  That needs 40 s from half the threshold on.
 * - When all of the loop is late (both what was written and what has drained),
 *   the queue goes on for so long as it did before: up to half the threshold.
 *   No signal is like that, but members may follow late.
 * - When the capacity is halved, so is the speed at which the queue drains; it
 *   stood at two thirds, so this is 1.33 thresholds at once, and more by what
 *   is written until that is seen: test_example() wants 1.7 at most for 2 s,
 *   and less than 1.3 within 4 s.
 *
 *		pressure_sim			a part of the grid, in seconds
 *		pressure_sim --all		all of it
 *		pressure_sim --print [KEY=VALUE]...		one simulation, every second
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <string.h>

#include "engine/control.h"
#include "random.h"
#include "tap.h"

#define TICK_US		INT64_C(50000)
#define TICK		0.05		/* seconds */
#define CYCLE_US	INT64_C(200000)
#define HISTORY		64			/* ticks; a delay is less */
#define MB			1e6
#define MAX_GROUPS	3

/* One for each way of reading them. */
static const DtSignal signals[] = {DT_REPLICA_LAG, DT_SLOT_LAG,
DT_CHECKPOINT, DT_DIRTY_BUFFERS, DT_KERNEL_DIRTY, DT_IO_PRESSURE};

#define N_SIGNALS	6
#define START_US	INT64_C(1000000000000)
#define THRESHOLD_SHARE	200000	/* of dirty_buffers, in 1e-6 */

/* What the signal measures. */
typedef enum Model
{
	QUEUE,						/* a standby, or a slot: WAL drains */
	LEVEL,						/* dirty memory: others fill and drain it, too */
	SHARE,						/* of the time that somebody waits for I/O */
	INTERVAL					/* WAL until a checkpoint is forced */
} Model;

typedef struct Setup
{
	DtSignal	signal;
	double		capacity;		/* bytes/s */
	double		delay;			/* seconds until a reading arrives */
	bool		transit;		/* only what drained is late: it is on its way */
	double		report;			/* seconds between the standby's replies */
	double		jitter;			/* seconds that a reply is later at times */
	double		lump;			/* seconds between two steps of the drain */
	double		act;			/* seconds until a rate has an effect */
	double		threshold;		/* seconds at the first capacity; share */
	double		other;			/* what others write, part of the capacity */
	double		noise;			/* of capacity and others, as a part */
	double		sampling;		/* noise of the value, in thresholds */
	double		step;			/* capacity is multiplied by that ... */
	double		step_at;		/* ... at this time, ... */
	double		step_end;		/* ... until then */
	double		wants[MAX_GROUPS];	/* of each job, bytes/s, and ... */
	double		begin;			/* ... from this time on, ... */
	double		on;				/* ... for so many seconds, ... */
	double		off;			/* ... and not for so many; 0: always */
	double		limit[MAX_GROUPS];	/* fixed limits */
	int			weight[MAX_GROUPS]; /* 0 is as 1 */
	int			groups;
	double		restart;		/* the controller every so many seconds */
	double		blind_at;		/* no fresh readings ... */
	double		blind_end;
	bool		gone;			/* ... as there is nothing to measure */
	double		interval;		/* checkpoints: seconds, and ... */
	double		end;			/* seconds */
	double		from;			/* seconds: measure from here */
	bool		print;
} Setup;

typedef struct Result
{
	double		mean;			/* rate of all jobs, bytes/s */
	double		swing;			/* its largest deviation, part of the mean */
	double		use;			/* of the capacity */
	double		level;			/* mean of the signal, part of the threshold */
	double		highest;		/* and its maximum */
	double		lowest_rate;	/* ever in force, bytes/s */
	double		group[MAX_GROUPS];	/* means of each */
	double		last_rate;		/* in force at the end; 0 = none */
	double		last_level;
	double		highest_late;	/* the maximum from 10 s after the step on */
	double		learned;		/* capacity at the end, part of the real one */
	double		idle_rate;		/* the lowest before the jobs began; 0: free */
	double		over;			/* seconds over the threshold */
	double		far_over;		/* and over 1.3 of it */
	double		forced;			/* checkpoints */
	double		peak_rate;		/* highest in force, from 5 s on */
	double		free_at;		/* when the rate was last lifted; -1: never */
} Result;

static double
noisy(double value, double noise)
{
	return noise > 0 ? value * (1 + noise * (2 * rng_double() - 1)) : value;
}

static double
late(const double *history, int tick, double delay)
{
	int			then = tick - (int) (delay / TICK + 0.5);

	return then < 0 ? history[0] : history[then % HISTORY];
}

static Model
model_of(DtSignal signal)
{
	switch (signal)
	{
		case DT_REPLICA_LAG:
		case DT_SLOT_LAG:
			return QUEUE;
		case DT_CHECKPOINT:
			return INTERVAL;
		case DT_IO_PRESSURE:
			return SHARE;
		default:
			return LEVEL;
	}
}

static Setup
new_setup(DtSignal signal)
{
	Setup		s;

	memset(&s, 0, sizeof(s));
	s.signal = signal;
	s.capacity = 20 * MB;
	s.delay = 0.1;
	s.act = 0.1;
	s.threshold = signal == DT_IO_PRESSURE ? 0.1 : 2;
	s.step = 1;
	s.step_at = s.blind_at = 1e9;
	s.step_end = s.blind_end = 1e9;
	s.groups = 1;
	s.wants[0] = 10 * s.capacity;
	s.restart = 1e9;
	s.interval = 30;
	s.from = 20;
	s.end = 60;
	return s;
}

static void
start_controller(DtPressure *p, DtController *c, DtDrain *drain, DtStall *stall,
				 DtPressureGroup *groups, const Setup *s, const double *used)
{
	memset(p, 0, sizeof(DtPressure));
	memset(c, 0, sizeof(DtController));
	memset(drain, 0, sizeof(DtDrain));
	memset(stall, 0, sizeof(DtStall));
	c->signal = s->signal;
	c->fresh_us = DT_STALE_US;
	c->queue = drain;
	c->threshold = s->signal == DT_REPLICA_LAG || s->signal == DT_IO_PRESSURE ?
		(int64_t) (s->threshold * 1e6) : s->signal == DT_DIRTY_BUFFERS ?
		THRESHOLD_SHARE : (int64_t) (s->threshold * s->capacity);
	for (int i = 0; i < s->groups; i++)
	{
		DtPressureGroup *g = &groups[i];
		int64_t		counters[DT_RESOURCES] = {(int64_t) used[i], (int64_t) used[i]};
		int64_t		rates[DT_RESOURCES] = {g->rate[0], g->rate[1]};
		int			decides[DT_RESOURCES] = {g->decides[0], g->decides[1]};

		dt_pressure_group_init(g, rates, counters, decides);
		g->limit[DT_DIRTY] = g->limit[DT_WAL] = (int64_t) s->limit[i];
		g->weight = s->weight[i] > 0 ? s->weight[i] : 1;
		g->follows[s->signal] = c;
	}
}

/* A value that is read now. */
static void
read_value(DtController *c, double value, double other, int64_t now)
{
	c->value = (int64_t) value;
	c->other = (int64_t) other;
	c->read_at = now;
}

static Result
simulate(const Setup *s)
{
	static double written[HISTORY];
	static double drained[HISTORY];
	static double level[HISTORY];
	static double rates[MAX_GROUPS][HISTORY];
	static DtPressure p;
	static DtController controller;
	static DtDrain drain;
	static DtStall stall;
	static DtPressureGroup groups[MAX_GROUPS];
	DtController *const c = &controller;
	DtPressureGroup *const all[MAX_GROUPS] = {&groups[0], &groups[1], &groups[2]};
	Model		model = model_of(s->signal);
	DtResource	resource = dt_signals[s->signal].resource;
	Result		result;
	double		used[MAX_GROUPS] = {0};
	double		wal = 0;
	double		out = 0;
	double		value = 0;		/* of the level or share */
	double		stalled = 0;
	double		saved = 0;
	double		told = 0;
	double		redo = 0;
	double		redo_at = 0;
	double		smooth = 0;
	double		least = 1e30;
	double		most = 0;
	double		possible = 0;
	double		went = 0;
	double		n = 0;
	double		capacity_noise = 1;
	double		last_rate = 0;
	double		budget = s->interval * s->capacity;
	int64_t		now = START_US;
	int64_t		reply_at = 0;
	int			tick;
	int			i;

	memset(&result, 0, sizeof(result));
	memset(groups, 0, sizeof(groups));
	result.lowest_rate = 1e30;
	result.free_at = -1;
	rng_state = 88172645463325252ULL;
	start_controller(&p, c, &drain, &stall, groups, s, used);
	for (tick = 0; tick * TICK < s->end; tick++, now += TICK_US)
	{
		double		t = tick * TICK;
		double		capacity = s->capacity *
			(t >= s->step_at && t < s->step_end ? s->step : 1);
		double		other;
		double		sum = 0;
		double		drains;

		if (tick % 4 == 0)
			capacity_noise = noisy(1, s->noise);
		other = noisy(s->other * capacity, s->noise);
		for (i = 0; i < s->groups; i++)
		{
			double		rate = tick == 0 ? 0 : late(rates[i], tick - 1, s->act);

			if (rate == 0 || rate > s->wants[i])
				rate = s->wants[i];
			if (t < s->begin ||
				(s->off > 0 && fmod(t, s->on + s->off) >= s->on))
				rate = 0;
			used[i] += rate * TICK;
			sum += rate;
			if (t >= s->from)
				result.group[i] += rate;
		}
		wal += (sum + other) * TICK;
		drains = capacity * capacity_noise * TICK;
		if (model == QUEUE)
		{
			double		before = out;

			saved += drains;
			if (fmod(t + TICK / 2, s->lump) < TICK || s->lump == 0)
			{
				out = fmin(wal, out + saved);
				saved = 0;
			}
			drains = out - before;
			value = wal - out;
		}
		else if (model == LEVEL)
		{
			double		before = value;

			value = fmax(0, value + (sum + other) * TICK - drains);
			drains = before + (sum + other) * TICK - value;
		}
		else if (model == SHARE)
		{
			/* all of the time with four times the capacity */
			double		share = fmin(1, pow((sum + other) / capacity, 2) / 16);

			stalled += fmin(1, noisy(share, s->noise)) * TICK;
			value = share;
			drains = (sum + other) * TICK;
		}
		else
		{
			value = wal - redo;
			drains = (sum + other) * TICK;
			if (value >= budget || t - redo_at >= s->interval)
			{
				result.forced += value >= budget;
				redo = wal;
				redo_at = t;
			}
		}
		written[tick % HISTORY] = wal;
		drained[tick % HISTORY] = out;
		level[tick % HISTORY] = value;

		if (now % CYCLE_US == 0)
		{
			double		seen = s->transit ? wal : late(written, tick, s->delay);
			bool		blind = t >= s->blind_at && t < s->blind_end;

			if (fmod(t + TICK / 2, s->restart) < CYCLE_US * 1e-6 && t > 1)
				start_controller(&p, c, &drain, &stall, groups, s, used);
			if (blind && s->gone)
			{
				memset(&drain, 0, sizeof(DtDrain));
				c->read_at = 0;
			}
			else if (blind)
				 /* nothing is read */ ;
			else if (s->signal == DT_REPLICA_LAG)
			{
				if (now - reply_at >= (int64_t) (s->report * 1e6))
				{
					told = fmax(told, late(drained, tick, s->delay +
										   s->jitter * rng_double()));
					dt_drain_sample(&drain, (int64_t) seen, (int64_t) told,
									now);
					reply_at = now;
				}
				c->read_at = drain.seen_at;
			}
			else if (model == QUEUE)
			{
				int64_t		queue = (int64_t) (seen -
											   late(drained, tick, s->delay));

				dt_drain_sample(&drain, (int64_t) wal, (int64_t) wal - queue,
								now);
				c->read_at = now;
			}
			else if (model == LEVEL)
			{
				double		threshold = s->threshold * s->capacity;
				double		found = fmax(0, late(level, tick, s->delay) +
										 (2 * rng_double() - 1) * s->sampling *
										 threshold);

				if (s->signal == DT_DIRTY_BUFFERS)
					read_value(c, found / threshold * THRESHOLD_SHARE,
							   threshold * 1e6 / THRESHOLD_SHARE, now);
				else
					read_value(c, found, 0, now);
			}
			else if (model == SHARE)
				read_value(c, (double) dt_stall_sample(&stall, (int64_t) (stalled * 1e6),
													   now), 0, now);
			else
				read_value(c, budget - (wal - redo),
						   (s->interval - (t - redo_at)) * 1e6, now);
			for (i = 0; i < s->groups; i++)
				groups[i].used[resource] = (int64_t) used[i];
			dt_pressure_step(&p, &c, 1, all, s->groups, (int64_t) wal, now);
		}
		for (i = 0; i < s->groups; i++)
		{
			double		rate = (double) groups[i].rate[resource];

			rates[i][tick % HISTORY] = rate;
			if (rate > 0)
				result.lowest_rate = fmin(result.lowest_rate, rate);
			if (rate > 0 && t < s->begin)
				result.idle_rate = rate;
			if (i == 0 && t > 5)
				result.peak_rate = fmax(result.peak_rate, rate);
			if (i == 0 && rate == s->limit[0] && last_rate != rate)
				result.free_at = t;
			if (i == 0)
				last_rate = rate;
		}

		smooth += (sum - smooth) * TICK;
		if (s->print && tick % 20 == 0)
			printf("# %6.1f s  capacity %7.2f  jobs %7.2f  others %6.2f  "
				   "rate %8.2f  level %6.3f  pressure %6.3f  drains %7.2f\n", t,
				   capacity / MB, sum / MB, other / MB,
				   (double) groups[0].rate[resource] / MB,
				   model == QUEUE ? value / capacity / s->threshold :
				   model == LEVEL ? value / s->capacity / s->threshold :
				   model == SHARE ? value / s->threshold : value / budget,
				   (double) c->pressure / 1000,
				   (double) (model == QUEUE ? &drain : &c->level)->speed / MB);
		result.learned = (double) (model == QUEUE ? &drain : &c->level)->speed /
			capacity;
		result.last_level = value / s->threshold /
			(s->signal == DT_REPLICA_LAG ? capacity :
			 model == SHARE ? 1 : s->capacity);
		if (t >= s->from)
		{
			n++;
			result.mean += sum;
			least = fmin(least, smooth);
			most = fmax(most, smooth);
			possible += capacity * capacity_noise * TICK;
			went += drains;
			result.level += result.last_level;
			result.highest = fmax(result.highest, result.last_level);
			result.over += result.last_level > 1 ? TICK : 0;
			result.far_over += result.last_level > 1.3 ? TICK : 0;
			if (t >= s->step_at + 10)
				result.highest_late = fmax(result.highest_late,
										   result.last_level);
		}
	}
	result.mean /= n;
	for (i = 0; i < s->groups; i++)
		result.group[i] /= n;
	result.level /= n;
	result.swing = fmax(most - result.mean, result.mean - least) / result.mean;
	result.use = went / possible;
	result.last_rate = (double) groups[0].rate[resource];
	return result;
}

/*-------------------------------------------------------------------------
 * The grid
 *-------------------------------------------------------------------------
 */

typedef struct Values
{
	int			n;
	double		value[8];
} Values;

static const Values capacities[] = {{3, {1, 30, 1000}}, {6, {1, 4, 20, 100, 300, 1000}}};
static const Values delays[] = {{4, {0.1, 0.5, 1, 2}}, {6, {0.1, 0.2, 0.5, 1, 1.5, 2}}};
static const Values thresholds[] = {{4, {0.5, 2, 5, 30}}, {7, {0.5, 1, 2, 5, 10, 20, 30}}};
static const Values others[] = {{2, {0, 0.3}}, {3, {0, 0.3, 0.6}}};
static const Values steps[] = {{5, {1, 0.5, 2, 0.33, 6}}, {6, {1, 0.5, 2, 0.33, 3, 6}}};
static const Values wants[] = {{2, {3, 20}}, {2, {3, 20}}};
static const Values noises[] = {{1, {0.15}}, {2, {0, 0.15}}};

/* Does the grid promise anything for this? */
static bool
is_sensible(const Setup *s)
{
	Model		model = model_of(s->signal);
	double		threshold = s->threshold;

	/* the least that can be set for a standby */
	if (s->signal == DT_REPLICA_LAG && threshold < 1)
		return false;

	/* a threshold in bytes is fewer seconds when they drain faster */
	if (s->signal != DT_REPLICA_LAG && s->step > 1)
		threshold /= s->step;

	/* what is written is known here and now; what has drained is late */
	if (s->signal == DT_SLOT_LAG)
		return s->transit && s->delay <= 0.34 * threshold;
	if (s->transit)
		return s->delay <= threshold * (s->step <= 1 ? 0.6 :
										s->step <= 2 ? 0.5 : 0.34);

	/* a level takes some time until what is dirtied gets there */
	if (s->signal == DT_DIRTY_BUFFERS && threshold < 2)
		return false;
	if (model == LEVEL)
		return s->delay <= 0.25 * threshold;
	return s->delay <= threshold / 2;
}

/*
 * After that the simulation must have settled, in seconds: 10 thresholds or
 * 20 s, but a backlog needs the time in which it drains, as the others go on.
 */
static double
settling(const Setup *s)
{
	double		left = 1 - s->other;
	double		result = fmax(20, 10 * s->threshold);
	double		backlog;

	/* at the start, what is written before anything is seen of it */
	backlog = s->wants[0] / s->capacity * (s->delay + 0.5);
	result = fmax(result, 1.5 * backlog / left);

	/* a queue on top of what is on its way is short */
	if (s->transit && s->delay >= s->threshold / 2)
		result = fmax(result, 40);

	/* at a step down it is that many more thresholds, until that is seen */
	backlog = (1 / s->step - 1) * (s->threshold + s->delay + 3);
	return fmax(result, 2 * backlog / left);
}

typedef struct Worst
{
	int			runs;
	int			failed;
	double		swing;
	double		use;
	double		level;
	double		lowest_rate;
} Worst;

static void
check_run(Setup *s, Worst *worst)
{
	double		settled = settling(s);
	Result		r;
	double		most;

	s->from = settled;
	if (s->step != 1)
	{
		s->step_at = settled;
		s->from = 2 * settled;
	}
	s->end = s->from + fmax(15, s->threshold);
	r = simulate(s);

	/* the mean, in thresholds; jobs have to swing as much as the others do */
	most = 0.75 + 0.25 / s->threshold;
	worst->runs++;
	worst->swing = fmax(worst->swing, r.swing);
	worst->use = fmin(worst->use, r.use);
	worst->level = fmax(worst->level, r.level);
	worst->lowest_rate = fmin(worst->lowest_rate, r.lowest_rate);
	if (r.swing <= 0.2 + s->noise * s->other / (1 - s->other) &&
		r.use >= 0.95 && r.level <= most &&
		r.lowest_rate >= DT_PRESSURE_DEFAULT_FLOOR)
		return;
	if (worst->failed++ < 10)
		printf("# signal %d capacity %g delay %g transit %d threshold %g "
			   "other %g noise %g step %g wants %g: swing %.3f use %.3f "
			   "level %.3f lowest rate %.0f\n", s->signal, s->capacity / MB,
			   s->delay, s->transit, s->threshold, s->other, s->noise,
			   s->step, s->wants[0] / s->capacity, r.swing, r.use, r.level,
			   r.lowest_rate);
}

#define FOR_ALL(i, set) for (i = 0; i < set[all].n; i++)

static void
test_grid(DtSignal signal, bool all, const char *name)
{
	Worst		worst = {0, 0, 0, 1, 0, 1e30};
	int			c;
	int			d;
	int			t;
	int			o;
	int			st;
	int			w;
	int			n;
	int			transit;

	FOR_ALL(c, capacities) FOR_ALL(d, delays) FOR_ALL(t, thresholds)
		FOR_ALL(o, others) FOR_ALL(st, steps) FOR_ALL(w, wants)
		FOR_ALL(n, noises) for (transit = 0; transit < 2; transit++)
	{
		Setup		s = new_setup(signal);

		s.capacity = capacities[all].value[c] * MB;
		s.delay = delays[all].value[d];
		s.transit = transit != 0;
		s.threshold = thresholds[all].value[t];
		s.other = others[all].value[o];
		s.step = steps[all].value[st];
		s.wants[0] = s.capacity * wants[all].value[w] * fmax(1, s.step);
		s.noise = noises[all].value[n];

		/*
		 * the sample is always the same one, so it is off by as much as
		 * before
		 */
		if (signal == DT_DIRTY_BUFFERS)
			s.sampling = 0.01;
		if (model_of(signal) == LEVEL && transit)
			continue;
		if (is_sensible(&s))
			check_run(&s, &worst);
	}
	ok(worst.runs > 40 && worst.failed == 0,
	   "%s: %d of %d runs are steady, settle in time, use the drain (worst: "
	   "swing %.3f, use %.3f, mean %.2f thresholds, %.0f bytes/s)", name,
	   worst.runs - worst.failed, worst.runs, worst.swing, worst.use,
	   worst.level, worst.lowest_rate);
}

/*-------------------------------------------------------------------------
 * Other tests
 *-------------------------------------------------------------------------
 */

/*
 * The example of the documentation: replica_lag 2 s, and half the speed.  What
 * is at most the threshold is what the view tells, with what is on its way.
 */
static void
test_example(void)
{
	static const double late[] = {0.1, 0.4, 1};
	Setup		s;
	Result		r;
	int			i;

	for (i = 0; i < 3; i++)
	{
		s = new_setup(DT_REPLICA_LAG);
		s.delay = late[i];
		s.transit = true;
		s.jitter = 0.2;
		s.noise = 0.1;
		/* ten times the capacity until it is seen, which takes as long */
		s.from = fmax(10, 20 * s.delay);
		s.end = 120;
		r = simulate(&s);
		printf("# delay %g\n", s.delay);
		ok_range(r.highest + s.delay / s.threshold, 0.5, 1,
				 "lag 2 s: at most");
		ok_range(r.use, 0.99, 1.001, "... and the standby is busy");
		ok_range(r.learned, 0.95, 1.03, "... its speed is known");

		s.step = 0.5;
		s.step_at = s.from = 60;
		r = simulate(&s);
		ok_range(r.highest, 0.4, 1.7, "... it replays at half the speed");
		ok_range(r.far_over, 0, 4, "... seconds over 1.3 thresholds");
		ok_range(r.highest_late + s.delay / s.threshold, 0.5, 1,
				 "... 10 s later");
		ok_range(r.use, 0.97, 1.001, "... busy");
		ok_range(r.learned, 0.95, 1.03, "... its speed is known");
		s.step = 2;
		r = simulate(&s);
		ok_range(r.highest_late + s.delay / s.threshold, 0.5, 1,
				 "... at twice the speed");
		ok_range(r.use, i < 2 ? 0.95 : 0.85, 1.001, "... busy");
	}
}

/*
 * What is written needs some of the threshold to get there, and the news of it
 * to come back: up to six tenths.
 */
static void
test_far_away(void)
{
	static const double late[] = {0.3, 0.5, 0.6};
	int			i;

	for (i = 0; i < 6; i++)
	{
		Setup		s = new_setup(DT_REPLICA_LAG);
		Result		r;

		s.threshold = 1;
		s.delay = late[i / 2];
		s.transit = true;
		s.other = i % 2 ? 0.3 : 0;
		s.from = 240;
		s.end = 300;
		r = simulate(&s);
		printf("# threshold 1 s, delay %g\n", s.delay);
		ok_range(r.use, 0.95, 1.001, "the standby is busy");
		ok_range(r.swing, 0, 0.2, "... not by fits and starts");
	}
}

/* Jobs that work by fits and starts: no limit ends in between. */
static void
test_fits(void)
{
	Setup		s = new_setup(DT_REPLICA_LAG);
	Result		r;

	s.transit = true;
	s.on = s.off = 1;
	s.end = 320;
	r = simulate(&s);
	ok_range(r.highest, 0.3, 0.7, "on and off for a second: at most");
	ok_range(r.use, 0.97, 1.001, "... and the standby is busy");
}

/* A standby that replies once in a second only. */
static void
test_replies(void)
{
	static const double lags[] = {0.5, 2, 10};
	int			i;

	for (i = 0; i < 6; i++)
	{
		Setup		s = new_setup(DT_REPLICA_LAG);
		Result		r;

		s.threshold = lags[i / 2];
		s.transit = true;
		s.report = 1;
		s.noise = 0.1;
		s.other = i % 2 ? 0.3 : 0;
		s.from = fmax(20, 10 * s.threshold);
		s.end = s.from + 60;
		r = simulate(&s);
		printf("# threshold %g s, a reply every second\n", s.threshold);
		ok_range(r.swing, 0, 0.2, "steady");
		ok_range(r.use, 0.95, 1.001, "busy");
		ok_range(r.level, 0.35, 0.8, "at the set point");
	}
}

/*
 * Who begins to follow the signal beside others who write little: nothing is
 * known of the standby, and there is no reason to slow him down before he has
 * written something.  He comes to the standby's speed at once.
 */
static void
test_start(void)
{
	static const double idle[] = {0, 5, 60};
	int			i;

	for (i = 0; i < 6; i++)
	{
		Setup		s = new_setup(DT_REPLICA_LAG);
		Result		r;

		s.transit = true;
		s.jitter = 0.3;
		s.other = 0.002;
		s.noise = 1;
		s.begin = idle[i / 2];
		s.wants[0] = (i % 2 ? 1.5 : 10) * s.capacity;
		s.from = s.begin;
		s.end = s.begin + 5;
		r = simulate(&s);
		printf("# the job begins after %g s\n", s.begin);
		ok_range(r.idle_rate, 0, 0, "without a limit until then");
		ok_range(r.use, 0.8, 1.001, "the standby is busy from then on");
	}
}

/* A standby that becomes a hundred times faster. */
static void
test_faster(void)
{
	Setup		s = new_setup(DT_REPLICA_LAG);
	Result		r;

	s.capacity = MB;
	s.wants[0] = 1000 * s.capacity;
	s.step = 100;
	s.step_at = 80;
	s.from = 100;
	s.end = 120;
	r = simulate(&s);
	ok_range(r.use, 0.95, 1.001, "a hundred times faster: used after 20 s");
	ok_range(r.swing, 0, 0.2, "... steadily");
}

/* A standby that stands still for 10 s, or for ever. */
static void
test_frozen(void)
{
	Setup		s = new_setup(DT_REPLICA_LAG);
	Result		r;

	s.step = 0;
	s.step_at = 30;
	s.step_end = 40;
	s.from = 60;
	s.end = 90;
	r = simulate(&s);
	ok_range(r.lowest_rate, DT_PRESSURE_DEFAULT_FLOOR,
			 DT_PRESSURE_DEFAULT_FLOOR, "frozen: down to the floor");
	ok_range(r.use, 0.99, 1.001, "recovered after 20 s: it is kept busy");
	ok_range(r.swing, 0, 0.2, "... steadily");

	s.step_end = 1e9;
	r = simulate(&s);
	ok_range(r.last_rate, DT_PRESSURE_DEFAULT_FLOOR,
			 DT_PRESSURE_DEFAULT_FLOOR, "frozen for ever: at the floor");
}

/* No fresh value, or none at all. */
static void
test_blind(void)
{
	int			i;

	for (i = 0; i < N_SIGNALS; i++)
	{
		Setup		s = new_setup(signals[i]);
		Result		r;

		s.interval = 300;
		if (s.signal == DT_DIRTY_BUFFERS)
			s.threshold = 20;
		s.limit[0] = 5 * s.capacity;
		s.blind_at = 60;
		s.from = 61;
		s.end = 99;
		r = simulate(&s);
		ok_range(r.peak_rate / s.capacity, 0, 2, "stale: it counts");
		s.end = 102;
		r = simulate(&s);
		ok_range(r.last_rate / s.limit[0], 1, 1,
				 "after 40 s it does not: at the fixed limit");
		s.limit[0] = 0;
		r = simulate(&s);
		ok_range(r.last_rate, 0, 0, "... or without any");
		ok_range(r.free_at, 99, 100.5, "... not before");

		s.gone = true;
		s.end = 80;
		r = simulate(&s);
		ok_range(r.last_rate, 0, 0, "gone: without a limit");
		ok_range(r.free_at, 61, 71, "... after some seconds");

		s.blind_end = s.end;
		s.from = 110;
		s.end = 140;
		r = simulate(&s);
		ok(r.last_rate > 0, "and it is back: limited again");
	}
}

/* The controller is lost every second. */
static void
test_restarts(void)
{
	int			i;

	for (i = 0; i < N_SIGNALS; i++)
	{
		Setup		s = new_setup(signals[i]);
		Result		r;

		s.restart = 1;
		if (model_of(s.signal) == INTERVAL)
			s.threshold = s.interval;
		s.from = 60;
		s.end = 180;
		s.noise = 0.1;
		r = simulate(&s);
		printf("# signal %d, restarted every second\n", signals[i]);
		ok_range(r.mean / s.capacity, 0.8, signals[i] == DT_IO_PRESSURE ? 1.5 : 1.1, "mean rate, of the capacity");
		ok_range(r.level, 0, 1.5, "mean level");
		ok_range(r.peak_rate / s.capacity, 0.5, 4, "never without a limit");

		/* ... and nothing can be read any more */
		s.blind_at = 60;
		s.from = 61;
		s.end = 110;
		s.limit[0] = 5 * s.capacity;
		r = simulate(&s);
		ok_range(r.last_rate / s.limit[0], 1, 1, "blind: not stuck");
	}
}

/* A forced checkpoint is avoided, and what is left is used. */
static void
test_checkpoint(void)
{
	static const double intervals[] = {30, 300, 1800};
	int			i;

	for (i = 0; i < 3; i++)
	{
		Setup		s = new_setup(DT_CHECKPOINT);
		Result		r;

		s.interval = intervals[i];
		s.other = 0.3;
		s.noise = 0.5;
		s.from = 0;
		s.end = 4 * intervals[i] - 1;
		r = simulate(&s);
		printf("# checkpoint_timeout %g\n", s.interval);
		ok_range(r.forced, 0, 0, "forced checkpoints");
		ok_range((r.mean + s.other * s.capacity) / s.capacity, 0.9, 1,
				 "WAL of what may be written");
		ok_range(r.swing, 0, i == 0 ? 0.7 : 0.5, "swing");
	}
}

/* What is known is only more or less: no hunting. */
static void
test_io(void)
{
	static const double by[] = {0, 0.2, 0.5};
	int			i;

	for (i = 0; i < 6; i++)
	{
		Setup		s = new_setup(DT_IO_PRESSURE);
		Result		r;

		s.noise = by[i / 2];
		s.step = i % 2 ? 0.5 : 2;
		s.step_at = 200;
		s.other = 0.3;
		s.wants[0] = 5 * s.capacity;
		s.from = 100;
		s.end = 200;
		r = simulate(&s);
		printf("# noise %g\n", s.noise);
		ok_range(r.swing, 0, 0.2, "io_pressure: swing");
		ok_range(r.level, 0.75, 1.1, "... level");
		s.from = 300;
		s.end = 400;
		r = simulate(&s);
		ok_range(r.swing, 0, 0.2, "... swing after the step");
		ok_range(r.level, 0.75, 1.1, "... level after the step");
	}
}

/* Several groups on the same signal. */
static void
test_groups(void)
{
	Setup		s = new_setup(DT_REPLICA_LAG);
	Result		r;

	s.groups = 2;
	s.wants[0] = s.wants[1] = 10 * s.capacity;
	r = simulate(&s);
	ok_range(r.group[0] / s.capacity, 0.48, 0.52, "two groups: one half");
	ok_range(r.group[1] / s.capacity, 0.48, 0.52, "... and the other");
	ok_range(r.swing, 0, 0.2, "... steadily");

	s.weight[1] = 3;
	r = simulate(&s);
	ok_range(r.group[0] / s.capacity, 0.23, 0.27, "weights 1:3: a quarter");
	ok_range(r.group[1] / s.capacity, 0.73, 0.77, "... and three");
	s.weight[1] = 1000;
	r = simulate(&s);
	ok_range(r.group[0] / DT_PRESSURE_DEFAULT_FLOOR, 0.95, 1.05,
			 "weights 1:1000: the floor");
	s.weight[1] = 0;

	s.limit[0] = s.capacity / 10;
	s.limit[1] = 0;
	r = simulate(&s);
	ok_range(r.group[0] / s.capacity, 0.095, 0.1, "a low fixed limit ...");
	ok_range(r.group[1] / s.capacity, 0.88, 0.92, "... leaves the rest");

	s.limit[0] = 0;
	s.wants[0] = 0.1 * s.capacity;
	s.other = 0.2;
	r = simulate(&s);
	ok_range(r.group[0] / s.capacity, 0.1, 0.1, "who wants little gets it ...");
	ok_range(r.group[1] / s.capacity, 0.68, 0.72, "... and leaves the rest");
	ok_range(r.swing, 0, 0.2, "... steadily");

	s.groups = 3;
	s.wants[2] = 0;
	r = simulate(&s);
	ok_range(r.group[1] / s.capacity, 0.68, 0.72, "as does an idle one");
}

/* --print: one simulation, with any of its settings. */
static int
print_one(int argc, char **argv)
{
	Setup		s = new_setup(DT_REPLICA_LAG);
	Result		r;
	int			i;

	for (i = 0; i < argc; i++)
		if (sscanf(argv[i], "signal=%d", (int *) &s.signal) == 1)
			s = new_setup(s.signal);
	s.print = true;
	for (i = 0; i < argc; i++)
	{
		struct
		{
			const char *name;
			double	   *value;
		}			names[] = {
			{"capacity", &s.capacity}, {"delay", &s.delay}, {"act", &s.act},
			{"threshold", &s.threshold}, {"other", &s.other},
			{"noise", &s.noise}, {"sampling", &s.sampling},
			{"step", &s.step}, {"step_at", &s.step_at},
			{"step_end", &s.step_end}, {"wants", &s.wants[0]}, {"begin", &s.begin},
			{"on", &s.on}, {"off", &s.off},
			{"limit", &s.limit[0]}, {"restart", &s.restart},
			{"blind_at", &s.blind_at}, {"blind_end", &s.blind_end}, {"from", &s.from},
			{"interval", &s.interval}, {"end", &s.end},
			{"report", &s.report}, {"jitter", &s.jitter}, {"lump", &s.lump}
		};
		const char *equals = strchr(argv[i], '=');
		bool		known = false;
		int			k;

		for (k = 0; equals && k < (int) (sizeof(names) / sizeof(names[0])); k++)
			if (strlen(names[k].name) == (size_t) (equals - argv[i]) &&
				strncmp(names[k].name, argv[i], equals - argv[i]) == 0)
			{
				*names[k].value = atof(equals + 1);
				known = true;
			}
		if (strncmp(argv[i], "signal=", 7) == 0)
			known = true;
		if (strcmp(argv[i], "transit") == 0)
			known = s.transit = true;
		if (strcmp(argv[i], "gone") == 0)
			known = s.gone = true;
		if (!known)
		{
			fprintf(stderr, "what is \"%s\"?\n", argv[i]);
			return EXIT_FAILURE;
		}
	}
	r = simulate(&s);
	printf("# mean %.2f MB/s, swing %.3f, use %.3f, level %.3f, at most %.3f, "
		   "over the threshold %.1f s, over 1.3 of it %.1f s\n", r.mean / MB,
		   r.swing, r.use, r.level, r.highest, r.over, r.far_over);
	return EXIT_SUCCESS;
}

int
main(int argc, char **argv)
{
	bool		all = argc == 2 && strcmp(argv[1], "--all") == 0;

	if (argc > 1 && strcmp(argv[1], "--print") == 0)
		return print_one(argc - 2, argv + 2);
	if (argc > 1 && !all)
	{
		fprintf(stderr, "usage: pressure_sim [--all | --print [KEY=VALUE]...]\n");
		return EXIT_FAILURE;
	}
	test_example();
	test_start();
	test_far_away();
	test_fits();
	test_replies();
	test_faster();
	test_frozen();
	test_blind();
	test_restarts();
	test_checkpoint();
	test_io();
	test_groups();
	test_grid(DT_REPLICA_LAG, all, "replica_lag");
	test_grid(DT_SLOT_LAG, all, "slot_lag");
	test_grid(DT_DIRTY_BUFFERS, all, "dirty_buffers");
	test_grid(DT_KERNEL_DIRTY, all, "kernel_dirty");
	return done_testing();
}
