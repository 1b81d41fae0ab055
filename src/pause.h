/*-------------------------------------------------------------------------
 *
 * pause.h
 *		Where a member sleeps: in flight, and after or before a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PAUSE_H
#define DT_PAUSE_H

#include "account.h"

/* Has a statement of a member begun in this transaction? */
extern bool dt_pause_xact_begun;

/* At server start: with shared memory. */
extern void dt_pause_init(void);

/* The slow part of dt_pace(). */
extern void dt_pause_in_flight(void);

/*
 * A safe point in flight: between two rows, with no LWLock and no critical
 * section.  Charges what was used when it is worth it, and pauses when the
 * transaction owes more than the grace.  Interrupts are served while it
 * pauses, so anything that CHECK_FOR_INTERRUPTS can do can happen here.
 *
 * This is what each row costs.  A limit that has changed is noticed by the
 * next charge, of which there are many a second; see live.c.
 */
static inline void
dt_pace(void)
{
	if (unlikely(dt_account_charge_is_due()))
		dt_pause_in_flight();
}

/*
 * At a check for interrupts, in the middle of whatever a transaction does: the
 * same, but at most for 200 ms, and an interrupt ends the pause.
 */
extern void dt_pause_at_check(void);

/*
 * With so much owed, in us at the group's rate, should that be asked for?  Also
 * in a signal handler.
 */
extern bool dt_pause_wants_check(int64 owed_us);

/*
 * A statement begins.  If it is the first of its transaction, there are no
 * locks on rows yet: pay what could not be paid after earlier transactions,
 * however long that takes.  May fail, by a cancel for instance.
 *
 * Not to be called for what only sets parameters: whoever is stopped may do
 * that, to leave the group.
 *
 * snapshot_is_new: the active snapshot was taken for what the client has just
 * sent, by the transaction and not by a subtransaction, and nothing depends on
 * it yet, so another one may take its place.
 */
extern void dt_pause_before_transaction(bool snapshot_is_new);

/* The transaction is being prepared: its end makes no pause. */
extern void dt_pause_note_prepare(void);

/*
 * An error with this SQLSTATE is reported.  A cancel or a timeout, which must
 * not be followed by a pause, is remembered until the transaction ends.
 */
extern void dt_pause_note_error(int code);

/*
 * The transaction has ended and has released its locks: charge the rest.
 * True when a pause is due and may be taken; then dt_pause_after_transaction()
 * must follow, and changes of the group wait for it.
 *
 * command_goes_on: it is one of several transactions of a command that may
 * hold locks meanwhile.  client_waits: for the answer.
 */
extern bool dt_pause_end_transaction(bool committed, bool command_goes_on,
									 bool client_waits);

/*
 * Pause after the transaction; at most for max_commit_pause when the client
 * waits.  What the core wants of every process meanwhile (barriers) is done.
 * Cannot fail.
 */
extern void dt_pause_after_transaction(bool client_waits);

#endif							/* DT_PAUSE_H */
