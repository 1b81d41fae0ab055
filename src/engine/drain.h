/*-------------------------------------------------------------------------
 *
 * drain.h
 *		A queue, and how fast it drains.
 *
 * One DtDrain for each queue: a standby, a slot, the archive, dirty memory.
 * Like the rate engine it does not depend on PostgreSQL, and takes no lock.
 * Time is in microseconds of a monotonic clock; positions are counters of
 * bytes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DRAIN_H
#define DT_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/arith.h"
#include "engine/rate.h"
#include "engine/signal.h"

/* The longest lag that is reported, which is as good as for ever. */
#define DT_LAG_MAX_US	INT64_C(3600000000)

/*
 * All fields belong to drain.c; readers use the functions.  All zeros is a
 * queue of which nothing is known.
 */
typedef struct DtDrain
{
	int64_t		seen_at;		/* time of the last sample; 0: none yet */
	int64_t		written;		/* positions at that time */
	int64_t		drained;
	int64_t		stands_us;		/* for how long that has stood with a backlog,
								 * and ... */
	int64_t		step_us;		/* ... before it last moved */
	int64_t		speed;			/* bytes/s, a mean; that of a level may be
								 * negative, as others write into it, too */
	int64_t		begun_us;		/* since the backlog has begun, and ... */
	int64_t		begun_bytes;	/* ... what has drained since then */
	int64_t		queued_us;		/* for how long there was a backlog, up to the
								 * window of the mean; 0: the speed is not
								 * known */
} DtDrain;

/* That many bytes in that time, in bytes/s, at most DT_RATE_MAX. */
static inline int64_t
dt_speed(int64_t bytes, int64_t us)
{
	return min64(muldiv64(bytes, 1000000, max64(us, 1)), DT_RATE_MAX);
}

/* Was there ever a backlog, so that its speed is known? */
static inline bool
dt_drain_knows(const DtDrain *d)
{
	return d->queued_us > 0;
}

/* How fast it drains, bytes/s; 0 also as long as that is not known. */
static inline int64_t
dt_drain_speed(const DtDrain *d)
{
	return max64(d->speed, 0);
}

extern void dt_drain_sample(DtDrain *d, int64_t written, int64_t drained,
							int64_t now);
extern void dt_drain_sample_level(DtDrain *d, int64_t written, int64_t level,
								  int64_t now);
extern void dt_drain_assume(DtDrain *d, int64_t now);
extern int64_t dt_drain_backlog(const DtDrain *d);
extern int64_t dt_drain_lag_us(const DtDrain *d);
extern const DtDrain *dt_drain_worst(const DtDrain *const *drains, int n,
									 int ignore, int64_t now);

#endif							/* DT_DRAIN_H */
