/*-------------------------------------------------------------------------
 *
 * pace_rows.c
 *		Safe points between two rows of an executor plan.
 *
 * The executor calls a plan node through planstate->ExecProcNode.  The core
 * points it to a wrapper for the first call and while the node is instrumented
 * (EXPLAIN ANALYZE), and keeps the node's own function in ExecProcNodeReal.
 * Before a member's plan runs, this file points it to wrappers that pace and
 * then do what the core's would do: at the root of the plan, and where rows
 * enter a ModifyTable.  Where no row gets that far, checks for interrupts are
 * the safe points.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/transaction.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pace/pace.h"

static TupleTableSlot *
pace_node(PlanState *node)
{
	dt_pace();
	return node->ExecProcNodeReal(node);
}

/* The same for an instrumented node; the pause does not count as its time. */
static TupleTableSlot *
pace_measured_node(PlanState *node)
{
	TupleTableSlot *slot;

	dt_pace();
	InstrStartNode(node->instrument);
	slot = node->ExecProcNodeReal(node);
	InstrStopNode(node->instrument, TupIsNull(slot) ? 0.0 : 1.0);
	return slot;
}

/* The first call, in which the core checks the depth of the stack. */
static TupleTableSlot *
pace_node_first(PlanState *node)
{
	check_stack_depth();
	node->ExecProcNode = node->instrument ? pace_measured_node : pace_node;
	return node->ExecProcNode(node);
}

static bool
wrap_modified(PlanState *ps, void *context)
{
	if (IsA(ps, ModifyTableState))
		outerPlanState(ps)->ExecProcNode = pace_node_first;
	return planstate_tree_walker(ps, wrap_modified, context);
}

void
dt_pace_rows_of(QueryDesc *queryDesc)
{
	PlanState  *root = queryDesc->planstate;
	ListCell   *lc;

	if (root == NULL ||
		root->ExecProcNode == pace_node_first ||
		root->ExecProcNode == pace_node ||
		root->ExecProcNode == pace_measured_node)
		return;

	/* the root, and the data-modifying WITH queries beside it */
	root->ExecProcNode = pace_node_first;
	if (queryDesc->operation == CMD_SELECT &&
		!queryDesc->plannedstmt->hasModifyingCTE)
		return;
	(void) wrap_modified(root, NULL);
	foreach(lc, queryDesc->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL)
			(void) wrap_modified((PlanState *) lfirst(lc), NULL);
	}
}
