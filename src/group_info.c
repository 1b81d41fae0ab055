/*-------------------------------------------------------------------------
 *
 * group_info.c
 *		What the views show of groups and of members: copies, no pointers.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "group_info.h"
#include "miscadmin.h"
#include "registry.h"

#include "compat.h"

static void
copy_use(DtGroupUseInfo *info, DtGroupUse *use, int64 now)
{
	info->limit = use->rate.rate;
	info->rate = dt_meter_rate(&use->meter, now);
	info->used = use->used;
	info->debt = dt_rate_group_debt(&use->rate, now);
	info->profile = use->profile;
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
		strlcpy(info->name, g->name, NAMEDATALEN);
		info->now = now = dt_now_us();
		SpinLockAcquire(&g->lock);
		info->members = g->use[DT_DIRTY].rate.n_members;
		info->paused = g->paused;
		info->burst_us = g->use[DT_DIRTY].rate.burst_us;
		info->observe = g->observe;
		info->stopped_hard = g->stopped_hard;
		info->stopped_since = g->stopped_since;
		info->stats = g->stats;
		info->stats_reset = g->stats_reset;
		for (r = 0; r < DT_RESOURCES; r++)
			copy_use(&info->use[r], &g->use[r], now);
		SpinLockRelease(&g->lock);
		n++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return n;
}

int
dt_group_info_members(DtMemberInfo **infos)
{
	int			n = 0;
	int			i;
	int			r;

	*infos = palloc0(dt_shared->n_members * sizeof(DtMemberInfo));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *m = &dt_members[i];
		DtMemberInfo *info = &(*infos)[n];
		DtGroup    *g = m->group;
		PGPROC	   *proc = GetPGProcByNumber(i);
		int64		now;
		bool		still_member;

		if (g == NULL)
			continue;
		strlcpy(info->group_name, g->name, NAMEDATALEN);
		info->moved = m->moved;
		now = dt_now_us();
		SpinLockAcquire(&g->lock);
		still_member = (m->group == g);
		if (still_member)
		{
			info->pid = proc->pid;
			info->userid = proc->roleId;
			info->databaseid = proc->databaseId;
			for (r = 0; r < DT_RESOURCES; r++)
			{
				info->used[r] = m->use[r].used;
				info->debt[r] = dt_rate_debt(&g->use[r].rate, &m->use[r].rate,
											 now);
			}
			info->stats = m->stats;
			info->paused_since = 0;
			if (m->sleepers > 0)
			{
				info->stats.paused_us += now - m->paused_since_us;
				info->paused_since = m->paused_since;
				info->paused_by = m->paused_by;
			}
		}
		SpinLockRelease(&g->lock);
		if (still_member)
			n++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return n;
}
