/*-------------------------------------------------------------------------
 *
 * account_parallel.h
 *		The shares of parallel workers in their leader's account.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_PARALLEL_H
#define DT_ACCOUNT_PARALLEL_H

#include "access/xact.h"

/*
 * In a parallel worker when it starts: from now on what it uses is charged.
 */
extern void dt_account_begin_worker(void);

/*
 * In a parallel worker, around its part of a plan: what it uses in between is
 * added to the leader's counters.  If it runs none, all is taken for that.
 * Each charges what was used until then; so the second one may also be called
 * at the worker's exit.
 */
extern void dt_account_lock_and_begin_worker_run(void);
extern void dt_account_lock_and_end_worker_run(void);

/*
 * To be registered as a transaction callback in each parallel worker: tells
 * the leader what the worker has charged.
 */
extern void dt_account_worker_event(XactEvent event, void *arg);

/*
 * In the leader.  A parallel query has ended without an error, and the
 * leader's counters now include what its workers have used: leave out what
 * they have charged, before anything else can fail.
 */
extern void dt_account_lock_and_skip_workers(void);

/*
 * When the transaction ends, or a subtransaction is rolled back: forget what
 * workers have charged if the leader's counters do not include it by now.
 */
extern void dt_account_lock_and_forget_workers(void);

#endif							/* DT_ACCOUNT_PARALLEL_H */
