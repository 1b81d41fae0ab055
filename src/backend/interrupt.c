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
 * What the core then does is made as short as possible, since interrupts are
 * held meanwhile.  Of the list nothing is left: from the first message to the
 * last one TopMemoryContext, whose tree the core lists, is a small context of
 * this file, and error_context_stack is empty.  What is allocated in that
 * context by mistake stays there for good, as it would in the real one.
 *
 * Only for the first message the core has called the error-context callbacks
 * before it calls the hook.  That of SPI copies the text of its statement,
 * which can be megabytes.  So a member's statements have a callback here that
 * ends the list of them, for this message only.  What is left, as in a
 * function that calls itself a thousand times, the caller can measure, and
 * request less.
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

#include <time.h>

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

/*
 * The core serves a request: ours, or a genuine one.  When our handler has
 * been called, interrupts are held until the end.
 */
static volatile sig_atomic_t listing = 0;
static volatile sig_atomic_t others_listing = 0;

/* What it would list and call. */
static MemoryContext real_top;
static ErrorContextCallback *real_callbacks;

/* What it lists instead. */
static MemoryContext nothing;

/*
 * CPU time of this process, us: when the request was made for the last time
 * before it is served.  The handler does not set it any more when it finds
 * that the request is being served.
 */
static int64 cost_since = 0;
static volatile sig_atomic_t repeated = 0;

/* 0 where that cannot be told.  May be called in a signal handler. */
static int64
cpu_time(void)
{
#ifdef CLOCK_THREAD_CPUTIME_ID
	struct timespec now;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0)
		return now.tv_sec * USECS_PER_SEC + now.tv_nsec / 1000;
#endif
	return 0;
}

int64
dt_interrupt_take_cost(void)
{
	int64		before = cost_since;

	cost_since = cpu_time();
	return cost_since - before;
}

static void
begin_listing(void)
{
	TopMemoryContext = nothing;
	error_context_stack = NULL;
	HOLD_INTERRUPTS();
}

static void
end_listing(void)
{
	error_context_stack = real_callbacks;
	TopMemoryContext = real_top;
	listing = 0;
	if (LogMemoryContextPending)
		others_wait = 1;		/* now the core would drop it */
	LogMemoryContextPending = false;
	RESUME_INTERRUPTS();
}

void
dt_interrupt_forget_listing(void)
{
	if (listing)
		TopMemoryContext = real_top;
	listing = others_listing = 0;
	if (!LogMemoryContextPending)
		requested = 0;			/* the error came before the hook */
}

/*
 * Is this the first message for our request?  Called by errfinish(), which
 * calls the callbacks of any message.
 */
static bool
serves_request(void)
{
	MemoryContext context;
	MemoryContext copy;
	ErrorData  *message;
	bool		result;

	if (!requested || (LogMemoryContextPending && !repeated) || listing)
		return false;
	copy = AllocSetContextCreate(TopMemoryContext, "dirty_throttle message",
								 ALLOCSET_SMALL_SIZES);
	context = MemoryContextSwitchTo(copy);
	message = CopyErrorData();
	result = message->elevel == LOG_SERVER_ONLY && message->funcname != NULL &&
		strcmp(message->funcname, "ProcessLogMemoryContextInterrupt") == 0;
	MemoryContextSwitchTo(context);
	MemoryContextDelete(copy);	/* FreeErrorData() leaves something */
	return result;
}

void
dt_interrupt_cut_callbacks(void *arg)
{
	DtCallbackCut *cut = arg;

	cut->callback.previous = serves_request() ? NULL : cut->rest;
}

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
	bool		is_last;

	if (message->elevel >= ERROR)
		dt_interrupt_forget_listing();
	if (message->elevel != LOG_SERVER_ONLY || function == NULL)
		return false;
	if (testing)
	{
		testing = false;
		return true;
	}
	if (strcmp(function, "ProcessLogMemoryContextInterrupt") == 0)
	{
		if (!requested && !*asked_by_other)
		{
			others_wait = 0;
			others_listing = 1;
			return false;
		}
		if (!requested)
			(void) dt_interrupt_take_cost();
		requested = 0;
		*asked_by_other = 0;
		LogMemoryContextPending = false;
		message->output_to_server = false;
		/* from here on there is no request */
		real_top = TopMemoryContext;
		real_callbacks = error_context_stack;
		listing = 1;
		call();
		begin_listing();
		return true;
	}
	if (strncmp(function, "MemoryContextStats", 18) != 0)
		return false;
	is_last = strncmp(message->message, "Grand total", 11) == 0;
	if (is_last)
		others_listing = 0;
	if (!listing)
		return false;
	message->output_to_server = false;
	if (is_last)
	{
		end_listing();
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
		listing || others_listing || others_wait ||
		(LogMemoryContextPending && !requested))
		return;
	repeated = requested && (repeated || !LogMemoryContextPending);
	if (!repeated)
		cost_since = cpu_time();
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
	nothing = AllocSetContextCreate(TopMemoryContext, "dirty_throttle",
									ALLOCSET_SMALL_SIZES);
}
