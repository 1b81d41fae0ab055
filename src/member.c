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

#include <signal.h>

#include "member.h"
#include "miscadmin.h"
#include "moved.h"
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
dt_member_leader(void)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;

	return leader ? &dt_members[GetNumberFromPGProc(leader)] :
		dt_member_mine();
}

void
dt_member_publish(DtMember *member, bool listens)
{
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	member->moved = false;
	member->listens = listens;
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
 * Enter a group.  Under the registry lock, so that it does not go away.
 */
static void
enter(DtMember *member, DtGroup *g)
{
	int64		now = dt_now_us();
	int			r;

	SpinLockAcquire(&g->lock);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		member->use[r].used = 0;
		dt_rate_join(&g->use[r].rate, &member->use[r].rate, 1, now);
	}
	memset(&member->stats, 0, sizeof(member->stats));
	member->sleepers = 0;
	member->entries++;
	member->group = g;
	SpinLockRelease(&g->lock);
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

		SpinLockAcquire(&g->lock);
		if (member->group == g)
			dt_member_leave(member, nothing, now);
		SpinLockRelease(&g->lock);
	}
}

void
dt_member_leave(DtMember *member, const int64 unbilled[DT_RESOURCES],
				int64 now)
{
	DtGroup    *g = member->group;
	int			r;

	if (member->sleepers > 0)
	{
		/* the session itself, or its parallel workers: they find out */
		g->stats.paused_us += now - member->paused_since_us;
		g->paused--;
		member->sleepers = 0;
	}
	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (g->observe)
			(void) dt_rate_forgive(&g->use[r].rate, &member->use[r].rate, now);
		dt_rate_leave(&g->use[r].rate, &member->use[r].rate, unbilled[r], now);
	}
	member->group = NULL;
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
	int			i;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (name != NULL && (g = dt_registry_find(name)) == NULL)
		dt_group_missing(name);
	member = find_session(pid);
	if (member->group != g)
	{
		if (member->group == NULL)
			forget_workers(member);
		leave(member);
		if (g != NULL)
			enter(member, g);
		else
			member->releases++;
	}
	member->moved = true;

	/* no other process can have its ID before it has given back its slot */
	if (member->listens)
		kill(pid, DT_MOVED_SIGNAL);

	/* it and its parallel workers look at their account again */
	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		PGPROC	   *leader = proc->lockGroupLeader;

		if (&dt_members[i] == member ||
			(leader && &dt_members[GetNumberFromPGProc(leader)] == member))
			SetLatch(&proc->procLatch);
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
		PGPROC	   *leader = proc->lockGroupLeader;
		int			member = leader ? GetNumberFromPGProc(leader) : i;

		if (dt_members[member].group == g)
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

	SpinLockAcquire(&g->lock);
	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_set(&g->use[r].rate, 0, now);
	g->stopped_since = 0;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	SpinLockRelease(&g->lock);
	dt_member_wake_all(g);

	for (i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *member = &dt_members[i];

		if (member->group != g)
			continue;
		SpinLockAcquire(&g->lock);
		if (member->group == g)
		{
			dt_member_leave(member, nothing, now);
			member->releases++;
		}
		SpinLockRelease(&g->lock);
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
