/*-------------------------------------------------------------------------
 *
 * blockers.c
 *		Has somebody waited too long for a member that pauses?
 *
 * A member that pauses in flight holds its locks.  It looks now and then
 * whether any process has waited for a heavyweight lock for as long as
 * dirty_throttle.release_blockers says, which is a look at a few variables in
 * shared memory for each process; only for one that has, and for something that
 * we have locked, the core is asked who blocks it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "blockers.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "guc.h"
#include "member.h"
#include "miscadmin.h"
#include "registry.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Looks at all processes are not to be had too often. */
#define SHORTEST_INTERVAL_US	10000

int64
dt_blockers_interval(void)
{
	if (dt_release_blockers_ms == 0)
		return PG_INT64_MAX;
	return Max(dt_release_blockers_ms * INT64CONST(1000) / 4,
			   SHORTEST_INTERVAL_US);
}

/*
 * Has this process waited since "since" or longer for a lock on something that
 * we have locked, too?  All is read without a lock: what comes of it is only
 * that the core is asked.  A parallel worker does not know what its leader has
 * locked.
 */
static bool
may_wait_for_us(PGPROC *proc, TimestampTz since)
{
	TimestampTz started = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
	LOCK	   *lock = proc->waitLock;
	LOCKTAG		tag;
	LOCKMODE	mode;

	if (proc->waitStatus != PROC_WAIT_STATUS_WAITING || proc->pid == 0 ||
		lock == NULL || started == 0 || started > since)
		return false;
	if (IsParallelWorker())
		return true;
	tag = lock->tag;
	if (tag.locktag_type == LOCKTAG_VIRTUALTRANSACTION)
		return true;
	if (tag.locktag_lockmethodid != DEFAULT_LOCKMETHOD &&
		tag.locktag_lockmethodid != USER_LOCKMETHOD)
		return false;
	for (mode = AccessShareLock; mode <= AccessExclusiveLock; mode++)
		if (LockHeldByMe(&tag, mode, false))
			return true;
	return false;
}

/*
 * Does process "pid" wait for the one with the other ID?
 */
static bool
is_blocked_by(int pid, int blocker)
{
	Datum		array = DirectFunctionCall1(pg_blocking_pids,
											Int32GetDatum(pid));
	Datum	   *blockers;
	int			n;
	int			i;

	deconstruct_array(DatumGetArrayTypeP(array), INT4OID, sizeof(int32), true,
					  TYPALIGN_INT, &blockers, NULL, &n);
	for (i = 0; i < n; i++)
		if (DatumGetInt32(blockers[i]) == blocker)
			return true;
	return false;
}

bool
dt_blockers_waiting(void)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;
	int			pid = leader ? leader->pid : MyProcPid;
	DtGroup    *group = dt_member_leader()->group;
	TimestampTz since;
	MemoryContext context;
	MemoryContext old;
	bool		result = false;
	int			i;

	if (dt_release_blockers_ms == 0)
		return false;
	since = GetCurrentTimestamp() - dt_release_blockers_ms * INT64CONST(1000);
	context = AllocSetContextCreate(CurrentMemoryContext,
									"dirty_throttle blockers",
									ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	for (i = 0; i < dt_shared->n_members && !result; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		PGPROC	   *its_leader = proc->lockGroupLeader;
		int			member = its_leader ? GetNumberFromPGProc(its_leader) : i;

		if (dt_members[member].group != group && may_wait_for_us(proc, since))
			result = is_blocked_by(proc->pid, pid);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	return result;
}
