/*-------------------------------------------------------------------------
 *
 * member.c
 *		Who is a member of which group.
 *
 * Shared memory has a slot per process, found by proc number.  A session
 * enters and leaves groups by itself; set_session_group() and a forced drop do
 * it for others.  Those find out by looking at their slot, at each charge and
 * when their latch is set; see account.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "interrupt.h"
#include "member.h"
#include "miscadmin.h"
#include "registry.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "compat.h"

static const int64 nothing[DT_RESOURCES] = {0};

DtMember *
dt_member_mine(void)
{
	Assert(MyProc != NULL && MyProcNumber < dt_shared->n_members);
	return &dt_members[MyProcNumber];
}

DtMember *
dt_member_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return &dt_members[GetNumberFromPGProc(leader ? leader : proc)];
}

void
dt_member_publish(DtMember *member)
{
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	member->moved = false;
	member->pid = MyProcPid;
	LWLockRelease(dt_shared->registry_lock);
}

void
dt_member_unpublish(DtMember *member)
{
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	member->pid = 0;
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * What the session owes to this group, or with NULL, one that is free.
 */
static DtDebt *
find_debt(DtMember *member, DtGroup *g)
{
	int			i;

	for (i = 0; i < DT_DEBTS; i++)
		if (member->debts[i].group == g)
			return &member->debts[i];
	return NULL;
}

/*
 * Enter a group.  Under the registry lock, so that it does not go away.  What
 * it owes there already is its account.
 */
static void
enter(DtMember *member, DtGroup *g)
{
	int64		now = dt_now_us();
	DtDebt	   *debt;
	int			r;

	dt_group_lock(g);
	debt = find_debt(member, g);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		member->use[r].used = 0;
		if (debt != NULL)
			dt_rate_move(&g->use[r].rate, &debt->rate[r],
						 &member->use[r].rate);
		else
			dt_rate_join(&g->use[r].rate, &member->use[r].rate, 1, now);
	}
	if (debt != NULL)
		debt->group = NULL;
	memset(&member->stats, 0, sizeof(member->stats));
	member->sleepers = 0;
	member->entries++;
	member->group = g;
	g->members++;
	dt_group_unlock(g);
}

/*
 * Leave whatever group it is in, on behalf of the session.
 */
static void
leave(DtMember *member)
{
	DtGroup    *g;

	while ((g = member->group) != NULL)
	{
		int64		now = dt_now_us();

		dt_group_lock(g);
		if (member->group == g)
			dt_member_leave(member, nothing, now);
		dt_group_unlock(g);
	}
}

void
dt_member_pause(DtMember *member, DtGroup *g, int64 now,
				TimestampTz wall_clock)
{
	if (member->sleepers++ > 0)
		return;
	member->paused_in = g;
	member->paused_since_us = now;
	member->paused_since = wall_clock;
	g->paused++;
}

void
dt_member_resume(DtMember *member, DtGroup *g, int64 now)
{
	if (member->paused_in != g || --member->sleepers > 0)
		return;
	member->paused_in = NULL;
	member->stats.paused_us += now - member->paused_since_us;
	g->stats.paused_us += now - member->paused_since_us;
	g->paused--;
}

/*
 * The session itself, or its parallel workers, may be asleep: they find out.
 */
static void
end_pause(DtMember *member, DtGroup *g, int64 now)
{
	if (member->paused_in != g)
		return;
	member->sleepers = 1;
	dt_member_resume(member, g, now);
}

/*
 * Its group is not its group any more.
 */
static void
end_membership(DtMember *member, int64 now)
{
	DtGroup    *g = member->group;

	end_pause(member, g, now);
	g->members--;
	member->group = NULL;
}

void
dt_member_leave(DtMember *member, const int64 unbilled[DT_RESOURCES],
				int64 now)
{
	DtGroup    *g = member->group;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (g->observe)
			(void) dt_rate_forgive(&g->use[r].rate, &member->use[r].rate, now);
		dt_rate_leave(&g->use[r].rate, &member->use[r].rate, unbilled[r], now);
	}
	end_membership(member, now);
}

bool
dt_member_leave_owing(DtMember *member, const int64 unbilled[DT_RESOURCES],
					  int64 now)
{
	DtGroup    *g = member->group;
	DtDebt	   *debt = find_debt(member, NULL);
	bool		owes = false;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateMember *account = &member->use[r].rate;

		(void) dt_rate_charge(&g->use[r].rate, account, unbilled[r], now, 0);
		if (dt_rate_debt(&g->use[r].rate, account, now) > 0)
			owes = true;
	}
	if (!owes)
	{
		dt_member_leave(member, nothing, now);
		return true;
	}
	if (debt == NULL)
		return false;
	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_move(&g->use[r].rate, &member->use[r].rate, &debt->rate[r]);
	debt->group = g;
	end_membership(member, now);
	return true;
}

