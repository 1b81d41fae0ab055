/*-------------------------------------------------------------------------
 *
 * rows.c
 *		Safe points between two rows of an executor plan.
 *
 * The executor calls a plan node through planstate->ExecProcNode.  The core
 * points it to a wrapper for the first call and while the node is instrumented
 * (EXPLAIN ANALYZE), and keeps the node's own function in ExecProcNodeReal.
 * Before a member's plan runs, this file points it to wrappers that pace and
 * then do what the core's would do: at the root of the plan, and where rows
 * enter a ModifyTable.  The request for a row that does not come is a safe point,
 * too, so an INSERT of one row has one after it.  Where no row is requested there,
 * or another extension has a wrapper, checks for interrupts are the safe points.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "session/pay.h"
#include "session/rows.h"

static TupleTableSlot *
pace_node(PlanState *node)
{
	dt_pay_if_due();
	return node->ExecProcNodeReal(node);
}

/*
 * The same for an instrumented node, as the core's wrapper of one does; the pause does
 * not count as its time.
 */
static TupleTableSlot *
pace_measured_node(PlanState *node)
{
	TupleTableSlot *slot;

	dt_pay_if_due();
	InstrStartNode(node->instrument);
	slot = node->ExecProcNodeReal(node);
	InstrStopNode(node->instrument, TupIsNull(slot) ? 0.0 : 1.0);
	return slot;
}

/*
 * What the core has there: a wrapper for the first call, and one for an instrumented
 * node, which it does not export.
 */
static ExecProcNodeMtd first_of_core = NULL;
static ExecProcNodeMtd measured_of_core;

static TupleTableSlot *
no_row(PlanState *node)
{
	return NULL;
}

static pg_noinline void
learn_wrappers_of_core(void)
{
	PlanState	node = {0};

	node.instrument = palloc0(sizeof(*node.instrument));
	ExecSetExecProcNode(&node, no_row);
	first_of_core = node.ExecProcNode;
	(void) node.ExecProcNode(&node);
	measured_of_core = node.ExecProcNode;
	pfree(node.instrument);
}

/* That of another extension stays, as it may rely on being called. */
static void
wrap_node(PlanState *node)
{
	if (unlikely(first_of_core == NULL))
		learn_wrappers_of_core();
	if (node->ExecProcNode == first_of_core ||
		node->ExecProcNode == measured_of_core ||
		node->ExecProcNode == node->ExecProcNodeReal)
		node->ExecProcNode = node->instrument ? pace_measured_node : pace_node;
}

/*
 * Only the top of a plan can be a ModifyTable, unless an extension has put a
 * node of its own above it.  Then checks for interrupts are the safe points.
 */
static void
wrap_plan(PlanState *top)
{
	wrap_node(top);
	if (IsA(top, ModifyTableState))
		wrap_node(outerPlanState(top));
}

/* Data-modifying WITH queries are beside the root. */
static pg_noinline void
wrap_modifying_ctes(EState *estate)
{
	ListCell   *lc;

	foreach(lc, estate->es_subplanstates)
	{
		PlanState  *plan = lfirst(lc);

		if (plan != NULL && IsA(plan, ModifyTableState))
			wrap_plan(plan);
	}
}

/* Make a plan pace, unless it does already. */
void
dt_rows_pace(QueryDesc *queryDesc)
{
	PlanState  *root;

	check_stack_depth();		/* as the core's wrapper, which goes, would */
	root = queryDesc->planstate;
	if (root == NULL ||
		root->ExecProcNode == pace_node ||
		root->ExecProcNode == pace_measured_node)
		return;
	wrap_plan(root);
	if (queryDesc->plannedstmt->hasModifyingCTE)
		wrap_modifying_ctes(queryDesc->estate);
}
