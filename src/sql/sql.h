/*-------------------------------------------------------------------------
 *
 * sql.h
 *		Shared by the files with SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SQL_H
#define DT_SQL_H

#include "shared/shmem.h"

/* A copy of a group, for looking at it without a lock. */
typedef struct DtGroupCopy
{
	DtGroup		group;
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		now;			/* time of the copy, us */
} DtGroupCopy;

extern DtGroupCopy *dt_group_copies(int *n);

/*
 * ERROR when the library was not preloaded.  Otherwise loads the definitions, if
 * that is due.
 */
extern void dt_sql_need_library(void);

/*
 * Define the option of EXPLAIN, in releases where extensions can do that (18);
 * while shared_preload_libraries is processed.
 */
extern void dt_explain_init(void);

#endif							/* DT_SQL_H */
