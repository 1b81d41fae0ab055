/*-------------------------------------------------------------------------
 *
 * rate_test.c
 *		Unit test of the rate engine with a simulated clock.
 *
 * Compile with src/engine/rate.c, run alone or under prove; prints TAP.  Everything
 * is deterministic.  The first part calls the engine directly, the second
 * simulates sessions that use blocks, charge them at safe points as a backend
 * does, and sleep 0 to 5 ms longer than they are told.
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"
#include "rate_check.h"
#include "tap.h"

#define KB			INT64_C(1000)
#define MB			INT64_C(1000000)
#define GB			INT64_C(1000000000)
#define MS			INT64_C(1000)
#define SEC			INT64_C(1000000)
#define HOUR		(3600 * SEC)
#define YEAR		(365 * 24 * HOUR)
#define BLOCK		INT64_C(8192)

/* ok() with the figure in the name */
static void
ok_intact(const DtRateGroup *g, const char *name)
{
	const char *problem = find_violation(g);

	ok(problem == NULL, "%s: intact%s%s", name, problem ? ": " : "",
	   problem ? problem : "");
}

/*-------------------------------------------------------------------------
 * The engine, called directly
 *-------------------------------------------------------------------------
 */

static void
test_unlimited(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	int64_t		pause;

	dt_rate_init(&g, 0, BLOCK, SEC);
	dt_rate_join(&g, &a, SEC);
	dt_rate_join(&g, &b, SEC);
	ok(dt_rate_charge(&g, &a, 10 * GB, 2 * SEC, 0) == 0 &&
	   dt_rate_wake(&g, &a, 2 * SEC) == 0, "no limit: no pause");
	ok(dt_rate_debt(&g, &a, 2 * SEC) == 0 &&
	   dt_rate_group_debt(&g, 2 * SEC) == 0, "no limit: no debt");
	ok(dt_rate_batch(&g, &a) == 1024 * BLOCK,
	   "no limit: the largest batch");
	dt_rate_charge(&g, &b, 5 * GB, 3 * SEC, 0);
	dt_rate_leave(&g, &b, NULL, 3 * SEC);
	ok_intact(&g, "no limit, one left");

	fix_rate(&g, MB, HOUR);
	ok(dt_rate_charge(&g, &a, 20 * KB, HOUR, 0) == 0 &&
	   dt_rate_group_debt(&g, HOUR) == 0,
	   "a first limit starts with the idle burst");
	pause = dt_rate_charge(&g, &a, 500 * KB, HOUR, 0);
	ok(pause == 500 * MS, "and with no more: pause %lld us",
	   (long long) pause);
	ok(dt_rate_debt(&g, &a, HOUR) == 500 * KB, "which is what is owed");

	fix_rate(&g, 0, HOUR + 100 * MS);
	ok(dt_rate_wake(&g, &a, HOUR + 100 * MS) == 0 &&
	   dt_rate_debt(&g, &a, HOUR + 100 * MS) == 0,
	   "the limit taken away: debt forgiven, sleeper released");
	ok_intact(&g, "limit taken away");
	fix_rate(&g, MB, HOUR + 200 * MS);
	ok(dt_rate_group_debt(&g, HOUR + 200 * MS) == 0 &&
	   dt_rate_charge(&g, &a, 100 * KB, HOUR + 200 * MS, 0) == 80 * MS,
	   "and set again: a fresh start");
}

static void
test_basics(void)
{
	DtRateGroup g;
	DtRateGroup before;
	DtRateMember a;
	DtRateMember b;
	DtRateMember zero;
	static DtRateMember crowd[1023];
	int64_t		now = 5 * SEC;
	int			i;

	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	before = g;
	b = a;
	ok(dt_rate_charge(&g, &a, 0, now, 0.5) == 0 &&
	   dt_rate_charge(&g, &a, -5, now, 0.5) == 0 &&
	   dt_rate_charge(&g, &a, INT64_MIN, now, 0.5) == 0 &&
	   memcmp(&g, &before, sizeof(g)) == 0 && memcmp(&a, &b, sizeof(a)) == 0,
	   "a charge of nothing changes nothing");
	for (i = 0; i < 20; i++)
		dt_rate_charge(&g, &a, 0, now += 500 * MS, 0);
	ok(dt_rate_charge(&g, &a, 20 * KB, now, 0) == 0 &&
	   dt_rate_group_debt(&g, now) == 0 &&
	   dt_rate_charge(&g, &a, 300 * KB, now, 0) == 300 * MS,
	   "nor does it make an idle group look busy");
	ok(dt_rate_charge(&g, &a, 0, now, 0.9) == 300 * MS,
	   "but tells a debtor what to pause, without jitter when alone");
	ok(dt_rate_wake(&g, &a, now + 100 * MS) == 200 * MS,
	   "woken early: the rest");
	ok(dt_rate_wake(&g, &a, now + 299500) == 0,
	   "less than a millisecond left: no pause");
	now += 300 * MS;
	ok(dt_rate_wake(&g, &a, now) == 0 && dt_rate_debt(&g, &a, now) == 0,
	   "paid in time");
	ok(dt_rate_charge(&g, &a, 9 * KB, now, 0) == 0 &&
	   dt_rate_debt(&g, &a, now) == 9 * KB,
	   "too small a debt to pause for");
	ok(dt_rate_charge(&g, &a, KB, now, 0) == 10 * MS, "just large enough");
	ok(dt_rate_charge(&g, &a, 100 * MB, now, 0) == SEC,
	   "no pause is longer than a second");
	ok(dt_rate_wake(&g, &a, now + SEC) == SEC, "not even after a pause");

	/* a group that is in use keeps more than the idle burst */
	now = 5 * SEC;
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	for (i = 0; i < 20; i++)
		dt_rate_charge(&g, &a, KB, now += 300 * MS, 0);
	now += 300 * MS;
	ok(dt_rate_charge(&g, &a, 200 * KB, now, 0) == 100 * MS,
	   "100 ms of credit while in use");
	dt_rate_charge(&g, &a, 800 * KB, now, 0);
	now += 1500 * MS;
	ok(dt_rate_wake(&g, &a, now) == 0 &&
	   dt_rate_charge(&g, &a, 200 * KB, now, 0) == 100 * MS,
	   "a pause is use, even if it ends late");
	dt_rate_charge(&g, &a, 1400 * KB, now, 0);
	now += SEC;
	ok(dt_rate_wake(&g, &a, now) == 500 * MS &&
	   dt_rate_charge(&g, &a, 200 * KB, now + 1200 * MS, 0) == 100 * MS,
	   "and so is the rest of it");

	/* ... whoever uses something meanwhile */
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, 1020 * KB, now, 0);
	dt_rate_charge(&g, &b, 1, now, 0);
	now += 1500 * MS;
	ok(dt_rate_wake(&g, &a, now) == 0 &&
	   dt_rate_charge(&g, &a, 200 * KB, now, 0) == 100 * MS,
	   "also beside one that does not pause");

	/* what is owed shows to the byte, rounded up */
	dt_rate_init(&g, 1, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 5, now, 0);
	ok(dt_rate_debt(&g, &a, now + 10) == 5, "part of a byte is a byte");

	/* the smallest pause worth making grows with the company */
	now = 10 * SEC;
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	for (i = 0; i < 3; i++)
	{
		dt_rate_join(&g, &crowd[i], now);
		dt_rate_charge(&g, &crowd[i], 20 * KB + 10 * MB, now, 0);
	}
	ok(dt_rate_charge(&g, &a, 7 * KB, now, 0) == 0,
	   "28 ms at a quarter of the rate: runs on");
	ok(dt_rate_charge(&g, &a, KB / 2, now, 0) == 30 * MS, "30 ms: pauses");
	ok(dt_rate_charge(&g, &a, 100 * KB - KB / 2, now, 0.5) == 428 * MS * 3 / 4,
	   "jitter of a half shortens by a quarter");
	ok(dt_rate_wake(&g, &a, now + 320 * MS) == 1 * MS,
	   "a wake honours the jitter");
	ok(dt_rate_wake(&g, &a, now + 321 * MS) == 0 &&
	   dt_rate_debt(&g, &a, now + 321 * MS) == 26750,
	   "and leaves the rest of the debt on the books");

	memset(&zero, 0, sizeof(zero));
	now += 321 * MS;
	for (i = 0; i < 3; i++)
		dt_rate_leave(&g, &crowd[i], NULL, now);
	fix_rate(&g, 0, now);
	fix_rate(&g, MB, now);
	for (i = 0; i < 1023; i++)
	{
		dt_rate_join(&g, &crowd[i], now);
		dt_rate_charge(&g, &crowd[i], 20 * KB + MB, now, 0);
	}
	ok(dt_rate_charge(&g, &a, 78, now, 0) == 0 &&
	   dt_rate_charge(&g, &a, 1, now, 0) > 80 * MS,
	   "but not beyond 80 ms");
	for (i = 1; i < 1023; i++)
		dt_rate_leave(&g, &crowd[i], &crowd[0], now);
	dt_rate_leave(&g, &a, NULL, now);
	ok(memcmp(&a, &zero, sizeof(a)) == 0 && g.n_members == 1 &&
	   crowd[0].next == &crowd[0] && crowd[0].prev == &crowd[0] &&
	   g.cursor == &crowd[0], "leaving unlinks and zeroes");
	ok_intact(&g, "basics");
}

