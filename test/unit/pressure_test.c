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
	int			i;

	memset(&d, 0, sizeof(DtDrain));
	ok(!dt_drain_knows(&d) && dt_drain_lag_us(&d) == 0, "nothing known: no lag");
	dt_drain_sample(&d, 5 * GB, 5 * GB, now);
	run_drain(&d, &now, 10, MB, 20 * MB);
	ok(!dt_drain_knows(&d) && dt_drain_backlog(&d) == 0,
	   "without a queue nothing is learned");

	run_drain(&d, &now, 0.4, 100 * MB, 20 * MB);
	ok_range(d.capacity, 18 * MB, 20 * MB, "a queue: learned at once");
	ok_range(dt_drain_lag_us(&d), 1.5 * SEC, 1.8 * SEC,
			 "the lag is the time in which it drains");
	run_drain(&d, &now, 10, 0, 20 * MB);
	ok(dt_drain_backlog(&d) == 0 && dt_drain_lag_us(&d) == 0, "drained");
	run_drain(&d, &now, 3600, 10 * KB, 20 * MB);
	ok_range(d.capacity, 18 * MB, 20 * MB, "an idle hour: it is still known");

	/* what comes back late is no queue, as nothing is known of it */
	dt_drain_sample(&d, d.written + 16 * KB, d.drained, now += CYCLE);
	dt_drain_sample(&d, d.written, d.drained, now += 9 * SEC);
	ok_range(d.capacity, 18 * MB, 20 * MB, "nor do a few late bytes tell");

	/* slower, and faster again */
	run_drain(&d, &now, 8, 30 * MB, 5 * MB);
	ok_range(d.capacity, 4.9 * MB, 5.2 * MB, "slower: learned while it grows");
	run_drain(&d, &now, 5, 5 * MB, 50 * MB);
	ok_range(d.capacity, 30 * MB, 50 * MB, "faster: as soon as it is seen");

	d.drained = d.written;
	run_drain(&d, &now, 3, 100 * MB, 100 * MB);
	ok_range(d.capacity, 90 * MB, 100 * MB, "also without a queue");

	/* it stands still */
	run_drain(&d, &now, 12, 30 * MB, 0);
	ok(d.capacity < 50 * KB, "standing still: %lld", (long long) d.capacity);
	ok(dt_drain_lag_us(&d) == HOUR, "a lag for ever is an hour");

	/* the capacity was overestimated: as much drains as arrives */
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB, now);
	run_drain(&d, &now, 5, 40 * MB, 20 * MB);
	d.drained = d.written - 10 * MB;
	run_drain(&d, &now, 30, 15 * MB, 15 * MB);
	ok_range(d.capacity, 15 * MB, 15.1 * MB, "it is lowered in the end");
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB, now);
	run_drain(&d, &now, 5, 40 * MB, 20 * MB);
	d.drained = d.written;
	run_drain(&d, &now, 5, 2 * MB, 20 * MB);
	d.drained = d.written - 3 * MB;
	run_drain(&d, &now, 60, 2 * MB, 2 * MB);
	ok_range(d.capacity, 12.4 * MB, 12.6 * MB,
			 "but not below five eighths, as it may be on its way");
	run_drain(&d, &now, 1, 0, 0);
	d.drained = d.written - 8 * MB;
	run_drain(&d, &now, 20, 2 * MB, 2 * MB);
	ok_range(d.capacity, 1.9 * MB, 2.1 * MB,
			 "unless it is older than any way takes");

	/* speeds of which every other one is three times the one before */
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB, now);
	run_drain(&d, &now, 5, 30 * MB, 10 * MB);
	d.drained = d.written - 20 * MB;
	for (i = 0; i < 100; i++)
		run_drain(&d, &now, 0.1, 10 * MB, (i % 2 ? 15 : 5) * MB);
	ok_range(d.capacity, 9.5 * MB, 10.5 * MB, "noise: the mean is learned");

	/* once it was much faster; a queue that grows slowly is one all the same */
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB, now);
	run_drain(&d, &now, 5, 300 * MB, 200 * MB);
	d.drained = d.written;
	run_drain(&d, &now, 5, 40 * MB, 200 * MB);
	run_drain(&d, &now, 3, 55 * MB, 50 * MB);
	ok(d.capacity > 120 * MB, "more than drains, for a moment: on its way");
	run_drain(&d, &now, 10, 55 * MB, 50 * MB);
	ok_range(d.capacity, 45 * MB, 55 * MB, "for long: it has become slower");

	/* nothing has drained yet */
	memset(&d, 0, sizeof(DtDrain));
	dt_drain_sample(&d, GB, GB, now);
	for (i = 0; i < 50; i++)
	{
		run_drain(&d, &now, 0.1, 40 * KB, 0);
		d.drained = i % 10 == 9 ? d.written : d.drained;
	}
	ok(!dt_drain_knows(&d), "a few bytes on their way: nothing is learned");
	run_drain(&d, &now, 2, 40 * MB, 0);
	ok(!dt_drain_knows(&d) && dt_drain_lag_us(&d) == 0,
	   "many bytes on their way: no lag is known");
	run_drain(&d, &now, 4, 0, 0);
	ok(dt_drain_knows(&d) && dt_drain_lag_us(&d) == HOUR,
	   "for long: it stands still");

	/* clocks and positions that are set back */
	before = d;
	dt_drain_sample(&d, d.written + GB, d.drained + GB, now);
	ok(memcmp(&d, &before, sizeof(d)) == 0, "no time has passed: no sample");
	dt_drain_sample(&d, d.written, d.drained, now - HOUR);
	ok(d.seen_at == now - HOUR && d.capacity == before.capacity,
	   "the clock is set back: only the time is taken over");
	now -= HOUR;
	dt_drain_sample(&d, 0, 0, now += CYCLE);
	ok(dt_drain_backlog(&d) == 0 && d.speed >= 0,
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
		d[i].capacity = MB;
		d[i].learned_us = 1;
	}
	ok(dt_drain_worst(all, 5, 0, now) == &d[1], "the worst, the first of two");
	ok(dt_drain_worst(all, 5, 1, now) == &d[2], "ignoring one: the second");
	ok(dt_drain_worst(all, 5, 2, now) == &d[3], "two");
	ok(dt_drain_worst(all, 5, 3, now) == &d[0], "three");
	ok(dt_drain_worst(all, 5, 4, now) == NULL, "all");
	d[2].capacity = MB / 10;
	ok(dt_drain_worst(all, 5, 0, now) == &d[2], "by time, not by bytes");
	d[2].seen_at = now - 40 * SEC;
	ok(dt_drain_worst(all, 5, 0, now) == &d[2], "not seen for 40 s: counts");
	d[2].seen_at--;
	ok(dt_drain_worst(all, 5, 0, now) == &d[1], "longer: does not");
	d[1].seen_at = now + 1;
	ok(dt_drain_worst(all, 5, 0, now) == &d[3], "nor does one of the future");
}

