/*-------------------------------------------------------------------------
 *
 * activity.c
 *		Does this process work for a client?
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
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "backend/activity.h"
#include "backend/apply_feedback.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"

#include "compat.h"

/* The start time of the client's message that calls a function. */
static TimestampTz call_started = 0;

bool
dt_activity_note_call(void)
{
	if (ActivePortal != NULL || debug_query_string != NULL)
		return false;
	call_started = GetCurrentStatementStartTimestamp();
	return true;
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
		call_started == GetCurrentStatementStartTimestamp();
}

bool
dt_activity_is_working(void)
{
	if (!IsTransactionState() || IsAbortedTransactionBlockState() ||
		MyProc->waitStatus == PROC_WAIT_STATUS_WAITING)
		return false;
	if (IsLogicalWorker())
		return dt_apply_copies_table();
	return MyBackendType != B_BACKEND || session_is_working();
}
