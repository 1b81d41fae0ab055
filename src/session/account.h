/*-------------------------------------------------------------------------
 *
 * account.h
 *		What this process uses, charged to its group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_H
#define DT_ACCOUNT_H

#include "access/parallel.h"
#include "executor/instrument.h"
#include "session/phase.h"
#include "shared/member.h"

/* What this process knows of its use of one resource; bytes. */
typedef struct DtUsage
{
	int64		charged_up_to;	/* counter value at the last charge */
	bool		was_throttled;	/* at the last charge, if there was any */
	int64		batch;			/* bytes between two charges, as of the last
								 * one */
	int64		taken;			/* of the slot's workers_used: that much was
								 * left out */
	int64		left_out;		/* since parallel mode began */
} DtUsage;

/* What a charge has found. */
typedef struct DtDue
{
	int64		pause_us;		/* how long to pause, at most a second; 0: not */
	int64		owed_us;		/* what is owed, in time at the group's rate;
								 * 0 if it is not worth a pause */
	int64		left_us;		/* how long it takes to pay all of it, as
								 * others owe, too */
	int64		used_us;		/* how long it takes to pay for what this
								 * charge has charged, as others owe, too */
	int64		owed_bytes[DT_RESOURCES];	/* of each, ... */
	DtResource	slowest;		/* ... of which this takes longest to pay */
	DtPauseCause cause;
	bool		heeds_suspension;	/* as the charge was asked to */
	bool		observed;		/* mode observe: instead of a pause call
								 * dt_account_forgive() */
} DtDue;

/*
 * What this process knows of its membership, and how much of what it has used
 * was charged.  What it owes is in shared memory, in the accounts of the rate
 * engine.  account.c writes this; but session.c "slot", workers.c "plan_level",
 * and others tell by
 * dt_account_charge_at_next_safe_point() that a charge is due.
 */
typedef struct DtAccount
{
	/*
	 * The values of the core's counters at which the next charge is due: of
	 * pgBufferUsage.shared_blks_dirtied, and of pgWalUsage.wal_bytes.
	 */
	int64		next_dirty;
	int64		next_wal;

	DtMember   *slot;			/* ours or our leader's, or dt_no_slot */
	DtGroup    *group;			/* NULL: no account, as far as we know */
	DtUsage		usage[DT_RESOURCES];
	uint32		generation;		/* group->generation at the last charge */
	uint32		times_joined;	/* slot->times_joined at the last look */
	uint32		times_left;		/* the same of slot->times_left */
	int			plan_level;		/* the level of the transaction in which a
								 * parallel plan has begun; 0: none runs */
	volatile bool is_due;		/* the last charge has found a pause */
} DtAccount;

extern DtAccount dt_account;

/*
 * The slot of a process that has none, or has not attached to it yet: in no
 * group.
 */
extern DtMember dt_no_slot;

/*
 * Is a charge due, for one of the resources or both?  This runs for each row.
 * The bitwise "and" of two differences is negative only if both are, so there
 * is one comparison.
 */
static inline bool
dt_account_charge_is_due(void)
{
	return ((pgBufferUsage.shared_blks_dirtied - dt_account.next_dirty) &
			((int64) pgWalUsage.wal_bytes - dt_account.next_wal)) >= 0;
}

/* At the next safe point a charge is due, even if nothing was used. */
static inline void
dt_account_charge_at_next_safe_point(void)
{
	dt_account.next_dirty = dt_account.next_wal = 0;
}

/* This process's counter of a resource, in bytes. */
static inline int64
dt_account_counter(DtResource resource)
{
	return resource == DT_DIRTY ?
		pgBufferUsage.shared_blks_dirtied * BLCKSZ :
		(int64) pgWalUsage.wal_bytes;
}

/* What this process has used since its last charge, in bytes. */
static inline int64
dt_account_uncharged(DtResource resource)
{
	return dt_account_counter(resource) -
		dt_account.usage[resource].charged_up_to;
}

/* Has this process used something since its last charge? */
static inline bool
dt_account_has_uncharged(void)
{
	return (dt_account_uncharged(DT_DIRTY) | dt_account_uncharged(DT_WAL)) != 0;
}

