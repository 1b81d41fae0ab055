/*-------------------------------------------------------------------------
 *
 * chain.h
 *		From a process that waits to all for whom it waits, one behind the other.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CHAIN_H
#define DT_CHAIN_H

#include "shared/shmem.h"
#include "waiters/picture.h"

/* The number of a group for behind.h. */
static inline int
dt_group_number(const DtGroup *g)
{
	return g == NULL ? 0 : (int) (g - dt_groups) + 1;
}

extern void dt_chain_begin(DtPicture *picture, const DtWait *wait, int64 now);
extern void dt_chain_walk(DtPicture *picture, const DtWait *wait);

#endif							/* DT_CHAIN_H */
