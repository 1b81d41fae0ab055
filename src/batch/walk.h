/*-------------------------------------------------------------------------
 *
 * walk.h
 *		Looking ahead on the way along a key.
 *
 * All of this runs queries: with the active snapshot, in an SPI connection.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WALK_H
#define DT_WALK_H

#include "batch/key.h"

/*
 * How many keys are in the range, up to "wanted" and those equal to the last one
 * of these.  *last is set to the position of the last one if there are so many,
 * or else to NULL.
 */
extern int64 dt_walk_ahead(const DtKey *key, const DtRange *range,
						   int64 wanted, ArrayType **last);

/* The position of the last key of the range, or NULL if it is empty. */
extern ArrayType *dt_walk_to_end(const DtKey *key, const DtRange *range);

/* How many rows are in the range, up to "most"; how many the planner expects there. */
extern int64 dt_walk_count(const DtKey *key, const DtRange *range, int64 most);
extern double dt_walk_expect(const DtKey *key, const DtRange *range);

#endif							/* DT_WALK_H */
