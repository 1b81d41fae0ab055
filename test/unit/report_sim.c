/*-------------------------------------------------------------------------
 *
 * report_sim.c
 *		Simulator for signals that somebody reports, now and then.
 *
 * A job writes as fast as it may, and somebody reports every so many seconds
 * what has come of it since his last report.  3 MB/s are what can be sustained.
 *
 * - A utilization: the rate by 3 MB/s.
 * - Something that is steeper: its square.
 * - A bucket of burst credits, as cloud disks have them: it earns 3 MB/s, and is
 *   full with what 30 minutes at 30 MB/s take.  What is left of it is an
 *   integral of the rate, and swings with whatever law is an integral itself.
 *   So what is reported is how fast it is used, by how fast it may be used: what
 *   it earns, and of what is left in it as much as lasts for two hours.  That is
 *   the recipe of the documentation.
 *
 *		report_sim					all cases
 *		report_sim --print KIND SECONDS		one of them, every minute
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <string.h>

#include "engine/control.h"
#include "random.h"
#include "tap.h"

#define TICK_US		INT64_C(200000)
#define TICK		0.2			/* seconds */
#define MB			1e6
#define EARNS		(3 * MB)	/* what can be sustained, bytes/s */
#define SPEED		(30 * MB)	/* of the job, if nothing limits it */
#define BUCKET		((SPEED - EARNS) * 1800)
#define LASTS		7200.0		/* seconds */
#define HOURS		12
#define FROM		(4 * 3600.0)	/* measure from here, seconds */

typedef enum Kind
{
	UTILIZATION,
	SQUARE,
	CREDIT,
	KINDS
} Kind;

typedef struct Result
{
	double		mean;			/* by what can be sustained */
	double		lowest;			/* mean of a minute, by the same */
	double		highest;
	double		at_floor;		/* part of the time */
	double		at_full;
	double		left;			/* least in the bucket, a part of it */
} Result;

/* What is reported of so many bytes in so many seconds. */
static double
report_of(Kind kind, double bytes, double seconds, double spent, double left)
{
	switch (kind)
	{
		case UTILIZATION:
			return bytes / seconds / EARNS;
		case SQUARE:
			return pow(bytes / seconds / EARNS, 2);
		default:
			/* all that can be seen is how much is left */
			return (EARNS + spent / seconds) / (EARNS + left / LASTS);
	}
}

static Result
simulate(Kind kind, double every, double noise, bool print)
{
	static DtPressure p;
	static DtPressureGroup g;
	static DtController controller;
	DtController *const c = &controller;
	DtPressureGroup *const all[] = {&g};
	int64_t		none[DT_RESOURCES] = {0};
	Result		r = {.lowest = 1e30,.left = 1};
	double		left = BUCKET;
	double		left_then = BUCKET;
	double		used = 0;
	double		used_then = 0;
	double		next = every;
	double		minute = 0;
	double		n = 0;
	int			tick;

	memset(&p, 0, sizeof(p));
	memset(c, 0, sizeof(*c));
	seed_rng(1);
	c->signal = DT_REPORTED;
	c->threshold = 1000;
	c->fresh_us = (int64_t) (2e6 * every);
	dt_pressure_group_init(&g, none, none, NULL);
	g.follows[DT_REPORTED] = c;
	for (tick = 0; tick * TICK < HOURS * 3600; tick++)
	{
		double		t = tick * TICK;
		int64_t		now = INT64_C(1000000000000) + tick * TICK_US;
		double		rate = g.rate[DT_WAL] > 0 ?
			fmin((double) g.rate[DT_WAL], SPEED) : SPEED;

		if (kind == CREDIT && left <= 0)
			rate = fmin(rate, EARNS);
		used += rate * TICK;
		left = fmax(0, fmin(BUCKET, left + (EARNS - rate) * TICK));
		if (t >= next)
		{
			c->value = (int64_t) (1000 * (1 + noise * (2 * rng_double() - 1)) *
								  report_of(kind, used - used_then, every,
											left_then - left, left));
			c->read_at = now;
			used_then = used;
			left_then = left;
			next += every;
		}
		g.used[DT_WAL] = (int64_t) used;
		dt_pressure_step(&p, &c, 1, all, 1, (int64_t) used, now);
		minute += (rate - minute) * TICK / 60;
		if (print && tick % 300 == 0)
			printf("# %7.0f s  rate %7.3f  left %6.2f %%  reported %6.3f\n", t,
				   rate / MB, 100 * left / BUCKET, (double) c->value / 1000);
		if (t < FROM)
			continue;
		n++;
		r.mean += rate / EARNS;
		r.lowest = fmin(r.lowest, minute / EARNS);
		r.highest = fmax(r.highest, minute / EARNS);
		r.at_floor += rate <= (double) g.floor;
		r.at_full += rate >= SPEED;
		r.left = fmin(r.left, left / BUCKET);
	}
	r.mean /= n;
	r.at_floor /= n;
	r.at_full /= n;
	return r;
}

static void
test_reports(void)
{
	static const char *const names[] = {"a utilization", "its square",
	"credits"};
	static const double every[] = {1, 10, 60, 300};
	static const double noises[] = {0, 0.1};

	for (int kind = 0; kind < KINDS; kind++)
		for (int e = 0; e < 4; e++)
			for (int k = 0; k < 2; k++)
			{
				Result		r = simulate(kind, every[e], noises[k], false);

				ok(r.mean >= 0.9 && r.mean <= (kind == CREDIT ? 1.6 : 1.05) &&
				   r.lowest >= 0.5 && r.highest <= 2 && r.at_floor == 0 &&
				   r.at_full == 0 && (kind != CREDIT || r.left > 0),
				   "%s every %g s, noise %g: mean %.2f of what can be sustained, "
				   "minutes %.2f to %.2f, at the floor %.2f, at full speed %.2f of "
				   "the time, left %.2f", names[kind], every[e], noises[k], r.mean,
				   r.lowest, r.highest, r.at_floor, r.at_full, r.left);
			}
}

int
main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "--print") == 0)
	{
		(void) simulate(atoi(argv[2]), atof(argv[3]), 0, true);
		return EXIT_SUCCESS;
	}
	test_reports();
	return done_testing();
}
