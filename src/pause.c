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

#include <fcntl.h>
#include <unistd.h>

#include "access/xact.h"
#include "account.h"
#include "apply_feedback.h"
#include "blockers.h"
#include "group.h"
#include "guc.h"
#include "live.h"
#include "miscadmin.h"
#include "moved.h"
#include "pause.h"
#include "postmaster/interrupt.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"
#include "utils/pidfile.h"

#include "compat.h"

/* What the core calls it where only it can see that. */
#define DIRECTORY_LOCK_FILE		"postmaster.pid"

/*
 * The longest pause after a transaction of an autovacuum worker, which keeps
 * its table locked, and of an apply worker that cannot tell its publisher that
 * it is alive.
 */
#define BACKGROUND_PAUSE_US			INT64CONST(1000000)

static uint32 wait_event = PG_WAIT_EXTENSION;

bool		dt_pause_xact_begun = false;

static bool xact_paces = false; /* it has once owed more than the grace */
static bool xact_excused = true;	/* nothing but a login or SET, so far */
static bool xact_cancelled = false; /* by the user or a timeout */
static bool xact_released = false;	/* others have waited for it too long */
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
 * In a smart shutdown nobody can connect any more to resume a group.  The file
 * is where the postmaster tells pg_ctl.
 */
bool
dt_pause_server_is_stopping(void)
{
	char		status[BLCKSZ];
	ssize_t		size;
	int			fd = open(DIRECTORY_LOCK_FILE, O_RDONLY | PG_BINARY, 0);
	char	   *line = status;
	int			i;

	if (fd < 0)
		return false;
	size = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[Max(size, 0)] = '\0';
	for (i = 1; i < LOCK_FILE_LINE_PM_STATUS && line != NULL; i++)
		if ((line = strchr(line, '\n')) != NULL)
			line++;
	return line != NULL &&
		strncmp(line, PM_STATUS_STOPPING, strlen(PM_STATUS_STOPPING)) == 0;
}

/*
 * How long to sleep now, in us, in a pause that ends in "left"?  A stopped
 * group's pause has no end, but for the server's.
 */
static int64
next_slice(bool first, bool in_flight, int64 left)
{
	bool		stopped = dt_account_is_open() &&
		dt_account_is_stopped(in_flight);
	int64		pause;

	if (stopped ? dt_pause_server_is_stopping() : left <= 0)
		return 0;
	pause = dt_account_pause_left(first, in_flight);
	return stopped ? pause : Min(pause, left);
}

/*
 * Pause with interrupts served, until all is paid, or in flight what this
 * transaction owes, for at most max_us.  An ERROR leaves nothing to undo: what
 * is owed stays on the books.
 */
