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
#include "executor/spi.h"

/*
 * The statement on a range, analyzed, and its tables locked.  Of the range only the
 * numbers of its values matter.  ERROR if it has no {batch}.  In an SPI connection.
 */
extern SPIPlanPtr dt_statement_prepare(const char *source, const DtKey *key,
									   const DtRange *range);

/* What is known of it. */
typedef struct DtStatement
{
	bool		row_security;	/* that applies to it, or to the table */
	bool		only_updates;	/* rows of the table: it deletes none */
} DtStatement;

/*
 * ERROR if it is not a single statement of a kind that can be run in batches along
 * this table.
 */
extern DtStatement dt_statement_check(SPIPlanPtr plan, const DtKey *key, Oid table);

/*
 * Run it on a range with the active snapshot, and the triggers that it has deferred.
 * Returns in SPI_processed how many rows it has changed or returned.
 */
extern void dt_statement_run(SPIPlanPtr plan, const DtKey *key, const DtRange *range);

#endif							/* DT_STATEMENT_H */
