/*-------------------------------------------------------------------------
 *
 * evidence.h
 *		The law by which a limit follows how long commits of others take.
 *
 * evidence.c explains it.  Like the rate engine it does not depend on
 * PostgreSQL, and takes no lock.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_EVIDENCE_H
#define DT_EVIDENCE_H

#include "engine/latency.h"

/* The state of the law at one threshold; all zeros is a new one. */
typedef struct DtEvidence
{
	int64_t		rate;			/* bytes/s; 0: no limit */
	int64_t		evidence;		/* thousandths */
	int64_t		windows;		/* since it was 0, or a step, and ... */
	int64_t		sum;			/* ... of their means, ns */
	int64_t		hold_us;		/* the rate is not to be changed for so long */
	int64_t		unused_us;		/* for how long it was not used up */
	int64_t		quiet_us;		/* time of rising since the last step down */
	int64_t		knee;			/* the rate at which commits last took too
								 * long */
	int64_t		first;			/* the rate before steps down that have not
								 * helped yet; 0: none */
	int64_t		before;			/* ns, the mean before these */
	int64_t		question;		/* ns: does it help to get below? 0: none */
	int64_t		denied_at;		/* time of the last answer that it does not;
								 * 0: the last one was another */
	int64_t		probes;			/* of DtLatency that it knows */
} DtEvidence;

/* How long commits of others may take. */
typedef struct DtAllowed
{
	int64_t		ns;				/* so long, or, ... */
	int64_t		share;			/* ... unless 0, so many millionths longer
								 * than without those who are limited */
} DtAllowed;

extern int64_t dt_evidence_threshold(const DtLatency *l, DtAllowed allowed);
extern int64_t dt_law_evidence(DtEvidence *e, DtLatency *l, DtAllowed allowed,
							   bool obeyed);

#endif							/* DT_EVIDENCE_H */
