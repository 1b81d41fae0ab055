/*-------------------------------------------------------------------------
 *
 * sql.h
 *		Shared by the files with SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SQL_H
#define DT_SQL_H

/* ERROR when the library was not preloaded. */
extern void dt_sql_need_library(void);

#endif							/* DT_SQL_H */