/* Saved up while idle, or not fully used; used at once. */
static void
test_burst(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	int64_t		now = HOUR;
	int			i;

	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	now += 10 * SEC;
	dt_rate_set_burst(&g, 2 * SEC, now);
	ok(dt_rate_charge(&g, &a, 520 * KB, now, 0) == 500 * MS,
	   "a longer burst gives nothing for the time before");
	ok(dt_rate_debt(&g, &a, now) == 500 * KB, "and pays no debt");
	now += 500 * MS;
	ok(dt_rate_wake(&g, &a, now) == 0, "which is paid as ever");
	now += 700 * MS;
	ok(dt_rate_charge(&g, &a, 700 * KB, now, 0) == 0 &&
	   dt_rate_group_debt(&g, now) == 0 &&
	   dt_rate_charge(&g, &a, 200 * KB, now, 0) == 200 * MS,
	   "from then on, all that is not used is saved up");
	now += 10 * SEC;
	ok(dt_rate_charge(&g, &a, 1500 * KB, now, 0) == 0 &&
	   dt_rate_charge(&g, &b, 500 * KB, now, 0) == 0 &&
	   dt_rate_group_debt(&g, now) == 0 &&
	   dt_rate_charge(&g, &b, 300 * KB, now, 0) == 300 * MS,
	   "up to the burst, which is the group's");
	now += 5 * SEC;
	for (i = 0; i < 100; i++)
		dt_rate_charge(&g, &a, 30 * KB, now += 100 * MS, 0);
	now += 100 * MS;
	ok(dt_rate_charge(&g, &a, 2100 * KB, now, 0) == 100 * MS,
	   "a third of the rate leaves the rest");
	now += 10 * SEC;
	for (i = 0; i < 1000; i++)
		dt_rate_group_debt(&g, now += 20 * MS);
	ok(dt_rate_charge(&g, &a, 2100 * KB, now, 0) == 100 * MS,
	   "to look at it changes nothing");
	ok_intact(&g, "burst");

	/* a shorter one */
	now += 10 * SEC;
	dt_rate_set_burst(&g, 300 * MS, now);
	ok(dt_rate_charge(&g, &a, 500 * KB, now, 0) == 200 * MS,
	   "a shorter burst cuts at once what was saved up");
	dt_rate_set_burst(&g, HOUR, now);
	dt_rate_set_burst(&g, 0, now);
	ok(dt_rate_debt(&g, &a, now) == 200 * KB &&
	   dt_rate_wake(&g, &a, now) == 200 * MS,
	   "but no debt, and no pause");
	now += 10 * SEC;
	ok(dt_rate_charge(&g, &a, 10 * KB, now, 0) == 10 * MS,
	   "none at all: who was idle pays for the first byte");
	for (i = 0; i < 20; i++)
		dt_rate_charge(&g, &a, KB, now += 300 * MS, 0);
	now += 300 * MS;
	ok(dt_rate_charge(&g, &a, 200 * KB, now, 0) == 100 * MS,
	   "but 100 ms of credit while in use, for the sake of the rate");
	now += 10 * SEC;
	dt_rate_set_burst(&g, 150 * MS, now);
	dt_rate_charge(&g, &a, KB, now, 0);
	now += 400 * MS;
	ok(dt_rate_charge(&g, &a, 250 * KB, now, 0) == 100 * MS,
	   "one that is longer than that: while in use, too");
	now += 10 * SEC;
	ok(dt_rate_charge(&g, &a, 250 * KB, now, 0) == 100 * MS,
	   "as when idle");
	ok_intact(&g, "shorter bursts");

	/* the rate changes */
	dt_rate_init(&g, 0, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_set_burst(&g, 10 * SEC, now);
	ok_intact(&g, "a burst without a limit");
	now += HOUR;
	fix_rate(&g, MB, now);
	ok(dt_rate_charge(&g, &a, 120 * KB, now, 0) == 100 * MS,
	   "a first limit does not come with a full burst");
	now += 20 * SEC;
	fix_rate(&g, 100 * KB, now);
	ok(dt_rate_charge(&g, &a, 1001 * KB, now, 0) == 10 * MS,
	   "a lower limit: what is saved up is worth as many seconds");
	now += 20 * SEC;
	fix_rate(&g, MB, now);
	ok(dt_rate_charge(&g, &a, 1100 * KB, now, 0) == 100 * MS,
	   "a higher one: as many bytes");
	fix_rate(&g, 0, now);
	dt_rate_set_burst(&g, 5 * MS, now);
	fix_rate(&g, MB, now);
	ok(dt_rate_charge(&g, &a, 55 * KB, now, 0) == 50 * MS,
	   "a first limit with a short burst");
	ok_intact(&g, "bursts and limits");

	/* bounds */
	now += 1000 * HOUR;
	dt_rate_init(&g, DT_RATE_MAX, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_set_burst(&g, INT64_MAX, now);
	ok(g.burst_us == DT_RATE_MAX_BURST_US, "the longest burst");
	now += YEAR;
	ok(dt_rate_charge(&g, &a, POOL_MAX, now, 0) == 0 &&
	   dt_rate_charge(&g, &a, DT_RATE_MAX, now, 0) >= 999 * MS,
	   "at the highest rate: 576 GB");
	ok_intact(&g, "the longest burst at the highest rate");
	dt_rate_set_burst(&g, INT64_MIN, now);
	ok(g.burst_us == 0, "the shortest burst");
	ok_intact(&g, "the shortest burst");
	dt_rate_init(&g, 1, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_set_burst(&g, HOUR, now);
	now += 2 * HOUR;
	ok(dt_rate_charge(&g, &a, 3600, now, 0) == 0 &&
	   dt_rate_charge(&g, &a, 1, now, 0) == SEC,
	   "at the lowest rate: a byte for each second of an hour");
	ok_intact(&g, "the longest burst at the lowest rate");
}

/* Debts that are forgiven: how long would the pauses have been? */
/*
 * Within a budget a burst is spent at a rate that others set, as long as something is
 * saved; over time the group uses no more than the limit and the burst.
 */
static void
test_budgeted(void)
{
	DtRateGroup g;
	DtRateMember a;
	int64_t		now = HOUR;
	int64_t		used = 0;
	int64_t		least = INT64_MAX;

	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_set(&g, MB, 10 * MB, now);
	ok(g.rate == MB, "without a budget the limit is the highest rate");
	dt_rate_set_burst(&g, 10 * SEC, now);
	dt_rate_set_budgeted(&g, true, now);
	ok(dt_rate_saved(&g, now) == 0, "at first nothing is saved");
	now += 60 * SEC;
	ok(dt_rate_saved(&g, now) == 10 * MB - 100 * KB, "what is saved");
	ok(dt_rate_charge(&g, &a, 320 * KB, now, 0) == 300 * MS,
	   "of which only the default burst is spent at once");
	ok(dt_rate_saved(&g, now) == 10 * MB - 420 * KB, "what is left then");
	for (int i = 0; i < 300; i++)
	{
		dt_rate_set(&g, MB, dt_rate_saved(&g, now) > 0 ? 10 * MB : MB, now);
		now += 200 * MS;
		if (dt_rate_debt(&g, &a, now) > 0)
			continue;
		dt_rate_charge(&g, &a, 500 * KB, now, 0);
		used += 500 * KB;
		if (i == 15)
			least = used;
	}
	ok(least >= 7 * MB, "it is spent fast");
	ok(used <= 60 * MB + 10 * MB + 2 * MB, "and no more than it: %lld KB",
	   (long long) (used / KB));
	ok_intact(&g, "within a budget");
}

static void
test_forgive(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	DtRateMember c;
	DtRateMember d;
	int64_t		now = HOUR;
	int64_t		us;

	dt_rate_init(&g, 0, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, GB, now, 0);
	ok(dt_rate_forgive(&g, &a, now) == 0, "no limit: nothing to forgive");
	fix_rate(&g, MB, now);
	ok(dt_rate_forgive(&g, &a, now) == 0, "nor without a debt");
	dt_rate_charge(&g, &a, 520 * KB, now, 0);
	us = dt_rate_forgive(&g, &a, now);
	ok_range((double) us, 500 * MS, 500 * MS + 1, "alone: the pause, in us");
	ok(dt_rate_debt(&g, &a, now) == 0 && dt_rate_group_debt(&g, now) == 0 &&
	   dt_rate_wake(&g, &a, now) == 0 && dt_rate_forgive(&g, &a, now) == 0,
	   "and nothing is owed any more");
	dt_rate_charge(&g, &a, 300 * KB, now, 0);
	us = dt_rate_forgive(&g, &a, now);
	ok_range((double) us, 300 * MS, 300 * MS + 1, "again at once: the same");

	/* it would still be asleep, until 800 ms from here */
	dt_rate_charge(&g, &b, 100 * KB, now, 0);
	us = dt_rate_forgive(&g, &b, now);
	ok_range((double) us, 200 * MS, 200 * MS + 1, "one of two: twice as long");
	dt_rate_charge(&g, &a, 100 * KB, now, 0);
	us = dt_rate_forgive(&g, &a, now);
	ok_range((double) us, 200 * MS, 200 * MS + 1, "and so is the other one's");
	ok_intact(&g, "two let off");

	/* b's 200 ms are over, a's 1000 ms are not */
	now += 300 * MS;
	dt_rate_charge(&g, &b, 100 * KB + CREDIT_US * MB / SEC, now, 0);
	us = dt_rate_forgive(&g, &b, now);
	ok_range((double) us, 200 * MS, 200 * MS + 1, "beside one who would sleep");
	now += 5 * SEC;
	dt_rate_charge(&g, &b, 120 * KB, now, 0);
	us = dt_rate_forgive(&g, &b, now);
	ok_range((double) us, 100 * MS, 100 * MS + 1, "when it would be awake");

	/* beside real debtors, and who has left */
	now += 5 * SEC;
	dt_rate_join(&g, &c, now);
	dt_rate_join(&g, &d, now);
	dt_rate_charge(&g, &a, 20 * KB + 10 * MB, now, 0);
	dt_rate_charge(&g, &c, 200 * KB, now, 0);
	us = dt_rate_forgive(&g, &c, now);
	ok_range((double) us, 400 * MS, 400 * MS + 1, "beside a debtor");
	ok(dt_rate_debt(&g, &a, now) == 10 * MB, "whose debt stays");
	dt_rate_leave(&g, &a, &d, now);
	dt_rate_charge(&g, &b, 100 * KB, now, 0);
	us = dt_rate_forgive(&g, &b, now);
	ok_range((double) us, 300 * MS, 300 * MS + 1, "beside its heir, and c");
	ok(dt_rate_group_debt(&g, now) == 10 * MB, "which goes on owing");
	ok_intact(&g, "let off beside an heir");

	/* who leaves, would not pause any more */
	dt_rate_leave(&g, &c, NULL, now);
	dt_rate_leave(&g, &b, NULL, now);
	ok(g.n_let_off == 0, "who has left is not counted");
	ok_intact(&g, "let off, and gone");

	/* without a limit nobody would pause */
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, HOUR, now, 0);
	dt_rate_forgive(&g, &a, now);
	fix_rate(&g, 0, now);
	ok(g.n_let_off == 0, "nor with the limit taken away");
	fix_rate(&g, MB, now);
	dt_rate_charge(&g, &b, 120 * KB, now, 0);
	us = dt_rate_forgive(&g, &b, now);
	ok_range((double) us, 100 * MS, 100 * MS + 1, "so the next one is alone");
	ok_intact(&g, "let off, and a limit set again");

	/* beyond all measure */
	dt_rate_init(&g, 1, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	for (us = 0; us < 20; us++)
	{
		dt_rate_charge(&g, &a, INT64_MAX, now, 0);
		dt_rate_charge(&g, &b, INT64_MAX, now, 0);
		dt_rate_forgive(&g, &a, now);
		dt_rate_forgive(&g, &b, now);
	}
	ok(dt_rate_group_debt(&g, now) == 0, "boundless debts are forgiven, too");
	ok_intact(&g, "boundless debts forgiven");
}

static void
test_batch(void)
{
	static const int64_t rates[] = {1, KB, 100 * KB, 10 * MB, GB, DT_RATE_MAX};
	DtRateGroup g;
	DtRateMember m[64];
	bool		good = true;
	int			i;
	int			n;

	for (i = 0; i < 6; i++)
	{
		dt_rate_init(&g, rates[i], BLOCK, 0);
		for (n = 0; n < 64; n++)
		{
			int64_t		t;

			dt_rate_join(&g, &m[n], 0);
			if (n % 2)
				dt_rate_charge(&g, &m[n], GB, 0, 0);
			t = dt_rate_batch(&g, &m[n]);
			if (t < BLOCK || t > 1024 * BLOCK || t % BLOCK != 0 ||
				(t > BLOCK && t * 2 * (n + 1) > rates[i] / 10))
				good = false;
		}
	}
	ok(good, "batches are 1 to 1024 blocks, and half the credit at most");

	dt_rate_init(&g, 100 * MB, BLOCK, 0);
	dt_rate_join(&g, &m[0], 0);
	ok(dt_rate_batch(&g, &m[0]) == 500 * KB / BLOCK * BLOCK,
	   "alone: 5 ms of the rate");
	dt_rate_join(&g, &m[1], 0);
	dt_rate_charge(&g, &m[1], GB, 0, 0);
	ok(dt_rate_batch(&g, &m[0]) == 500 * KB / BLOCK * BLOCK &&
	   dt_rate_batch(&g, &m[1]) == 500 * KB / BLOCK * BLOCK,
	   "one of two debtors: half of 10 ms, whether in debt yet or not");
	for (n = 0; n < 4; n++)
	{
		if (n >= 2)
			dt_rate_join(&g, &m[n], 0);
		dt_rate_charge(&g, &m[n], GB, 0, 0);
	}
	ok(dt_rate_batch(&g, &m[0]) == 375 * KB / BLOCK * BLOCK,
	   "one of four: a quarter of 15 ms");
	dt_rate_init(&g, DT_RATE_MAX, BLOCK, 0);
	dt_rate_join(&g, &m[0], 0);
	ok(dt_rate_batch(&g, &m[0]) == 1024 * BLOCK, "1024 blocks at most");
}

/* Charges beyond all measure, at extreme rates. */
static void
test_huge(void)
{
	static const int64_t rates[] = {1, KB, DT_RATE_MAX};
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	DtRateMember heir;
	bool		good = true;
	int			i;

	for (i = 0; i < 3; i++)
	{
		int64_t		now = SEC;
		int64_t		debt;
		int			k;

		dt_rate_init(&g, rates[i], BLOCK, now);
		dt_rate_join(&g, &a, now);
		dt_rate_join(&g, &b, now);
		dt_rate_join(&g, &heir, now);
		for (k = 0; k < 5; k++)
		{
			good &= dt_rate_charge(&g, &a, INT64_MAX, now, 0.9) == SEC;
			good &= dt_rate_charge(&g, &b, INT64_MAX, now, 0.9) == SEC;
			debt = dt_rate_debt(&g, &a, now);
			good &= k == 0 ||
				(debt > DEBT_MAX - 3000 && debt <= DEBT_MAX + 1);
			good &= find_violation(&g) == NULL;
		}
		dt_rate_leave(&g, &a, &heir, now);
		good &= find_violation(&g) == NULL;
		dt_rate_leave(&g, &b, &heir, now);
		debt = dt_rate_group_debt(&g, now);
		good &= debt > DEBT_MAX - 3000 && debt <= DEBT_MAX + 1;
		good &= find_violation(&g) == NULL;
		now += 200 * YEAR;
		debt = dt_rate_group_debt(&g, now);
		good &= rates[i] == 1 || debt == 0;
		good &= find_violation(&g) == NULL;
		dt_rate_join(&g, &a, now);
		dt_rate_charge(&g, &a, 1, INT64_MAX, 0);
		good &= find_violation(&g) == NULL;
		dt_rate_charge(&g, &a, INT64_MAX, INT64_MIN, 0);
		good &= find_violation(&g) == NULL;
	}
	ok(good, "boundless charges and times saturate");

	dt_rate_init(&g, INT64_MAX, INT64_MAX, -1);
	dt_rate_join(&g, &a, 0);
	ok(g.rate == DT_RATE_MAX && dt_rate_batch(&g, &a) >= g.granule,
	   "so do a rate and a granule");
	fix_rate(&g, -1, 0);
	ok(g.rate == 0, "a negative rate is none");
}

/* Debtors that stop: their income must not come back as a burst. */
static void
test_idle_debtors(void)
{
	DtRateGroup g;
	DtRateMember m[8];
	static DtRateMember crowd[500];
	int64_t		now = SEC;
	int64_t		pause;
	int			i;
	int			gap;

	for (gap = 0; gap < 3; gap++)
	{
		now = SEC;
		dt_rate_init(&g, 10 * MB, BLOCK, now);
		for (i = 0; i < 8; i++)
			dt_rate_join(&g, &m[i], now);
		dt_rate_charge(&g, &m[0], 200 * KB, now, 0);	/* the burst */
		for (i = 0; i < 7; i++)
			dt_rate_charge(&g, &m[i], 20 * KB * (i % 3 + 1), now, 0);
		if (gap == 0)
			now += HOUR;
		else if (gap == 1)
			now += 1100 * MS;
		else
		{
			/* somebody looks at the group all the time */
			for (i = 0; i < 3000; i++)
				dt_rate_group_debt(&g, now += MS);
		}
		pause = dt_rate_charge(&g, &m[7], 10 * MB, now, 0);
		ok(pause > 970 * MS && pause <= SEC,
		   "stopped debtors: a fresh debt of 1 s is paid in full (%d): %lld us",
		   gap, (long long) pause);
		for (i = 0; i < 7; i++)
			dt_rate_charge(&g, &m[i], 1, now += 100, 0);
		ok_range((double) dt_rate_debt(&g, &m[7], now) / MB, 9.7, 9.8,
				 "even after the others charged again");
	}

	/* the same, with one who goes on charging */
	now = SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	for (i = 0; i < 8; i++)
	{
		dt_rate_join(&g, &m[i], now);
		dt_rate_charge(&g, &m[i], 250 * KB, now, 0);
	}
	dt_rate_charge(&g, &m[0], 200 * MB, now, 0);
	for (i = 0; i < 1000; i++)
		dt_rate_charge(&g, &m[0], 1, now += 10 * MS, 0);
	ok_range((double) dt_rate_debt(&g, &m[0], now) / MB, 101.0, 102.8,
			 "debtors that stopped leave the income to the one in debt");

	/* the same, with as many stopped debtors as a large server has */
	now = SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &m[0], now);
	dt_rate_charge(&g, &m[0], 200 * KB + 100 * MB, now, 0);
	for (i = 0; i < 500; i++)
	{
		dt_rate_join(&g, &crowd[i], now);
		dt_rate_charge(&g, &crowd[i], 2 * KB, now, 0);
	}
	for (i = 0; i < 100; i++)
		dt_rate_charge(&g, &m[0], 1, now += 10 * MS, 0);
	ok_range((double) dt_rate_debt(&g, &m[0], now) / MB, 90.9, 92.1,
			 "500 debtors that stopped");

	/* the first to be looked at is paid by what the last gives back */
	now = SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	for (i = 0; i < 3; i++)
		dt_rate_join(&g, &m[i], now);
	dt_rate_charge(&g, &m[0], 600 * KB, now, 0);
	dt_rate_charge(&g, &m[1], KB, now, 0);
	dt_rate_charge(&g, &m[2], 10 * MB, now, 0);
	now += 100 * MS;
	ok(dt_rate_debt(&g, &m[2], now) == 9401 * KB,
	   "stopped debtors are all found at once after a gap");

	/* who has paid makes room at once, and is not waited for */
	for (gap = 0; gap < 2; gap++)
	{
		now = SEC;
		dt_rate_init(&g, 10 * MB, BLOCK, now);
		dt_rate_join(&g, &m[0], now);
		dt_rate_join(&g, &m[1], now);
		dt_rate_charge(&g, &m[0], 300 * KB, now, 0);
		dt_rate_charge(&g, &m[1], MB, now, 0);
		now += 25 * MS;
		pause = gap ? dt_rate_wake(&g, &m[0], now) :
			dt_rate_charge(&g, &m[0], 0, now, 0);
		ok(pause == 0 && dt_rate_wake(&g, &m[1], now) == 85 * MS,
		   "who has paid makes room at once (%d)", gap);
	}

	/* after a long break the idle burst is all there is, lag or no lag */
	now = SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &m[0], now);
	dt_rate_join(&g, &m[1], now);
	dt_rate_charge(&g, &m[0], 30 * MB, now, 0);
	for (i = 0; i < 3000; i++)
		dt_rate_wake(&g, &m[0], now += MS);
	dt_rate_charge(&g, &m[1], 1, now, 0);
	now += 20 * SEC;
	pause = dt_rate_charge(&g, &m[1], 1200 * KB, now, 0);
	ok(pause == 100 * MS, "after a break only the idle burst: pause %lld us",
	   (long long) pause);
	pause = dt_rate_charge(&g, &m[0], 1000 * KB, now, 0);
	ok(pause == 200 * MS, "and nobody lags behind: pause %lld us",
	   (long long) pause);
	ok_intact(&g, "idle debtors");
}

#define CROWD	10000

/*
 * Tags that fall around the ring, so that in each of many tours what some give
 * back pays only those that have just been passed; somebody else may owe more
 * than there is.
 */
static void
make_chain(DtRateGroup *g, DtRateMember *m, bool owes, int64_t now,
		   int64_t gap)
{
	double		left = CROWD + owes;	/* of those still in debt */
	double		v = 10.0 * MB * gap / left;
	double		last = 0;
	double		tag = 0;
	int			i;

	dt_rate_init(g, 10 * MB, BLOCK, now);
	g->pool = 0;
	for (i = 0; i < CROWD + owes; i++)
	{
		dt_rate_join(g, &m[i], now);
		m[i].debtor = true;
		g->n_debtors++;
		if (i == CROWD)
			m[i].finish = (uint64_t) (INT64_MAX / 8);
	}
	for (i = CROWD; i > 0;)
	{
		double		removed = 0;

		while (i > 0 && removed < 0.38 * (left - removed))
		{
			m[--i].finish = (uint64_t) tag;
			removed++;
		}
		if (left > removed)
		{
			left -= removed;
			last = v;
			v += removed * (v - tag) / left;
			tag = last + 3;
		}
	}
	g->busy_until = now + gap;
}

static double
cpu_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* The work of one call is bounded, however many members there are. */
static void
test_sweeps(void)
{
	static DtRateMember m[CROWD + 1];
	DtRateGroup g;
	double		tour = 1e9;
	double		begin;
	double		us;
	int64_t		now = SEC;
	int			owes;
	int			i;
	int			k;

	/* a call that finds nobody to evict takes one tour: our unit */
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	for (i = 0; i < CROWD; i++)
	{
		dt_rate_join(&g, &m[i], now);
		dt_rate_charge(&g, &m[i], MB, now, 0);
	}
	for (k = 0; k < 20; k++)
	{
		now += 60 * MS;
		begin = cpu_us();

		dt_rate_wake(&g, &m[0], now);
		us = cpu_us() - begin;

		tour = us < tour ? us : tour;
	}
	ok(g.n_debtors == CROWD, "%d debtors: a tour takes %.0f us", CROWD,
	   tour);

	for (owes = 0; owes < 2; owes++)
	{
		double		worst = 1e9;
		int128		before;
		int128		income = (int128) 10 * MB * HOUR;
		bool		overpaid = false;

		for (k = 0; k < 10; k++)
		{
			now = SEC;
			make_chain(&g, m, owes, now, HOUR);
			before = books(&g);
			now += HOUR;
			begin = cpu_us();

			dt_rate_wake(&g, &m[0], now);
			us = cpu_us() - begin;

			worst = us < worst ? us : worst;
		}
		ok_range(worst / tour, 0, 10, "a long chain of debtors: tours");
		ok_intact(&g, "...");
		for (i = 0; i < CROWD + owes; i++)
			overpaid |= m[i].debtor && (int64_t) (m[i].finish - g.vtime) <= 0;
		ok(!overpaid && (g.n_debtors > 0) == owes,
		   "... and all that stopped are found");
		ok(books(&g) == before + income, "... and nothing is lost");
		if (!owes)
			ok(dt_rate_charge(&g, &m[7], MB + g.pool / TOKENS, now, 0) ==
			   100 * MS, "... and when all is settled nobody lags behind");
	}

	/* nobody in debt: nobody to look after */
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	begin = cpu_us();

	for (i = 0; i < CROWD; i++)
		dt_rate_join(&g, &m[i], now += 100 * MS);
	ok_range((cpu_us() - begin) / tour, 0, 500,
			 "10000 join a group without debt, one by one: tours");
}

/* Who lags behind others' debts may overdraw, but not without bound. */
static void
test_lag(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	DtRateMember c;
	int64_t		now = SEC;
	int64_t		pause;
	int			i;

	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, GB, now, 0);
	for (i = 0; i < 10; i++)
		dt_rate_wake(&g, &a, now += SEC);
	ok(dt_rate_charge(&g, &b, MB, now, 0) == 0 &&
	   dt_rate_debt(&g, &b, now) == 0,
	   "lagging behind: half of the overdraft for one of two");
	ok(dt_rate_charge(&g, &b, 100 * KB, now, 0) == 120 * MS,
	   "then pays like everybody, the overdraft first");
	dt_rate_join(&g, &c, now);
	ok(dt_rate_charge(&g, &c, 100 * KB, now, 0) == 130 * MS,
	   "a newcomer does not lag");
	ok(g.pool >= -10 * MB * LAG_US, "the pool is not overdrawn");
	ok_intact(&g, "lag");

	/* but not who oversleeps alone: he has had all that V moved */
	dt_rate_init(&g, 1 * MB, BLOCK, 0);
	dt_rate_set_burst(&g, 0, 0);
	fix_rate(&g, 0, 0);
	fix_rate(&g, 1 * MB, 0);
	dt_rate_join(&g, &a, 0);
	dt_rate_charge(&g, &a, 20 * KB, 0, 0);
	pause = dt_rate_charge(&g, &a, 40 * KB, 40 * MS, 0);
	ok(pause == 20 * MS,
	   "who oversleeps alone does not lag: pause %lld us", (long long) pause);
}

