/*-------------------------------------------------------------------------
 *
 * pressure_fuzz.c
 *		Fuzzer for the laws of pressure.
 *
 * The input is a sequence of readings, settings and steps of the clock; after
 * each step all results must be in range.  At the end the signals are gone for
 * a minute, and then no group may be limited by anything but its fixed limit.
 * With libFuzzer:
 *
 *	clang -DDT_LIBFUZZER -fsanitize=fuzzer,address,undefined -Isrc \
 *		test/unit/pressure_fuzz.c src/engine/[a-z]*.c
 *
 * Without, main() makes up pseudo-random inputs: pressure_fuzz [SEED [COUNT]].
 * A failure aborts, so that any fuzzer and sanitizer sees it.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/control.h"
#include "engine/rate.h"
#include "fuzz.h"

#define GROUPS		3
#define DRAINS		3
#define CONTROLLERS	6
#define SECOND		INT64_C(1000000)

typedef struct World
{
	DtPressure	p;
	DtPressureGroup groups[GROUPS];
	DtController controllers[CONTROLLERS];
	DtDrain		drains[DRAINS];
} World;

/* A position or time, and so many steps; it wraps around. */
static int64_t
later(int64_t position, int steps)
{
	return (int64_t) ((uint64_t) position + (uint64_t) steps * 100000);
}

static void
fail(const char *problem)
{
	printf("not ok 1 - %s\n1..1\n", problem);
	fflush(stdout);
	abort();
}

/* A fixed limit as it can be defined. */
static int64_t
next_limit(Input *in)
{
	int64_t		limit = next_number(in);

	return limit < 0 ? 0 : limit > DT_RATE_MAX ? DT_RATE_MAX : limit;
}

/* A threshold as it can be defined. */
static int64_t
next_threshold(Input *in)
{
	int64_t		threshold = next_number(in);

	return threshold < 1 ? 1 : threshold > INT64_C(1000000000000000) ?
		INT64_C(1000000000000000) : threshold;
}

static void
check_drain(const DtDrain *d)
{
	int64_t		lag = dt_drain_lag_us(d);

	if (dt_drain_backlog(d) < 0 || lag < 0 || lag > 3600 * SECOND)
		fail("a lag is out of range");
	if (d->speed < -DT_RATE_MAX || d->speed > DT_RATE_MAX)
		fail("a speed is out of range");
}

