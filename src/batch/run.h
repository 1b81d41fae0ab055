/*-------------------------------------------------------------------------
 *
 * run.h
 *		A CALL of run_in_batches().
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_RUN_H
#define DT_RUN_H

#include "batch/job.h"

/* Returns how many rows were changed; *finished: nothing is left of the job. */
extern int64 dt_run(const DtJobOptions *options, bool *finished);

#endif							/* DT_RUN_H */
