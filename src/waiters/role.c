/*-------------------------------------------------------------------------
 *
 * role.c
 *		Which of those who pause looks, and what a session knows of it.
 *
 * A process that pauses sleeps.  One of those who sleep is the looker: it wakes up for
 * each look.  The first four of the others wake up when a look must have been made, and if
 * there was none, because the looker was stopped for instance, the first of them takes the
 * role over.  All others sleep for as long as they have to pause, and look then whether
 * there was one.
 *
 * A process that wakes up, or begins to sleep, and finds the role free takes it.  One that
 * stops sleeping while the role is its own or free wakes another one that sleeps, to take
 * it; if that one has just stopped, it does the same.  A process that begins to sleep first
 * says so, then looks at the role; one that stops first gives up the role, then looks for
 * sleepers.  So one of two that do this at once sees the other.
 *
 * Marks count only for a while: when all who slept were let go nobody looks any
 * more, and they would run without a pause for ever.  So a process that finds that the last
 * look is old looks itself before it believes its mark, or pauses without one.
 * A lost look costs a pause, not a wait.
 *
 * A process that is never to be let go, as max_blocking_time says or a suspension, takes
 * no part in this.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "shared/shmem.h"
#include "waiters/look.h"
#include "waiters/waits.h"

#include "compat.h"

/*
 * A mark is believed for so long, which is longer than from one look to the next;
 * and that there is none.
 */
#define MARK_COUNTS_US		100000
#define NO_MARK_COUNTS_US	250000

/* After this time without a look another one takes the role.  This many watch. */
#define LOOKER_HANGS_US		200000
#define N_WATCH				4

/* Another process looks just now, or hangs in a look: when to try again. */
#define BUSY_US				5000

/* Nobody sleeps for less. */
#define SHORTEST_US			1000

/*
 * It had a mark in a transaction that has ended, and nobody has looked since.  A process that
 * waited for something that it still holds, a session-level lock for instance, waits
 * on.
 */
static bool had_mark = false;

static inline DtWaitSlot *
my_slot(void)
{
	return &dt_wait_slots[MyProcNumber];
}

void
dt_waiters_attach(bool counts_as_mate)
{
	DtWaitSlot *me = my_slot();

	me->asleep = false;
	me->counts_as_mate = counts_as_mate;
	me->max_blocking_ms = dt_parameters.max_blocking_time;
	me->owes_until = 0;
	me->mark = DT_NOT_IN_THE_WAY;
}

/* What a parallel worker owes its leader owes. */
void
dt_waiters_note_debt(uint64 group_id, int64 owes_until)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;
	DtWaitSlot *slot = leader == NULL ? my_slot() :
		&dt_wait_slots[GetNumberFromPGProc(leader)];

	if (slot->owes_until != owes_until)
		slot->owes_until = owes_until;
	if (slot->owes_in != group_id)
		slot->owes_in = group_id;
}

/* ---------------------------------------------------------------- the role */

static inline bool
is_looker(void)
{
	return pg_atomic_read_u32(&dt_waits->looker) == MyProcNumber + 1;
}

/* Take the role from that process, or with 0 if it is free. */
static void
take_role_from(uint32 from)
{
	(void) pg_atomic_compare_exchange_u32(&dt_waits->looker, &from, MyProcNumber + 1);
}

static void
give_up_role(void)
{
	uint32		mine = MyProcNumber + 1;

	(void) pg_atomic_compare_exchange_u32(&dt_waits->looker, &mine, 0);
}

/* Wake a process that sleeps, if the role is free. */
static void
hand_role_on(void)
{
	if (pg_atomic_read_u32(&dt_waits->looker) != 0 ||
		pg_atomic_read_u32(&dt_waits->n_asleep) == 0)
		return;
	for (int i = 1; i < dt_shared->n_members; i++)
	{
		int			number = (MyProcNumber + i) % dt_shared->n_members;

		if (!dt_wait_slots[number].asleep || !dt_wait_slots[number].wakes_to_look)
			continue;
		SetLatch(&GetPGProcByNumber(number)->procLatch);
		return;
	}
}

/* ------------------------------------------------------------------- looks */

/* Does a look go on for so long that the process that makes it was stopped? */
static bool
look_hangs(void)
{
	int64		began_at = pg_atomic_read_u64(&dt_waits->began_at);

	return began_at != 0 && dt_now_us() - began_at >= NO_MARK_COUNTS_US;
}

static bool
look(void)
{
	bool		looked;

	dt_defer_termination();
	looked = dt_look();
	dt_allow_termination();
	return looked;
}

