/*-------------------------------------------------------------------------
 *
 * interrupt.h
 *		Call me at the next CHECK_FOR_INTERRUPTS.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_INTERRUPT_H
#define DT_INTERRUPT_H

#include <signal.h>

/*
 * Install the hook, at server start.  "handler" is what is called at the
 * checks: ordinary code, with no LWLock and in no critical section, that must
 * not fail and must not serve interrupts itself.  "after" is called when the
 * next request can be made, unless an error comes first.
 */
extern void dt_interrupt_init(void (*handler) (void), void (*after) (void));

/*
 * Does it work in this process?  Not in a signal handler.  Later,
 * log_min_messages may switch it off and on.
 */
extern bool dt_interrupt_works(void);

/*
 * Ask for a call of the handler in this process; also in a signal handler.  It
 * may be refused: ask again as long as it is wanted.  And withdraw that.
 */
extern void dt_interrupt_request(void);
extern void dt_interrupt_withdraw(void);

/*
 * Somebody's pg_log_backend_memory_contexts() may have come while a request was
 * served, and wait to be answered: then at the next check.  Also in a signal
 * handler.
 */
extern void dt_interrupt_serve_others(void);

/*
 * Ask for the same in another process.  *asked is a variable in shared memory
 * by which it knows, as it has told dt_interrupt_listen().
 */
extern void dt_interrupt_listen(volatile sig_atomic_t *asked);
extern void dt_interrupt_send(int pid, volatile sig_atomic_t *asked);

#endif							/* DT_INTERRUPT_H */
