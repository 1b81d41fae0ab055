/*-------------------------------------------------------------------------
 *
 * look.c
 *		Look at all who wait, and mark the members that are in their way.
 *
 * A process that waits says so in its PGPROC; how, is in kinds.c.  A look goes
 * from each that has waited for too long, or while anybody has a mark from each
 * that waits, to whom it waits for, from there to whom that one waits for, and so
 * on.  Who waits for a lock waits for those who hold it in a mode that conflicts,
 * and for those who stand before it in the queue and ask for such a mode.  So each
 * process on the way comes to know who waits behind it, and for how long (behind.h).  At the end each member gets a
 * mark in its slot that is in the way of somebody who counts, and who has waited
 * for its max_blocking_time; if it sleeps, it is woken.  The mark stays for as
 * long as anybody who counts waits behind it.
 *
 * A lock group, that is a leader with its parallel workers, counts as one
 * process.
 *
 * Processes that wait are found without a lock.  The queue of a lock is read with
 * the one partition of the lock table locked, in shared mode, that it is in; one
 * pass over it, from its end, serves all that wait in it.  Where everything
 * stands as it did at the last look, which a signature tells, and nobody has
 * fallen asleep, the marks stay as well; but one of three looks walks in any case.
 *
 * Who has waited too long does not wait that long again for the next one: for a
 * second, a new wait of the same process counts as the last one did.
 *
 * A look may be made at a check for interrupts, with no LWLock held.  It allocates
 * no memory, and cannot fail.  If another process is looking, it is left to that;
 * role.c says what follows when that does not end.
 * What is read without a lock may be out of date when it is used; the next look
 * puts that right.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "common/hashfn.h"
#include "shared/shmem.h"
#include "waiters/kinds.h"
#include "waiters/look.h"
#include "waiters/waits.h"

#include "compat.h"

/*
 * The next look is due after half of max_blocking_time, or when somebody will have
 * waited for so long, but within these bounds; and sooner after one that has let
 * go.
 */
#define SHORT_INTERVAL_US	25000
#define LONG_INTERVAL_US	50000
#define SOON_US				3000

/* For so long it is remembered how somebody has waited. */
#define MEMORY_US		INT64CONST(1000000)

/* Attempts count together up to so much. */
#define FOR_ATTEMPTS_US	INT64CONST(60000000)

/* Of so many looks at the same picture one walks. */
#define WALK_EVERY		3

/* Whom found() finds is in the way of these. */
static DtBehind behind_waiter;

/* The number of a process or, if it is a parallel worker, of its leader. */
static int
node_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return GetNumberFromPGProc(leader ? leader : proc);
}

static bool
is_prepared(int number)
{
	return number >= dt_n_processes;
}

static void
use(int number)
{
	if (dt_nodes[number].is_used)
		return;
	dt_nodes[number].is_used = true;
	dt_used[dt_waits->n_used++] = number;
	if (is_prepared(number))
		dt_prepared[dt_waits->n_prepared++] = number;
}

static void
empty_node(int number)
{
	DtNode	   *node = &dt_nodes[number];

	memset(node, 0, sizeof(DtNode));
	node->behind = DT_NOBODY_BEHIND;
	node->own = DT_NO_WAITS;
}

static bool
take_look_lock(void)
{
	if (!LWLockConditionalAcquire(dt_waits->look_lock, LW_EXCLUSIVE))
		return false;
	pg_atomic_write_u64(&dt_waits->began_at, dt_now_us());
	return true;
}

/*
 * From now on until end_look() the nodes are this process's own.  Empty them.
 * Somebody who has died may have left anything in them.
 */
static void
begin_look(void)
{
	int			n = dt_waits->is_in_use ? dt_n_slots : dt_waits->n_used;

	for (int i = 0; i < n; i++)
		empty_node(dt_waits->is_in_use ? i : dt_used[i]);
	dt_waits->n_used = dt_waits->n_prepared = dt_waits->n_stack = 0;
	dt_waits->is_in_use = true;
}

