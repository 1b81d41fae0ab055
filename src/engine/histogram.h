/*-------------------------------------------------------------------------
 *
 * histogram.h
 *		A histogram of the rates that a group has had, by second.
 *
 * Like the rate engine it does not depend on PostgreSQL, and takes no lock;
 * the caller holds one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HISTOGRAM_H
#define DT_HISTOGRAM_H

#include <stdint.h>

/*
 * A bucket for less than 1 KiB/s, then 16 for each doubling, up to 256 GiB/s:
 * each is at most 6.25 % wide.
 */
#define DT_HISTOGRAM_OCTAVES		28
#define DT_HISTOGRAM_BUCKETS		(1 + 16 * DT_HISTOGRAM_OCTAVES)

typedef struct DtHistogram
{
	int64_t		second;			/* number of the current second */
	int64_t		bytes;			/* used in it so far */
	int64_t		seconds;		/* earlier ones in which anything was used */
	int64_t		max;			/* the most used in one of these, bytes */
	uint32_t	count[DT_HISTOGRAM_BUCKETS];	/* these seconds, by bytes */
} DtHistogram;

/* Start over at time "now" (us of a monotonic clock). */
extern void dt_histogram_reset(DtHistogram *p, int64_t now);

/* "bytes" were used just now. */
extern void dt_histogram_add(DtHistogram *p, int64_t bytes, int64_t now);

/*
 * The rate, in bytes/s, that a share of "quantile" (0 < quantile <= 1) of the
 * seconds in which anything was used did not exceed.  It is rounded up to the
 * end of its bucket, but not beyond the maximum.  0 when there was no such
 * second.  If the current second is over at time "now", it is counted, too.
 */
extern int64_t dt_histogram_quantile(DtHistogram *p, double quantile,
									 int64_t now);

#endif							/* DT_HISTOGRAM_H */
