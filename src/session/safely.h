/*-------------------------------------------------------------------------
 *
 * safely.h
 *		Calling a function where an ERROR would be a PANIC.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SAFELY_H
#define DT_SAFELY_H

/*
 * False: it has failed, and the error is forgotten.  Not while a message is reported,
 * as in emit_log_hook.
 */
extern bool dt_call_safely(void (*function) (void));

#endif							/* DT_SAFELY_H */
