/*-------------------------------------------------------------------------
 *
 * claim.h
 *		Which session runs which job in batches.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CLAIM_H
#define DT_CLAIM_H

#include "shared/shmem.h"

#include "compat.h"

/*
 * This process runs the job from now on, until dt_claim_release() or its end.
 * Returns 0, or the process ID of who runs it already.
 */
extern int	dt_claim(const DtJobName *job);
extern void dt_claim_release(void);

/* Is the job that this process runs to end? */
static inline bool
dt_claim_is_to_stop(void)
{
	return ((volatile DtClaim *) dt_claims)[MyProcNumber].stop;
}

/* The process ID of who runs a job, or 0. */
extern int	dt_claim_holder(const DtJobName *job);

/* The same, and it is to end. */
extern int	dt_claim_stop(const DtJobName *job);

#endif							/* DT_CLAIM_H */
