/*-------------------------------------------------------------------------
 *
 * interrupt.c
 *		A function that is called at the next CHECK_FOR_INTERRUPTS.
 *
 * The core has no hook there.  But a check serves requests of
 * pg_log_backend_memory_contexts(), and the first thing that this does is to
 * report a message to the server log, which calls emit_log_hook.  So this file
 * makes such a request, calls the handler for that message, and keeps it and
 * the following list of memory contexts out of the log.  The messages are
 * recognized by the names of the core's functions, which are the same from 15
 * to 19.  If the core gets a hook, only this file changes.
 *
 * That is safe, since a check serves requests only where it could also throw
 * an error: no LWLock is held, there is no critical section, and interrupts
 * are not held.  The handler runs in the middle of errfinish(), so it must not
 * fail and must not serve interrupts.
 *
 * A genuine request is answered as without this library.  The core drops one
 * that arrives while it serves another one; this file notes it and makes it
 * again.  One that arrives between our request and the check is lost.
 *
 * When log_min_messages is fatal or panic there is no message, and no call.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/interrupt.h"
#include "miscadmin.h"
#include "storage/procsignal.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"

static void (*call) (void);
static void (*call_after) (void);

/* dt_interrupt_test(): what it has tested, and with which result. */
static emit_log_hook_type tested_hook = NULL;
static int	tested_level = -1;	/* log_min_messages */
static bool testing = false;	/* a message of the test is under way */
static bool works = false;
static bool untold = false;
static bool *told = &untold;	/* whether the handler can be called */

static volatile sig_atomic_t requested = 0; /* by this file, not served yet */
static volatile sig_atomic_t others_wait = 0;	/* for a genuine request */
static volatile sig_atomic_t unasked = 0;
static volatile sig_atomic_t *asked_by_other = &unasked;

/* The core lists memory contexts for our request; interrupts are held. */
static volatile sig_atomic_t listing = 0;

void
dt_interrupt_serve_others(void)
{
	if (others_wait && !requested && !listing)
	{
		LogMemoryContextPending = true;
		InterruptPending = true;
	}
}

bool
dt_interrupt_takes_message(ErrorData *message)
{
	const char *function = message->funcname;

	if (message->elevel >= ERROR)
		listing = 0;			/* it was not completed, for lack of memory */
	if (message->elevel != LOG_SERVER_ONLY || function == NULL)
		return false;
	if (testing)
	{
		testing = false;
		return true;
	}
	if (strcmp(function, "ProcessLogMemoryContextInterrupt") == 0)
	{
		listing = requested || *asked_by_other;
		if (!listing)
		{
			others_wait = 0;
			return false;
		}
		requested = 0;
		*asked_by_other = 0;
		LogMemoryContextPending = false;
		message->output_to_server = false;
		call();
		HOLD_INTERRUPTS();
		return true;
	}
	if (!listing || strncmp(function, "MemoryContextStats", 18) != 0)
		return false;
	message->output_to_server = false;
	if (strncmp(message->message, "Grand total", 11) == 0)
	{
		listing = 0;
		if (LogMemoryContextPending)
			others_wait = 1;	/* now the core would drop it */
		LogMemoryContextPending = false;
		RESUME_INTERRUPTS();
		call_after();
	}
	return true;
}

/*
 * Does emit_log_hook still lead here?  A library that was loaded later may
 * have a hook that does not call ours for these messages.  The hook is called
 * as errfinish() does, but nothing is logged.
 */
static pg_noinline void
test_hooks(void)
{
	static const char *const wanted[][2] = {
		{"ProcessLogMemoryContextInterrupt", "logging memory contexts"},
		{"MemoryContextStatsPrint", "level: 0"},
		{"MemoryContextStatsDetail", "Grand total: 0 bytes"}
	};
	ErrorData	message = {
		.elevel = LOG_SERVER_ONLY,
		.output_to_server = true,
		.filename = __FILE__,
		.lineno = __LINE__,
		.assoc_context = CurrentMemoryContext
	};
	int			i;

	tested_hook = emit_log_hook;
	works = true;
	for (i = 0; i < lengthof(wanted); i++)
	{
		message.funcname = wanted[i][0];
		message.message = unconstify(char *, wanted[i][1]);
		testing = true;
		emit_log_hook(&message);
		works &= !testing;
	}
	testing = false;
}

static pg_noinline void
test_again(void)
{
	bool		possible;

	if (emit_log_hook != tested_hook)
		test_hooks();
	tested_level = DT_LOG_MIN_MESSAGES;
	possible = works && message_level_is_interesting(LOG_SERVER_ONLY);
	if (!possible || !*told)
		requested = *asked_by_other = 0;	/* no message comes for them */
	*told = possible;
}

void
dt_interrupt_test(void)
{
	if (emit_log_hook != tested_hook || DT_LOG_MIN_MESSAGES != tested_level)
		test_again();
}

void
dt_interrupt_request(void)
{
	/* a genuine one comes first */
	if (!works || !message_level_is_interesting(LOG_SERVER_ONLY) ||
		listing || others_wait || (LogMemoryContextPending && !requested))
		return;
	requested = 1;
	LogMemoryContextPending = true;
	InterruptPending = true;
}

void
dt_interrupt_withdraw(void)
{
	if (requested)
		LogMemoryContextPending = false;
	requested = 0;
}

void
dt_interrupt_listen(volatile sig_atomic_t *asked, bool *possible)
{
	*asked = 0;
	asked_by_other = asked;
	told = possible;
	test_again();
}

void
dt_interrupt_send(int pid, volatile sig_atomic_t *asked)
{
	*asked = 1;
	pg_write_barrier();
	(void) SendProcSignal(pid, PROCSIG_LOG_MEMORY_CONTEXT, INVALID_PROC_NUMBER);
}

void
dt_interrupt_init(void (*handler) (void), void (*after) (void))
{
	call = handler;
	call_after = after;
}
