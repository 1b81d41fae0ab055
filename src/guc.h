/*-------------------------------------------------------------------------
 *
 * guc.h
 *		The table of configuration parameters.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GUC_H
#define DT_GUC_H

/* Define all parameters; while shared_preload_libraries is processed. */
extern void dt_guc_init(void);

#endif							/* DT_GUC_H */
