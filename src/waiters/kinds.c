/*-------------------------------------------------------------------------
 *
 * kinds.c
 *		The waits in which a member can be in the way.
 *
 * A process that waits says so in its PGPROC.  Which members are in its way
 * depends on what it waits for:
 *
 *	waits for			seen by				in its way
 *	----------------	----------------	--------------------------------
 *	a heavyweight lock	wait class Lock		who holds the lock, or asks for it
 *											before: chain.c walks its queue
 *	  ... of a virtual	the lock's tag		if that is a member's, also all in
 *	  transaction							that database that are in a
 *											transaction: CREATE INDEX CONCURRENTLY
 *											and others wait for one after another
 *	  ... of a			the same, and a		also all that have a transaction ID:
 *	  transaction		logical slot		a new slot waits for one after another
 *	pins of a page		BufferCleanup		who has a lock on a relation that the
 *											waiting VACUUM works on
 *	a safe snapshot		SafeSnapshot		whom the server names
 *	the same two, on a	the startup			all that have a snapshot: whom
 *	standby				process's event		replay waits for is not known
 *
 * At most one partition of the lock table is locked at a time.  Nothing here allocates
 * memory or can fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/multixact.h"
#include "access/transam.h"
#include "access/twophase.h"
#include "postmaster/autovacuum.h"
#include "replication/slot.h"
#include "shared/shmem.h"
#include "storage/predicate_internals.h"
#include "waiters/kinds.h"
#include "waiters/waits.h"

#include "compat.h"

#define WAIT_CLASS		0xFF000000

/* A VACUUM has at most a table, its TOAST table and the indexes of these. */
#define MOST_RELATIONS	8

/* Of all processes only the startup process waits so. */
static bool
is_startup(PGPROC *proc)
{
	return GetNumberFromPGProc(proc) >= dt_shared->n_members;
}

DtKind
dt_kind_of(PGPROC *proc)
{
	uint32		event = ((volatile PGPROC *) proc)->wait_event_info;

	if ((event & WAIT_CLASS) == PG_WAIT_LOCK)
		return DT_WAITS_FOR_LOCK;
	switch (event)
	{
		case WAIT_EVENT_BUFFER_CLEANUP:
			return is_startup(proc) ? DT_WAITS_TO_REPLAY : DT_WAITS_FOR_PINS;
		case WAIT_EVENT_RECOVERY_CONFLICT_SNAPSHOT:
		case WAIT_EVENT_RECOVERY_CONFLICT_TABLESPACE:
			return DT_WAITS_TO_REPLAY;
		case WAIT_EVENT_SAFE_SNAPSHOT:
			return DT_WAITS_FOR_SAFE_SNAPSHOT;
		default:
			return DT_WAITS_FOR_NOTHING;
	}
}

bool
dt_kind_is_known(const DtWaitSlot *slot, PGPROC *proc, int64 now)
{
	return slot->pid == ((volatile PGPROC *) proc)->pid &&
		now - slot->seen_at < DT_WAIT_MEMORY_US;
}

/*
 * A wait for a lock has no start yet when it has just begun.  If it starts in the future
 * the clock was set back, and nobody knows how long it has waited.  For what has no start,
 * the slot says since when it was seen.
 */
int64
dt_kind_waited(DtKind kind, PGPROC *proc, int64 now)
{
	DtWaitSlot *slot = &dt_wait_slots[GetNumberFromPGProc(proc)];
	TimestampTz start;
	int64		us;

	if (kind == DT_WAITS_FOR_LOCK)
	{
		start = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
		us = start == 0 ? 0 : dt_clock_since(start);
		return us >= 0 ? us : PG_INT64_MAX;
	}
	return slot->wait_event == ((volatile PGPROC *) proc)->wait_event_info &&
		dt_kind_is_known(slot, proc, now) ? now - slot->waits_since : PG_INT64_MAX;
}

/* As the view dirty_throttle_blocking has it. */
const char *
dt_kind_name(DtKind kind)
{
	static const char *const names[] = {
		[DT_WAITS_FOR_NOTHING] = NULL,
		[DT_WAITS_FOR_LOCK] = "lock",
		[DT_WAITS_FOR_PINS] = "buffer pin",
		[DT_WAITS_FOR_SAFE_SNAPSHOT] = "safe snapshot",
		[DT_WAITS_TO_REPLAY] = "replay"
	};

	return names[kind];
}

bool
dt_waiters_must_freeze(int percent)
{
	MultiXactId oldest;
	MultiXactId next;

	ReadMultiXactIdRange(&oldest, &next);
	return next - oldest > autovacuum_multixact_freeze_max_age / 100.0 * percent ||
		(uint32) (ReadNextTransactionId() - TransamVariables->oldestXid) >
		autovacuum_freeze_max_age / 100.0 * percent;
}

