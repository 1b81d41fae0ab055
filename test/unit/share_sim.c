/*-------------------------------------------------------------------------
 *
 * share_sim.c
 *		Simulator for groups that share what a signal leaves to them.
 *
 * A budget of WAL in each second, of which 49.2 MB are there for groups, and
 * jobs that want so much, begin and end then, and work by fits and starts.  A
 * rate takes effect a little later than it is set.  Each group is to get what
 * is fair: those who want more than their share by weight have that, and those
 * who want less leave it to the others.  But who uses three quarters of his
 * share may be about to use all of it, so that much is kept for him, and what
 * somebody leaves by fits and starts is not found at once.
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <string.h>

#include "engine/control.h"
#include "tap.h"

#define TICK_US		INT64_C(10000)
#define TICK		0.01		/* seconds */
#define CYCLE		20			/* ticks */
#define LATE		5			/* ticks until a rate has an effect */
#define SECOND		100			/* ticks */
#define END			60			/* seconds */
#define MB			1e6
#define BUDGET		(50 * MB)
#define MAX_GROUPS	4

typedef struct Job
{
	double		fair;			/* MB/s, from "from" on */
	double		wants;			/* MB/s; 0 = as much as it can */
	int			weight;
	double		floor;			/* MB/s; 0 = the default */
	double		begin;			/* seconds */
	double		end;			/* the same; 0 = never */
	double		on;				/* it works for so many seconds, ... */
	double		off;			/* ... and not for so many; 0 = always */
} Job;

typedef struct Case
{
	const char *name;
	double		from;			/* seconds */
	double		most;			/* in the busiest second, part of the budget */
	Job			jobs[MAX_GROUPS];
} Case;

static const Case cases[] = {
	{"two", 5, 1.01, {{.fair = 24.6}, {.fair = 24.6}}},
	{"three to one", 5, 1.01, {{.fair = 36.9,.weight = 3}, {.fair = 12.3}}},
	{"an idle one, and one that begins", 20, 1.01,
	{{.fair = 0,.wants = 1e-9}, {.fair = 24.6}, {.fair = 24.6,.begin = 10}}},
	{"one that wants little, and one that begins", 20, 1.01,
	{{.fair = 5,.wants = 5}, {.fair = 22.1}, {.fair = 22.1,.begin = 10}}},
	{"one that wants nearly its share", 10, 1.01,
	{{.fair = 15,.wants = 15}, {.fair = 16.4}, {.fair = 16.4}}},
	{"one that wants less than three quarters of it", 10, 1.01,
	{{.fair = 12,.wants = 12}, {.fair = 18.6}, {.fair = 18.6}}},
	{"the heavy one wants little", 10, 1.01,
	{{.fair = 10,.wants = 10,.weight = 3}, {.fair = 39.2}}},
	{"a floor above the share", 5, 1.01,
	{{.fair = 10,.floor = 10}, {.fair = 19.6,.weight = 40}, {.fair = 19.6,.weight = 40}}},
	{"one leaves", 32, 1.01,
	{{.fair = 32.8,.weight = 2}, {.fair = 16.4}, {.fair = 0,.end = 30}}},
	{"four begin one after the other", 32, 1.01,
	{{.fair = 12.3}, {.fair = 12.3,.begin = 10}, {.fair = 12.3,.begin = 20}, {.fair = 12.3,.begin = 30}}},
	{"fits and starts of 5 s", 10, 1.2,
	{{.fair = 14.7,.weight = 3,.on = 5,.off = 5}, {.fair = 16}, {.fair = 16}}},
	{"fits and starts of a second", 10, 1.1,
	{{.fair = 12.3,.on = 1,.off = 1}, {.fair = 32}}},
	{"starts of 0.3 s", 10, 1.1, {{.fair = 5.7,.on = 0.3,.off = 1}, {.fair = 39}}},
};

static double rates[MAX_GROUPS][LATE + 1];

