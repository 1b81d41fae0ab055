/*-------------------------------------------------------------------------
 *
 * parallel_apply.h
 *		Who pays for what parallel apply workers use.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PARALLEL_APPLY_H
#define DT_PARALLEL_APPLY_H

/*
 * A process has charged all that its transaction has used.  If it is a parallel
 * apply worker, pass what it owes to its leader and, with "ask", have that pay.
 * False if it is none, or if that is not possible: then it has to pay itself.
 * Cannot fail.
 */
extern bool dt_parallel_apply_pass_debt(bool ask);

/*
 * In an apply worker, at a check for interrupts: one of its workers has asked for
 * that, and pay() is to be called when the message is done with.
 */
extern void dt_parallel_apply_note_check(void (*pay) (void));

/*
 * In an apply worker that pauses: does a latch that was set tell that it has
 * something to do?
 */
extern bool dt_parallel_apply_latch_counts(void);

#endif							/* DT_PARALLEL_APPLY_H */
