/*-------------------------------------------------------------------------
 *
 * live.h
 *		Charging while a statement runs, and asking for a pause in it.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LIVE_H
#define DT_LIVE_H

#include "postgres.h"

/*
 * At server start.  "wants_check" is called in a signal handler, when so much
 * is owed, in us at the group's rate, that a pause is due, and no row has
 * passed: is that a reason to pause at the next check for interrupts?
 */
extern void dt_live_init(bool (*wants_check) (int64 owed_us));

/*
 * A member's statement begins, or is running: charge it, until it is over.
 * "soon": it may use a lot in its first millisecond.
 */
extern void dt_live_start(bool soon);
extern void dt_live_stop(void);

/* A row has passed: a pause that is due can be made between two. */
extern void dt_live_note_row(void);

/*
 * Around a pause: no ticks, and then the next one when the next pause may be
 * due; at a check for interrupts, perhaps at once, but only when interrupt.c
 * has done with it.
 */
extern void dt_live_suspend(void);
extern void dt_live_resume(void);
extern void dt_live_resume_at_check(bool at_once);
extern void dt_live_after_check(void);

#endif							/* DT_LIVE_H */