/*-------------------------------------------------------------------------
 * Laws
 *-------------------------------------------------------------------------
 */

static int64_t
zones(DtLaw *law, int64_t capacity, int64_t backlog, int64_t threshold)
{
	DtDrain		d;

	memset(&d, 0, sizeof(DtDrain));
	d.written = backlog;
	d.capacity = d.arrival = d.speed = capacity;
	d.learned_us = SEC;
	return dt_law_zones(law, &d, threshold, CYCLE);
}

static void
test_zones(void)
{
	DtLaw		law = {0};
	DtLaw		second = {0};
	DtDrain		d;
	int64_t		rate;

	ok(zones(&law, 10 * MB, 0, 75 * MB) == DT_FREE &&
	   zones(&law, 10 * MB, 37 * MB, 75 * MB) == DT_FREE,
	   "up to half of the threshold: free");
	ok_range(zones(&law, 10 * MB, 38 * MB, 75 * MB), 12.3 * MB, 12.5 * MB,
			 "above half: more than the capacity");
	ok(zones(&law, 10 * MB, 50 * MB, 75 * MB) == 10 * MB,
	   "at two thirds: the capacity");
	ok_range(zones(&law, 10 * MB, 60 * MB, 75 * MB), 7.9 * MB, 8 * MB,
			 "above: less");
	ok(zones(&law, 10 * MB, 500 * MB, 75 * MB) == 10 * MB / 8,
	   "far above: an eighth");
	ok(zones(&law, 0, 500 * MB, 75 * MB) == 1, "nothing drains: nothing");
	ok_range(zones(&law, 0, 45 * MB, 75 * MB), 0.16 * MB, 0.17 * MB,
			 "below the target: in half a minute up to it");
	ok(zones(&second, 10 * MB, 2 * MB, MB) < 10 * MB &&
	   zones(&second, 10 * MB, 2 * MB, MB) > 9 * MB,
	   "a small target: not so fast");

	/* what drains now */
	memset(&d, 0, sizeof(DtDrain));
	d.written = 60 * MB;
	d.capacity = d.arrival = 10 * MB;
	d.speed = 7 * MB;
	d.learned_us = SEC;
	ok_range(dt_law_zones(&law, &d, 75 * MB, CYCLE), 6.7 * MB, 6.9 * MB,
			 "above, and less drains: less");
	d.speed = 10 * MB;

	/* rising */
	d.written = 0;
	d.arrival = 20 * MB;
	law.rate = 20 * MB;
	rate = dt_law_zones(&law, &d, 75 * MB, CYCLE);
	ok_range(rate, 28.9 * MB, 29.1 * MB, "no backlog: it rises fast");
	d.written = 20 * MB;
	law.rate = 20 * MB;
	rate = dt_law_zones(&law, &d, 75 * MB, CYCLE);
	ok_range(rate, 21.1 * MB, 21.3 * MB, "not so fast with one that is a second old");
	d.written = 0;
	law.rate = 39 * MB;
	ok(dt_law_zones(&law, &d, 75 * MB, CYCLE) == DT_FREE && law.rate == 0,
	   "twice what is asked for: free");

	/* out of all bounds */
	law.rate = 0;
	ok(zones(&law, DT_RATE_MAX, INT64_MAX, 0) == DT_RATE_MAX / 8,
	   "the largest backlog");
	ok(zones(&law, DT_RATE_MAX, INT64_MAX, 1) == DT_RATE_MAX / 8, "again");
	ok(zones(&law, DT_RATE_MAX, 0, INT64_MAX) >= DT_RATE_MAX,
	   "the largest threshold");
	ok(zones(&law, 0, INT64_MAX, INT64_MAX) >= 1, "both");
}

