/*-------------------------------------------------------------------------
 *
 * sleep.c
 *		Sleeping before, in and after a transaction.
 *
 * A member pays by sleeping nowhere else.  The account says how long; pay.c, and commit.c
 * after a transaction, decide whether and where.  It sleeps on its latch, in slices
 * of at most a second.  A process that changes a limit sets the latches of the
 * members, so that sleepers look at their account again.
 *
 * No lock is held while a process sleeps.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "miscadmin.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/apply.h"
#include "session/check.h"
#include "session/let_go.h"
#include "session/parallel_apply.h"
#include "session/pause_notice.h"
#include "session/safely.h"
#include "session/sigterm.h"
#include "session/sleep.h"
#include "session/tick.h"
#include "storage/ipc.h"
#include "storage/procsignal.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "waiters/waiters.h"

#include "compat.h"

/*
 * The client is looked at so often, or as often as
 * client_connection_check_interval says, but not more often than this.
 */
#define CLIENT_INTERVAL_US			INT64CONST(1000000)
#define SHORTEST_CLIENT_INTERVAL_US	INT64CONST(10000)

static uint32 wait_event = PG_WAIT_EXTENSION;

void
dt_sleep_init(void)
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
	int			events = dt_clock_sleep(pause_us, on_postmaster_death,
										wait_event);

	if (events & WL_LATCH_SET)
		ResetLatch(MyLatch);
	return events;
}

/* How often to look at the client, us. */
static int64
client_interval(void)
{
	if (client_connection_check_interval <= 0)
		return CLIENT_INTERVAL_US;
	return Min(Max(client_connection_check_interval * INT64CONST(1000),
				   SHORTEST_CLIENT_INTERVAL_US), CLIENT_INTERVAL_US);
}

/*
 * The core's timer for that is off in a pause.  It could expire each
 * millisecond, and it could not be seen which interrupts have come with it.
 */
static bool
stop_client_timer(void)
{
	bool		is_active = get_timeout_active(CLIENT_CONNECTION_CHECK_TIMEOUT);

	if (is_active)
		disable_timeout(CLIENT_CONNECTION_CHECK_TIMEOUT, false);
	return is_active;
}

static void
start_client_timer(bool was_active)
{
	if (was_active && client_connection_check_interval > 0)
		enable_timeout_after(CLIENT_CONNECTION_CHECK_TIMEOUT,
							 client_connection_check_interval);
}

/*
 * Look at the client, if there is one, when client_interval() has passed since the
 * last look, which may have been in an earlier pause.  A background worker may
 * have a Port, but has no set of events for a client.
 * If it has gone, that is an interrupt, by which the core ends the session.
 * Sets *latch_set when the latch may have been reset.
 */
static bool
client_has_gone(bool *latch_set)
{
	static int64 next_look = 0;
	int64		now = dt_now_us();

	if (FeBeWaitSet == NULL || !WaitEventSetCanReportClosed() || now < next_look)
		return false;
	next_look = now + client_interval();
	*latch_set = true;
	if (pq_check_connection())
		return false;
	ClientConnectionLost = true;
	InterruptPending = true;
	return true;
}

/*
 * The slot shows a pause, or a part of the last one.  False: there is none, as what
 * is due was due in a group that the session has been moved out of since then.
 */
static bool
show_pause(DtPause *pause, bool is_new)
{
	if (is_new)
	{
		pause->since = GetCurrentTimestamp();
		pause->counted = false;
	}
	return dt_account_begin_pause(pause);
}

static inline bool
is_after(DtPlace place)
{
	return place == DT_AFTER_TRANSACTION || place == DT_AFTER_APPLYING;
}

/*
 * Within a transaction, and not before its first statement?  A background worker may
 * pass the gate at a check.
 */
static inline bool
is_in_flight(DtPlace place, const DtDue *due)
{
	return place == DT_BETWEEN_ROWS ||
		(place == DT_AT_CHECK && !due->heeds_suspension);
}

static bool queue_is_full;

static void
look_at_queue(void)
{
	queue_is_full = dt_waiters_notify_queue_is_full();
}

