/*-------------------------------------------------------------------------
 *
 * worker.h
 *		The background worker that runs a job.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WORKER_H
#define DT_WORKER_H

extern PGDLLEXPORT void dt_batches_main(Datum main_arg);

#endif							/* DT_WORKER_H */
