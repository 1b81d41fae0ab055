/*-------------------------------------------------------------------------
 *
 * hooks.h
 *		All hooks of the server that this library uses, except those of its
 *		parameters and of EXPLAIN.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HOOKS_H
#define DT_HOOKS_H

/* To be called while shared_preload_libraries is processed. */
extern void dt_hooks_install(void);

#endif							/* DT_HOOKS_H */
