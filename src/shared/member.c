/*-------------------------------------------------------------------------
 *
 * member.c
 *		Which session is a member of which group.
 *
 * Shared memory has one slot per process, found by its proc number.  A session
 * joins and leaves groups by itself; set_session_group() and a forced drop do
 * so on behalf of other sessions.  Those find out when they look at their
 * slot, at each charge and when their latch is set; see account.c.
 *
 * Joining and leaving take the registry lock (shared, or exclusive on behalf
 * of another session) and the group's spinlock.  Only at the end of a process
 * the spinlock is enough.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared/member.h"
#include "shared/role_debt.h"
#include "storage/procarray.h"
#include "storage/procsignal.h"

#include "compat.h"

/* Workers use less than half of this before their work, in bytes. */
#define FEW_BYTES			(32 * (int64) BLCKSZ)

static const int64 nothing[DT_RESOURCES] = {0};

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
 * Join a group.  The caller holds the registry lock, so the group stays.  If
 * the group is the session's creditor, the session pauses for that anyhow, and
 * need not wait for its role as well.
 */
static void
enter_group(DtMember *member, DtGroup *g)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		member->usage[r].used = 0;
		dt_rate_join(&g->usage[r].engine, &member->account[r], now);
	}
	memset(&member->stats, 0, sizeof(member->stats));
	member->sleepers = 0;
	member->pays_for_role = OidIsValid(member->role) && member->creditor != g;
	member->exempt_from = 0;
	member->times_joined++;
	member->group = g;
	g->members++;
	dt_group_unlock(g);
}

/*
 * Leave the group, on behalf of the session.  False when it has left already.
 */
static bool
leave_group(DtMember *member, DtGroup *g)
{
	int64		now = dt_now_us();
	bool		is_member;

	dt_group_lock(g);
	is_member = (member->group == g);
	if (is_member)
		(void) dt_member_leave(member, nothing, now);
	dt_group_unlock(g);
	return is_member;
}

const char *
dt_member_cause_name(DtPauseCause cause)
{
	static const char *const names[DT_BY_SIGNAL] = {
		[DT_BY_DIRTY] = "dirty",
		[DT_BY_WAL] = "wal",
		[DT_BY_SUSPEND] = "suspend_group",
		[DT_BY_ROLE] = "ended_sessions"
	};

	return cause < DT_BY_SIGNAL ? names[cause] :
		dt_signals[cause - DT_BY_SIGNAL].name;
}

int64
dt_member_xact_paused_us(const DtMember *member)
{
	int64		sum = 0;

	for (int cause = 0; cause < DT_PAUSE_CAUSES; cause++)
		sum += member->xact.paused_us[cause];
	return sum;
}

static void
count_time(DtMember *member, int64 now)
{
	member->xact.paused_us[member->paused_by] +=
		now - member->paused_by_since_us;
	member->paused_by_since_us = now;
}

void
dt_member_note_cause(DtMember *member, DtPauseCause cause, int64 now)
{
	if (member->paused_in != NULL && member->paused_by != cause)
		count_time(member, now);
	member->paused_by = cause;
}

void
dt_member_falls_asleep(DtMember *member, DtGroup *g, int64 now,
					   TimestampTz wall_clock)
{
	if (member->sleepers++ > 0)
		return;
	strlcpy(member->xact.group_name, g->definition.name, NAMEDATALEN);
	member->paused_in = g;
	member->paused_by_since_us = member->paused_since_us = now;
	member->paused_since = wall_clock;
	g->paused++;
}

void
dt_member_wakes_up(DtMember *member, DtGroup *g, int64 now)
{
	if (member->paused_in != g || --member->sleepers > 0)
		return;
	count_time(member, now);
	member->paused_in = NULL;
	member->stats.paused_us += now - member->paused_since_us;
	g->stats.paused_us += now - member->paused_since_us;
	g->paused--;
}

/*
 * Count the member as awake, even if its processes are asleep.  They wake up
 * later and look at their account.
 */
static void
end_pause(DtMember *member, DtGroup *g, int64 now)
{
	if (member->paused_in != g)
		return;
	member->sleepers = 1;
	dt_member_wakes_up(member, g, now);
}

void
dt_member_note_release(DtMember *member, DtGroup *g, int pid, int64 now,
					   TimestampTz wall_clock)
{
	if (member->released_since != 0)
	{
		int64		us = now - member->released_up_to_us;

		member->stats.released_us += us;
		g->stats.released_us += us;
		member->xact.released_us += us;
	}
	else if (pid != 0)
	{
		member->stats.releases++;
		g->stats.releases++;
		member->xact.releases++;
		member->released_since = wall_clock;
	}
	member->released_up_to_us = now;
	if (pid != 0)
		member->xact.released_for = pid;
	else
		member->released_since = 0;
}

static void
end_membership(DtMember *member, int64 now)
{
	DtGroup    *g = member->group;

	end_pause(member, g, now);
	dt_member_note_release(member, g, 0, now, 0);
	g->members--;
	member->group = NULL;
}

int64
dt_member_leave(DtMember *member, const int64 uncharged[DT_RESOURCES],
				int64 now)
{
	DtGroup    *g = member->group;
	int64		owed_us;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;

		(void) dt_rate_charge(engine, &member->account[r], uncharged[r], now, 0);
		if (g->definition.observe)
			(void) dt_rate_forgive(engine, &member->account[r], now);
	}
	owed_us = dt_role_debt_inherit(g, member->role, member->account, now);
	end_membership(member, now);
	return owed_us;
}