/* A part of a debt is passed to another member, and nothing is lost. */
static void
test_passed_debts(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	DtRateMember c;
	int64_t		now = SEC;
	int128		before;

	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_join(&g, &c, now);
	dt_rate_pass_debt(&g, &a, &b, 1, 0, now);
	ok(dt_rate_debt(&g, &b, now) == 0 && g.n_debtors == 0,
	   "who owes nothing passes nothing");
	dt_rate_charge(&g, &a, 3 * MB + 200 * KB, now, 0);
	before = books(&g);
	dt_rate_pass_debt(&g, &a, &b, 3, 0, now);
	ok(dt_rate_debt(&g, &a, now) == 2 * MB && dt_rate_debt(&g, &b, now) == MB,
	   "a third of a debt");
	ok(books(&g) == before && g.n_debtors == 2, "the books stay as they are");
	ok(dt_rate_wake(&g, &b, now) == 200 * MS, "who has got it pays it, as an equal");
	dt_rate_pass_debt(&g, &a, &b, 1, 0, now);
	ok(dt_rate_debt(&g, &a, now) == 0 && dt_rate_debt(&g, &b, now) == 3 * MB &&
	   g.n_debtors == 1, "all of it, to one who owes already");
	dt_rate_pass_debt(&g, &b, &c, 1, 0, now += 300 * MS);
	ok(dt_rate_debt(&g, &c, now) == 0 && g.n_debtors == 0,
	   "what has been paid meanwhile is not passed");
	dt_rate_charge(&g, &a, 3 * MB + 200 * KB, now, 0);
	dt_rate_pass_debt(&g, &a, &b, 30, 2 * MB, now);
	ok(dt_rate_debt(&g, &b, now) == 2 * MB, "not a thirtieth, but what one has left");
	dt_rate_pass_debt(&g, &a, &b, 29, 2 * MB, now);
	ok(dt_rate_debt(&g, &a, now) == 0, "no more than there is");
	ok_intact(&g, "passed debts");
}