static void
end_look(void)
{
	dt_waits->is_in_use = false;
	LWLockRelease(dt_waits->look_lock);
}

static void
push(int number)
{
	if (dt_nodes[number].on_stack)
		return;
	dt_nodes[number].on_stack = true;
	dt_stack[dt_waits->n_stack++] = number;
}

/* Those wait behind the process with that number. */
static void
put_behind(int number, const DtBehind *behind)
{
	DtNode	   *node = &dt_nodes[number];

	if (!dt_behind_add_all(&node->behind, behind))
		return;
	node->changes++;
	use(number);
	push(number);
}

/* Those wait behind whoever it waits for: it does, and all who wait behind it. */
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
put_wanting_behind(int number, LockMethod method, const DtBehind *wanted,
				   LOCKMASK modes)
{
	for (int mode = 1; mode <= method->numLockModes; mode++)
		if (!dt_behind_is_empty(&wanted[mode]) &&
			(method->conflictTab[mode] & modes) != 0)
			put_behind(number, &wanted[mode]);
}

/*
 * One pass over the queue of a lock, from its end, and one over its holders.
 * Processes of one lock group do not conflict, and who holds the lock may ask for
 * more of it; that these are taken to be in their own way does no harm, as they
 * wait.  Returns whether anything that dt_kind_may_be_let_go() holds the lock.
 */
static bool
walk_queue(LOCK *lock)
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
		int			number = node_of(proc);
		DtBehind	behind;

		put_wanting_behind(number, method, wanted,
						   LOCKBIT_ON(proc->waitLockMode));
		behind = behind_next(&dt_nodes[number]);
		(void) dt_behind_add_all(&wanted[proc->waitLockMode], &behind);
		if (!dt_kind_has_next(proc, lock))
			dt_nodes[GetNumberFromPGProc(proc)].walked =
				dt_nodes[number].changes;
		use(GetNumberFromPGProc(proc));
	}
	while ((held = dt_next_holder(lock, held)) != NULL)
	{
		int			number = node_of(held->groupLeader);

		put_wanting_behind(number, method, wanted, held->holdMask);
		may_be_let_go |= dt_kind_may_be_let_go(number);
	}
	return may_be_let_go;
}

/* For kinds.c: a process, or a prepared transaction, that is in the way. */
static void
found(PGPROC *proc)
{
	put_behind(node_of(proc), &behind_waiter);
}

/* Go on from a process to those that it waits for. */
static void
walk_wait(PGPROC *proc)
{
	DtNode	   *node = &dt_nodes[node_of(proc)];
	DtNode	   *itself = &dt_nodes[GetNumberFromPGProc(proc)];
	DtKind		kind = dt_kind_of(proc);
	LWLock	   *partition;
	LOCK	   *lock;
	LOCKTAG		tag;

	if (kind == DT_WAITS_FOR_NOTHING || itself->walked == node->changes)
		return;
	itself->walked = node->changes;
	use(GetNumberFromPGProc(proc));
	behind_waiter = behind_next(node);
	if (kind != DT_WAITS_FOR_LOCK)
		dt_kind_find(kind, proc, found);
	else if ((lock = lock_waited_for(proc, &tag, &partition)) != NULL)
	{
		bool		may_be_let_go = walk_queue(lock);

		LWLockRelease(partition);
		if (may_be_let_go)
			dt_kind_find_next(proc, &tag, found);
	}
}

/* All processes of a lock group. */
static void
walk_node(int number)
{
	PGPROC	   *leader = GetPGProcByNumber(number);

	if (is_prepared(number))
		return;					/* it waits for nothing */
	if (((volatile PGPROC *) leader)->lockGroupLeader == NULL)
	{
		walk_wait(leader);
		return;
	}
	for (int i = 0; i < dt_waits->n_waits; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(dt_wait_list[i].number);

		if (node_of(proc) == number)
			walk_wait(proc);
	}
}

