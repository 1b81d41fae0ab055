/*-------------------------------------------------------------------------
 *
 * pause.c
 *		Where a member sleeps: in flight, and after or before a transaction.
 *
 * These are the only functions that sleep; whether and for how long is what
 * the account says.  All sleep on the process latch, in slices of at most a
 * second, and are woken through it when the limit changes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "account.h"
#include "apply_feedback.h"
#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "pause.h"
#include "postmaster/interrupt.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"

#include "compat.h"

/*
 * The longest pause after a transaction of an autovacuum worker, which keeps
 * its table locked, and of an apply worker that cannot tell its publisher that
 * it is alive.
 */
#define BACKGROUND_PAUSE_US			INT64CONST(1000000)

static uint32 wait_event = PG_WAIT_EXTENSION;

static bool xact_begun = false; /* its first statement, too */
static bool xact_paces = false; /* it has once owed more than the grace */
static bool xact_cancelled = false; /* by the user or a timeout */
static bool pay_first = false;	/* a pause was evaded: before the next one */
static int64 last_pause_end = 0;	/* after a transaction, us */

/*
 * At server start, and in each process where processes are not forked.
 */
void
dt_pause_init(void)
{
	wait_event = WaitEventExtensionNew("DirtyThrottle");
}

/*
 * One slice of a pause.  Somebody else's reason to set our latch is not ours
 * to swallow, so the caller sets it again afterwards.
 */
static int
sleep_slice(int64 pause_us, int on_postmaster_death)
{
	int			events;

	events = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | on_postmaster_death,
					   (pause_us + 999) / 1000, wait_event);
	if (events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	return events;
}

/*
 * Pause with interrupts served, until nothing is owed but "keep" bytes, for at
 * most max_us.  An ERROR leaves nothing to undo: what is owed stays on the
 * books.
 */
static void
pause_interruptibly(int64 keep, int64 max_us)
{
	int64		until = dt_now_us() + max_us;
	bool		latch_set = false;
	bool		first = true;
	int64		left;
	int64		pause;

	while ((left = until - dt_now_us()) > 0 &&
		   (pause = dt_account_pause_left(first, keep)) > 0)
	{
		first = false;
		if (sleep_slice(Min(pause, left), WL_EXIT_ON_PM_DEATH) & WL_LATCH_SET)
			latch_set = true;
		if (InterruptPending)
		{
			dt_account_end_pause();
			if (latch_set)
				SetLatch(MyLatch);
			latch_set = false;
			CHECK_FOR_INTERRUPTS();
		}
	}
	dt_account_end_pause();
	if (latch_set)
		SetLatch(MyLatch);
}

/*
 * May we sleep here, with interrupts served?
 */
static bool
may_pause_here(void)
{
	return CritSectionCount == 0 && InterruptHoldoffCount == 0 &&
		QueryCancelHoldoffCount == 0 && !proc_exit_inprogress &&
		dt_session_background_group() == NULL;
}

void
dt_pause_in_flight(void)
{
	int64		xact_owed_us;

	if (dt_account_charge(&xact_owed_us) == 0)
		return;

	/* Not a place to sleep: what is owed is paid at the next one. */
	if (!may_pause_here())
		return;

	/*
	 * A small transaction pays when it holds no locks any more.  One that has
	 * shown that it is not small pays as it goes, for a smooth rate.
	 */
	if (!xact_paces)
	{
		if (xact_owed_us < dt_transaction_grace_ms * INT64CONST(1000))
			return;
		xact_paces = true;
	}
	pause_interruptibly(dt_account_carried(), PG_INT64_MAX / 2);
}

/*
 * Who evaded the last pause, by a cancel, pays now, when evading means not to
 * run the statement.  Background workers always pay here: the core's own
 * handler of SIGTERM may end them at any instruction, which must not happen in
 * the pause after a transaction.
 */
void
dt_pause_before_transaction(void)
{
	/* nor before a ROLLBACK, which must not fail */
	if (xact_begun || IsAbortedTransactionBlockState())
		return;
	xact_begun = true;
	if (!pay_first || !may_pause_here())
		return;
	pause_interruptibly(0, dt_max_commit_pause_ms * INT64CONST(1000));
	pay_first = dt_account_owes();
	dt_account_carry();
}