static void
test_budget(void)
{
	ok(dt_law_budget(100 * MB, 8 * SEC) == 10 * MB,
	   "budget: with two seconds in reserve");
	ok(dt_law_budget(100 * MB, 0) == 50 * MB, "at the end, too");
	ok(dt_law_budget(0, SEC) == 0 && dt_law_budget(-5, SEC) == 0,
	   "nothing left");
	ok(dt_law_budget(INT64_MAX, INT64_MIN) > GB &&
	   dt_law_budget(INT64_MAX, INT64_MAX) >= 1000000, "out of all bounds");
}

static void
test_ramp(void)
{
	DtLaw		law = {0};

	ok(dt_law_ramp(&law, 10 * MB, 10 * MB, 4 * SEC, CYCLE) == DT_FREE && law.rate == 0,
	   "ramp: with enough room free");
	ok(dt_law_ramp(&law, 8 * MB, 10 * MB, 4 * SEC, CYCLE) == 2 * MB,
	   "less: it lasts for four seconds");
	ok(dt_law_ramp(&law, 4 * MB, 10 * MB, 4 * SEC, CYCLE) == 1800 * KB, "a mean ...");
	ok(dt_law_ramp(&law, 4 * MB, 10 * MB, 4 * SEC, SEC) == MB, "... of a second");
	ok(dt_law_ramp(&law, 0, 10 * MB, 4 * SEC, SEC) == 1 &&
	   dt_law_ramp(&law, -GB, MB, 4 * SEC, SEC) == 1, "no room: nothing");
	ok(dt_law_ramp(&law, INT64_MAX - 1, INT64_MAX, 4 * SEC, SEC) > GB &&
	   dt_law_ramp(&law, INT64_MIN, INT64_MAX, 4 * SEC, SEC) == 1, "out of all bounds");
}

static void
test_brake(void)
{
	DtLaw		law = {0};
	int64_t		rate;
	int			i;

	ok(dt_law_brake(&law, 1000, 1000, 1000, MB, CYCLE) == DT_FREE,
	   "brake: at the threshold free");
	ok(dt_law_brake(&law, 999, 5000, 1000, MB, CYCLE) == DT_FREE,
	   "both readings have to be over it");
	rate = dt_law_brake(&law, 5000, 6000, 1000, MB, CYCLE);
	ok_range(rate, 1.12 * MB, 1.13 * MB, "over it: what is used, slower");
	for (i = 0; i < 4; i++)
		rate = dt_law_brake(&law, 5000, 6000, 1000, rate, CYCLE);
	ok_range(rate, 0.59 * MB, 0.75 * MB, "at most halved in a second");
	ok(dt_law_brake(&law, 950, 950, 1000, rate, SEC) == rate,
	   "just below: stays");
	ok(dt_law_brake(&law, 800, 950, 1000, rate, 5 * SEC) == rate,
	   "both have to be below");
	ok(dt_law_brake(&law, 1001, 1001, 1000, rate, CYCLE) <= rate,
	   "a little over: a little slower");
	rate = law.rate;
	for (i = 0; i < 14; i++)
		ok(dt_law_brake(&law, 800, 800, 1000, rate, CYCLE) == rate,
		   "below: not before three seconds");
	ok(dt_law_brake(&law, 800, 800, 1000, rate, CYCLE) > rate,
	   "then it rises");
	rate = law.rate;
	dt_law_brake(&law, 800, 800, 1000, rate, SEC);
	ok_range(law.rate * 1000 / rate, 1050, 1090, "by a twentieth in a second");
	rate = law.rate;
	dt_law_brake(&law, 0, 0, 1000, rate, SEC);
	ok_range(law.rate * 1000 / rate, 1290, 1310, "by more far below");
	rate = law.rate;
	for (i = 0; i < 29; i++)
		dt_law_brake(&law, 0, 0, 1000, rate / 2, SEC);
	ok(law.rate == rate, "not while it is not used");
	ok(dt_law_brake(&law, 950, 950, 1000, rate / 2, SEC) == rate,
	   "it stays near the threshold");
	ok(dt_law_brake(&law, 0, 0, 1000, rate / 2, SEC) == DT_FREE,
	   "not used for half a minute: free");
	law.rate = 100 * MB;
	ok(dt_law_brake(&law, 1001, 1001, 1000, MB, CYCLE) <= 1250 * KB,
	   "over it, what is allowed but not used does not count");
	ok(dt_law_brake(&law, INT64_MAX, INT64_MAX, 1, DT_RATE_MAX, SEC) > 0 &&
	   dt_law_brake(&law, INT64_MAX, INT64_MAX, INT64_MAX / 2, 0, SEC) > 0,
	   "out of all bounds");
}

/*-------------------------------------------------------------------------
 * Groups
 *-------------------------------------------------------------------------
 */

typedef struct World
{
	DtPressure	p;
	DtPressureGroup g[3];
	DtDrain		slots;			/* the queue of DT_SLOT_LAG */
	int64_t		now;
	int64_t		wal;
	int64_t		value[DT_SIGNALS];	/* read in each cycle; NONE: not */
	int64_t		use[3][DT_RESOURCES];	/* of the groups, bytes/s */
	int64_t		other;			/* WAL of others, bytes/s */
} World;

static void
new_world(World *w)
{
	int64_t		zeros[DT_RESOURCES] = {0};
	int			i;

	memset(w, 0, sizeof(*w));
	w->now = 100 * HOUR;
	memset(&w->p, 0, sizeof(DtPressure));
	for (i = 0; i < 3; i++)
		dt_pressure_group_init(&w->g[i], zeros, zeros);
	for (i = 0; i < DT_SIGNALS; i++)
		w->value[i] = NONE;
}