static void
walk_from(int number)
{
	push(number);
	while (dt_waits->n_stack > 0)
	{
		int			next = dt_stack[--dt_waits->n_stack];

		dt_nodes[next].on_stack = false;
		walk_node(next);
	}
}

/* ------------------------------------------------------------ all who wait */

/*
 * Who tries to get the same lock again and again, for a short time each, has waited for
 * all of that.
 */
static int64
add_attempts_before(DtWaitSlot *slot, PGPROC *proc, bool is_known,
					TimestampTz start, int64 us)
{
	LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;
	uint32		wanted;

	if (lock == NULL || us > FOR_ATTEMPTS_US)
		return us;
	wanted = LockTagHashCode(&lock->tag);	/* never returned to the system */
	if (!is_known || wanted != slot->wanted)
		slot->before_us = 0;
	else if (start != slot->attempt_start)
		slot->before_us = Min(slot->before_us + slot->attempt_us, FOR_ATTEMPTS_US);
	slot->wanted = wanted;
	slot->attempt_start = start;
	slot->attempt_us = us;
	return us + slot->before_us;
}

/*
 * For how long has this process waited, us?  A wait for a lock has no start yet
 * when it has just begun.  If it starts in the future the clock was set back, and
 * it has waited for who knows how long.  For what has no start, the slot tells
 * since when it was seen.
 *
 * Who has waited for "late" does not wait that long again for the next one.
 */
static int64
time_waited(PGPROC *proc, DtKind kind, int64 now, int64 late, uint64 *signature)
{
	DtWaitSlot *slot = &dt_wait_slots[GetNumberFromPGProc(proc)];
	bool		is_known = slot->pid == proc->pid &&
		now - slot->seen_at < MEMORY_US;
	uint32		event = ((volatile PGPROC *) proc)->wait_event_info;
	TimestampTz start;
	int64		us;

	if (kind == DT_WAITS_FOR_LOCK)
	{
		start = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
		us = start == 0 ? 0 : dt_clock_since(start);
		if (us < 0)
			us = PG_INT64_MAX;
		us = add_attempts_before(slot, proc, is_known, start, us);
	}
	else
	{
		if (!is_known || slot->wait_event != event)
			slot->waits_since = now;
		start = slot->waits_since;
		us = now - start;
	}
	*signature = hash_combine64(*signature, GetNumberFromPGProc(proc));
	*signature = hash_combine64(*signature, start);
	*signature = hash_combine64(*signature, event);
	if (!is_known || now - slot->late_at >= MEMORY_US)
		slot->late_us = 0;
	if (us >= late)
	{
		slot->late_us = us;
		slot->late_at = now;
	}
	slot->pid = proc->pid;
	slot->wait_event = event;
	slot->seen_at = now;
	return Max(us, slot->late_us);
}

/* Who has got the lock that he wanted has not waited for the next one. */
static void
forget_attempts(DtWaitSlot *slot, PGPROC *proc)
{
	if ((slot->attempt_us | slot->before_us) != 0 &&
		((volatile PGPROC *) proc)->waitStatus == PROC_WAIT_STATUS_OK)
		slot->attempt_us = slot->before_us = 0;
}

/*
 * Find all who wait.  The result is a signature of all of them, and of which have
 * waited for "least".  While somebody has waited for that, but not yet for "most",
 * each look has a signature of its own, and so is not left out as the same as the
 * last one: he may have come to wait too long for one more member.
 *
 * Sets *until_late to in what time one more will have waited for "late"; to 0 if
 * one has, and has not for "most".
 */
