/*-------------------------------------------------------------------------
 *
 * latency_sim.c
 *		Simulator for the law by which a limit follows others' commits.
 *
 * Some clients commit as fast as they can, a job writes as fast as it may, and
 * the sampler looks at them five times a second.  Thresholds of time are means here, and
 * become p90 by how single commits vary.  A commit takes the base, by
 * (1 + 0.2 (rate / knee) ^ power) longer beside a job, and is noisy: single
 * ones take 0.13 to 4 ms, the mean of a quarter of a second is 0.13 to 0.45 ms
 * where nothing changes, as measured beside pgbench.  There are moments in
 * which nobody commits, and weather: gusts, disks and loads that change.  With
 * the threshold '20%' the best that a job can do is the knee.
 *
 * What is asserted are means of twenty runs: the rate of the job as a part of the
 * knee, by how much longer commits take for its doing, what is kept of the
 * others' throughput, and the time in which the job goes at a tenth of the knee
 * or below, which probes are part of; and of equal runs, how much faster one is than
 * another.
 *
 *		latency_sim								all cases
 *		latency_sim --traces FILE				commits that bench/trace.py has recorded
 *		latency_sim --print [KEY=VALUE]...		one run, every fifth of a second
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "engine/latency.h"
#include "random.h"
#include "tap.h"
#include "traces.h"

#define RUNS		20
#define EQUAL		5
#define TICK_US		INT64_C(20000)
#define TICK		0.02
#define CYCLE_TICKS	10
#define MB			1e6
#define FLOOR		64000.0
#define HALT		5.0
#define HANG		30.0
#define MAX_GROUPS	2

typedef struct Setup
{
	double		base;			/* ms, a commit without the job */
	double		think;			/* ms, what a client does between two commits */
	double		clients;
	double		commits;		/* a second, instead; 0: as many as they can */
	double		knee;			/* bytes/s by which a commit takes a fifth
								 * more */
	double		power;			/* how steep it is there */
	double		most;			/* it takes no more than so many times */
	double		speed;			/* of the job when nothing limits it, bytes/s */
	double		noise;			/* of the mean of a moment, log */
	double		single;			/* of a single commit, log */
	double		stalls;			/* a second */
	double		lag;			/* seconds that an effect takes to come and go */
	double		drain;			/* and to go, if that takes longer */
	double		step;			/* from step_at to step_end the knee is so
								 * many times what it was, and ... */
	double		weather;		/* ... all commits take so many times as long */
	double		step_at;
	double		step_end;
	double		gusts;			/* seconds between gusts; 0: none */
	double		gust;			/* by which commits take so many times as long */
	double		drift;			/* the base changes by so many times an hour */
	double		idle;			/* seconds until the job begins */
	double		on;				/* it works for so long, ... */
	double		off;			/* ... and rests for so long; 0: never */
	int64_t		threshold;		/* ns, or ... */
	int64_t		share;			/* ... millionths */
	int			groups;
	double		end;
	double		from;			/* measure from here */
	double		quit;			/* others do not commit any more */
	double		halt_at;		/* the disk stands still for HALT seconds */
	double		hang_at;		/* no commit ends for HANG seconds: the
								 * synchronous standby is gone, ... */
	double		deaf;			/* the job does not rest: it keeps that part
								 * of its rate in a probe */
	bool		observe;		/* nor obeys at all */
	bool		print;
	uint64_t	seed;
	Setting    *traced;			/* what commits take is as it was recorded */
} Setup;

typedef struct Result
{
	double		rate;			/* mean of all jobs, part of the knee */
	double		harm;			/* mean factor by which jobs make commits
								 * longer */
	double		kept;			/* of the others' throughput */
	double		low;			/* part of the time that they are at a tenth
								 * of the knee or below */
	double		group[MAX_GROUPS];
	double		relief;			/* seconds until others are well, at worst */
	double		hung;			/* the highest rate of the job in a hang, as a
								 * part of that before */
	double		base;			/* that is known in the end, as a part of the
								 * real one */
	double		last;			/* the last rate, part of the knee; 0: none */
	DtCommits	commits;		/* while it was measured */
} Result;

static double
normal(void)
{
	double		sum = 0;
	int			i;

	for (i = 0; i < 12; i++)
		sum += rng_double();
	return sum - 6;
}

