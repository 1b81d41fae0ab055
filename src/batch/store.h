/*-------------------------------------------------------------------------
 *
 * store.h
 *		What is stored of jobs that are run in batches.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STORE_H
#define DT_STORE_H

#include "datatype/timestamp.h"
#include "storage/itemptr.h"
#include "storage/lockdefs.h"
#include "utils/array.h"
#include "utils/relcache.h"
#include "utils/tuplestore.h"

/*
 * A job.  What is a pointer may be NULL.  Positions are those of key.h, as text; they
 * and "ordering" are written by key.c only.
 */
typedef struct DtJob
{
	/* what it is, written when it is started */
	Oid			id;
	Oid			owner;
	char	   *name;			/* NAMEDATALEN bytes */
	Oid			table;
	char	   *statement;
	char	   *columns;
	char	   *ordering;
	ArrayType  *start;			/* as the user has said */
	ArrayType  *finish;			/* the same */
	ArrayType  *settings;		/* "name=value" */
	int64		group_id;		/* 0: none */
	bool		row_security;	/* the statement is subject to it */
	int64		batch_us;
	int64		max_rows;
	int64		run_us;			/* 0: to the end */

	/* how far it is, written with each batch; the ID again comes first */
	ArrayType  *position;		/* of the last batch's end */
	ArrayType  *until;			/* where it is to end */
	int64		keys;			/* that it has come past */
	int64		expected;		/* keys of all of it; -1: not known */
	int64		rows;			/* changed, or returned */
	int64		batches;
	int64		retries;
	int64		elapsed_us;		/* while it has run */
	int64		paused_us;
	double		rate;			/* keys per second */
	TimestampTz updated;
	TimestampTz finished;		/* 0: it has not */
	char	   *outcome;		/* DT_STOPPED, DT_FAILED, or NULL */
	char	   *error;			/* the last one, and more of it if it has
								 * failed */
	char	   *sqlstate;
	char	   *detail;
	char	   *hint;

	ItemPointerData progress_tid;	/* where that was, when it was read or
									 * written */
} DtJob;

#define DT_STOPPED	"stopped"
#define DT_FAILED	"failed"

/* The two relations. */
typedef struct DtStore
{
	Relation	jobs;
	Relation	progress;
} DtStore;

/* Install the hook that protects them. */
extern void dt_store_init(void);

/* The first one; "routine" is one of the extension's, which has the same schema. */
extern Oid	dt_store_oid(Oid routine);

/* Open both, and close them. */
extern DtStore dt_store_open(Oid jobs, LOCKMODE lockmode);
extern void dt_store_close(DtStore *store, LOCKMODE lockmode);

/* The job.  ERROR if there is none, or NULL if that is not an error. */
extern DtJob *dt_store_find(const DtStore *store, Oid owner, const char *name,
							bool missing_ok);
extern DtJob *dt_store_get(const DtStore *store, Oid id);

/* The same, outside of any work: nothing is held afterwards. */
extern DtJob *dt_store_read(Oid jobs, Oid id);

/* Until the transaction ends nobody else starts, forgets or stops a job of that name. */
extern void dt_store_lock(const DtStore *store, Oid owner, const char *name);

/*
 * Do it with each job, one after the other: what it allocates, and the job, is gone
 * after it.
 */
extern void dt_store_each(const DtStore *store,
						  void (*act) (const DtJob *job, void *arg), void *arg);

/* Write both rows of it, without an ID as new ones; or that of its progress. */
extern void dt_store_put(const DtStore *store, DtJob *job);
extern void dt_store_put_progress(const DtStore *store, DtJob *job);
extern void dt_store_delete(const DtStore *store, DtJob *job);

/* All rows of a relation of the store that has this function's name. */
extern void dt_store_copy(Oid routine, Tuplestorestate *to);

#endif							/* DT_STORE_H */
