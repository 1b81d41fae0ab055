/*-------------------------------------------------------------------------
 *
 * check.c
 *		A function that is called at the next CHECK_FOR_INTERRUPTS.
 *
 * The core has no hook there.  But a check serves requests of
 * pg_log_backend_memory_contexts(), and the first thing that this does is to
 * report a message to the server log, which calls emit_log_hook.  So this file
 * makes such a request, tells when that message comes, and keeps it and the
 * following list of memory contexts out of the log.  The messages are
 * recognized by the names of the core's functions, which are the same from 15
 * to 19.  If the core gets a hook, this file changes, the hook for messages in
 * hooks.c, and member.c, which makes requests in other processes.
 *
 * That is safe, since a check serves requests only where it could also throw
 * an error: no LWLock is held, there is no critical section, and interrupts
 * are not held.  What is done there runs in the middle of errfinish(), or of a
 * walk over all memory contexts, so it must not fail and must not serve
 * interrupts.
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
 * A genuine request is answered as without this library, before ours.  It arrives
 * by SIGUSR1, so a handler before the core's notes it; it is made again until it has
 * been answered, as the core drops one that comes when it has not quite finished
 * with the one before.
 *
 * When log_min_messages is fatal or panic there is no message.  But the core
 * still asks every memory context for its statistics, and that small context
 * of this file, which has a function of its own for them, is one of those.
 * Nothing has to be kept out of the log then, and there is no errfinish().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "miscadmin.h"
#include "session/check.h"
#include "session/safely.h"
#include "utils/elog.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "compat.h"

static struct
{
	bool		testing;		/* a message of test_hooks() is under way */
	bool		works;			/* that has found that messages come here */
	bool		untold;
	bool	   *told;			/* whether checks can be requested */

	volatile sig_atomic_t requested;	/* by this file, not served yet */
	volatile sig_atomic_t others_wait;	/* for a genuine request */
	volatile sig_atomic_t unasked;
	volatile sig_atomic_t *asked_by_other;
	struct sigaction sigusr1;	/* the core's handler, before which ours
								 * stands */

	/*
	 * The core serves our request.  From its first message on, interrupts are
	 * held until the end.
	 */
	volatile sig_atomic_t listing;

	MemoryContext real_top;		/* what it would list and call */
	ErrorContextCallback *real_callbacks;
	MemoryContext nothing;		/* what it lists instead */

	/* of that context: the methods, and which one they replace */
	MemoryContextMethods methods;
	void		(*statistics) (MemoryContext, MemoryStatsPrintFunc, void *,
							   MemoryContextCounters *, bool);

	/* see dt_check_init() */
	void		(*at_check) (void);
	void		(*after_check) (void);

	/*
	 * The CPU time of this process from which on the cost of a check counts,
	 * us: when the request was made, or the last one before the core began to
	 * serve it; then when dt_check_take_cost() was called.
	 */
	int64		cost_since;
	volatile sig_atomic_t repeated;
}			my = {

	.told = &my.untold,.asked_by_other = &my.unasked
};

emit_log_hook_type dt_check_tested_hook = NULL;
int			dt_check_tested_level = -1;

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
dt_check_take_cost(void)
{
	int64		before = my.cost_since;

	my.cost_since = cpu_time();
	return my.cost_since - before;
}

static void
clear_request(void)
{
	(void) __sync_bool_compare_and_swap(&LogMemoryContextPending,
										DT_INTERRUPT_OF_OURS, 0);
}

/* If a genuine one waits as well, that is served first. */
static bool
is_served(void)
{
	return my.requested && !my.others_wait;
}

/* The request is being served.  From here on none is made, until the end. */
static void
begin_check(void)
{
	clear_request();
	my.requested = 0;
	*my.asked_by_other = 0;
	my.real_top = TopMemoryContext;
	my.real_callbacks = error_context_stack;
	my.listing = 1;
	my.at_check();
}

static void
end_listing(void)
{
	error_context_stack = my.real_callbacks;
	TopMemoryContext = my.real_top;
	my.listing = 0;
	clear_request();
	RESUME_INTERRUPTS();
}