static Setup
new_setup(void)
{
	Setup		s;

	memset(&s, 0, sizeof(s));
	s.base = 0.37;
	s.think = 0.9;
	s.clients = 4;
	s.knee = 60 * MB;
	s.power = 3;
	s.most = 8;
	s.speed = 150 * MB;
	s.noise = 0.3;
	s.single = 0.7;
	s.stalls = 0.1;
	s.lag = 0.3;
	s.step = s.weather = 1;
	s.step_at = s.step_end = 1e9;
	s.share = 200000;
	s.groups = 1;
	s.end = 90;
	s.from = 10;
	s.seed = 1;
	return s;
}

/* Single commits take so many times the mean: quantiles of a logarithmic normal. */
#define SINGLES		1024

static double singles[SINGLES];

/* The inverse of the normal distribution, by bisection of erfc(). */
static double
normal_quantile(double p)
{
	double		low = -6;
	double		high = 6;

	for (int i = 0; i < 50; i++)
	{
		double		middle = (low + high) / 2;

		if (erfc(-middle / M_SQRT2) / 2 < p)
			low = middle;
		else
			high = middle;
	}
	return low;
}

static double
single_quantile(double single, double p)
{
	return exp(single * normal_quantile(p) - single * single / 2);
}

static double
p90_of(double single)
{
	return single_quantile(single, 0.9);
}

static void
make_singles(double single)
{
	static double made = -1;

	for (int i = 0; i < SINGLES && single != made; i++)
		singles[i] = single_quantile(single, (i + 0.5) / SINGLES);
	made = single;
}

static void
add_commits(DtCommits *c, double n, double us)
{
	c->n += (int64_t) n;
	c->weight[dt_latency_bucket((int64_t) us)] += 1000 * (int64_t) n;
}

static void
add_all(DtCommits *sum, const DtCommits *c)
{
	sum->n += c->n;
	for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		sum->weight[b] += c->weight[b];
}

