/*-------------------------------------------------------------------------
 *
 * pace_executor.c
 *		Safe points between two rows of an executor plan.
 *
 * The executor calls a plan node through planstate->ExecProcNode, which the
 * core itself points to a wrapper for the first call and while it measures
 * (EXPLAIN ANALYZE), keeping the node's own function in ExecProcNodeReal.
 * Before a member's plan runs we point it, at the root and where rows enter a
 * ModifyTable, to a wrapper that paces and then does what the core's would have
 * done.  What is dirtied where no row gets that far is paid at the checks for
 * interrupts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "account.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pace.h"
#include "pause.h"

#include "compat.h"

static TupleTableSlot *
pace_node(PlanState *node)
{
	dt_pace();
	return node->ExecProcNodeReal(node);
}

/* The same while the node is measured; the pause is not the node's time. */
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

/* The first call, where the core checks the depth of the stack. */
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
dt_pace_executor_wrap(QueryDesc *queryDesc)
{
	PlanState  *root = queryDesc->planstate;
	ListCell   *lc;

	if (root == NULL || !dt_account_may_owe() ||
		root->ExecProcNode == pace_node_first ||
		root->ExecProcNode == pace_node ||
		root->ExecProcNode == pace_measured_node)
		return;

	/* the root, and the data-modifying WITH queries beside it */
	root->ExecProcNode = pace_node_first;
	(void) wrap_modified(root, NULL);
	foreach(lc, queryDesc->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL)
			(void) wrap_modified((PlanState *) lfirst(lc), NULL);
	}
}
