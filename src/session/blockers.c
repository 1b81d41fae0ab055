/*-------------------------------------------------------------------------
 *
 * blockers.c
 *		Has somebody outside the group waited too long for this session?
 *
 * A member that pauses in flight holds its heavyweight locks, and one that
 * pauses before a transaction those of a query's parse analysis.  It looks
 * now and then who waits for them: it walks the locks of its own processes,
 * and where a member of its group waits for one, goes on with the locks of
 * that member, and so on.  What this costs depends on the number of these
 * locks, not on the number of processes.  Each list is read with its
 * partition lock in shared mode, and only one of these locks is held at a
 * time.
 *
 * Whoever is not in the group is an outsider, also the startup process of a
 * standby.  Autovacuum workers are not outsiders, unless they are needed to
 * prevent wraparound for the server as a whole: a member could make one wait
 * whenever it likes, also one against wraparound by the storage parameters of
 * its own table.  Who waits for an autovacuum worker that waits for this
 * session does count.
 *
 * On a standby, replay also waits for pins of pages and for snapshots.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/blockers.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"

/*
 * How often to look.  A process that begins to wait just after a look, and is
 * found by the next one, has waited for no longer than the time between the
 * two; so looking once in max_blocking_time is enough.
 */
#define SHORTEST_INTERVAL_US	INT64CONST(10000)

/* When others wait, the session goes on for so long before it looks again. */
#define RELEASED_US		20000

static struct
{
	/* the last look that has found nobody who had waited too long */
	int64		looked_at_us;
	int64		waited_us;		/* how long the first that waited had done so */
	bool		looked_in_flight;

	/*
	 * "todo" has the proc numbers of the processes to walk, each once.  A
	 * process is among them if its element of "in_round" is the number of
	 * this walk.
	 */
	uint32	   *todo;
	uint32	   *in_round;
	int			n_todo;
	uint32		round;
	bool		must_freeze;	/* in this walk, of the server */
}			my;

typedef struct Walk
{
	PGPROC	   *holder;			/* the lock group leader for whom others wait */
	DtGroup    *group;			/* its group, NULL: none */
	bool		in_flight;		/* false: its advisory locks do not count */
	bool		lists;			/* "pids" is wanted */

	/* what is found */
	int			pid;			/* of the outsider that has waited longest; 0:
								 * nobody waits */
	int64		waited_us;		/* for so long */
	List	   *pids;			/* of all that wait */
} Walk;

static PGPROC *
leader_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return leader ? leader : proc;
}

/* Auxiliary processes, such as the startup process, have no slot. */
static bool
is_outsider(PGPROC *proc, DtGroup *group)
{
	PGPROC	   *leader = leader_of(proc);
	int			number = GetNumberFromPGProc(leader);
	uint8		flags = leader->statusFlags;

	if (number >= dt_shared->n_members)
		return true;
	if (group != NULL && dt_members[number].group == group)
		return false;
	return (flags & PROC_IS_AUTOVACUUM) == 0 ||
		((flags & PROC_VACUUM_FOR_WRAPAROUND) != 0 && my.must_freeze);
}

/*
 * An ERROR is not possible everywhere a process looks; false: no memory.
 */
static bool
begin_round(void)
{
	int			n = dt_shared->n_members;

	if (my.todo == NULL)
	{
		my.todo = MemoryContextAllocExtended(TopMemoryContext,
											 2 * n * sizeof(uint32),
											 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
		if (my.todo == NULL)
			return false;
		my.in_round = my.todo + n;
	}
	my.n_todo = 0;
	my.round++;
	my.must_freeze = dt_activity_must_freeze(100);
	return true;
}

static void
add(PGPROC *proc)
{
	int			number = GetNumberFromPGProc(proc);

	if (my.in_round[number] == my.round)
		return;
	my.in_round[number] = my.round;
	my.todo[my.n_todo++] = number;
}

/* A process, and if it is part of a parallel query, all others of that. */
static void
add_lock_group(PGPROC *proc)
{
	PGPROC	   *leader = leader_of(proc);
	LWLock	   *partition = LockHashPartitionLockByProc(leader);
	dlist_iter	iter;

	add(proc);
	if (proc->lockGroupLeader == NULL)
		return;
	LWLockAcquire(partition, LW_SHARED);
	dlist_foreach(iter, &leader->lockGroupMembers)
	{
		add(dlist_container(PGPROC, lockGroupLink, iter.cur));
	}
	LWLockRelease(partition);
}

/*
 * An outsider waits.  A wait has no start yet when it has just begun.  If it
 * starts in the future, the clock was set back, and how long it takes is not
 * known.
 */
static void
take_longest(Walk *walk, PGPROC *proc)
{
	TimestampTz started = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
	int64		waited_us = started == 0 ? 0 : dt_clock_since(started);

	if (waited_us < 0)
		waited_us = PG_INT64_MAX;
	if (walk->pid != 0 && waited_us <= walk->waited_us)
		return;
	walk->pid = proc->pid;
	walk->waited_us = waited_us;
}

/*
 * Who waits for this lock of a process, or in the queue behind one that does?
 */
static void
walk_queue(PROCLOCK *held, void *arg)
{
	Walk	   *walk = arg;
	LOCK	   *lock = held->tag.myLock;
	LockMethod	method = GetLocksMethodTable(lock);
	LOCKMASK	blocking = held->holdMask;
	PGPROC	   *proc = NULL;

	if (lock->waitMask == 0 || blocking == 0)
		return;
	if (lock->tag.locktag_lockmethodid != DEFAULT_LOCKMETHOD &&
		!walk->in_flight && held->groupLeader == walk->holder)
		return;
	while ((proc = dt_next_waiter(lock, proc)) != NULL)
	{
		bool		outsider;

		if ((method->conflictTab[proc->waitLockMode] & blocking) == 0 ||
			leader_of(proc) == held->groupLeader)
			continue;
		blocking |= LOCKBIT_ON(proc->waitLockMode);
		if (leader_of(proc) == walk->holder)
			continue;
		outsider = is_outsider(proc, walk->group);
		if (!outsider)
			add(proc);
		else
			take_longest(walk, proc);
		if (walk->lists)
			walk->pids = list_append_unique_int(walk->pids, proc->pid);
	}
}

/* Call a function for each lock of a process, with the partition locked. */
static void
walk_locks(PGPROC *proc, void (*function) (PROCLOCK *held, void *arg),
		   void *arg)
{
	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *partition = LockHashPartitionLockByIndex(i);
		PROCLOCK   *held = NULL;

		/* what is missed by reading this without the lock is seen next time */
		if (dt_next_lock(proc, i, NULL) == NULL)
			continue;
		LWLockAcquire(partition, LW_SHARED);
		while ((held = dt_next_lock(proc, i, held)) != NULL)
			function(held, arg);
		LWLockRelease(partition);
	}
}