static Result
simulate(const Setup *s)
{
	DtLatency	l;
	DtDroop		laws[MAX_GROUPS];
	DtCommits	commits = {0};	/* in the window that is open */
	Result		result;
	double		noise = 0;
	double		load = 0;
	double		gust_left = 0;
	double		gust_next = s->gusts;
	double		stall = 0;
	double		used = 0;
	double		rates[MAX_GROUPS];
	double		alone_n = 0;
	double		beside_n = 0;
	double		n = 0;
	double		carry = 0;
	double		good = 0;
	int64_t		now = INT64_C(1000000000);
	double		before = 0;		/* of each group, when there was no probe */
	double		before_hang = 0;
	double		used_before = 0;
	double		written = 0;
	bool		was_halted = false;
	bool		was_hung = false;
	int			tick;
	int			i;

	memset(&l, 0, sizeof(l));
	memset(laws, 0, sizeof(laws));
	memset(&result, 0, sizeof(result));
	result.relief = -1;
	for (i = 0; i < s->groups; i++)
		rates[i] = 0;
	seed_rng(s->seed);
	make_singles(s->single);
	if (s->traced != NULL)
		shift_traces(s->traced);
	for (tick = 0; tick * TICK < s->end; tick++, now += TICK_US)
	{
		double		t = tick * TICK;
		bool		in_step = t >= s->step_at && t < s->step_end;
		double		knee = s->knee * (in_step ? s->step : 1);
		double		base = s->base * (in_step ? s->weather : 1);
		double		job = 0;
		double		part[MAX_GROUPS];
		double		factor;
		double		mean;
		double		count;
		bool		active = t >= s->idle &&
			(s->off == 0 || fmod(t - s->idle, s->on + s->off) < s->on);
		bool		halted = s->halt_at > 0 && t >= s->halt_at &&
			t < s->halt_at + HALT;
		bool		hung = s->hang_at > 0 && t >= s->hang_at &&
			t < s->hang_at + HANG;
		bool		nobody;

		if (s->drift > 0)
			base *= exp(log(s->drift) * 0.5 * (1 - cos(M_PI * t / 3600)));
		if (s->gusts > 0)
		{
			if (t >= gust_next)
			{
				gust_left = 0.3 - 2 * log(1 - rng_double());
				gust_next = t + gust_left - s->gusts * log(1 - rng_double());
			}
			gust_left -= TICK;
			if (gust_left > 0)
				base *= s->gust;
		}
		for (i = 0; i < s->groups; i++)
		{
			part[i] = !active || halted ? 0 : rates[i] > 0 && !s->observe ?
				fmin(rates[i], s->speed / s->groups) : s->speed / s->groups;
			if (l.probe_us > 0 && s->deaf > 0 && active)
				part[i] = s->deaf * before;
			job += part[i];
		}
		load += (job - load) * fmin(1, TICK / (job < load ? fmax(s->lag, s->drain) : s->lag));
		factor = fmin(1 + 0.2 * pow(load / knee, s->power), s->most);
		noise += -noise * TICK / 0.3 + normal() * s->noise * sqrt(2 * TICK / 0.3);
		mean = base * factor * exp(noise - s->noise * s->noise / 2);
		if (stall > 0)
			stall -= TICK;
		else if (rng_double() < s->stalls * TICK)
			stall = 0.03 + 0.1 * rng_double();
		carry += s->commits > 0 ? s->commits * TICK :
			stall > 0 ? 0 : s->clients * TICK * 1000 / (s->think + mean);
		if (stall > 0 && stall <= TICK && s->commits == 0 && !hung)
		{
			add_commits(&commits, s->clients, 80000);
		}
		nobody = (s->quit > 0 && t >= s->quit) || halted || hung;
		if (nobody)
			carry = 0;
		count = fmax(floor(carry + (nobody ? 0 : rng_double())), 0);
		carry -= count;
		if ((was_halted && !halted) || (was_hung && !hung))
		{
			add_commits(&commits, s->clients, (was_hung ? HANG : HALT) * 1e6);
		}
		was_halted = halted;
		/* when it has lasted for more than a second, that is known */
		if (hung && t < s->hang_at + 1.4)
			before_hang = fmax(before * s->groups,
							   l.probe_us > 0 ? (double) laws[0].rate : 0);
		else if (hung && l.probe_us == 0)
			result.hung = fmax(result.hung, job / before_hang);
		was_hung = hung;
		if (l.probe_us == 0)
			before = job / s->groups;
		if (s->traced != NULL)
		{
			DtCommits	traced = {0};

			add_traced(&traced, s->traced, t, TICK, load);
			add_all(&commits, &traced);
			if (t >= s->from)
				add_all(&result.commits, &traced);
			count = 0;
		}
		for (i = 0; i < count; i++)
			add_commits(&commits, 1, mean * 1000 * singles[rng() % SINGLES]);
		if (t >= s->from)
		{
			n++;
			result.rate += job / knee;
			result.harm += factor;
			alone_n += 1 / (s->think + base);
			beside_n += 1 / (s->think + base * factor);
			result.low += job < 0.1 * knee;
			for (i = 0; i < s->groups; i++)
				result.group[i] += part[i] / knee;
		}
		if (active)
		{
			good += ((factor <= 1.3) - good) * TICK;
			if (result.relief < 0 && good > 0.6)
				result.relief = t - s->idle;
		}
		used += (job - used) * TICK;
		written += job * TICK;
		if (tick % CYCLE_TICKS == 0)
		{
			DtLatencyReading r = {
				.commits = commits,
				.waiting = halted || hung ? (int64_t) s->clients : 0,
				.used = (int64_t) used,
				.used_now = (int64_t) ((written - used_before) /
									   (CYCLE_TICKS * TICK)),
				.rest = (int64_t) (FLOOR * s->groups),.now = now
			};

			used_before = written;
			if (dt_latency_read(&l, &r))
				memset(&commits, 0, sizeof(commits));
			for (i = 0; i < s->groups; i++)
			{
				int64_t		all;

				laws[i].least = (int64_t) fmin(FLOOR * s->groups, used);
				all = dt_latency_law(&laws[i], &l,
									 (int64_t) ((double) s->threshold / 1000 * p90_of(s->single)),
									 s->share, !s->observe);
				rates[i] = all == 0 ? 0 : fmax((double) all / s->groups, FLOOR);
			}
			if (s->print)
				printf("# %6.1f s  job %7.2f of %6.1f  commits %6.3f ms, by the job "
					   "%5.2f  p90 %6.3f  base %6.3f  knee %6.1f%s%s\n", t, job / MB, knee / MB, mean, factor,
					   (double) l.p90 / 1e3,
					   (double) dt_latency_base(&l) / 1e3,
					   (double) laws[0].knee / MB, laws[0].found > 0 ? "" : "  free",
					   l.probe_us > 0 ? "  probe" : "");
		}
	}
	result.rate /= n;
	result.harm /= n;
	result.low /= n;
	result.kept = beside_n / alone_n;
	result.base = (double) dt_latency_base(&l) / 1e3 / (s->base * p90_of(s->single));
	result.last = (double) laws[0].rate / s->knee;
	for (i = 0; i < s->groups; i++)
		result.group[i] /= n;
	return result;
}

