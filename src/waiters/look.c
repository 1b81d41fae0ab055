/*-------------------------------------------------------------------------
 *
 * look.c
 *		Look at all who wait, and mark the members that are in their way.
 *
 * A process that waits says so in its PGPROC; how, is in kinds.c.  A look goes
 * from each that has waited for too long, or while anybody has a mark from each
 * that waits, to all for whom it waits, one behind the other (chain.c).  So each
 * process on the way comes to know who waits behind it, and for how long.  At the end
 * each member gets a mark in its slot that is in the way of a process that counts, and
 * that has waited for the member's max_blocking_time; if it sleeps, it is woken.  The
 * mark stays for as long as any process that counts waits behind it.
 *
 * Processes that wait are found without a lock.  Where everything
 * stands as it did at the last look, which a signature shows, and nobody has
 * fallen asleep, the marks stay as well; but one of three looks walks in any case.
 *
 * A process that has waited too long does not wait that long again for the next one: for a
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

#include "common/hashfn.h"
#include "shared/shmem.h"
#include "waiters/chain.h"
#include "waiters/kinds.h"
#include "waiters/look.h"
#include "waiters/waits.h"

#include "compat.h"

/*
 * The next look is due after half of max_blocking_time, or when a process will have
 * waited for so long, but within these bounds; and sooner after one that has let
 * go.
 */
#define SHORT_INTERVAL_US	25000
#define LONG_INTERVAL_US	50000
#define SOON_US				3000

/* Attempts count together up to this time. */
#define FOR_ATTEMPTS_US	INT64CONST(60000000)

/* Of this many looks at the same picture one walks. */
#define WALK_EVERY		3

static bool
take_look_lock(void)
{
	if (!LWLockConditionalAcquire(dt_waits->look_lock, LW_EXCLUSIVE))
		return false;
	pg_atomic_write_u64(&dt_waits->began_at, dt_now_us());
	return true;
}

/*
 * From now on until end_look() the picture is this process's own.  A process that has
 * died in a look may have left anything in it.
 */
static void
begin_look(void)
{
	dt_picture_clear(&dt_picture, dt_waits->is_in_use);
	dt_waits->is_in_use = true;
}

static void
end_look(void)
{
	dt_picture_clear(&dt_picture, false);
	dt_waits->is_in_use = false;
	pg_atomic_write_u64(&dt_waits->began_at, 0);
	LWLockRelease(dt_waits->look_lock);
}

/* ------------------------------------------------------------ all who wait */

/*
 * A process that tries to get the same lock again and again, for a short time each,
 * has waited for all of that.
 */
static int64
add_earlier_attempts(DtWaitSlot *slot, PGPROC *proc, bool is_known,
					 TimestampTz start, int64 us)
{
	LOCK	   *lock = ((volatile PGPROC *) proc)->waitLock;
	uint32		wanted;

	if (lock == NULL || us > FOR_ATTEMPTS_US)
		return us;
	wanted = LockTagHashCode(&lock->tag);	/* never returned to the system */
	if (!is_known || wanted != slot->wanted)
		slot->earlier_us = 0;
	else if (start != slot->attempt_start)
		slot->earlier_us = Min(slot->earlier_us + slot->attempt_us, FOR_ATTEMPTS_US);
	slot->wanted = wanted;
	slot->attempt_start = start;
	slot->attempt_us = us;
	return us + slot->earlier_us;
}

/*
 * For how long has this process waited, us?  A process that has waited for "late" does
 * not wait that long again for the next one.
 */
static int64
time_waited(PGPROC *proc, DtKind kind, int64 now, int64 late, uint64 *signature)
{
	DtWaitSlot *slot = &dt_wait_slots[GetNumberFromPGProc(proc)];
	bool		is_known = dt_kind_is_known(slot, proc, now);
	uint32		event = ((volatile PGPROC *) proc)->wait_event_info;
	TimestampTz start;
	int64		us;

	if (!is_known || slot->wait_event != event)
		slot->waits_since = now;
	slot->pid = proc->pid;
	slot->wait_event = event;
	slot->seen_at = now;
	start = slot->waits_since;
	us = now - start;
	if (kind == DT_WAITS_FOR_LOCK)
	{
		start = (TimestampTz) pg_atomic_read_u64(&proc->waitStart);
		us = add_earlier_attempts(slot, proc, is_known, start,
								  dt_kind_waited(kind, proc, now));
	}
	*signature = hash_combine64(*signature, GetNumberFromPGProc(proc));
	*signature = hash_combine64(*signature, start);
	*signature = hash_combine64(*signature, event);
	if (!is_known || now - slot->late_at >= DT_WAIT_MEMORY_US)
		slot->late_us = 0;
	if (us >= late)
	{
		slot->late_us = us;
		slot->late_at = now;
	}
	return Max(us, slot->late_us);
}