DtGroup *
dt_member_lock_debt(DtDebt *debt)
{
	DtGroup    *g = debt->group;

	if (g == NULL)
		return NULL;
	dt_group_lock(g);
	if (debt->group == g)
		return g;
	dt_group_unlock(g);			/* others have ended it, and none begins */
	return NULL;
}

void
dt_member_end_debt(DtMember *member, DtDebt *debt, int64 now)
{
	int			r;

	end_pause(member, debt->group, now);
	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&debt->group->use[r].rate, &debt->rate[r], 0, now);
	debt->group = NULL;
}

void
dt_member_leave_debts(DtMember *member)
{
	int			i;

	for (i = 0; i < DT_DEBTS; i++)
	{
		int64		now = dt_now_us();
		DtGroup    *g = dt_member_lock_debt(&member->debts[i]);

		if (g == NULL)
			continue;
		dt_member_end_debt(member, &member->debts[i], now);
		dt_group_unlock(g);
	}
}

void
dt_member_lock(void)
{
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
}

void
dt_member_unlock(void)
{
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * Who is moved may have workers that have left word; who was in no group has
 * none that count.
 */
static void
forget_workers(DtMember *member)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		member->use[r].prepaid = 0;
}

bool
dt_member_join(DtMember *member, uint64 *id, const char *name)
{
	DtGroup    *g = dt_registry_find_id(*id);

	Assert(member->group == NULL);
	if (g == NULL)
		g = dt_registry_find(name);
	if (g == NULL)
		return false;
	*id = g->id;
	forget_workers(member);
	enter(member, g);
	return true;
}

/*
 * The slot of the session with that process ID.  Under the registry lock.
 */
static DtMember *
find_session(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	PGPROC	   *leader = proc ? proc->lockGroupLeader : NULL;
	DtMember   *member;

	if (proc == NULL && AuxiliaryPidGetProc(pid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no session with process ID %d", pid),
				 errhint("The view pg_stat_activity lists the sessions.")));
	member = proc ? &dt_members[GetNumberFromPGProc(proc)] : NULL;
	if (member == NULL || member->pid != pid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("process %d is not a session that can be in a resource group",
						pid),
				 leader != NULL && leader != proc ?
				 errhint("It is a parallel worker: move its leader, process %d.",
						 leader->pid) :
				 errhint("Client sessions and background workers with a database can be moved; for autovacuum and logical replication set dirty_throttle.autovacuum_group and dirty_throttle.apply_group.")));
	return member;
}

void
dt_member_move(int pid, const char *name)
{
	DtGroup    *g = NULL;
	DtMember   *member;
	bool		was_in_none;
	int			i;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (name != NULL && (g = dt_registry_find(name)) == NULL)
		dt_group_missing(name);
	member = find_session(pid);
	was_in_none = member->group == NULL && g != NULL;
	if (member->group != g)
	{
		if (member->group == NULL)
			forget_workers(member);
		dt_member_leave_debts(member);
		leave(member);
		if (g != NULL)
			enter(member, g);
		else
			member->releases++;
	}
	member->moved = true;

	/*
	 * It and its parallel workers look at their account again: who sleeps, and
	 * who was in no group and runs something.
	 */
	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);

		if (dt_member_of(proc) != member)
			continue;
		SetLatch(&proc->procLatch);
		if (was_in_none && dt_members[i].pauses_at_checks)
			dt_interrupt_send(proc->pid, &dt_members[i].asked);
	}
	LWLockRelease(dt_shared->registry_lock);
}

void
dt_member_settle(DtMember *member)
{
	if (!member->moved)
		return;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	member->moved = false;
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * A latch is set for a process that may have gone meanwhile, or that is not
 * asleep; neither does any harm.
 */
void
dt_member_wake_all(DtGroup *g)
{
	int			i;

	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		DtMember   *member = dt_member_of(proc);

		if (member->group == g || find_debt(member, g) != NULL)
			SetLatch(&proc->procLatch);
	}
}

/*
 * Under the registry lock, exclusive.  From here on there is nothing to pause
 * for.
 */
void
dt_member_release_all(DtGroup *g)
{
	int64		now = dt_now_us();
	int			r;
	int			i;

	dt_group_lock(g);
	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_set(&g->use[r].rate, 0, now);
	g->stopped_since = 0;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);

	for (i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *member = &dt_members[i];
		DtDebt	   *debt = find_debt(member, g);

		if (debt != NULL && dt_member_lock_debt(debt) != NULL)
		{
			dt_member_end_debt(member, debt, now);
			dt_group_unlock(g);
		}
		if (member->group != g)
			continue;
		dt_group_lock(g);
		if (member->group == g)
		{
			dt_member_leave(member, nothing, now);
			member->releases++;
		}
		dt_group_unlock(g);
		member->moved = false;	/* back to its own settings */
	}
}

uint64
dt_member_group_id(DtMember *member)
{
	return member->group ? member->group->id : 0;
}

bool
dt_member_group_name(DtMember *member, char *name)
{
	DtGroup    *g;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = member->group;
	if (g != NULL)
		strlcpy(name, g->name, NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return g != NULL;
}