static void
test_rate_changes(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	int64_t		now = SEC;
	int64_t		pause;

	dt_rate_init(&g, 100 * KB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 2 * KB + 16 * MB, now, 0);
	now += 3 * SEC;
	fix_rate(&g, 50 * MB, now);
	pause = dt_rate_wake(&g, &a, now);
	ok(pause == 314 * MS, "raised limit: 15.7 MB are paid in %lld us",
	   (long long) pause);
	fix_rate(&g, MB, now);
	ok(dt_rate_debt(&g, &a, now) == 157 * MB / 10 &&
	   dt_rate_wake(&g, &a, now) == SEC, "lowered limit: the debt stays");

	/* jitter granted at a high rate is worth too much at a low one */
	now = 100 * SEC;
	dt_rate_init(&g, 100 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, 100 * MB, now, 0.99);
	dt_rate_charge(&g, &b, 100 * MB, now, 0.99);
	fix_rate(&g, MB, now);
	ok(dt_rate_wake(&g, &b, now + 110 * SEC) == SEC,
	   "no jitter outlives its rate");

	/* credit does not outlive it either */
	dt_rate_init(&g, GB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 20 * MB, now, 0);
	dt_rate_group_debt(&g, now + 900 * MS);
	fix_rate(&g, MB, now + 900 * MS);
	pause = dt_rate_charge(&g, &a, 200 * KB, now + 900 * MS, 0);
	ok(pause == 100 * MS, "credit is cut to the new rate: %lld us",
	   (long long) pause);

	/* nor does an overdraft: 200 ms of the new rate, not minutes */
	dt_rate_init(&g, GB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, GB, now, 0);
	dt_rate_wake(&g, &a, now + 500 * MS);
	dt_rate_charge(&g, &b, 90 * MB, now + 500 * MS, 0);
	fix_rate(&g, MB, now + 500 * MS);
	ok(dt_rate_group_debt(&g, now + 500 * MS) -
	   dt_rate_debt(&g, &a, now + 500 * MS) == 200 * KB,
	   "an overdraft is cut to the new rate");
	ok_intact(&g, "rate changes");
}

/* Pressure lowers a rate: what would take too long to pay is forgiven. */
static void
test_bound_debts(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	DtRateMember c;
	DtRateMember d;
	int64_t		now = SEC;
	int64_t		forgiven;
	int64_t		debt;

	dt_rate_init(&g, 0, BLOCK, now);
	dt_rate_join(&g, &a, now);
	ok(dt_rate_bound_debts(&g, now) == 0, "no limit: no debt to bound");

	/* made at 100 MB/s: 250 MB of a, 150 MB of b, and 200 MB that c has left */
	dt_rate_set(&g, 0, 100 * MB, now);
	dt_rate_join(&g, &b, now);
	dt_rate_join(&g, &c, now);
	dt_rate_join(&g, &d, now);
	dt_rate_charge(&g, &a, 2 * MB + 250 * MB, now, 0);
	dt_rate_charge(&g, &b, 150 * MB, now, 0);
	dt_rate_charge(&g, &c, 200 * MB, now, 0);
	dt_rate_leave(&g, &c, &d, now);
	ok(dt_rate_group_debt(&g, now) == 600 * MB, "three owe 600 MB");
	dt_rate_set(&g, 0, 2 * MB, now);
	now += 5 * SEC - 1;
	ok(dt_rate_bound_debts(&g, now) == 0 &&
	   dt_rate_group_debt(&g, now) > 590 * MB,
	   "2 MB/s for less than 5 s: nothing is forgiven");
	now++;
	forgiven = dt_rate_bound_debts(&g, now);
	ok(forgiven >= 530 * MB - 3 && forgiven <= 530 * MB,
	   "for 5 s: 530 MB are forgiven (%lld)", (long long) forgiven);
	debt = dt_rate_group_debt(&g, now);
	ok(debt >= 60 * MB && debt <= 60 * MB + 3,
	   "what is owed is 30 s at the rate (%lld)", (long long) debt);
	ok(dt_rate_debt(&g, &a, now) * 3 / debt ==
	   dt_rate_debt(&g, &b, now) * 5 / debt,
	   "each owes the same part of what it owed");
	ok_intact(&g, "bounded debts");
	ok(dt_rate_bound_debts(&g, now + 5 * SEC) == 0, "again: nothing more");
	ok(dt_rate_wake(&g, &a, now + 29 * SEC) > 0 &&
	   dt_rate_wake(&g, &a, now + 30 * SEC + 2) == 0,
	   "and it has paid after 30 s");
	ok(dt_rate_group_debt(&g, now + 30 * SEC + 2) == 0, "as have all");

	/* a debt of minutes does not take longer, but no less */
	now += HOUR;
	dt_rate_charge(&g, &a, 40 * KB + 400 * MB, now, 0);
	dt_rate_set(&g, 0, MB, now);
	now += 5 * SEC;
	ok(dt_rate_bound_debts(&g, now) == 395 * MB / 2 &&
	   dt_rate_group_debt(&g, now) == 395 * MB / 2,
	   "half of the rate, half of the debt");

	/* falls of a moment, of which the last begins a lasting one */
	for (int i = 0; i < 10; i++)
	{
		dt_rate_set(&g, 0, KB, now);
		debt = dt_rate_group_debt(&g, now += 4900 * MS);
		ok(dt_rate_bound_debts(&g, now) == 0 && dt_rate_lately(&g) == KB,
		   "a fall of a moment");
		dt_rate_set(&g, 0, MB, now);
		ok(dt_rate_lately(&g) == MB, "and as before");
	}
	dt_rate_set(&g, 0, KB, now);
	dt_rate_set(&g, 0, 500 * KB, now += SEC);
	dt_rate_set(&g, 0, KB, now += SEC);
	debt -= 500 * KB + 4 * KB;
	ok(dt_rate_bound_debts(&g, now += 3 * SEC) == (debt + 1) / 2,
	   "the highest rate counts");
	debt = dt_rate_group_debt(&g, now += 5 * SEC - 1);
	ok(dt_rate_bound_debts(&g, now) == 0 &&
	   dt_rate_bound_debts(&g, now + 1) / (debt / 1000) == 998,
	   "and then the one that lasts");
	ok_intact(&g, "falls");

	/* what a debtor that does not call has been paid too much pays for that */
	now = 200 * SEC;
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	ok(dt_rate_charge(&g, &a, 20 * KB + 9 * KB, now, 0) == 0 &&
	   dt_rate_group_debt(&g, now) == 9 * KB, "one owes a little");
	now += 30 * MS;
	ok(dt_rate_charge(&g, &b, 25 * KB, now, 0) == 0,
	   "after 30 ms another one uses more than is left");
	ok(dt_rate_group_debt(&g, now) == 4 * KB, "which is what is owed");

	/* beyond all measure */
	dt_rate_init(&g, 0, BLOCK, now);
	dt_rate_set(&g, 0, DT_RATE_MAX, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, INT64_MAX, now, 0);
	dt_rate_charge(&g, &b, INT64_MAX, now, 0);
	debt = dt_rate_group_debt(&g, now);
	dt_rate_set(&g, 0, 1, now);
	forgiven = dt_rate_bound_debts(&g, now + 5 * SEC);
	ok(forgiven >= debt - 320 && forgiven <= debt &&
	   dt_rate_group_debt(&g, now + 5 * SEC) <= 320,
	   "all that can be owed takes no longer than before");
	ok_intact(&g, "boundless debts bounded");
}

