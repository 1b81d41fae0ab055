/*-------------------------------------------------------------------------
 *
 * pause_log.c
 *		A message in the server log about a transaction that has paused.
 *
 * The pauses of a transaction are counted in the session's slot in shared
 * memory, those of its parallel workers included; see DtXactPauses.  This file
 * keeps how much of that was before the transaction and how much within it,
 * which is local to this process.  What is added later is after it.
 *
 * The message is written when all of these are over: after a transaction,
 * where no lock is held and no check for interrupts is under way.  There an
 * ERROR would be a PANIC, so one is caught.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/blockers.h"
#include "backend/pause.h"
#include "backend/pause_log.h"
#include "backend/session.h"
#include "miscadmin.h"

/* Parameter. */
int			dt_log_min_pause_ms = -1;

static int	min_pause_ms = -1;	/* the same when the transaction ended */
static int64 before_us = 0;		/* paused before the first statement */
static int64 in_flight_us = 0;	/* and from then on to the end */

static int64
paused_us(void)
{
	return dt_member_xact_paused_us(dt_session_slot);
}

/* Has it paused so long that this is to be logged? */
static bool
is_long(int64 us)
{
	return min_pause_ms >= 0 && us > 0 &&
		us >= min_pause_ms * INT64CONST(1000);
}

void
dt_pause_log_note_begin(void)
{
	before_us = paused_us();
}

bool
dt_pause_log_note_end(bool begun)
{
	min_pause_ms = dt_log_min_pause_ms;
	if (dt_pause_log_is_empty())
		return false;
	if (!begun)
		before_us = paused_us();
	in_flight_us = paused_us() - before_us;
	return is_long(paused_us());
}

void
dt_pause_log_forget(void)
{
	if (dt_pause_log_is_empty())
		return;
	memset(&dt_session_slot->xact, 0, sizeof(dt_session_slot->xact));
	before_us = in_flight_us = 0;
}

static void
report(void)
{
	DtXactPauses *pauses = &dt_session_slot->xact;
	int64		total_us = paused_us();
	int64		after_us = total_us - before_us - in_flight_us;
	char		name[NAMEDATALEN];
	bool		exists = dt_group_lookup_name(pauses->group_id, name);
	char		causes[DT_PAUSE_CAUSES * 64] = "";
	char		released_for[32] = "WAL replay";
	int			cause;

	if (pauses->released_for != DT_REPLAY)
		snprintf(released_for, sizeof(released_for), "process %d",
				 pauses->released_for);
	for (cause = 0; cause < DT_PAUSE_CAUSES; cause++)
	{
		int			len = strlen(causes);

		if (pauses->paused_us[cause] > 0)
			snprintf(causes + len, sizeof(causes) - len, "%s%s %.3f ms",
					 len > 0 ? ", " : "", dt_member_cause_name(cause),
					 pauses->paused_us[cause] / 1000.0);
	}
	ereport(LOG_SERVER_ONLY,
			(exists ?
			 errmsg("process %d paused for %.3f ms in resource group \"%s\"",
					MyProcPid, total_us / 1000.0, name) :
			 errmsg("process %d paused for %.3f ms in a resource group that was dropped",
					MyProcPid, total_us / 1000.0),
			 pauses->releases > 0 ?
			 errdetail_log("Causes: %s. Before the transaction: %.3f ms, in flight: %.3f ms, after it: %.3f ms. Releases: %lld, for %.3f ms without pausing, the last one for %s.",
						   causes, before_us / 1000.0, in_flight_us / 1000.0,
						   after_us / 1000.0, (long long) pauses->releases,
						   pauses->released_us / 1000.0, released_for) :
			 errdetail_log("Causes: %s. Before the transaction: %.3f ms, in flight: %.3f ms, after it: %.3f ms.",
						   causes, before_us / 1000.0, in_flight_us / 1000.0,
						   after_us / 1000.0)));
}

void
dt_pause_log_report(void)
{
	if (is_long(paused_us()))
	{
		HOLD_INTERRUPTS();
		(void) dt_pause_call_safely(report);
		RESUME_INTERRUPTS();
	}
	dt_pause_log_forget();
}