static uint64
find_waits(int64 now, int64 late, int64 least, int64 most, int64 *until_late)
{
	uint64		signature = 0;
	bool		changes = false;

	*until_late = PG_INT64_MAX;
	dt_waits->n_waits = 0;
	for (int i = 0; i < dt_n_processes; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		DtKind		kind = dt_kind_of(proc);
		bool		counts;
		int64		us;

		if (kind == DT_WAITS_FOR_NOTHING || proc->pid == 0)
		{
			forget_attempts(&dt_wait_slots[i], proc);
			continue;
		}
		counts = dt_kind_counts(proc);
		us = time_waited(proc, kind, now, late, &signature);
		if (counts && us < most)
			*until_late = Min(*until_late, Max(late - us, 0));
		changes |= us >= least && us < most;
		signature = hash_combine64(signature, us >= least);
		dt_wait_list[dt_waits->n_waits++] = (DtWait)
		{
			.number = i,.us = us,.counts = counts
		};
	}
	return changes ? hash_combine64(signature, now) : signature;
}

static int
longest_first(const void *a, const void *b)
{
	int64		us_a = ((const DtWait *) a)->us;
	int64		us_b = ((const DtWait *) b)->us;

	return us_a > us_b ? -1 : us_a < us_b;
}

/* The number of a group for behind.h. */
static int
group_number(const DtGroup *g)
{
	return g == NULL ? 0 : (int) (g - dt_groups) + 1;
}

/*
 * Note of a process how it waits itself.  An autovacuum worker that counts does
 * so for everybody.
 */
static void
note_own_wait(const DtWait *wait, int64 now)
{
	PGPROC	   *proc = GetPGProcByNumber(wait->number);
	int			number = node_of(proc);
	DtLongest	longest = {wait->us, proc->pid};
	DtWaits		waits = DT_NO_WAITS;
	DtWaitSlot *slot = &dt_wait_slots[number];
	DtGroup    *g = NULL;

	waits.all = longest;
	if (number < dt_shared->n_members &&
		(dt_flags_with_leader(proc) & PROC_IS_AUTOVACUUM) == 0)
		g = ((volatile DtMember *) &dt_members[number])->group;
	waits.group = group_number(g);
	/* what it owes to a group that it was moved out of does not count */
	if (g != NULL && slot->counts_as_mate &&
		(now >= slot->owes_until || slot->owes_in != g->id))
		waits.own = longest;
	dt_nodes[number].own.group = waits.group;
	if (dt_waits_add(&dt_nodes[number].own, &waits))
		dt_nodes[number].changes++;
	use(number);
}

/*
 * Find out who waits behind whom.  Those who have waited longest come first: so
 * what a process comes to know is final as soon as it does, and its wait is
 * walked for each group once at most, in whatever order a chain has come about.
 */
static void
walk_all(int64 now, int64 least)
{
	qsort(dt_wait_list, dt_waits->n_waits, sizeof(DtWait), longest_first);
	dt_kind_begin_walk();

	/* all of them first, so that one pass over a queue serves all */
	for (int i = 0; i < dt_waits->n_waits; i++)
		if (dt_wait_list[i].counts && dt_wait_list[i].us >= least)
			note_own_wait(&dt_wait_list[i], now);
	for (int i = 0; i < dt_waits->n_waits; i++)
		if (dt_wait_list[i].counts && dt_wait_list[i].us >= least)
			walk_from(node_of(GetPGProcByNumber(dt_wait_list[i].number)));
}

/* ------------------------------------------------------------------- marks */

/*
 * Who has waited longest for a transaction that a member of this group has
 * prepared?  If it is not known who has prepared it, as after a restart, its role
 * and database tell: only that role can finish it, but for superusers.
 */
static DtLongest
longest_for_prepared(PGPROC *member, const DtGroup *g)
{
	DtLongest	longest = DT_NO_WAITS.all;

	for (int i = 0; i < dt_waits->n_prepared && g != NULL; i++)
	{
		PGPROC	   *dummy = GetPGProcByNumber(dt_prepared[i]);
		DtWaitSlot *slot = &dt_wait_slots[dt_prepared[i]];
		DtBehind   *behind = &dt_nodes[dt_prepared[i]].behind;
		DtLongest	outsider = dt_behind_outsider(behind, group_number(g));
		DtLongest	mate = dt_behind_mate(behind, group_number(g));

		if (slot->prepared_xid == dummy->xid ? slot->prepared_in != g->id :
			dummy->roleId != member->roleId ||
			dummy->databaseId != member->databaseId)
			continue;
		(void) dt_longest_of(&longest, &outsider);
		(void) dt_longest_of(&longest, &mate);
	}
	return longest;
}

