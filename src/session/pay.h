/*-------------------------------------------------------------------------
 *
 * pay.h
 *		Where the current transaction may and must pay what it owes.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PAY_H
#define DT_PAY_H

#include "session/account.h"

/*
 * What a member has begun in this transaction, or in an earlier one of the same
 * command.  Only to be read.
 */
typedef enum DtPayState
{
	DT_PAY_NOTHING,				/* or nothing that was noticed */
	DT_PAY_READS,				/* only what surely only reads; see reads.c */
	DT_PAY_BEGUN				/* what may write */
} DtPayState;

extern DtPayState dt_pay_state;

/* A statement begins that only reads, as far as known. */
static inline void
dt_pay_note_reading(void)
{
	if (dt_pay_state == DT_PAY_NOTHING)
		dt_pay_state = DT_PAY_READS;
}

extern void dt_pay_mark_begun(void);

/* A parallel worker has begun what its leader had begun when it started it. */
extern void dt_pay_tell_workers(void);
extern void dt_pay_ask_leader(void);

/* What is asked first, of each transaction. */
static inline bool
dt_pay_may_be_due_before(void)
{
	return dt_account.group != NULL &&
		(dt_account_is_due_before() || dt_account.group->suspended_since != 0);
}

/* Is something to be paid before what may write begins? */
extern bool dt_pay_is_due_before_slow(void);

static inline bool
dt_pay_is_due_before(void)
{
	return unlikely(dt_pay_may_be_due_before()) &&
		dt_pay_state != DT_PAY_BEGUN && dt_pay_is_due_before_slow();
}

/*
 * Pay before the first statement of a transaction that may write, when no rows
 * are locked yet, what could not be paid after earlier ones, however long that
 * takes.  Marks the transaction as begun.  May fail, by a cancel for instance.
 *
 * Not to be called for a command that only sets parameters: in a suspended
 * group that is the way to leave it.
 *
 * snapshot_is_new: the active snapshot was taken for what the client has just
 * sent, by the transaction and not by a subtransaction, and nothing depends on
 * it yet, so it can be replaced by a new one.
 */
extern void dt_pay_before_slow(bool snapshot_is_new);

static inline void
dt_pay_before(bool snapshot_is_new)
{
	if (dt_pay_state != DT_PAY_BEGUN)
		dt_pay_before_slow(snapshot_is_new);
}

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
 * The same at a check for interrupts.  The pause takes 200 ms at most, unless
 * that is too little for what is used between two checks or for what checks
 * cost, or the group is suspended with "hard".  Any interrupt ends it.
 *
 * dt_pay_note_check() is to be called when the check is over.
 */
extern void dt_pay_at_check(void);
extern void dt_pay_note_check(void);

/*
 * At a check of what must not be slowed down: charge only.  What is owed is paid
 * afterwards.
 */
extern void dt_pay_later(void);

/*
 * To be called outside of a transaction, before a SET or RESET of
 * dirty_throttle.group.  May fail.
 */
extern void dt_pay_before_leaving(void);

/*
 * What commit.c calls when a transaction ends, each once and in this order; none of
 * them can fail.  Has it done more than to read?  (This counts what it has used.)
 * Charge that, as in flight; and then the transaction is over.
 */
extern bool dt_pay_has_written(void);
extern DtDue dt_pay_charge(DtHeed heed);
extern void dt_pay_forget_transaction(void);

#endif							/* DT_PAY_H */
