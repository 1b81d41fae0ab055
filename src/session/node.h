/*-------------------------------------------------------------------------
 *
 * node.h
 *		The next row of a plan node, for wrappers of ExecProcNode.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_NODE_H
#define DT_NODE_H

#include "executor/instrument.h"
#include "executor/tuptable.h"
#include "nodes/execnodes.h"

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
