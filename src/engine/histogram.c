/*-------------------------------------------------------------------------
 *
 * histogram.c
 *		A histogram of the rates that a group has had, by second.
 *
 * Seconds in which nothing was used are not counted, so that the quantiles
 * describe the work and not the idle time.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/histogram.h"

#include <string.h>

#define SECOND_US		INT64_C(1000000)
#define FIRST_OCTAVE	10		/* of the second bucket: 2^10 bytes */

/* The number of the bucket for an amount of bytes >= 0. */
static int
bucket_of(int64_t bytes)
{
	int			octave = 0;
	int			bucket;

	while (bytes >> octave > 1)
		octave++;
	if (octave < FIRST_OCTAVE)
		return 0;
	/* the four bits below the highest one */
	bucket = 1 + (octave - FIRST_OCTAVE) * 16 +
		(int) ((bytes >> (octave - 4)) & 15);
	return bucket < DT_HISTOGRAM_BUCKETS ? bucket : DT_HISTOGRAM_BUCKETS - 1;
}

/* The smallest amount that is too large for a bucket. */
static int64_t
bucket_end(int bucket)
{
	int			octave = FIRST_OCTAVE + (bucket - 1) / 16;

	if (bucket == 0)
		return INT64_C(1) << FIRST_OCTAVE;
	return ((INT64_C(17) + (bucket - 1) % 16) << octave) >> 4;
}

/*
 * If the current second is over, count it.  Callers read the clock before they
 * take the lock, so "now" may be a little in the past.
 */
static void
finish_second(DtHistogram *p, int64_t now)
{
	if (now / SECOND_US <= p->second)
		return;
	if (p->bytes > 0)
	{
		p->count[bucket_of(p->bytes)]++;
		p->seconds++;
		if (p->bytes > p->max)
			p->max = p->bytes;
	}
	p->bytes = 0;
	p->second = now / SECOND_US;
}

void
dt_histogram_reset(DtHistogram *p, int64_t now)
{
	memset(p, 0, sizeof(*p));
	p->second = now / SECOND_US;
}

void
dt_histogram_add(DtHistogram *p, int64_t bytes, int64_t now)
{
	finish_second(p, now);
	p->bytes += bytes;
}

int64_t
dt_histogram_quantile(DtHistogram *p, double quantile, int64_t now)
{
	int64_t		wanted;
	int64_t		seen = 0;
	int			bucket;

	finish_second(p, now);
	wanted = (int64_t) (quantile * p->seconds);
	if (wanted < quantile * p->seconds)
		wanted++;
	for (bucket = 0; bucket < DT_HISTOGRAM_BUCKETS; bucket++)
	{
		seen += p->count[bucket];
		if (seen > 0 && seen >= wanted)
			break;
	}
	if (bucket == DT_HISTOGRAM_BUCKETS || bucket_end(bucket) > p->max)
		return p->max;
	return bucket_end(bucket);
}