static void
step_world(World *w)
{
	DtPressureGroup *groups[] = {&w->g[0], &w->g[1], &w->g[2]};

	dt_pressure_step(&w->p, groups, 3, w->wal, w->now);
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
		for (k = 0; k < DT_SIGNALS; k++)
			if (w->value[k] == NONE || k == DT_REPLICA_LAG ||
				k == DT_COMMIT_LATENCY)
				 /* cannot be read */ ;
			else if (k == DT_CHECKPOINT)
				dt_pressure_read(&w->p, k, w->value[k], 98 * SEC, w->now);
			else if (k == DT_IO_PRESSURE)
				dt_pressure_read(&w->p, k, w->now / 1000 * w->value[k] / 1000,
								 0, w->now);
			else
				dt_pressure_read(&w->p, k, w->value[k], GB, w->now);
		if (w->value[DT_SLOT_LAG] != NONE)
			dt_drain_sample(&w->slots, w->wal, w->wal - w->value[DT_SLOT_LAG],
							w->now);
		for (k = 0; k < 3; k++)
			w->g[k].drain[DT_SLOT_LAG] = &w->slots;
		step_world(w);
	}
}

/* What is known of a standby, if there is one. */
static void
read_standby(World *w, const DtDrain *d)
{
	int			k;

	d = d ? dt_drain_worst(&d, 1, 0, w->now) : NULL;
	for (k = 0; k < 3; k++)
		w->g[k].drain[DT_REPLICA_LAG] = d;
	if (d == NULL)
		dt_pressure_absent(&w->p, DT_REPLICA_LAG);
	else
		dt_pressure_read(&w->p, DT_REPLICA_LAG, dt_drain_lag_us(d), 0,
						 d->seen_at);
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
	ok(w.g[0].signal == -1 && w.g[0].pressure == 0, "and no pressure");

	memset(&w.g[1], 0, sizeof(w.g[1]));
	w.g[0].threshold[DT_KERNEL_DIRTY] = 100 * MB;
	w.value[DT_KERNEL_DIRTY] = 40 * MB;
	w.use[0][DT_DIRTY] = 5 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_DIRTY] == 5 * MB, "nothing presses: the fixed limit");
	ok(w.g[0].signal == DT_KERNEL_DIRTY && w.g[0].pressure == 400,
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
	w.g[0].threshold[DT_CHECKPOINT] = 1;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 100 * MB;
	w.g[0].limit[DT_WAL] = 20 * MB;
	w.use[0][DT_WAL] = w.use[0][DT_DIRTY] = 2 * MB;
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.value[DT_KERNEL_DIRTY] = 10 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 10 * MB, "the budget");
	ok(w.g[0].rate[DT_DIRTY] == 0, "does not limit dirtying");
	ok(w.g[0].signal == DT_CHECKPOINT && w.g[0].pressure == 200,
	   "a fifth of it is used");
	w.value[DT_KERNEL_DIRTY] = 90 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0 && w.g[0].rate[DT_WAL] == 10 * MB,
	   "each resource has its signals");
	ok(w.g[0].signal == DT_KERNEL_DIRTY && w.g[0].pressure == 900,
	   "the worst one is told");
	w.value[DT_KERNEL_DIRTY] = INT64_MAX;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].pressure == DT_PRESSURE_MAX, "up to a limit");

	w.value[DT_CHECKPOINT] = 100 * 100 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 20 * MB, "the fixed limit is the ceiling");
	ok(w.g[0].share[DT_CHECKPOINT] == 100 * MB && w.g[0].others == 0 &&
	   w.g[0].others_least == 0,
	   "it is told what all may write, and what others do");
	w.value[DT_CHECKPOINT] = 0;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR, "the floor");
	ok_range(w.g[0].rate[DT_DIRTY], 200 * KB, 255 * KB,
			 "an eighth of what goes, as the level does not rise");
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

	w.g[0].threshold[DT_CHECKPOINT] = w.g[0].threshold[DT_KERNEL_DIRTY] = 0;
	run_world(&w, 15);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].rate[DT_DIRTY] == 0 &&
	   w.g[0].signal == -1, "thresholds taken away: free");

	/* two signals for one resource */
	new_world(&w);
	w.g[0].threshold[DT_SLOT_LAG] = 100 * MB;
	w.g[0].threshold[DT_CHECKPOINT] = 1;
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
	w.g[0].threshold[DT_CHECKPOINT] = 1;
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
	DtPressureGroup pressed;

	new_world(&w);
	w.g[0].threshold[DT_CHECKPOINT] = 1;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 100 * MB;
	w.use[0][DT_WAL] = w.use[0][DT_DIRTY] = 2 * MB;
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.value[DT_KERNEL_DIRTY] = 200 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_DIRTY] > 0 && w.g[0].rate[DT_WAL] == 10 * MB,
	   "both are limited");
	ok(w.g[0].share[DT_CHECKPOINT] == 10 * MB &&
	   w.g[0].share[DT_KERNEL_DIRTY] > 0 && w.g[0].share[DT_SLOT_LAG] == 0,
	   "what each signal leaves to it is told");
	pressed = w.g[0];

	w.g[0].threshold[DT_KERNEL_DIRTY] = 0;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "nobody has said so: it is let go slowly");
	w.g[0] = pressed;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 0;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "a signal is taken away: free at once");
	ok(w.g[0].rate[DT_WAL] == 10 * MB && w.g[0].signal == DT_CHECKPOINT,
	   "the other one stays");
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == 0, "and free it stays");

	w.g[0] = pressed;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 1000 * MB;
	w.g[0].redefined = true;
	memset(&w.g[0].law[DT_KERNEL_DIRTY], 0, sizeof(DtLaw));
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "a high threshold: the same");
	w.g[0] = pressed;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 110 * MB;
	w.g[0].redefined = true;
	memset(&w.g[0].law[DT_KERNEL_DIRTY], 0, sizeof(DtLaw));
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "one that is exceeded still presses");

	/* so little below half of it that the law would let go slowly */
	w.g[0] = pressed;
	w.value[DT_KERNEL_DIRTY] = 98 * MB;
	run_world(&w, 60);
	pressed = w.g[0];
	w.g[0].threshold[DT_KERNEL_DIRTY] = 200 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] > 0, "a law that goes on lets go slowly");
	w.g[0] = pressed;
	w.g[0].threshold[DT_KERNEL_DIRTY] = 200 * MB;
	w.g[0].redefined = true;
	memset(&w.g[0].law[DT_KERNEL_DIRTY], 0, sizeof(DtLaw));
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 0, "one that starts anew does not press");
	w.value[DT_KERNEL_DIRTY] = 200 * MB;
	run_world(&w, 5);

	/* what it was limited to is no floor, nor a ceiling */
	w.g[0] = pressed;
	w.g[0].floor = 5 * MB;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_DIRTY] == 5 * MB, "a higher floor");
	w.g[0].floor = 10 * KB;
	w.value[DT_CHECKPOINT] = 0;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * KB, "a lower one");
	w.g[0].threshold[DT_CHECKPOINT] = 0;
	w.g[0].limit[DT_WAL] = 3 * MB;
	w.g[0].redefined = true;
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 3 * MB, "a fixed limit");
}

