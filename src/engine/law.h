/*-------------------------------------------------------------------------
 *
 * law.h
 *		The laws by which a limit follows a signal.
 *
 * Each takes a reading and tells how fast all those together that it limits
 * may go, in bytes/s; DT_FREE: as fast as they can.  law.c explains them.
 * Like the rate engine they do not depend on PostgreSQL, and take no lock.
 * "dt" is the time, in us, since the law was asked before.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LAW_H
#define DT_LAW_H

#include <stdint.h>

#include "engine/drain.h"

#define DT_FREE			INT64_MAX

/* The state of a law for one group and signal; all zeros is a new one. */
typedef struct DtLaw
{
	int64_t		rate;			/* the last result; 0: free */
	int64_t		hold_us;		/* brake: not to be raised for this time */
	int64_t		unused_us;		/* brake: for how long it was not used up */
} DtLaw;

/*
 * Zones, for what drains at a speed of its own: keeps the backlog at two
 * thirds of "threshold" bytes.  The reading is "late" us old.  What others
 * write is part of the result.
 */
extern int64_t dt_law_zones(DtLaw *law, const DtDrain *d, int64_t threshold,
							int64_t late, int64_t dt);

/*
 * Budget, for what has a date: so many bytes may be written until then, in
 * that many us.  What others write is part of the result.
 */
extern int64_t dt_law_budget(int64_t bytes_left, int64_t time_left);

/*
 * Brake, where only more or less is known.  "low" and "high" are two readings
 * of the same: it slows down when both exceed the threshold, and goes faster
 * when both are below.  "used" is how fast those that it limits go.
 */
extern int64_t dt_law_brake(DtLaw *law, int64_t low, int64_t high,
							int64_t threshold, int64_t used, int64_t dt);

#endif							/* DT_LAW_H */
