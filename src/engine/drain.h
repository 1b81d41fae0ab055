/*-------------------------------------------------------------------------
 *
 * drain.h
 *		How fast something drains that has a speed of its own.
 *
 * A standby replays WAL at some speed, its capacity.  As long as it keeps up,
 * the speed at which it replays is only that at which WAL arrives; so the
 * capacity is learned while there is a queue.
 *
 * One DtDrain for each queue, here for each standby.  Like the rate engine it
 * does not depend on PostgreSQL, and takes no lock.  Time is in microseconds
 * of a monotonic clock; positions are counters of bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DRAIN_H
#define DT_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/arith.h"
#include "engine/rate.h"

/*
 * A value of this age is stale.  It still counts for another while, and then
 * as if there were nothing.
 */
#define DT_STALE_US				INT64_C(10000000)
#define DT_STALE_COUNTS_US		INT64_C(30000000)

/*
 * All fields belong to drain.c; readers use the functions.  All zeros is a
 * queue of which nothing is known.
 */
typedef struct DtDrain
{
	int64_t		seen_at;		/* time of the last sample; 0: none yet */
	int64_t		written;		/* positions at that time */
	int64_t		drained;
	int64_t		arrival;		/* bytes/s, mean of the last second or so */
	int64_t		speed;			/* the same of what drained; of a level, which
								 * is noisy, the capacity */
	int64_t		growing_us;		/* for how long more arrives than drains */
	int64_t		watched_us;		/* for how long, up to the window */
	int64_t		capacity;		/* bytes/s; 0: not known, or it stands still */
	int64_t		proven;			/* what it was when there was a queue */
	int64_t		age;			/* us, the highest of the backlog since then */
	int64_t		learned_us;		/* for how long it was learned, up to the
								 * longest window; 0: never */
} DtDrain;

/* That many bytes in that time, in bytes/s, at most DT_RATE_MAX. */
static inline int64_t
dt_speed(int64_t bytes, int64_t us)
{
	return min64(muldiv64(bytes, 1000000, max64(us, 1)), DT_RATE_MAX);
}

/*
 * A fresh sample: so much has been written, and so much of that has drained
 * (drained <= written).  When there is nothing fresh, do not call it: an old
 * position would pass for a drain that stands still, and how old the last
 * sample is decides whether this queue still counts.
 */
extern void dt_drain_sample(DtDrain *d, int64_t written, int64_t drained,
							int64_t now);

/*
 * The same where all that is known is how much has not drained yet: here and
 * now, so that it is a queue for sure.
 */
extern void dt_drain_sample_level(DtDrain *d, int64_t written, int64_t level,
								  int64_t now);

/* Was there ever a queue that tells the capacity? */
static inline bool
dt_drain_knows(const DtDrain *d)
{
	return d->learned_us > 0;
}

/*
 * Instead of a sample, when nothing was written since the last one, so that
 * nothing new may be heard for long: the backlog is assumed to have drained at
 * the capacity that is known.
 */
extern void dt_drain_assume(DtDrain *d, int64_t now);

/* Bytes that have not drained yet. */
extern int64_t dt_drain_backlog(const DtDrain *d);

/*
 * The time, in us, that it takes to drain the backlog, at most an hour; 0 as
 * long as there was no queue that tells the capacity.
 */
extern int64_t dt_drain_lag_us(const DtDrain *d);

/*
 * Of n queues, the one that lags most, without the "ignore" worst ones; NULL
 * if there is none.  Queues without a sample, or whose last one is too old to
 * count, count as none.
 */
extern const DtDrain *dt_drain_worst(const DtDrain *const *drains, int n,
									 int ignore, int64_t now);

#endif							/* DT_DRAIN_H */
