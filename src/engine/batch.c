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
 *-------------------------------------------------------------------------
 */
#include "engine/batch.h"

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

int64_t
dt_batch_next(int64_t size, const DtBatchCost *cost,
			  const DtBatchBounds *bounds)
{
	int64_t		next = size > INT64_MAX / 2 ? INT64_MAX : 2 * size;

	next = bound(next, cost->keys, cost->us, bounds->us);
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
