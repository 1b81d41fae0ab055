/*-------------------------------------------------------------------------
 *
 * pace_interrupt.c
 *		The safe points at the checks for interrupts.
 *
 * Whatever runs long calls CHECK_FOR_INTERRUPTS again and again: commands,
 * functions, vacuum, what runs in autovacuum's and in parallel workers.  The
 * timer of live.c asks for a pause there; a session that was put into a group
 * in the middle of something is asked by who has done that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "apply_feedback.h"
#include "interrupt.h"
#include "live.h"
#include "miscadmin.h"
#include "pace.h"
#include "pause.h"
#include "session.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"

#include "compat.h"

/*
 * Is this in the midst of a transaction's work, and no wait for a lock?  While
 * the session waits for its client's next command nothing of all this is set.
 */
static bool
is_working(void)
{
	if (!IsTransactionState() || IsAbortedTransactionBlockState() ||
		MyProc->waitStatus == PROC_WAIT_STATUS_WAITING)
		return false;
	if (dt_session_background_group() != NULL)
		return MyBackendType == B_AUTOVAC_WORKER || dt_apply_copies_table();
	/* somebody else holds locks until a prepared transaction ends */
	if (ActivePortal != NULL)
		return ActivePortal->commandTag != CMDTAG_COMMIT_PREPARED &&
			ActivePortal->commandTag != CMDTAG_ROLLBACK_PREPARED;
	return debug_query_string != NULL || MyBackendType == B_BG_WORKER;
}

static void
at_check(void)
{
	if (!dt_session_active() || !is_working())
		return;
	dt_pace_commit_need(true);
	dt_pause_xact_begun = true;
	dt_live_start(false);
	if (!dt_pace_vacuum_is_urgent())
		dt_pause_at_check();
}

void
dt_pace_interrupt_init(void)
{
	dt_interrupt_init(at_check, dt_live_after_check);
	dt_live_init(dt_pause_wants_check);
}
