/*-------------------------------------------------------------------------
 *
 * chain.c
 *		From a process that waits to all for whom it waits, one behind the other.
 *
 * A process that waits for a lock waits for those that hold it in a mode that conflicts,
 * and for those that stand before it in the queue and ask for such a mode; all other ways
 * of waiting are in kinds.c.  Each process on the way comes to know who waits behind it,
 * and for how long (behind.h).
 *
 * A lock group, that is a leader with its parallel workers, counts as one process.
 *
 * The queue of a lock is read with the one partition of the lock table locked, in
 * shared mode, that it is in; one pass over it, from its end, serves all that wait
 * in it.  Nothing here allocates memory or can fail.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/shmem.h"
#include "waiters/chain.h"
#include "waiters/kinds.h"
#include "waiters/waits.h"

#include "compat.h"

/* Those wait behind the one that it waits for: it does, and all who wait behind it. */
static DtBehind
behind_next(const DtNode *node)
{
	DtBehind	behind = node->behind;

	(void) dt_behind_add(&behind, &node->own);
	return behind;
}

/* ------------------------------------------------------------- one wait */

/* The barrier is before, as the order counts; see below. */
static bool
still_has(LOCK *lock, const LOCKTAG *tag)
{
	pg_read_barrier();
	return memcmp(&lock->tag, tag, sizeof(LOCKTAG)) == 0;
}

/*
 * The lock that a process waits for, with its partition locked; NULL: none.  The
 * memory of locks is never given back.  The order counts: it still waits for
 * that LOCK, and that LOCK still has that tag.
 */
static LOCK *
lock_waited_for(PGPROC *proc, LOCKTAG *tag, LWLock **partition)
{
	LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;

	if (lock == NULL)
		return NULL;
	*tag = lock->tag;
	*partition = LockHashPartitionLock(LockTagHashCode(tag));
	LWLockAcquire(*partition, LW_SHARED);
	if (((volatile PGPROC *) proc)->waitLock == lock &&
		still_has(lock, tag))
		return lock;
	LWLockRelease(*partition);
	return NULL;
}

/* All that want a mode that conflicts with one of these modes wait behind it. */
static void
put_wanting_behind(DtPicture *picture, int number, LockMethod method,
				   const DtBehind *wanted, LOCKMASK modes)
{
	for (int mode = 1; mode <= method->numLockModes; mode++)
		if (!dt_behind_is_empty(&wanted[mode]) &&
			(method->conflictTab[mode] & modes) != 0)
			dt_picture_put_behind(picture, number, &wanted[mode]);
}

/*
 * One pass over the queue of a lock, from its end, and one over its holders.
 * Processes of one lock group do not conflict, and a holder of the lock may ask for
 * more of it; that these are taken to be in their own way does no harm, as they
 * wait.  Returns whether anything that dt_kind_may_be_let_go() holds the lock.
 */
static bool
walk_queue(DtPicture *picture, LOCK *lock)
{
	LockMethod	method = GetLocksMethodTable(lock);
	DtBehind	wanted[MAX_LOCKMODES];	/* each mode, by whom */
	PGPROC	   *proc = NULL;
	PROCLOCK   *held = NULL;
	bool		may_be_let_go = false;

	for (int mode = 0; mode < MAX_LOCKMODES; mode++)
		wanted[mode] = DT_NOBODY_BEHIND;
	while ((proc = dt_previous_waiter(lock, proc)) != NULL)
	{
		int			number = dt_node_of(proc);
		DtBehind	behind;

		put_wanting_behind(picture, number, method, wanted,
						   LOCKBIT_ON(proc->waitLockMode));
		behind = behind_next(&picture->nodes[number]);
		(void) dt_behind_add_all(&wanted[proc->waitLockMode], &behind);
		if (!dt_kind_has_next(picture, proc, lock))
			picture->nodes[GetNumberFromPGProc(proc)].walked =
				picture->nodes[number].changes;
		dt_picture_use(picture, GetNumberFromPGProc(proc));
	}
	while ((held = dt_next_holder(lock, held)) != NULL)
	{
		int			number = dt_node_of(held->groupLeader);

		put_wanting_behind(picture, number, method, wanted, held->holdMask);
		may_be_let_go |= dt_kind_may_be_let_go(number);
	}
	return may_be_let_go;
}

/* Go on from a process to those that it waits for. */
static void
walk_wait(DtPicture *picture, PGPROC *proc)
{
	DtNode	   *node = &picture->nodes[dt_node_of(proc)];
	DtNode	   *itself = &picture->nodes[GetNumberFromPGProc(proc)];
	DtKind		kind = dt_kind_of(proc);
	DtBehind	behind;
	LWLock	   *partition;
	LOCK	   *lock;
	LOCKTAG		tag;

	if (kind == DT_WAITS_FOR_NOTHING || itself->walked == node->changes)
		return;
	itself->walked = node->changes;
	dt_picture_use(picture, GetNumberFromPGProc(proc));
	behind = behind_next(node);
	if (kind != DT_WAITS_FOR_LOCK)
		dt_kind_find(picture, kind, proc, &behind);
	else if ((lock = lock_waited_for(proc, &tag, &partition)) != NULL)
	{
		bool		may_be_let_go = walk_queue(picture, lock);

		LWLockRelease(partition);
		if (may_be_let_go)
			dt_kind_find_next(picture, proc, &tag, &behind);
	}
}

/* All processes of a lock group. */
static void
walk_node(DtPicture *picture, int number)
{
	PGPROC	   *leader = GetPGProcByNumber(number);

	if (dt_is_prepared(number))
		return;					/* it waits for nothing */
	if (((volatile PGPROC *) leader)->lockGroupLeader == NULL)
	{
		walk_wait(picture, leader);
		return;
	}
	for (int i = 0; i < picture->n_waits; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(picture->waits[i].number);

		if (dt_node_of(proc) == number)
			walk_wait(picture, proc);
	}
}

/* Find out who waits behind whom, from this process that waits on. */
void
dt_chain_walk(DtPicture *picture, const DtWait *wait)
{
	dt_picture_push(picture, dt_node_of(GetPGProcByNumber(wait->number)));
	while (picture->n_stack > 0)
	{
		int			next = picture->stack[--picture->n_stack];

		picture->nodes[next].on_stack = false;
		walk_node(picture, next);
	}
}

/*
 * Note of a process how it waits itself.  An autovacuum worker that counts does
 * so for everybody.
 */
void
dt_chain_begin(DtPicture *picture, const DtWait *wait, int64 now)
{
	PGPROC	   *proc = GetPGProcByNumber(wait->number);
	int			number = dt_node_of(proc);
	DtNode	   *node = &picture->nodes[number];
	DtLongest	longest = {wait->us, proc->pid};
	DtWaits		waits = DT_NO_WAITS;
	DtWaitSlot *slot = &dt_wait_slots[number];
	DtGroup    *g = NULL;

	waits.all = longest;
	if (number < dt_shared->n_members &&
		(dt_flags_with_leader(proc) & PROC_IS_AUTOVACUUM) == 0)
		g = ((volatile DtMember *) &dt_members[number])->group;
	waits.group = dt_group_number(g);
	/* what it owes to a group that it was moved out of does not count */
	if (g != NULL && slot->counts_as_mate &&
		(now >= slot->owes_until || slot->owes_in != g->id))
		waits.own = longest;
	node->own.group = waits.group;
	if (dt_waits_add(&node->own, &waits))
		node->changes++;
	dt_picture_use(picture, number);
}
