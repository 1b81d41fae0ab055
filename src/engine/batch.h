/*-------------------------------------------------------------------------
 *
 * batch.h
 *		How many keys the next batch of a job has.
 *
 * Like all of the engine it does not depend on PostgreSQL.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BATCH_H
#define DT_BATCH_H

#include <stdint.h>

#include "engine/resource.h"

/* What a batch may take.  Of what is 0, as much as it wants. */
typedef struct DtBatchBounds
{
	int64_t		keys;			/* 1 or more */
	int64_t		us;
	int64_t		bytes[DT_RESOURCES];	/* without a pause in flight */
} DtBatchBounds;

/* What one has taken: so many keys, such a time, and so much. */
typedef DtBatchBounds DtBatchCost;

/*
 * One key took such a time, which is longer than a batch may take; and with so many
 * keys it was less than twice that.  keys = 0: it is not so, as far as known; as at the
 * beginning.
 */
typedef struct DtBatchLeast
{
	int64_t		keys;
	int64_t		us;
} DtBatchLeast;

/* The size after a batch of that size, which has succeeded. */
extern int64_t dt_batch_next(int64_t size, const DtBatchCost *cost,
							 const DtBatchBounds *bounds, DtBatchLeast *least);

/* The size after one that was undone. */
extern int64_t dt_batch_smaller(int64_t size);

/* The size while it is not known what a key costs; block: bytes of a block. */
extern int64_t dt_batch_cautious(int64_t size, const DtBatchBounds *bounds,
								 int64_t block);

#endif							/* DT_BATCH_H */
