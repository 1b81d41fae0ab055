/*-------------------------------------------------------------------------
 *
 * guc.h
 *		Configuration parameters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GUC_H
#define DT_GUC_H

extern bool dt_enabled;			/* use dt_group_throttling_enabled() */
extern int	dt_transaction_grace_ms;
extern int	dt_max_commit_pause_ms;
extern int	dt_max_groups;
extern int	dt_max_blocking_time_ms;	/* -1 = no bound */
extern bool dt_interrupt_pauses;
extern char *dt_autovacuum_group;
extern char *dt_apply_group;

/* Define all parameters; while shared_preload_libraries is processed. */
extern void dt_guc_init(void);

/*
 * Set and reset dirty_throttle.group of this session without the privilege to
 * do so; the caller has checked that it may.  ERROR when there is no such
 * group.
 */
extern void dt_guc_join_group(const char *name);
extern void dt_guc_reset_group(void);

#endif							/* DT_GUC_H */