DtGroup *
dt_member_lock_creditor(DtMember *member)
{
	DtGroup    *g = member->creditor;

	if (g == NULL)
		return NULL;
	dt_group_lock(g);
	if (g->id == member->creditor_id)
		return g;
	dt_group_unlock(g);
	member->creditor = NULL;
	return NULL;
}

void
dt_member_forget_creditor(DtMember *member)
{
	int64		now = dt_now_us();
	DtGroup    *g = dt_member_lock_creditor(member);

	if (g == NULL)
		return;
	if (member->group != g)
		end_pause(member, g, now);
	member->creditor = NULL;
	dt_group_unlock(g);
}

/*
 * What parallel workers have charged to an earlier group must not be left out
 * of what the session is charged in the next one.
 */
static void
forget_workers(DtMember *member)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		member->usage[r].charged_by_workers = 0;
}

void
dt_member_join(DtMember *member, DtGroup *g)
{
	Assert(member->group == NULL);
	forget_workers(member);
	enter_group(member, g);
}

/*
 * The slot of the session with that process ID; the caller holds the registry
 * lock.
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
				 errmsg("session with process ID %d does not exist", pid),
				 errhint("The view pg_stat_activity lists the sessions.")));
	member = proc ? &dt_members[GetNumberFromPGProc(proc)] : NULL;
	if (member == NULL || member->pid != pid)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot set the resource group of process %d",
						pid),
				 leader != NULL && leader != proc ?
				 errhint("The process is a parallel worker. Move its leader, process %d, instead.",
						 leader->pid) :
				 errhint("Only client sessions and background workers with a database can be moved. For autovacuum workers set dirty_throttle.autovacuum_group, and for logical replication workers dirty_throttle.apply_group.")));
	return member;
}

/*
 * Wake the processes of one member or, if that is NULL, of all who are in g
 * or owe to it.  It does no harm to set the latch of a process that is not
 * asleep, or that has exited meanwhile.
 *
 * also_busy: request a check for interrupts, too, in those that can pause
 * there; see check.c, which serves that.
 */
static void
wake(const DtMember *one, const DtGroup *g, bool also_busy)
{
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		DtMember   *member = dt_member_of(proc);

		if (one != NULL ? member != one :
			(member->group != g && member->creditor != g))
			continue;
		SetLatch(&proc->procLatch);
		if (!also_busy || !dt_members[i].can_be_asked)
			continue;
		dt_members[i].asked = 1;
		pg_write_barrier();
		(void) SendProcSignal(proc->pid, PROCSIG_LOG_MEMORY_CONTEXT,
							  INVALID_PROC_NUMBER);
	}
}

void
dt_member_wake_all(DtGroup *g, bool also_busy)
{
	wake(NULL, g, also_busy);
}

void
dt_member_move(int pid, const char *name)
{
	DtGroup    *g = NULL;
	DtGroup    *old;
	DtMember   *member;
	bool		was_in_none;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (name != NULL && name[0] != '\0')
		g = dt_group_find_or_error(name);
	member = find_session(pid);
	if (name == NULL && !member->moved)
	{
		LWLockRelease(dt_shared->registry_lock);
		return;
	}
	was_in_none = member->group == NULL && g != NULL;
	dt_member_forget_creditor(member);
	if (member->group != g)
	{
		if (member->group == NULL)
			forget_workers(member);
		while ((old = member->group) != NULL)
			(void) leave_group(member, old);
		if (g != NULL)
			enter_group(member, g);
		else
			member->times_left++;
	}
	member->moved = (name != NULL);

	/* one that was in no group does not look at its account while it works */
	wake(member, NULL, was_in_none);
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * First remove everything that sleepers pause for, then wake them.  The
 * registry lock keeps sessions from becoming members or debtors meanwhile (see
 * DtMember), so a slot that the loop has passed stays as it is.  Those that
 * exit leave by themselves; after the first step they owe nothing.
 */
void
dt_member_take_out_all(DtGroup *g)
{
	int64		now = dt_now_us();

	Assert(LWLockHeldByMeInMode(dt_shared->registry_lock, LW_EXCLUSIVE));
	dt_group_lock(g);
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_set(&g->usage[r].engine, 0, now);
	g->suspended_since = 0;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g, false);

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *member = &dt_members[i];

		if (member->creditor == g)
			dt_member_forget_creditor(member);
		if (member->group != g)
			continue;
		if (leave_group(member, g))
			member->times_left++;
		member->moved = false;	/* its own parameter counts again */
	}
}

bool
dt_member_group_name(DtMember *member, char *name)
{
	DtGroup    *g;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = member->group;
	if (g != NULL)
		strlcpy(name, g->definition.name, NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return g != NULL;
}

/*
 * The leader's counter has gained "bytes": how many of these have parallel
 * workers charged already?  From then on they count as left out.  The group is
 * locked.
 *
 * Workers without a plan, such as those of CREATE INDEX, charge for the whole
 * command, and the core adds all that they have used to the leader's counter
 * in one go, at its end.  A gain that is much less than that is the leader's
 * own.
 */
int64
dt_member_take_workers_part(DtMember *member, DtResource resource, int64 bytes)
{
	int64	   *charged = &member->usage[resource].charged_by_workers;
	int64		theirs = Min(*charged, bytes);

	if (member->workers_have_no_plan && *charged > FEW_BYTES &&
		bytes < *charged / 2)
		theirs = 0;
	*charged -= theirs;
	return theirs;
}
