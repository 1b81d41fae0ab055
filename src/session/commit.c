/*-------------------------------------------------------------------------
 *
 * commit.c
 *		The safe point after a transaction.
 *
 * A session that sleeps after its transaction keeps nobody waiting, if it
 * sleeps late enough.  When its locks have been released (the resource owner's
 * AFTER_LOCKS phase), files are still to be deleted, listeners to be notified
 * and a prepared transaction to be finished.  So that phase only decides that
 * a pause is due, and registers a callback for the reset of
 * TopTransactionContext, which is the last thing that the core does for a
 * transaction.  There the transaction is over but interrupts are held, and an
 * ERROR would be a PANIC; see sleep.c.
 *
 * Commands that commit in between and keep session locks (VACUUM, CREATE INDEX
 * CONCURRENTLY, ...) do not pause at those commits.  They pay at the commit
 * that follows the command.  CALL and DO keep none, and pause at each commit.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/apply.h"
#include "session/commit.h"
#include "session/pay.h"
#include "session/session.h"
#include "session/tick.h"
#include "session/workers.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static void after_transaction(void *arg);

static MemoryContextCallback callback = {.func = after_transaction};

/* Is resources_released() registered? */
bool		dt_commit_needed = true;

/*
 * Processes that run no statements begin a command with each transaction.  An
 * apply worker gets no timer, since it would end the worker's pauses.
 */
static pg_noinline void
begin_background_command(void)
{
	if ((dt_process() == DT_AUTOVACUUM || dt_apply_copies_table()) &&
		dt_account_follow())
		dt_tick_start_command();
}

static void
after_transaction(void *arg)
{
	dt_pay_after_transaction();
	if (unlikely(dt_process_is_servers_own()))
		begin_background_command();
}

/* Processes that run no statements are in the group of a parameter. */
static pg_noinline void
background_transaction_ends(void)
{
	dt_session_follow_background_group();
	begin_background_command();
}

/*
 * In a parallel worker a transaction ends before its work begins.  That may be
 * to build an index, of which no hook tells.
 */
static void
begin_worker(void)
{
	dt_session_attach();
	if (dt_worker_begins())
		dt_tick_start_command();
}

/*
 * The first transaction of a process ends, or one of a process that is no
 * session, or one for the second time: there was an error in what follows the
 * first.  False: dt_pay_end_transaction() is not to be called.  For a parallel
 * worker its leader pays.
 */
static pg_noinline bool
unusual_end(void)
{
	if (IsParallelWorker())
	{
		if (dt_session_state & DT_UNATTACHED)
			begin_worker();
		return false;
	}
	if (dt_session_state & DT_CHANGES_HELD)
		return false;
	dt_session_attach();
	if (dt_process_is_servers_own())
		background_transaction_ends();
	return true;
}

static void
locks_released(bool isCommit)
{
	if (unlikely((dt_session_state & ~DT_WANTS_GROUP) != 0 ||
				 dt_process() != DT_SESSION) && !unusual_end())
		return;
	if (dt_pay_end_transaction(isCommit))
		MemoryContextRegisterResetCallback(TopTransactionContext, &callback);
}

/*
 * This is called in each phase for each resource owner, also for owners that
 * are not those of a transaction.
 */
static void
resources_released(ResourceReleasePhase phase, bool isCommit, bool isTopLevel,
				   void *arg)
{
	if (phase == RESOURCE_RELEASE_AFTER_LOCKS && isTopLevel &&
		CurrentResourceOwner == TopTransactionResourceOwner &&
		(dt_session_active() || dt_pay_state != DT_PAY_NOTHING ||
		 dt_process() != DT_SESSION))
		locks_released(isCommit);
}

void
dt_commit_toggle(void)
{
	/* the end of a transaction that has begun is needed in any case */
	if (dt_process() != DT_SESSION || dt_pay_state != DT_PAY_NOTHING)
		return;
	dt_commit_needed = !dt_commit_needed;
	if (dt_commit_needed)
		RegisterResourceReleaseCallback(resources_released, NULL);
	else
		UnregisterResourceReleaseCallback(resources_released, NULL);
}

/*
 * At server start: each process attaches at the end of its first transaction.
 */
void
dt_commit_init(void)
{
	RegisterResourceReleaseCallback(resources_released, NULL);
}
