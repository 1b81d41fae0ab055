/*-------------------------------------------------------------------------
 *
 * group_info.c
 *		Snapshots of groups and members, for the views.
 *
 * Taken under the registry lock (shared), each group and member with its
 * group's spinlock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/live.h"
#include "registry/group.h"
#include "registry/role_debt.h"
#include "sql/group_info.h"

static void
copy_usage(DtGroupUsageInfo *info, DtGroupUsage *use, int64 now)
{
	info->effective = use->rate.rate;
	info->rate = dt_meter_rate(&use->meter, now);
	info->used = use->used;
	info->debt = dt_rate_group_debt(&use->rate, now);
	info->histogram = use->histogram;
}

int
dt_group_info_groups(DtGroupInfo **infos)
{
	int			n = 0;
	int			i;
	int			r;

	*infos = palloc0(dt_shared->max_groups * sizeof(DtGroupInfo));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtGroupInfo *info = &(*infos)[n];
		int64		now;

		if (g->id == 0)
			continue;
		info->definition = g->definition;
		info->now = now = dt_now_us();
		dt_group_lock(g);
		dt_group_check_pressure(g, now);
		info->members = g->members;
		info->paused = g->paused;
		info->suspended_hard = g->suspended_hard;
		info->suspended_since = g->suspended_since;
		info->stats = g->stats;
		info->forgiven = g->forgiven;
		info->stats_reset = g->stats_reset;
		info->pressure = g->pressure;
		for (r = 0; r < DT_RESOURCES; r++)
			copy_usage(&info->usage[r], &g->usage[r], now);
		dt_group_unlock(g);
		n++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return n;
}

/*
 * A session as a member of group g, or with "debt" as one that has left it.
 * False when it is neither any more.
 */
static bool
copy_member(DtMemberInfo *info, int number, DtDebt *debt, DtGroup *g)
{
	DtMember   *m = &dt_members[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	int64		now = dt_now_us();
	bool		still = true;
	int			r;

	memset(info, 0, sizeof(*info));
	strlcpy(info->group_name, g->definition.name, NAMEDATALEN);
	dt_group_lock(g);
	if (debt != NULL ? debt->group != g : m->group != g)
		still = false;
	else
	{
		info->pid = proc->pid;
		info->userid = proc->roleId;
		info->databaseid = proc->databaseId;
		info->has_left = debt != NULL;
		info->pauses_at_checks = m->pauses_at_checks && dt_interrupt_pauses;
		for (r = 0; r < DT_RESOURCES; r++)
		{
			info->used[r] = debt ? 0 : m->usage[r].used;
			info->debt[r] = dt_rate_debt(&g->usage[r].rate,
										 debt ? &debt->rate[r] :
										 &m->usage[r].rate, now);
		}
		if (debt == NULL)
		{
			info->moved = m->moved;
			info->stats = m->stats;
			info->released_since = m->released_since;
		}
		if (m->paused_in == g)
		{
			info->stats.paused_us += now - m->paused_since_us;
			info->paused_since = m->paused_since;
			info->paused_by = m->paused_by;
			for (r = 0; r < DT_RESOURCES && m->paused_by == DT_BY_ROLE; r++)
				info->debt[r] += dt_role_debt_bytes(g, m->role, r, now);
		}
	}
	dt_group_unlock(g);
	/* a debt that has been paid is removed only by the session itself */
	if (debt != NULL && info->debt[DT_DIRTY] == 0 && info->debt[DT_WAL] == 0)
		still = false;
	return still;
}

int
dt_group_info_members(DtMemberInfo **infos)
{
	int			n = 0;
	int			i;
	int			j;

	*infos = palloc_extended(dt_shared->n_members * (1 + DT_DEBTS) *
							 sizeof(DtMemberInfo), MCXT_ALLOC_HUGE);
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		DtGroup    *g = dt_members[i].group;

		if (g != NULL && copy_member(&(*infos)[n], i, NULL, g))
			n++;
		for (j = 0; j < DT_DEBTS; j++)
		{
			DtDebt	   *debt = &dt_members[i].debts[j];

			if ((g = debt->group) != NULL &&
				copy_member(&(*infos)[n], i, debt, g))
				n++;
		}
	}
	LWLockRelease(dt_shared->registry_lock);
	return n;
}
