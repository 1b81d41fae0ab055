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

/* In a worker. */
extern bool dt_worker_begins(void);
extern void dt_worker_begins_part(void);
extern void dt_worker_ends_part(void);
extern void dt_worker_event(XactEvent event, void *arg);

/* In the leader, around a parallel plan; and when a transaction or a part of it fails. */
extern int	dt_workers_begin_plan(void);
extern void dt_workers_end_plan(int outer);
extern void dt_workers_fail(void);

#endif							/* DT_WORKERS_H */
