/*-------------------------------------------------------------------------
 *
 * pressure_test.c
 *		Unit test of the laws of pressure, step by step.
 *
 * What they do in the long run is in pressure_sim.c.
 *
 *-------------------------------------------------------------------------
 */
#include <string.h>

#include "engine/control.h"
#include "engine/rate.h"
#include "tap.h"

#define KB			INT64_C(1000)
#define MB			INT64_C(1000000)
#define GB			INT64_C(1000000000)
#define MS			INT64_C(1000)
#define SEC			INT64_C(1000000)
#define HOUR		(3600 * SEC)
#define CYCLE		(200 * MS)
#define NONE		(-1)

/*-------------------------------------------------------------------------
 * Drains
 *-------------------------------------------------------------------------
 */

/* Run d for some seconds: so much is written, so much can drain. */
static void
run_drain(DtDrain *d, int64_t *now, double seconds, int64_t in, int64_t out)
{
	int64_t		written = d->written;
	int64_t		drained = d->drained;
	int			i;

	for (i = 0; i < seconds * 5; i++)
	{
		*now += CYCLE;
		written += in / 5;
		drained += out / 5 < written - drained ? out / 5 : written - drained;
		dt_drain_sample(d, written, drained, *now);
	}
}

static void
test_drain(void)
{
	DtDrain		d;
	DtDrain		before;
	int64_t		now = HOUR;

	memset(&d, 0, sizeof(DtDrain));
	ok(!dt_drain_knows(&d) && dt_drain_lag_us(&d) == 0, "nothing known: no lag");
	dt_drain_sample(&d, 5 * GB, 5 * GB, now);
	run_drain(&d, &now, 10, MB, 20 * MB);
	ok(!dt_drain_knows(&d) && dt_drain_backlog(&d) == 0,
	   "without a backlog its speed is not known");
	run_drain(&d, &now, 0.4, 100 * MB, 20 * MB);
	ok_range(d.speed, 18 * MB, 20 * MB, "a backlog: known at once");
	ok_range(dt_drain_lag_us(&d), 1.5 * SEC, 1.8 * SEC,
			 "the lag is the time in which it drains");
	run_drain(&d, &now, 10, 0, 20 * MB);
	ok(dt_drain_backlog(&d) == 0 && dt_drain_lag_us(&d) == 0, "drained");
	run_drain(&d, &now, 10, 150 * MB, 170 * MB);
	run_drain(&d, &now, 1.2, 150 * MB, 20 * MB);
	ok_range(d.speed, 18 * MB, 22 * MB,
			 "it drained fast without a backlog: after a second of one its speed is known");
	run_drain(&d, &now, 20, 0, 20 * MB);
	run_drain(&d, &now, 3600, 10 * KB, 20 * MB);
	ok_range(d.speed, 18 * MB, 20 * MB, "an idle hour: it is still known");

	/* what comes back late is no queue, as nothing is known of it */
	dt_drain_sample(&d, d.written + 16 * KB, d.drained, now += CYCLE);
	dt_drain_sample(&d, d.written, d.drained, now += 9 * SEC);
	ok_range(d.speed, 18 * MB, 20 * MB, "nor do a few late bytes tell");

	/* slower, and faster again */
	run_drain(&d, &now, 8, 30 * MB, 5 * MB);
	ok_range(d.speed, 4.9 * MB, 5.3 * MB, "slower: known while it grows");
	run_drain(&d, &now, 4, 5 * MB, 50 * MB);
	ok_range(d.speed, 30 * MB, 50 * MB, "faster: as soon as it is seen");
	d.drained = d.written;
	run_drain(&d, &now, 10, 100 * MB, 100 * MB);
	ok_range(d.speed, 98 * MB, 100 * MB, "also without a backlog");

	/* it stands still */
	run_drain(&d, &now, 20, 30 * MB, 0);
	ok(d.speed < 50 * KB, "standing still: %lld", (long long) d.speed);
	ok(dt_drain_lag_us(&d) == HOUR, "a lag for ever is an hour");

	/* speeds of which every other one is three times the one before */
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB - 20 * MB, now);
	for (int i = 0; i < 100; i++)
		run_drain(&d, &now, 0.2, 10 * MB, (i % 2 ? 15 : 5) * MB);
	ok_range(d.speed, 9 * MB, 11 * MB, "noise: the mean");

	/* clocks and positions that are set back */
	before = d;
	dt_drain_sample(&d, d.written + GB, d.drained + GB, now);
	ok(memcmp(&d, &before, sizeof(d)) == 0, "no time has passed: no sample");
	dt_drain_sample(&d, d.written, d.drained, now - HOUR);
	ok(d.seen_at == now - HOUR && d.speed == before.speed,
	   "the clock is set back: only the time is taken over");
	now -= HOUR;
	dt_drain_sample(&d, 0, 0, now += CYCLE);
	ok(dt_drain_backlog(&d) == 0 && dt_drain_speed(&d) >= 0,
	   "the positions are set back");
	dt_drain_sample(&d, 5, 10, now += CYCLE);
	ok(dt_drain_backlog(&d) == 0, "more drained than written: no backlog");
}

static void
test_worst(void)
{
	DtDrain		d[5];
	const DtDrain *all[5];
	int64_t		now = HOUR;
	int			i;

	memset(d, 0, sizeof(d));
	for (i = 0; i < 5; i++)
		all[i] = &d[i];
	ok(dt_drain_worst(all, 5, 0, now) == NULL, "no standby, none is worst");
	ok(dt_drain_worst(all, 0, 0, now) == NULL, "no slot, none is worst");
	for (i = 0; i < 4; i++)
	{
		static const int64_t backlogs[] = {10 * MB, 30 * MB, 30 * MB, 20 * MB};

		d[i].seen_at = now;
		d[i].written = backlogs[i];
		d[i].speed = MB;
		d[i].queued_us = 1;
	}
	ok(dt_drain_worst(all, 5, 0, now) == &d[1], "the worst, the first of two");
	ok(dt_drain_worst(all, 5, 1, now) == &d[2], "ignoring one: the second");
	ok(dt_drain_worst(all, 5, 2, now) == &d[3], "two");
	ok(dt_drain_worst(all, 5, 3, now) == &d[0], "three");
	ok(dt_drain_worst(all, 5, 4, now) == NULL, "all");
	d[2].speed = MB / 10;
	ok(dt_drain_worst(all, 5, 0, now) == &d[2], "by time, not by bytes");
	d[2].seen_at = now - 40 * SEC + 1;
	ok(dt_drain_worst(all, 5, 0, now) == &d[2], "not seen for nearly 40 s: counts");
	d[2].seen_at--;
	ok(dt_drain_worst(all, 5, 0, now) == &d[1], "for 40 s: does not");
	d[1].seen_at = now + 1;
	ok(dt_drain_worst(all, 5, 0, now) == &d[3], "nor does one of the future");
}

/*
 * A position that moves in steps: looked at five times a second, the speed is that
 * of the steps.  When none comes any more, it stands still.
 */
static void
test_steps(void)
{
	static const double steps[] = {0.2, 1, 4, 10, 30};

	for (int i = 0; i < 5; i++)
	{
		DtDrain		d = {0};
		int64_t		now = HOUR;
		int64_t		lowest = INT64_MAX;
		int64_t		highest = 0;
		int			cycles = (int) (5 * steps[i] + 0.5);

		for (int k = 0; k <= 10 * cycles; k++)
		{
			int64_t		written = GB + k * 800 * KB;

			dt_drain_sample(&d, written, GB / 2 + k / cycles * cycles * 800 * KB,
							now += CYCLE);
			if (k <= 6 * cycles)
				continue;
			lowest = min64(lowest, dt_drain_speed(&d));
			highest = max64(highest, dt_drain_speed(&d));
		}
		printf("# a step every %g s\n", steps[i]);
		ok_range(lowest, 3.9 * MB, 4.1 * MB, "its speed, at least");
		ok_range(highest, 3.9 * MB, 4.1 * MB, "at most");
		for (int k = 0; k < 5 * (10 + 5 * steps[i]); k++)
			dt_drain_sample(&d, d.written + 800 * KB, d.drained, now += CYCLE);
		ok_range(dt_drain_speed(&d), 0, 0.1 * MB, "gone");
	}
}

/*-------------------------------------------------------------------------
 * Laws
 *-------------------------------------------------------------------------
 */