/* Has somebody waited for "us"?  Sets *pid to who that is. */
static bool
is_late(DtLongest longest, int64 us, int *pid)
{
	*pid = longest.pid;
	return longest.us >= us;
}

/*
 * Which mark is due to a process, which for a parallel worker is its leader's?
 * Sets *pid to who waits.
 */
static DtMark
find_mark(int number, int *pid)
{
	DtWaitSlot *slot = &dt_wait_slots[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	int			leader = slot->asleep || slot->mark != DT_NOT_IN_THE_WAY ?
		node_of(proc) : number;
	DtBehind   *behind = &dt_nodes[leader].behind;
	DtGroup    *g;
	int64		us;

	if ((!dt_nodes[leader].is_used && dt_waits->n_prepared == 0) ||
		slot->max_blocking_ms < 0)
		return DT_NOT_IN_THE_WAY;
	g = ((volatile DtMember *) &dt_members[leader])->group;
	if (g == NULL && !slot->asleep)
		return DT_NOT_IN_THE_WAY;
	us = slot->mark != DT_NOT_IN_THE_WAY ? 0 :
		slot->max_blocking_ms * INT64CONST(1000);
	if (is_late(dt_behind_outsider(behind, group_number(g)), us, pid))
		return DT_IN_THE_WAY_OF_OUTSIDERS;
	if (is_late(dt_behind_mate(behind, group_number(g)), us, pid))
		return DT_IN_THE_WAY_OF_MATES;
	return is_late(longest_for_prepared(proc, g), us, pid) ?
		DT_GROUP_HAS_PREPARED : DT_NOT_IN_THE_WAY;
}

/*
 * Set all marks.  A process that falls asleep says so first, and then looks
 * whether it has one; here it is the other way round.  Returns whether there are
 * new ones.
 */
static bool
set_marks(void)
{
	bool		any = false;
	bool		any_new = false;

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtWaitSlot *slot = &dt_wait_slots[i];
		int			pid = 0;
		DtMark		mark = find_mark(i, &pid);

		any |= mark != DT_NOT_IN_THE_WAY;
		if (mark == slot->mark)
			continue;
		any_new |= mark > slot->mark;
		slot->marked_for = pid;
		slot->mark = mark;
		pg_memory_barrier();
		if (mark != DT_NOT_IN_THE_WAY && slot->asleep)
			SetLatch(&GetPGProcByNumber(i)->procLatch);
	}
	dt_waits->any_marked = any;
	return any_new;
}

/*
 * How long must somebody have waited to be in the picture: for the member that
 * is to be let go first ("late"), and for the last one?  And "least": now.
 */
static void
find_bounds(int64 *late, int64 *least, int64 *most)
{
	*late = PG_INT64_MAX;
	*most = 0;
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtWaitSlot *slot = &dt_wait_slots[i];
		int64		us = slot->max_blocking_ms * INT64CONST(1000);

		if (us < 0 || !(slot->asleep || slot->mark != DT_NOT_IN_THE_WAY ||
						i == MyProcNumber))
			continue;
		*late = Min(*late, us);
		*most = Max(*most, us);
	}
	/* whoever has a mark goes on for as long as anybody waits */
	*least = dt_waits->any_marked ? 0 : *late;
}

/* When is the next look due, in us? */
static int
next_interval(int64 late, int64 until_late, bool any_new)
{
	int64		us = Min(Min(late / 2, until_late), LONG_INTERVAL_US);

	return any_new ? SOON_US : Min(Max(us, SHORT_INTERVAL_US),
								   2 * Max(dt_waits->interval_us, SOON_US));
}

int64
dt_look_age(void)
{
	return dt_now_us() - (int64) pg_atomic_read_u64(&dt_waits->looked_at);
}

