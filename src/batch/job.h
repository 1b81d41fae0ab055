/*-------------------------------------------------------------------------
 *
 * job.h
 *		A job that is run in batches: what is wanted, found and stored.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_JOB_H
#define DT_JOB_H

#include "batch/key.h"
#include "batch/statement.h"
#include "batch/store.h"
#include "shared/queue.h"

/* The arguments of start_batches(). */
typedef struct DtJobOptions
{
	Oid			store;			/* see dt_store_oid() */
	DtJob		job;			/* what was given of it; no table: go on with
								 * what is stored */
	char	   *key;			/* NULL: the primary key */
	DtUserValue start;			/* or the first one */
	DtUserValue finish;			/* or the last one */
	bool		restart;
	bool		unthrottled;	/* it may run in no group */
	bool		dry_run;
} DtJobOptions;

/* What has become of it. */
typedef struct DtStart
{
	DtJob	   *job;
	DtKey	   *key;
	bool		is_new;			/* it begins with the first batch; if it has
								 * finished, there is nothing to do */
	DtQueueState state;			/* before */
	int			pid;			/* of the worker that runs it */
	char		group[NAMEDATALEN]; /* in which it will be, or empty */
} DtStart;

/*
 * Open the table, and lock it with all its partitions.  ERROR if it is gone, or
 * no table.  Snapshots have to be taken after that: to an older one a table is
 * empty that was rewritten meanwhile.
 */
extern Relation dt_job_open_table(Oid table, const char *name);

/*
 * Store what is wanted, unless that is a dry run, or it runs already.  ERROR if it is
 * not possible.  In an SPI connection, with an active snapshot.
 */
extern DtStart dt_job_start(const DtJobOptions *options);

/* What has waited for a worker was stopped: nothing else is going to store that. */
extern void dt_job_store_stop(const DtStore *store, const DtJob *job);

/* Has the user of this session LOGIN? */
extern bool dt_job_user_can_log_in(void);

/* ERROR if row security applies to its statement now, or does not any more. */
extern void dt_job_check_rows(const DtJob *job, bool applies);

/* The part of the way that is left. */
extern DtRange dt_job_rest(const DtJob *job, const DtKey *key);

#endif							/* DT_JOB_H */
