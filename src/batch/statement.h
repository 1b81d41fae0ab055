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
	int			filled_from;	/* the same of the condition, in the text that */
	int			filled_to;		/* was made last */
} DtPlace;

typedef struct DtStatement
{
	const char *source;
	List	   *places;			/* DtPlace, in their order */
} DtStatement;

/* ERROR if there is no such place, or one is malformed. */
extern DtStatement *dt_statement_parse(const char *source);

/* The text with the condition of a range in these places. */
extern char *dt_statement_fill(const DtStatement *statement, const DtKey *key,
							   const DtRange *range);

/*
 * ERROR if it is not a single statement of a kind that can be run in batches,
 * or the table or a column of it does not exist.  Warns if it changes the key, or
 * does not name the table.
 * Returns whether it names that table.  In an SPI connection.
 */
extern bool dt_statement_check(const DtStatement *statement, const DtKey *key,
							   Oid table, const DtRange *range);

/*
 * Lock all tables that it names; the rest is the same.  ERROR if "named" is valid, and
 * is not one of them.
 */
extern void dt_statement_lock(const DtStatement *statement, const DtKey *key,
							  Oid named);

/*
 * Run it on a range with the active snapshot, in an SPI connection.  Returns how
 * many rows it has changed or returned; *changes tells whether these are rows of
 * that table, of which there should be no more than are in the range.
 */
extern uint64 dt_statement_run(const DtStatement *statement, const DtKey *key,
							   const DtRange *range, Oid table, bool *changes);

#endif							/* DT_STATEMENT_H */