/*
 * Does the session hold back the queue of notifications?  That reads files, and may fail.
 * In flight it does not matter.
 */
static bool
holds_back_queue(DtPlace place)
{
	return (is_after(place) || place == DT_BEFORE_TRANSACTION) &&
		dt_call_safely(look_at_queue) && queue_is_full;
}

/*
 * Look who waits, if it is this session's turn.  False: another process waits for it,
 * and it goes on.  *us is how long it may sleep at most before it asks again.
 * An apply worker is not woken for a look; see is_over().
 */
static bool
may_sleep_on(DtPlace place, const DtDue *due, int64 *us)
{
	int64		look_us;

	if (dt_let_go_holds(due))
		return false;
	look_us = dt_waiters_before_slice(dt_process() != DT_APPLY);
	*us = Min(Min(*us, client_interval()), look_us);
	return !dt_let_go(is_in_flight(place, due), holds_back_queue(place), due);
}

/* A slice begins, for the group that the session is in now. */
static void
show_slice(DtPause *pause, const DtDue *due)
{
	pause->cause = due->cause;
	pause->group_id = dt_account.group->id;
	pg_write_barrier();			/* who sees the group sees the rest */
	pause->group = dt_account.group;
}

/* Is there an interrupt that ends the statement or the session? */
static bool
must_end(void)
{
	return QueryCancelPending || ProcDiePending || ClientConnectionLost ||
		dt_recovery_conflict_pending();
}

bool
dt_sleep_put_off_messages(void)
{
	InterruptPending = false;	/* before the flags are read */
	if (ParallelMessagePending && !must_end() &&
		!ProcSignalBarrierPending && !LogMemoryContextPending)
	{
		ParallelMessagePending = false;
		return true;
	}
	InterruptPending = true;
	return false;
}

/*
 * Interrupts are held in a pause after a transaction.  So this does what
 * CHECK_FOR_INTERRUPTS() would do, as far as that cannot fail.  False: there
 * is an interrupt that ends the pause.  Sets *known if a reason for the
 * interrupt was found.  For some conflicts with recovery none is found, as
 * extensions do not see their flags; see compat.h.
 */
static bool
serve_interrupts(bool *known)
{
	*known = true;
	if (must_end())
		return false;
	*known = false;
	if (CheckClientConnectionPending)
		*known = true;			/* this pause looks itself */
	CheckClientConnectionPending = false;
	if (ProcSignalBarrierPending)
	{
		*known = true;
		if (!dt_call_safely(ProcessProcSignalBarrier))
			return false;
	}
	if (LogMemoryContextPending)
	{
		*known = true;
		(void) dt_call_safely(ProcessLogMemoryContextInterrupt);
	}
	return true;
}

/*
 * Does an interrupt end the pause?  One for which no reason is found does, to
 * be safe.  *waiting is set when there is one whose flag stays set until after
 * the pause, and is no reason for another interrupt.
 */
static bool
interrupted(bool *waiting)
{
	bool		known = false;

	while (dt_check_others_interrupt())
	{
		/* the reason may have been served in the round before */
		bool		had_known = known;
		bool		go_on;

		InterruptPending = false;	/* before the flags are read */
		go_on = serve_interrupts(&known);
		/* statistics can wait; parallel workers have ended by now */
		if ((IdleStatsUpdateTimeoutPending || ParallelMessagePending) &&
			!*waiting)
			known = *waiting = true;
		if (!go_on || (!known && !had_known))
			return true;
	}
	return false;
}

/*
 * Is there an interrupt that ends the pause?  Within a transaction that is any
 * that is not ours, also of a kind that is unknown here.
 */
static bool
is_interrupted(DtPlace place, bool *waiting)
{
	return is_after(place) ? interrupted(waiting) :
		dt_check_others_interrupt();
}

/*
 * Does something else end the pause?  A VACUUM may become urgent while it pauses.
 * The exit of a process ends its transaction, and must not wait.  The latch of an
 * apply worker is set when it has something to do: to read its configuration, or
 * to notice that its subscription is disabled.
 */
