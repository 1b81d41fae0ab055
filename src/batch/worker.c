/*-------------------------------------------------------------------------
 *
 * worker.c
 *		The background worker that runs a job.
 *
 * It is the session that has started the job, and never more.  It connects as the user
 * of that session, and takes the role of the job's owner by SET ROLE, so RESET ROLE in a
 * trigger leads back to what the session could do anyway.  It is in the group in which
 * the session was, and has its settings.
 *
 * stop_batches() sends SIGINT, as a cancel does, with a flag in the queue: the present
 * batch is to end as it would.  So that is no cancel where the statement runs, but in a
 * pause, which may last for ever, and in a wait for a standby; and when it comes again.
 * Timeouts come by SIGINT, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "batch/holder.h"
#include "batch/run.h"
#include "batch/settings.h"
#include "batch/worker.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "replication/syncrep.h"
#include "session/work.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/backend_status.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"

#include "compat.h"

static void
handle_sigint(SIGNAL_ARGS)
{
	static volatile bool is_stopping = false;
	int			save_errno = errno;
	bool		is_cancel = is_stopping || dt_queue_stops() != 1;

	is_stopping = dt_queue_stops() > 0; /* what comes later is a cancel */
	if (get_timeout_indicator(LOCK_TIMEOUT, false))
		dt_holder_note();
	if (is_cancel || dt_work_is_pausing() ||
		get_timeout_indicator(LOCK_TIMEOUT, false) ||
		get_timeout_indicator(STATEMENT_TIMEOUT, false) ||
		MyProc->syncRepState == SYNC_REP_WAITING)
		StatementCancelHandler(DT_SIGNAL_PASSED);
	else
		SetLatch(MyLatch);		/* it may wait before another try */
	errno = save_errno;
}

/* In a transaction. */
static void
become(const DtJob *job)
{
	dt_settings_set("application_name", job->name);
	debug_query_string = MemoryContextStrdup(TopMemoryContext, job->statement);
	pgstat_report_activity(STATE_RUNNING, debug_query_string);
	process_session_preload_libraries();
	dt_settings_check_owner(job->owner, job->name);
	/* the user may have a setting of "role", which is not that of the session */
	dt_settings_set("role", job->owner == GetSessionUserId() ? "none" :
					GetUserNameFromId(job->owner, false));
	dt_settings_apply(job->settings);
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		dt_settings_set("transaction_timeout", "0");	/* new in 17 */
	if (!dt_work_join((uint64) job->group_id))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the resource group of batches \"%s\" does not exist any more", job->name),
				 errhint("Start them again in a session that is in another one.")));
}

void
dt_batches_main(Datum main_arg)
{
	DtQueued	queued;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, handle_sigint);
	pqsignal(SIGTERM, die);
	if (!dt_shmem_available() ||
		!dt_queue_begin(DatumGetInt32(main_arg), &queued))
		proc_exit(0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(queued.database, queued.login,
											  queued.connection_flags);
	dt_run(queued.store, queued.job, become);
	proc_exit(0);
}
