/*-------------------------------------------------------------------------
 *
 * load.h
 *		Loading the definitions of groups into shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LOAD_H
#define DT_LOAD_H

/* This transaction has changed the row: it is loaded at COMMIT. */
extern void dt_load_at_commit(void);

/* Has something happened since this process last compared memory and row? */
extern bool dt_load_may_be_due;

extern void dt_load_slow(void);

/*
 * Bring shared memory up to date, if it may not be, and if this is possible
 * here.
 */
static inline void
dt_load(void)
{
	if (unlikely(dt_load_may_be_due))
		dt_load_slow();
}

/* While shared_preload_libraries is processed. */
extern void dt_load_init(void);

#endif							/* DT_LOAD_H */
