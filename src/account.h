/*-------------------------------------------------------------------------
 *
 * account.h
 *		What this backend has used, charged to its group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_H
#define DT_ACCOUNT_H

#include "executor/instrument.h"
#include "member.h"

/*
 * The values of the core's counters at which the next charge is due: of
 * pgBufferUsage.shared_blks_dirtied, and of pgWalUsage.wal_bytes.
 */
extern int64 dt_account_next_dirty;
extern int64 dt_account_next_wal;

/* One comparison for both: is either difference not negative? */
static inline bool
dt_account_charge_is_due(void)
{
	return ((pgBufferUsage.shared_blks_dirtied - dt_account_next_dirty) &
			((int64) pgWalUsage.wal_bytes - dt_account_next_wal)) >= 0;
}

/*
 * From now on this backend's account is the one in this slot, its own or, in a
 * parallel worker, its leader's.  What is used while the slot is a member of a
 * group is charged to that group; whoever makes it one, or another's.
 */
extern void dt_account_attach(DtMember *member);

/*
 * Leave the group, if any, of our own will: charge the rest, and go on owing
 * what is owed.  False when that is owed to too many groups already: then we
 * are still in this one, and must pay first.
 */
extern bool dt_account_leave(void);

/*
 * The process ends: leave the group, and all that is owed to the groups.
 */
extern void dt_account_close(void);

/*
 * Is there an account?  Others may have closed it, or opened one for another
 * group; that is found out here and by every charge.
 */
extern bool dt_account_is_open(void);

/* Is there one, or something that is owed to a group that we have left? */
extern bool dt_account_may_owe(void);

/*
 * Is the group stopped, for who runs a transaction, or for who does not?
 */
extern bool dt_account_is_stopped(bool in_flight);

/*
 * Without finding out and without a lock, also in a signal handler: this
 * backend's counter of a resource, in bytes; the group's rate in bytes/s, 0
 * when there is no limit in force; and may anything have to be charged?
 */
extern int64 dt_account_counter(DtResource resource);
extern int64 dt_account_rate(DtResource resource);
extern bool dt_account_has_used(void);

/*
 * Charge what was used since the last charge, at a place that can be a safe
 * point, within a transaction or not: returns the pause that is due, us.
 * *owed_us is what is owed, in time at the group's rate.
 */
extern int64 dt_account_charge(bool in_flight, int64 *owed_us);

/* The next safe point is to charge, whatever was used. */
extern void dt_account_charge_at_next_safe_point(void);

/* Charge when the group has changed since the last charge. */
extern void dt_account_follow_limit(void);

/*
 * Charge from a signal handler.  Never waits: -1 when the account is in use,
 * try again.  Otherwise, if a pause is due, what is owed, in time at the
 * group's rate, us; or 0.
 */
extern int64 dt_account_charge_live(void);

/* Was anything charged since the transaction began? */
extern bool dt_account_xact_has_used(void);

/*
 * A pause: for how much longer, in us, until all is paid.  More than 0 marks
 * this backend as asleep, 0 as running again; "first" counts a pause.  When the
 * group is only observed, the pause is counted as one that would have been, and
 * never made.  dt_account_end_pause() ends one before all is paid.
 */
extern int64 dt_account_pause_left(bool first, bool in_flight);
extern void dt_account_end_pause(void);

/* We go on without a pause, since others wait for us. */
extern void dt_account_count_release(void);

/*
 * Did the last look find a pause to make?  Is there neither a debt nor
 * anything to be charged?
 */
extern bool dt_account_owes(void);
extern bool dt_account_is_settled(void);

/* The transaction is over: what is used from now on is the next one's. */
extern void dt_account_end_transaction(void);

/*
 * A parallel worker begins to work for its leader, or, more exactly, to run its
 * part of a plan; and ends well: it leaves word of what it has charged.  The
 * leader forgets what is left of that when the (sub)transaction ends.
 */
extern void dt_account_begin_worker(void);
extern void dt_account_end_worker_run(void);
extern void dt_account_publish_worker(void);
extern void dt_account_forget_workers(void);

/*
 * A parallel query has ended well, and the leader's counter has got what its
 * workers have used: before anything else can fail, strike that off.
 */
extern void dt_account_settle_workers(void);

#endif							/* DT_ACCOUNT_H */
