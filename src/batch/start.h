/*-------------------------------------------------------------------------
 *
 * start.h
 *		Starting a job, and waiting for its end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_START_H
#define DT_START_H

#include "batch/job.h"

/* start_batches(): its worker is started when the transaction commits. */
extern void dt_start(const DtJobOptions *options);

/*
 * run_in_batches(): the same, and wait.  Returns how many rows were changed meanwhile;
 * *finished: nothing is left of the job.  atomic: the context of the CALL.
 */
extern int64 dt_start_and_wait(const DtJobOptions *options, bool atomic,
							   bool *finished);

#endif							/* DT_START_H */
