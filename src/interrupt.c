/*-------------------------------------------------------------------------
 *
 * interrupt.c
 *		Call me at the next CHECK_FOR_INTERRUPTS.
 *
 * The core has no hook there.  But it has a request that a process serves at
 * its next check, that of pg_log_backend_memory_contexts(), and the first
 * thing that it does for that is to report a message to the server's log, which
 * calls emit_log_hook.  So we make the request ourselves and are called there,
 * and then keep that message, and those that list the memory contexts, out of
 * the log.  They are recognized by the names of the core's functions, which are
 * the same from 15 to 18.  No other extension is known to do this.  When the
 * core offers a hook, only this file changes.
 *
 * It is safe because a check for interrupts is a place where an error may be
 * thrown, a log message be written and memory contexts be walked: with no
 * LWLock, in no critical section, and not while interrupts are held.  What the
 * handler must not do is fail, or serve interrupts: it runs in the middle of
 * reporting a message.  errfinish() does that right after it.
 *
 * A genuine request works as ever.  The core drops one that arrives while
 * another is served, so we hold it back and raise it again later.  One that
 * arrives between our request and the check is the same as ours, and lost.
 *
 * With log_min_messages = fatal or panic no message is made.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "interrupt.h"
#include "miscadmin.h"
#include "storage/procsignal.h"
#include "utils/elog.h"
#include "utils/memutils.h"

#include "compat.h"

static emit_log_hook_type next_emit_log = NULL;
static void (*call) (void);
static void (*call_after) (void);

/* The self-test: of which chain of hooks, under way, and did it succeed? */
static emit_log_hook_type tested_hook = NULL;
static bool testing = false;
static bool works = false;

static volatile sig_atomic_t requested = 0; /* by us, and not served yet */
static volatile sig_atomic_t others_wait = 0;	/* with a genuine request */
static volatile sig_atomic_t unasked = 0;
static volatile sig_atomic_t *asked_by_other = &unasked;

/* The core lists the memory contexts for us; interrupts are held meanwhile. */
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

static void
emit_log(ErrorData *message)
{
	const char *function = message->funcname;

	if (message->elevel >= ERROR)
		listing = 0;			/* no memory for it, or so */
	else if (message->elevel != LOG_SERVER_ONLY || function == NULL)
		;
	else if (testing)
	{
		testing = false;
		return;
	}
	else if (strcmp(function, "ProcessLogMemoryContextInterrupt") == 0)
	{
		listing = requested || *asked_by_other;
		if (listing)
		{
			requested = 0;
			*asked_by_other = 0;
			LogMemoryContextPending = false;
			message->output_to_server = false;
			call();
			HOLD_INTERRUPTS();
			return;
		}
		others_wait = 0;
	}
	else if (listing && strncmp(function, "MemoryContextStats", 18) == 0)
	{
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
		return;
	}
	if (next_emit_log)
		next_emit_log(message);
}

/*
 * Are we called for the messages that we want?  As errfinish() calls the hooks,
 * but nothing is logged when one before ours does not call us.
 */
static void
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

bool
dt_interrupt_works(void)
{
	/* another library may have been loaded */
	if (emit_log_hook != tested_hook)
		test_hooks();
	if (works && message_level_is_interesting(LOG_SERVER_ONLY))
		return true;
	requested = *asked_by_other = 0;	/* the core does not tell of those */
	return false;
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
dt_interrupt_listen(volatile sig_atomic_t *asked)
{
	*asked = 0;
	asked_by_other = asked;
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
	next_emit_log = emit_log_hook;
	emit_log_hook = emit_log;
}
