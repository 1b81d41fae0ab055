/*-------------------------------------------------------------------------
 *
 * latency.h
 *		What is known of how long commits of others take.
 *
 * Others are the sessions that are not limited by this.  There is one DtLatency for
 * all groups, since all that are limited must rest together for it to be known how
 * long a commit takes without them.  latency.c explains it; the law that is made of
 * it is the droop of law.c.
 *
 * Like the rate engine this does not depend on PostgreSQL, and takes no lock.
 * Units: bytes/s, and us of a monotonic clock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LATENCY_H
#define DT_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/law.h"

/*
 * A histogram of times: four buckets an octave, from 16 us to 16 s.  With two, p90 is
 * not known well enough where all commits take about the same time.
 */
#define DT_LATENCY_BUCKETS	80
#define DT_LATENCY_BITS		2	/* of an octave's buckets */
#define DT_LATENCY_FIRST	4	/* the first octave begins at 2 to that, us */

/* Samples of the base. */
#define DT_LATENCY_SAMPLES	16

/* With fewer commits in a window there is nobody to protect. */
#define DT_LATENCY_ENOUGH	16

/* The bucket of a time, us. */
static inline int
dt_latency_bucket(int64_t us)
{
	int			octave;

	if (us < INT64_C(1) << DT_LATENCY_FIRST)
		return 0;
	octave = 63 - __builtin_clzll((unsigned long long) us);
	if (octave >= DT_LATENCY_FIRST + (DT_LATENCY_BUCKETS >> DT_LATENCY_BITS))
		return DT_LATENCY_BUCKETS - 1;
	return ((octave - DT_LATENCY_FIRST) << DT_LATENCY_BITS) +
		(int) (us >> (octave - DT_LATENCY_BITS)) - (1 << DT_LATENCY_BITS);
}

/* What one session has committed, by time.  The counters wrap around. */
typedef struct DtSessionCommits
{
	uint16_t	n[DT_LATENCY_BUCKETS];
} DtSessionCommits;

/* What all have committed. */
typedef struct DtCommits
{
	int64_t		n;				/* commits, ... */
	int64_t		weight[DT_LATENCY_BUCKETS]; /* ... and what they count for,
											 * thousandths of a commit */
} DtCommits;

/* All zeros is one of which nothing is known.  All but the last part belongs to
 * latency.c. */
typedef struct DtLatency
{
	int64_t		read_at;		/* time of the last reading; 0: none */
	int64_t		elapsed;		/* us, between the last two */
	int64_t		counted;		/* commits of the window, in the last one */
	int64_t		hung_n;			/* that have ended since fewer do than wait,
								 * ... */
	bool		hangs;			/* ... as at present */

	/* those who are limited */
	int64_t		used;			/* by them, bytes/s, and ... */
	int64_t		peak;			/* ... its highest in the last half minute */
	bool		rests;			/* they use next to nothing */

	/* the window that is open, and the last one that was closed */
	int64_t		opened_at;
	int64_t		settle_us;		/* for this time no window is opened */
	bool		all_rest;		/* since it was opened */
	bool		is_new;			/* closed by the last reading */
	int64_t		window_us;		/* its length, */
	int64_t		n;				/* its commits, */
	int64_t		p90;			/* and how long nine of ten took at most, us;
								 * 0: nobody commits */

	/* what p90 is while those who are limited rest, us */
	int64_t		sample[DT_LATENCY_SAMPLES]; /* the last ones */
	int			n_samples;
	int			next_sample;
	int64_t		sampled_at;		/* time of the last one, or the last probe */
	int			n_low;			/* windows in a row that are far below the
								 * base */
	int			n_off;			/* samples in a row that are far above the
								 * base, or, negative, below */

	/* a probe, in which all are to rest */
	int64_t		probe_us;		/* for how long it lasts; 0: there is none */
	DtCommits	rested;			/* what was committed in probes, too few so
								 * far */
	int64_t		probe_cost;		/* used before, bytes/s */
	int64_t		budget;			/* us, for how long one may last */

	/* set by the laws */
	bool		wants_sample;	/* the threshold follows from the base */
} DtLatency;

/* A reading. */
typedef struct DtLatencyReading
{
	DtCommits	commits;		/* in the window that is open */
	int64_t		waiting;		/* commits that have begun and not ended */
	int64_t		used;			/* how fast all go that are limited, bytes/s:
								 * a mean of the last second, and ... */
	int64_t		used_now;		/* ... since the last reading */
	int64_t		rest;			/* what remains of that in a probe */
	int64_t		now;
} DtLatencyReading;

extern DtCommits dt_latency_commits(const DtSessionCommits *sessions, int n);
extern int64_t dt_latency_p90(const DtCommits *commits);
extern bool dt_latency_read(DtLatency *l, const DtLatencyReading *r);
extern int64_t dt_latency_base(const DtLatency *l);
extern int64_t dt_latency_allowed(const DtLatency *l, int64_t us, int64_t share);
extern int64_t dt_latency_law(DtDroop *d, DtLatency *l, int64_t us, int64_t share,
							  bool obeyed);

#endif							/* DT_LATENCY_H */
