/*-------------------------------------------------------------------------
 *
 * member.c
 *		Which session is a member of which group.
 *
 * Shared memory has one slot per process, found by its proc number.  A session
 * joins and leaves groups by itself; set_session_group() and a forced drop do
 * so on behalf of other sessions.  Those find out when they look at their
 * slot: at each charge, and when they sleep and their latch is set; see account.c.
 *
 * Joining and leaving take the registry lock (shared, or exclusive on behalf
 * of another session) and the group's spinlock.  At the end of a process
 * the spinlock is enough.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "shared/member.h"
#include "shared/role_debt.h"
#include "storage/procarray.h"

#include "compat.h"

void
dt_member_publish(DtMember *member, int pid)
{
	dt_lock_unqueued(dt_shared->registry_lock, LW_SHARED);
	member->moved = false;
	member->pid = pid;
	LWLockRelease(dt_shared->registry_lock);
}

static void
end_repaid_debts(int64 now)
{
	for (int i = 0; i < dt_shared->n_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id == 0)
			continue;
		dt_group_lock(g);
		dt_role_debt_end_repaid(g, now);
		dt_group_unlock(g);
	}
}

/* The caller holds the registry lock, so the group stays. */
void
dt_member_join(DtMember *member, DtGroup *g)
{
	int64		now = dt_now_us();

	Assert(member->group == NULL);
	if (unlikely(dt_role_debt_is_short(now)))
		end_repaid_debts(now);
	dt_group_lock(g);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		member->usage[r].used = 0;
		dt_meter_reset(&member->usage[r].meter, now);
		dt_rate_join(&g->usage[r].engine, &member->account[r], now);
	}
	dt_role_debt_take_over(g, member, now);
	memset(member->stats, 0, sizeof(member->stats));
	member->times_joined++;
	member->group = g;
	g->members++;
	dt_group_unlock(g);
}

/* Leave the group, on behalf of the session, unless it has left already. */
static void
leave_group(DtMember *member, DtGroup *g, bool to_none)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	if (member->group == g)
		dt_member_leave(member, to_none, now);
	dt_group_unlock(g);
}

const char *
dt_member_cause_name(DtPauseCause cause)
{
	static const char *const names[DT_BY_SIGNAL] = {
		[DT_BY_DIRTY] = "dirty",
		[DT_BY_WAL] = "wal",
		[DT_BY_SUSPEND] = "suspend_group"
	};

	return cause < DT_BY_SIGNAL ? names[cause] :
		dt_signals[cause - DT_BY_SIGNAL].name;
}

void
dt_member_count(DtMember *member, DtGroup *g, DtCounter counter, int64 n)
{
	if (g != NULL && member->group == g)
		member->stats[counter] += n;
	member->xact.stats[counter] += n;
	if (g != NULL)
		g->stats[counter] += n;
}

/* When several processes of a session pause at the same time, that counts once. */
void
dt_member_begin_pause(DtMember *member, DtPause *pause, int64 now)
{
	pause->is_on = true;
	if (pg_atomic_fetch_add_u32(&member->n_pausing, 1) == 0)
		member->paused_up_to_us = now;
}

void
dt_member_end_pause(DtMember *member, DtPause *pause)
{
	bool		was_on = pause->is_on;

	pause->group = NULL;
	/* first, as SIGTERM may end a background worker at any instruction */
	pause->is_on = false;
	pg_compiler_barrier();
	if (was_on)
		pg_atomic_fetch_sub_u32(&member->n_pausing, 1);
}

/*
 * When the group has been dropped meanwhile, the session has paused all the same.
 */
void
dt_member_count_pause(DtMember *member, DtPause *pause, int64 now)
{
	DtGroup    *g = pause->group->id == pause->group_id ? pause->group : NULL;
	int64		us = now - member->paused_up_to_us;

	if (!pause->counted)
	{
		pause->counted = true;
		dt_member_count(member, g, DT_PAUSES, 1);
	}
	if (us > 0)
	{
		dt_member_count(member, g, DT_PAUSED_US, us);
		member->xact.paused_us[pause->cause] += us;
	}
	/* another process of this session may have read its time later */
	member->paused_up_to_us = Max(member->paused_up_to_us, now);
}

