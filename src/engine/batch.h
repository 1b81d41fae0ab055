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

#include <stdbool.h>
#include <stdint.h>

#include "engine/resource.h"

/* What a batch may take.  Of what is 0, as much as it wants. */
typedef struct DtBatchBounds
{
	int64_t		keys;			/* 1 or more */
	int64_t		us;
	int64_t		bytes[DT_RESOURCES];	/* without a pause in flight */
} DtBatchBounds;

/* What one has taken: keys, time, and bytes. */
typedef DtBatchBounds DtBatchCost;

/*
 * The part of a batch's time that does not depend on its keys, as far as known; zeroed
 * at the beginning.
 */
typedef struct DtBatchFixed
{
	int64_t		us;				/* that part; and the quickest batch so far: */
	int64_t		least_keys;
	int64_t		least_us;
	bool		tried_two;		/* keys, where one took too long */
} DtBatchFixed;

/* The size after a batch of that size, which has succeeded. */
extern int64_t dt_batch_next(int64_t size, const DtBatchCost *cost,
							 const DtBatchBounds *bounds, DtBatchFixed *fixed);

/* The size after one that was undone, as others hold locks, or as it took too long. */
extern int64_t dt_batch_smaller(int64_t size);
extern int64_t dt_batch_much_smaller(int64_t size);

/* How long may a batch take, before its bytes are looked at? */
extern int64_t dt_batch_allowed_us(const DtBatchBounds *bounds,
								   const DtBatchFixed *fixed);

/* The size while it is not known what a key costs; block: bytes of a block. */
extern int64_t dt_batch_cautious(int64_t size, const DtBatchBounds *bounds,
								 int64_t block);

#endif							/* DT_BATCH_H */