static bool
is_over(DtPlace place, int events)
{
	if (dt_sigterm_came() || (place == DT_AT_CHECK && dt_activity_is_urgent()))
		return true;
	if (!is_after(place))
		return false;
	return proc_exit_inprogress || (events & WL_POSTMASTER_DEATH) != 0 ||
		((events & WL_LATCH_SET) != 0 && dt_process() == DT_APPLY &&
		 dt_parallel_apply_latch_counts()) ||
		(place == DT_AFTER_APPLYING &&
		 !dt_call_safely(dt_apply_feedback_send));
}

/* What is put back when a pause is over. */
typedef struct Begun
{
	bool		is_on;
	bool		had_timer;
	int64		transaction_left_us;
	int64		paused_us;
} Begun;

/*
 * Within a transaction the latch may have been set for another reason; after one
 * it may have been set at any time since the last pause, and is set again for
 * whoever waits for it next.
 */
static void
begin_pause(DtPlace place, Begun *begun)
{
	dt_tick_before_pause();
	begun->is_on = true;
	begun->had_timer = stop_client_timer();
	begun->transaction_left_us =
		place == DT_BEFORE_TRANSACTION ? dt_stop_transaction_timeout() : 0;
	begun->paused_us = dt_account.slot->xact.stats[DT_PAUSED_US];
	if (is_after(place))
		ResetLatch(MyLatch);
	dt_sigterm_watch();
}

static void
end_pause(DtPlace place, const Begun *begun)
{
	if (place == DT_BEFORE_TRANSACTION && !TransactionIdIsValid(MyProc->xmin))
		dt_account.slot->xact.before_us +=
			dt_account.slot->xact.stats[DT_PAUSED_US] - begun->paused_us;
	dt_member_end_pause(dt_account.slot, &dt_member_mine()->pause);
	start_client_timer(begun->had_timer);
	dt_start_transaction_timeout(begun->transaction_left_us);
	dt_tick_after_pause();
}

/* Whether others wait is asked before anything else is done. */
bool
dt_sleep(DtPlace place, DtDue due, bool is_new, int64 until, bool *slept)
{
	DtPause    *pause = &dt_member_mine()->pause;
	Begun		begun = {0};
	bool		latch_set = false;
	bool		waiting = false;
	bool		interrupted = false;
	int			events = 0;

	/* each look at the account may find that it was moved out of its group */
	while (due.pause_us > 0 && dt_account.group != NULL &&
		   !is_over(place, events))
	{
		int64		us = due.pause_us;

		if (place != DT_AT_CHECK || due.cause != DT_BY_SUSPEND)
			us = Min(us, until - dt_now_us());
		interrupted = is_interrupted(place, &waiting);
		if (interrupted || us <= 0 || !may_sleep_on(place, &due, &us) ||
			dt_account.group == NULL)
			break;
		if (!begun.is_on)
		{
			begin_pause(place, &begun);
			latch_set = is_after(place);
			if (!show_pause(pause, is_new))
				break;
		}
		show_slice(pause, &due);
		dt_pause_notice(&due, is_after(place) ? until - dt_now_us() : PG_INT64_MAX);
		events = sleep_slice(us, is_after(place) ? WL_POSTMASTER_DEATH :
							 WL_EXIT_ON_PM_DEATH);
		latch_set |= (events & WL_LATCH_SET) != 0;
		*slept = true;
		due = dt_account_look(due.heeds_suspension, pause);
		(void) client_has_gone(&latch_set);
	}
	dt_waiters_after_pause();
	if (begun.is_on)
		end_pause(place, &begun);
	if (latch_set || InterruptPending)
		SetLatch(MyLatch);

	/*
	 * After a transaction the core looks what is left.  A worker without
	 * checks does not, and its next pause is not to be ended by this one.
	 */
	if (is_after(place) && (interrupted || waiting))
		InterruptPending = true;
	else if (is_after(place) && !InterruptPending)
		InterruptPending = DT_INTERRUPT_OF_OURS;
	return interrupted;
}
