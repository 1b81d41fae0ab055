/*-------------------------------------------------------------------------
 *
 * statement.h
 *		The text of a statement with {batch} in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STATEMENT_H
#define DT_STATEMENT_H

#include "batch/key.h"
#include "nodes/pg_list.h"

/* A {batch} or {batch alias} in the text. */
typedef struct DtPlace
{
	int			from;			/* offset of the first byte, and */
	int			to;				/* of the one after the last */
	const char *alias;			/* quoted where that is needed; or NULL */
} DtPlace;

typedef struct DtStatement
{
	const char *source;
	List	   *places;			/* DtPlace, in their order */
} DtStatement;

/* ERROR if there is no such place, or one is malformed. */
extern DtStatement *dt_statement_parse(const char *source);

/*
 * The statement on a range, analyzed, and its tables locked.  Of the range only the
 * numbers of its values matter.  In an SPI connection.
 */
extern SPIPlanPtr dt_statement_prepare(const DtStatement *statement,
									   const DtKey *key, const DtRange *range);

/*
 * ERROR if it is not a single statement of a kind that can be run in batches along
 * this table.  Returns whether row security applies to it.
 */
extern bool dt_statement_check(SPIPlanPtr plan, const DtKey *key, Oid table);

/* ERROR if that is not so any more. */
extern void dt_statement_check_again(SPIPlanPtr plan, Oid table, bool row_security);

/*
 * Run it on a range with the active snapshot.  Returns how many rows it has changed
 * or returned.
 */
extern uint64 dt_statement_run(SPIPlanPtr plan, const DtKey *key,
							   const DtRange *range);

/*
 * SET CONSTRAINTS ALL IMMEDIATE: triggers that were deferred would run in the COMMIT that
 * follows, in which nothing pauses or counts as part of a batch.
 */
extern void dt_statement_end_deferred(void);

/* Is it an UPDATE, after which each row is still there? */
extern bool dt_statement_updates(SPIPlanPtr plan);

#endif							/* DT_STATEMENT_H */