/* What others write is not there for the groups. */
static void
test_others(void)
{
	World		w;

	new_world(&w);
	w.g[0].threshold[DT_CHECKPOINT] = 1;
	w.value[DT_CHECKPOINT] = 100 * 10 * MB;
	w.use[0][DT_WAL] = 5 * MB;
	w.other = 4 * MB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 5.9 * MB, 6.1 * MB, "less what others write");
	ok_range(w.g[0].pressure, 899, 900, "which counts for the pressure");
	w.use[1][DT_WAL] = MB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 4.9 * MB, 5.1 * MB,
			 "groups without this signal are others");
	w.g[1].threshold[DT_CHECKPOINT] = 1;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 4.65 * MB, 4.85 * MB,
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

	/* what one leaves lets another one have all it wants */
	new_world(&w);
	w.g[0].threshold[DT_CHECKPOINT] = w.g[1].threshold[DT_CHECKPOINT] =
		w.g[2].threshold[DT_CHECKPOINT] = 1;
	w.value[DT_CHECKPOINT] = 100 * 30 * MB;
	w.use[0][DT_WAL] = 10 * MB;
	w.use[1][DT_WAL] = 8800 * KB;
	w.use[2][DT_WAL] = 800 * KB;
	run_world(&w, 10);
	ok_range(w.g[0].rate[DT_WAL], 17.9 * MB, 18.1 * MB,
			 "30 for all, two want 1 and 11");
}

/* A budget of each second, shared by weight. */
static void
test_wal_rate(void)
{
	World		w;

	new_world(&w);
	w.value[DT_WAL_RATE] = 0;
	w.g[0].threshold[DT_WAL_RATE] = w.g[1].threshold[DT_WAL_RATE] = 20 * MB;
	w.g[1].weight = 3;
	w.use[0][DT_WAL] = 15 * MB;
	w.other = 4 * MB;
	run_world(&w, 5);
	ok_range(w.g[0].rate[DT_WAL], 15.6 * MB, 15.7 * MB,
			 "one group: all of it, less what others write and a sixtieth");
	ok_range(w.p.signal[DT_WAL_RATE].value, 18.9 * MB, 19.1 * MB, "the value");
	ok_range(w.g[0].pressure, 940, 955, "and the pressure");
	ok_range(w.g[1].rate[DT_WAL], 11.7 * MB, 11.8 * MB,
			 "an idle one may have its share at once");
	w.use[1][DT_WAL] = 11 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok_range(w.g[0].rate[DT_WAL], 3.9 * MB, 3.95 * MB,
			 "and when it begins the other one has its own");
	w.use[0][DT_WAL] = 4 * MB;
	run_world(&w, 5);
	ok_range(w.g[1].rate[DT_WAL], 11.7 * MB, 11.8 * MB, "three to one");
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
		w.g[i].threshold[DT_CHECKPOINT] = 1;
		w.use[i][DT_WAL] = 10 * MB;
	}
	w.g[0].floor = 2 * MB;
	w.g[1].weight = w.g[2].weight = 40;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 2 * MB, "a share below the floor: the floor");
	ok_range(w.g[1].rate[DT_WAL], 3.9 * MB, 4.1 * MB, "the others share the rest");
	w.use[1][DT_WAL] = 2 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_WAL] == 2 * MB, "it stays there");
	ok_range(w.g[2].rate[DT_WAL], 5.4 * MB, 5.6 * MB,
			 "when another one wants less");
}

