/*-------------------------------------------------------------------------
 *
 * explain.h
 *		The option THROTTLE of EXPLAIN.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_EXPLAIN_H
#define DT_EXPLAIN_H

/*
 * Define the option, in releases where extensions can do that (18); while
 * shared_preload_libraries is processed.
 */
extern void dt_explain_init(void);

#endif							/* DT_EXPLAIN_H */
