/*-------------------------------------------------------------------------
 *
 * at_end.h
 *		The callback at the end of a transaction, while it is needed.
 *
 * The server calls it several times for each transaction, so a session that is
 * in no group unregisters it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_AT_END_H
#define DT_AT_END_H

#include "utils/resowner.h"

extern bool dt_at_end_needed;
extern void dt_at_end_toggle(void);

/* At server start: it is needed until a process says otherwise. */
extern void dt_at_end_init(ResourceReleaseCallback callback);

/* The end of a transaction that has begun is needed in any case. */
static inline void
dt_at_end_need(bool needed)
{
	if (unlikely(needed != dt_at_end_needed))
		dt_at_end_toggle();
}

#endif							/* DT_AT_END_H */