/* Free space, a report, and what is out of reach. */
static void
test_more_signals(void)
{
	World		w;

	new_world(&w);
	w.g[0].threshold[DT_DISK_FREE] = 600 * MB;
	w.use[0][DT_WAL] = 30 * MB;
	w.value[DT_DISK_FREE] = 1200 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].pressure == 500,
	   "twice the threshold is free: no limit");
	w.value[DT_DISK_FREE] = 900 * MB;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 10 * MB && w.g[0].pressure == 666,
	   "half of that: it lasts for 30 s");
	w.value[DT_DISK_FREE] = 500 * MB;
	run_world(&w, 10);
	ok(w.g[0].rate[DT_WAL] == DT_PRESSURE_DEFAULT_FLOOR &&
	   w.g[0].pressure == 1200, "less than the threshold: the floor");

	new_world(&w);
	w.g[0].threshold[DT_REPORTED] = w.g[1].threshold[DT_REPORTED] = 1000;
	w.g[0].reported = 1300;
	w.g[1].reported = -1;
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	w.value[DT_REPORTED] = 1300;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] > 0 && w.g[0].rate[DT_WAL] < 10 * MB &&
	   w.g[0].pressure == 1300, "a report above 1: slower");
	ok(w.g[1].rate[DT_WAL] == 0 && w.g[1].signal == -1,
	   "no report that counts: free");

	new_world(&w);
	w.g[0].threshold[DT_CHECKPOINT] = 1;
	w.g[0].out_of_reach = true;
	w.use[0][DT_WAL] = MB;
	w.value[DT_CHECKPOINT] = 0;
	run_world(&w, 5);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].signal == DT_CHECKPOINT &&
	   w.g[0].others == 0, "out of reach: free, but the pressure is told");
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
	ok_range(d.capacity, 100 * MB, 170 * MB, "how fast a level falls is learned");
	for (i = 0; i < 3000; i++)
	{
		written += 8 * MB / 5;
		level += 8 * MB / 5;
		dt_drain_sample_level(&d, written, level, now += CYCLE);
	}
	ok_range(d.capacity, 0, 4 * MB, "that it does not fall any more, too");

	new_world(&w);
	w.g[0].threshold[DT_KERNEL_DIRTY] = 150 * MB;
	w.value[DT_KERNEL_DIRTY] = 40 * MB;
	run_world(&w, 20);
	ok(!dt_drain_knows(&w.p.signal[DT_KERNEL_DIRTY].drain),
	   "a level that stays while nothing is written tells nothing");
	w.value[DT_KERNEL_DIRTY] = 100 * MB;
	w.use[0][DT_DIRTY] = 2 * MB;
	w.use[1][DT_DIRTY] = 10 * MB;
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 1.98 * MB, 2.02 * MB,
			 "a level that stays: what is written drains");
	w.g[1].threshold[DT_KERNEL_DIRTY] = 150 * MB;
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 5.9 * MB, 6.1 * MB, "of both");
	w.g[1].observe = true;
	run_world(&w, 30);
	ok_range(w.g[0].rate[DT_DIRTY], 1.98 * MB, 2.02 * MB,
			 "of one, if the other obeys nobody");
	ok_range(w.g[1].rate[DT_DIRTY], 9.4 * MB, 9.6 * MB,
			 "who is told his share beside one that wants little");
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
		w.g[0].threshold[s] = dt_signals[s].unit == DT_UNIT_SHARE ?
			100000 : 100 * MB;
		w.value[s] = 9 * w.g[0].threshold[s];
		w.other = 50 * MB;
		run_world(&w, 20);
		ok(w.g[0].rate[r] == 0 && w.g[0].signal == (int) s &&
		   w.g[0].pressure > 8000,
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
		w.p.signal[s].other = 0;
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
	w.g[0].threshold[DT_SLOT_LAG] = 100 * MB;
	w.use[0][DT_WAL] = 2 * MB;
	run_world(&w, 5);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_ABSENT &&
	   w.g[0].signal == -1 && w.g[0].rate[DT_WAL] == 0, "never read: absent");
	w.value[DT_SLOT_LAG] = 150 * MB;
	run_world(&w, 5);
	rate = w.g[0].rate[DT_WAL];
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_FRESH && rate > 0 &&
	   w.p.signal[DT_SLOT_LAG].value == 150 * MB &&
	   w.p.signal[DT_SLOT_LAG].read_at == w.now, "fresh: it presses");
	w.value[DT_SLOT_LAG] = NONE;
	run_world(&w, 10);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_FRESH, "after 10 s: fresh");
	run_world(&w, CYCLE * 1e-6);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_STALE &&
	   w.g[0].rate[DT_WAL] == rate && w.g[0].pressure == 1500,
	   "then: stale, and counts");
	run_world(&w, 29.6);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_STALE &&
	   w.g[0].rate[DT_WAL] == rate, "for 30 s");
	run_world(&w, 2 * CYCLE * 1e-6);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_ABSENT &&
	   w.g[0].rate[DT_WAL] == 0 && w.g[0].signal == -1,
	   "then it does not, at once");
	w.value[DT_SLOT_LAG] = 20 * MB;
	run_world(&w, CYCLE * 1e-6);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_FRESH &&
	   w.g[0].rate[DT_WAL] == 0 && w.g[0].pressure == 200,
	   "it is back: a new beginning");
	w.value[DT_SLOT_LAG] = 150 * MB;
	run_world(&w, 5);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_FRESH &&
	   w.g[0].rate[DT_WAL] > 0, "as is the pressure");
	rate = w.g[0].rate[DT_WAL];
	w.value[DT_SLOT_LAG] = NONE;
	dt_pressure_absent(&w.p, DT_SLOT_LAG);
	w.use[0][DT_WAL] = 100 * MB;
	run_world(&w, 1);
	ok(w.p.signal[DT_SLOT_LAG].state == DT_SIGNAL_ABSENT &&
	   w.g[0].signal == -1, "gone: absent");
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
		w.g[0].threshold[DT_KERNEL_DIRTY] = 100 * MB;
		w.value[DT_KERNEL_DIRTY] = 150 * MB;
		w.use[0][DT_DIRTY] = 10 * MB;
		run_world(&w, 20);
		w.now += jumps[i];
		run_world(&w, 5);
		ok(w.g[0].rate[DT_DIRTY] > 0 &&
		   w.g[0].rate[DT_DIRTY] <= 10 * MB &&
		   w.p.signal[DT_KERNEL_DIRTY].state == DT_SIGNAL_FRESH,
		   "the clock jumps by %lld s: pressed",
		   (long long) (jumps[i] / SEC));
		w.value[DT_KERNEL_DIRTY] = 0;
		run_world(&w, 60);
		ok(w.g[0].rate[DT_DIRTY] == 0, "... and free again");

		w.value[DT_KERNEL_DIRTY] = 150 * MB;
		run_world(&w, 20);
		w.value[DT_KERNEL_DIRTY] = NONE;
		w.now += jumps[i];
		run_world(&w, 41);
		ok(w.g[0].rate[DT_DIRTY] == 0, "... without a reading, too");
	}

	/* a standby whose last news are of the future */
	{
		World		w;
		DtDrain		d;

		new_world(&w);
		w.g[0].threshold[DT_REPLICA_LAG] = SEC;
		memset(&d, 0, sizeof(DtDrain));
		dt_drain_sample(&d, GB, 0, w.now + HOUR);
		read_standby(&w, &d);
		run_world(&w, 1);
		ok(w.p.signal[DT_REPLICA_LAG].state == DT_SIGNAL_ABSENT,
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
	w.g[0].threshold[DT_REPLICA_LAG] = 3 * SEC;
	w.use[0][DT_WAL] = MB;
	read_standby(&w, NULL);
	run_world(&w, 1);
	ok(w.g[0].signal == -1 && w.g[0].rate[DT_WAL] == 0, "no standby");

	memset(&d, 0, sizeof(DtDrain));
	d.seen_at = w.now;
	d.written = 20 * MB;
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].pressure == 0,
	   "one of which nothing is known presses nobody");
	d.seen_at = w.now;
	d.capacity = d.arrival = d.speed = 10 * MB;
	d.learned_us = SEC;
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].rate[DT_WAL] == 10 * MB, "at two thirds: its capacity");
	ok(w.g[0].signal == DT_REPLICA_LAG && w.g[0].pressure == 666 &&
	   w.p.signal[DT_REPLICA_LAG].value == 2 * SEC, "its pressure");
	rate = w.g[0].rate[DT_WAL];
	w.g[1].threshold[DT_REPLICA_LAG] = 4 * SEC;
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
	ok(w.g[1].rate[DT_WAL] > 10 * MB && w.g[1].pressure == 525,
	   "another threshold, another rate");
	read_standby(&w, &d);
	run_world(&w, 39.6);
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].signal == DT_REPLICA_LAG, "old: counts");
	read_standby(&w, &d);
	run_world(&w, 1);
	read_standby(&w, &d);
	run_world(&w, CYCLE * 1e-6);
	ok(w.g[0].signal == -1 && w.g[0].rate[DT_WAL] == 0, "too old: does not");
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
	d.capacity = 10 * MB;
	d.learned_us = SEC;
	dt_drain_assume(&d, 2 * SEC);
	ok(dt_drain_backlog(&d) == 10 * MB && dt_drain_lag_us(&d) == SEC,
	   "after a second: what its capacity drains");
	dt_drain_assume(&d, 2 * SEC);
	ok(dt_drain_backlog(&d) == 10 * MB, "at the same time: no more");
	dt_drain_assume(&d, 9 * SEC);
	ok(dt_drain_backlog(&d) == 0 && d.capacity == 10 * MB,
	   "in the end nothing is left, and nothing was learned");
	d.drained = 0;
	d.capacity = 0;
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

	new_world(&w);
	rates[DT_DIRTY] = MB;
	rates[DT_WAL] = 2 * MB;
	dt_pressure_group_init(&w.g[0], rates, used);
	ok(w.g[0].rate[DT_WAL] == 2 * MB && w.g[0].rate[DT_DIRTY] == MB,
	   "a new group has the rates in force");
	w.g[0].threshold[DT_IO_PRESSURE] = 100000;
	w.value[DT_IO_PRESSURE] = 95000;
	w.use[0][DT_DIRTY] = MB;
	w.use[0][DT_WAL] = 10 * MB;
	run_world(&w, 1);
	ok_range(w.g[0].rate[DT_WAL], 3 * MB, 4.5 * MB, "let go slowly");
	ok(w.g[0].rate[DT_DIRTY] == MB, "the brake goes on from there");
	run_world(&w, 4);
	ok_range(w.p.signal[DT_IO_PRESSURE].value, 94000, 96000, "io_pressure");
	ok(w.g[0].pressure >= 940 && w.g[0].pressure <= 960, "and its pressure");
	w.value[DT_IO_PRESSURE] += 300000;
	w.p.signal[DT_IO_PRESSURE].other = w.now / 1000 *
		w.value[DT_IO_PRESSURE] / 1000;
	run_world(&w, 1);
	w.value[DT_IO_PRESSURE] = 0;
	w.p.signal[DT_IO_PRESSURE].other = 0;
	run_world(&w, 5);
	ok(w.g[0].pressure < 500 &&
	   w.p.signal[DT_IO_PRESSURE].value > 60000,
	   "the pressure is that of the window with less");

	/* two groups: the brake begins with what both may use */
	new_world(&w);
	dt_pressure_group_init(&w.g[0], rates, used);
	dt_pressure_group_init(&w.g[1], rates, used);
	w.g[0].threshold[DT_IO_PRESSURE] = w.g[1].threshold[DT_IO_PRESSURE] =
		100000;
	w.value[DT_IO_PRESSURE] = 95000;
	w.use[0][DT_DIRTY] = w.use[1][DT_DIRTY] = MB;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == MB && w.g[1].rate[DT_DIRTY] == MB,
	   "two groups go on as before");
	dt_pressure_absent(&w.p, DT_IO_PRESSURE);
	w.value[DT_IO_PRESSURE] = NONE;
	run_world(&w, 11);
	w.value[DT_IO_PRESSURE] = 95000;
	run_world(&w, 1);
	ok(w.g[0].rate[DT_DIRTY] == 0 && w.g[0].pressure > 900,
	   "gone, and back: a new beginning");
}

