/*-------------------------------------------------------------------------
 *
 * reads.h
 *		What surely only reads.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_READS_H
#define DT_READS_H

#include "access/transam.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"

/* What is known of the server's own functions; two bits each. */
#define DT_FUNCTION_READS	0x1
#define DT_FUNCTION_KNOWN	0x2

extern uint8 dt_reads_known[FirstNormalObjectId / 4];

extern bool dt_reads_function_slow(Oid function);

/*
 * Does this function surely not write?  What it calls is asked for by itself.
 * For one of the server's own functions the answer is looked up once.
 */
static inline bool
dt_reads_function(Oid function)
{
	if (likely(function < FirstNormalObjectId) &&
		((dt_reads_known[function / 4] >> (function % 4 * 2)) & DT_FUNCTION_READS) != 0)
		return true;
	return dt_reads_function_slow(function);
}

extern bool dt_reads_query(Query *query);
extern bool dt_reads_command(Node *command);
extern bool dt_reads_queries_of(Node *command);

/*
 * The same for a plan, but for its functions: the server tells of each of
 * these when it prepares to call it, before the plan runs.
 */
static inline bool
dt_reads_plan(const PlannedStmt *plan)
{
	return plan->commandType == CMD_SELECT && plan->rowMarks == NIL &&
		!plan->hasModifyingCTE;
}

#endif							/* DT_READS_H */