static void
test_room(void)
{
	DtRoom		room = {.drain = 10 * MB,.horizon = 2 * SEC,.begin = 20 * MB};
	DtRoom		extreme = {INT64_MAX, DT_RATE_MAX, 1, 0};

	room.bytes = 20 * MB;
	ok(dt_law_room(0, &room, GB) == 0, "enough room: no limit");
	room.bytes = 18 * MB;
	ok(dt_law_room(0, &room, GB) == 19 * MB,
	   "less: what drains, and the room within the horizon");
	room.bytes = 0;
	ok(dt_law_room(0, &room, GB) == 10 * MB, "none: what drains");
	room.bytes = -10 * MB;
	ok(dt_law_room(0, &room, GB) == 5 * MB, "less than none: less");
	room.bytes = -GB;
	ok(dt_law_room(0, &room, GB) == 1, "and nothing");
	room.drain = -MB;
	room.bytes = 2 * MB;
	ok(dt_law_room(0, &room, GB) == MB, "what grows drains nothing");
	room.drain = 10 * MB;
	room.bytes = 30 * MB;
	ok(dt_law_room(20 * MB, &room, 10 * MB + 1) == 25 * MB,
	   "enough again: no end while more than half of the limit before is used");
	ok(dt_law_room(20 * MB, &room, 10 * MB) == 0, "then it ends");

	ok(dt_law_room(0, &extreme, 0) == 0, "out of all bounds");
	extreme.begin = INT64_MAX - 1;
	ok(dt_law_room(1, &extreme, INT64_MAX) == DT_LAW_MAX, "used");
	extreme.bytes = INT64_MIN;
	ok(dt_law_room(1, &extreme, INT64_MAX) == 1, "negative");
}

/* A value after so long, in which so much was used. */
static int64_t
next_value(DtBrake *b, int64_t value, int64_t used, double seconds)
{
	b->used += used * seconds;
	b->used_us += seconds * SEC;
	return dt_law_brake(b, value, 1000, used,
						(b->seen_at ? b->seen_at : HOUR) +
						(int64_t) (seconds * SEC));
}

static void
test_brake(void)
{
	DtBrake		b = {0};
	int64_t		rate;
	int64_t		rates[2];

	ok(next_value(&b, 1000, MB, 0.2) == 0, "brake: at the threshold free");
	rate = next_value(&b, 5000, MB, 0.2);
	ok(rate == 900 * KB, "over it: what is used, slower");
	for (int i = 0; i < 4; i++)
		rate = next_value(&b, 5000, rate, 0.2);
	ok_range(rate, 0.5 * MB, 0.6 * MB, "at most halved in a second");
	ok(next_value(&b, 950, rate, 1) == rate, "just below: stays");
	ok_range(next_value(&b, 1001, rate, 1), 0.999 * rate, rate,
			 "a little over: a little slower");
	rate = b.rate;
	next_value(&b, 800, rate, 1);
	ok_range(b.rate * 1000 / rate, 1050, 1090, "below: by a twentieth in a second");
	rate = b.rate;
	next_value(&b, 0, rate, 1);
	ok_range(b.rate * 1000 / rate, 1290, 1310, "by more far below");
	rate = b.rate;
	for (int i = 0; i < 29; i++)
		next_value(&b, 0, rate / 2, 1);
	ok(b.rate == rate, "not while it is not used");
	ok(next_value(&b, 950, rate / 2, 1) == rate, "it stays near the threshold");
	ok(next_value(&b, 0, rate / 2, 1) == 0,
	   "not used for half a minute: free");
	b.rate = 100 * MB;
	ok(next_value(&b, 1001, MB, 0.2) <= MB,
	   "over it, what is allowed but not used does not count");

	/* never below what may be written in any case, and soon back from there */
	b.least = 64 * KB;
	for (int i = 0; i < 60; i++)
		rate = next_value(&b, 5000, 10 * KB, 1);
	ok(rate == 64 * KB, "it stays at the floor");
	for (int i = 0; i < 12; i++)
		rate = next_value(&b, 0, rate, 1);
	ok(rate > MB, "and is back within seconds");
	b.least = 0;

	/* by fits and starts: what was used since the last value */
	memset(&b, 0, sizeof(b));
	b.seen_at = HOUR;
	b.used = 300 * MB;
	b.used_us = 300 * SEC;
	ok(dt_law_brake(&b, 2000, 1000, 0, HOUR + 300 * SEC) == 500 * KB,
	   "nothing is used just now: what was used since the value before");
	b.used = 0;
	b.used_us = 10 * SEC;
	ok_range(dt_law_brake(&b, 1000, 1000, MB, HOUR + 310 * SEC), 500 * KB,
			 500 * KB, "at the threshold: nothing changes");

	/* a value counts once, whenever the next one comes */
	for (int i = 0; i < 2; i++)
	{
		memset(&b, 0, sizeof(b));
		rate = 10 * MB;
		for (int k = 0; k < 6; k++)
			rate = next_value(&b, k < 3 ? 1500 : 500, rate, i == 0 ? 1 : 300);
		rates[i] = rate;
	}
	ok(rates[0] == rates[1], "six values, every second or every 300 s: %lld, %lld",
	   (long long) rates[0], (long long) rates[1]);

	ok(next_value(&b, INT64_MAX, DT_RATE_MAX, 1) > 0 &&
	   next_value(&b, INT64_MAX / 2, 0, 1) > 0, "out of all bounds");
}

/* The part of the time in which somebody waits. */
static void
test_stall(void)
{
	DtStall		s = {0};
	int64_t		now = HOUR;
	int64_t		counter = 5 * HOUR;

	ok(dt_stall_sample(&s, counter, now) == 0, "one look tells nothing");
	ok(dt_stall_sample(&s, counter += 20 * MS, now += CYCLE) == 100000,
	   "two do: a tenth");
	ok(dt_stall_sample(&s, counter + SEC, now) == 100000,
	   "no time has passed: nothing new");
	for (int i = 0; i < 20; i++)
		dt_stall_sample(&s, counter += CYCLE, now += CYCLE);
	ok_range(s.mean, 950000, 960000, "all of it for four seconds");
	for (int i = 0; i < 100; i++)
		dt_stall_sample(&s, counter += 2 * CYCLE, now += CYCLE);
	ok_range(s.mean, 990000, 1000000, "no more than all of it");
	dt_stall_sample(&s, 0, now += CYCLE);
	ok_range(s.mean, 900000, 1000000, "the counter is reset");
}

/* So many commits of a session that take so long, us. */
static DtSessionCommits
commits_of(int n, int64_t us)
{
	DtSessionCommits s = {{0}};

	s.n[dt_latency_bucket(us)] = n;
	return s;
}

/* Is it that, but for the width of a bucket? */
static void
ok_about(int64_t us, int64_t expected, const char *name)
{
	ok_range(us, expected * 4 / 5, expected * 5 / 4, name);
}

static void
test_histogram(void)
{
	DtCommits	c = {0};
	bool		ascends = true;

	ok(dt_latency_bucket(INT64_MIN) == 0 && dt_latency_bucket(15) == 0 &&
	   dt_latency_bucket(16) == 0 && dt_latency_bucket(20) == 1 &&
	   dt_latency_bucket(31) == 3 && dt_latency_bucket(32) == 4 &&
	   dt_latency_bucket(INT64_C(16777215)) == DT_LATENCY_BUCKETS - 1 &&
	   dt_latency_bucket(INT64_MAX) == DT_LATENCY_BUCKETS - 1, "the buckets");
	for (int64_t us = 16; us < 20000000; us += us / 10)
	{
		c = (DtCommits)
		{
			.n = 1
		};
		c.weight[dt_latency_bucket(us)] = 1000;
		ascends &= us >= 16777216 || (dt_latency_p90(&c) >= us * 7 / 8 &&
									  dt_latency_p90(&c) <= us * 5 / 4);
	}
	ok(ascends, "p90 of one commit is about its time");
	memset(&c, 0, sizeof(c));
	ok(dt_latency_p90(&c) == 1, "of none it is nothing");
	c.weight[dt_latency_bucket(1000)] = 89;
	c.weight[dt_latency_bucket(50000)] = 11;
	ok_about(dt_latency_p90(&c), 50000, "eleven of a hundred decide");
	c.weight[dt_latency_bucket(1000)] = 91;
	c.weight[dt_latency_bucket(50000)] = 9;
	ok_about(dt_latency_p90(&c), 1000, "nine do not");
}

/* What several sessions have committed. */
static void
test_commits_together(void)
{
	DtSessionCommits s[24] = {0};
	DtCommits	all;

	all = dt_latency_commits(s, 10);
	ok(all.n == 0, "nobody has committed");
	s[3] = commits_of(10, 1000);
	all = dt_latency_commits(s, 10);
	ok(all.n == 10, "one has");
	ok_about(dt_latency_p90(&all), 1000, "all there is");
	s[4] = commits_of(10, 3000);
	all = dt_latency_commits(s, 10);
	ok(all.n == 20, "two");
	ok_about(dt_latency_p90(&all), 3000, "both");
	s[5] = commits_of(10, 1000000);
	all = dt_latency_commits(s, 10);
	ok(all.n == 30, "three");
	ok_about(dt_latency_p90(&all), 3000, "the one in the middle");
	for (int i = 0; i < 8; i++)
		s[i] = commits_of(100, 1000);
	s[8] = commits_of(60000, 16);
	s[9] = commits_of(100, 10000000);
	all = dt_latency_commits(s, 10);
	ok(all.n == 60900, "all are counted");
	ok_about(dt_latency_p90(&all), 1000, "neither the slowest nor the fastest counts");
	ok(all.weight[dt_latency_bucket(16)] == 0, "nor its commits");
	s[0] = commits_of(60000, 5000);
	all = dt_latency_commits(s, 10);
	ok_range(all.weight[dt_latency_bucket(5000)], 99000, 101000,
			 "who commits more often than seven others counts for an eighth");
	for (int i = 0; i < 4; i++)
		s[i] = commits_of(i < 2 ? 1000 : 20, i < 2 ? 1000 : 50000 + 20000 * i);
	all = dt_latency_commits(s, 4);
	ok_about(dt_latency_p90(&all), 1000, "nor does who commits now and then decide");
	s[2] = commits_of(60000, 50000);
	all = dt_latency_commits(s, 4);
	ok_range(all.weight[dt_latency_bucket(50000)], 0, all.n * 1000 / 8,
			 "among few, an eighth of all is the most");
	for (int i = 0; i < 24; i++)
		s[i] = i < 4 ? commits_of(1000, 1000) : commits_of(1, 50000);
	all = dt_latency_commits(s, 24);
	ok_about(dt_latency_p90(&all), 1000, "nor do twenty who commit once");
}

