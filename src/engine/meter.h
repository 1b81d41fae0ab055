/*-------------------------------------------------------------------------
 *
 * meter.h
 *		How fast something was used over the last seconds.
 *
 * A ring of time buckets.  Like the rate engine it does not depend on
 * PostgreSQL, and takes no lock; the caller holds one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_METER_H
#define DT_METER_H

#include <stdint.h>

#define DT_METER_BUCKETS		11
#define DT_METER_BUCKET_US		INT64_C(500000)

typedef struct DtMeter
{
	int64_t		started;		/* time of the reset, us */
	int64_t		newest;			/* number of the newest bucket */
	int64_t		bytes[DT_METER_BUCKETS];	/* by bucket number, modulo */
} DtMeter;

/* Start over at time "now" (us of a monotonic clock). */
extern void dt_meter_reset(DtMeter *m, int64_t now);

/* "bytes" were used just now. */
extern void dt_meter_add(DtMeter *m, int64_t bytes, int64_t now);

/*
 * Bytes per second over the last 5 to 5.5 seconds, or over the time since the
 * reset when that is shorter (but not shorter than half a second).
 */
extern double dt_meter_rate(DtMeter *m, int64_t now);

#endif							/* DT_METER_H */
