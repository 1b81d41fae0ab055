/*-------------------------------------------------------------------------
 *
 * histogram_test.c
 *		Unit test of the histogram of rates with a simulated clock.
 *
 * Compile with src/engine/histogram.c, run alone or under prove; prints TAP.
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/histogram.h"
#include "tap.h"

#define KB			INT64_C(1000)
#define MB			INT64_C(1000000)
#define GB			INT64_C(1000000000)
#define MS			INT64_C(1000)
#define SEC			INT64_C(1000000)
#define YEAR		(365 * 24 * 3600 * SEC)

/* The widest bucket, stated here again on purpose. */
#define WIDTH		1.0625

/* A quantile is what it should be, or up to a bucket's width above. */
static void
ok_quantile(DtHistogram *p, double quantile, int64_t expected, int64_t now,
			const char *name)
{
	int64_t		value = dt_histogram_quantile(p, quantile, now);

	ok(value >= expected && value <= expected * WIDTH,
	   "%s: quantile %g is %lld (%lld)", name, quantile, (long long) value,
	   (long long) expected);
}

static uint64_t
rng(void)
{
	static uint64_t state = 4711;

	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return state * UINT64_C(0x2545F4914F6CDD1D);
}

static int
compare(const void *a, const void *b)
{
	int64_t		x = *(const int64_t *) a;
	int64_t		y = *(const int64_t *) b;

	return (x > y) - (x < y);
}

static void
test_empty(void)
{
	DtHistogram p;
	int64_t		now = YEAR + 700 * MS;

	dt_histogram_reset(&p, now);
	ok(dt_histogram_quantile(&p, 0.5, now) == 0 &&
	   dt_histogram_quantile(&p, 1, now + 10 * SEC) == 0 && p.seconds == 0 &&
	   p.max == 0, "nothing was used");
	now += 10 * SEC;
	dt_histogram_add(&p, 0, now);
	ok(dt_histogram_quantile(&p, 0.5, now + 2 * SEC) == 0 && p.seconds == 0,
	   "a use of nothing is none");

	now += 10 * SEC;
	dt_histogram_add(&p, 5 * MB, now);
	ok(dt_histogram_quantile(&p, 0.5, now) == 0 && p.seconds == 0,
	   "the second under way does not count");
	ok(dt_histogram_quantile(&p, 0.5, now + 300 * MS) == 5 * MB &&
	   p.seconds == 1 && p.max == 5 * MB, "but when it is over");
	dt_histogram_reset(&p, now + 300 * MS);
	ok(dt_histogram_quantile(&p, 1, now + 5 * SEC) == 0 && p.seconds == 0 &&
	   p.max == 0, "a reset forgets it");
}

static void
test_seconds(void)
{
	DtHistogram p;
	int64_t		now = YEAR;
	int			i;

	/* 40 charges a second, ten seconds of them, with breaks */
	dt_histogram_reset(&p, now);
	for (i = 0; i < 400; i++)
	{
		dt_histogram_add(&p, 25 * KB, now);
		now += 25 * MS;
		if (i % 80 == 79)
			now += 5 * SEC;
	}
	ok_quantile(&p, 0.05, MB, now, "charges add up to a second's");
	ok_quantile(&p, 0.95, MB, now, "charges add up to a second's");
	ok(p.seconds == 10 && p.max == MB, "breaks do not count: %lld seconds",
	   (long long) p.seconds);

	/* 90 seconds of one rate, 10 of another */
	dt_histogram_reset(&p, now);
	for (i = 0; i < 100; i++)
	{
		dt_histogram_add(&p, i % 10 ? 3 * MB : 50 * MB, now);
		now += SEC;
	}
	ok_quantile(&p, 0.5, 3 * MB, now, "two rates");
	ok_quantile(&p, 0.89, 3 * MB, now, "two rates");
	ok_quantile(&p, 0.91, 50 * MB, now, "two rates");
	ok(dt_histogram_quantile(&p, 1, now) == 50 * MB && p.max == 50 * MB,
	   "the maximum is exact");

	/* members read the clock before they take the lock */
	dt_histogram_reset(&p, now);
	for (i = 0; i < 100; i++)
	{
		dt_histogram_add(&p, MB, now + 5);
		dt_histogram_add(&p, KB, now - 5);
		dt_histogram_add(&p, MB, now + 10);
		now += SEC;
	}
	ok_quantile(&p, 0.05, 2 * MB, now, "times a little out of order");
	ok(p.seconds == 100, "they split no second: %lld seconds",
	   (long long) p.seconds);
}

/* Every amount is in a bucket that is not too wide. */
static void
test_buckets(void)
{
	DtHistogram p;
	int64_t		now = SEC;
	int64_t		bad = 0;
	int64_t		last = 0;
	int64_t		bytes;

	for (bytes = 1; bytes < INT64_C(1) << 38; bytes += bytes / 97 + 1)
	{
		int64_t		value;

		dt_histogram_reset(&p, now);
		dt_histogram_add(&p, INT64_C(1) << 38, now);	/* or it is the maximum */
		dt_histogram_add(&p, bytes, now += SEC);
		value = dt_histogram_quantile(&p, 0.5, now += SEC);
		if (value < bytes || value < last ||
			(bytes < 1024 ? value > 1024 : value > bytes * WIDTH))
			bad = bytes;
		last = value;
	}
	ok(bad == 0, "1 byte to 256 GiB%s %lld", bad ? ", but for" : ": at",
	   (long long) (bad ? bad : bytes));

	dt_histogram_reset(&p, now);
	dt_histogram_add(&p, 1, now);
	ok(dt_histogram_quantile(&p, 0.5, now += SEC) == 1 && p.max == 1,
	   "a byte is the most");
	dt_histogram_add(&p, INT64_C(1) << 50, now);
	dt_histogram_add(&p, INT64_C(1) << 50, now);
	ok(dt_histogram_quantile(&p, 1, now += SEC) >= (INT64_C(1) << 38) &&
	   p.max == INT64_C(1) << 51, "beyond the last bucket");
}

/* Against a sorted list. */
static void
test_random(void)
{
	static const double quantiles[] = {0.001, 0.1, 0.5, 0.9, 0.95, 0.99, 1};
	static int64_t list[3000];
	DtHistogram p;
	int64_t		now = YEAR;
	bool		good = true;
	int			round;
	int			i;
	int			n;

	for (round = 0; round < 200; round++)
	{
		n = 1 + (int) (rng() % 3000);
		dt_histogram_reset(&p, now);
		for (i = 0; i < n; i++)
		{
			list[i] = 1024 + (int64_t) (rng() >> 1 >> (27 + rng() % 30));
			dt_histogram_add(&p, list[i] / 2, now);
			dt_histogram_add(&p, list[i] - list[i] / 2,
							 now + (int64_t) (rng() % (uint64_t) SEC) / 2);
			now += SEC * (1 + (int64_t) (rng() % 3));
		}
		qsort(list, n, sizeof(list[0]), compare);
		for (i = 0; i < 7; i++)
		{
			int64_t		value = dt_histogram_quantile(&p, quantiles[i], now);
			int			rank = (int) (quantiles[i] * n);

			if (rank < quantiles[i] * n)
				rank++;
			good &= value >= list[rank - 1] &&
				value <= list[rank - 1] * WIDTH && value <= list[n - 1];
		}
		good &= p.seconds == n && p.max == list[n - 1];
	}
	ok(good, "random seconds, against their sorted list");
}

int
main(void)
{
	test_empty();
	test_seconds();
	test_buckets();
	test_random();

	return done_testing();
}