/*-------------------------------------------------------------------------
 * Groups
 *-------------------------------------------------------------------------
 */

typedef struct World
{
	DtPressure	p;
	DtPressureGroup g[3];
	DtController c[8];			/* of the signals that are followed */
	int			n;
	DtDrain		slots;			/* the queue of DT_SLOT_LAG */
	DtStall		stall;			/* of DT_IO_PRESSURE */
	int64_t		now;
	int64_t		wal;
	int64_t		value[DT_SIGNALS];	/* read in each cycle; NONE: not */
	int64_t		use[3][DT_RESOURCES];	/* of the groups, bytes/s */
	int64_t		other;			/* WAL of others, bytes/s */
} World;

/* Have group k follow a signal, with others that have the same threshold. */
static DtController *
follow(World *w, int k, DtSignal signal, int64_t threshold)
{
	DtController *c = w->c;

	while (c < w->c + w->n &&
		   (c->signal != signal || c->threshold != threshold))
		c++;
	if (c == w->c + w->n)
	{
		w->n++;
		memset(c, 0, sizeof(*c));
		c->signal = signal;
		c->threshold = threshold;
		c->fresh_us = DT_STALE_US;
	}
	w->g[k].follows[signal] = c;
	return c;
}

/* The signal that presses g most; -1: none that it follows has a value. */
static int
worst(const DtPressureGroup *g)
{
	int			signal = -1;
	int			s;

	for (s = 0; s < DT_SIGNALS; s++)
		if (g->follows[s] != NULL && g->follows[s]->pressure >= 0 &&
			(signal < 0 ||
			 g->follows[s]->pressure > g->follows[signal]->pressure))
			signal = s;
	return signal;
}

/* And how much, in thousandths of its threshold. */
static int64_t
pressure(const DtPressureGroup *g)
{
	return worst(g) < 0 ? 0 : g->follows[worst(g)]->pressure;
}

static void
new_world(World *w)
{
	int64_t		zeros[DT_RESOURCES] = {0};
	int			i;

	memset(w, 0, sizeof(*w));
	w->now = 100 * HOUR;
	for (i = 0; i < 3; i++)
		dt_pressure_group_init(&w->g[i], zeros, zeros, NULL);
	for (i = 0; i < DT_SIGNALS; i++)
		w->value[i] = NONE;
}

static void
step_world(World *w)
{
	DtPressureGroup *groups[] = {&w->g[0], &w->g[1], &w->g[2]};
	DtController *all[8];

	for (int i = 0; i < w->n; i++)
		all[i] = &w->c[i];
	dt_pressure_step(&w->p, all, w->n, groups, 3, w->wal, w->now);
}

/* What is read of a signal in each cycle, unless it cannot be. */
static void
read_signal(World *w, DtController *c)
{
	int64_t		value = w->value[c->signal];

	if (value == NONE || c->fresh_us == 0)
		return;
	c->value = value;
	c->other = c->signal == DT_CHECKPOINT ? 98 * SEC : GB;
	c->read_at = w->now;
	if (c->signal == DT_IO_PRESSURE)
		c->value = dt_stall_sample(&w->stall, w->now / 1000 * value / 1000,
								   w->now);
	if (c->signal == DT_SLOT_LAG)
	{
		dt_drain_sample(&w->slots, w->wal, w->wal - value, w->now);
		c->queue = &w->slots;
	}
}

static void
run_world(World *w, double seconds)
{
	int			i;
	int			k;

	for (i = 0; i < seconds * 5; i++)
	{
		w->now += CYCLE;
		w->wal += w->other / 5;
		for (k = 0; k < 3; k++)
		{
			w->g[k].used[DT_DIRTY] += w->use[k][DT_DIRTY] / 5;
			w->g[k].used[DT_WAL] += w->use[k][DT_WAL] / 5;
			w->wal += w->use[k][DT_WAL] / 5;
		}
		for (k = 0; k < w->n; k++)
			read_signal(w, &w->c[k]);
		step_world(w);
	}
}

/* What is known of a standby, if there is one. */
static void
read_standby(World *w, const DtDrain *d)
{
	d = d ? dt_drain_worst(&d, 1, 0, w->now) : NULL;
	for (int k = 0; k < w->n; k++)
	{
		w->c[k].queue = d;
		w->c[k].read_at = d != NULL ? d->seen_at : 0;
	}
}

static void
test_free(void)
{
	World		w;

	new_world(&w);
	w.g[0].limit[DT_DIRTY] = 5 * MB;
	w.g[0].limit[DT_WAL] = DT_RATE_MAX;
	w.value[DT_CHECKPOINT] = w.value[DT_KERNEL_DIRTY] = 0;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == 5 * MB && w.g[0].rate[DT_WAL] == DT_RATE_MAX,
	   "no threshold: the fixed limits");
	ok(w.g[1].rate[DT_DIRTY] == 0 && w.g[1].rate[DT_WAL] == 0, "or none");
	ok(worst(&w.g[0]) == -1 && pressure(&w.g[0]) == 0, "and no pressure");

	memset(&w.g[1], 0, sizeof(w.g[1]));
	follow(&w, 0, DT_KERNEL_DIRTY, 100 * MB);
	w.value[DT_KERNEL_DIRTY] = 40 * MB;
	w.use[0][DT_DIRTY] = 5 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_DIRTY] == 5 * MB, "nothing presses: the fixed limit");
	ok(worst(&w.g[0]) == DT_KERNEL_DIRTY && pressure(&w.g[0]) == 400,
	   "the pressure is told, in thousandths");
	ok(w.g[1].rate[DT_DIRTY] == 0 && w.g[2].rate[DT_DIRTY] == 0,
	   "others are not concerned");
	w.g[0].limit[DT_DIRTY] = 100 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 100 * MB, "raised: at once");
}

/* Floor, ceiling, and who decides. */
static void
test_decision(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	follow(&w, 0, DT_KERNEL_DIRTY, 100 * MB);
	w.g[0].limit[DT_WAL] = 20 * MB;
	w.use[0][DT_WAL] = w.use[0][DT_DIRTY] = 2 * MB;
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.value[DT_KERNEL_DIRTY] = 10 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 10 * MB, "the budget");
	ok(w.g[0].rate[DT_DIRTY] == 0, "does not limit dirtying");
	ok(worst(&w.g[0]) == DT_CHECKPOINT && pressure(&w.g[0]) == 200,
	   "a fifth of it is used");
	w.value[DT_KERNEL_DIRTY] = 90 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0 && w.g[0].rate[DT_WAL] == 10 * MB,
	   "each resource has its signals");
	ok(worst(&w.g[0]) == DT_KERNEL_DIRTY && pressure(&w.g[0]) == 900,
	   "the worst one is told");
	w.value[DT_KERNEL_DIRTY] = INT64_MAX;
	run_world(&w, CYCLE * 1e-6);
	ok(pressure(&w.g[0]) == DT_PRESSURE_MAX, "up to a limit");

	w.value[DT_CHECKPOINT] = 100 * 100 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 20 * MB, "the fixed limit is the ceiling");
	ok(w.g[0].share[DT_CHECKPOINT] == 100 * MB && w.c[0].others == 0,
	   "it is told what all may write, and what others do");
	w.value[DT_CHECKPOINT] = 0;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR, "the floor");
	ok(w.g[0].rate[DT_DIRTY] == DT_PRESSURE_DEFAULT_FLOOR, "of both");
	w.g[0].floor = 500 * KB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 500 * KB, "another floor");
	w.g[0].limit[DT_WAL] = 10 * KB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * KB, "a fixed limit below the floor");
	w.g[0].floor = INT64_MIN;
	w.g[0].limit[DT_WAL] = 0;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 1, "never zero, which is none");

	w.g[0].follows[DT_CHECKPOINT] = w.g[0].follows[DT_KERNEL_DIRTY] = NULL;
	run_world(&w, 15);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].rate[DT_DIRTY] == 0 &&
	   worst(&w.g[0]) == -1, "thresholds taken away: free");

	/* two signals for one resource */
	new_world(&w);
	follow(&w, 0, DT_SLOT_LAG, 100 * MB);
	follow(&w, 0, DT_CHECKPOINT, 1);
	w.use[0][DT_WAL] = 2 * MB;
	w.value[DT_SLOT_LAG] = 90 * MB;
	w.value[DT_CHECKPOINT] = 100 * 100 * KB;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_WAL] == 100 * KB &&
	   w.g[0].decides[DT_WAL] == DT_CHECKPOINT, "the lower rate counts");
	w.value[DT_CHECKPOINT] = 100 * 100 * MB;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_WAL] > 0 && w.g[0].rate[DT_WAL] < 50 * MB &&
	   w.g[0].decides[DT_WAL] == DT_SLOT_LAG, "whichever signal it is from");
}