/* Means of some runs. */
static Result
simulate_all(Setup s)
{
	Result		sum;

	memset(&sum, 0, sizeof(sum));
	for (s.seed = 1; s.seed <= RUNS; s.seed++)
	{
		Result		r = simulate(&s);
		int			i;

		sum.rate += r.rate / RUNS;
		sum.harm += r.harm / RUNS;
		sum.kept += r.kept / RUNS;
		sum.low += r.low / RUNS;
		sum.hung = fmax(sum.hung, r.hung);
		sum.base += r.base / RUNS;
		sum.last += r.last / RUNS;
		sum.relief = fmax(sum.relief, r.relief < 0 ? s.end : r.relief);
		for (i = 0; i < s.groups; i++)
			sum.group[i] += r.group[i] / RUNS;
	}
	return sum;
}

/* The rate is to be between two bounds, and commits no longer than that. */
static void
check(const char *name, Setup s, double least, double most, double harm)
{
	Result		r = simulate_all(s);

	ok(r.rate >= least && r.rate <= most && r.harm <= harm,
	   "%s: rate %.2f (%.2f to %.2f), commits take %.2f times as long (%.2f), "
	   "kept %.2f, low %.2f, relief after %.1f s", name, r.rate, least, most,
	   r.harm, harm, r.kept, r.low, r.relief);
}

#define CHECK(name, least, most, harm, ...) \
	do { \
		Setup		s = new_setup(); \
		__VA_ARGS__; \
		check(name, s, least, most, harm); \
	} while (0)

static void
test_knee(void)
{
	Result		r = simulate_all(new_setup());

	ok(r.kept >= 0.9 && r.low <= 0.08 && r.relief <= 15,
	   "others keep %.2f of their throughput, the job is at a tenth of the knee "
	   "or below %.2f of the time, relief after %.1f s", r.kept, r.low,
	   r.relief);
	CHECK("a job", 0.8, 1.2, 1.35,);
	CHECK("a job that comes later", 0.8, 1.2, 1.35, s.idle = 20, s.from = 30);
	CHECK("without noise", 0.85, 1.2, 1.35,
		  s.noise = s.single = s.stalls = 0);
	CHECK("much noise", 0.4, 1.2, 1.35, s.noise = 0.5);
	CHECK("much noise, also of single commits", 0.4, 1.2, 1.35,
		  s.noise = 0.5, s.single = 1.2);
	CHECK("a machine that is busy with other things", 0.35, 1.4, 1.6,
		  s.noise = 0.75, s.base = 2.5, s.think = 6, s.idle = 10, s.from = 15);
	CHECK("no knee", 0.8, 2.5, 1.5, s.power = 1);
	CHECK("a smooth knee", 0.8, 1.5, 1.45, s.power = 2);
	CHECK("a sharp knee", 0.7, 1.1, 1.5, s.power = 8);
	CHECK("a slow disk", 0.7, 1.25, 1.5, s.knee = 6 * MB);
	CHECK("short commits", 0.8, 1.2, 1.4, s.base = 0.13, s.think = 0.5);
	CHECK("an effect that comes late", 0.8, 1.4, 1.5, s.lag = 1);
	CHECK("one that comes very late", 0.8, 1.8, 2.2, s.lag = 3);
	CHECK("a disk that works off for long", 0.8, 1.6, 2.3, s.drain = 8,
		  s.end = 120, s.from = 20);
	CHECK("a knee out of the job's reach", 0.37, 0.5, 1.05,
		  s.knee = 300 * MB);
}

static int
compare_doubles(const void *a, const void *b)
{
	double		x = *(const double *) a;
	double		y = *(const double *) b;

	return x < y ? -1 : x > y;
}

/*
 * How much faster is the fastest of some equal runs than the slowest?  The median of
 * RUNS such sets.  *sum, if wanted, is the sum of all.
 */
