/*-------------------------------------------------------------------------
 *
 * latency.h
 *		How long commits of others take, and the law by which a limit follows
 *		that.
 *
 * Others are those who are not limited by this.  DtLatency is what is known of
 * their commits; there is one for all groups, since all that are limited must
 * rest together for it to be known how long a commit takes without them.
 * latency.c explains the law.
 *
 * Like the rate engine this does not depend on PostgreSQL, and takes no lock.
 * Units: bytes/s, us of a monotonic clock, and ns for how long a commit takes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LATENCY_H
#define DT_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/law.h"

#define DT_LATENCY_SAMPLES	8

/* All zeros is one of which nothing is known.  All belongs to latency.c. */
typedef struct DtLatency
{
	int64_t		commits;		/* the counters when they were last read, */
	int64_t		sum;			/* us, */
	int64_t		read_at;		/* and the time; 0: not yet */
	int64_t		elapsed;		/* us, between the last two readings */
	int64_t		hung_us;		/* for how long fewer have ended than wait,
								 * ... */
	int64_t		hung_n;			/* ... and how many have in that time */
	int64_t		used;			/* by those who are limited, bytes/s, */
	int64_t		peak;			/* its highest in the last minute or so, */
	bool		rests;			/* and it is next to nothing, or was ... */
	int64_t		rested_at;		/* ... at this time, the last */

	/* the window that is open, and the last one that was closed */
	int64_t		open_n;			/* commits */
	int64_t		open_sum;		/* us */
	int64_t		closed_at;
	bool		is_new;			/* closed by the last reading */
	int64_t		n;
	int64_t		mean;			/* ns */
	int64_t		recent;			/* ns, of about the last five */

	/* how much the means of several windows in a row vary */
	int64_t		batch_n;		/* windows */
	int64_t		batch_sum;		/* ns */
	int64_t		batch_mean;		/* ns, of the batch before */
	int64_t		noise;			/* thousandths */

	/* samples of what it is while those who are limited rest */
	int64_t		sample[DT_LATENCY_SAMPLES]; /* ns, the last ones */
	int			n_samples;
	int			next_sample;
	int64_t		sampled_at;		/* time of the last one */
	int64_t		high;			/* ns, the last one, if far above the others */
	int64_t		idle_n;			/* commits while nothing is used */
	int64_t		idle_sum;		/* us */

	/* windows that tell that it is less */
	int64_t		low_n;			/* far below, in a row */
	int64_t		low_sum;		/* ns */

	/* a probe, in which all are to rest */
	int64_t		probe_us;		/* for how long it lasts; 0: there is none */
	int64_t		probe_n;		/* commits, also of earlier ones in which
								 * there were too few */
	int64_t		probe_sum;		/* us */
	int64_t		probe_mean;		/* ns, of before these */
	bool		probe_failed;	/* somebody does not rest */
	int64_t		probe_cost;		/* used before, bytes/s */
	int64_t		question;		/* ns: does it help to get below? 0: none */
	int64_t		denied_at;		/* time of the last answer that it does not;
								 * 0: the last one was another */
	int64_t		budget;			/* us, for how long one may last */

	/* what the laws want it to do, and were told */
	bool		wanted;			/* samples */
	int64_t		doubt;			/* ns, the question; 0: none */
	int64_t		answers;		/* counts those to a question */
	bool		helped;			/* the last one */
} DtLatency;

/* A reading.  The first two are counters. */
typedef struct DtLatencyReading
{
	int64_t		commits;
	int64_t		us;				/* that these took */
	int64_t		waiting;		/* commits that have begun and not ended */
	int64_t		used;			/* how fast all go that are limited, bytes/s:
								 * a mean of the last second, and ... */
	int64_t		used_now;		/* ... since the last reading */
	int64_t		rest;			/* what remains of that in a probe */
	int64_t		now;
} DtLatencyReading;

extern void dt_latency_read(DtLatency *l, const DtLatencyReading *r);

/* How long a commit takes without those who are limited; 0: not known. */
extern int64_t dt_latency_base(const DtLatency *l);

/*
 * After a reading: how fast may all those go together whom it limits?  The
 * threshold is a time in ns or, if "share" is not 0, so many millionths longer
 * than without them.  "obeyed": what it says is done.
 */
extern int64_t dt_law_latency(DtLaw *law, DtLatency *l,
							  int64_t threshold, int64_t share, bool obeyed);

/* The threshold that counts, ns; 0: not known yet. */
extern int64_t dt_latency_threshold(const DtLatency *l, int64_t threshold,
									int64_t share);

#endif							/* DT_LATENCY_H */
