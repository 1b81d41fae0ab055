/*-------------------------------------------------------------------------
 *
 * workers.h
 *		The shares of parallel workers in their leader's account.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WORKERS_H
#define DT_WORKERS_H

#include "access/xact.h"
#include "session/gathers.h"

/* In a worker. */
extern bool dt_worker_begins(void);
extern void dt_worker_begins_part(void);
extern void dt_worker_ends_part(void);
extern void dt_worker_event(XactEvent event, void *arg);

/* In the leader, around a parallel plan; or when it fails. */
extern void dt_workers_begin(DtGathers *run, PlanState *top);
extern void dt_workers_end(DtGathers *run);
extern void dt_workers_fail(DtGathers *run);
extern void dt_workers_forget(void);

#endif							/* DT_WORKERS_H */
