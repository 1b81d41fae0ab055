/*-------------------------------------------------------------------------
 *
 * activity.c
 *		What kind of process this is, and what it does.
 *
 * The core keeps that to itself: pg_stat_activity shows it, but only when
 * track_activities is on.  What can be seen of a session:
 *
 *	it runs a portal				ActivePortal
 *	it analyzes or plans, or ends	debug_query_string, which Sync and the
 *	  its transaction				function-call protocol do not set
 *	triggers run at a Sync			error_context_stack: functions in most
 *									languages, and SPI, have a callback there
 *	a function is called by the		the hook that sees all functions (a C
 *	  protocol for that				function may have no callback)
 *	it waits for the next command	none of these; and the core holds back
 *									cancels while it reads one
 *
 * The start time of a statement is that of the client's message, and so tells
 * messages apart.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "replication/logicalworker.h"
#include "session/activity.h"
#include "session/apply.h"
#include "storage/proc.h"
#include "waiters/waiters.h"

#include "compat.h"

static struct
{
	TimestampTz call_started;	/* start of the message that calls a function */
	TimestampTz login_started;
}			my;

DtProcess
dt_process_slow(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER)
		return DT_AUTOVACUUM;
	if (IsParallelWorker())
		return DT_PARALLEL_WORKER;
	if (IsLogicalWorker())
		return DT_APPLY;
	if (MyBackendType != B_BG_WORKER || !OidIsValid(MyDatabaseId))
		return DT_NO_MEMBER;

	/* a worker of REPACK (CONCURRENTLY) is none either, nor its leader */
	return MyProc->lockGroupLeader == NULL || MyProc->lockGroupLeader == MyProc ?
		DT_JOB : DT_NO_MEMBER;
}

bool
dt_activity_note_call(void)
{
	if (ActivePortal != NULL || debug_query_string != NULL)
		return false;
	my.call_started = GetCurrentStatementStartTimestamp();
	return true;
}

void
dt_activity_note_login(void)
{
	my.login_started = GetCurrentStatementStartTimestamp();
}

/* From 17 on code of a user can run then, in a trigger. */
bool
dt_activity_is_login(void)
{
	return my.login_started == GetCurrentStatementStartTimestamp();
}

bool
dt_activity_is_idle(void)
{
	return ActivePortal == NULL &&
		*my_wait_event_info == WAIT_EVENT_CLIENT_READ;
}

static bool
session_is_working(void)
{
	/* the prepared transaction holds locks until these have ended */
	if (ActivePortal != NULL)
		return ActivePortal->commandTag != CMDTAG_COMMIT_PREPARED &&
			ActivePortal->commandTag != CMDTAG_ROLLBACK_PREPARED;
	return debug_query_string != NULL || error_context_stack != NULL ||
		my.call_started == GetCurrentStatementStartTimestamp();
}

/* Not when the session waits for the client's next command. */
bool
dt_activity_is_working(void)
{
	if (!IsTransactionState() || IsAbortedTransactionBlockState())
		return false;
	switch (dt_process())
	{
		case DT_SESSION:
			return session_is_working();
		case DT_APPLY:
			return dt_apply_copies_table();
		default:
			return true;
	}
}

/*
 * Other VACUUMs pause at their checks for interrupts, as all commands do, in
 * addition to the delays of vacuum_cost_delay.
 *
 * An autovacuum worker counts whatever it does: it may be about to find out which
 * table to vacuum, and while it pauses none can be started in its place.
 *
 * Nothing that a user can set decides, neither vacuum_failsafe_age nor the
 * parameters of a table that make autovacuum freeze it early: code of his own
 * can run within VACUUM, to compute the expressions of an index.  The failsafe
 * begins at the same age, at the earliest.
 */
bool
dt_activity_is_urgent(void)
{
	uint8		flags = dt_flags_with_leader(MyProc);

	return ((flags & PROC_VACUUM_FOR_WRAPAROUND) && dt_waiters_must_freeze(100)) ||
		(((flags & PROC_IN_VACUUM) || dt_process() == DT_AUTOVACUUM) &&
		 dt_waiters_must_freeze(105));
}

bool
dt_activity_forbids_pauses(void)
{
	return proc_exit_inprogress || dt_activity_is_urgent() ||
		dt_activity_is_login();
}
