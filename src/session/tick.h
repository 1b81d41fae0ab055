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
 * dt_tick_start() is called when a member's statement begins or is found running,
 * dt_tick_start_command() when it can use much at once, dt_tick_stop() when all
 * that the client has sent is done.
 */
extern void dt_tick_start(void);
extern void dt_tick_start_command(void);
extern void dt_tick_stop(void);

/* To be called when an error was caught, which may have ended a pause. */
extern void dt_tick_renew(void);

/* Around each pause.  "goes_on": it has not paid all. */
extern void dt_tick_before_pause(void);
extern void dt_tick_after_pause(bool goes_on);

/*
 * A check that was requested is over.  "paused": there was a pause.  The
 * next charge is worth a check only when the group needs worth_us to earn it.
 */
extern void dt_tick_after_check(bool paused, int64 worth_us);

#endif							/* DT_TICK_H */
