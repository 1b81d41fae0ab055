/*-------------------------------------------------------------------------
 *
 * load.h
 *		Loading the definitions of groups into shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LOAD_H
#define DT_LOAD_H

#include "catalog/objectaccess.h"

extern bool dt_load_may_be_due;

extern void dt_load_now(void);

/* Bring shared memory up to date, if that may be due and is possible here. */
static inline void
dt_load(void)
{
	if (unlikely(dt_load_may_be_due))
		dt_load_now();
}

extern void dt_load_object_accessed(ObjectAccessType access, Oid classId,
									Oid objectId, void *arg);
extern void dt_load_init(const char *library_version);

#endif							/* DT_LOAD_H */
