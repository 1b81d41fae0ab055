/*-------------------------------------------------------------------------
 *
 * pause_log.c
 *		A message in the server log about a transaction that has paused.
 *
 * The pauses of a transaction are counted in the session's slot in shared
 * memory, those of its parallel workers included; see DtXactPauses.
 *
 * The message is written when all of these are over: after a transaction,
 * where no lock is held and no check for interrupts is under way.  There an
 * ERROR would be a PANIC, so one is caught.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "session/blockers.h"
#include "session/pause_log.h"
#include "session/session.h"
#include "session/sleep.h"

/* Parameter. */
int			dt_log_min_pause_ms = -1;

static int	min_pause_ms = -1;	/* the same when the transaction ended */

/* Has it paused so long that this is to be logged? */
static bool
is_long(void)
{
	int64		us = dt_member_xact_paused_us(dt_session_slot);

	return min_pause_ms >= 0 && us > 0 &&
		us >= min_pause_ms * INT64CONST(1000);
}

bool
dt_pause_log_note_end(void)
{
	min_pause_ms = dt_log_min_pause_ms;
	return is_long();
}

void
dt_pause_log_forget(void)
{
	if (dt_pause_log_is_empty())
		return;
	memset(&dt_session_slot->xact, 0, sizeof(dt_session_slot->xact));
}

static void
report(void)
{
	DtXactPauses *pauses = &dt_session_slot->xact;
	double		total_ms = dt_member_xact_paused_us(dt_session_slot) / 1000.0;
	char		name[NAMEDATALEN];
	bool		exists = dt_group_lookup_name(pauses->group_id, name);
	StringInfoData detail;
	int			cause;

	initStringInfo(&detail);
	for (cause = 0; cause < DT_PAUSE_CAUSES; cause++)
		if (pauses->paused_us[cause] > 0)
			appendStringInfo(&detail, "%s%s %.3f ms",
							 detail.len > 0 ? ", " : "Causes: ",
							 dt_member_cause_name(cause),
							 pauses->paused_us[cause] / 1000.0);
	appendStringInfoChar(&detail, '.');
	if (pauses->releases > 0)
	{
		appendStringInfo(&detail,
						 " Releases: %lld, for %.3f ms without pausing, the last one for ",
						 (long long) pauses->releases,
						 pauses->released_us / 1000.0);
		if (pauses->released_for == DT_REPLAY)
			appendStringInfoString(&detail, "WAL replay.");
		else
			appendStringInfo(&detail, "process %d.", pauses->released_for);
	}
	ereport(LOG_SERVER_ONLY,
			(exists ?
			 errmsg("process %d paused for %.3f ms in resource group \"%s\"",
					MyProcPid, total_ms, name) :
			 errmsg("process %d paused for %.3f ms in a resource group that was dropped",
					MyProcPid, total_ms),
			 errdetail_log("%s", detail.data)));
	pfree(detail.data);
}

void
dt_pause_log_report(void)
{
	if (is_long())
	{
		HOLD_INTERRUPTS();
		(void) dt_pause_call_safely(report);
		RESUME_INTERRUPTS();
	}
	dt_pause_log_forget();
}
