/*-------------------------------------------------------------------------
 *
 * statement.h
 *		Where statements begin and end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STATEMENT_H
#define DT_STATEMENT_H

extern void dt_statement_init(void);

#endif							/* DT_STATEMENT_H */
