/*-------------------------------------------------------------------------
 *
 * job.h
 *		A job that is run in batches: what a CALL wants, finds and stores.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_JOB_H
#define DT_JOB_H

#include "batch/key.h"
#include "batch/statement.h"
#include "batch/store.h"
#include "shared/shmem.h"

/* The arguments of run_in_batches(). */
typedef struct DtJobOptions
{
	Oid			routine;		/* the procedure itself */
	bool		atomic;			/* the context of the CALL: no COMMIT there */
	char	   *name;
	Oid			table;
	char	   *statement;
	char	   *key;			/* NULL: the primary key */
	bool		descending;
	DtUserValue start;			/* or the first one */
	DtUserValue finish;			/* or the last one */
	bool		follow;
	bool		restart;
	int64		batch_us;
	int64		max_rows;
	int64		run_us;			/* 0: to the end */
	bool		dry_run;
	int64		notice_us;		/* 0: no notices meanwhile */
} DtJobOptions;

/* A CALL. */
typedef struct DtRun
{
	const DtJobOptions *options;
	MemoryContext context;		/* lasts as long as the CALL */
	DtStatement *statement;
	DtJob		job;			/* as of the last COMMIT; its positions only
								 * in the transaction that begins the CALL */
	DtKey	   *key;			/* in the transaction that has found it */
	bool		is_new;			/* it begins with the first batch */
	bool		functions_tracked;	/* as the CALL began, or since then */

	/* for the job's times and rates; the clock is that of dt_now_us() */
	int64		started_us;
	int64		elapsed_before_us;	/* in earlier CALLs */
	int64		rows_before;
} DtRun;

/*
 * ERROR on a standby, and where else nothing can be written; "what" is what was to be
 * done to batches.
 */
extern void dt_job_check_primary(const char *what);
extern void dt_job_check_writable(const char *what);

/* ERROR where the CALL cannot commit. */
extern void dt_job_check_can_commit(const DtJobOptions *options);

/*
 * Open the table, and lock it with all its partitions.  ERROR if it is gone, or
 * no table.  Snapshots have to be taken after that: to an older one a table is
 * empty that was rewritten meanwhile.
 */
extern Relation dt_job_open_table(Oid table, const char *name);

/*
 * What the CALL wants.  ERROR if that is not possible.  With an active snapshot
 * and an SPI connection.
 */
extern void dt_job_check(DtRun *run, Relation table);

/* Its key, once more in the transaction in which it begins. */
extern void dt_job_find_key(DtRun *run, Relation table);

/*
 * Find out what is stored of it, and so where it begins and ends.  False if it has
 * finished already.  The same.
 */
extern bool dt_job_look(DtRun *run, Relation table);

/* After the session has claimed it: the same, and store it. */
extern bool dt_job_begin(DtRun *run, Relation table);

/* By what name it is claimed; see claim.h. */
extern DtJobName dt_job_name(const DtJob *job);

/* The part of the way that is left. */
extern DtRange dt_job_rest(const DtJob *job, const DtKey *key);

/* How many keys there are in all, from what is left; -1: not known. */
extern int64 dt_job_expect(const DtJob *job, const DtKey *key,
						   Relation table);

#endif							/* DT_JOB_H */
