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
 * next charge, of which there are at least ten a second; see live.c.
 */
static inline void
dt_pace(void)
{
	if (unlikely(dt_account_charge_is_due()))
		dt_pause_in_flight();
}

/*
 * An outermost statement begins.  If it is the first of its transaction, there
 * are no locks on rows yet: pay for a pause that was evaded.  May fail, by a
 * cancel for instance.
 */
extern void dt_pause_before_transaction(void);

/*
 * An outermost statement begins that only sets parameters: whoever is stopped
 * may do that, to leave the group.
 */
extern void dt_pause_excuse_transaction(void);

/*
 * Is the server being shut down?  In a smart shutdown its sessions are waited
 * for.  Reads a file; also in a signal handler.
 */
extern bool dt_pause_server_is_stopping(void);

/*
 * An error goes through the executor or a utility command.  A cancel or a
 * timeout, which must not be followed by a pause, is remembered until the
 * transaction ends.  Only in a PG_CATCH block.
 */
extern void dt_pause_note_error(void);

/*
 * The transaction has ended and has released its locks: charge the rest.
 * True when a pause is due and may be taken; then dt_pause_after_transaction()
 * must follow, and changes of the group wait for it.
 */
extern bool dt_pause_end_transaction(bool committed, bool may_pause);

/*
 * Pause after the transaction, without serving interrupts: ends at once when
 * there is one.  Cannot fail.
 */
extern void dt_pause_after_transaction(void);

#endif							/* DT_PAUSE_H */
