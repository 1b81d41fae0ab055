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

/* How far a job has come. */
typedef struct DtProgress
{
	int64		size;			/* keys of the next batch */
	int64		keys;			/* that it has come past */
	int64		expected;		/* keys of all of it; -1: not known */
	int64		rows;			/* changed, or returned */
	int64		batches;
	int64		retries;
	int64		elapsed_us;		/* while it has run */
	int64		paused_us;
	double		rate;			/* keys per second */
	TimestampTz started;
	TimestampTz updated;
	TimestampTz finished;		/* 0: it has not */
	bool		failed;			/* it has ended by an error */
} DtProgress;

/*
 * A row.  What is a pointer may be NULL.  Positions are those of key.h, as
 * text; they and "ordering" are written by key.c only.
 */
typedef struct DtJob
{
	/* what it is; the same for each CALL */
	Oid			owner;
	char	   *name;
	Oid			table;
	char	   *statement;
	bool		names_table;	/* the statement has named the table, always */
	char	   *columns;
	char	   *ordering;
	bool		descending;
	ArrayType  *start;			/* as the user has said */
	ArrayType  *finish;			/* the same */

	ArrayType  *position;		/* of the last batch's end */
	ArrayType  *until;			/* where it is to end */
	char	   *error;			/* the last one */
	DtProgress	progress;
} DtJob;

/* The table; "routine" is one of the extension's, which has the same schema. */
extern Relation dt_store_open(Oid routine, LOCKMODE lockmode);

/* The row with that name, or NULL.  *tid, if not NULL, is set to where it is. */
extern DtJob *dt_store_find(Relation store, Oid owner, const char *name,
							ItemPointer tid);

/*
 * The same, but it stays as it is until the transaction ends: waits for who is
 * going to delete it.
 */
extern DtJob *dt_store_lock(Relation store, Oid owner, const char *name,
							ItemPointer tid);

/*
 * Do it with each row of the owners that are wanted, one after the other: what it
 * allocates, and the job, is gone after it.  And all rows as they are, into a
 * tuplestore.
 */
extern void dt_store_each(Relation store, bool (*is_wanted) (Oid owner),
						  void (*act) (const DtJob *job, void *arg), void *arg);
extern void dt_store_copy(Relation store, Tuplestorestate *to);

extern void dt_store_insert(Relation store, const DtJob *job);
extern void dt_store_update(Relation store, ItemPointer tid, const DtJob *job);
extern void dt_store_delete(Relation store, ItemPointer tid);

#endif							/* DT_STORE_H */