void
dt_member_note_release(DtMember *member, DtGroup *g, int pid, int64 now,
					   TimestampTz wall_clock)
{
	if (member->released_since != 0)
		dt_member_count(member, g, DT_RELEASED_US,
						now - member->released_up_to_us);
	else if (pid != 0)
	{
		dt_member_count(member, g, DT_RELEASES, 1);
		member->released_since = wall_clock;
	}
	member->released_up_to_us = now;
	if (pid != 0)
		member->xact.released_for = pid;
	else
		member->released_since = 0;
}

void
dt_member_leave(DtMember *member, bool to_none, int64 now)
{
	DtGroup    *g = member->group;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		if (g->definition.observe)
			(void) dt_rate_forgive(&g->usage[r].engine, &member->account[r],
								   now);
	}
	dt_role_debt_leave(g, member, now);
	dt_member_note_release(member, g, 0, now, 0);
	if (to_none)
		member->times_left++;
	g->members--;
	member->group = NULL;
}

/*
 * The slot of the session with that process ID.  The caller holds the registry
 * lock; it is released before an ERROR, as in dt_group_find_or_error().
 */
DtMember *
dt_member_find(int pid)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	PGPROC	   *leader = proc ? proc->lockGroupLeader : NULL;
	DtMember   *member = proc ? &dt_members[GetNumberFromPGProc(proc)] : NULL;

	if (member != NULL && member->pid == pid)
		return member;
	LWLockRelease(dt_shared->registry_lock);
	if (proc == NULL && AuxiliaryPidGetProc(pid) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("session with process ID %d does not exist", pid),
				 errhint("The view pg_stat_activity lists the sessions.")));
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot set the resource group of process %d", pid),
			 leader != NULL && leader != proc ?
			 errhint("The process is a parallel worker. Move its leader, process %d, instead.",
					 leader->pid) :
			 errhint("Only client sessions and background workers with a database can be moved. For autovacuum workers set dirty_throttle.autovacuum_group, and for logical replication workers dirty_throttle.apply_group.")));
}

bool
dt_member_ask(PGPROC *proc)
{
	DtMember   *member = &dt_members[GetNumberFromPGProc(proc)];
	int			pid = ((volatile PGPROC *) proc)->pid;

	if (pid == 0 || !member->can_be_asked)
		return false;
	member->asked = 1;
	pg_write_barrier();
	return kill(pid, SIGUSR1) == 0;
}

/*
 * Wake the processes of one member or, if that is NULL, of all who are in g.  It
 * does no harm to set the latch of a process that is not asleep, or that has
 * exited meanwhile.
 *
 * also_busy: request a check for interrupts, too, in those where one can be
 * requested; see check.c, which serves that.
 */
static void
wake(const DtMember *one, const DtGroup *g, bool also_busy)
{
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		DtMember   *member = dt_member_of(proc);

		if (one != NULL ? member != one : member->group != g)
			continue;
		SetLatch(&proc->procLatch);
		if (also_busy)
			(void) dt_member_ask(proc);
	}
}

void
dt_member_wake_all(DtGroup *g)
{
	wake(NULL, g, false);
}

void
dt_member_put(DtMember *member, DtGroup *g)
{
	bool		was_in_none = member->group == NULL && g != NULL;
	DtGroup    *old;

	if (member->group != g)
	{
		while ((old = member->group) != NULL)
			leave_group(member, old, g == NULL);
		if (g != NULL)
			dt_member_join(member, g);
	}
	/* one that was in no group does not look at its account while it works */
	wake(member, NULL, was_in_none);
}

/*
 * First remove everything that sleepers pause for, then wake them.  The
 * registry lock keeps sessions from becoming members meanwhile (see DtMember),
 * so a slot that the loop has passed stays as it is.  Those that
 * exit leave by themselves; after the first step they owe nothing.
 */
void
dt_member_take_out_all(DtGroup *g)
{
	int64		now = dt_now_us();

	Assert(LWLockHeldByMeInMode(dt_shared->registry_lock, LW_EXCLUSIVE));
	dt_group_lock(g);
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_set(&g->usage[r].engine, 0, 0, now);
	g->suspended_since = 0;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *member = &dt_members[i];

		if (member->group != g)
			continue;
		leave_group(member, g, true);
		member->moved = false;	/* its own parameter counts again */
	}
}