/*
 * Does it matter that this process waits?  Of autovacuum workers only where the
 * server must freeze: a member could make one wait whenever it likes, also one
 * against wraparound by the storage parameters of its own table.  A process that waits for
 * an autovacuum worker that waits does count.
 */
bool
dt_kind_counts(PGPROC *waiter)
{
	uint8		flags = dt_flags_with_leader(waiter);

	return (flags & PROC_IS_AUTOVACUUM) == 0 ||
		((flags & PROC_VACUUM_FOR_WRAPAROUND) != 0 && dt_waiters_must_freeze(100));
}

/*
 * Can it be in anybody's way by a pause: a process, or a prepared transaction by
 * that of its group?
 */
static bool
may_pause(int number)
{
	return number >= dt_n_processes || dt_wait_slots[number].asleep ||
		(number < dt_shared->n_members &&
		 dt_member_of(GetPGProcByNumber(number))->group != NULL);
}

/*
 * And may it be let go?  When no holder of a lock may, those who wait for the lock
 * are not asked yet whom they will wait for when they have it.
 */
bool
dt_kind_may_be_let_go(int number)
{
	return number >= dt_n_processes ||
		(may_pause(number) && dt_wait_slots[number].max_blocking_ms >= 0);
}

/*
 * The core leaves there what was prepared and is finished by now, but a prepared
 * transaction has at least the lock of its own ID.
 */
static bool
is_prepared(PGPROC *proc)
{
	bool		has_lock = false;

	if (!TransactionIdIsValid(((volatile PGPROC *) proc)->xid))
		return false;			/* its lists of locks may not be set up */
	for (int i = 0; i < NUM_LOCK_PARTITIONS && !has_lock; i++)
		has_lock = dt_next_lock(proc, i, NULL) != NULL;
	return has_lock;
}

static void
put_behind(DtPicture *picture, PGPROC *proc, const DtBehind *behind)
{
	dt_picture_put_behind(picture, dt_node_of(proc), behind);
}

static void
find_prepared(DtPicture *picture, const DtBehind *behind)
{
	for (int i = 0; i < max_prepared_xacts; i++)
		if (is_prepared(&PreparedXactProcs[i]))
			put_behind(picture, &PreparedXactProcs[i], behind);
}

/* Which members have a transaction, of which kind, in a database or in all? */
typedef enum Has
{
	HAS_TRANSACTION,
	HAS_TRANSACTION_ID,
	HAS_SNAPSHOT
} Has;

static void
find_members(DtPicture *picture, Has what, Oid database, const DtBehind *behind)
{
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		volatile PGPROC *proc = GetPGProcByNumber(i);

		if (proc->pid == 0 ||
			(OidIsValid(database) && proc->databaseId != database))
			continue;
		if (what == HAS_TRANSACTION ?
			!LocalTransactionIdIsValid(dt_local_xid(proc)) :
			!TransactionIdIsValid(what == HAS_SNAPSHOT ? proc->xmin : proc->xid))
			continue;
		if (may_pause(i))
			put_behind(picture, (PGPROC *) proc, behind);
	}
}

/* Which relations does this process vacuum?  And who else has locked them? */
static int
find_vacuumed(DtPicture *picture, PGPROC *vacuum, Oid relations[MOST_RELATIONS],
			  const DtBehind *behind)
{
	int			n = 0;

	for (int i = 0; i < NUM_LOCK_PARTITIONS; i++)
	{
		LWLock	   *partition = LockHashPartitionLockByIndex(i);
		PROCLOCK   *held = NULL;

		/* what is missed by reading this without the lock is seen next time */
		if (dt_next_lock(vacuum, i, NULL) == NULL)
			continue;
		LWLockAcquire(partition, LW_SHARED);
		while ((held = dt_next_lock(vacuum, i, held)) != NULL)
		{
			LOCK	   *lock = held->tag.myLock;
			PROCLOCK   *other = NULL;

			if (lock->tag.locktag_type != LOCKTAG_RELATION ||
				(held->holdMask & LOCKBIT_ON(ShareUpdateExclusiveLock)) == 0)
				continue;
			while ((other = dt_next_holder(lock, other)) != NULL)
				if (other->groupLeader != held->groupLeader)
					put_behind(picture, other->groupLeader, behind);
			if (n < MOST_RELATIONS)
				relations[n++] = lock->tag.locktag_field2;
		}
		LWLockRelease(partition);
	}
	return n;
}

/* Has a process noted a weak lock on one of these relations? */
static bool
has_fast_lock(PGPROC *proc, const Oid *relations, int n)
{
	bool		has = false;

	LWLockAcquire(&proc->fpInfoLock, LW_SHARED);
	for (int i = 0; i < dt_n_fast_locks() && !has; i++)
	{
		if (dt_fast_lock_modes(proc, i) == 0)
			continue;
		for (int r = 0; r < n; r++)
			has |= proc->fpRelId[i] == relations[r];
	}
	LWLockRelease(&proc->fpInfoLock);
	return has;
}

