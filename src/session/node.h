/*-------------------------------------------------------------------------
 *
 * node.h
 *		Wrappers of ExecProcNode.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_NODE_H
#define DT_NODE_H

#include "executor/executor.h"
#include "executor/instrument.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"

/*
 * Let a node be called through this wrapper, or that one if it is instrumented.  The
 * core does not export its wrapper for the first call, which goes then.  That of
 * another extension stays, as it may rely on being called.
 */
static inline void
dt_node_wrap(PlanState *node, ExecProcNodeMtd wrapper, ExecProcNodeMtd measured)
{
	static PlanState fresh;

	if (unlikely(fresh.ExecProcNode == NULL))
		ExecSetExecProcNode(&fresh, NULL);
	if (node->ExecProcNode == fresh.ExecProcNode ||
		node->ExecProcNode == node->ExecProcNodeReal)
		node->ExecProcNode = node->instrument ? measured : wrapper;
}

/* As the core's wrapper of an instrumented node does. */
static inline TupleTableSlot *
dt_node_next_measured(PlanState *node)
{
	TupleTableSlot *slot;

	InstrStartNode(node->instrument);
	slot = node->ExecProcNodeReal(node);
	InstrStopNode(node->instrument, TupIsNull(slot) ? 0.0 : 1.0);
	return slot;
}

#endif							/* DT_NODE_H */
