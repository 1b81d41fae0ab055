/*-------------------------------------------------------------------------
 *
 * pace_executor.c
 *		Safe points between two rows of an executor plan.
 *
 * The executor calls a plan node through planstate->ExecProcNode, which the
 * core itself points to a wrapper for the first call and while it measures
 * (EXPLAIN ANALYZE), keeping the node's own function in ExecProcNodeReal.
 * After ExecutorStart we point it, in the nodes where rows come from, to a
 * wrapper that paces and then does what the core's would have done.
 *
 * Where such a node has a filter, its rows do not all come out of it, so the
 * filter's evaluation function is wrapped in the same way instead: the core
 * calls it through ExprState->evalfunc, with the real one in evalfunc_private.
 * A filter that was compiled (JIT) cannot be wrapped; rows that it rejects are
 * charged live only.
 *
 * Plans of sessions without a group stay as they are.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "account.h"
#include "executor/execExpr.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "pace.h"
#include "pause.h"
#include "session.h"

#include "compat.h"

static ExecutorStart_hook_type next_executor_start = NULL;

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

/*
 * Wrappers for the evaluation of a filter, at its first call and later.
 */
static Datum
pace_filter(ExprState *state, ExprContext *econtext, bool *isnull)
{
	dt_pace();
	return ((ExprStateEvalFunc) state->evalfunc_private) (state, econtext,
														  isnull);
}

static Datum
pace_filter_first(ExprState *state, ExprContext *econtext, bool *isnull)
{
	CheckExprStillValid(state, econtext);
	state->evalfunc = pace_filter;
	return pace_filter(state, econtext, isnull);
}

void
dt_pace_executor_wrap(PlanState *ps)
{
	ps->ExecProcNode = pace_node_first;
}

static void
wrap_source(PlanState *ps)
{
	if (ps->qual != NULL && ps->qual->evalfunc == ExecInterpExprStillValid)
		ps->qual->evalfunc = pace_filter_first;
	else if (ps->qual == NULL || ps->qual->evalfunc != pace_filter_first)
		dt_pace_executor_wrap(ps);
}

/*
 * Do rows enter the plan here?  Nodes that hand over all at once
 * (MultiExecProcNode) never go through the wrapper; their consumer does.
 */
static bool
is_source(PlanState *ps)
{
	switch (nodeTag(ps))
	{
		case T_BitmapHeapScanState:
			return true;
		case T_AppendState:
		case T_MergeAppendState:
		case T_SubqueryScanState:
		case T_BitmapIndexScanState:
		case T_BitmapAndState:
		case T_BitmapOrState:
			return false;
		case T_CustomScanState:
			return ((CustomScanState *) ps)->custom_ps == NIL;
		default:
			return outerPlanState(ps) == NULL && innerPlanState(ps) == NULL;
	}
}

static bool
wrap_sources(PlanState *ps, void *context)
{
	if (is_source(ps))
		wrap_source(ps);
	else if (IsA(ps, ModifyTableState))
		dt_pace_executor_wrap(outerPlanState(ps));
	return planstate_tree_walker(ps, wrap_sources, context);
}

void
dt_pace_executor_wrap_plan(QueryDesc *queryDesc)
{
	PlanState  *root = queryDesc->planstate;
	ListCell   *lc;

	if (root == NULL || !dt_account_is_open() ||
		root->ExecProcNode == pace_node_first ||
		root->ExecProcNode == pace_node ||
		root->ExecProcNode == pace_measured_node)
		return;

	/* the root, and the data-modifying WITH queries beside it */
	dt_pace_executor_wrap(root);
	(void) wrap_sources(root, NULL);
	foreach(lc, queryDesc->estate->es_subplanstates)
	{
		if (lfirst(lc) != NULL)
			(void) wrap_sources((PlanState *) lfirst(lc), NULL);
	}
}

static void
pace_executor_start(QueryDesc *queryDesc, int eflags)
{
	if (next_executor_start)
		next_executor_start(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);

	if (!dt_session_active() || (eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	dt_session_begin_statement();
	dt_pace_executor_wrap_plan(queryDesc);
}

void
dt_pace_executor_init(void)
{
	next_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = pace_executor_start;
}
