/*-------------------------------------------------------------------------
 *
 * live.h
 *		The timer that charges a running statement and requests a pause.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LIVE_H
#define DT_LIVE_H

/* Parameter. */
extern bool dt_interrupt_pauses;

/*
 * At server start.  "wants_check" is called in a signal handler when a pause
 * is due, with what is owed, in us at the group's rate.  It says whether to
 * pause now: before the next row or, if none comes, at the next check for
 * interrupts.
 */
extern void dt_live_init(bool (*wants_check) (int64 owed_us));

/*
 * A member's statement begins, or the session is put into a group while it
 * runs one: charge it until it is over.  "soon": the first time after 50 us,
 * for commands that can use much at once.
 */
extern void dt_live_start(bool soon);
extern void dt_live_stop(void);

/* A row was processed: a pause that is due can be made before the next one. */
extern void dt_live_note_row(void);

/*
 * An error was caught, maybe that of a cancel, which the core has served before
 * our request: if a pause is due, it is to be made at the next check.
 */
extern void dt_live_renew_request(void);

/*
 * Around any pause, not only in a suspended group.  Before it: stop the timer.
 * After it: set the timer for the time when the next pause may be due.  After
 * a pause at a check for interrupts, dt_live_after_check() sets it once more,
 * when interrupt.c can take the next request.  "at_once": then it expires at
 * once, as the pause goes on at the next check.
 */
extern void dt_live_before_pause(void);
extern void dt_live_after_pause(void);
extern void dt_live_after_pause_at_check(bool at_once);
extern void dt_live_after_check(void);

#endif							/* DT_LIVE_H */