static double
spread(Setup s, Result *sum)
{
	double		ratio[RUNS];

	for (int i = 0; i < RUNS; i++)
	{
		double		most = 0;
		double		least = INFINITY;

		for (int j = 0; j < EQUAL; j++)
		{
			Result		r = simulate(&s);

			s.seed++;
			most = fmax(most, r.rate);
			least = fmin(least, r.rate);
			if (sum != NULL)
			{
				sum->rate += r.rate / RUNS / EQUAL;
				add_all(&sum->commits, &r.commits);
			}
		}
		ratio[i] = most / least;
	}
	qsort(ratio, RUNS, sizeof(ratio[0]), compare_doubles);
	return (ratio[RUNS / 2 - 1] + ratio[RUNS / 2]) / 2;
}

/*
 * On a machine where nothing changes equal jobs take about the same time, also where
 * commits take longer without a knee, as was measured beside pgbench.  What is left
 * comes from the base, which some probes only tell roughly, and the more so at '20%',
 * where an error of a tenth is half of what is allowed.  These commits have no
 * tail that stands out, so here p90 is known less well than the mean, which decided
 * before: at '20%' of that it was 1.41 times, and 2.39 with much noise.  With commits as
 * they were recorded it is the other way round: test_traces().
 */
static void
test_spread(void)
{
	Setup		s = new_setup();
	double		found;

	s.base = 0.2;
	s.clients = 8;
	s.commits = 1700;
	s.knee = 20 * MB;
	s.speed = 120 * MB;
	s.power = 1.2;
	s.noise = s.lag = 0.1;
	s.end = 64;
	s.from = 4;
	found = spread(s, NULL);
	ok(found <= 2, "'20%%': of %d equal runs the fastest is %.2f times as fast as the slowest",
	   EQUAL, found);
	s.noise = 0.3;
	found = spread(s, NULL);
	ok(found <= 3, "with much noise %.2f times", found);
	s.share = 500000;
	found = spread(s, NULL);
	ok(found <= 2.3, "'50%%', with much noise: %.2f times", found);
	s.idle = 20;
	s.from = 24;
	s.end = 84;
	found = spread(s, NULL);
	ok(found <= 2, "when the group has followed the signal for 20 s before: %.2f times", found);
	s.noise = 0.1;
	found = spread(s, NULL);
	ok(found <= 1.5, "with little noise %.2f times", found);
	s.idle = 0;
	s.from = 4;
	s.end = 64;
	found = spread(s, NULL);
	ok(found <= 1.5, "when it has not %.2f times", found);
}

/* That part of all commits takes so long at most, us. */
static double
quantile(const DtCommits *c, double part)
{
	double		all = 0;
	double		below = 0;
	int			b;

	for (b = 0; b < DT_LATENCY_BUCKETS; b++)
		all += (double) c->weight[b];
	for (b = 0; b < DT_LATENCY_BUCKETS - 1 && below + (double) c->weight[b] < part * all; b++)
		below += (double) c->weight[b];
	return exp2(DT_LATENCY_FIRST +
				(b + (part * all - below) / fmax((double) c->weight[b], 1)) /
				(1 << DT_LATENCY_BITS));
}

/*
 * Commits as they were recorded, at '50%'.  The file in test/unit is from a machine that
 * others used, too: the weather of each rate was another one.
 */
static void
test_traces(const char *name, double most)
{
	int			n;
	Setting    *settings = read_traces(name, &n);

	ok(n > 0, "%d settings have been recorded", n);
	for (int i = 0; i < n; i++)
	{
		Setup		s = new_setup();
		Result		sum = {0};
		DtCommits	alone = {0};
		double		found;

		s.traced = &settings[i];
		s.share = 500000;
		s.knee = MB;
		s.speed = s.traced->traces[s.traced->n - 1].rate;
		s.idle = 20;
		s.from = 24;
		s.end = 84;
		for (int k = 0; k < s.traced->traces[0].n; k++)
			for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
				alone.weight[b] += s.traced->traces[0].of[k][b];
		found = spread(s, &sum);
		ok(found <= most, "%s: %.1f MB/s, the fastest %.2f times as fast as the slowest; commits p50 %.2f p90 %.2f p99 %.2f times as long",
		   settings[i].name, sum.rate, found,
		   quantile(&sum.commits, 0.5) / quantile(&alone, 0.5),
		   quantile(&sum.commits, 0.9) / quantile(&alone, 0.9),
		   quantile(&sum.commits, 0.99) / quantile(&alone, 0.99));
	}
	free(settings);
}

