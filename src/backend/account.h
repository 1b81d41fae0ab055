/*-------------------------------------------------------------------------
 *
 * account.h
 *		What this process uses, charged to its group.
 *
 * DtAccount, in account_internal.h, is local: what this process knows of its
 * membership, and how much of what it has used was charged.  What it owes is
 * in shared memory, in the accounts of the rate engine (rate.h).
 *
 * Three words describe where a member pays: a safe point is a place in the
 * code where it may sleep; a pause there is "in flight" if it is within a
 * transaction; and a pause consists of slices, sleeps of at most a second.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_H
#define DT_ACCOUNT_H

#include "executor/instrument.h"
#include "registry/member.h"

/*
 * The values of the core's counters at which the next charge is due: of
 * pgBufferUsage.shared_blks_dirtied, and of pgWalUsage.wal_bytes.
 */
extern int64 dt_account_next_dirty;
extern int64 dt_account_next_wal;

/* Is either reached?  This runs for each row, so one comparison does both. */
static inline bool
dt_account_charge_is_due(void)
{
	return ((pgBufferUsage.shared_blks_dirtied - dt_account_next_dirty) &
			((int64) pgWalUsage.wal_bytes - dt_account_next_wal)) >= 0;
}

/*
 * Functions with "lock_and" in their names take a group's lock, and so does
 * dt_account_try_charge().  The others use local variables, or read shared
 * memory without a lock, so what they return may be out of date by a moment.
 */

/*
 * From now on what this process uses is charged to this slot, which is its own
 * or its parallel leader's, and to the group that the slot is in at the time
 * of the charge.  NULL: no more charges.
 */
extern void dt_account_attach(DtMember *member);

/*
 * Leave the group, if any, by the session's own choice: charge the rest, and
 * go on owing what is owed.  False when the session owes to too many groups
 * already: then it stays in the group and has to pay first.  The caller holds
 * the registry lock in shared mode.
 */
extern bool dt_account_lock_and_leave(void);

/* The process ends: leave the group, and hand all debts over to the groups. */
extern void dt_account_lock_and_close(void);

/*
 * Is the slot in a group?  Others can change that at any time; this finds out,
 * and so does every charge.
 */
extern bool dt_account_lock_and_follow(void);

/* Does suspend_group() make us pause, in a transaction or outside of one? */
extern bool dt_account_is_suspended(bool in_flight);

/*
 * This session has suspended the group with that ID: if it is a member, the
 * suspension does not make it pause, however long it lasts.  Returns whether it
 * is one.
 */
extern bool dt_account_lock_and_exempt(uint64 group_id);

/*
 * This process's counter of a resource, in bytes; the group's rate in bytes/s,
 * 0 when no limit is in force; how many bytes are worth a charge, as of the
 * last one; and whether a charge has anything to do: true if something was
 * used since the last one, or if this process does not know its present
 * membership.  These may be called in a signal handler.
 */
static inline int64
dt_account_counter(DtResource resource)
{
	return resource == DT_DIRTY ?
		pgBufferUsage.shared_blks_dirtied * BLCKSZ :
		(int64) pgWalUsage.wal_bytes;
}

extern int64 dt_account_rate(DtResource resource);
extern int64 dt_account_threshold(DtResource resource);
extern bool dt_account_has_used(void);

/*
 * Charge what was used since the last charge.  Returns the pause that is due,
 * us, also for debts to groups that the session has left, and for what others
 * of its role have left unpaid.  in_flight: in a transaction, where
 * suspend_group() makes it pause only with "hard".  Sets *owed_us to the
 * largest debt for which a pause is due, in time at its group's rate.
 */
extern int64 dt_account_lock_and_charge(bool in_flight, int64 *owed_us);

/*
 * Before a transaction: has this session to wait for what others of its role
 * have left unpaid in the group?  When it has not, it never has to as long as
 * it is in this group.
 */
extern bool dt_account_lock_and_pays_for_role(void);

/* At the next safe point a charge is due, even if nothing was used. */
extern void dt_account_charge_at_next_safe_point(void);

/* Charge if group->generation has changed since the last charge. */
extern void dt_account_lock_and_follow_limit(void);

/*
 * Charge from a signal handler.  Never waits for the lock: returns -1 when it
 * is taken, or when the handler has interrupted a function that changes the
 * account; then the caller tries again later.  Otherwise returns what is owed
 * if a pause is due, in time at the group's rate, us; or 0.
 */
extern int64 dt_account_try_charge(void);

/* Was anything charged since the transaction began? */
extern bool dt_account_xact_has_used(void);

/*
 * Before each slice of a pause: returns for how much longer to sleep, us, but
 * at most "longest", unless the group is suspended.  If the result is more
 * than 0, this process is marked as asleep, and the pause is counted if
 * "first" is true; otherwise it is marked as running.  In mode observe the
 * limits of the group cause no sleep: what is owed is forgiven, and counted as
 * an observed pause.  *suspended tells whether suspend_group() is the reason
 * for the sleep.
 *
 * dt_account_lock_and_end_pause() ends a pause before all is paid.
 */
extern int64 dt_account_lock_and_pause(bool first, bool in_flight,
									   int64 longest, bool *suspended);
extern void dt_account_lock_and_end_pause(void);

/*
 * The process goes on without pausing because others wait, among them the one
 * with this ID; see dt_member_note_release().
 */
extern void dt_account_lock_and_note_release(int pid);
extern void dt_account_lock_and_end_release(void);

/*
 * dt_account_pause_is_due(): did the last charge or slice find that a pause is
 * due?  (A member may owe a little without that.)  dt_account_is_settled(): it
 * did not, nothing is left to be charged, and there is no debt to another
 * group.
 */
extern bool dt_account_pause_is_due(void);
extern bool dt_account_is_settled(void);

/*
 * dt_account_is_current(): the process is in a group, and has charged since
 * the last change of the membership, the limits and the suspension.
 * dt_account_is_quiet(): besides, it is settled, parallel workers included,
 * and the group is not suspended, so that the end of a transaction has nothing
 * to do.
 */
extern bool dt_account_is_current(void);
extern bool dt_account_is_quiet(void);

/* The transaction is over: what is used from now on is the next one's. */
extern void dt_account_end_transaction(void);

#endif							/* DT_ACCOUNT_H */
