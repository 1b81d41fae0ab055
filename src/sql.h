/*-------------------------------------------------------------------------
 *
 * sql.h
 *		What the files with SQL functions share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SQL_H
#define DT_SQL_H

/* ERROR, with the line to add, when the library was not preloaded. */
extern void dt_sql_need_library(void);

#endif							/* DT_SQL_H */