/* A process that has got the lock that it wanted has not waited for the next one. */
static void
forget_attempts(DtWaitSlot *slot, PGPROC *proc)
{
	if ((slot->attempt_us | slot->earlier_us) != 0 &&
		((volatile PGPROC *) proc)->waitStatus == PROC_WAIT_STATUS_OK)
		slot->attempt_us = slot->earlier_us = 0;
}

/*
 * Find all who wait.  The result is a signature of all of them, and of which have
 * waited for "least".  While a process has waited for that, but not yet for "most",
 * each look has a signature of its own, and so is not left out as the same as the
 * last one: it may have come to wait too long for one more member.
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
	dt_picture.n_waits = 0;
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
		dt_picture.waits[dt_picture.n_waits++] = (DtWait)
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

/*
 * Find out who waits behind whom.  Those who have waited longest come first: so
 * what a process comes to know is final as soon as it does, and its wait is
 * walked for each group once at most, in whatever order a chain has come about.
 */
static void
walk_all(int64 now, int64 least)
{
	qsort(dt_picture.waits, dt_picture.n_waits, sizeof(DtWait), longest_first);
	dt_kind_begin_walk(&dt_picture);

	/* all of them first, so that one pass over a queue serves all */
	for (int i = 0; i < dt_picture.n_waits; i++)
		if (dt_picture.waits[i].counts && dt_picture.waits[i].us >= least)
			dt_chain_begin(&dt_picture, &dt_picture.waits[i], now);
	for (int i = 0; i < dt_picture.n_waits; i++)
		if (dt_picture.waits[i].counts && dt_picture.waits[i].us >= least)
			dt_chain_walk(&dt_picture, &dt_picture.waits[i]);
}

/* ------------------------------------------------------------------- marks */

/*
 * Who has waited longest for a transaction that a member of this group has
 * prepared?  If it is not known who has prepared it, as after a restart, its role
 * and database decide: only that role can finish it, but for superusers.
 */
static DtLongest
longest_for_prepared(PGPROC *member, const DtGroup *g)
{
	DtLongest	longest = DT_NO_WAITS.all;

	for (int i = 0; i < dt_picture.n_prepared && g != NULL; i++)
	{
		PGPROC	   *dummy = GetPGProcByNumber(dt_picture.prepared[i]);
		DtWaitSlot *slot = &dt_wait_slots[dt_picture.prepared[i]];
		DtBehind   *behind = &dt_picture.nodes[dt_picture.prepared[i]].behind;
		DtLongest	outsider = dt_behind_outsider(behind, dt_group_number(g));
		DtLongest	mate = dt_behind_mate(behind, dt_group_number(g));

		if (slot->prepared_xid == dummy->xid ? slot->prepared_in != g->id :
			dummy->roleId != member->roleId ||
			dummy->databaseId != member->databaseId)
			continue;
		(void) dt_longest_of(&longest, &outsider);
		(void) dt_longest_of(&longest, &mate);
	}
	return longest;
}

/* Has a process waited for "us"?  Sets *pid to which one. */
static bool
is_late(DtLongest longest, int64 us, int *pid)
{
	*pid = longest.pid;
	return longest.us >= us;
}

/*
 * Which mark is due to a process, which for a parallel worker is its leader's?
 * Sets *pid to the process that waits.
 */
static DtMark
find_mark(int number, int *pid)
{
	DtWaitSlot *slot = &dt_wait_slots[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	int			leader = slot->asleep || slot->mark != DT_NOT_IN_THE_WAY ?
		dt_node_of(proc) : number;
	DtBehind   *behind = &dt_picture.nodes[leader].behind;
	DtGroup    *g;
	int64		us;

	if ((!dt_picture.nodes[leader].is_used && dt_picture.n_prepared == 0) ||
		slot->max_blocking_ms < 0)
		return DT_NOT_IN_THE_WAY;
	g = ((volatile DtMember *) &dt_members[leader])->group;
	if (g == NULL && !slot->asleep)
		return DT_NOT_IN_THE_WAY;
	us = slot->mark != DT_NOT_IN_THE_WAY ? 0 :
		slot->max_blocking_ms * INT64CONST(1000);
	if (is_late(dt_behind_outsider(behind, dt_group_number(g)), us, pid))
		return DT_IN_THE_WAY_OF_OUTSIDERS;
	if (is_late(dt_behind_mate(behind, dt_group_number(g)), us, pid))
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
 * How long must a process have waited to be in the picture: for the member that
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
	/* a process with a mark goes on for as long as others wait */
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
 * Look.  False: it was left to another process, which looks just now, or which was
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
		if (dt_picture.n_used > 0 || dt_waits->any_marked)
			any_new = set_marks();
	}
	dt_waits->interval_us = next_interval(late, until_late, any_new);
	pg_atomic_write_u64(&dt_waits->looked_at, now);
	end_look();
	return true;
}
