/*-------------------------------------------------------------------------
 *
 * pause_log.c
 *		A message in the server log about a transaction that has paused.
 *
 * In mode observe it says for how long the transaction would have paused, so
 * that the log tells which statements a limit would slow down.
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
#include "session/pause_log.h"
#include "session/session.h"
#include "session/sleep.h"

static int	min_pause_ms;		/* log_min_pause when the transaction ended */

/* Is this so long that it is to be logged? */
static bool
is_long(int64 us)
{
	return us > 0 && us >= min_pause_ms * INT64CONST(1000);
}

static void
report_observed(void)
{
	DtXactPauses *pauses = &dt_account.slot->xact;

	if (is_long(pauses->stats[DT_OBSERVED_US]))
		ereport(LOG_SERVER_ONLY,
				(errmsg("process %d would have paused for %.3f ms in resource group \"%s\"",
						MyProcPid, pauses->stats[DT_OBSERVED_US] / 1000.0,
						pauses->group_name),
				 errdetail_log("The mode is observe.")));
}

static void
report_paused(void)
{
	DtXactPauses *pauses = &dt_account.slot->xact;
	int64		total_us = dt_account.slot->xact.stats[DT_PAUSED_US];
	StringInfoData detail;

	if (!is_long(total_us))
		return;
	initStringInfo(&detail);
	for (int cause = 0; cause < DT_PAUSE_CAUSES; cause++)
		if (pauses->paused_us[cause] > 0)
			appendStringInfo(&detail, "%s%s %.3f ms",
							 detail.len > 0 ? ", " : "Causes: ",
							 dt_member_cause_name(cause),
							 pauses->paused_us[cause] / 1000.0);
	appendStringInfoChar(&detail, '.');
	if (pauses->stats[DT_RELEASES] > 0)
	{
		appendStringInfo(&detail,
						 " Releases: %lld, for %.3f ms without pausing, the last one for process %d.",
						 (long long) pauses->stats[DT_RELEASES],
						 pauses->stats[DT_RELEASED_US] / 1000.0,
						 pauses->released_for);
	}
	ereport(LOG_SERVER_ONLY,
			(errmsg("process %d paused for %.3f ms in resource group \"%s\"",
					MyProcPid, total_us / 1000.0, pauses->group_name),
			 errdetail_log("%s", detail.data)));
	pfree(detail.data);
}

static void
report(void)
{
	report_paused();
	report_observed();
}

void
dt_pause_log_report(int log_min_pause)
{
	min_pause_ms = log_min_pause;
	HOLD_INTERRUPTS();
	(void) dt_sleep_call_safely(report);
	RESUME_INTERRUPTS();
}