/*
 * A process that has pinned a page of a relation has a lock on the relation.  To look
 * for the page itself would take a walk through all buffers.
 */
static void
find_pins(DtPicture *picture, PGPROC *vacuum, const DtBehind *behind)
{
	Oid			relations[MOST_RELATIONS];
	int			n = find_vacuumed(picture, vacuum, relations, behind);

	for (int i = 0; i < dt_shared->n_members && n > 0; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);

		if (proc != vacuum && proc->pid != 0 &&
			proc->databaseId == vacuum->databaseId && may_pause(i) &&
			has_fast_lock(proc, relations, n))
			put_behind(picture, proc, behind);
	}
}

/*
 * The process ID of a prepared transaction is 0.  If the waiting session has
 * committed another serializable transaction a moment ago, the server names nobody.
 */
static void
find_unsafe(DtPicture *picture, PGPROC *waiter, const DtBehind *behind)
{
	int			n = GetSafeSnapshotBlockingPids(waiter->pid, picture->pids,
												dt_n_processes);

	if (n == 0)
	{
		find_members(picture, HAS_SNAPSHOT, InvalidOid, behind);
		find_prepared(picture, behind);
	}

	for (int i = 0; i < dt_shared->n_members && n > 0; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		int			pid = ((volatile PGPROC *) proc)->pid;

		for (int k = 0; pid != 0 && k < n; k++)
			if (picture->pids[k] == pid)
				put_behind(picture, proc, behind);
	}
	for (int k = 0; k < n; k++)
	{
		if (picture->pids[k] == 0)
		{
			find_prepared(picture, behind);
			break;
		}
	}
}

void
dt_kind_find(DtPicture *picture, DtKind kind, PGPROC *waiter, const DtBehind *behind)
{
	switch (kind)
	{
		case DT_WAITS_FOR_PINS:
			find_pins(picture, waiter, behind);
			break;
		case DT_WAITS_FOR_SAFE_SNAPSHOT:
			find_unsafe(picture, waiter, behind);
			break;
		case DT_WAITS_TO_REPLAY:
			find_members(picture, HAS_SNAPSHOT, InvalidOid, behind);
			break;
		default:
			break;
	}
}

/* Has this process a logical slot? */
static bool
decodes(PGPROC *proc)
{
	bool		result = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < dt_n_replication_slots() && !result; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		result = slot->in_use && SlotIsLogical(slot) &&
			dt_slot_is_of(slot, proc);
	}
	LWLockRelease(ReplicationSlotControlLock);
	return result;
}

static bool
is_decoding(PGPROC *proc)
{
	return (((volatile PGPROC *) proc)->statusFlags & PROC_IN_LOGICAL_DECODING) != 0;
}

/*
 * Does one of those who wait create a logical slot in a transaction, as SQL and the
 * first copy of a subscription do?  Then its flags do not show it.
 */
void
dt_kind_begin_walk(DtPicture *picture)
{
	picture->slot_is_made = false;
	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < dt_n_replication_slots(); i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (!slot->in_use || !SlotIsLogical(slot))
			continue;
		for (int w = 0; w < picture->n_waits; w++)
		{
			PGPROC	   *proc = GetPGProcByNumber(picture->waits[w].number);

			picture->slot_is_made |= dt_slot_is_of(slot, proc) && !is_decoding(proc);
		}
	}
	LWLockRelease(ReplicationSlotControlLock);
}

/* Is it to be asked for each process in the queue of a lock who will be next? */
bool
dt_kind_has_next(const DtPicture *picture, PGPROC *waiter, const LOCK *lock)
{
	return lock->tag.locktag_type == LOCKTAG_VIRTUALTRANSACTION ||
		(lock->tag.locktag_type == LOCKTAG_TRANSACTION &&
		 (is_decoding(waiter) ||
		  (picture->slot_is_made &&
		   !TransactionIdIsValid(((volatile PGPROC *) waiter)->xid))));
}

/*
 * This process waits for a lock with that tag, of one that may be let go.  Who
 * will be in its way when it has that?  While it waits for one that does not pause,
 * or never goes on, this need not be known: when it comes to the first one that does,
 * it has waited too long.
 */
void
dt_kind_find_next(DtPicture *picture, PGPROC *waiter, const LOCKTAG *tag,
				  const DtBehind *behind)
{
	if (tag->locktag_type == LOCKTAG_VIRTUALTRANSACTION)
		find_members(picture, HAS_TRANSACTION, waiter->databaseId, behind);
	else if (tag->locktag_type == LOCKTAG_TRANSACTION && decodes(waiter))
	{
		find_members(picture, HAS_TRANSACTION_ID, InvalidOid, behind);
		find_prepared(picture, behind);
	}
}
