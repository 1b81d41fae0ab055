/*-------------------------------------------------------------------------
 *
 * gathers.h
 *		What the core has added to the counters of a leader.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GATHERS_H
#define DT_GATHERS_H

#include "engine/resource.h"
#include "nodes/execnodes.h"
#include "nodes/pg_list.h"

/* The Gather nodes of a plan that runs, and of those that run around it. */
typedef struct DtGathers
{
	struct DtGathers *outer;
	List	   *nodes;
} DtGathers;

/*
 * The bytes of workers that the core has added to this process's counters, as of
 * dt_gathers_look(), without those that were taken from here; PG_INT64_MAX: all
 * that have ended.
 */
extern int64 dt_gathers_added[DT_RESOURCES];
extern void dt_gathers_look(void);

/*
 * Before a plan runs, with what to do with each node but the top one, which launches
 * workers only once; before a node launches workers; when the plan has ended; or
 * when it has failed: then nothing more is added until dt_gathers_forget_failure().
 */
extern void dt_gathers_begin(DtGathers *run, PlanState *top,
							 void (*found) (PlanState *node));
extern void dt_gathers_begin_round(PlanState *node);
extern void dt_gathers_end(DtGathers *run);
extern void dt_gathers_fail(DtGathers *run);
extern bool dt_gathers_have_failed(void);
extern void dt_gathers_forget_failure(void);

#endif							/* DT_GATHERS_H */