/* What the fixed limit asks for is not forgiven. */
static void
test_claim(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	int64_t		now = SEC;
	int64_t		forgiven;

	dt_rate_init(&g, 2 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, 40 * KB + 200 * MB, now, 0);
	dt_rate_set(&g, 2 * MB, 100 * KB, now);
	now += 5 * SEC;
	ok(dt_rate_bound_debts(&g, now) == 9460 * KB &&
	   dt_rate_group_debt(&g, now) == 190040 * KB,
	   "forgiven is what the fixed limit would have paid for");
	ok_intact(&g, "a claim");
	now += 95020 * MS;
	dt_rate_set(&g, 2 * MB, 50 * KB, now);
	now += 5 * SEC;
	ok(dt_rate_bound_debts(&g, now) > 0 &&
	   dt_rate_group_debt(&g, now) / 10 == (180538 * KB - 250 * KB) / 20,
	   "if that is nothing, what takes no longer than before is left");

	/* a limit that is changed asks for what is owed to it, in bytes */
	dt_rate_init(&g, 0, BLOCK, now);
	dt_rate_set(&g, 0, 10 * MB, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 200 * KB + 100 * MB, now, 0);
	dt_rate_set(&g, 10 * MB, 10 * MB, now);
	ok(g.claim == 0, "a new one asks for nothing that was before");
	dt_rate_charge(&g, &a, 100 * MB, now, 0);
	dt_rate_set(&g, 2 * MB, MB, now);
	ok(g.claim == 100 * MB * TOKENS && dt_rate_group_debt(&g, now) == 200 * MB,
	   "what it asks for stays when it is changed");
	now += 5 * SEC;
	ok(dt_rate_bound_debts(&g, now) == 105 * MB,
	   "all else may be forgiven");
	fix_rate(&g, 100 * KB, now);
	ok(dt_rate_bound_debts(&g, now + 10 * SEC) == 0,
	   "but nothing because the limit itself falls");
	now += 10 * SEC;
	dt_rate_set(&g, 0, 100 * KB, now);
	ok(g.claim == 0 && dt_rate_group_debt(&g, now) == 89 * MB,
	   "no limit asks for nothing, but the rate still does");
	ok_intact(&g, "claims");

	/* pressure does not forgive an overdraft, either */
	now = 100 * SEC;
	dt_rate_init(&g, 100 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, 100 * MB, now, 0);
	dt_rate_wake(&g, &a, now + 500 * MS);
	dt_rate_charge(&g, &b, 9 * MB, now + 500 * MS, 0);
	now += 500 * MS;
	dt_rate_set(&g, 100 * MB, 1, now);
	ok(dt_rate_group_debt(&g, now) == 57 * MB,
	   "an overdraft outlives a lower rate");
	forgiven = dt_rate_bound_debts(&g, now + 5 * SEC);
	ok(forgiven >= 57 * MB - 40 && g.pool > -40 * TOKENS,
	   "and counts when debts are bounded (%lld)", (long long) forgiven);
	ok_intact(&g, "an overdraft and a claim");
}

/* Those who leave hand their debts over to one member that stands for them. */
static void
test_heir(void)
{
	DtRateGroup g;
	DtRateMember heir;
	DtRateMember a;
	DtRateMember b;
	DtRateMember c;
	DtRateMember zero;
	int64_t		now = SEC;
	int			i;

	memset(&zero, 0, sizeof(zero));
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &heir, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_leave(&g, &a, &heir, now);
	ok(memcmp(&a, &zero, sizeof(a)) == 0 && !heir.debtor &&
	   dt_rate_group_debt(&g, now) == 0,
	   "without a debt there is nothing to inherit");
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 200 * KB + 30 * MB, now, 0.9);
	dt_rate_leave(&g, &a, &heir, now);
	ok(dt_rate_debt(&g, &heir, now) == 30 * MB, "the heir owes what was owed");
	ok_intact(&g, "inherited");

	/* one share, however many left however much */
	for (i = 0; i < 50; i++)
	{
		dt_rate_join(&g, &a, now);
		dt_rate_charge(&g, &a, MB, now, 0);
		dt_rate_leave(&g, &a, &heir, now);
	}
	ok(dt_rate_debt(&g, &heir, now) == 80 * MB, "debts add up, to the token");
	dt_rate_charge(&g, &b, 10 * MB, now, 0);
	now += SEC;
	ok(dt_rate_debt(&g, &b, now) == 5 * MB &&
	   dt_rate_debt(&g, &heir, now) == 75 * MB,
	   "a member keeps half of the income beside fifty who have left");
	now += SEC;
	ok(dt_rate_wake(&g, &b, now) == 0, "and has paid when it should");
	ok(dt_rate_wake(&g, &heir, now) == SEC, "the heir goes on owing");
	fix_rate(&g, 70 * MB, now);
	ok(dt_rate_wake(&g, &heir, now + SEC) == 0, "a changed rate repays it, too");

	/* with nobody to inherit it, a debt is forgiven */
	now += SEC;
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 300 * MB, now, 0);
	dt_rate_charge(&g, &b, 7 * MB, now, 0);
	dt_rate_leave(&g, &a, NULL, now);
	ok(dt_rate_group_debt(&g, now) == 7 * MB, "no heir: forgiven");
	ok_intact(&g, "no heir");
	dt_rate_leave(&g, &b, &heir, now);
	fix_rate(&g, 0, now);
	ok(dt_rate_wake(&g, &heir, now) == 0, "no limit: all is");
	ok_intact(&g, "heir");

	/* leaving overpaid gives back what was overpaid */
	now = 100 * SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &heir, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_join(&g, &c, now);
	dt_rate_charge(&g, &a, 300 * KB, now, 0);
	dt_rate_charge(&g, &b, 10 * MB, now, 0);
	now += 40 * MS;
	dt_rate_leave(&g, &a, &heir, now);
	ok(!heir.debtor && dt_rate_group_debt(&g, now) == 9700 * KB,
	   "what a leaver was overpaid goes to the others");
	dt_rate_leave(&g, &b, &heir, now);
	dt_rate_leave(&g, &c, &heir, now);
	ok(g.n_members == 1 && dt_rate_group_debt(&g, now) == 9700 * KB,
	   "the last one leaves the debt behind");

	/* and so does an heir that was overpaid, with the next it inherits */
	dt_rate_leave(&g, &heir, NULL, now);
	ok(g.cursor == NULL && g.n_members == 0, "all have left");
	ok_intact(&g, "all have left");
	now = 200 * SEC;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &heir, now);
	dt_rate_join(&g, &a, now);
	dt_rate_join(&g, &b, now);
	dt_rate_charge(&g, &a, 300 * KB, now, 0);
	dt_rate_leave(&g, &a, &heir, now);
	dt_rate_charge(&g, &b, 10 * MB, now, 0);
	now += 40 * MS;
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 200 * KB, now, 0);
	dt_rate_leave(&g, &a, &heir, now);
	ok(dt_rate_group_debt(&g, now) == 9900 * KB,
	   "an overpaid heir, and one more debt");
	ok_intact(&g, "an overpaid heir");
}

static void
test_clock(void)
{
	DtRateGroup g;
	DtRateMember a;
	DtRateMember b;
	int64_t		now = HOUR;
	int64_t		debt;

	dt_rate_init(&g, 10 * MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 200 * KB + 10 * MB, now, 0);
	debt = dt_rate_debt(&g, &a, now + 100 * MS);
	ok(dt_rate_debt(&g, &a, now + 50 * MS) == debt &&
	   dt_rate_debt(&g, &a, now + 100 * MS) == debt,
	   "a time that has passed is not credited twice");
	now -= 30 * 60 * SEC;
	ok(dt_rate_debt(&g, &a, now) == debt &&
	   dt_rate_debt(&g, &a, now + 100 * MS) == debt - MB,
	   "a clock set back goes on from there");
	now += 100 * MS;
	fix_rate(&g, DT_RATE_MAX, now);
	dt_rate_charge(&g, &a, INT64_MAX, now, 0);
	dt_rate_join(&g, &b, now);
	now += 10 * YEAR;
	ok(dt_rate_group_debt(&g, now) == 0, "a clock set forward pays all debts");
	ok(dt_rate_charge(&g, &b, DT_RATE_MAX, now, 0) == 980 * MS,
	   "and gives the idle burst, no more");
	ok_intact(&g, "clock jumps");

	/* an idle time of hours is not lost at low rates */
	now = HOUR;
	dt_rate_init(&g, MB, BLOCK, now);
	dt_rate_join(&g, &a, now);
	dt_rate_charge(&g, &a, 20 * KB + 10 * GB, now, 0);
	ok(dt_rate_debt(&g, &a, now + 2 * HOUR) == 2800 * MB,
	   "two hours pay two hours' worth");
}

/*
 * 40 minutes of debt at the highest rate: V wraps around more than once, and
 * a member that did nothing all the while has a tag from before.
 */
static void
test_wrap(void)
{
	DtRateGroup g;
	DtRateMember m[3];
	int64_t		now = 100 * YEAR;
	int64_t		begin = now;
	uint64_t	last;
	int			wraps = 0;
	bool		good = true;

	dt_rate_init(&g, DT_RATE_MAX, BLOCK, now);
	dt_rate_join(&g, &m[0], now);
	dt_rate_join(&g, &m[1], now);
	dt_rate_join(&g, &m[2], now);
	dt_rate_charge(&g, &m[2], GB, now, 0);
	dt_rate_charge(&g, &m[0], DT_RATE_MAX, now, 0);
	while (now < begin + 40 * 60 * SEC)
	{
		last = g.vtime;
		now += 20 * MS + rng_range(0, 2 * MS);
		good &= dt_rate_charge(&g, &m[0], DT_RATE_MAX / 45, now, 0) > 0;
		good &= find_violation(&g) == NULL;
		wraps += g.vtime < last;
	}
	ok(wraps >= 2 && good, "V wrapped %d times, all well", wraps);
	good = dt_rate_charge(&g, &m[1], DT_RATE_MAX / 20, now, 0) == 0;
	ok(good && dt_rate_debt(&g, &m[1], now) == 0,
	   "who was idle all the time may draw what it lags");
	ok(dt_rate_charge(&g, &m[2], DT_RATE_MAX, now, 0) == SEC,
	   "who stopped in debt before it all owes a new charge");
	ok(dt_rate_charge(&g, &m[1], DT_RATE_MAX, now, 0) == SEC,
	   "and nobody may draw for ever");

	/* short-lived sessions, whose heir is now and then in debt */
	dt_rate_init(&g, DT_RATE_MAX, BLOCK, now);
	dt_rate_join(&g, &m[0], now);
	dt_rate_join(&g, &m[2], now);
	dt_rate_charge(&g, &m[0], DT_RATE_MAX / 50, now, 0);	/* the burst */
	begin = now;

	good = true;
	while (now < begin + 20 * 60 * SEC)
	{
		dt_rate_join(&g, &m[1], now);
		dt_rate_charge(&g, &m[1], DT_RATE_MAX / 50, now, 0);
		dt_rate_leave(&g, &m[1], &m[2], now);
		now += 20 * MS;
		good &= find_violation(&g) == NULL;
	}
	ok(good, "short-lived sessions for 20 minutes");

	/* from a year of uptime on, a sleep ends when it should */
	now = YEAR;
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	g.settled = g.vtime = UINT64_MAX - 5;
	dt_rate_join(&g, &m[0], now);
	dt_rate_charge(&g, &m[0], 200 * KB + 5 * MB, now, 0);
	ok(dt_rate_wake(&g, &m[0], now + 400 * MS) == 100 * MS &&
	   dt_rate_wake(&g, &m[0], now + 500 * MS) == 0, "a pause across the wrap");
	ok_intact(&g, "wrap");
}

