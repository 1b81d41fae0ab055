/*-------------------------------------------------------------------------
 *
 * batch.c
 *		How many keys the next batch of a job has.
 *
 * A batch is to take so long at most, and to use no more than its group earns
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
 * Part of a batch's time does not depend on its keys: to lock and plan a table of
 * many partitions takes long for one row, too.  Where that part alone takes longer
 * than a batch may, fewer keys would not help, and many batches of one key each would
 * take for ever.  So from one key on the size doubles as long as a batch takes less
 * than twice as long as with that one; then it stays.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/batch.h"

#include <stdbool.h>

#include "engine/arith.h"

/* A key may cost so many blocks: old and new row, and some indexes. */
#define DEAR_KEY_BLOCKS		4

/* At most so many keys that "used" becomes "allowed", if that is not 0. */
static int64_t
bound(int64_t size, int64_t keys, int64_t used, int64_t allowed)
{
	if (allowed <= 0 || used <= 0)
		return size;
	return min64(size, muldiv64(keys, allowed, used));
}

/* So many that they take no longer than they may; but see above. */
static int64_t
bound_time(int64_t size, const DtBatchCost *cost, int64_t us, DtBatchLeast *least)
{
	int64_t		fitting = bound(size, cost->keys, cost->us, us);
	bool		is_known = least->keys > 0;

	/* one more, or one key would stay one key */
	if (cost->us < us)
		fitting = min64(size, max64(fitting, cost->keys + 1));
	if (us <= 0 || cost->us <= us ||
		(is_known ? cost->us / 3 > least->us : cost->keys > 1))
	{
		least->keys = 0;
		return fitting;
	}

	/*
	 * more keys cannot take less, so the one that was measured was an
	 * exception
	 */
	least->us = is_known ? min64(least->us, cost->us) : cost->us;
	if (is_known &&
		(cost->keys / 2 < least->keys || cost->us / 2 >= least->us))
		return min64(size, least->keys);
	least->keys = cost->keys;
	return size;
}

int64_t
dt_batch_next(int64_t size, const DtBatchCost *cost,
			  const DtBatchBounds *bounds, DtBatchLeast *least)
{
	int64_t		next = size > INT64_MAX / 2 ? INT64_MAX : 2 * size;

	next = bound_time(next, cost, bounds->us, least);
	for (int r = 0; r < DT_RESOURCES; r++)
		next = bound(next, cost->keys, cost->bytes[r],
					 (bounds->bytes[r] + 1) / 2);
	return clamp64(next, 1, bounds->keys);
}

int64_t
dt_batch_smaller(int64_t size)
{
	return max64(size / 2, 1);
}

int64_t
dt_batch_cautious(int64_t size, const DtBatchBounds *bounds, int64_t block)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		size = bound(size, 1, DEAR_KEY_BLOCKS * block, bounds->bytes[r]);
	return clamp64(size, 1, bounds->keys);
}
