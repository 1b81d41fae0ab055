/*-------------------------------------------------------------------------
 *
 * group.h
 *		Resource groups in shared memory.
 *
 * Looking groups up, and locking them, is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_H
#define DT_GROUP_H

#include "shared/member.h"

/* Definitions, with the registry lock held exclusively */
extern DtGroup *dt_group_begin(const DtDefinition *d, DtGroup *own, Oid key,
							   bool must);
extern void dt_group_alter(DtGroup *g, const DtDefinition *d);
extern void dt_group_end(DtGroup *g);
extern DtGroup *dt_group_slot_for(DtGroup *own, const DtMember *member);

/* What concerns shared memory only */
extern bool dt_group_set_suspended(const char *name, bool suspended);
extern void dt_group_reset_stats(const char *name);

/*
 * Move the session with that process ID into a group, or with "" out of its
 * group.  NULL ends such a move, if there is one: the session leaves the
 * group, and its next statement joins the one that its parameter names.
 * ERROR when there is no such session, or no such group.
 */
extern void dt_group_move(int pid, const char *name);

/* Pressure */
extern void dt_pressure_clear(DtGroupPressure *pressure);
extern void dt_group_set_pressure(DtGroup *g, const DtGroupPressure *pressure,
								  bool wake);
extern void dt_group_end_pressure(DtGroup *g, int64 now);

/*
 * With g locked: the cause of a pause for its limit on a resource, which is a
 * signal when pressure has lowered that limit.
 */
static inline DtPauseCause
dt_group_pause_cause(const DtGroup *g, DtResource resource)
{
	int			signal = g->pressure.decides[resource];

	if (signal < 0 || g->pressure.rate[resource] == 0 ||
		g->usage[resource].engine.rate == g->definition.rate[resource])
		return (DtPauseCause) resource;
	return (DtPauseCause) (DT_BY_SIGNAL + signal);
}

/*
 * With g locked: end the pressure that the sampler has not renewed.  Whatever
 * charges, or reports what is owed or how fast the group is, calls this first,
 * so that a group is as free as its limits say when the sampler is gone.
 */
static inline void
dt_group_check_pressure(DtGroup *g, int64 now)
{
	if (unlikely(now >= g->pressure.expires))
		dt_group_end_pressure(g, now);
}

#endif							/* DT_GROUP_H */
