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
extern char *dt_autovacuum_group;
extern char *dt_apply_group;

/* Define all parameters; while shared_preload_libraries is processed. */
extern void dt_guc_init(void);

#endif							/* DT_GUC_H */