/* A small change is not worth waking everybody. */
static void
test_changes(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	run_world(&w, 1);
	w.value[DT_CHECKPOINT] = 1010 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * MB, "a change of a hundredth: none");
	w.value[DT_CHECKPOINT] = 1020 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10200 * KB, "of a fiftieth: done");
	w.g[0].limit[DT_WAL] = 10190 * KB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10190 * KB, "of the fixed limit: any");
}

/* What the user changes holds at once, and is not reached by easing. */
static void
test_redefined(void)
{
	World		w;
	World		pressed;

	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	follow(&w, 0, DT_KERNEL_DIRTY, 100 * MB);
	w.use[0][DT_WAL] = w.use[0][DT_DIRTY] = 2 * MB;
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.value[DT_KERNEL_DIRTY] = 200 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_DIRTY] > 0 && w.g[0].rate[DT_WAL] == 10 * MB,
	   "both are limited");
	ok(w.g[0].share[DT_CHECKPOINT] == 10 * MB &&
	   w.g[0].share[DT_KERNEL_DIRTY] > 0 && w.g[0].share[DT_SLOT_LAG] == 0,
	   "what each signal leaves to it is told");
	pressed = w;

	w.g[0].follows[DT_KERNEL_DIRTY] = NULL;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "nobody has said so: it is let go slowly");
	w = pressed;
	w.g[0].follows[DT_KERNEL_DIRTY] = NULL;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "a signal is taken away: free at once");
	ok(w.g[0].rate[DT_WAL] == 10 * MB && worst(&w.g[0]) == DT_CHECKPOINT,
	   "the other one stays");
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == 0, "and free it stays");

	w = pressed;
	follow(&w, 0, DT_KERNEL_DIRTY, 1000 * MB);
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "a high threshold: the same");
	w = pressed;
	follow(&w, 0, DT_KERNEL_DIRTY, 110 * MB);
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "one that is exceeded still presses");

	/* so little below half of it that the law would let go slowly */
	w = pressed;
	w.value[DT_KERNEL_DIRTY] = 98 * MB;
	run_world(&w, 60);
	pressed = w;
	follow(&w, 0, DT_KERNEL_DIRTY, 200 * MB);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "a law that goes on lets go slowly");
	w = pressed;
	follow(&w, 0, DT_KERNEL_DIRTY, 200 * MB);
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "one that starts anew does not press");
	w.value[DT_KERNEL_DIRTY] = 200 * MB;
	run_world(&w, 5);

	/* what it was limited to is no floor, nor a ceiling */
	w = pressed;
	w.g[0].floor = 5 * MB;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 5 * MB, "a higher floor");
	w.g[0].floor = 10 * KB;
	w.value[DT_CHECKPOINT] = 0;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * KB, "a lower one");
	w.g[0].follows[DT_CHECKPOINT] = NULL;
	w.g[0].limit[DT_WAL] = 3 * MB;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 3 * MB, "a fixed limit");
}

/* What a law has learned counts at another threshold, too. */
static void
test_take_over(void)
{
	DtController before = {
		.state = DT_SIGNAL_FRESH,.rate = MB,.brake.rate = MB,.droop.rate = MB,.droop.knee = MB
	};
	DtSignal	learns[] = {DT_IO_PRESSURE, DT_REPORTED, DT_COMMIT_LATENCY};

	for (int i = 0; i < 3; i++)
	{
		DtController c = {.signal = learns[i],.threshold = 3};

		dt_controller_take_over(&c, &before);
		ok(c.rate == MB && c.brake.rate == MB && c.droop.knee == MB &&
		   c.threshold == 3, "a law that learns goes on");
	}
	{
		DtController c = {.signal = DT_KERNEL_DIRTY};

		dt_controller_take_over(&c, &before);
		ok(c.rate == 0, "one that knows begins anew");
	}
}

/* What others write is not there for the groups. */
static void
test_others(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.use[0][DT_WAL] = 5 * MB;
	w.other = 4 * MB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 5.9 * MB, 6.1 * MB, "less what others write");
	ok_range(pressure(&w.g[0]), 899, 900, "which counts for the pressure");
	w.use[1][DT_WAL] = MB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 4.9 * MB, 5.1 * MB,
			 "groups without this signal are others");
	follow(&w, 1, DT_CHECKPOINT, 1);
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 4.9 * MB, 5.1 * MB,
			 "one with it has a share, as far as it uses it");
	ok_range(w.g[1].rate[DT_WAL], 2.9 * MB, 3.1 * MB, "and may use it all");
	w.g[1].observe = true;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 4.9 * MB, 5.1 * MB,
			 "one that is only observed obeys nobody");
	ok_range(w.g[1].rate[DT_WAL], 2.9 * MB, 3.1 * MB,
			 "but is told what it might use");
	w.other = 100 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR, "nothing is left");

	/* what they use counts for whether a limit is used */
	new_world(&w);
	follow(&w, 0, DT_SLOT_LAG, 100 * MB);
	w.value[DT_SLOT_LAG] = 70 * MB;
	w.use[0][DT_WAL] = 6 * MB;
	w.other = 14 * MB;
	run_world(&w, 20);
	ok(w.g[0].rate[DT_WAL] > 0, "a queue that does not grow: a limit");
	for (; w.value[DT_SLOT_LAG] > 40 * MB; w.value[DT_SLOT_LAG] -= MB / 2)
		run_world(&w, CYCLE * 1e-6);
	run_world(&w, 1);
	ok(w.g[0].rate[DT_WAL] > 0, "which stays while others use it up");
	w.other = 0;
	run_world(&w, 20);
	ok(w.g[0].rate[DT_WAL] == 0, "and ends when they do not");

	/* what one leaves lets another one have all it wants */
	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	follow(&w, 1, DT_CHECKPOINT, 1);
	follow(&w, 2, DT_CHECKPOINT, 1);
	w.value[DT_CHECKPOINT] = 100 * 30 * MB;
	w.use[0][DT_WAL] = 10 * MB;
	w.use[1][DT_WAL] = 8800 * KB;
	w.use[2][DT_WAL] = 800 * KB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 20.3 * MB, 20.5 * MB,
			 "30 for all, two use 9.6");
}

/* A budget of each second, shared by weight. */
static void
test_wal_rate(void)
{
	World		w;

	new_world(&w);
	w.value[DT_WAL_RATE] = 0;
	follow(&w, 0, DT_WAL_RATE, 20 * MB);
	follow(&w, 1, DT_WAL_RATE, 20 * MB);
	w.g[1].weight = 3;
	w.use[0][DT_WAL] = 15 * MB;
	w.other = 4 * MB;
	run_world(&w, 5);
	ok_range(w.g[0].rate[DT_WAL], 15.6 * MB, 15.8 * MB,
			 "one group: all of it, less what others write and a sixtieth");
	ok_range(w.c[0].shown, 18.9 * MB, 19.1 * MB, "the value");
	ok_range(pressure(&w.g[0]), 940, 955, "and the pressure");
	ok_range(w.g[1].rate[DT_WAL], 11.7 * MB, 11.9 * MB,
			 "an idle one may have its share at once");
	w.use[1][DT_WAL] = 11 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok_range(w.g[0].rate[DT_WAL], 3.9 * MB, 3.95 * MB,
			 "and when it begins the other one has its own");
	w.use[0][DT_WAL] = 4 * MB;
	run_world(&w, 5);
	ok_range(w.g[1].rate[DT_WAL], 11.7 * MB, 11.9 * MB, "three to one");
	w.other = 10 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok_range(w.g[0].rate[DT_WAL] + w.g[1].rate[DT_WAL], 9.6 * MB, 9.7 * MB,
			 "a burst of others is theirs at once");
	w.other = 4 * MB;
	run_world(&w, 2);
	w.use[1][DT_WAL] = MB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 14.3 * MB, 14.7 * MB,
			 "who wants less leaves it to the other");
	w.other = 30 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR &&
	   w.g[1].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR,
	   "others alone exceed it: the floors");
}