/*
 * Find all that wait for walk->holder, directly or behind members of its
 * group.
 */
static void
walk_all(Walk *walk)
{
	if (!begin_round())
		return;
	add(walk->holder);
	for (int i = 0; i < my.n_todo; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(my.todo[i]);

		add_lock_group(proc);
		walk_locks(proc, walk_queue, walk);
	}
}

static void
note_extension(PROCLOCK *held, void *arg)
{
	if (held->tag.myLock->tag.locktag_type == LOCKTAG_RELATION_EXTEND)
		*(bool *) arg = true;
}

/*
 * Does this process extend a relation?  Whoever inserts into the same one
 * waits for that, also the other members, who would then all pause for one.
 */
bool
dt_blockers_extends_relation(void)
{
	bool		extends = false;

	walk_locks(MyProc, note_extension, &extends);
	return extends;
}

static void
note_any(PROCLOCK *held, void *arg)
{
	*(bool *) arg = true;
}

/*
 * Does this process hold locks?  Not counted are those that statements take on
 * the tables that they read and write, as long as nobody waits for them.
 */
bool
dt_blockers_has_locks(void)
{
	bool		has_locks = false;

	walk_locks(MyProc, note_any, &has_locks);
	return has_locks;
}

/*
 * Does replay wait for this process to unpin a page or, perhaps, to end its
 * snapshot?  For which snapshots it waits is not known.
 */
static bool
replay_waits(void)
{
	if (!RecoveryInProgress())
		return false;
	if (HoldingBufferPinThatDelaysRecovery())
		return true;
	for (int i = 0; i < NUM_AUXILIARY_PROCS && TransactionIdIsValid(MyProc->xmin); i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(dt_shared->n_members + i);
		uint32		event = ((volatile PGPROC *) proc)->wait_event_info;

		if (event == WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT ||
			event == WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE)
			return true;
	}
	return false;
}

/*
 * Has an outsider waited for max_blocking_time or, with "already", for any
 * time?  Sets its process ID, DT_REPLAY for WAL replay.
 */
static bool
somebody_waits(bool already, bool in_flight, int *pid)
{
	Walk		walk = {
		.holder = leader_of(MyProc),.group = dt_account.slot->group,
		.in_flight = in_flight
	};

	*pid = DT_REPLAY;
	if (replay_waits())
		return true;
	walk_all(&walk);
	*pid = walk.pid;
	if (walk.pid != 0 &&
		(already || walk.waited_us >= dt_parameters.max_blocking_time * INT64CONST(1000)))
		return true;
	my.looked_at_us = dt_now_us();
	my.waited_us = walk.waited_us;
	my.looked_in_flight = in_flight;
	return false;
}

int64
dt_blockers_interval(void)
{
	int64		interval = dt_parameters.max_blocking_time * INT64CONST(1000) -
		my.waited_us;

	if (dt_parameters.max_blocking_time < 0 || dt_account_is_suspended_hard())
		return PG_INT64_MAX;
	interval = Max(interval, SHORTEST_INTERVAL_US);
	return Max(my.looked_at_us + interval - dt_now_us(), 0);
}

bool
dt_blockers_check_release(bool in_flight)
{
	bool		already = dt_account.slot->released_until != 0;
	int			pid;

	if (dt_account_is_suspended_hard())
		return false;
	if (dt_account_is_released())
		return true;
	if (!already && in_flight == my.looked_in_flight && dt_blockers_interval() > 0)
		return false;
	if (dt_parameters.max_blocking_time < 0 || !somebody_waits(already, in_flight, &pid))
	{
		if (already)
			dt_blockers_end_release();
		return false;
	}
	dt_account_note_release(pid);
	dt_account.slot->released_until = dt_now_us() + RELEASED_US;
	return true;
}

void
dt_blockers_end_release(void)
{
	dt_account.slot->released_until = 0;
	dt_account_note_release(0);
}

List *
dt_blockers_list(int number)
{
	DtMember   *member = &dt_members[number];
	Walk		walk = {
		.holder = GetPGProcByNumber(number),.group = member->group,
		.in_flight = true,.lists = true
	};

	walk_all(&walk);
	if (member->released_since != 0 && member->xact.released_for == DT_REPLAY)
		walk.pids = lappend_int(walk.pids, DT_REPLAY);
	return walk.pids;
}
