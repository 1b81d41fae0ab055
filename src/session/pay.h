/*-------------------------------------------------------------------------
 *
 * pay.h
 *		The places where a member pays what it owes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PAY_H
#define DT_PAY_H

#include "session/account.h"
#include "session/activity.h"
#include "session/phase.h"

/*
 * A statement of this kind begins, of the client's own or what counts as such.  It
 * pays what phase.c asks for.  May fail, by a cancel for instance; then it has not
 * begun.
 *
 * snapshot_is_new: the active snapshot was taken for what the client has just
 * sent, by the transaction and not by a subtransaction, and nothing depends on
 * it yet, so it can be replaced by a new one.
 */
extern void dt_pay_begin(DtEvent kind, bool snapshot_is_new);

/*
 * At a safe point in flight: between two rows, with no LWLock and in no
 * critical section.  Charges what was used if that is worth it, and pauses if
 * the transaction owes more than the grace.  Interrupts are served during the
 * pause, so whatever CHECK_FOR_INTERRUPTS can do can happen here.
 *
 * The inline part is what each row costs.  It does not look whether the limit
 * has changed: the next charge notices that, and so do the timers of tick.c.
 */
extern void dt_pay_between_rows(void);

static inline void
dt_pay_if_due(void)
{
	if (unlikely(dt_account_charge_is_due()))
		dt_pay_between_rows();
}

/*
 * The same at a check for interrupts.  The pause takes 200 ms at most, or as long
 * as what was used since the last charge asks for, or as checks are worth that
 * cost that much.  Any interrupt ends it.
 *
 * dt_pay_note_check() is to be called when the check is over.
 */
extern void dt_pay_at_check(void);
extern void dt_pay_note_check(void);

/* A command begins that may use much at once: from now on timers watch it. */
extern void dt_pay_watch_command(void);

/* Charge; if a pause is due, it is made at the next safe point. */
extern void dt_pay_catch_up(void);

/*
 * At a check of what must not be slowed down: charge only.  What is owed is paid
 * afterwards.
 */
extern void dt_pay_later(void);

/*
 * A statement begins where interrupts are held, as the code of a user does that an
 * index calls with a page locked.  No pause is possible there.  ERROR if the
 * session owes far too much by what was used there.
 */
extern void dt_pay_where_held(void);

/*
 * A function with a SET clause begins, which may have brought the session into its
 * group for this call.  A safe point in flight; and what its role has left by slipping
 * is paid, whatever the grace is: no call would ever owe more than that.
 */
extern void dt_pay_where_function_begins(void);

/*
 * The session is about to leave its group, or to join another one, by its own
 * choice: pay what is owed, in flight if it is within a transaction.  May fail.
 */
extern void dt_pay_before_leaving(bool in_flight);

/*
 * Leave the group, with what is owed, and without a pause.  Cannot fail.
 */
extern void dt_pay_leave(void);

/*
 * The process has attached to its slot.  A parallel worker starts in the phase of
 * its leader, as of now; workers of autovacuum and logical replication have no
 * statements, and have always passed the gate.
 */
extern void dt_pay_start(void);

/*
 * The transaction ends, and something is left to be charged or paid.  Then, when its
 * locks are released and all else of it is done: charge the rest, and find out what
 * is due.  Then it is over.  They cannot fail.
 */
extern void dt_pay_end_transaction(bool commits);
extern DtDue dt_pay_charge_rest(void);
extern void dt_pay_forget_transaction(void);

#endif							/* DT_PAY_H */
