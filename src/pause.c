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

#include "access/parallel.h"
#include "access/xact.h"
#include "account.h"
#include "apply_feedback.h"
#include "blockers.h"
#include "group.h"
#include "guc.h"
#include "live.h"
#include "miscadmin.h"
#include "pause.h"
#include "postmaster/interrupt.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

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

/* false: none between rows.  Only test/core-suites wants that. */
#ifndef DT_ROW_PAUSES
#define DT_ROW_PAUSES	true
#endif

/* Wherever a check for interrupts is, nobody is kept there for longer. */
#define LONGEST_AT_CHECK_US		INT64CONST(200000)

/* Do others still wait?  Not to be asked too often. */
#define RELEASED_US				INT64CONST(20000)

typedef enum Place
{
	BETWEEN_ROWS,
	AT_CHECK,					/* where interrupts are served by the caller */
	BEFORE_TRANSACTION
} Place;

bool		dt_pause_xact_begun = false;

static bool xact_paces = false; /* it has once owed more than the grace */
static bool goes_on = false;	/* the last pause, at the next check */
static bool xact_cancelled = false; /* by the user or a timeout */
static bool xact_prepared = false;	/* by PREPARE TRANSACTION */
static bool pay_first = false;	/* what is owed: before the next one */
static int	commit_pause_ms = 0;	/* the longest one, as the transaction had it */
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
static bool
server_is_stopping(void)
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

	if (stopped ? server_is_stopping() : left <= 0)
		return 0;
	pause = dt_account_pause_left(first, in_flight);
	return stopped ? pause : Min(pause, left);
}

/*
 * Go on without a pause, since somebody outside the group has waited too long
 * for what we hold, and for as long as anybody does?  Who has stopped the group
 * hard has said that its members are to keep what they hold.
 */
static bool
is_released(void)
{
	int64		now = dt_now_us();
	bool		already = dt_session_slot->released_until != 0;

	if (dt_account_is_stopped(true))
		return false;
	if (now < dt_session_slot->released_until)
		return true;
	if (!dt_blockers_waiting(already))
	{
		if (already)
			dt_session_slot->released_until = 0;
		return false;
	}
	dt_session_slot->released_until = now + RELEASED_US;
	if (!already)
		dt_account_count_release();
	return true;
}

/*
 * Pause until all is paid.  An ERROR leaves nothing to undo: what is owed stays
 * on the books.
 */
static void
pause_at(Place place)
{
	bool		in_flight = place != BEFORE_TRANSACTION;
	int64		until = place == AT_CHECK ?
		dt_now_us() + LONGEST_AT_CHECK_US : PG_INT64_MAX;
	bool		was_cancelled = xact_cancelled;
	bool		latch_set = false;
	bool		first = place != AT_CHECK || !goes_on;
	bool		paid = false;

	dt_live_suspend();
	for (;;)
	{
		int64		left = until - dt_now_us();
		int64		pause = next_slice(first, in_flight, left);

		paid = left > 0 && pause <= 0;
		if (pause <= 0)
			break;
		first = false;
		if (in_flight)
			pause = Min(pause, dt_blockers_interval());
		if (sleep_slice(pause, WL_EXIT_ON_PM_DEATH) & WL_LATCH_SET)
			latch_set = true;
		/* to look for the client resets the latch: another may have come */
		while (InterruptPending)
		{
			dt_account_end_pause();
			if (latch_set)
				SetLatch(MyLatch);
			latch_set = false;
			/* who catches the error does not get to use more for it */
			dt_account_charge_at_next_safe_point();
			if (place == AT_CHECK)
				goto done;		/* not paid */
			xact_cancelled = true;	/* if there is one */
			dt_live_resume();
			CHECK_FOR_INTERRUPTS();
			dt_live_suspend();
			xact_cancelled = was_cancelled;
		}
		if (in_flight && is_released())
			break;
	}
done:
	dt_account_end_pause();
	if (latch_set)
		SetLatch(MyLatch);
	goes_on = place == AT_CHECK && !paid;
	if (place == AT_CHECK)
		dt_live_resume_at_check(goes_on);
	else
		dt_live_resume();
}

/*
 * May we sleep here?
 */
static bool
may_pause_here(void)
{
	return CritSectionCount == 0 && InterruptHoldoffCount == 0 &&
		QueryCancelHoldoffCount == 0 && !proc_exit_inprogress;
}

static bool
exceeds_grace(int64 owed_us)
{
	return owed_us >= dt_transaction_grace_ms * INT64CONST(1000);
}

