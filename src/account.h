/*-------------------------------------------------------------------------
 *
 * account.h
 *		What this backend has dirtied, charged to its group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_H
#define DT_ACCOUNT_H

#include "group.h"

/* For dt_pace(): the counter value at which the next charge is due. */
extern int64 dt_account_next_charge;

/*
 * This backend has become a member of the group: what it dirties from now on
 * is charged to it, under "member".
 */
extern void dt_account_open(DtMember *member, DtGroup *group);

/*
 * It is no member any more: charge the rest, leave what is owed to the group.
 * Nothing to do when there is no account.
 */
extern void dt_account_close(void);

/*
 * Is there an account?  A group that was dropped by force has none any more;
 * that is found out here and by every charge.
 */
extern bool dt_account_is_open(void);

/* The same without finding out, and the group's limit is in force. */
extern bool dt_account_is_throttled(void);

/* How long a block takes at this member's share of the rate, us; 0: no limit. */
extern int64 dt_account_block_time(void);

/*
 * Charge what was dirtied since the last charge, at a place that can be a safe
 * point: returns the pause that is due, us.  *xact_owed_us is how much of the
 * debt is this transaction's, in time at the group's rate.
 */
extern int64 dt_account_charge(int64 *xact_owed_us);

/* Charge when the group has changed since the last charge. */
extern void dt_account_follow_limit(void);

/*
 * Charge from a signal handler, while a command runs that has no safe points.
 * Never waits: -1 when the account is in use, try again.  Otherwise the pause
 * that is due, in us, and in *blocks how many may be dirtied before the next
 * charge.
 */
extern int64 dt_account_charge_live(int64 *blocks);

/* Charged since the transaction began, blocks. */
extern int64 dt_account_xact_blocks(void);

/*
 * A pause: for how much longer, in us, until nothing is owed but "keep" bytes.
 * More than 0 marks this backend as asleep, 0 as running again; "first" counts
 * a pause.  dt_account_end_pause() ends one before all is paid.
 */
extern int64 dt_account_pause_left(bool first, int64 keep);
extern void dt_account_end_pause(void);

/*
 * Did the last look at the account find a debt?  Is there neither a debt nor
 * anything to be charged?
 */
extern bool dt_account_owes(void);
extern bool dt_account_is_settled(void);

/*
 * The transaction is over: what is owed now is not the next one's, but
 * carried, in bytes.
 */
extern void dt_account_carry(void);
extern int64 dt_account_carried(void);

/*
 * A parallel worker runs its part of the plan from .. to; then, when it ends
 * well, leaves word of what it has charged.  The leader forgets what is left
 * of that when the (sub)transaction ends.
 */
extern void dt_account_begin_worker_run(void);
extern void dt_account_end_worker_run(void);
extern void dt_account_publish_worker(void);
extern void dt_account_forget_workers(void);

/*
 * A parallel query has ended well, and the leader's counter has got what its
 * workers have dirtied: before anything else can fail, strike that off.
 */
extern void dt_account_settle_workers(void);

#endif							/* DT_ACCOUNT_H */
