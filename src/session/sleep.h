/*-------------------------------------------------------------------------
 *
 * sleep.h
 *		Sleeping before, in and after a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SLEEP_H
#define DT_SLEEP_H

#include "session/account.h"

/* At server start, and in each process where processes are not forked. */
extern void dt_sleep_init(void);

typedef enum DtPlace
{
	DT_BETWEEN_ROWS,
	DT_AT_CHECK,				/* for interrupts; the core serves them */
	DT_BEFORE_TRANSACTION,
	DT_AFTER_TRANSACTION,		/* interrupts are held, and an ERROR would be
								 * a PANIC */
	DT_AFTER_APPLYING			/* the same; feedback goes to the publisher
								 * meanwhile */
} DtPlace;

/*
 * Sleep until what is due is paid, but no longer than "until", a time of
 * dt_now_us(), unless it is suspended at a check, or until others wait for what
 * this session holds.  is_new: the pause is not a part of the last one, and is
 * counted.  Sets *slept if it has slept at all; dt_account.is_due says whether
 * something is left to be paid.
 *
 * An interrupt ends the pause, and is not served here; then the result is true.
 * After a transaction what the core wants at once is done here (procsignal
 * barriers, memory contexts for the log), and what can wait does (statistics).
 */
extern bool dt_sleep(DtPlace place, DtDue due, bool is_new, int64 until,
					 bool *slept);

/*
 * A pause was interrupted: because of a message of a parallel worker, and for
 * no other known reason?  Then clears the flags of both, which the caller sets
 * again after the pause.
 */
extern bool dt_sleep_put_off_messages(void);

#endif							/* DT_SLEEP_H */