static void
fall_asleep(bool wakes_to_look)
{
	my_slot()->max_blocking_ms = dt_parameters.max_blocking_time;
	my_slot()->wakes_to_look = wakes_to_look;
	if (my_slot()->asleep)
		return;

	/*
	 * a process that is ended between these two leaves the count too high,
	 * which costs some time in hand_role_on()
	 */
	pg_atomic_fetch_add_u32(&dt_waits->n_asleep, 1);
	my_slot()->asleep = true;
	pg_write_barrier();
	dt_waits->walk_is_due = true;
	pg_memory_barrier();
}

static void
take_role(void)
{
	take_role_from(0);
	if (dt_look_age() >= LOOKER_HANGS_US && !is_looker() && look())
		take_role_from(pg_atomic_read_u32(&dt_waits->looker));
}

/* Is this process one of those that wake up to find out whether there are looks? */
static bool
watches_looker(void)
{
	uint32		looker = pg_atomic_read_u32(&dt_waits->looker);
	int			before = 0;

	for (int i = 0; i < MyProcNumber && before < N_WATCH; i++)
		if (dt_wait_slots[i].asleep && looker != i + 1)
			before++;
	return before < N_WATCH;
}

int64
dt_waiters_before_slice(bool wakes_to_look)
{
	if (dt_parameters.max_blocking_time < 0)
	{
		dt_waiters_after_pause();
		return PG_INT64_MAX;
	}
	fall_asleep(wakes_to_look);
	take_role();
	if (had_mark)
		return SHORTEST_US;		/* then it looks itself */
	if (is_looker())
	{
		if (dt_look_age() >= dt_waits->interval_us && !look())
			return BUSY_US;
		return Max(dt_waits->interval_us - dt_look_age(), SHORTEST_US);
	}
	return watches_looker() ? Max(LOOKER_HANGS_US - dt_look_age(), BUSY_US) :
		PG_INT64_MAX;
}

void
dt_waiters_after_pause(void)
{
	if (!my_slot()->asleep)
		return;
	my_slot()->asleep = false;
	pg_atomic_fetch_sub_u32(&dt_waits->n_asleep, 1);	/* a barrier */
	give_up_role();
	hand_role_on();
}

/* The process ends, maybe within a call of the function above. */
void
dt_waiters_detach(void)
{
	dt_waiters_after_pause();
	give_up_role();
	my_slot()->max_blocking_ms = -1;
	my_slot()->mark = DT_NOT_IN_THE_WAY;
}

/*
 * If no process can look, since the one that does was stopped in the middle of it, others
 * may be waiting, for all that is known.  A member that owes too much does not go on
 * for that.
 */
DtMark
dt_waiters_mark(int *waiting_pid)
{
	DtWaitSlot *me = my_slot();
	int64		counts_us;
	bool		is_old;

	me->max_blocking_ms = dt_parameters.max_blocking_time;
	if (me->max_blocking_ms < 0)
		return DT_NOT_IN_THE_WAY;
	if (me->mark != DT_NOT_IN_THE_WAY)
		had_mark = false;		/* it has a new one */
	counts_us = me->mark != DT_NOT_IN_THE_WAY ? MARK_COUNTS_US :
		had_mark ? SHORTEST_US : NO_MARK_COUNTS_US;
	is_old = dt_look_age() >= counts_us;
	had_mark &= !is_old;
	if (is_old && !look() && look_hangs())
	{
		*waiting_pid = MyProcPid;
		return DT_IN_THE_WAY_OF_MATES;
	}
	*waiting_pid = me->marked_for;
	return me->mark;
}

/*
 * The transaction has ended, and its locks are free: a look finds who waits on.  It
 * is made before the next pause, so that they do not wait anew at each transaction.  A
 * pause in it may have been ended by an ERROR.
 */
void
dt_waiters_end_transaction(void)
{
	DtWaitSlot *me = my_slot();

	if (me->asleep)
		dt_waiters_after_pause();
	if (me->mark != DT_NOT_IN_THE_WAY)
	{
		had_mark = true;
		me->mark = DT_NOT_IN_THE_WAY;
		dt_waits->walk_is_due = true;
	}
}

/* The locks of the transaction are held by a PGPROC that has its ID. */
void
dt_waiters_note_prepared(TransactionId xid, uint64 group_id)
{
	for (int i = 0; i < max_prepared_xacts; i++)
	{
		DtWaitSlot *slot = &dt_wait_slots[dt_n_processes + i];

		if (PreparedXactProcs[i].xid != xid)
			continue;
		slot->prepared_in = group_id;
		pg_write_barrier();
		slot->prepared_xid = xid;
		return;
	}
}
