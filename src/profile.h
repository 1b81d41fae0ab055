/*-------------------------------------------------------------------------
 *
 * profile.h
 *		Which rates a group has had: a histogram of its seconds.
 *
 * Like the meter it knows no PostgreSQL and takes no lock, the caller does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PROFILE_H
#define DT_PROFILE_H

#include <stdint.h>

/*
 * A bucket for less than 1 KiB/s, then 16 for each doubling, up to 256 GiB/s:
 * each is at most 6.25 % wide.
 */
#define DT_PROFILE_OCTAVES		28
#define DT_PROFILE_BUCKETS		(1 + 16 * DT_PROFILE_OCTAVES)

typedef struct DtProfile
{
	int64_t		second;			/* number of the second under way */
	int64_t		bytes;			/* used in it so far */
	int64_t		seconds;		/* earlier ones in which anything was used */
	int64_t		max;			/* the most of any of them, bytes */
	uint32_t	count[DT_PROFILE_BUCKETS];	/* how many of them, by bytes */
} DtProfile;

/* Start over at time "now" (us of a monotonic clock). */
extern void dt_profile_reset(DtProfile *p, int64_t now);

/* "bytes" were used just now. */
extern void dt_profile_add(DtProfile *p, int64_t bytes, int64_t now);

/*
 * The rate, in bytes/s, that a share of "quantile" (0 < quantile <= 1) of the
 * seconds with any use did not exceed, rounded up to the end of its bucket but
 * never beyond the maximum.  0 when there was no such second.
 */
extern int64_t dt_profile_quantile(DtProfile *p, double quantile, int64_t now);

#endif							/* DT_PROFILE_H */
