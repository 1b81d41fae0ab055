/*-------------------------------------------------------------------------
 *
 * pause.c
 *		Sleeping before, in and after a transaction.
 *
 * These are the only functions that sleep.  The account says how long;
 * transaction.c decides whether and where.  They sleep on the process latch,
 * in slices of at most a second.  A process that changes a limit sets the
 * latches of the members, so that sleepers look at their account again.
 *
 * No lock is held while a process sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "access/parallel.h"
#include "backend/account.h"
#include "backend/apply_feedback.h"
#include "backend/blockers.h"
#include "backend/pause.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/pidfile.h"
#include "utils/timeout.h"

#include "compat.h"

/* The core defines this name in a file of its own. */
#define DIRECTORY_LOCK_FILE		"postmaster.pid"

static uint32 wait_event = PG_WAIT_EXTENSION;

void
dt_pause_init(void)
{
	wait_event = WaitEventExtensionNew("DirtyThrottle");
}

/*
 * One slice of a pause.  Resets the latch; the caller sets it again after the
 * pause, since it may have been set for another reason.
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
 * Is the server in a smart shutdown, in which nobody can connect any more to
 * call resume_group()?  The postmaster writes that to its lock file, for
 * pg_ctl.
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
 * How long to sleep now, in us, in a pause that has to end after "left" us,
 * except in a suspended group, where it ends with the server at the latest.
 */
static int64
next_slice(bool first, bool in_flight, int64 left)
{
	bool		suspended;
	int64		pause = dt_account_lock_and_pause(first, in_flight, left,
												  &suspended);

	return suspended && server_is_stopping() ? 0 : pause;
}

static bool
client_has_gone(void)
{
	return MyProcPort != NULL && WaitEventSetCanReportClosed() &&
		!pq_check_connection();
}

/*
 * Look for the client if it is time, as CHECK_FOR_INTERRUPTS() would.  Returns
 * false, and leaves it to the core, if it has gone.
 */
static bool
check_client(void)
{
	if (client_has_gone())
		return false;
	CheckClientConnectionPending = false;
	if (client_connection_check_interval > 0)
		enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT,
							 client_connection_check_interval);
	return true;
}

/*
 * Does an interrupt end a pause in which most cannot be served?  The check of
 * the client connection does not: users could have it every millisecond, and go
 * on each time.
 */
static bool
ends_pause(void)
{
	InterruptPending = false;	/* before the flags are read */
	return !CheckClientConnectionPending || !check_client() ||
		QueryCancelPending || ProcDiePending || ClientConnectionLost ||
		ProcSignalBarrierPending || ParallelMessagePending ||
		LogMemoryContextPending || dt_recovery_conflict_pending();
}

DtPauseEnd
dt_pause_interruptible(bool first, bool in_flight, int64 until)
{
	DtPauseEnd	end;
	bool		latch_set = false;
	bool		interrupted = false;

	for (;;)
	{
		int64		left = until - dt_now_us();
		int64		pause = next_slice(first, in_flight, left);

		if (pause <= 0)
		{
			end = left > 0 ? DT_PAUSE_PAID : DT_PAUSE_TIME_OVER;
			break;
		}
		first = false;
		pause = Min(pause, dt_blockers_interval());
		if (sleep_slice(pause, WL_EXIT_ON_PM_DEATH) & WL_LATCH_SET)
			latch_set = true;
		if (InterruptPending)
		{
			interrupted = true;
			if (ends_pause())
			{
				end = DT_PAUSE_INTERRUPTED;
				break;
			}
		}
		if (dt_blockers_check_release(in_flight))
		{
			end = DT_PAUSE_RELEASED;
			break;
		}
	}
	dt_account_lock_and_end_pause();
	if (interrupted)
		InterruptPending = true;	/* there may be another reason */
	if (interrupted || latch_set)
		SetLatch(MyLatch);
	return end;
}

bool
dt_pause_call_safely(void (*function) (void))
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
 * Interrupts are held in a pause after a transaction.  So this does what
 * CHECK_FOR_INTERRUPTS() would do, as far as that cannot fail.  False: there
 * is an interrupt that ends the pause.  *known tells whether a reason for the
 * interrupt was found.  From 16 on a conflict with recovery is none, since its
 * flags are not visible to extensions.
 */
static bool
serve_interrupts(bool *known)
{
	*known = true;
	if (QueryCancelPending || ProcDiePending || ClientConnectionLost ||
		dt_recovery_conflict_pending())
		return false;
	*known = false;
	if (CheckClientConnectionPending)
	{
		*known = true;
		if (!check_client())
			return false;
	}
	if (ProcSignalBarrierPending)
	{
		*known = true;
		if (!dt_pause_call_safely(ProcessProcSignalBarrier))
			return false;
	}
	if (LogMemoryContextPending)
	{
		*known = true;
		(void) dt_pause_call_safely(ProcessLogMemoryContextInterrupt);
	}
	return true;
}

/*
 * Does an interrupt end the pause?  One for which no reason is found does, to
 * be safe.  *later is set when there is one that can be served after the
 * pause, and *waiting when that has a flag, which stays set and is no reason
 * for another interrupt.
 */
static bool
interrupted(bool *later, bool *waiting)
{
	bool		known = false;

	while (InterruptPending)
	{
		/* the reason may have been served in the round before */
		bool		had_known = known;
		bool		go_on;

		InterruptPending = false;	/* before the flags are read */
		go_on = serve_interrupts(&known);
		/* statistics can wait; parallel workers have ended by now */
		if ((IdleStatsUpdateTimeoutPending || ParallelMessagePending) &&
			!*waiting)
			known = *waiting = *later = true;
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

void
dt_pause_after_transaction(int64 longest_us, bool background, bool feedback)
{
	int64		until = dt_now_us() + longest_us;
	bool		first = true;
	bool		later = false;
	bool		waiting = false;

	/*
	 * The latch may have been set at any time since the last pause.  From
	 * here on it is set when an apply worker has something to do: to read its
	 * configuration, or to notice that its subscription is disabled.
	 */
	ResetLatch(MyLatch);

	/* the exit of a process ends its transaction, and must not wait */
	while (!proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;
		int			events;

		/* in a suspended group; done first, since it resets the latch */
		if (!first && left <= 0 && client_has_gone())
			break;
		if (interrupted(&later, &waiting))
			break;
		/* the server's own workers do not wait for resume_group() */
		if (left <= 0 && background)
			break;
		pause = next_slice(first, false, left);
		if (pause <= 0)
			break;
		if (background)
			pause = Min(pause, left);
		if (feedback && !dt_pause_call_safely(dt_apply_feedback_send))
			break;
		events = sleep_slice(pause, WL_POSTMASTER_DEATH);
		if ((events & WL_POSTMASTER_DEATH) ||
			((events & WL_LATCH_SET) && IsLogicalWorker()))
			break;
		first = false;
	}
	dt_account_lock_and_end_pause();
	SetLatch(MyLatch);			/* it may have been set for another reason */
	if (later)
		InterruptPending = true;
}
