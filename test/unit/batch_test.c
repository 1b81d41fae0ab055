/*-------------------------------------------------------------------------
 *
 * batch_test.c
 *		Unit test of how many keys a batch has.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/batch.h"
#include "tap.h"

#define MS			INT64_C(1000)
#define BLOCK		INT64_C(8192)

static const DtBatchBounds unlimited = {.keys = 20000,.us = 100 * MS};
static const DtBatchBounds limited = {
	.keys = 20000,.us = 100 * MS,.bytes = {400000, 100000}
};

/* The size after one of so many keys, each of which has cost that. */
static int64_t
after(const DtBatchBounds *bounds, int64_t size, int64_t keys, double us,
	  int64_t dirty, int64_t wal)
{
	DtBatchCost cost = {
		.keys = keys,.us = keys * us,.bytes = {keys * dirty, keys * wal}
	};

	DtBatchFixed fixed = {0};

	return dt_batch_next(size, &cost, bounds, &fixed);
}

/*
 * The largest and the last size of many batches, from one of 100 keys on: each takes
 * fixed_us, and us for each key; but one of a single key takes slow_us, once.
 */
static int64_t
settles_at(double fixed_us, double us, double slow_us, int64_t *largest)
{
	DtBatchFixed fixed = {0};
	int64_t		size = 100;

	*largest = 0;
	for (int i = 0; i < 200; i++)
	{
		DtBatchCost cost = {.keys = size,.us = fixed_us + size * us};

		if (size == 1 && slow_us > 0)
		{
			cost.us = slow_us;
			slow_us = 0;
		}

		size = dt_batch_next(size, &cost, &unlimited, &fixed);
		*largest = size > *largest ? size : *largest;
	}
	return size;
}

int
main(void)
{
	DtBatchFixed fixed = {0};
	int64_t		largest;
	int64_t		size;
	int			n = 0;

	ok(after(&unlimited, 100, 100, 1, 0, 0) == 200, "it doubles");
	ok(after(&unlimited, 15000, 15000, 1, 0, 0) == 20000, "up to the maximum");
	ok(after(&unlimited, 1, 1, 0, 0, 0) == 2, "also if it takes no time");
	ok(after(&unlimited, 5000, 5000, 40, 0, 0) == 2500,
	   "what takes 200 ms has half as many keys");
	ok(after(&unlimited, 3, 3, 5000000, 0, 0) == 1, "one at least");
	ok(after(&unlimited, 1000, 1000, 1, BLOCK, 1000000) == 2000,
	   "without a limit it does not matter what it uses");
	ok(after(&limited, 1000, 1000, 1, 0, 100) == 500,
	   "it aims at half of what may be used of WAL");
	ok(after(&limited, 1000, 1000, 1, 1000, 1) == 200, "and of buffers");
	ok(after(&limited, 400, 400, 1, 100, 100) == 500,
	   "the scarcest of them decides");
	ok(after(&limited, 10, 500, 1, 0, 100) == 20,
	   "keys that are equal to the last one come in addition: it still doubles");
	ok(after(&limited, 100, 100000, 1, 0, 10) == 200,
	   "what they cost is that of each of them");
	ok(after(&limited, 1, 1, 1, 0, 1000000) == 1,
	   "one key costs more than may be used");
	ok(dt_batch_next(INT64_MAX, &unlimited, &unlimited, &fixed) == 20000,
	   "nothing overflows");

	size = settles_at(0, 1000, 0, &largest);
	ok(size == 100 && largest <= 101, "1 ms a key: 100 keys");
	size = settles_at(50 * MS, 100, 0, &largest);
	ok(size >= 1400 && size <= 1501, "50 ms for what does not depend on keys: four times as long in all: %d", (int) size);
	size = settles_at(150 * MS, 100, 0, &largest);
	ok(size >= 4400 && size <= 4501,
	   "more than may be taken for one key as well: %d", (int) size);
	size = settles_at(0, 5000000, 0, &largest);
	ok(size == 1 && largest <= 2, "keys that are dear themselves come one by one");
	size = settles_at(0, 1000 * MS, 60000 * MS, &largest);
	ok(size <= 2 && largest <= 4, "also if one of them was much dearer");

	ok(dt_batch_smaller(1000) == 500 && dt_batch_smaller(3) == 1 &&
	   dt_batch_smaller(1) == 1, "half as large when it was undone");
	ok(dt_batch_much_smaller(1000) == 125 && dt_batch_much_smaller(7) == 1,
	   "an eighth when it took too long");

	ok(dt_batch_cautious(20000, &limited, BLOCK) == 100000 / (4 * BLOCK),
	   "with a limit it begins with what may cost blocks");
	ok(dt_batch_cautious(2, &limited, BLOCK) == 2, "but with no more than before");
	ok(dt_batch_cautious(100, &unlimited, BLOCK) == 100,
	   "without a limit as large as before");

	/* 50 ms of 2 MB/s, 200 bytes a key */
	for (size = dt_batch_cautious(100, &limited, BLOCK); size < 250; n++)
		size = after(&limited, size, size, 1, 1, 200);
	ok(size == 250 && n == 7, "it comes to its size in %d batches: %d", n,
	   (int) size);
	return done_testing();
}