/*
 * Look.  False: it was left to somebody else, who looks just now, or who was
 * stopped in the middle of that.
 */
bool
dt_look(void)
{
	int64		now = dt_now_us();
	bool		any_new = false;
	int64		late;
	int64		least;
	int64		most;
	int64		until_late;
	uint64		signature;

	if (!take_look_lock())
		return false;
	begin_look();
	find_bounds(&late, &least, &most);
	signature = find_waits(now, late, least, most, &until_late);
	if (signature != dt_waits->signature || dt_waits->walk_is_due ||
		++dt_waits->looks_since_walk >= WALK_EVERY)
	{
		dt_waits->walk_is_due = false;
		pg_memory_barrier();	/* before "asleep" is read */
		dt_waits->looks_since_walk = 0;
		dt_waits->signature = signature;
		walk_all(now, least);
		if (dt_waits->n_used > 0 || dt_waits->any_marked)
			any_new = set_marks();
	}
	dt_waits->interval_us = next_interval(late, until_late, any_new);
	pg_atomic_write_u64(&dt_waits->looked_at, now);
	end_look();
	return true;
}

/* A process is in the way of one that waits. */
static DtInTheWay *
in_the_way(const DtWait *wait, int number)
{
	PGPROC	   *waiter = GetPGProcByNumber(wait->number);
	PGPROC	   *holder = GetPGProcByNumber(number);
	DtWaitSlot *slot = &dt_wait_slots[number];	/* of one that is prepared */
	DtInTheWay *row = palloc0(sizeof(DtInTheWay));

	row->waiting_pid = waiter->pid;
	row->waited_us = wait->us;
	row->kind = dt_kind_name(dt_kind_of(waiter));
	row->holder = number;
	if (is_prepared(number))
	{
		row->prepared_xid = holder->xid;
		row->prepared_by = holder->roleId;
		row->prepared_is_known = slot->prepared_xid == holder->xid;
		row->prepared_in = row->prepared_is_known ? slot->prepared_in : 0;
	}
	return row;
}

/* For whom does this process wait?  Adds to a list. */
static List *
list_in_the_way(List *list, const DtWait *wait)
{
	int			waiter = node_of(GetPGProcByNumber(wait->number));

	note_own_wait(wait, dt_now_us());
	dt_kind_begin_walk();
	walk_from(waiter);
	for (int i = 0; i < dt_waits->n_used; i++)
	{
		int			number = dt_used[i];

		if (!dt_behind_is_empty(&dt_nodes[number].behind) &&
			number != waiter &&
			(is_prepared(number) || (number < dt_shared->n_members &&
									 dt_members[number].group != NULL)))
			list = lappend(list, in_the_way(wait, number));
	}
	return list;
}

/* For the view, which can be canceled when somebody was stopped in a look. */
static void
wait_for_look_lock(void)
{
	while (!take_look_lock())
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
}

/*
 * For the view: all that wait, however long, and the members and prepared
 * transactions that are in their way.  A list of DtInTheWay.  Between two of those
 * who wait others may look.
 */
List *
dt_waiters_list(void)
{
	List	   *list = NIL;
	DtWait	   *waits;
	int64		until_late;
	int			n;

	wait_for_look_lock();
	(void) find_waits(dt_now_us(), PG_INT64_MAX, PG_INT64_MAX, 0, &until_late);
	n = dt_waits->n_waits;
	waits = palloc(n * sizeof(DtWait));
	memcpy(waits, dt_wait_list, n * sizeof(DtWait));
	LWLockRelease(dt_waits->look_lock);

	for (int i = 0; i < n; i++)
	{
		CHECK_FOR_INTERRUPTS();
		/* whoever is to look may fail to get the lock from us again and again */
		if (dt_look_age() >= dt_waits->interval_us)
			(void) dt_look();
		wait_for_look_lock();
		begin_look();
		list = list_in_the_way(list, &waits[i]);
		end_look();
	}
	return list;
}
