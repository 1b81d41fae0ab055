/*-------------------------------------------------------------------------
 *
 * rate_fuzz.c
 *		Fuzzer for the rate engine.
 *
 * The input is a sequence of operations on one group and a few members; after
 * each the invariants must hold and all results must be in range.  With
 * libFuzzer:
 *
 *	clang -DDT_LIBFUZZER -fsanitize=fuzzer,address,undefined -Isrc \
 *		test/unit/rate_fuzz.c src/engine/rate.c
 *
 * Without, main() makes up pseudo-random inputs: rate_fuzz [SEED [COUNT]].
 * A failure aborts, so that any fuzzer and sanitizer sees it.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "rate_check.h"

#define MEMBERS		6
#define FORGIVEN_MAX	INT64_C(1000000000000001)	/* us, some 30 years */

static void
fail(const char *problem)
{
	printf("not ok 1 - %s\n1..1\n", problem);
	fflush(stdout);
	abort();
}

static void
check_pause(int64_t pause)
{
	if (pause != 0 && (pause < 1000 || pause > 1000000))
		fail("a pause is out of range");
}

static void
check_forgiven(DtRateGroup *g, DtRateMember *m, int64_t pause, int64_t now)
{
	if (pause < 0 || pause > FORGIVEN_MAX)
		fail("a forgiven pause is out of range");
	if (dt_rate_debt(g, m, now) != 0 || dt_rate_wake(g, m, now) != 0 ||
		dt_rate_forgive(g, m, now) != 0)
		fail("a debt outlives that it was forgiven");
}

static void
check_bound(DtRateGroup *g, int64_t now)
{
	int64_t		owed = dt_rate_group_debt(g, now);
	int64_t		claim = g->claim / TOKENS;
	int64_t		forgiven = dt_rate_bound_debts(g, now);
	int64_t		left = dt_rate_group_debt(g, now);

	/*
	 * Each debt is rounded up.  What others were paid too much may pay more
	 * than what is forgiven.
	 */
	if (forgiven < 0 || left > owed - forgiven + MEMBERS + 2)
		fail("forgiven is not what was owed");
	/* what debtors were paid too much comes to a second at most */
	if (forgiven > 0 && left + g->limit < claim)
		fail("the fixed limit's claim was forgiven");
}

/* Each debt is rounded up to bytes. */
static void
check_left(DtRateGroup *g, DtRateMember *m, DtRateMember *heir, int64_t now)
{
	int64_t		owed = dt_rate_debt(g, m, now) + dt_rate_debt(g, heir, now);

	dt_rate_leave(g, m, heir, now);
	if (dt_rate_debt(g, heir, now) > owed)
		fail("more was inherited than was owed");
}

static void
check(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	const char *problem = find_violation(g);
	int64_t		sum = 0;
	int64_t		debt;
	int64_t		all;
	int			i;

	if (problem != NULL)
		fail(problem);
	for (i = 0; i < MEMBERS; i++)
	{
		int64_t		batch;

		if (m[i].next == NULL)
			continue;
		debt = dt_rate_debt(g, &m[i], now);
		if (debt < 0 || debt > DEBT_MAX + 1)
			fail("a debt is out of range");
		sum += debt;
		batch = dt_rate_batch(g, &m[i]);
		if (batch < g->granule || batch > 1024 * g->granule ||
			batch % g->granule != 0)
			fail("a batch is out of range");
	}
	if (g->burst_us < 0 || g->burst_us > DT_RATE_MAX_BURST_US)
		fail("the burst is out of range");
	all = dt_rate_group_debt(g, now);
	if (all < sum || (g->rate == 0 && all != 0))
		fail("the group owes less than its members");
	if (all > sum + DEBT_MAX + 1 + DT_RATE_MAX / 5 + 1)
		fail("the group owes too much");
	problem = find_violation(g);
	if (problem != NULL)
		fail(problem);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, size};
	DtRateGroup g;
	DtRateMember members[MEMBERS];
	int64_t		now = next_number(&in);

	memset(members, 0, sizeof(members));
	dt_rate_init(&g, next_number(&in), next_number(&in), now);
	g.settled = g.vtime = (uint64_t) next_number(&in);

	while (in.size > 0)
	{
		uint8_t		op = next_byte(&in);
		DtRateMember *m = &members[next_byte(&in) % MEMBERS];

		if (op & 0x80)
		{
			/* time passes, or jumps */
			if (op & 0x40)
				now = next_number(&in);
			else
				now = (int64_t) ((uint64_t) now +
								 (uint64_t) next_byte(&in) * (op & 0x3F) *
								 (op & 0x3F) * (op & 0x3F));
		}

		switch (op % 13)
		{
			case 0:
				if (m->next != NULL)
					dt_rate_leave(&g, m, NULL, now);
				break;
			case 1:
				if (m->next == NULL)
					dt_rate_join(&g, m, now);
				break;
			case 2:
				dt_rate_set(&g, next_number(&in), next_number(&in), now);
				break;
			case 3:
			case 4:
				if (m->next != NULL)
					check_pause(dt_rate_wake(&g, m, now));
				break;
			case 5:
				dt_rate_set_burst(&g, next_number(&in), now);
				break;
			case 6:
				if (m->next != NULL)
					check_forgiven(&g, m, dt_rate_forgive(&g, m, now), now);
				break;
			case 8:
				check_bound(&g, now);
				break;
			case 7:
				if (m->next != NULL)
				{
					DtRateMember *heir = &members[next_byte(&in) % MEMBERS];

					if (heir->next != NULL && heir != m)
						check_left(&g, m, heir, now);
				}
				break;
			default:
				if (m->next == NULL)
					dt_rate_join(&g, m, now);
				check_pause(dt_rate_charge(&g, m, next_number(&in), now,
										   next_byte(&in) / 200.0));
		}
		check(&g, members, now);
	}
	return 0;
}

#ifndef DT_LIBFUZZER

int
main(int argc, char **argv)
{
	uint64_t	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	uint64_t	count = argc > 2 ? strtoull(argv[2], NULL, 0) : 20000;
	uint64_t	state = random_state(seed);
	uint64_t	i;
	uint8_t		data[1024];
	size_t		k;

	printf("# seed %" PRIu64 ", %" PRIu64 " inputs\n", seed, count);
	fflush(stdout);
	for (i = 0; i < count; i++)
	{
		for (k = 0; k < sizeof(data); k++)
			data[k] = random_byte(&state);
		/* a sane start, or there is no limit nearly always */
		data[1] %= 52;
		data[4] %= 30;
		data[7] %= 16;
		LLVMFuzzerTestOneInput(data, sizeof(data));
	}
	printf("ok 1 - random operations keep the invariants\n1..1\n");
	return EXIT_SUCCESS;
}

#endif							/* DT_LIBFUZZER */
