/*-------------------------------------------------------------------------
 *
 * tick.h
 *		The timers that request checks for interrupts.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TICK_H
#define DT_TICK_H

/*
 * While a member is at work in a transaction, these request a check (check.h)
 * when a charge is worth one; a statement that is charged between its rows needs
 * none.
 *
 * dt_tick_start() is called when this process becomes a member, and when a
 * member's statement begins; dt_tick_start_command() when it can use much at
 * once; dt_tick_end_transaction() when a transaction ends.
 */
extern void dt_tick_start(void);
extern void dt_tick_start_command(void);
extern void dt_tick_end_transaction(void);

/* Is there a pause that was not finished, and goes on at the next check? */
extern bool dt_tick_pause_goes_on(void);

/* For so long no check is to be requested, but for the end of the statement. */
extern void dt_tick_rest(int64 us);

/* To be called when an error was caught, which may have ended a pause. */
extern void dt_tick_renew(void);

/* Around each pause; and when nothing is due any more, so that it does not go on. */
extern void dt_tick_before_pause(void);
extern void dt_tick_after_pause(void);
extern void dt_tick_note_paid(void);

/*
 * A SIGTERM that was held back in a pause is to be delivered; and, before that
 * pause, can it be?  Somebody else may have taken the timers' signal.
 */
extern void dt_tick_soon(void);
extern bool dt_tick_comes(void);

/*
 * A check that was requested is over.  "paused": there was a pause.  The
 * next charge is worth a check only when the group needs worth_us to earn it.
 */
extern void dt_tick_after_check(bool paused, int64 worth_us);

#endif							/* DT_TICK_H */
