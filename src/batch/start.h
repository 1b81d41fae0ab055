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

/*
 * The worker of the job is started when the transaction commits.  wait: commit, and wait
 * for its end.  Returns how many rows were changed meanwhile; *finished: nothing is left
 * of the job.  atomic: the context of the CALL.
 */
extern int64 dt_start(const DtJobOptions *options, bool wait, bool atomic,
					  bool *finished);

#endif							/* DT_START_H */
