/*-------------------------------------------------------------------------
 *
 * law.h
 *		The laws by which a limit follows a signal: room, the brake, and the droop.
 *
 * law.c explains them.  Like the rate engine they do not depend on PostgreSQL, and
 * take no lock.  Rates are in bytes/s, and 0 is no limit.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LAW_H
#define DT_LAW_H

#include <stdint.h>

#include "engine/rate.h"

/* What the law of room is about. */
typedef struct DtRoom
{
	int64_t		bytes;			/* that there is room for */
	int64_t		drain;			/* bytes/s that drain all the time */
	int64_t		horizon;		/* us in which the room may be used up */
	int64_t		begin;			/* with this much room there is no limit */
} DtRoom;

/* The state of a brake; all zeros is a new one. */
typedef struct DtBrake
{
	int64_t		rate;			/* the last result */
	int64_t		seen_at;		/* time of the last value; 0: none */
	int64_t		used;			/* bytes since then, ... */
	int64_t		used_us;		/* ... in this time; the caller adds up both */
	int64_t		least;			/* the rate is no lower; set by the caller */
	int64_t		unused_us;		/* for how long it was not used up */
} DtBrake;

/* The state of a droop; all zeros is a new one. */
typedef struct DtDroop
{
	int64_t		rate;			/* the last result; 0: none */
	int64_t		knee;			/* the rate that leaves the value at the
								 * threshold; 0: nobody has begun */
	int64_t		least;			/* it is no lower; set by the caller */
	int64_t		found;			/* it was found at this threshold; 0: it was
								 * not */
	int64_t		above_us;		/* for how long the value has been above */
} DtDroop;

/* How long somebody waits; all zeros is one of which nothing is known. */
typedef struct DtStall
{
	int64_t		seen_at;		/* time of the last sample; 0: none */
	int64_t		counter;		/* us of waiting, at that time */
	int64_t		watched_us;		/* up to the window of the mean */
	int64_t		mean;			/* part of the time, in 1e-6 */
} DtStall;

/* Results of laws are less, so that sums of a few do not overflow. */
#define DT_LAW_MAX		(8 * DT_RATE_MAX)

/* Below that the brake lets those whom it limits go faster again. */
static inline int64_t
dt_brake_enough(int64_t threshold)
{
	return threshold - threshold / 10;
}

extern int64_t dt_law_room(int64_t before, const DtRoom *room, int64_t used);
extern int64_t dt_law_brake(DtBrake *b, int64_t value, int64_t threshold,
							int64_t used, int64_t now);
extern int64_t dt_law_droop(DtDroop *d, int64_t value, int64_t threshold,
							int64_t used, int64_t dt);
extern int64_t dt_stall_sample(DtStall *s, int64_t counter, int64_t now);

#endif							/* DT_LAW_H */