/*
 * How much of what this process knows is up to date: the membership (known),
 * also the limits (current), and also the end of its last transaction (quiet).
 * Each is true only if the one before is.
 *
 * Is what it knows of its membership up to date?
 */
static inline bool
dt_account_is_known(void)
{
	return dt_account.group != NULL &&
		dt_account.slot->group == dt_account.group &&
		dt_account.slot->times_joined == dt_account.times_joined;
}

/*
 * Has it charged since the last change of the membership, the limits and the
 * suspension?
 */
static inline bool
dt_account_is_current(void)
{
	return dt_account_is_known() &&
		pg_atomic_read_u32(&dt_account.group->generation) == dt_account.generation;
}

/* What parallel workers have used that was not left out yet, in bytes. */
static inline int64
dt_account_open(DtResource resource)
{
	return (int64) pg_atomic_read_u64(&dt_account.slot->workers_used[resource]) -
		dt_account.usage[resource].taken;
}

/* Has this process parallel workers whose use is not settled? */
static inline bool
dt_account_has_workers(void)
{
	return unlikely((dt_account_open(DT_DIRTY) | dt_account_open(DT_WAL) |
					 dt_account.usage[DT_DIRTY].left_out |
					 dt_account.usage[DT_WAL].left_out) != 0) &&
		!IsParallelWorker();
}

/*
 * Does the end of a transaction have nothing to do?  So it is when the process
 * is current, nothing is left to be charged, no pause is due, and the group is
 * not suspended.
 */
static inline bool
dt_account_is_quiet(void)
{
	return dt_account_is_current() && !dt_account.is_due &&
		dt_xact.carried == DT_CARRIES_NOTHING &&
		!dt_account_has_uncharged() && dt_account.group->suspended_since == 0;
}

/* A transaction has ended and was charged: the next one has an allowance. */
static inline void
dt_account_renew_allowance(void)
{
	dt_account.slot->usage[DT_DIRTY].allowed =
		dt_account.slot->usage[DT_WAL].allowed = 0;
}

/* Does it go on without pauses, since others wait for it? */
static inline bool
dt_account_is_released(void)
{
	return dt_now_us() < dt_account.slot->released_until;
}

/*
 * Is this process in a group, as far as it or others know?  Others may have taken it
 * out, which it is to find out.  May be called in a signal handler.
 */
static inline bool
dt_account_is_member(void)
{
	return dt_account.slot->group != NULL || dt_account.group != NULL;
}

/* These only read.  They may be called in a signal handler. */
extern int64 dt_account_quantum(DtResource resource);
extern bool dt_account_check_is_due(int64 worth_us);

/* These lock the group. */
extern DtGroup *dt_account_lock(int64 *now);
extern bool dt_account_follow(void);
extern void dt_account_leave(void);

/*
 * Pass what this process owes to another member of its group.  False: it is in
 * another one, or in none.
 */
extern bool dt_account_pass_debt(DtMember *to);

/*
 * Charge what was used since the last charge.  heeds_suspension: what is due is a
 * pause also while the group is suspended, as outside of a transaction.
 */
extern DtDue dt_account_charge(bool heeds_suspension);

/*
 * A pause begins, for what was due when this process looked last.  False: not so,
 * as the session was moved meanwhile.
 */
extern bool dt_account_begin_pause(DtPause *pause);
extern DtDue dt_account_look(bool heeds_suspension, DtPause *pause);
extern void dt_account_forgive(void);

/* What the whole group owes, in time at its rate. */
extern int64 dt_account_group_owes_us(void);

/*
 * What parallel workers have charged is left out of what this process is charged, as
 * far as its counters include it.  The second: something has failed, and they never will.
 */
extern void dt_account_leave_workers_out_slow(void);
extern void dt_account_fail_workers(void);

static inline void
dt_account_leave_workers_out(void)
{
	if (dt_account_has_workers())
		dt_account_leave_workers_out_slow();
}

extern void dt_account_note_release(int pid);

/*
 * For work that is cut into transactions: how many bytes of a resource can one
 * of this session use without a pause in flight?  0: as many as it wants.
 */
extern int64 dt_account_without_pause(DtResource resource);

/* For how long has the session paused since it has joined its group, us? */
extern int64 dt_account_paused_us(void);

#endif							/* DT_ACCOUNT_H */
