/*-------------------------------------------------------------------------
 *
 * activity.h
 *		Does this process work for a client?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACTIVITY_H
#define DT_ACTIVITY_H

/*
 * Is this process in the middle of a transaction's work, and not waiting for a
 * lock?  Not when the session waits for the client's next command.  Only at a
 * check for interrupts.
 */
extern bool dt_activity_is_working(void);

/*
 * Does the session wait for the client's next command?  May be called in a
 * signal handler.
 */
extern bool dt_activity_is_idle(void);

/*
 * A function is going to be called, and the session may be doing nothing else:
 * is that so?  Then it works until the client sends something else.
 */
extern bool dt_activity_note_call(void);

#endif							/* DT_ACTIVITY_H */
