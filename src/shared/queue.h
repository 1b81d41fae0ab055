/*-------------------------------------------------------------------------
 *
 * queue.h
 *		Jobs in batches that run, or wait for a background worker.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_QUEUE_H
#define DT_QUEUE_H

#include "shared/shmem.h"

/* Where a job is, as far as the server knows. */
typedef enum DtQueueState
{
	DT_QUEUE_ABSENT,
	DT_QUEUE_WAITS,				/* for a free background worker */
	DT_QUEUE_STARTS,			/* its worker is on its way */
	DT_QUEUE_RUNS,
	DT_QUEUE_ENDS				/* after its present batch */
} DtQueueState;

/* *pid, if not NULL: of the worker, or 0. */
extern DtQueueState dt_queue_find(Oid job, int *pid);

/* The same; the latch of this process is set when the job ends, if no other one asks. */
extern DtQueueState dt_queue_wait_for(Oid job);

/*
 * Take an entry for the job.  False: there is none.  When the transaction that has
 * started it ends, it is settled, which cannot fail: it begins as soon as a worker is
 * free, or the entry is given back.
 */
extern bool dt_queue_reserve(const DtQueued *job);
extern void dt_queue_settle(Oid job, bool committed);

/* Start what waits, as far as workers are free.  Does something still wait? */
extern bool dt_queue_launch(void);

/* What waits is removed, and what runs is to end.  Returns where it was. */
extern DtQueueState dt_queue_stop(Oid job);

/*
 * A worker begins: it runs the job of this entry from now on, until its exit.  False:
 * nobody wants that any more.
 */
extern bool dt_queue_begin(int entry, DtQueued *job);

/*
 * How often was the job to end that this process runs?  May be called in a signal
 * handler.
 */
extern int	dt_queue_stops(void);

/* At most this many workers run batches at a time; has this user to wait for one? */
extern int	dt_queue_most(void);
extern bool dt_queue_is_full(Oid login);

#endif							/* DT_QUEUE_H */
