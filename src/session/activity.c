/*-------------------------------------------------------------------------
 *
 * activity.c
 *		What kind of process this is, and what it does.
 *
 * The start time of a statement is that of the client's message, and so shows
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

bool		dt_activity_waits = false;

static TimestampTz login_started;

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

void
dt_activity_note_login(void)
{
	login_started = GetCurrentStatementStartTimestamp();
}

/* Nothing tells where a statement of a background worker begins. */
void
dt_activity_end_login(void)
{
	if (dt_process() == DT_JOB)
		login_started = 0;
}

/* From 17 on code of a user can run then, in a trigger. */
bool
dt_activity_is_login(void)
{
	return login_started == GetCurrentStatementStartTimestamp();
}

bool
dt_activity_is_idle(void)
{
	return ActivePortal == NULL &&
		*my_wait_event_info == WAIT_EVENT_CLIENT_READ;
}

/* Apply workers pause in flight only while they copy a table. */
bool
dt_activity_is_working(void)
{
	return IsTransactionState() && !IsAbortedTransactionBlockState() &&
		(dt_process() != DT_APPLY || dt_apply_copies_table());
}

/*
 * Other VACUUMs pause at their checks for interrupts, as all commands do, in
 * addition to the delays of vacuum_cost_delay.
 *
 * An autovacuum worker counts whatever it does: it may be about to find out which
 * table to vacuum, and while it pauses none can be started in its place.
 *
 * Nothing that a user can set decides, neither vacuum_failsafe_age nor the
 * parameters of a table that make autovacuum freeze it early: code of its own
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
	return proc_exit_inprogress || dt_activity_waits || dt_activity_is_urgent() ||
		dt_activity_is_login();
}
