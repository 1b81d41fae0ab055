/*-------------------------------------------------------------------------
 *
 * kind.h
 *		The kind of a statement: control, reading or writing.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_KIND_H
#define DT_KIND_H

#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "session/phase.h"

/* DT_WRITES, DT_READS or, for a control statement, DT_NO_EVENT. */
extern DtEvent dt_kind_of_command(Node *command);
extern DtEvent dt_kind_of_query(const Query *query);	/* an analyzed one */

static inline DtEvent
dt_kind_of_plan(const PlannedStmt *plan)
{
	return plan->commandType == CMD_SELECT && plan->rowMarks == NIL &&
		!plan->hasModifyingCTE ? DT_READS : DT_WRITES;
}

#endif							/* DT_KIND_H */
