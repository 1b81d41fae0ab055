/*-------------------------------------------------------------------------
 *
 * hooks.h
 *		All hooks and callbacks of the server that this library uses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HOOKS_H
#define DT_HOOKS_H

/* Install them; while shared_preload_libraries is processed. */
extern void dt_hooks_install(void);

#endif							/* DT_HOOKS_H */
