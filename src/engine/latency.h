/*-------------------------------------------------------------------------
 *
 * latency.h
 *		What is known of how long commits of others take.
 *
 * Others are those who are not limited by this.  There is one DtLatency for all
 * groups, since all that are limited must rest together for it to be known how
 * long a commit takes without them.  latency.c explains it; the law that is made
 * of it is in evidence.c.
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

/*
 * Samples of the base, and commits that a window has at least.  In latency_sim half of
 * each holds, and twice fails.
 */
#define DT_LATENCY_SAMPLES	8
#define DT_LATENCY_ENOUGH	16

/* What one session has committed within a window. */
typedef struct DtCommits
{
	int64_t		n;
	int64_t		us;				/* that these took */
} DtCommits;

/* All zeros is one of which nothing is known.  All but the last part belongs to
 * latency.c. */
typedef struct DtLatency
{
	int64_t		read_at;		/* time of the last reading; 0: none */
	int64_t		elapsed;		/* us, between the last two */
	int64_t		counted;		/* commits of the window, in the last one */
	int64_t		hung_us;		/* for how long fewer have ended than wait,
								 * ... */
	int64_t		hung_n;			/* ... and how many have in that time */

	/* those who are limited */
	int64_t		used;			/* by them, bytes/s, */
	int64_t		peak;			/* its highest in the last half minute, */
	bool		rests;			/* and it is next to nothing, or was ... */
	int64_t		rested_at;		/* ... at this time, the last */

	/* the window that is open, and the last one that was closed */
	int64_t		opened_at;
	bool		all_rest;		/* rests, since then */
	bool		is_new;			/* closed by the last reading */
	int64_t		n;
	int64_t		mean;			/* ns */
	int64_t		recent;			/* ns, of about the last five; 0: nobody
								 * commits */

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

	/* windows that tell that it is less */
	int64_t		low_n;			/* far below, in a row */
	int64_t		low_sum;		/* ns */

	/* a probe, in which all are to rest */
	int64_t		probe_us;		/* for how long it lasts; 0: there is none */
	DtCommits	carried;		/* of earlier ones in which there were too few */
	int64_t		probe_mean;		/* ns, of the commits before */
	bool		probe_failed;	/* somebody does not rest */
	int64_t		probe_cost;		/* used before, bytes/s */
	int64_t		budget;			/* us, for how long one may last */
	int64_t		probes;			/* counts those that are over */
	int64_t		found;			/* ns, by the last one; 0: nothing */

	/* set by the laws: they want ... */
	bool		wants_sample;	/* to know the base better */
	bool		wants_answer;	/* to know at once what helps */
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

extern DtCommits dt_latency_commits(const DtCommits *sessions, int n);
extern bool dt_latency_read(DtLatency *l, const DtLatencyReading *r);
extern int64_t dt_latency_base(const DtLatency *l);
extern void dt_latency_believe(DtLatency *l, int64_t mean);

#endif							/* DT_LATENCY_H */