static void
test_weather(void)
{
	CHECK("the disk gets slower", 0.8, 1.3, 1.6, s.step = 0.2,
		  s.step_at = 40, s.from = 45);
	CHECK("the disk was slow for a while", 0.6, 1.2, 1.35, s.step = 0.1,
		  s.step_at = 20, s.step_end = 40, s.from = 40);
	CHECK("all commits get slower", 0.7, 1.3, 1.5, s.weather = 3,
		  s.step_at = 40, s.from = 40);
	CHECK("they were slow for a while", 0.7, 1.6, 2, s.weather = 3,
		  s.step_at = 20, s.step_end = 40, s.from = 40);
	CHECK("all commits get faster", 0.7, 1.5, 1.7, s.weather = 0.33,
		  s.step_at = 40, s.from = 40);
	CHECK("a job that nothing limited while they were slow", 0.9, 1.4, 1.45,
		  s.weather = 10, s.step = 10, s.step_at = 0, s.step_end = 120,
		  s.noise = 0.1, s.single = 0.3, s.from = 180, s.end = 300);

	/*
	 * more than 5: a rate that follows each window is a little above the knee
	 * at times
	 */
	CHECK("the same, 5 ms allowed", 2.4, 2.9, 5.6, s.threshold = 5000000,
		  s.share = 0, s.base = 1, s.knee = 20 * MB, s.most = 12,
		  s.weather = 30, s.step = 10, s.step_at = 0, s.step_end = 60,
		  s.idle = 20, s.from = 90, s.end = 200);
	CHECK("gusts", 0.5, 1.2, 1.4, s.gusts = 10, s.gust = 3);
	CHECK("a storm", 0.25, 1.2, 1.3, s.gusts = 4, s.gust = 5);
	CHECK("the disk stood still for 5 s", 0.7, 1.2, 1.4, s.halt_at = 40,
		  s.from = 45);
	CHECK("the same, 5 ms allowed", 0.7, 1.3, 1.45, s.halt_at = 40,
		  s.from = 45, s.threshold = 5000000, s.share = 0, s.base = 4.17);
	CHECK("ten times as long within an hour", 0.7, 1.2, 1.35, s.drift = 10,
		  s.end = 3600);
	CHECK("a tenth within an hour", 0.7, 1.3, 1.45, s.drift = 0.1,
		  s.base = 3, s.end = 3600);
}

static void
test_few_commits(void)
{
	CHECK("nobody commits", 2.49, 2.5, 5, s.commits = 1e-9);
	CHECK("one commit in a minute", 2.45, 2.5, 5, s.commits = 1.0 / 60,
		  s.end = 600);
	CHECK("5 commits in a second", 0.6, 1.8, 2.2, s.commits = 5,
		  s.end = 600, s.from = 100);
	CHECK("5 commits in a second, 5 ms allowed", 0.6, 1.8, 2.2, s.commits = 5,
		  s.end = 600, s.from = 100, s.threshold = 5000000, s.share = 0,
		  s.base = 4.17);
	CHECK("10 commits in a second", 0.7, 1.6, 2, s.commits = 10,
		  s.end = 200);
	CHECK("100 commits in a second", 0.8, 1.3, 1.5, s.commits = 100);
	CHECK("others leave", 2.4, 2.5, 5, s.quit = 60, s.from = 80,
		  s.end = 120);
}

/*
 * What is not known must not be taken for good news: commits that do not end, a
 * job that does not rest, and what nobody obeys.
 */
static void
test_unknown(void)
{
	Setup		s = new_setup();
	Result		r;

	s.hang_at = 40;
	s.end = 40 + HANG;
	r = simulate_all(s);
	ok(r.hung <= 1.001, "no commit ends for %.0f s: after the first of these the job "
	   "goes at most %.3f times as fast as then", HANG, r.hung);
	s.end = 150;
	s.from = 40 + HANG + 10;
	r = simulate_all(s);
	ok(r.rate >= 0.7 && r.rate <= 1.2 && r.harm <= 1.4,
	   "and afterwards as ever: rate %.2f, commits take %.2f times as long",
	   r.rate, r.harm);

	s = new_setup();
	s.deaf = 1;
	s.idle = 20;				/* the base is known from before */
	s.from = 30;
	r = simulate_all(s);
	ok(r.rate >= 0.7 && r.rate <= 1.2 && r.harm <= 1.4 && r.base <= 1.3,
	   "a job that does not rest: base %.2f, rate %.2f, commits take %.2f times as "
	   "long", r.base, r.rate, r.harm);
	s.share = 0;
	s.threshold = 450000;
	r = simulate_all(s);
	ok(r.rate <= 1.3 && r.harm <= 1.5, "the same with a time: rate %.2f, commits "
	   "take %.2f times as long", r.rate, r.harm);

	s = new_setup();
	s.observe = true;
	s.idle = 20;
	s.from = 30;
	r = simulate_all(s);
	ok(r.last >= 0.05, "if nobody obeys, it stays about where it has begun: %.2f", r.last);
}

