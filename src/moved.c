/*-------------------------------------------------------------------------
 *
 * moved.c
 *		A session that is put into a group in the middle of a query.
 *
 * A session that is in no group runs none of our code while a query runs, so
 * set_session_group() sends it a signal that the core ignores in backends.
 * The handler opens the account, so that all is charged from here on, and
 * makes the plan's nodes call the wrapper that paces; what happens at their
 * next rows is ordinary code again.  To do so it only follows pointers of a
 * plan that is being run, which does not change, and replaces one in each
 * node.  Should the node itself replace that at the same moment, at its first
 * call, then others will pace.
 *
 * Commands that are no queries (COPY, CREATE INDEX, ...) get no safe points by
 * this: they pay after the transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "account.h"
#include "miscadmin.h"
#include "moved.h"
#include "pace.h"
#include "session.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/s_lock.h"

/* Nodes whose turn is still to come, in a tree that is deep on one side. */
#define MAX_NODES		64

/* To get at the account; some microseconds. */
#define TRIES			100

QueryDesc  *dt_moved_running = NULL;
volatile sig_atomic_t dt_moved_told = 0;

static void
pace_tree(PlanState *root)
{
	PlanState  *nodes[MAX_NODES];
	int			n = 0;

	nodes[n++] = root;
	while (n > 0)
	{
		PlanState  *node = nodes[--n];

		dt_pace_executor_wrap(node);
		if (innerPlanState(node) != NULL && n < MAX_NODES)
			nodes[n++] = innerPlanState(node);
		if (outerPlanState(node) != NULL && n < MAX_NODES)
			nodes[n++] = outerPlanState(node);
	}
}

static void
told(SIGNAL_ARGS)
{
	int			save_errno = errno;
	int64		threshold[DT_RESOURCES];
	int			i;

	/* others hold the account for moments only, if it is not ourselves */
	for (i = 0; i < TRIES && dt_account_charge_live(threshold) < 0; i++)
		SPIN_DELAY();

	/* who is terminated does not come back to forget what was running */
	if (!proc_exit_inprogress && dt_session_active() &&
		dt_moved_running != NULL && dt_moved_running->planstate != NULL)
	{
		pace_tree(dt_moved_running->planstate);
		dt_moved_told = 1;
		dt_account_charge_at_next_safe_point();
	}
	SetLatch(MyLatch);
	errno = save_errno;
}

bool
dt_moved_listen(void)
{
	struct sigaction old;

	if (MyBackendType != B_BACKEND ||
		sigaction(DT_MOVED_SIGNAL, NULL, &old) != 0 ||
		(old.sa_flags & SA_SIGINFO) || old.sa_handler != SIG_IGN)
		return false;
	pqsignal(DT_MOVED_SIGNAL, told);
	return true;
}
