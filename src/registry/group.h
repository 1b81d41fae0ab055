/*-------------------------------------------------------------------------
 *
 * group.h
 *		Creating, changing and dropping resource groups.
 *
 * Looking groups up, and locking them, is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_H
#define DT_GROUP_H

#include "registry/shmem.h"

/* Whether a group has to exist already when it is defined. */
typedef enum DtDefine
{
	DT_CREATE,					/* must not exist */
	DT_ALTER,					/* must exist */
	DT_CREATE_OR_ALTER
} DtDefine;

/* The properties of a group that can be set, with the unit of the value. */
typedef enum DtProperty
{
	DT_DIRTY_LIMIT,				/* bytes/s */
	DT_WAL_LIMIT,				/* bytes/s */
	DT_BURST,					/* us */
	DT_FLOOR,					/* bytes/s */
	DT_OBSERVE					/* 0 or 1 */
} DtProperty;

/*
 * Change definitions in this transaction; they are in force when it commits.
 * The caller has checked the names.  dt_group_define() returns whether the
 * group was created, dt_group_set_threshold() (NULL: none) whether there was
 * anything to change, dt_group_drop() whether there was a group.
 */
extern bool dt_group_define(const char *name, DtProperty property, int64 value,
							DtDefine how);
extern bool dt_group_set_threshold(const char *name, DtSignal signal,
								   const DtThreshold *threshold);
extern void dt_group_rename(const char *old_name, const char *new_name);
extern bool dt_group_drop(const char *name, bool missing_ok, bool force);

/*
 * Put a definition in force, with the registry lock held exclusively: make a
 * free slot a group without members, give a group another definition, release
 * its members and free its slot.  The caller calls dt_registry_changed().
 */
extern void dt_group_begin(DtGroup *slot, const DtDefinition *d, uint64 id);
extern void dt_group_alter(DtGroup *g, const DtDefinition *d);
extern void dt_group_end(DtGroup *g);

/*
 * Suspend a group, or resume it.  The members of a suspended group pause after
 * their next transaction or, if that pause is canceled or not possible, before
 * the one that follows it; with "hard" also before and within any.  A restart
 * resumes all groups.  Returns whether the group was suspended before.
 */
extern bool dt_group_set_suspended(const char *name, bool suspended,
								   bool hard);

/* Set the counters of a group, or with NULL of all groups, to 0. */
extern void dt_group_reset_stats(const char *name);

/*
 * The sampler's word on a group; wake: so that sleepers look at their accounts.
 */
extern void dt_group_set_pressure(DtGroup *g, const DtGroupPressure *pressure,
								  bool wake);

/*
 * With g locked: the cause of a pause for its limit on a resource, which is a
 * signal when pressure has lowered that limit.
 */
extern DtPauseCause dt_group_pause_cause(const DtGroup *g,
										 DtResource resource);

/* No pressure: nothing presses. */
extern void dt_pressure_clear(DtGroupPressure *pressure);

/*
 * With g locked: end the pressure that the sampler has not renewed.  Everybody
 * who looks at an account or at the rates calls this first, so that a group is
 * as free as its limits say when the sampler is gone.
 */
extern void dt_group_end_pressure(DtGroup *g, int64 now);

static inline void
dt_group_check_pressure(DtGroup *g, int64 now)
{
	if (unlikely(now >= g->pressure.expires))
		dt_group_end_pressure(g, now);
}

#endif							/* DT_GROUP_H */
