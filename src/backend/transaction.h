/*-------------------------------------------------------------------------
 *
 * transaction.h
 *		Where the current transaction may and must pay what it owes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TRANSACTION_H
#define DT_TRANSACTION_H

#include "backend/account.h"

/* Parameters. */
extern int	dt_transaction_grace_ms;
extern int	dt_max_commit_pause_ms;

/* Has a statement of a member begun in this transaction?  Only to be read. */
extern bool dt_transaction_begun;
extern void dt_transaction_mark_begun(void);

/*
 * Pay before the first statement of a transaction, when no rows are locked
 * yet, what could not be paid after earlier ones, however long that takes.
 * Marks the transaction as begun.  May fail, by a cancel for instance.
 *
 * Not to be called for a command that only sets parameters: in a suspended
 * group that is the way to leave it.
 *
 * snapshot_is_new: the active snapshot was taken for what the client has just
 * sent, by the transaction and not by a subtransaction, and nothing depends on
 * it yet, so it can be replaced by a new one.
 */
extern void dt_transaction_pay_before_slow(bool snapshot_is_new);

static inline void
dt_transaction_pay_before(bool snapshot_is_new)
{
	if (!dt_transaction_begun)
		dt_transaction_pay_before_slow(snapshot_is_new);
}

/*
 * At a safe point in flight: between two rows, with no LWLock and in no
 * critical section.  Charges what was used if that is worth it, and pauses if
 * the transaction owes more than the grace.  Interrupts are served during the
 * pause, so whatever CHECK_FOR_INTERRUPTS can do can happen here.
 *
 * The inline part is what each row costs.  It does not look whether the limit
 * has changed: the next charge notices that, and the timer of live.c makes
 * many of these a second.
 */
extern void dt_transaction_pay_between_rows(void);

static inline void
dt_pace(void)
{
	if (unlikely(dt_account_charge_is_due()))
		dt_transaction_pay_between_rows();
}

/*
 * The same at a check for interrupts.  The pause takes 200 ms at most, unless
 * that is too little for what is used between two checks or for what checks
 * cost, or the group is suspended with "hard".  Any interrupt ends it.
 *
 * dt_transaction_note_check() is to be called when the check is over.
 */
extern void dt_transaction_pay_at_check(void);
extern void dt_transaction_note_check(void);

/*
 * Should such a check be requested when this much is owed, in us at the
 * group's rate?  May be called in a signal handler.
 */
extern bool dt_transaction_wants_check(int64 owed_us);

/* The transaction is being prepared: no pause follows its end. */
extern void dt_transaction_note_prepare(void);

/*
 * An error with this SQLSTATE is reported.  No pause follows a transaction
 * that ends by a cancel, a timeout or a NOWAIT.
 */
extern void dt_transaction_note_error(int code);

/*
 * The transaction has ended and has released its locks: charge the rest.  True
 * when something is left to be done: a pause is due and may be taken, or a
 * message is to be logged.  Then the caller has to call
 * dt_transaction_finish(), and if a pause is due, the session's group stays
 * the same until then.
 *
 * command_goes_on: it is one of several transactions of a command that may
 * hold locks meanwhile.  client_waits: for the answer.
 */
extern bool dt_transaction_end(bool committed, bool command_goes_on,
							   bool client_waits);

/*
 * Pause after the transaction, and log what it has paused.  When the client
 * waits, the pause takes max_commit_pause at most, unless the group is
 * suspended.  Cannot fail.
 */
extern void dt_transaction_finish(bool client_waits);

#endif							/* DT_TRANSACTION_H */
