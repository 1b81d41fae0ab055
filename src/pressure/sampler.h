/*-------------------------------------------------------------------------
 *
 * sampler.h
 *		The background worker by which limits follow the server's pressure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SAMPLER_H
#define DT_SAMPLER_H

/* Have the worker started; while shared_preload_libraries is processed. */
extern void dt_sampler_init(void);

#endif							/* DT_SAMPLER_H */