/* Floors come first, whatever the weights. */
static void
test_floors(void)
{
	World		w;
	int			i;

	new_world(&w);
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	for (i = 0; i < 3; i++)
	{
		follow(&w, i, DT_CHECKPOINT, 1);
		w.use[i][DT_WAL] = 10 * MB;
	}
	w.g[0].floor = w.use[0][DT_WAL] = 2 * MB;
	w.g[1].weight = w.g[2].weight = 40;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 2 * MB, "a share below the floor: the floor");
	ok_range(w.g[1].rate[DT_WAL], 3.9 * MB, 4.1 * MB, "the others share the rest");
	w.use[1][DT_WAL] = 2 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_WAL] == 2 * MB, "it stays there");
	ok_range(w.g[2].rate[DT_WAL], 5.9 * MB, 6.1 * MB,
			 "when another one wants less");

	/* who does not work leaves nobody his floor */
	new_world(&w);
	for (i = 0; i < 3; i++)
	{
		follow(&w, i, DT_REPORTED, 1000);
		w.g[i].floor = 5 * MB;
	}
	w.use[0][DT_WAL] = 8 * MB;
	w.value[DT_REPORTED] = 2000;
	run_world(&w, 5);
	ok_range(w.g[0].rate[DT_WAL], 5 * MB, 6 * MB,
			 "a brake, beside floors that are not used");

	/* and who begins to work has it */
	w.use[1][DT_WAL] = w.use[2][DT_WAL] = 5 * MB;
	w.value[DT_REPORTED] = 500;
	run_world(&w, 2);
	ok_range(w.g[0].rate[DT_WAL], 5.5 * MB, 12 * MB,
			 "and when they are used, it goes on from them");
}

/* Free space, a report, and what is out of reach. */
static void
test_more_signals(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_DISK_FREE, 600 * MB);
	w.use[0][DT_WAL] = 30 * MB;
	w.value[DT_DISK_FREE] = 1200 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 0 && pressure(&w.g[0]) == 500,
	   "twice the threshold is free: no limit");
	w.value[DT_DISK_FREE] = 900 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 10 * MB && pressure(&w.g[0]) == 666,
	   "half of that: it lasts for 30 s");
	w.value[DT_DISK_FREE] = 500 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR &&
	   pressure(&w.g[0]) == 1200, "less than the threshold: the floor");

	new_world(&w);
	follow(&w, 0, DT_REPORTED, 1000);
	follow(&w, 1, DT_REPORTED, 1000);
	w.g[1].follows[DT_REPORTED] = &w.c[w.n++];
	w.c[1] = (DtController)
	{
		.signal = DT_REPORTED,.threshold = 1000
	};
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	w.value[DT_REPORTED] = 1300;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] > 0 && w.g[0].rate[DT_WAL] < 10 * MB &&
	   pressure(&w.g[0]) == 1300, "a report above 1: slower");
	ok(w.g[1].rate[DT_WAL] == 0 && worst(&w.g[1]) == -1,
	   "no report that counts: free");

	new_world(&w);
	follow(&w, 0, DT_CHECKPOINT, 1);
	w.c[0].out_of_reach = true;
	w.use[0][DT_WAL] = MB;
	w.value[DT_CHECKPOINT] = 0;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 0 && worst(&w.g[0]) == DT_CHECKPOINT &&
	   w.c[0].rate > 0, "out of reach: free, but the pressure is told");
}

/* Levels: what goes into them is what the groups write that use the signal. */
static void
test_levels(void)
{
	World		w;
	DtDrain		d = {0};
	int64_t		now = HOUR;
	int64_t		written = 0;
	int64_t		level = 4 * GB;
	int			i;

	/* it drained fast while nobody wrote; now hardly anything drains */
	dt_drain_sample_level(&d, written, level, now);
	for (i = 0; i < 100; i++)
	{
		level -= level < 32 * MB ? level : 32 * MB;
		dt_drain_sample_level(&d, written, level, now += CYCLE);
	}
	ok_range(d.speed, 100 * MB, 170 * MB, "how fast a level falls is learned");
	for (i = 0; i < 3000; i++)
	{
		written += 8 * MB / 5;
		level += 8 * MB / 5;
		dt_drain_sample_level(&d, written, level, now += CYCLE);
	}
	ok_range(d.speed, 0, 4 * MB, "that it does not fall any more, too");

	new_world(&w);
	follow(&w, 0, DT_KERNEL_DIRTY, 150 * MB);
	w.value[DT_KERNEL_DIRTY] = 40 * MB;
	run_world(&w, 20);
	w.value[DT_KERNEL_DIRTY] = 100 * MB;
	w.use[0][DT_DIRTY] = 2 * MB;
	w.use[1][DT_DIRTY] = 10 * MB;
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 1.7 * MB, 2.02 * MB,
			 "a level that stays: what is written drains");
	follow(&w, 1, DT_KERNEL_DIRTY, 150 * MB);
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 5.8 * MB, 6.1 * MB, "of both");
	w.g[1].observe = true;
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 1.98 * MB, 2.02 * MB,
			 "of one, if the other obeys nobody");
	ok_range(w.g[1].rate[DT_DIRTY], 5.8 * MB, 6.1 * MB,
			 "who is told his share beside one that uses up its own");
}

/* What others write is no reason to begin with who writes nothing. */
static void
test_idle(void)
{
	static const DtSignal signals[] = {DT_SLOT_LAG, DT_DIRTY_BUFFERS,
	DT_KERNEL_DIRTY, DT_IO_PRESSURE};
	int			i;

	for (i = 0; i < 4; i++)
	{
		DtSignal	s = signals[i];
		DtResource	r = dt_signals[s].resource;
		World		w;

		new_world(&w);
		follow(&w, 0, s, dt_signals[s].unit == DT_UNIT_SHARE ?
			   100000 : 100 * MB);
		w.value[s] = 9 * w.c[0].threshold;
		w.other = 50 * MB;
		run_world(&w, 20);
		ok(w.g[0].rate[r] == 0 && worst(&w.g[0]) == (int) s &&
		   pressure(&w.g[0]) > 8000,
		   "signal %d, idle: no limit, but the pressure is told", s);
		w.use[0][r] = 60 * KB;
		run_world(&w, 5);
		ok(w.g[0].rate[r] == 0, "as much as the floor: no limit");
		w.use[0][r] = 10 * MB;
		run_world(&w, 5);
		ok(w.g[0].rate[r] > 0 && w.g[0].rate[r] < 10 * MB, "more: a limit");
		w.use[0][r] = 0;
		run_world(&w, 20);
		ok(w.g[0].rate[r] > 0, "which stays, also for who pauses");
		w.value[s] = w.other = 0;
		w.stall.counter = 0;
		run_world(&w, 60);
		ok(w.g[0].rate[r] == 0, "and ends when nothing presses any more");
	}
}

static void
test_staleness(void)
{
	World		w;
	int64_t		rate;

	new_world(&w);
	follow(&w, 0, DT_SLOT_LAG, 100 * MB);
	w.use[0][DT_WAL] = 2 * MB;
	run_world(&w, 5);
	ok(w.c[0].state == DT_SIGNAL_ABSENT &&
	   worst(&w.g[0]) == -1 && w.g[0].rate[DT_WAL] == 0, "never read: absent");
	w.value[DT_SLOT_LAG] = 150 * MB;
	run_world(&w, 5);
	rate = w.g[0].rate[DT_WAL];
	ok(w.c[0].state == DT_SIGNAL_FRESH && rate > 0 &&
	   w.c[0].shown == 150 * MB &&
	   w.c[0].read_at == w.now, "fresh: it presses");
	w.value[DT_SLOT_LAG] = NONE;
	run_world(&w, 9.8);
	ok(w.c[0].state == DT_SIGNAL_FRESH, "for 10 s: fresh");
	run_world(&w, CYCLE * 1e-6);
	ok(w.c[0].state == DT_SIGNAL_STALE &&
	   w.g[0].rate[DT_WAL] == rate && pressure(&w.g[0]) == 1500,
	   "then: stale, and counts");
	run_world(&w, 29.6);
	ok(w.c[0].state == DT_SIGNAL_STALE &&
	   w.g[0].rate[DT_WAL] == rate, "for 30 s");
	run_world(&w, 2 * CYCLE * 1e-6);
	ok(w.c[0].state == DT_SIGNAL_ABSENT &&
	   w.g[0].rate[DT_WAL] == 0 && worst(&w.g[0]) == -1,
	   "then it does not, at once");
	w.value[DT_SLOT_LAG] = 20 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.c[0].state == DT_SIGNAL_FRESH &&
	   w.g[0].rate[DT_WAL] == 0 && pressure(&w.g[0]) == 200,
	   "it is back: a new beginning");
	w.value[DT_SLOT_LAG] = 150 * MB;
	run_world(&w, 5);
	ok(w.c[0].state == DT_SIGNAL_FRESH &&
	   w.g[0].rate[DT_WAL] > 0, "as is the pressure");
	rate = w.g[0].rate[DT_WAL];
	w.value[DT_SLOT_LAG] = NONE;
	w.c[0].read_at = 0;
	w.use[0][DT_WAL] = 100 * MB;
	run_world(&w, 1);
	ok(w.c[0].state == DT_SIGNAL_ABSENT &&
	   worst(&w.g[0]) == -1, "gone: absent");
	ok_range((double) w.g[0].rate[DT_WAL] * 10 / rate, 17, 23,
			 "the rate doubles in a second, in tenths");
	run_world(&w, 9.4);
	ok(w.g[0].rate[DT_WAL] == 0, "free after 10 s");
}

