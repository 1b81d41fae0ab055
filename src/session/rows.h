/*-------------------------------------------------------------------------
 *
 * rows.h
 *		Safe points between two rows of an executor plan.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ROWS_H
#define DT_ROWS_H

#include "executor/execdesc.h"
#include "nodes/execnodes.h"

/*
 * Let a node be called through this wrapper, or that one if it is instrumented, unless
 * another extension has one there.
 */
extern void dt_rows_wrap(PlanState *node, ExecProcNodeMtd wrapper,
						 ExecProcNodeMtd measured);

extern void dt_rows_pace(QueryDesc *queryDesc);

#endif							/* DT_ROWS_H */
