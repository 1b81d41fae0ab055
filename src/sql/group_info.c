/*-------------------------------------------------------------------------
 *
 * group_info.c
 *		Copies of groups and members, for the views.
 *
 * Taken under the registry lock (shared), each group and member with its
 * group's spinlock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/group.h"
#include "shared/role_debt.h"
#include "sql/group_info.h"

/*
 * What a group owes is summed up around the ring of its members, under its
 * lock; all else is worked out from the copy.
 */
DtGroupCopy *
dt_group_copies(int *n)
{
	DtGroupCopy *copies = (DtGroupCopy *)
		CACHELINEALIGN(palloc0((dt_shared->max_groups + 1) *
							   sizeof(DtGroupCopy)));
	int			i;
	int			r;

	*n = 0;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtGroupCopy *copy = &copies[*n];

		if (g->id == 0)
			continue;
		copy->now = dt_now_us();
		dt_group_lock(g);
		dt_group_check_pressure(g, copy->now);
		for (r = 0; r < DT_RESOURCES; r++)
			copy->debt[r] = dt_rate_group_debt(&g->usage[r].rate, copy->now);
		copy->group = *g;
		dt_group_unlock(g);
		(*n)++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return copies;
}

/*
 * A session as a member of group g, or as one that has left it and still owes
 * to it, with no counters.  False when it is neither any more.
 */
static bool
copy_member(DtMemberCopy *copy, int number, bool has_left, DtGroup *g)
{
	DtMember   *m = &dt_members[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	bool		owes;
	int			r;

	copy->pid = proc->pid;
	copy->userid = proc->roleId;
	copy->databaseid = proc->databaseId;
	copy->group = g;
	strlcpy(copy->group_name, g->definition.name, NAMEDATALEN);
	copy->has_left = has_left;
	copy->now = dt_now_us();
	dt_group_lock(g);
	copy->member = *m;
	owes = m->creditor == g && m->creditor_id == g->id;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		copy->debt[r] = m->group != g ? 0 :
			dt_rate_debt(&g->usage[r].rate, &m->account[r], copy->now);
		if (owes || (m->paused_in == g && m->paused_by == DT_BY_ROLE))
			copy->debt[r] += dt_role_debt_bytes(g, m->role, r, copy->now);
	}
	dt_group_unlock(g);
	m = &copy->member;
	if (!has_left)
		return m->group == g;
	memset(m->usage, 0, sizeof(m->usage));
	memset(&m->stats, 0, sizeof(m->stats));
	m->moved = false;
	m->released_since = 0;
	/* that it has been repaid only the session itself notes */
	return owes && m->group != g &&
		(copy->debt[DT_DIRTY] != 0 || copy->debt[DT_WAL] != 0);
}

DtMemberCopy *
dt_member_copies(int *n)
{
	DtMemberCopy *copies = palloc_extended(dt_shared->n_members * 2 *
										   sizeof(DtMemberCopy),
										   MCXT_ALLOC_HUGE);
	int			i;

	*n = 0;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		DtGroup    *g = dt_members[i].group;

		if (g != NULL && copy_member(&copies[*n], i, false, g))
			(*n)++;
		if ((g = dt_members[i].creditor) != NULL &&
			copy_member(&copies[*n], i, true, g))
			(*n)++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return copies;
}