/* Clocks that jump leave nobody stuck. */
static void
test_clock(void)
{
	static const int64_t jumps[] = {-HOUR, -5 * SEC, 5 * SEC, HOUR,
	1000000 * HOUR, -SEC / 10};
	int			i;

	for (i = 0; i < 6; i++)
	{
		World		w;

		new_world(&w);
		follow(&w, 0, DT_KERNEL_DIRTY, 100 * MB);
		w.value[DT_KERNEL_DIRTY] = 150 * MB;
		w.use[0][DT_DIRTY] = 10 * MB;
		run_world(&w, 20);
		w.now += jumps[i];
		run_world(&w, 5);
		ok(w.g[0].rate[DT_DIRTY] > 0 &&
		   w.g[0].rate[DT_DIRTY] <= 10 * MB &&
		   w.c[0].state == DT_SIGNAL_FRESH,
		   "the clock jumps by %lld s: pressed",
		   (long long) (jumps[i] / SEC));
		w.value[DT_KERNEL_DIRTY] = 0;
		run_world(&w, 60);
		ok(w.g[0].rate[DT_DIRTY] == 0, "... and free again");

		w.value[DT_KERNEL_DIRTY] = 150 * MB;
		run_world(&w, 20);
		w.value[DT_KERNEL_DIRTY] = NONE;
		w.now += jumps[i];
		/* a value of the future counts when that has come */
		run_world(&w, 46);
		ok(w.g[0].rate[DT_DIRTY] == 0, "... without a reading, too");
	}

	/* a standby whose last news are of the future */
	{
		World		w;
		DtDrain		d;

		new_world(&w);
		follow(&w, 0, DT_REPLICA_LAG, SEC);
		memset(&d, 0, sizeof(DtDrain));
		dt_drain_sample(&d, GB, 0, w.now + HOUR);
		read_standby(&w, &d);
		run_world(&w, 1);
		ok(w.c[0].state == DT_SIGNAL_ABSENT,
		   "news of the future are none");
	}
}

static void
test_replica(void)
{
	World		w;
	DtDrain		d;
	int64_t		rate;

	new_world(&w);
	follow(&w, 0, DT_REPLICA_LAG, 3 * SEC);
	w.use[0][DT_WAL] = MB;
	read_standby(&w, NULL);
	run_world(&w, 1);
	ok(worst(&w.g[0]) == -1 && w.g[0].rate[DT_WAL] == 0, "no standby");

	memset(&d, 0, sizeof(DtDrain));
	d.seen_at = w.now;
	d.written = 20 * MB;
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 0 && pressure(&w.g[0]) == 0,
	   "one of which nothing is known presses nobody");
	d.seen_at = w.now;
	d.speed = 10 * MB;
	d.queued_us = SEC;
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * MB, "at two thirds: its speed");
	ok(worst(&w.g[0]) == DT_REPLICA_LAG && pressure(&w.g[0]) == 666 &&
	   w.c[0].shown == 2 * SEC, "its pressure");
	rate = w.g[0].rate[DT_WAL];
	follow(&w, 1, DT_REPLICA_LAG, 4 * SEC);
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == rate && w.g[1].rate[DT_WAL] == 0,
	   "nothing new: unchanged");
	w.use[1][DT_WAL] = MB;
	d.seen_at = w.now;
	d.written = 21 * MB;
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] < rate, "a new value: slower");
	ok(w.g[1].rate[DT_WAL] > 10 * MB && pressure(&w.g[1]) == 525,
	   "another threshold, another rate");
	read_standby(&w, &d);
	run_world(&w, 39.4);
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(worst(&w.g[0]) == DT_REPLICA_LAG, "old: counts");
	read_standby(&w, &d);
	run_world(&w, 1);
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(worst(&w.g[0]) == -1 && w.g[0].rate[DT_WAL] == 0, "too old: does not");
}

/*
 * Two that write as fast as they may into a queue that drains at 1 MB/s, and that
 * follow it at different thresholds: the queue ends up between what they aim at, and
 * the one with the stricter threshold has less.
 */
static void
test_thresholds(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_SLOT_LAG, 30 * MB);
	follow(&w, 1, DT_SLOT_LAG, 60 * MB);
	w.value[DT_SLOT_LAG] = 0;
	for (int i = 0; i < 600; i++)
	{
		for (int k = 0; k < 2; k++)
		{
			int64_t		rate = w.g[k].rate[DT_WAL];

			w.use[k][DT_WAL] = rate == 0 || rate > 10 * MB ? 10 * MB : rate;
			w.value[DT_SLOT_LAG] += w.use[k][DT_WAL] / 5;
		}
		w.value[DT_SLOT_LAG] -= w.value[DT_SLOT_LAG] < MB / 5 ?
			w.value[DT_SLOT_LAG] : MB / 5;
		run_world(&w, CYCLE * 1e-6);
	}
	ok_range(w.value[DT_SLOT_LAG], 26 * MB, 30 * MB,
			 "two thresholds: between what they aim at, 20 and 40 MB");
	ok_range(w.g[0].rate[DT_WAL], 0.25 * MB, 0.35 * MB,
			 "the one with the stricter threshold has less");
	ok_range(w.g[1].rate[DT_WAL], 0.65 * MB, 0.75 * MB,
			 "the other one has the rest");
}

/* Nothing is written and nothing is heard: the backlog drains all the same. */
static void
test_assume(void)
{
	DtDrain		d;

	memset(&d, 0, sizeof(DtDrain));
	dt_drain_assume(&d, 5 * SEC);
	ok(d.seen_at == 0, "nothing is assumed before the first sample");
	d.seen_at = SEC;
	d.written = 20 * MB;
	d.speed = 10 * MB;
	d.queued_us = SEC;
	dt_drain_assume(&d, 2 * SEC);
	ok(dt_drain_backlog(&d) == 10 * MB && dt_drain_lag_us(&d) == SEC,
	   "after a second: what its speed drains");
	dt_drain_assume(&d, 2 * SEC);
	ok(dt_drain_backlog(&d) == 10 * MB, "at the same time: no more");
	dt_drain_assume(&d, 9 * SEC);
	ok(dt_drain_backlog(&d) == 0 && d.speed == 10 * MB,
	   "in the end nothing is left, and nothing was learned");
	d.drained = 0;
	d.speed = 0;
	dt_drain_assume(&d, 10 * SEC);
	ok(dt_drain_backlog(&d) == 20 * MB, "what stands still drains nothing");
}

/* A new controller goes on from the rates in force. */
static void
test_restart(void)
{
	World		w;
	int64_t		rates[DT_RESOURCES];
	int64_t		used[DT_RESOURCES] = {GB, GB};
	int			decides[DT_RESOURCES];

	new_world(&w);
	rates[DT_DIRTY] = MB;
	rates[DT_WAL] = 2 * MB;
	decides[DT_DIRTY] = DT_IO_PRESSURE;
	decides[DT_WAL] = DT_REPORTED;
	dt_pressure_group_init(&w.g[0], rates, used, decides);
	ok(w.g[0].rate[DT_WAL] == 2 * MB && w.g[0].rate[DT_DIRTY] == MB,
	   "a new group has the rates in force");
	follow(&w, 0, DT_IO_PRESSURE, 100000);
	w.value[DT_IO_PRESSURE] = 95000;
	w.use[0][DT_DIRTY] = MB;
	w.use[0][DT_WAL] = 10 * MB;
	run_world(&w, 1);
	ok_range(w.g[0].rate[DT_WAL], 3 * MB, 4.5 * MB, "let go slowly");
	ok(w.g[0].rate[DT_DIRTY] == MB, "the brake goes on from there");
	run_world(&w, 4);
	ok_range(w.c[0].shown, 94000, 96000, "io_pressure");
	ok(pressure(&w.g[0]) >= 940 && pressure(&w.g[0]) <= 960, "and its pressure");

	/* a value above the threshold that is there already, or a moment later */
	for (int k = 0; k < 2; k++)
	{
		new_world(&w);
		dt_pressure_group_init(&w.g[0], rates, used, decides);
		follow(&w, 0, DT_REPORTED, 1000);
		w.use[0][DT_WAL] = 4 * MB;
		w.value[DT_REPORTED] = k == 0 ? 1500 : NONE;
		run_world(&w, CYCLE * 1e-6);
		w.value[DT_REPORTED] = 1500;
		run_world(&w, CYCLE * 1e-6);
		ok_range(w.g[0].rate[DT_WAL], 1.4 * MB, 1.9 * MB,
				 "slower, from the rate in force");
	}

	/* two groups: the brake begins with what both may use */
	new_world(&w);
	dt_pressure_group_init(&w.g[0], rates, used, decides);
	dt_pressure_group_init(&w.g[1], rates, used, decides);
	follow(&w, 0, DT_IO_PRESSURE, 100000);
	follow(&w, 1, DT_IO_PRESSURE, 100000);
	w.value[DT_IO_PRESSURE] = 95000;
	w.use[0][DT_DIRTY] = w.use[1][DT_DIRTY] = MB;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == MB && w.g[1].rate[DT_DIRTY] == MB,
	   "two groups go on as before");
	w.c[0].read_at = 0;
	w.value[DT_IO_PRESSURE] = NONE;
	run_world(&w, 11);
	w.value[DT_IO_PRESSURE] = 95000;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == 0 && pressure(&w.g[0]) > 900,
	   "gone, and back: a new beginning");

	/*
	 * one of them has a rate, by its fixed limit or by the signal, and
	 * nothing has limited the other one
	 */
	for (int k = 0; k < 2; k++)
	{
		new_world(&w);
		dt_pressure_group_init(&w.g[0], rates, used, decides);
		w.g[0].limit[DT_DIRTY] = k == 0 ? MB : 0;
		follow(&w, 0, DT_IO_PRESSURE, 100000);
		follow(&w, 1, DT_IO_PRESSURE, 100000);
		w.value[DT_IO_PRESSURE] = 50000;
		w.use[0][DT_DIRTY] = MB;
		w.use[1][DT_DIRTY] = 50 * MB;
		run_world(&w, 1);
		ok(w.g[1].rate[DT_DIRTY] == 0, "who had no rate goes on without one: %lld",
		   (long long) w.g[1].rate[DT_DIRTY]);
	}

	/* a rate that is from another signal, or from no signal at all */
	for (int k = 0; k < 2; k++)
	{
		new_world(&w);
		decides[DT_DIRTY] = DT_DIRTY_BUFFERS;
		dt_pressure_group_init(&w.g[0], rates, used, k == 0 ? decides : NULL);
		follow(&w, 0, DT_IO_PRESSURE, 100000);
		w.value[DT_IO_PRESSURE] = 50000;
		w.use[0][DT_DIRTY] = MB;
		run_world(&w, 2);
		ok(w.c[0].brake.rate == 0, "what another signal has found is not the brake's");
	}
}