static void
pause_interruptibly(bool in_flight, int64 max_us)
{
	int64		until = dt_now_us() + max_us;
	bool		latch_set = false;
	bool		first = true;
	int64		pause;

	while ((pause = next_slice(first, in_flight, until - dt_now_us())) > 0)
	{
		first = false;
		if (in_flight)
			pause = Min(pause, dt_blockers_interval());
		if (sleep_slice(pause, WL_EXIT_ON_PM_DEATH) & WL_LATCH_SET)
			latch_set = true;
		if (InterruptPending)
		{
			dt_account_end_pause();
			if (latch_set)
				SetLatch(MyLatch);
			latch_set = false;
			CHECK_FOR_INTERRUPTS();
		}
		if (in_flight && dt_blockers_waiting())
		{
			xact_released = true;
			break;
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

	if (dt_moved_told)
	{
		/* put into a group in the middle of this query */
		dt_moved_told = 0;
		dt_pause_xact_begun = true;
		dt_live_start();
	}
	if (dt_account_charge(true, &xact_owed_us) == 0)
		return;

	/* Not a place to sleep: what is owed is paid at the next one. */
	if (!may_pause_here() || xact_released)
		return;

	/*
	 * A small transaction pays when it holds no locks any more.  One that has
	 * shown that it is not small pays as it goes, for a smooth rate.
	 */
	if (!xact_paces && !dt_account_is_stopped(true))
	{
		if (xact_owed_us < dt_transaction_grace_ms * INT64CONST(1000))
			return;
		xact_paces = true;
	}
	pause_interruptibly(true, PG_INT64_MAX / 2);
}

void
dt_pause_excuse_transaction(void)
{
	xact_excused = !dt_pause_xact_begun;
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
	if (dt_pause_xact_begun || IsAbortedTransactionBlockState())
		return;
	dt_pause_xact_begun = true;
	xact_excused = false;
	if (!(pay_first || dt_account_is_stopped(true)) || !may_pause_here())
		return;
	xact_cancelled = true;		/* if it ends by an error */
	pause_interruptibly(false, dt_max_commit_pause_ms * INT64CONST(1000));
	xact_cancelled = false;
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
	bool		is_stopped;

	is_stopped = !xact_excused && dt_account_is_open() &&
		dt_account_is_stopped(false);
	if (!dt_account_is_settled() || is_stopped)
		pause = dt_account_charge(false, &xact_owed_us);
	dt_account_forget_workers();

	/*
	 * Who has cancelled something wants to go on now, and who has dirtied
	 * nothing in vain owes only what earlier transactions have left.
	 */
	evaded = !committed && xact_cancelled;
	if (evaded ||
		(!committed && !dt_account_xact_has_used() && !is_stopped))
		may_pause = false;
	if (MyBackendType == B_BG_WORKER && dt_session_background_group() == NULL)
	{
		evaded = true;
		may_pause = false;
	}
	/* Its publisher is told only of what was committed. */
	if (IsLogicalWorker() && !committed)
		may_pause = false;

	dt_pause_xact_begun = false;
	xact_paces = false;
	if (xact_excused)
		may_pause = false;
	xact_excused = false;
	xact_cancelled = false;
	xact_released = false;

	if (pause == 0 || !may_pause || proc_exit_inprogress)
	{
		pay_first |= evaded && pause > 0;
		dt_account_carry();
		return false;
	}
	dt_session_hold_changes();
	return true;
}

static bool
client_has_gone(void)
{
	return MyProcPort != NULL && WaitEventSetCanReportClosed() &&
		!pq_check_connection();
}

/*
 * Is there an interrupt that cannot wait?  When it is only time to see whether
 * the client is still there, which may be configured to come often, see for
 * ourselves; and statistics can be reported later.
 */
static bool
interrupted(void)
{
	if (!InterruptPending)
		return false;
	if (IdleStatsUpdateTimeoutPending)
		InterruptPending = false;	/* until the pause ends */
	if (QueryCancelPending || ProcDiePending || ProcSignalBarrierPending)
	{
		InterruptPending = true;
		return true;
	}
	if (CheckClientConnectionPending)
		return client_has_gone();
	return InterruptPending;
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
	while (!proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;
		int			events;

		/* in a stopped group; before the account, since it resets the latch */
		if (!first && left <= 0 && client_has_gone())
			break;
		if (interrupted())
			break;
		/* workers of the server have more to do than to wait for a DBA */
		if (left <= 0 && dt_session_background_group() != NULL)
			break;
		pause = next_slice(first, false, left);
		if (pause <= 0)
			break;
		if (dt_session_background_group() != NULL)
			pause = Min(pause, left);
		if (feedback && !dt_apply_feedback_send())
			break;
		events = sleep_slice(pause, WL_POSTMASTER_DEATH);
		if ((events & WL_POSTMASTER_DEATH) ||
			((events & WL_LATCH_SET) && IsLogicalWorker()))
			break;
		first = false;
	}
	dt_account_end_pause();
	last_pause_end = dt_now_us();
	SetLatch(MyLatch);			/* may have been reset for others than us */
	pay_first |= InterruptPending && dt_account_owes();
	if (IdleStatsUpdateTimeoutPending || CheckClientConnectionPending)
		InterruptPending = true;
	dt_account_carry();
	dt_session_release_changes();
}
