/*-------------------------------------------------------------------------
 *
 * sql.h
 *		Shared by the files with SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SQL_H
#define DT_SQL_H

#include "fmgr.h"
#include "shared/shmem.h"
#include "shared/text.h"

/* A copy of a group, for looking at it without a lock. */
typedef struct DtGroupCopy
{
	DtGroup		group;
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		rate[DT_RESOURCES]; /* measured, bytes/s */
	int			instances;		/* of a group, with the sums over these in it */
	int64		now;			/* time of the copy, us */
} DtGroupCopy;

static inline bool
dt_is_instance(const DtGroupCopy *copy)
{
	return copy->group.of != copy->group.id;
}

extern DtGroupCopy *dt_group_copies(int *n);

/*
 * ERROR when the library was not preloaded.  Otherwise loads the definitions, if
 * that is due.
 */
extern void dt_sql_need_library(void);

/*
 * Arguments: ERROR if one is NULL, "what" names it in the message; one that names
 * a group, or a signal, palloc'd; the first one of most functions, which need the
 * library.
 */
extern void dt_sql_check_not_null(FunctionCallInfo fcinfo, int arg,
								  const char *what);
extern char *dt_sql_get_name(FunctionCallInfo fcinfo, int arg,
							 const char *what);
extern char *dt_sql_get_group(FunctionCallInfo fcinfo);

/* Write what has been set of an entry, and tell if that has created a group. */
extern void dt_sql_write(List *entries, const DtEntry *entry);

/*
 * Define the option of EXPLAIN, in releases where extensions can do that (18);
 * while shared_preload_libraries is processed.
 */
extern void dt_explain_init(void);

#endif							/* DT_SQL_H */
