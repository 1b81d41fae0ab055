/*-------------------------------------------------------------------------
 *
 * run.h
 *		The batches of a job, one after the other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_RUN_H
#define DT_RUN_H

#include "batch/job.h"

/*
 * Run this job to its end, or as long as it may, and store how it has ended.  "prepare"
 * makes the process what the job needs, in a first transaction.  Outside of a
 * transaction.
 */
extern void dt_run(Oid store, Oid id, void (*prepare) (const DtJob *job));

#endif							/* DT_RUN_H */