/* How fast a job goes, bytes/s. */
static double
speed_of(const Job *job, int i, int tick)
{
	double		t = tick * TICK;
	double		wants = (job->wants > 0 ? job->wants : 500) * MB;
	double		rate = rates[i][tick % (LATE + 1)];

	if (t < job->begin || (job->end > 0 && t >= job->end) ||
		(job->off > 0 && fmod(t, job->on + job->off) >= job->on))
		return 0;
	return rate == 0 || rate > wants ? wants : rate;
}

static void
run(const Case *s)
{
	static DtPressure p;
	static DtPressureGroup g[MAX_GROUPS];
	static DtController controller;
	DtController *const c = &controller;
	DtPressureGroup *const all[MAX_GROUPS] = {&g[0], &g[1], &g[2], &g[3]};
	int64_t		none[DT_RESOURCES] = {0};
	double		used[MAX_GROUPS] = {0};
	double		mean[MAX_GROUPS] = {0};
	double		second[SECOND] = {0};
	double		in_second = 0;
	double		busiest = 0;
	double		wal = 0;

	memset(&p, 0, sizeof(p));
	memset(c, 0, sizeof(*c));
	memset(rates, 0, sizeof(rates));
	c->signal = DT_WAL_RATE;
	c->threshold = (int64_t) BUDGET;
	c->fresh_us = DT_STALE_US;
	for (int i = 0; i < MAX_GROUPS; i++)
	{
		dt_pressure_group_init(&g[i], none, none, NULL);
		if (s->jobs[i].weight > 0)
			g[i].weight = s->jobs[i].weight;
		if (s->jobs[i].floor > 0)
			g[i].floor = (int64_t) (s->jobs[i].floor * MB);
		/* those of the array that the case does not name are not there */
		if (s->jobs[i].fair > 0 || s->jobs[i].wants > 0 || s->jobs[i].end > 0)
			g[i].follows[DT_WAL_RATE] = c;
	}
	for (int tick = 0; tick < END * SECOND; tick++)
	{
		double		sum = 0;

		for (int i = 0; i < MAX_GROUPS; i++)
		{
			double		speed = g[i].follows[DT_WAL_RATE] == NULL ? 0 :
				speed_of(&s->jobs[i], i, tick);

			used[i] += speed * TICK;
			sum += speed * TICK;
			if (tick >= s->from * SECOND)
				mean[i] += speed / ((END - s->from) * SECOND) / MB;
		}
		wal += sum;
		in_second += sum - second[tick % SECOND];
		second[tick % SECOND] = sum;
		if (tick >= s->from * SECOND)
			busiest = fmax(busiest, in_second / BUDGET);
		if (tick % CYCLE == 0)
		{
			c->read_at = INT64_C(1000000000000) + tick * TICK_US;
			for (int i = 0; i < MAX_GROUPS; i++)
				g[i].used[DT_WAL] = (int64_t) used[i];
			dt_pressure_step(&p, &c, 1, all, MAX_GROUPS, (int64_t) wal,
							 c->read_at);
		}
		for (int i = 0; i < MAX_GROUPS; i++)
			rates[i][(tick + LATE) % (LATE + 1)] = (double) g[i].rate[DT_WAL];
	}
	printf("# %s: %.2f %.2f %.2f %.2f, busiest second %.3f\n", s->name, mean[0],
		   mean[1], mean[2], mean[3], busiest);
	for (int i = 0; i < MAX_GROUPS; i++)
		if (g[i].follows[DT_WAL_RATE] != NULL)
			ok_range(mean[i], 0.97 * s->jobs[i].fair,
					 1.03 * s->jobs[i].fair + 0.01, s->name);
	ok_range(busiest, 0.9, s->most, "of the budget in the busiest second");
}

int
main(void)
{
	for (int i = 0; i < (int) (sizeof(cases) / sizeof(cases[0])); i++)
		run(&cases[i]);
	return done_testing();
}