/*
 * Random operations on up to 12 members; after each, the invariants and the
 * books: they grow by the income and shrink by the charges, and nothing is
 * dropped except at the cap while nobody owes.
 */
static void
test_random(uint64_t seed, int steps)
{
	DtRateGroup g;
	DtRateMember m[12];
	int64_t		now = rng_range(0, YEAR);
	const char *failed = NULL;
	int			step;

	seed_rng(seed);
	memset(m, 0, sizeof(m));
	dt_rate_init(&g, 10 * MB, BLOCK, now);
	g.settled = g.vtime = UINT64_MAX - (uint64_t) rng_log(50);

	for (step = 0; step < steps && failed == NULL; step++)
	{
		DtRateMember *who = &m[rng() % 12];
		int64_t		dt = 0;
		int64_t		cap;
		int64_t		pause = 0;
		int128		before;
		int128		after;
		int64_t		bytes;

		/* let time pass */
		switch (rng() % 8)
		{
			case 0:
				break;
			case 1:
				dt = -rng_range(0, 3 * SEC);
				break;
			case 2:
				dt = rng() % 50 ? rng_range(0, 3 * SEC) : rng_log(50);
				break;
			default:
				dt = rng_log(17);
		}
		now += dt;
		if (now < 0)
			now = 0;
		failed = pass_time(&g, now);
		cap = pool_cap(&g, g.rate);
		before = books(&g);

		/* do something */
		bytes = rng() % 16 ? rng_log(24) : rng_log(30);
		if (failed != NULL)
			 /* enough */ ;
		else if (rng() % 400 == 0)
		{
			static const int64_t rates[] = {0, 1, KB, 100 * KB, 3 * MB,
			10 * MB, 10 * MB, 50 * MB, GB, DT_RATE_MAX};
			int64_t		rate = rates[rng() % 10];
			int64_t		limit = rng() % 2 ? rate : rates[rng() % 10];
			int64_t		old_rate = g.rate;
			int64_t		old_pool = g.pool;

			dt_rate_set(&g, limit, rate, now);
			rate = g.rate;
			if (limit < rate)
				limit = rate;
			after = books(&g);
			if (rate == 0)
				before = 0;
			else if (old_rate == 0)
				before = rate * (g.burst_us < DT_RATE_DEFAULT_BURST_US ?
								 g.burst_us : DT_RATE_DEFAULT_BURST_US);
			else if (g.n_debtors == 0 && old_pool > pool_cap(&g, rate))
				before = pool_cap(&g, rate);
			else if (old_pool < -limit * LAG_US)
				before += -limit * LAG_US - old_pool;
			if (after != before)
				failed = "a changed rate changes the books";
		}
		else if (rng() % 400 == 0)
		{
			dt_rate_set_burst(&g, rng() % 4 ? rng_log(33) :
							  DT_RATE_DEFAULT_BURST_US, now);
			if (g.n_debtors == 0)
				before = least(before, pool_cap(&g, g.rate));
			if (books(&g) != before)
				failed = "a changed burst changes the books";
		}
		else if (rng() % 400 == 0)
		{
			int64_t		forgiven = dt_rate_bound_debts(&g, now);

			after = books(&g);
			if (after < before + (int128) forgiven * TOKENS ||
				after >= before + (int128) (forgiven + 1) * TOKENS)
				failed = "what was forgiven is not in the books";
			if (forgiven > 0 && dt_rate_group_debt(&g, now) <
				g.claim / TOKENS)
				failed = "what the fixed limit asks for was forgiven";
		}
		else if (who->next == NULL)
		{
			if (rng() % 4 == 0)
			{
				dt_rate_join(&g, who, now);
				if (books(&g) != before)
					failed = "who joins changes the books";
			}
		}
		else
		{
			DtRateMember *heir = &m[rng() % 12];
			int64_t		owed = who->debtor ?
				(int64_t) (who->finish - g.vtime) : 0;

			if (heir->next == NULL || heir == who)
				heir = NULL;
			switch (rng() % 21)
			{
				case 20:
					bytes = dt_rate_debt(&g, who, now);
					before += owed > 0 ? owed : 0;
					if ((dt_rate_forgive(&g, who, now) > 0) != (bytes > 0) ||
						who->debtor)
						failed = "not forgiven";
					bytes = 0;
					break;
				case 0:
					dt_rate_leave(&g, who, heir, now);
					before += heir == NULL && owed > 0 ? owed : 0;
					if (who->next != NULL || who->debtor)
						failed = "who left is not zeroed";
					bytes = 0;
					break;
				case 1:
				case 2:
				case 3:
				case 4:
					pause = dt_rate_wake(&g, who, now);
					bytes = 0;
					break;
				case 5:
					bytes = -bytes;
					/* FALLTHROUGH */
				default:
					pause = dt_rate_charge(&g, who, bytes, now, rng_double());
					if (bytes < 0)
						bytes = 0;
					break;
			}
			after = books(&g);
			if (g.rate == 0)
				bytes = 0;
			if (failed == NULL)
				failed = find_wrong_charge(before, after, cap, bytes);
			if (failed == NULL && who->next != NULL)
			{
				if (pause != 0 && (pause < MS || pause > SEC || !who->debtor))
					failed = "a pause out of range";
				else if (pause == 0 && !who->debtor &&
						 dt_rate_debt(&g, who, now) != 0)
					failed = "a debt without a debtor";
			}
		}
		if (failed == NULL)
			failed = find_violation(&g);
	}
	ok(failed == NULL, "%d random operations, seed %llu%s%s", step,
	   (unsigned long long) seed, failed ? ": " : "", failed ? failed : "");
}


/*
 * Whatever pressure makes of the rate, and however often what is owed is
 * bounded: members that use something, as much as they like, whenever they need
 * not pause take no more than the fixed limit grants, and what they owe.
 */
static void
test_fixed_limit(uint64_t seed)
{
	DtRateGroup g;
	DtRateMember m[6];			/* the last stands for those who have left */
	int64_t		begin = YEAR;
	int64_t		now = begin;
	int64_t		until[5] = {0};
	int64_t		limit;
	int64_t		saved_up;
	double		used = 0;
	double		most = -1e30;
	int64_t		forgiven = 0;
	int64_t		bounded_at = now;
	int			k;

	seed_rng(seed);
	limit = 1000 + rng_log(28);
	dt_rate_init(&g, limit, BLOCK, now);
	if (rng() % 2)
		dt_rate_set_burst(&g, rng_log(24), now);
	saved_up = g.burst_us < CREDIT_US ? CREDIT_US : g.burst_us;
	for (k = 0; k < 6; k++)
		dt_rate_join(&g, &m[k], now);
	while (now < begin + 2 * HOUR)
	{
		double		excess;

		now += rng_log(20);
		if (rng() % 8 == 0)
			dt_rate_set(&g, limit, 1 + rng_log(28), now);
		/* often, but now and then not for long */
		if (now - bounded_at > 200 * MS && rng() % 64)
		{
			forgiven += dt_rate_bound_debts(&g, now);
			bounded_at = now;
		}
		k = (int) (rng() % 5);
		if (until[k] <= now)
		{
			int64_t		bytes = rng_log(rng() % 4 ? 20 : 31);
			int64_t		pause = dt_rate_wake(&g, &m[k], now);

			if (pause == 0)
			{
				pause = dt_rate_charge(&g, &m[k], bytes, now, rng_double());
				used += bytes;
			}
			until[k] = now + pause;
		}
		else if (rng() % 16 == 0)
		{
			dt_rate_leave(&g, &m[k], &m[5], now);
			dt_rate_join(&g, &m[k], now);
			until[k] = 0;
		}
		excess = used - dt_rate_group_debt(&g, now) -
			(double) limit * (now - begin) / SEC;
		if (excess > most)
			most = excess;
	}
	ok(most <= limit * (saved_up + CREDIT_US) / 1e6 + 100,
	   "limit %lld, pressure: %.0f bytes too much, %lld forgiven",
	   (long long) limit, most, (long long) forgiven);
}


/*-------------------------------------------------------------------------
 * Simulated sessions
 *-------------------------------------------------------------------------
 */

#define SIM_MAX		64

typedef struct SimSession
{
	DtRateMember m;
	int64_t		batch;			/* bytes used between two safe points */
	int64_t		cost;			/* us to use them, at full speed */
	double		demand;			/* bytes/s it wants; 0: as many as it can */
	int64_t		limit;			/* bytes after which it ends; 0: never */
	bool		active;
	bool		sleeping;
	double		arrival;		/* when the next batch is wanted */
	int64_t		next;			/* when it does something next */
	int64_t		used;			/* bytes not yet charged */
	int64_t		charge_at;		/* when so many are used */
	int64_t		total;			/* bytes used */
	int64_t		ended;
} SimSession;

typedef struct Sim
{
	DtRateGroup g;
	DtRateMember heir;			/* of those who have left */
	SimSession	s[SIM_MAX];
	int			n;
	int64_t		now;
	int64_t		oversleep;		/* at most, us */
	bool		jitter;
	bool		observe;		/* nobody sleeps */
	int64_t		total;			/* used, by all */
	int64_t		slept;			/* by all, us */
	int64_t		would_sleep;	/* the same where nobody does */
	int64_t		charges;
	int64_t		wakes;
	/* the most that any window used beyond its income */
	int64_t		excess_since;
	double		excess;
	double		excess_low;
	double		excess_max;
	const char *problem;
} Sim;

static Sim *
sim_new(int64_t rate)
{
	static Sim	sim;

	memset(&sim, 0, sizeof(sim));
	sim.now = YEAR;
	sim.oversleep = 5 * MS;
	sim.jitter = true;
	sim.excess_since = sim.now;
	dt_rate_init(&sim.g, rate, BLOCK, sim.now);
	seed_rng(4711);
	return &sim;
}

/* batch in blocks; 20 us a block */
static SimSession *
sim_add(Sim *sim, int batch, double demand)
{
	SimSession *s = &sim->s[sim->n++];

	memset(s, 0, sizeof(*s));
	s->active = true;
	s->batch = batch * BLOCK;
	s->cost = batch * 20;
	s->demand = demand;
	s->arrival = s->next = sim->now + rng_range(0, 100);
	dt_rate_join(&sim->g, &s->m, sim->now);
	s->charge_at = dt_rate_batch(&sim->g, &s->m);
	return s;
}

/* A session ends in debt. */
static void
sim_leave(Sim *sim, DtRateMember *m, int64_t uncharged)
{
	if (sim->heir.next == NULL)
		dt_rate_join(&sim->g, &sim->heir, sim->now);
	dt_rate_charge(&sim->g, m, uncharged, sim->now, 0);
	dt_rate_leave(&sim->g, m, &sim->heir, sim->now);
}

