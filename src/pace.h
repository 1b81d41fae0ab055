/*-------------------------------------------------------------------------
 *
 * pace.h
 *		The safe points: each file pace_*.c installs the hooks of one kind.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PACE_H
#define DT_PACE_H

#include "executor/execdesc.h"
#include "nodes/execnodes.h"

/* The function that pace_copy.c adds to a COPY, and its C symbol. */
#define DT_PACE_FUNCTION	"dirty_throttle_pace"

extern void dt_pace_executor_init(void);	/* between two rows of a plan */
extern void dt_pace_copy_init(void);	/* between two rows of COPY FROM */
extern void dt_pace_commit_init(void);	/* after a transaction */
extern void dt_pace_vacuum_init(void);	/* in the naps of VACUUM and ANALYZE */

/* Make a plan node pace before each row; may be called in a signal handler. */
extern void dt_pace_executor_wrap(PlanState *ps);

/* A member's plan: make it pace, unless it does already. */
extern void dt_pace_executor_wrap_plan(QueryDesc *queryDesc);

/* This autovacuum worker has joined a group. */
extern void dt_pace_vacuum_start_autovacuum(void);

/*
 * A command runs that may hold locks over its own commits: pay after it.
 */
extern int	dt_pace_commit_hold;

#endif							/* DT_PACE_H */