static void
check(const World *w)
{
	int			i;
	int			r;

	for (i = 0; i < GROUPS; i++)
	{
		const DtPressureGroup *g = &w->groups[i];

		for (r = 0; r < DT_RESOURCES; r++)
		{
			int64_t		limit = g->limit[r];
			int64_t		floor = g->floor;

			if (limit > 0 && floor > limit)
				floor = limit;
			if (g->rate[r] < 0 || g->rate[r] > DT_RATE_MAX)
				fail("a rate is out of range");
			if (g->rate[r] > 0 && g->rate[r] < floor)
				fail("a rate is below its floor");
			if (limit > 0 && (g->rate[r] == 0 || g->rate[r] > limit))
				fail("a rate is above its limit");
			if (g->use_rate[r] < 0 || g->use_rate[r] > DT_RATE_MAX)
				fail("the use is out of range");
		}
		for (r = 0; r < DT_RESOURCES; r++)
			if (g->decides[r] < -1 || g->decides[r] >= DT_SIGNALS)
				fail("a signal decides that is none");
	}
	for (i = 0; i < DRAINS; i++)
		check_drain(&w->drains[i]);
	for (i = 0; i < CONTROLLERS; i++)
	{
		check_drain(&w->controllers[i].level);
		if (w->controllers[i].pressure < -1 ||
			w->controllers[i].pressure > DT_PRESSURE_MAX ||
			(w->controllers[i].pressure >= 0 &&
			 w->controllers[i].state == DT_SIGNAL_ABSENT))
			fail("a pressure is out of range");
		if (w->controllers[i].rate < 0 ||
			w->controllers[i].rate > DT_LAW_MAX)
		{
			printf("# signal %d rate %" PRId64 " brake %" PRId64 " droop %" PRId64 "\n", w->controllers[i].signal, w->controllers[i].rate, w->controllers[i].brake.rate, w->controllers[i].droop.rate);
			fail("the result of a law is out of range");
		}
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static World w;
	Input		in = {data, size};
	int64_t		now = next_number(&in);
	int64_t		wal = next_number(&in);
	DtPressureGroup *const groups[GROUPS] = {w.groups, w.groups + 1, w.groups + 2};
	DtController *controllers[CONTROLLERS];
	int			i;

	memset(&w, 0, sizeof(w));
	for (i = 0; i < CONTROLLERS; i++)
	{
		controllers[i] = &w.controllers[i];
		w.controllers[i].signal = next_byte(&in) % DT_SIGNALS;
		w.controllers[i].queue = &w.drains[i % DRAINS];
		w.controllers[i].threshold = next_threshold(&in);
		w.controllers[i].fresh_us = DT_STALE_US;
	}

	while (in.size > 0)
	{
		uint8_t		op = next_byte(&in);
		DtPressureGroup *g = &w.groups[next_byte(&in) % GROUPS];
		DtDrain    *d = &w.drains[op % DRAINS];
		DtController *c = &w.controllers[op / 16 % CONTROLLERS];
		DtResource	resource = op / 16 % DT_RESOURCES;

		switch (op % 16)
		{
			case 0:
				now = next_number(&in);
				break;
			case 1:
				wal = next_number(&in);
				break;
			case 2:
				g->limit[resource] = next_limit(&in);
				break;
			case 3:
				g->floor = next_limit(&in);
				g->observe = (op & 0x10) != 0;
				c->by_share = (op & 0x20) != 0;
				break;
			case 4:
				c->threshold = next_threshold(&in);
				g->follows[c->signal] = next_byte(&in) % 4 > 0 ? c : NULL;
				break;
			case 5:
				g->used[resource] = next_number(&in);
				break;
			case 6:
				dt_drain_sample(d, next_number(&in), next_number(&in), now);
				break;
			case 7:
				dt_drain_sample(d, later(d->written, next_byte(&in) % 8),
								later(d->drained, next_byte(&in) % 8), now);
				break;
			case 8:
				{
					const DtDrain *all[DRAINS] = {w.drains, w.drains + 1, w.drains + 2};

					c->queue = dt_drain_worst(all, DRAINS, op / 32 % 4, now);
					c->read_at = c->queue ? c->queue->seen_at : 0;
					c->queue = c->queue ? c->queue : all[0];
					break;
				}
			case 9:
			case 10:
				c->value = next_number(&in);
				c->other = next_number(&in);
				c->commits.n = next_number(&in);
				for (int b = 0; b < DT_LATENCY_BUCKETS; b += 1 + next_byte(&in) % 32)
					c->commits.weight[b] = next_number(&in) & ((INT64_C(1) << 40) - 1);
				w.p.waiting = next_number(&in);
				c->read_at = now;
				break;
			case 11:
				c->read_at = 0;
				g->weight = 1 + op;
				c->out_of_reach = op & 0x20;
				break;
			case 12:
				{
					int64_t		rate[DT_RESOURCES] = {next_limit(&in), 0};

					dt_pressure_group_init(g, rate, g->used, NULL);
					break;
				}
			default:
				/* time passes, and something is used */
				now = later(now, next_byte(&in) % 8);
				wal = later(wal, next_byte(&in));
				g->used[resource] = later(g->used[resource], next_byte(&in));
				dt_pressure_step(&w.p, controllers, CONTROLLERS, groups, GROUPS, wal, now);
				check(&w);
		}
	}

	/* no signal is fresh any more; the clock may have been anywhere */
	if (now < 0 || now > INT64_MAX / 2)
		now = 0;
	for (i = 0; i < 400; i++)
	{
		now += SECOND / 5;
		dt_pressure_step(&w.p, controllers, CONTROLLERS, groups, GROUPS, wal, now);
		check(&w);
		if (i > 50 * 5)
		{
			int			k;

			for (k = 0; k < GROUPS * DT_RESOURCES; k++)
				if (w.groups[k / 2].rate[k % 2] != w.groups[k / 2].limit[k % 2])
					fail("a group is stuck");
		}
	}
	return 0;
}

#ifndef DT_LIBFUZZER

int
main(int argc, char **argv)
{
	uint64_t	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t	count = argc > 2 ? strtoull(argv[2], NULL, 0) : 10000;
	uint64_t	state = random_state(seed);
	uint64_t	i;
	uint8_t		data[1024];
	size_t		k;

	printf("# seed %" PRIu64 ", %" PRIu64 " inputs\n", seed, count);
	fflush(stdout);
	for (i = 0; i < count; i++)
	{
		for (k = 0; k < sizeof(data); k++)
		{
			data[k] = random_byte(&state);

			/* most of the time the clock just goes on */
			if (data[k] % 16 == 0 && i % 2 == 0)
				data[k] |= 15;
		}
		LLVMFuzzerTestOneInput(data, sizeof(data));
	}
	printf("ok 1 - whatever is read, all rates are in range\n1..1\n");
	return EXIT_SUCCESS;
}

#endif							/* DT_LIBFUZZER */
