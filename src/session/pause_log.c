/*-------------------------------------------------------------------------
 *
 * pause_log.c
 *		A message in the server log about a transaction that has paused.
 *
 * In mode observe it says for how long the transaction would have paused, so
 * that the log shows which statements a limit would slow down.
 *
 * A transaction that is long because of its pauses keeps its locks and its
 * snapshot for so long.  There is a message about each, whatever log_min_pause
 * is.
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
#include "session/activity.h"
#include "session/pause_log.h"
#include "session/safely.h"
#include "session/session.h"

static int	min_pause_ms;		/* log_min_pause when the transaction ended */
static DtXactTimes xact_times;

/* Is this so long that it is to be logged? */
static bool
is_long(int64 us)
{
	return us > 0 && min_pause_ms >= 0 &&
		us >= min_pause_ms * INT64CONST(1000);
}

/*
 * A background worker may have freed the text of its query by now, and forgets that it
 * has had one when its transaction is over.
 */
static bool
text_is_gone(void)
{
	return dt_process() != DT_SESSION;
}

static void
report_long_transaction(void)
{
	if (!dt_pause_log_is_long(&xact_times))
		return;
	ereport(LOG_SERVER_ONLY,
			(errmsg("a transaction of process %d took %.1f s, of which %.1f s were pauses in resource group \"%s\"",
					MyProcPid, xact_times.us / 1e6, xact_times.paused_us / 1e6,
					dt_account.slot->xact.group_name),
			 errhint("A limit makes a large transaction long; it keeps its locks, and dead rows everywhere cannot be removed. Do such work in small transactions, for example with start_batches()."),
			 errhidestmt(text_is_gone())));
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
				 errdetail_log("The mode is observe."),
				 errhidestmt(text_is_gone())));
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
	appendStringInfo(&detail, ". Transaction: %.3f ms, of which %.3f ms paused.",
					 xact_times.us / 1000.0, xact_times.paused_us / 1000.0);
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
			 errdetail_log("%s", detail.data),
			 errhidestmt(text_is_gone())));
	pfree(detail.data);
}

static void
report(void)
{
	report_long_transaction();
	report_paused();
	report_observed();
}

void
dt_pause_log_report(int log_min_pause, const DtXactTimes *times)
{
	min_pause_ms = log_min_pause;
	xact_times = *times;
	HOLD_INTERRUPTS();
	(void) dt_call_safely(report);
	RESUME_INTERRUPTS();
}
