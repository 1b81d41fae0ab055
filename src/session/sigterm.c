/*-------------------------------------------------------------------------
 *
 * sigterm.c
 *		Has a background worker been told to end?
 *
 * The server tells a background worker to end by SIGTERM, for
 * pg_terminate_backend() and when it stops.  Where the handler is the core's
 * die(), an interrupt follows, which ends a pause.  But many extensions have a
 * handler that sets a variable of theirs and the latch, and they look at the
 * variable when their statement has ended.  If that went on pausing, so long
 * would the server take to stop; in a suspended group, for ever.  The latch
 * tells nothing, since it is set for many reasons.
 *
 * So there is a handler here that stands before the worker's own, and calls it
 * as the kernel would.  From then on the process pauses no more, and its
 * parallel workers do not either: the slot tells them.
 *
 * It stays for good once the worker is a member, since SIGTERM may come between
 * two pauses as well.  If somebody puts another handler in its place, or before
 * it, it has to get to the front again when the next pause begins, without
 * losing the one that it stood before, which the other may call.  So there are
 * several here, each with what it stands before.  One is never put before a
 * handler that another one stands before already; there, the handlers above
 * that have gone.
 *
 * A worker that leaves SIGTERM at its default action has no need of this: it is
 * killed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "session/sigterm.h"

typedef void (*Handler) (int signo, siginfo_t *info, void *context);

/*
 * What each of our handlers stands before.  Written while SIGTERM is blocked.
 */
#define HANDLERS	4

static struct sigaction replaced[HANDLERS];
static int	n_replaced = 0;

static volatile sig_atomic_t holds_back = false;	/* SIGTERM */
static volatile sig_atomic_t held_back = false; /* it has come */

/* The server's own handlers, from 17 on, know processes that forked, too. */
static void
handle(int which, int signo, siginfo_t *info, void *context)
{
	const struct sigaction *next = &replaced[which];
	int			save_errno = errno;
	bool		is_mine = MyProcPid == (int) getpid();

	if (is_mine)
	{
		dt_account.slot->told_to_end = true;
		SetLatch(MyLatch);
	}
	errno = save_errno;
	if (is_mine && holds_back)
	{
		held_back = true;
		return;
	}
	if (next->sa_flags & SA_SIGINFO)
		next->sa_sigaction(signo, info, context);
	else if (next->sa_handler != SIG_IGN)
		next->sa_handler(signo);
}

#define DEFINE_HANDLER(n) \
static void \
handler_##n(int signo, siginfo_t *info, void *context) \
{ \
	handle(n, signo, info, context); \
}

DEFINE_HANDLER(0)
DEFINE_HANDLER(1)
DEFINE_HANDLER(2)
DEFINE_HANDLER(3)

static const Handler handlers[HANDLERS] = {
	handler_0, handler_1, handler_2, handler_3
};

static bool
is_same(const struct sigaction *a, const struct sigaction *b)
{
	return (a->sa_flags & SA_SIGINFO) == (b->sa_flags & SA_SIGINFO) &&
		(a->sa_flags & SA_SIGINFO ? a->sa_sigaction == b->sa_sigaction :
		 a->sa_handler == b->sa_handler);
}

static bool
is_ours(const struct sigaction *action)
{
	for (int i = 0; i < HANDLERS; i++)
		if ((action->sa_flags & SA_SIGINFO) && action->sa_sigaction == handlers[i])
			return true;
	return false;
}

/* Put a handler before this one, with its flags and its mask. */
static void
stand_before(const struct sigaction *present)
{
	struct sigaction action = *present;
	int			which = 0;

	while (which < n_replaced && !is_same(&replaced[which], present))
		which++;
	if (which == HANDLERS)
		return;					/* somebody changes it again and again */
	replaced[which] = *present;
	n_replaced = which + 1;
	action.sa_flags |= SA_SIGINFO;
	action.sa_sigaction = handlers[which];
	(void) sigaction(SIGTERM, &action, NULL);
}

/* False: somebody else's is in front all the same. */
bool
dt_sigterm_watch_slow(void)
{
	struct sigaction present;
	sigset_t	sigterm;
	sigset_t	mask;
	bool		is_in_front;

	sigemptyset(&sigterm);
	sigaddset(&sigterm, SIGTERM);
	sigprocmask(SIG_BLOCK, &sigterm, &mask);
	if (sigaction(SIGTERM, NULL, &present) == 0 && !is_ours(&present) &&
		((present.sa_flags & SA_SIGINFO) || present.sa_handler != SIG_DFL))
		stand_before(&present);
	is_in_front = sigaction(SIGTERM, NULL, &present) == 0 && is_ours(&present);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	return is_in_front;
}

bool
dt_sigterm_hold_back(void)
{
	holds_back = dt_sigterm_watch_slow();
	return holds_back;
}

bool
dt_sigterm_let_go(void)
{
	holds_back = false;
	return held_back;
}

bool
dt_sigterm_deliver(void)
{
	/* it is held back until the transaction is over */
	if (held_back && (InterruptHoldoffCount > 0 || CritSectionCount > 0))
		return false;
	if (held_back)
	{
		held_back = false;
		(void) kill(MyProcPid, SIGTERM);
	}
	return true;
}