/* Account for bytes used at now in the worst window so far. */
static void
sim_window(Sim *sim, int64_t bytes)
{
	sim->excess -= (double) sim->g.rate * (sim->now - sim->excess_since) / SEC;
	sim->excess_since = sim->now;
	if (sim->excess < sim->excess_low)
		sim->excess_low = sim->excess;
	sim->excess += bytes;
	if (sim->excess - sim->excess_low > sim->excess_max)
		sim->excess_max = sim->excess - sim->excess_low;
}

static void
sim_window_reset(Sim *sim)
{
	sim->excess_since = sim->now;
	sim->excess = sim->excess_low = sim->excess_max = 0;
}

/*
 * The most that a window may use beyond its income: credit, overdraft, and
 * one row and one batch of each session.  Jitter makes it up to twice
 * the latter: it lets go who still owes half.
 */
static double
sim_window_bound(const Sim *sim)
{
	int64_t		credit = sim->g.burst_us;
	double		bound;
	int			i;

	if (credit < CREDIT_US)
		credit = CREDIT_US;
	bound = (double) sim->g.rate * (credit + LAG_US) / SEC;

	for (i = 0; i < sim->n; i++)
	{
		if (sim->s[i].active)
			bound += (double) (sim->s[i].batch +
							   dt_rate_batch(&sim->g, &sim->s[i].m)) *
				(sim->jitter ? 2 : 1);
	}
	return bound;
}

static void
sim_step(Sim *sim, SimSession *s)
{
	int64_t		pause = 0;

	if (s->sleeping)
	{
		pause = dt_rate_wake(&sim->g, &s->m, sim->now);
		sim->wakes++;
	}
	else
	{
		s->used += s->batch;
		s->total += s->batch;
		sim->total += s->batch;
		sim_window(sim, s->batch);
		if (s->demand > 0)
			s->arrival += s->batch / s->demand * SEC;
		if (s->used >= s->charge_at)
		{
			pause = dt_rate_charge(&sim->g, &s->m, s->used, sim->now,
								   sim->jitter ? rng_double() : 0);
			s->charge_at = dt_rate_batch(&sim->g, &s->m);
			s->used = 0;
			sim->charges++;
		}
		s->next += s->cost;
	}
	if (sim->problem == NULL && (sim->charges + sim->wakes) % 16 == 0)
		sim->problem = find_violation(&sim->g);

	if (pause > 0 && sim->observe)
	{
		sim->would_sleep += dt_rate_forgive(&sim->g, &s->m, sim->now);
		pause = 0;
	}
	s->sleeping = pause > 0;
	if (s->sleeping)
	{
		s->next = sim->now + (pause + MS - 1) / MS * MS +
			rng_range(0, sim->oversleep);
		sim->slept += s->next - sim->now;
	}
	else if (s->limit > 0 && s->total >= s->limit)
	{
		s->active = false;
		s->ended = sim->now;
	}
	else if (s->demand > 0 && s->next < s->arrival)
		s->next = (int64_t) s->arrival;
}

/* Run for at most "duration", or until all sessions have ended. */
static void
sim_run(Sim *sim, int64_t duration)
{
	int64_t		until = sim->now + duration;

	for (;;)
	{
		SimSession *s = NULL;
		int			i;

		for (i = 0; i < sim->n; i++)
		{
			if (sim->s[i].active && (s == NULL || sim->s[i].next < s->next))
				s = &sim->s[i];
		}
		if (s == NULL || s->next > until)
			break;
		if (s->next > sim->now)
			sim->now = s->next;
		sim_step(sim, s);
	}
	if (sim->now < until)
		sim->now = until;
}

/* A changed rate wakes all sleepers at once. */
static void
sim_set_rate(Sim *sim, int64_t rate)
{
	int			i;

	fix_rate(&sim->g, rate, sim->now);
	for (i = 0; i < sim->n; i++)
	{
		sim->s[i].charge_at = dt_rate_batch(&sim->g, &sim->s[i].m);
		if (sim->s[i].sleeping)
			sim->s[i].next = sim->now;
	}
	sim_window_reset(sim);
}

/* Jain's index of what the sessions got, relative to "fair" (or to equal) */
static double
sim_jain(const Sim *sim, const double *fair)
{
	double		sum = 0;
	double		squares = 0;
	int			i;

	for (i = 0; i < sim->n; i++)
	{
		double		x = (double) sim->s[i].total / (fair ? fair[i] : 1);

		sum += x;
		squares += x * x;
	}
	return sum * sum / (sim->n * squares);
}

static void
sim_ok(Sim *sim, const char *name)
{
	ok(sim->problem == NULL && find_violation(&sim->g) == NULL,
	   "%s: intact all the time%s%s", name, sim->problem ? ": " : "",
	   sim->problem ? sim->problem : "");
}

static void
test_greedy(void)
{
	static const int ns[] = {1, 2, 8, 64};
	static const int batches[] = {1, 16};
	char		name[100];
	int			i;
	int			b;
	int			k;

	for (b = 0; b < 2; b++)
	{
		for (i = 0; i < 4; i++)
		{
			Sim		   *sim = sim_new(20 * MB);

			for (k = 0; k < ns[i]; k++)
				sim_add(sim, batches[b], 0);
			sim_run(sim, 300 * SEC);
			snprintf(name, sizeof(name), "%d greedy, batches of %d", ns[i],
					 batches[b]);
			ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
					 name);
			ok_range(sim_jain(sim, NULL), 0.999, 1, "... Jain's index");
			ok_range(sim->excess_max / sim_window_bound(sim), 0, 1,
					 "... worst window");
			sim_ok(sim, "...");
		}
	}
}

static void
test_idle_members(void)
{
	Sim		   *sim = sim_new(20 * MB);
	int			k;

	for (k = 0; k < 8; k++)
	{
		sim_add(sim, 1, 0);
		if (k > 0)
			sim->s[k].active = false;
	}
	sim_run(sim, 300 * SEC);
	ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
			 "7 of 8 idle");

	/* idle after having been in debt */
	sim = sim_new(20 * MB);
	for (k = 0; k < 8; k++)
		sim_add(sim, 1, 0);
	sim_run(sim, 20 * SEC);
	for (k = 1; k < 8; k++)
		sim->s[k].active = false;
	sim_run(sim, 280 * SEC);
	ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
			 "7 of 8 idle after 20 s");
	sim_ok(sim, "idle members");
}

static void
test_fairness(void)
{
	static const int batches[] = {1, 3, 7, 20, 55, 150, 400, 1000};
	static const double wants[] = {.25, .4, .6, .75};
	Sim		   *sim = sim_new(20 * MB);
	double		fair[8];
	double		rest = 8;
	int64_t		begin;
	int			k;

	for (k = 0; k < 8; k++)
		sim_add(sim, batches[k], 0);
	sim_run(sim, 3000 * SEC);
	ok_range((double) sim->total / (20 * MB) / 3000, 0.995, 1.005,
			 "batches of 1 to 1000 blocks: rate");
	ok_range(sim_jain(sim, NULL), 0.999, 1, "... Jain's index");
	sim_ok(sim, "...");

	sim = sim_new(20 * MB);
	for (k = 0; k < 8; k++)
	{
		fair[k] = k < 4 ? wants[k] : 0;
		rest -= fair[k];
		sim_add(sim, k % 2 ? 1 : 8, fair[k] * 20 * MB / 8);
	}
	for (k = 4; k < 8; k++)
		fair[k] = rest / 4;
	sim_run(sim, 300 * SEC);
	ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
			 "half want 25 to 75 % of their share: rate");
	ok_range(sim_jain(sim, fair), 0.999, 1, "... Jain's index of max-min");
	for (k = 0, rest = 1; k < 8; k++)
	{
		double		x = sim->s[k].total / (fair[k] * 20 * MB / 8 * 300);

		if (x < rest)
			rest = x;
	}
	ok_range(rest, 0.99, 1, "... the worst off");
	ok_range(sim->excess_max / sim_window_bound(sim), 0, 1,
			 "... worst window");
	sim_ok(sim, "...");

	/* one that is almost idle never waits for long beside greedy ones */
	sim = sim_new(20 * MB);
	for (k = 0; k < 8; k++)
		sim_add(sim, 1, k == 0 ? 20 * MB / 80 : 0);
	begin = sim->now;

	sim_run(sim, 300 * SEC);
	ok_range(sim->s[0].total / (20.0 * MB / 80) /
			 ((double) (sim->now - begin) / SEC), 0.999, 1.001,
			 "a tenth of its share is served at once");
}

static void
test_big_debt(void)
{
	Sim		   *sim;
	int64_t		others;
	int			k;

	sim = sim_new(50 * MB);
	for (k = 0; k < 8; k++)
		sim_add(sim, 1, 0);
	sim_run(sim, 10 * SEC);
	/* the first one's next batch is 1 GB */
	sim->s[0].batch = GB / BLOCK * BLOCK;
	sim_run(sim, 100 * MS);
	sim->s[0].batch = BLOCK;
	others = sim->total - sim->s[0].total;
	sim_run(sim, 20 * SEC);
	ok_range((double) (sim->total - sim->s[0].total - others) /
			 (50 * MB) / 20, 0.870, 0.880, "others while one owes 1 GB");
	/* it dies */
	sim->s[0].active = false;
	sim_leave(sim, &sim->s[0].m, sim->s[0].used);
	others = sim->total - sim->s[0].total;
	sim_run(sim, 10 * SEC);
	ok_range((double) (sim->total - sim->s[0].total - others) /
			 (50 * MB) / 10, 0.865, 0.885, "others beside its heir");
	sim_run(sim, 260 * SEC);
	ok_range((double) sim->total / (50 * MB) / 300.1, 0.995, 1.005,
			 "dying in debt: long-run rate");
	sim_ok(sim, "big debt");

	/* sessions that come, use and die in debt all the time */
	sim = sim_new(20 * MB);
	for (k = 0; k < 8; k++)
		sim_add(sim, 16, 0);
	for (k = 0; k < 3000; k++)
	{
		SimSession *s = &sim->s[k % 8];

		sim_run(sim, 100 * MS);
		sim_leave(sim, &s->m, s->used);
		s->used = 0;
		s->sleeping = false;
		s->next = sim->now;
		dt_rate_join(&sim->g, &s->m, sim->now);
		s->charge_at = dt_rate_batch(&sim->g, &s->m);
	}
	ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
			 "coming and dying in debt, ten a second: long-run rate");
	sim_ok(sim, "...");
}