/* A report that comes once, as an old one stays what it is. */
static void
report(World *w, int64_t value)
{
	w->c[0].value = value;
	w->c[0].read_at = w->now + CYCLE;
}

/*
 * A group that has worked for long, and works, follows a signal.  Its counters are those
 * of this cycle.
 */
static void
begin_to_follow(World *w, DtSignal signal, int64_t threshold)
{
	int64_t		zeros[DT_RESOURCES] = {0};
	int64_t		use = w->use[0][DT_WAL];

	dt_pressure_group_init(&w->g[0], zeros, w->g[0].used, NULL);
	w->n = 0;
	follow(w, 0, signal, threshold);
	w->c[0].fresh_us = HOUR;
	w->use[0][DT_WAL] = 0;
	w->other = use;
	report(w, 1300);
	run_world(w, CYCLE * 1e-6);
	w->use[0][DT_WAL] = use;
	w->other = 0;
}

/* The brake begins with what is used, whatever was before. */
static void
test_begin(void)
{
	World		w;
	int64_t		rate;
	DtStall		stall = {0};

	/* a job that has run for long, and then follows */
	for (int k = 0; k < 2; k++)
	{
		new_world(&w);
		w.use[0][DT_WAL] = 50 * MB;
		if (k == 1)
			follow(&w, 1, DT_SLOT_LAG, GB);
		run_world(&w, 5);
		w.now += k == 0 ? HOUR : 0;
		begin_to_follow(&w, DT_REPORTED, 1000);
		run_world(&w, 3);
		ok_range(w.g[0].rate[DT_WAL], 40 * MB, 45 * MB, "a new follower that works");
		begin_to_follow(&w, DT_WAL_RATE, GB);
		report(&w, 0);
		run_world(&w, CYCLE * 1e-6);
		ok(w.c[0].others < MB, "what it writes is soon known not to be others'");
	}

	/* a job that begins while an old report stands */
	new_world(&w);
	follow(&w, 0, DT_REPORTED, 1000);
	w.c[0].fresh_us = HOUR;
	report(&w, 1300);
	run_world(&w, 300);
	ok(w.g[0].rate[DT_WAL] == 0, "nobody works: no limit");
	w.g[0].used[DT_WAL] += MB;	/* it has begun at the end of a cycle */
	w.wal += MB;
	run_world(&w, CYCLE * 1e-6);
	w.use[0][DT_WAL] = 50 * MB;
	run_world(&w, 3);
	ok_range(w.g[0].rate[DT_WAL], 30 * MB, 45 * MB, "who begins to work");

	/* it ends, and reports come */
	w.use[0][DT_WAL] = 0;
	run_world(&w, 5);
	report(&w, 1000);
	run_world(&w, 10);
	report(&w, 1050);
	run_world(&w, 1);
	ok_range(w.g[0].rate[DT_WAL], 30 * MB, 45 * MB, "an idle group is not slowed down");
	rate = w.g[0].rate[DT_WAL];
	w.use[0][DT_WAL] = rate;
	run_world(&w, 3);
	ok_range(w.g[0].rate[DT_WAL], rate * 7 / 10, rate * 98 / 100, "but when it works again");

	/* nobody obeys */
	new_world(&w);
	follow(&w, 0, DT_REPORTED, 1000);
	w.g[0].observe = true;
	w.value[DT_REPORTED] = 2000;
	w.use[0][DT_WAL] = 50 * MB;
	run_world(&w, 60);
	ok(w.c[0].rate == w.g[0].floor, "mode observe: the rate tells nothing");
	w.g[0].observe = false;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok_range(w.g[0].rate[DT_WAL], 24 * MB, 26 * MB, "the mode changes: it begins with what is used");

	/* counters that are reset are those of a group, and not of others */
	new_world(&w);
	follow(&w, 0, DT_WAL_RATE, GB);
	w.value[DT_WAL_RATE] = 0;
	w.use[0][DT_WAL] = 50 * MB;
	run_world(&w, 5);
	w.g[0].used[DT_WAL] = 0;
	run_world(&w, CYCLE * 1e-6);
	ok(w.c[0].others < MB, "counters that are reset");

	/* an hour in which nobody looked */
	dt_stall_sample(&stall, 0, HOUR);
	dt_stall_sample(&stall, 5 * SEC, HOUR + 10 * SEC);
	ok(stall.mean == 500000, "half of the time");
	dt_stall_sample(&stall, 5 * SEC + HOUR, 2 * HOUR);
	ok(stall.watched_us == 0, "nobody looked for an hour: nothing is known");
	dt_stall_sample(&stall, 6 * SEC + HOUR, 2 * HOUR + 10 * SEC);
	ok(stall.mean == 100000, "but from then on");
}

/* A second at rest, with commits that take so long. */
static void
rest(DtLatency *l, int64_t *now, int64_t us)
{
	DtLatencyReading r = {.now = *now};

	for (int i = 0; i < 11; i++)
	{
		r.now = *now += CYCLE;
		r.commits.n = r.commits.n + 200;
		r.commits.weight[dt_latency_bucket(us)] = 1000 * r.commits.n;
		if (dt_latency_read(l, &r))
			memset(&r.commits, 0, sizeof(r.commits));
	}
}

/* What commits take without those who are limited. */
static void
test_base(void)
{
	DtLatency	l = {0};
	int64_t		now = HOUR;

	ok(dt_latency_base(&l) == 0, "nothing is known");
	ok(dt_latency_allowed(&l, 0, 200000) == 0, "so a share of it is not, either");
	ok(dt_latency_allowed(&l, 5000, 0) == 5000, "a time is");
	for (int i = 0; i < 6; i++)
		rest(&l, &now, 1000);
	ok_about(dt_latency_base(&l), 1000, "at rest it becomes known");
	ok_range(dt_latency_allowed(&l, 0, 500000), dt_latency_base(&l) * 149 / 100,
			 dt_latency_base(&l) * 151 / 100, "and a half more is allowed");
	ok(dt_latency_allowed(&l, 100, 0) == dt_latency_base(&l) + dt_latency_base(&l) / 5,
	   "a time that they take anyway counts as a fifth above");
	rest(&l, &now, 9000);
	ok_about(dt_latency_base(&l), 1000, "one sample that is off changes nothing");
	rest(&l, &now, 1000);
	rest(&l, &now, 9000);
	rest(&l, &now, 9000);
	ok_about(dt_latency_base(&l), 9000, "two in a row replace the others");
	rest(&l, &now, 1000);
	rest(&l, &now, 1000);
	ok_about(dt_latency_base(&l), 1000, "on the way down, too");
}

/* The droop: so many windows of a fifth of a second. */
static void
droop(DtDroop *d, int windows, int64_t value, int64_t used)
{
	for (int i = 0; i < windows; i++)
		dt_law_droop(d, value, 1000, used < 0 ? d->rate : used, CYCLE);
}

