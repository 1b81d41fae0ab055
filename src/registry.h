/*-------------------------------------------------------------------------
 *
 * registry.h
 *		The layout of shared memory.
 *
 * For the files that work in it: group.c, member.c, grant.c, group_info.c.
 * Three locks, taken in this order:
 *
 * - the change lock (LWLock) is held by whoever changes definitions, over the
 *   write of the definitions file as well;
 * - the registry lock (LWLock) protects which groups there are, their names,
 *   and who may join them: exclusive for a moment when that changes or a
 *   session is moved, shared to look up, to join and to list.  No I/O happens
 *   under it;
 * - each group's spinlock protects its account and its members' accounts.
 *
 * A process never sleeps on its latch with one of these held.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_REGISTRY_H
#define DT_REGISTRY_H

#include "group.h"
#include "member.h"
#include "storage/lwlock.h"

/* A role that may join a group. */
typedef struct DtGrantSlot
{
	uint64		group_id;		/* 0 = this slot is free */
	Oid			role;
} DtGrantSlot;

typedef struct DtShared
{
	LWLock	   *change_lock;
	LWLock	   *registry_lock;
	pg_atomic_uint64 version;	/* of the registry; bumped by every change */
	pg_atomic_uint32 enabled;	/* written by the postmaster only */
	int			max_groups;		/* slots in the array of groups */
	int			n_members;		/* slots in the array of members */
	int			max_grants;		/* slots in the array of grants */
	uint64		last_id;		/* registry lock */
} DtShared;

extern DtShared *dt_shared;
extern DtGroup *dt_groups;
extern DtMember *dt_members;
extern DtGrantSlot *dt_grants;

/* Find a group, under the registry lock or the change lock. */
extern DtGroup *dt_registry_find(const char *name);
extern DtGroup *dt_registry_find_id(uint64 id);

/* All definitions as they are, with room for one more of each; change lock. */
extern void dt_registry_copy(DtDefinitions *definitions);

#endif							/* DT_REGISTRY_H */