/*
 * A small transaction pays when it holds no locks any more.  One that has
 * shown that it is not small pays as it goes, for a smooth rate.  Also in a
 * signal handler.
 */
static bool
pays_in_flight(int64 owed_us)
{
	return xact_paces || dt_account_is_stopped(true) ||
		dt_session_change_waits() || exceeds_grace(owed_us);
}

bool
dt_pause_wants_check(int64 owed_us)
{
	return dt_interrupt_pauses && pays_in_flight(owed_us) &&
		dt_now_us() >= dt_session_slot->released_until &&
		MyProc->waitStatus != PROC_WAIT_STATUS_WAITING;
}

static void
charge_and_pause_at(Place place)
{
	int64		owed_us;

	if (dt_account_charge(true, &owed_us) == 0)
		return;
	/* Not a place to sleep: what is owed is paid at the next one. */
	if (!may_pause_here() || !pays_in_flight(owed_us) || is_released())
		return;
	if (exceeds_grace(owed_us))
		xact_paces = true;
	pause_at(place);
}

void
dt_pause_in_flight(void)
{
	if (!DT_ROW_PAUSES)
		return;
	dt_live_note_row();
	if (dt_session_background_group() == NULL)
		charge_and_pause_at(BETWEEN_ROWS);
}

void
dt_pause_at_check(void)
{
	charge_and_pause_at(AT_CHECK);
}

/*
 * The snapshot is the portal's when a utility command runs, and nobody's when
 * a query has just been analyzed.
 */
static void
give_snapshot_back(void)
{
	InvalidateCatalogSnapshot();
	PopActiveSnapshot();
	if (ActivePortal != NULL)
		ActivePortal->portalSnapshot = NULL;
}

static void
take_snapshot(void)
{
	if (ActivePortal != NULL)
		EnsurePortalSnapshotExists();
	else
		PushActiveSnapshot(GetTransactionSnapshot());
}

/*
 * What the session could not pay after its transactions, it pays now, when to
 * evade means not to run the statement.  Background workers always pay here:
 * the core's own handler of SIGTERM may end them at any instruction, which
 * must not happen in the pause after a transaction.
 */
void
dt_pause_before_transaction(bool snapshot_is_new)
{
	/* nor before a ROLLBACK, which must not fail */
	if (dt_pause_xact_begun || IsAbortedTransactionBlockState())
		return;
	if ((pay_first || dt_account_is_stopped(true)) && may_pause_here() &&
		dt_session_background_group() == NULL)
	{
		/* do not keep others from removing dead rows */
		snapshot_is_new &= ActiveSnapshotSet() && !IsolationUsesXactSnapshot();
		if (snapshot_is_new)
			give_snapshot_back();
		pause_at(BEFORE_TRANSACTION);
		pay_first = false;
		if (snapshot_is_new)
			take_snapshot();
	}
	/* whoever catches that error has not begun */
	dt_pause_xact_begun = true;
}

void
dt_pause_note_prepare(void)
{
	xact_prepared = true;
}

void
dt_pause_note_error(int code)
{
	if (code == ERRCODE_QUERY_CANCELED || code == ERRCODE_LOCK_NOT_AVAILABLE)
		xact_cancelled = true;
}

bool
dt_pause_end_transaction(bool committed, bool command_goes_on,
						 bool client_waits)
{
	bool		background = dt_session_background_group() != NULL;
	bool		has_begun = dt_pause_xact_begun || background;
	bool		may_pause = has_begun && !command_goes_on;
	int64		owed_us;
	int64		pause = 0;
	bool		is_stopped;

	/* a SET LOCAL of it has been undone by the time of the pause */
	commit_pause_ms = dt_max_commit_pause_ms;

	/* whoever has only logged in, or set parameters, is not stopped */
	is_stopped = has_begun && dt_account_is_open() &&
		dt_account_is_stopped(false);
	if (!dt_account_is_settled() || is_stopped)
		pause = dt_account_charge(!has_begun, &owed_us);
	dt_account_forget_workers();

	/*
	 * Who has cancelled something wants to go on now, and who has dirtied
	 * nothing in vain owes only what earlier transactions have left.  Whoever
	 * has prepared a transaction keeps its locks until he hears of that.
	 */
	if (xact_prepared || (client_waits && commit_pause_ms == 0) ||
		(!committed && (xact_cancelled ||
						(!dt_account_xact_has_used() && !is_stopped))))
		may_pause = false;
	if (MyBackendType == B_BG_WORKER && !background)
		may_pause = false;
	/* Its publisher is told only of what was committed. */
	if (IsLogicalWorker() && !committed)
		may_pause = false;

	/* a SET in between does not let anybody off */
	pay_first = pause > 0 || (pay_first && !has_begun);

	if (!command_goes_on)
		dt_pause_xact_begun = false;
	xact_paces = false;
	goes_on = false;
	xact_cancelled = false;
	xact_prepared = false;
	dt_session_slot->released_until = 0;
	dt_account_end_transaction();

	if (pause == 0 || !may_pause || proc_exit_inprogress)
		return false;
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
 * Call a function of the core where an ERROR would be a PANIC.  False: it has
 * failed.
 */
static bool
try(void (*function) (void))
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupt_holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;
	volatile bool done = true;

	PG_TRY();
	{
		function();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
		done = false;
	}
	PG_END_TRY();
	return done;
}