static void
test_droop(void)
{
	DtDroop		d = {0};
	DtDroop		before;

	dt_law_droop(&d, 5000, 0, 0, CYCLE);
	ok(d.rate == 16 * MB, "no threshold is known: it begins slowly");
	droop(&d, 10, 700, 3 * MB);
	ok(d.knee == 16 * MB && d.found == 0, "who does not use the rate gets no more");
	droop(&d, 10, 700, -1);
	ok_range(d.knee, 40 * MB, 44 * MB, "else by a half in a second, in steps");
	droop(&d, 4, 2000, -1);
	ok(d.found == 0 && d.rate == d.knee / 2, "twice the threshold: half as fast at once");
	before = d;
	droop(&d, 1, 2000, -1);
	ok(d.found == 1000 && d.knee <= before.rate, "for a second: the knee is found");
	before = d;
	droop(&d, 5, 2000, -1);
	ok_range(d.knee, before.knee * 84 / 100, before.knee * 85 / 100,
			 "it falls by a third, in a second, of how far it is off: a half");
	before = d;
	droop(&d, 5, 2000, 2 * before.rate);
	ok(d.knee == before.knee, "not while nobody obeys");
	droop(&d, 5, 2000, d.rate / 10);
	ok_range(d.knee, before.knee * 983 / 1000, before.knee * 986 / 1000, "and less, while little is used");
	before = d;
	droop(&d, 5, 500, -1);
	ok_range(d.knee, before.knee * 117 / 100, before.knee * 118 / 100, "below, it rises in the same way");
	ok(d.rate == d.knee / 4 * 5 || d.rate - d.knee / 4 * 5 < 4, "the rate is above it by a quarter at most");
	droop(&d, 5, 500, 0);
	before = d;
	droop(&d, 100, 500, 0);
	ok(d.knee == before.knee, "but not while it is not used");
	dt_law_droop(&d, 500, 1200, d.rate, CYCLE);
	ok(d.found == 1000, "a threshold a little higher is the same");
	dt_law_droop(&d, 500, 1300, d.rate, CYCLE);
	ok(d.found == 0, "one that is higher by more than a quarter is another");
	d.least = 5 * MB;
	droop(&d, 1000, 5000, -1);
	ok(d.knee == 5 * MB, "it does not fall below what they may write in any case");
}

/* Each name under which something is reported is a signal. */
static void
test_names(void)
{
	World		w;

	new_world(&w);
	follow(&w, 0, DT_REPORTED, 1000);
	w.g[1].follows[DT_REPORTED] = &w.c[w.n++];
	w.c[1] = w.c[0];
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	for (int i = 0; i < 5; i++)
	{
		w.c[0].value = 1500;
		w.c[1].value = 500;
		run_world(&w, 0.8);
		w.c[0].read_at = w.c[1].read_at = w.now + CYCLE;
		memset(&w.c[0].commits, 0, sizeof(DtCommits));
		memset(&w.c[1].commits, 0, sizeof(DtCommits));
		run_world(&w, 0.2);
	}
	ok(w.g[0].rate[DT_WAL] > 0 && w.g[1].rate[DT_WAL] == 0,
	   "another name is another signal");
	ok_range(w.c[0].used, 9.9 * MB, 10.1 * MB,
			 "whose followers are not counted");
}

/* Commits by others, 1000 a second, each of so many us; 0: nobody commits. */
static void
run_commits(World *w, double seconds, int64_t us)
{
	int			i;
	int			k;

	for (i = 0; i < seconds * 5; i++)
	{
		for (k = 0; k < w->n; k++)
		{
			if (w->p.new_window)
				memset(&w->c[k].commits, 0, sizeof(DtCommits));
			w->c[k].commits.n += us > 0 ? 200 : 0;
			w->c[k].commits.weight[dt_latency_bucket(us)] += us > 0 ? 200000 : 0;
			w->c[k].read_at = w->now + CYCLE;
		}
		run_world(w, 0.2);
	}
}

static void
test_commits(void)
{
	World		w;
	int64_t		before;
	int			cycles;

	new_world(&w);
	follow(&w, 0, DT_COMMIT_LATENCY, 5000);
	w.use[0][DT_WAL] = 10 * MB;
	w.other = 30 * MB;
	run_commits(&w, 10, 1000);
	ok(w.g[0].rate[DT_WAL] >= 16 * MB && w.g[0].rate[DT_WAL] <= 25 * MB,
	   "who begins while others commit begins slowly");
	run_commits(&w, 35, 1000);
	ok(w.g[0].rate[DT_WAL] >= 20 * MB && w.g[0].rate[DT_WAL] <= 26 * MB &&
	   pressure(&w.g[0]) >= 180 && pressure(&w.g[0]) <= 220,
	   "commits below the threshold: no limit that is felt");
	ok_about(w.c[0].shown, 1000, "the value");
	run_commits(&w, 0.2, 20000);
	ok(w.g[0].rate[DT_WAL] <= 13 * MB && w.g[0].decides[DT_WAL] == DT_COMMIT_LATENCY,
	   "above: half of that at once, whatever others write");
	run_commits(&w, 30, 20000);
	ok(w.g[0].rate[DT_WAL] < 9 * MB, "and slower");

	/* others leave, and may be back at once */
	before = 0;
	for (cycles = 0; cycles < 100 && w.g[0].rate[DT_WAL] > 0; cycles++)
	{
		before = w.g[0].share[DT_COMMIT_LATENCY] > 0 ? 0 : before + 1;
		w.use[0][DT_WAL] = w.g[0].rate[DT_WAL];
		run_commits(&w, 0.2, 0);
	}
	ok(before >= 40 && before <= 50,
	   "nobody commits any more: it is let go, not at once, but within 10 s: %d looks", (int) before);

	/* two groups rest at the same time */
	new_world(&w);
	follow(&w, 0, DT_COMMIT_LATENCY, 200000);
	follow(&w, 1, DT_COMMIT_LATENCY, 200000);
	w.c[0].by_share = true;
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	for (cycles = 0; cycles < 20 && w.g[0].rate[DT_WAL] == 0; cycles++)
		run_commits(&w, 0.2, 1000);
	ok(w.g[0].rate[DT_WAL] == w.g[0].floor &&
	   w.g[1].rate[DT_WAL] == w.g[1].floor, "a share: they rest together");
	ok(w.g[0].probed && w.g[1].probed, "for a moment");
	run_commits(&w, 3, 1000);
	ok(w.p.latency.n_samples == 0,
	   "one that goes on as before: nothing is learned from that");
	while (!w.g[0].probed)
		run_commits(&w, 0.2, 1000);
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = w.g[0].floor;
	while (w.g[0].probed)
		run_commits(&w, 0.2, 1000);
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	run_commits(&w, 0.2, 1000);
	ok(w.g[0].rate[DT_WAL] >= 7 * MB && w.g[1].rate[DT_WAL] >= 7 * MB,
	   "and are let go at once");
	ok(pressure(&w.g[0]) > 600 && pressure(&w.g[0]) < 900, "with the base");

	/* nobody has looked for a minute, from the middle of a probe on */
	new_world(&w);
	follow(&w, 0, DT_COMMIT_LATENCY, 200000);
	w.c[0].by_share = true;
	w.use[0][DT_WAL] = 10 * MB;
	while (!w.g[0].probed)
		run_commits(&w, 0.2, 1000);
	w.use[0][DT_WAL] = 0;
	w.now += 60 * SEC;
	run_commits(&w, 0.2, 1000);
	ok(!w.g[0].probed && w.p.latency.n_samples == 0, "a probe that nobody has watched tells nothing");
	for (cycles = 0; cycles < 100; cycles++)
	{
		w.use[0][DT_WAL] = w.g[0].probed ? w.g[0].floor : 10 * MB;
		run_commits(&w, 0.2, 1000);
	}
	ok(w.p.latency.n_samples >= 2, "and costs nothing: others follow");

	/* what is only observed makes nobody rest */
	new_world(&w);
	follow(&w, 0, DT_COMMIT_LATENCY, 200000);
	w.c[0].by_share = w.g[0].observe = true;
	w.use[0][DT_WAL] = 10 * MB;
	run_commits(&w, 20, 1000);
	ok(w.p.latency.n_samples == 0 && !w.g[0].probed &&
	   w.g[0].rate[DT_WAL] >= 16 * MB, "mode observe: no probe");

	/* beside one that obeys it is an outsider: nobody judges that one by it */
	new_world(&w);
	follow(&w, 0, DT_COMMIT_LATENCY, 5000);
	follow(&w, 1, DT_COMMIT_LATENCY, 5000);
	w.g[1].observe = true;
	w.use[0][DT_WAL] = 10 * MB;
	w.use[1][DT_WAL] = 80 * MB;
	run_commits(&w, 50, 1000);
	run_commits(&w, 60, 20000);
	ok_range(w.g[0].rate[DT_WAL], MB, 9 * MB, "beside one that is observed: less than it uses");
	w.use[0][DT_WAL] = 0;
	run_commits(&w, 5, 1000);
	before = w.c[0].droop.knee;
	run_commits(&w, 45, 1000);
	ok(w.c[0].droop.knee == before, "not used: the knee stays");
	for (int i = 0; i < 30; i++)
	{
		w.c[0].read_at = w.c[1].read_at = w.now + CYCLE;
		memset(&w.c[0].commits, 0, sizeof(DtCommits));
		memset(&w.c[1].commits, 0, sizeof(DtCommits));
		run_world(&w, 0.2);
	}
	ok(w.g[0].rate[DT_WAL] == 0, "nobody commits: no limit");
}

int
main(void)
{
	test_drain();
	test_steps();
	test_worst();
	test_room();
	test_brake();
	test_stall();
	test_histogram();
	test_commits_together();
	test_base();
	test_droop();
	test_free();
	test_decision();
	test_changes();
	test_redefined();
	test_take_over();
	test_others();
	test_wal_rate();
	test_floors();
	test_more_signals();
	test_levels();
	test_idle();
	test_staleness();
	test_clock();
	test_replica();
	test_thresholds();
	test_assume();
	test_restart();
	test_begin();
	test_commits();
	test_names();

	return done_testing();
}
