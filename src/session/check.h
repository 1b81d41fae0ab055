/*-------------------------------------------------------------------------
 *
 * check.h
 *		A function that is called at the next CHECK_FOR_INTERRUPTS.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CHECK_H
#define DT_CHECK_H

#include <signal.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "compat.h"

/*
 * At server start.  at_check is called at each check that was requested:
 * ordinary code with no LWLock and in no critical section, that must not fail
 * and must not serve interrupts itself.  after_check is called when the check is
 * over; not after an error.
 */
extern void dt_check_init(void (*at_check) (void), void (*after_check) (void));

/*
 * To be called for each message by emit_log_hook: is it a part of the core's
 * answer to a request, which must not be logged?
 */
extern bool dt_check_takes_message(ErrorData *message);

/*
 * What the check that is being served has cost, in us of CPU time: since the
 * request, or since the last call of this function.
 */
extern int64 dt_check_take_cost(void);

/*
 * An error has ended what was going on, if anything.  To be called when a
 * subtransaction has failed.
 */
extern void dt_check_forget_listing(void);

/*
 * To be called before and after something runs that may contain checks: what
 * was called before it does not make these checks dearer.  "cut" must live until
 * dt_check_end_cut(); after an error there is nothing to be done.
 */
typedef struct DtCallbackCut
{
	ErrorContextCallback callback;
	ErrorContextCallback *rest;
} DtCallbackCut;

extern void dt_check_cut_callbacks(void *arg);

static inline void
dt_check_begin_cut(DtCallbackCut *cut)
{
	cut->rest = error_context_stack;
	cut->callback.previous = error_context_stack;
	cut->callback.callback = dt_check_cut_callbacks;
	cut->callback.arg = cut;
	error_context_stack = &cut->callback;
}

/* Was nothing called before?  So it is with most statements of a client. */
static inline bool
dt_check_has_nothing_to_cut(void)
{
	return error_context_stack == NULL;
}

static inline void
dt_check_end_cut(DtCallbackCut *cut)
{
	error_context_stack = cut->rest;
}

/*
 * To be called now and then, and not in a signal handler: find out whether
 * checks can be requested in this process.  A change of log_min_messages, or a
 * library that is loaded later, may change that.
 */
extern void dt_check_test_again(void);

/* For which emit_log_hook and log_min_messages that is known. */
extern emit_log_hook_type dt_check_tested_hook;
extern int	dt_check_tested_level;

static inline void
dt_check_test(void)
{
	if (unlikely(emit_log_hook != dt_check_tested_hook ||
				 DT_LOG_MIN_MESSAGES != dt_check_tested_level))
		dt_check_test_again();
}

/*
 * Request a check in this process, and before a pause withdraw the request.
 * The latter calls dt_check_serve_others().  Both may be called in a signal
 * handler.  A request may be refused without notice, so the caller repeats it.
 */
extern void dt_check_request(void);
extern void dt_check_withdraw(void);

/*
 * A request sets InterruptPending and LogMemoryContextPending to this.  The core,
 * and everybody else, sets them to true.
 */
#define DT_INTERRUPT_OF_OURS	2

/*
 * Is there an interrupt that may be somebody else's?  One of ours, which a
 * request that was withdrawn or repeated has left, is none.
 */
static inline bool
dt_check_others_interrupt(void)
{
	sig_atomic_t pending = InterruptPending;

	return pending != 0 && pending != DT_INTERRUPT_OF_OURS;
}

/*
 * To be called now and then: a genuine call of
 * pg_log_backend_memory_contexts() that has not been answered is made again; and
 * where an error has ended the answer to a request, and was caught without a
 * subtransaction, this is noticed.  May be called in a signal handler.
 */
extern void dt_check_serve_others(void);

/*
 * From now on other processes may request a check in this one, as
 * dt_member_put() does: they set *asked, in shared memory, and send SIGUSR1, if
 * *possible tells them that it can be done.  To be called once.
 */
extern void dt_check_listen(volatile sig_atomic_t *asked, bool *possible);

#endif							/* DT_CHECK_H */