/* Commits by others, 1000 a second, each of so many us. */
static void
run_commits(World *w, double seconds, int64_t us)
{
	static int64_t commits = 0;
	static int64_t sum = 0;
	int			i;

	for (i = 0; i < seconds * 5; i++)
	{
		commits += 200;
		sum += 200 * us;
		dt_pressure_read(&w->p, DT_COMMIT_LATENCY, commits, sum,
						 w->now + CYCLE);
		run_world(w, 0.2);
	}
}

static void
test_commits(void)
{
	World		w;
	int			cycles = 0;

	new_world(&w);
	w.g[0].threshold[DT_COMMIT_LATENCY] = 5000;
	w.use[0][DT_WAL] = 10 * MB;
	w.other = 30 * MB;
	run_commits(&w, 10, 1000);
	ok(w.g[0].rate[DT_WAL] >= 16 * MB && w.g[0].rate[DT_WAL] <= 25 * MB,
	   "who begins while others commit begins slowly");
	run_commits(&w, 35, 1000);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[0].pressure == 200,
	   "commits below the threshold: no limit for what needs none");
	ok(w.p.signal[DT_COMMIT_LATENCY].value == 1000, "the value");
	while (w.g[0].rate[DT_WAL] == 0 && cycles++ < 20)
		run_commits(&w, 0.2, 20000);
	ok(cycles <= 10 && w.g[0].rate[DT_WAL] < 6 * MB &&
	   w.g[0].decides[DT_WAL] == DT_COMMIT_LATENCY,
	   "above: slower, whatever others write");

	/* two groups rest at the same time */
	new_world(&w);
	w.g[0].threshold[DT_COMMIT_LATENCY] = w.g[1].threshold[DT_COMMIT_LATENCY] =
		200000;
	w.g[0].by_share[DT_COMMIT_LATENCY] = w.g[1].by_share[DT_COMMIT_LATENCY] =
		true;
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	for (cycles = 0; cycles < 20 && w.g[0].rate[DT_WAL] == 0; cycles++)
		run_commits(&w, 0.2, 1000);
	ok(w.g[0].rate[DT_WAL] == w.g[0].floor &&
	   w.g[1].rate[DT_WAL] == w.g[1].floor, "a share: they rest together");
	ok(w.g[0].probed && w.g[1].probed, "for a moment");
	run_commits(&w, 3, 1000);
	ok(w.p.signal[DT_COMMIT_LATENCY].latency.n_samples == 0,
	   "one that goes on as before: nothing is learned from that");
	while (!w.g[0].probed)
		run_commits(&w, 0.2, 1000);
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = w.g[0].floor;
	while (w.g[0].probed)
		run_commits(&w, 0.2, 1000);
	w.use[0][DT_WAL] = w.use[1][DT_WAL] = 10 * MB;
	run_commits(&w, 0.2, 1000);
	ok(w.g[0].rate[DT_WAL] == 0 && w.g[1].rate[DT_WAL] == 0,
	   "and are let go at once");
	ok(w.g[0].pressure > 600 && w.g[0].pressure < 900, "with the base");

	/* what is only observed makes nobody rest */
	new_world(&w);
	w.g[0].threshold[DT_COMMIT_LATENCY] = 200000;
	w.g[0].by_share[DT_COMMIT_LATENCY] = w.g[0].observe = true;
	w.use[0][DT_WAL] = 10 * MB;
	run_commits(&w, 20, 1000);
	ok(w.p.signal[DT_COMMIT_LATENCY].latency.n_samples == 0 &&
	   w.g[0].rate[DT_WAL] == 0, "mode observe: no probe");
}

int
main(void)
{
	test_drain();
	test_worst();
	test_zones();
	test_budget();
	test_ramp();
	test_brake();
	test_free();
	test_decision();
	test_changes();
	test_redefined();
	test_others();
	test_wal_rate();
	test_floors();
	test_more_signals();
	test_levels();
	test_idle();
	test_staleness();
	test_clock();
	test_replica();
	test_assume();
	test_restart();
	test_commits();

	return done_testing();
}
