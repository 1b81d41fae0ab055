/*-------------------------------------------------------------------------
 *
 * law.h
 *		The laws by which a limit follows a signal.
 *
 * law.c explains them.  Like the rate engine they do not depend on PostgreSQL,
 * and take no lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LAW_H
#define DT_LAW_H

#include <stdint.h>

#include "engine/drain.h"

#define DT_FREE			INT64_MAX

/* The state of a law for one group and signal; all zeros is a new one. */
typedef struct DtLaw
{
	int64_t		rate;			/* the last result; 0: free */
	int64_t		seen_at;		/* zones: the sample that it has seen */
	int64_t		hold_us;		/* brake: not to be raised for this time;
								 * latency: not to be changed */
	int64_t		unused_us;		/* these: for how long it was not used up */

	/* latency */
	int64_t		evidence;		/* thousandths; see latency.c */
	int64_t		windows;		/* since it was 0, and ... */
	int64_t		sum;			/* ... of their means, ns */
	int64_t		quiet_us;		/* time since the last step down */
	int64_t		knee;			/* the rate at which commits last took too
								 * long */
	int64_t		first;			/* the rate before steps down that have not
								 * helped yet; 0: none */
	int64_t		before;			/* ns, the mean before these */
	int64_t		answers;		/* of DtLatency that it knows */
} DtLaw;

extern int64_t dt_law_zones(DtLaw *law, const DtDrain *d, int64_t threshold,
							int64_t dt);
extern int64_t dt_law_budget(int64_t bytes_left, int64_t time_left);
extern int64_t dt_law_ramp(DtLaw *law, int64_t room, int64_t begin, int64_t us,
						   int64_t dt);
extern int64_t dt_law_brake(DtLaw *law, int64_t low, int64_t high,
							int64_t threshold, int64_t used, int64_t dt);

#endif							/* DT_LAW_H */
