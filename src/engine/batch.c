/*-------------------------------------------------------------------------
 *
 * batch.c
 *		How many keys the next batch of a job has.
 *
 * A batch is to take at most batch_time, and to use no more than its group earns
 * while a transaction need not pause in flight.  What the next one costs is
 * taken to be what the last one did, for each key.  That varies, so a batch
 * aims at half of what it may use: twice as much as was expected is paid after
 * its COMMIT still.
 *
 * It varies most when a checkpoint begins.  The first change of each block
 * after that writes all of it to the WAL, and the block is clean again soon: a
 * key that has cost 200 bytes then costs several blocks.  So a batch is small
 * then, if there is a limit, and the size grows anew.
 *
 * It at most doubles from one batch to the next.
 *
 * Part of a batch's time does not depend on its keys: to plan a table of many
 * partitions, or to read another table whole, takes as long for one row.  Small batches
 * would do little else.  How large that part is, is known from two batches, of which one
 * has twice as many keys as the quickest one.  A batch may take four times as long
 * as that, and then use more than usual in proportion.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/batch.h"

#include "engine/arith.h"

/* A key may cost this many blocks: old and new row, and some indexes. */
#define DEAR_KEY_BLOCKS		4

/* The most keys with which "used" becomes "allowed", if that is not 0. */
static int64_t
bound(int64_t size, int64_t keys, int64_t used, int64_t allowed)
{
	if (allowed <= 0 || used <= 0)
		return size;
	return min64(size, muldiv64(keys, allowed, used));
}

/* Learn from a batch. */
static void
note(DtBatchFixed *fixed, const DtBatchCost *cost)
{
	if (fixed->least_keys > 0 && cost->keys / 2 >= fixed->least_keys)
	{
		int64_t		keys_us = max64(cost->us - fixed->least_us, 0);

		fixed->us = max64(fixed->least_us -
						  muldiv64(fixed->least_keys, keys_us, cost->keys - fixed->least_keys), 0);
	}
	if (fixed->least_keys == 0 || cost->us < fixed->least_us)
	{
		fixed->least_keys = cost->keys;
		fixed->least_us = cost->us;
	}
	fixed->us = min64(fixed->us, cost->us);
}

int64_t
dt_batch_allowed_us(const DtBatchBounds *bounds, const DtBatchFixed *fixed)
{
	return max64(bounds->us, min64(fixed->us, INT64_MAX / 4) * 4);
}

/* As many as take no longer than they may; but see above. */
static int64_t
bound_time(int64_t size, const DtBatchCost *cost, int64_t us, DtBatchFixed *fixed)
{
	int64_t		fitting = bound(size, cost->keys, cost->us - fixed->us, us - fixed->us);

	/* one more, or one key would stay one key */
	if (cost->us < us)
		fitting = min64(size, max64(fitting, cost->keys + 1));
	else if (cost->keys == 1 && !fixed->tried_two)
	{
		fixed->tried_two = true;
		fitting = 2;
	}
	return fitting;
}

int64_t
dt_batch_next(int64_t size, const DtBatchCost *cost,
			  const DtBatchBounds *bounds, DtBatchFixed *fixed)
{
	int64_t		next = size > INT64_MAX / 2 ? INT64_MAX : 2 * size;
	int64_t		us;

	note(fixed, cost);
	us = dt_batch_allowed_us(bounds, fixed);
	if (bounds->us > 0)
		next = bound_time(next, cost, us, fixed);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64_t		bytes = (bounds->bytes[r] + 1) / 2;

		if (bounds->us > 0)
			bytes = muldiv64(bytes, us, bounds->us);
		next = bound(next, cost->keys, cost->bytes[r], bytes);
	}
	return clamp64(next, 1, bounds->keys);
}

int64_t
dt_batch_smaller(int64_t size)
{
	return max64(size / 2, 1);
}

int64_t
dt_batch_much_smaller(int64_t size)
{
	return max64(size / 8, 1);
}

int64_t
dt_batch_cautious(int64_t size, const DtBatchBounds *bounds, int64_t block)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		size = bound(size, 1, DEAR_KEY_BLOCKS * block, bounds->bytes[r]);
	return clamp64(size, 1, bounds->keys);
}