void
dt_check_forget_listing(void)
{
	if (my.listing)
		TopMemoryContext = my.real_top;
	my.listing = 0;
	if (!LogMemoryContextPending)
		my.requested = 0;		/* the error came before the hook */
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

	if (CritSectionCount > 0 || !is_served() || my.listing)
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
dt_check_cut_callbacks(void *arg)
{
	DtCallbackCut *cut = arg;

	cut->callback.previous = serves_request() ? NULL : cut->rest;
}

/* An error that ends a listing ends the hold of interrupts, too. */
void
dt_check_serve_others(void)
{
	if (my.listing && TopMemoryContext == my.nothing && InterruptHoldoffCount == 0)
		dt_check_forget_listing();
	if (my.others_wait && !my.listing)
	{
		LogMemoryContextPending = true;
		InterruptPending = true;
	}
	else if (*my.asked_by_other)
		dt_check_request();
}

bool
dt_check_takes_message(ErrorData *message)
{
	const char *function = message->funcname;

	if (message->elevel >= ERROR)
		dt_check_forget_listing();
	if (message->elevel != LOG_SERVER_ONLY || function == NULL)
		return false;
	if (my.testing)
	{
		my.testing = false;
		return true;
	}
	if (strcmp(function, "ProcessLogMemoryContextInterrupt") == 0)
	{
		if (!is_served())
		{
			my.others_wait = 0; /* this answers whoever came until now */
			(void) __sync_bool_compare_and_swap(&LogMemoryContextPending, 1, 0);
			return false;
		}
		begin_check();
		/* a tick must not take it for a listing that an error has ended */
		HOLD_INTERRUPTS();
		pg_compiler_barrier();
		TopMemoryContext = my.nothing;
		error_context_stack = NULL;
		message->output_to_server = false;
		return true;
	}
	if (!my.listing || strncmp(function, "MemoryContextStats", 18) != 0)
		return false;
	message->output_to_server = false;
	if (strncmp(message->message, "Grand total", 11) == 0)
	{
		end_listing();
		my.after_check();
	}
	return true;
}

/*
 * The core asks for the statistics of the context "nothing".  Where it makes
 * messages of them, emit_log_hook has been called already.
 */
static void
statistics(MemoryContext context, MemoryStatsPrintFunc print, void *passthru,
		   MemoryContextCounters *totals, bool print_to_stderr)
{
	if (!print_to_stderr && !message_level_is_interesting(LOG_SERVER_ONLY))
	{
		my.others_wait = 0;
		if (my.requested)
		{
			begin_check();
			my.after_check();
			my.listing = 0;
		}
	}
	my.statistics(context, print, passthru, totals, print_to_stderr);
}

static ErrorData test_message = {
	.elevel = LOG_SERVER_ONLY,
	.output_to_server = true,
	.filename = __FILE__,
	.lineno = __LINE__
};

static void
send_test_message(void)
{
	emit_log_hook(&test_message);
}

/*
 * Does emit_log_hook still lead here?  A library that was loaded later may
 * have a hook that does not call ours for these messages.  The hook is called
 * as errfinish() does, but nothing is logged.
 */
static void
test_hooks(void)
{
	static const char *const wanted[][2] = {
		{"ProcessLogMemoryContextInterrupt", "logging memory contexts"},
		{"MemoryContextStatsPrint", "level: 0"},
		{"MemoryContextStatsDetail", "Grand total: 0 bytes"}
	};

	dt_check_tested_hook = emit_log_hook;
	test_message.assoc_context = CurrentMemoryContext;
	my.works = true;
	for (int i = 0; i < lengthof(wanted); i++)
	{
		test_message.funcname = wanted[i][0];
		test_message.message = unconstify(char *, wanted[i][1]);
		test_message.message_id = test_message.message;
		my.testing = true;
		/* a hook may need what there is in errfinish() only, and fail */
		(void) dt_call_safely(send_test_message);
		my.works &= !my.testing;
	}
	my.testing = false;
}

void
dt_check_test_again(void)
{
	bool		possible;

	if (emit_log_hook != dt_check_tested_hook)
		test_hooks();
	dt_check_tested_level = DT_LOG_MIN_MESSAGES;
	possible = my.works || !message_level_is_interesting(LOG_SERVER_ONLY);
	if (!possible || !*my.told)
		my.requested = my.others_wait = *my.asked_by_other = 0; /* no message comes */
	*my.told = possible;
}

void
dt_check_request(void)
{
	bool		silent = !message_level_is_interesting(LOG_SERVER_ONLY);

	if ((!my.works && !silent) || my.listing || my.others_wait ||
		LogMemoryContextPending == true)
		return;					/* a genuine one comes first */
	my.repeated = my.requested && (my.repeated || !LogMemoryContextPending);
	if (!my.repeated)
		my.cost_since = cpu_time();
	my.requested = 1;
	(void) __sync_bool_compare_and_swap(&LogMemoryContextPending, 0,
										DT_INTERRUPT_OF_OURS);
	(void) __sync_bool_compare_and_swap(&InterruptPending, 0,
										DT_INTERRUPT_OF_OURS);
}

void
dt_check_withdraw(void)
{
	if (my.requested)
		clear_request();
	my.requested = 0;
	dt_check_serve_others();
}

/*
 * Before the core's handler, as the kernel would call it.  A genuine request has set
 * the core's flag; another process that asks for a check sends the signal only.
 */
static void
handle_sigusr1(int signo, siginfo_t *info, void *context)
{
	int			save_errno = errno;

	if (my.sigusr1.sa_flags & SA_SIGINFO)
		my.sigusr1.sa_sigaction(signo, info, context);
	else
		my.sigusr1.sa_handler(signo);
	if (LogMemoryContextPending == true)
		my.others_wait = *my.told;
	else if (*my.asked_by_other)
		dt_check_request();
	errno = save_errno;
}

static void
stand_before_sigusr1(void)
{
	struct sigaction action;

	if (sigaction(SIGUSR1, NULL, &my.sigusr1) != 0 ||
		(!(my.sigusr1.sa_flags & SA_SIGINFO) &&
		 (my.sigusr1.sa_handler == SIG_DFL || my.sigusr1.sa_handler == SIG_IGN)))
		return;
	action = my.sigusr1;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = handle_sigusr1;
	(void) sigaction(SIGUSR1, &action, NULL);
}

void
dt_check_listen(volatile sig_atomic_t *asked, bool *possible)
{
	stand_before_sigusr1();
	*asked = 0;
	my.asked_by_other = asked;
	my.told = possible;
	dt_check_test_again();
}

void
dt_check_init(void (*at_check) (void), void (*after_check) (void))
{
	my.nothing = AllocSetContextCreate(TopMemoryContext, "dirty_throttle",
									   ALLOCSET_SMALL_SIZES);
	my.methods = *my.nothing->methods;
	my.statistics = my.methods.stats;
	my.methods.stats = statistics;
	my.nothing->methods = &my.methods;
	my.at_check = at_check;
	my.after_check = after_check;
}
