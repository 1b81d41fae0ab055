/*-------------------------------------------------------------------------
 *
 * sleep.h
 *		Sleeping before, in and after a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SLEEP_H
#define DT_SLEEP_H

/* At server start, and in each process where processes are not forked. */
extern void dt_sleep_init(void);

/*
 * Pause in a transaction, or before the first statement of one.  An interrupt
 * ends the pause, and is not served here; then the result is true.  The pause
 * also ends at "until", a time of dt_now_us(), unless the group is suspended,
 * or when others wait for what this session holds.  dt_account.pause_is_due
 * tells whether something is left to be paid.
 *
 * first_slice_us: how long the first slice of a pause is that
 * dt_account_charge() has begun, or 0.  "is_new" is false when this continues
 * an earlier pause, which is not counted again.
 */
extern bool dt_sleep_interruptible(int64 first_slice_us, bool is_new,
								   bool in_flight, int64 until);

/*
 * Pause where interrupts are held and an ERROR would be a PANIC.  What the core
 * wants at once is done here (procsignal barriers, memory contexts for the log),
 * and what can wait does (statistics).  Any other interrupt, such as a cancel,
 * ends the pause and is served by the core.
 * The pause ends after longest_us, also in a suspended group.  "feedback": send
 * feedback to the publisher meanwhile.
 */
extern void dt_sleep_after_transaction(int64 first_slice_us, int64 longest_us,
									   bool feedback);

/*
 * A pause was interrupted: because of a message of a parallel worker, and for
 * no other known reason?  Then clears the flags of both, which the caller sets
 * again after the pause.
 */
extern bool dt_sleep_put_off_messages(void);

/*
 * Call a function where an ERROR would be a PANIC.  False: it has failed, and
 * the error is forgotten.
 */
extern bool dt_sleep_call_safely(void (*function) (void));

#endif							/* DT_SLEEP_H */