/*
 * Interrupts are held in a pause after a transaction, so we do here what
 * CHECK_FOR_INTERRUPTS() would do, if that cannot fail; *known is set when
 * there was something that we know.  False: there is one that ends the pause.
 * From 16 on no flag that we can see tells of a conflict with recovery, and an
 * idle session is told only when it must end.
 */
static bool
serve_interrupts(bool *known)
{
	*known = true;
	if (QueryCancelPending || ProcDiePending || ClientConnectionLost ||
		MyProc->recoveryConflictPending)
		return false;
	*known = false;
	if (CheckClientConnectionPending)
	{
		*known = true;
		if (client_has_gone())
			return false;
		CheckClientConnectionPending = false;
		if (client_connection_check_interval > 0)
			enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT,
								 client_connection_check_interval);
	}
	if (ProcSignalBarrierPending)
	{
		*known = true;
		if (!try(ProcessProcSignalBarrier))
			return false;
	}
	if (LogMemoryContextPending)
	{
		*known = true;
		(void) try(ProcessLogMemoryContextInterrupt);
	}
	return true;
}

/*
 * Does an interrupt end the pause?  So does one that we do not know.  *later is
 * set when something is left for the time after the pause.
 */
static bool
interrupted(bool *later)
{
	bool		known = false;

	while (InterruptPending)
	{
		/* one that came while we looked has been served by then */
		bool		had_known = known;
		bool		go_on;

		InterruptPending = false;	/* before we look what there is */
		go_on = serve_interrupts(&known);
		/* statistics are reported by an idle session, workers have ended */
		if ((IdleStatsUpdateTimeoutPending || ParallelMessagePending) &&
			!*later)
			known = *later = true;
		if (!go_on || (!known && !had_known))
		{
			InterruptPending = true;
			return true;
		}
		if (!known)
			*later = true;
	}
	return false;
}

/*
 * How long may the pause be that begins now, in us?  An apply worker that
 * cannot send feedback here sends it when it has nothing left to apply, so it
 * must be able to catch up: it never pauses longer than it has not paused
 * since the last time, and so for half of the time at most.  It reads a new
 * configuration, which may free it, when it has caught up, too.
 */
static int64
longest_pause_after_transaction(bool client_waits, bool *feedback)
{
	int64		longest = client_waits ?
		commit_pause_ms * INT64CONST(1000) : PG_INT64_MAX / 2;

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
dt_pause_after_transaction(bool client_waits)
{
	bool		feedback;
	int64		until = dt_now_us() +
		longest_pause_after_transaction(client_waits, &feedback);
	bool		first = true;
	bool		later = false;

	/*
	 * It may be set since our last pause.  An apply worker must see the next
	 * time: somebody wants something of it, say that it reads its
	 * configuration or looks whether its subscription has been disabled.
	 */
	ResetLatch(MyLatch);
	dt_live_suspend();

	/* A failed transaction block may be left by leaving the server. */
	while (!proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;
		int			events;

		/* in a stopped group; before the account, since it resets the latch */
		if (!first && left <= 0 && client_has_gone())
			break;
		if (interrupted(&later))
			break;
		/* workers of the server have more to do than to wait for a DBA */
		if (left <= 0 && dt_session_background_group() != NULL)
			break;
		pause = next_slice(first, false, left);
		if (pause <= 0)
			break;
		if (dt_session_background_group() != NULL)
			pause = Min(pause, left);
		if (feedback && !try(dt_apply_feedback_send))
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
	dt_live_resume();
	if (later)
		InterruptPending = true;
	pay_first = dt_account_owes();
	dt_session_release_changes();
}
