/*-------------------------------------------------------------------------
 *
 * apply.h
 *		Feedback to the publisher while an apply worker pauses.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_APPLY_H
#define DT_APPLY_H

/* Is this a worker that makes the initial copy of a table? */
extern bool dt_apply_copies_table(void);

/*
 * Has this worker just committed all that it has received, and may it send
 * feedback?
 */
extern bool dt_apply_feedback_possible(void);

/*
 * How long it may pause, us: until half of wal_receiver_timeout has passed
 * since it has last received something.
 */
extern int64 dt_apply_feedback_longest_silence(void);

/*
 * Send it, unless that was done less than a second ago.  ERROR when the
 * connection is lost.
 */
extern void dt_apply_feedback_send(void);

#endif							/* DT_APPLY_H */