void
dt_pause_note_error(void)
{
	int			code = geterrcode();

	if (code == ERRCODE_QUERY_CANCELED || code == ERRCODE_LOCK_NOT_AVAILABLE)
		xact_cancelled = true;
}

bool
dt_pause_end_transaction(bool committed, bool may_pause)
{
	int64		xact_owed_us;
	int64		pause = 0;
	bool		evaded;

	if (!dt_account_is_settled())
		pause = dt_account_charge(&xact_owed_us);
	dt_account_forget_workers();

	/*
	 * Who has cancelled something wants to go on now, and who has dirtied
	 * nothing in vain owes only what earlier transactions have left.
	 */
	evaded = !committed && xact_cancelled;
	if (evaded || (!committed && dt_account_xact_blocks() == 0))
		may_pause = false;
	if (MyBackendType == B_BG_WORKER && dt_session_background_group() == NULL)
	{
		evaded = true;
		may_pause = false;
	}
	/* Its publisher is told only of what was committed. */
	if (IsLogicalWorker() && !committed)
		may_pause = false;

	xact_begun = false;
	xact_paces = false;
	xact_cancelled = false;

	if (pause == 0 || !may_pause || proc_exit_inprogress)
	{
		pay_first |= evaded && pause > 0;
		dt_account_carry();
		return false;
	}
	dt_session_hold_changes();
	return true;
}

/*
 * Is there an interrupt that cannot wait?  When it is only time to see whether
 * the client is still there, which may be configured to come often, see for
 * ourselves.
 */
static bool
interrupted(void)
{
	if (!InterruptPending)
		return false;
	if (CheckClientConnectionPending && !QueryCancelPending &&
		!ProcDiePending && !ProcSignalBarrierPending && MyProcPort != NULL)
		return !pq_check_connection();
	return true;
}

/*
 * How long may the pause be that begins now, in us?  An apply worker that
 * cannot send feedback here sends it when it has nothing left to apply, so it
 * must be able to catch up: it never pauses longer than it has not paused
 * since the last time, and so for half of the time at most.  It reads a new
 * configuration, which may free it, when it has caught up, too.
 */
static int64
longest_pause_after_transaction(bool *feedback)
{
	int64		longest = dt_max_commit_pause_ms * INT64CONST(1000);

	*feedback = IsLogicalWorker() && !ConfigReloadPending &&
		dt_apply_feedback_possible();
	if (*feedback)
		return Min(longest, dt_apply_feedback_longest_silence());
	if (dt_session_background_group() != NULL)
		longest = Min(longest, BACKGROUND_PAUSE_US);
	if (IsLogicalWorker())
		longest = Min(longest, dt_now_us() - last_pause_end);
	return longest;
}

void
dt_pause_after_transaction(void)
{
	bool		feedback;
	int64		until = dt_now_us() + longest_pause_after_transaction(&feedback);
	bool		first = true;

	/*
	 * It may be set since our last pause.  An apply worker must see the next
	 * time: somebody wants something of it, say that it reads its
	 * configuration or looks whether its subscription has been disabled.
	 */
	ResetLatch(MyLatch);

	/* A failed transaction block may be left by leaving the server. */
	while (!interrupted() && !proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;
		int			events;

		if (left <= 0 || (pause = dt_account_pause_left(first, 0)) == 0)
			break;
		if (feedback && !dt_apply_feedback_send())
			break;
		events = sleep_slice(Min(pause, left), WL_POSTMASTER_DEATH);
		if ((events & WL_POSTMASTER_DEATH) ||
			((events & WL_LATCH_SET) && IsLogicalWorker()))
			break;
		first = false;
	}
	dt_account_end_pause();
	last_pause_end = dt_now_us();
	SetLatch(MyLatch);			/* may have been reset for others than us */
	pay_first |= InterruptPending && dt_account_owes();
	dt_account_carry();
	dt_session_release_changes();
}
