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

extern void dt_rows_pace(QueryDesc *queryDesc);

#endif							/* DT_ROWS_H */