/* Members that leave in debt must not slow down those that stay. */
static void
test_crowds(void)
{
	static const int ns[] = {1, 4, 8};
	static DtRateMember crowd[1000];
	Sim		   *sim;
	char		name[100];
	int64_t		before;
	int64_t		left;
	int64_t		used;
	int			i;
	int			k;
	int			n;

	/* a thousand at once */
	for (i = 0; i < 3; i++)
	{
		sim = sim_new(20 * MB);
		for (k = 0; k < ns[i]; k++)
			sim_add(sim, 1, 0);
		sim_run(sim, 10 * SEC);
		for (k = 0; k < 1000; k++)
		{
			dt_rate_join(&sim->g, &crowd[k], sim->now);
			dt_rate_charge(&sim->g, &crowd[k], MB, sim->now, 0);
		}
		for (k = 0; k < 1000; k++)
			sim_leave(sim, &crowd[k], 0);
		before = sim->total;
		sim_run(sim, 20 * SEC);
		snprintf(name, sizeof(name),
				 "%d greedy beside what 1000 left behind", ns[i]);
		ok_range((double) (sim->total - before) / (20 * MB) / 20, 0.495, 1,
				 name);
		ok_range(sim_jain(sim, NULL), 0.999, 1, "... Jain's index");
		used = sim->total + 1000 * MB - dt_rate_group_debt(&sim->g, sim->now);
		ok_range((double) used / (20 * MB) / 30, 0.995, 1.005,
				 "... used and paid: rate");
		sim_ok(sim, "...");
	}

	/*
	 * Twenty a second that come, use and go, the greater part of the rate or
	 * a small one.
	 */
	for (n = 0; n < 2; n++)
	{
		for (i = 0; i < 3; i++)
		{
			int64_t		bytes = n == 0 ? MB : 50 * KB;

			sim = sim_new(20 * MB);
			for (k = 0; k < ns[i]; k++)
				sim_add(sim, 1, 0);
			left = 0;
			for (k = 0; k < 6000; k++)
			{
				dt_rate_join(&sim->g, &crowd[0], sim->now);
				dt_rate_charge(&sim->g, &crowd[0], bytes, sim->now, 0);
				sim_run(sim, 50 * MS);
				sim_leave(sim, &crowd[0], 0);
				left += bytes;
			}
			snprintf(name, sizeof(name),
					 "%d greedy beside short sessions of %lld KB: share",
					 ns[i], (long long) (bytes / KB));
			ok_range((double) sim->total / (20 * MB) / 300,
					 n == 0 ? ns[i] / (ns[i] + 2.0) * 0.98 : 0.945, 1, name);
			ok_range(sim_jain(sim, NULL), 0.999, 1, "... Jain's index");
			used = sim->total + left - dt_rate_group_debt(&sim->g, sim->now);
			ok_range((double) used / (20 * MB) / 300, 0.995, 1.005,
					 "... used and paid: rate");
			if (n == 1)
				ok_range((double) dt_rate_group_debt(&sim->g, sim->now) /
						 (20 * MB), 0, 2, "... seconds' worth of debt left");
			sim_ok(sim, "...");
		}
	}
}

/* A burst after a break, and the rate from then on. */
static void
test_burst_use(void)
{
	static const int ns[] = {1, 8, 64};
	int			i;
	int			k;

	for (i = 0; i < 3; i++)
	{
		Sim		   *sim = sim_new(20 * MB);
		char		name[100];

		dt_rate_set_burst(&sim->g, 5 * SEC, sim->now);
		sim->now += 20 * SEC;
		sim_window_reset(sim);
		for (k = 0; k < ns[i]; k++)
			sim_add(sim, 1, 0);
		/* 20 us a block each: 100 MB in 0.25 s, but for the income */
		sim_run(sim, 300 * MS);
		snprintf(name, sizeof(name), "%d use a burst of 5 s: seconds' worth",
				 ns[i]);
		ok_range((double) sim->total / (20 * MB), 5.25, 5.5, name);
		sim_run(sim, 299700 * MS);
		ok_range((double) sim->total / (20 * MB), 305 * 0.995, 305 * 1.005,
				 "... and the rate");
		ok_range(sim->excess_max / sim_window_bound(sim), 0.9, 1,
				 "... worst window");
		sim_ok(sim, "...");
	}
}

/*
 * The same work with and without pauses: what the sessions would have slept is
 * what they do sleep.
 */
static void
test_observe(void)
{
	static const int ns[] = {1, 2, 3, 8, 64};
	static const int batches[] = {1, 50};
	int			i;
	int			b;
	int			k;
	int			observe;

	for (b = 0; b < 2; b++)
	{
		for (i = 0; i < 5; i++)
		{
			int64_t		us[2];
			char		name[100];

			for (observe = 0; observe < 2; observe++)
			{
				Sim		   *sim = sim_new(ns[i] * MB);

				sim->observe = observe;
				for (k = 0; k < ns[i]; k++)
				{
					sim_add(sim, batches[b], 0);
					sim->s[k].limit = 10000 * BLOCK;
				}
				sim_run(sim, 1000 * SEC);
				us[observe] = observe ? sim->would_sleep : sim->slept;
				if (observe)
				{
					ok(sim->slept == 0 && sim->s[0].ended - YEAR < SEC,
					   "observed: nobody sleeps");
					sim_ok(sim, "...");
				}
			}
			snprintf(name, sizeof(name),
					 "... %d, batches of %d: would sleep %.1f s, do sleep",
					 ns[i], batches[b], us[1] / 1e6);
			ok_range((double) us[1] / us[0], 0.9, 1.1, name);
		}
	}
}

/*
 * The reference manual's test: each session dirties 10 000 blocks in batches
 * of one, in a group that was idle before.
 */
static void
test_manual(void)
{
	int			n;
	int			k;

	for (n = 1; n <= 4; n *= 2)
	{
		int64_t		rate = 6144 * KB * n;
		Sim		   *sim = sim_new(rate);
		double		sum = 0;
		int64_t		begin;
		char		name[100];

		for (k = 0; k < n; k++)
		{
			sim_add(sim, 1, 0);
			sim->s[k].next = sim->now + 10 * SEC + rng_range(0, 10 * MS);
			sim->s[k].limit = 10000 * BLOCK;
		}
		/* some earlier work, long over */
		dt_rate_charge(&sim->g, &sim->s[0].m, MB, sim->now, 0);
		dt_rate_charge(&sim->g, &sim->s[n - 1].m, MB, sim->now, 0);
		begin = sim->now + 10 * SEC;

		sim_run(sim, 30 * SEC);
		for (k = 0; k < n; k++)
			sum += 10000.0 * BLOCK / (sim->s[k].ended - begin) * SEC;
		snprintf(name, sizeof(name), "the manual's test, %d sessions", n);
		ok_range(sum / rate, 0.995, 1.004, name);
	}
}

static void
test_extremes(void)
{
	Sim		   *sim = sim_new(KB);
	int			k;

	sim_add(sim, 1, 0);
	sim_run(sim, 8192 * SEC);
	ok_range((double) sim->total / KB / 8192, 0.998, 1.002,
			 "1 KB/s: rate");
	ok_range((double) sim->wakes / 8192, 0.9, 1.2, "... wake-ups a second");

	sim = sim_new(DT_RATE_MAX);
	for (k = 0; k < 64; k++)
		sim_add(sim, 64, 0);
	sim_run(sim, 20 * SEC);
	ok_range((double) sim->total / DT_RATE_MAX / 20, 0.995, 1.02,
			 "16 GB/s, 64 members: rate");
	ok_range((double) sim->charges / 20, 1000, 5000, "... charges a second");
	ok_range(sim_jain(sim, NULL), 0.99, 1, "... Jain's index");
	sim_ok(sim, "extremes");

	/* 100 ms of oversleep cost nothing either */
	sim = sim_new(20 * MB);
	sim->oversleep = 100 * MS;
	sim_add(sim, 1, 0);
	sim_add(sim, 200, 0);
	sim_run(sim, 300 * SEC);
	ok_range((double) sim->total / (20 * MB) / 300, 0.995, 1.005,
			 "oversleeping by up to 100 ms");
	sim = sim_new(20 * MB);
	sim->oversleep = 80 * MS;
	sim_add(sim, 6000, 0);
	sim_run(sim, 900 * SEC);
	ok_range((double) sim->total / (20 * MB) / 900, 0.995, 1.005,
			 "oversleeping after pauses of seconds");
}

/* Limits that change under running sessions. */
static void
test_changing_limits(void)
{
	static const int64_t rates[] = {20 * MB, MB, 50 * MB, 100 * KB, 8 * MB};
	Sim		   *sim = sim_new(20 * MB);
	double		due = 0;
	int64_t		begin;
	int			k;
	int			i;

	for (k = 0; k < 6; k++)
		sim_add(sim, 1 + k % 3, 0);
	for (i = 0; i < 100; i++)
	{
		sim_set_rate(sim, rates[i % 5]);
		sim_run(sim, 3 * SEC);
		due += 3.0 * rates[i % 5];
		if (sim->excess_max > sim_window_bound(sim) && sim->problem == NULL)
			sim->problem = "a window beyond the bound";
	}
	ok_range(sim->total / due, 0.99, 1.01, "limits that change: rate");
	ok_range(sim_jain(sim, NULL), 0.99, 1, "... Jain's index");
	sim_ok(sim, "...");

	/* the table's: 16 MB owed at 100 KB/s, raised to 50 MB/s */
	sim = sim_new(100 * KB);
	sim_add(sim, (int) (16 * MB / BLOCK), 0);
	sim_run(sim, 2 * SEC);
	sim->s[0].batch = BLOCK;
	sim_set_rate(sim, 50 * MB);
	begin = sim->now;

	sim->s[0].limit = sim->s[0].total + BLOCK;
	sim_run(sim, 10 * SEC);
	ok_range((double) (sim->s[0].ended - begin) / SEC, 0.25, 0.33,
			 "raised limit: seconds to the first block");
}

/*
 * The bound for any window: random groups of sessions, of greedy and of
 * modest ones, some of which stop and start again.
 */
static void
test_windows(bool jitter)
{
	double		worst = 0;
	int			rounds = 1000;
	int			round;

	for (round = 0; round < rounds; round++)
	{
		int64_t		rate = 50 * KB + rng_log(27);
		Sim		   *sim = sim_new(rate);
		double		ratio;
		int			n;
		int			k;

		seed_rng(round + 100);
		sim->jitter = jitter;
		if (rng() % 4 == 0)
			sim->oversleep = 150 * MS;
		n = (int) rng_range(1, rng() % 4 ? 12 : 40);
		for (k = 0; k < n; k++)
			sim_add(sim, 1 + (int) rng_log(5),
					rng() % 2 ? 0 : rng_double() * 2 * rate / n);
		for (k = 0; k < 40; k++)
		{
			SimSession *s = &sim->s[rng() % n];

			sim_run(sim, rng_log(22));
			s->active = !s->active;
			s->arrival = sim->now;
			if (s->next < sim->now)
				s->next = sim->now;
		}
		for (k = 0; k < n; k++)
			sim->s[k].active = true;
		ratio = sim->excess_max / sim_window_bound(sim);
		if (ratio > worst)
			worst = ratio;
		if (sim->problem != NULL)
			break;
	}
	ok(round == rounds, "random sessions%s: intact all the time",
	   jitter ? "" : " without jitter");
	ok_range(worst, 0.1, 1, "... worst window of all, of the bound");
}

int
main(void)
{
	uint64_t	seed;

	test_unlimited();
	test_basics();
	test_burst();
	test_budgeted();
	test_forgive();
	test_batch();
	test_huge();
	test_idle_debtors();
	test_sweeps();
	test_lag();
	test_passed_debts();
	test_rate_changes();
	test_bound_debts();
	test_claim();
	test_heir();
	test_clock();
	test_wrap();
	for (seed = 1; seed <= 8; seed++)
		test_random(seed, 100000);
	for (seed = 1; seed <= 40; seed++)
		test_fixed_limit(seed);
	test_greedy();
	test_idle_members();
	test_fairness();
	test_big_debt();
	test_crowds();
	test_burst_use();
	test_observe();
	test_manual();
	test_extremes();
	test_changing_limits();
	test_windows(false);
	test_windows(true);

	return done_testing();
}