static void
test_groups(void)
{
	Setup		two = new_setup();
	Result		r;

	two.groups = 2;
	r = simulate_all(two);
	ok(r.rate >= 0.75 && r.rate <= 1.2 && r.harm <= 1.4 &&
	   fabs(r.group[0] - r.group[1]) < 0.1,
	   "two groups: rates %.2f and %.2f, commits take %.2f times as long",
	   r.group[0], r.group[1], r.harm);
	CHECK("a job that comes and goes", 0.25, 0.6, 1.3, s.on = s.off = 5);
}

static void
test_absolute(void)
{
	CHECK("5 ms, which is a fifth longer", 0.8, 1.3, 1.45,
		  s.threshold = 5000000, s.share = 0, s.base = 4.17);
	CHECK("5 ms, which they never take", 2.49, 2.5, 5,
		  s.threshold = 5000000, s.share = 0);
	CHECK("1 ms, at twice the knee", 1.7, 2.2, 3.2,
		  s.threshold = 1000000, s.share = 0);
	CHECK("1 ms, less than they take without the job", 0.7, 1.3, 1.6,
		  s.threshold = 1000000, s.share = 0, s.base = 2);
}

static void
set_key(Setup *s, const char *arg)
{
	static const struct
	{
		const char *name;
		size_t		offset;
	}			keys[] = {
#define KEY(name) {#name "=", offsetof(Setup, name)}
		KEY(base), KEY(think), KEY(clients), KEY(commits), KEY(knee),
		KEY(power), KEY(most), KEY(speed), KEY(noise), KEY(single),
		KEY(stalls), KEY(lag), KEY(step), KEY(weather), KEY(step_at),
		KEY(step_end), KEY(gusts), KEY(gust), KEY(drift), KEY(idle), KEY(on),
		KEY(off), KEY(end), KEY(from), KEY(quit),
		KEY(halt_at), KEY(hang_at), KEY(deaf), KEY(drain)
	};
	int			i;

	for (i = 0; i < (int) (sizeof(keys) / sizeof(keys[0])); i++)
	{
		size_t		length = strlen(keys[i].name);

		if (strncmp(arg, keys[i].name, length) == 0)
		{
			*(double *) ((char *) s + keys[i].offset) = atof(arg + length);
			return;
		}
	}
	if (strncmp(arg, "seed=", 5) == 0)
		s->seed = strtoull(arg + 5, NULL, 10);
	else if (strncmp(arg, "threshold=", 10) == 0)
		s->threshold = atoll(arg + 10);
	else if (strncmp(arg, "share=", 6) == 0)
		s->share = atoll(arg + 6);
	else if (strncmp(arg, "groups=", 7) == 0)
		s->groups = atoi(arg + 7);
	else
	{
		fprintf(stderr, "unknown: %s\n", arg);
		exit(2);
	}
}

int
main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "--traces") == 0)
	{
		test_traces(argv[2], INFINITY);
		return done_testing();
	}
	if (argc > 1 && strcmp(argv[1], "--print") == 0)
	{
		Setup		s = new_setup();
		Result		r;
		int			i;

		s.print = true;
		for (i = 2; i < argc; i++)
			set_key(&s, argv[i]);
		r = simulate(&s);
		printf("# rate %.2f, commits take %.2f times as long, kept %.2f, "
			   "low %.2f, relief after %.1f s\n", r.rate, r.harm, r.kept, r.low,
			   r.relief);
		return EXIT_SUCCESS;
	}
	test_knee();
	test_spread();
	test_traces("test/unit/latency.traces", 1.5);
	test_weather();
	test_few_commits();
	test_unknown();
	test_groups();
	test_absolute();
	return done_testing();
}
