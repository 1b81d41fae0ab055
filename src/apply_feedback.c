/*-------------------------------------------------------------------------
 *
 * apply_feedback.c
 *		An apply worker that pauses tells its publisher that it is alive.
 *
 * The publisher ends a connection on which it hears nothing for
 * wal_sender_timeout, and the apply worker's own loop, which sends feedback,
 * does not run while we pause.  So we send it in its place.
 *
 * The positions in it must never be behind those that the loop has reported:
 * it reports more than the last commit when nothing is left to be flushed.
 * When the origin's progress has reached all that was received, as right after
 * the commit of a remote transaction, the progress is what the loop would
 * report, too.  Otherwise, say after a chunk of a streamed transaction, no
 * pause may be so long that feedback is needed.
 *
 * Nor may one be where another worker waits for us: the apply worker, which
 * sends nothing meanwhile, for a tablesync worker; and that for a parallel
 * apply worker, which has no connection.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "apply_feedback.h"
#include "catalog/pg_subscription_rel.h"
#include "group.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "replication/walreceiver.h"
#include "replication/worker_internal.h"
#include "utils/timestamp.h"

#define FEEDBACK_INTERVAL_US	1000000

static int64 last_sent = 0;		/* us */
static bool connection_lost = false;

bool
dt_apply_copies_table(void)
{
	return MyLogicalRepWorker != NULL && am_tablesync_worker() &&
		MyLogicalRepWorker->relstate == SUBREL_STATE_DATASYNC;
}

bool
dt_apply_feedback_possible(void)
{
	return LogRepWorkerWalRcvConn != NULL && !connection_lost &&
		!am_tablesync_worker() && wal_receiver_status_interval > 0 &&
		replorigin_session_origin != InvalidRepOriginId &&
		!XLogRecPtrIsInvalid(MyLogicalRepWorker->last_lsn) &&
		replorigin_session_get_progress(false) >= MyLogicalRepWorker->last_lsn;
}

/*
 * The worker's loop gives up when it has received nothing for
 * wal_receiver_timeout.
 */
int64
dt_apply_feedback_longest_silence(void)
{
	if (wal_receiver_timeout <= 0)
		return PG_INT64_MAX;
	return MyLogicalRepWorker->last_recv_time +
		wal_receiver_timeout * INT64CONST(500) - GetCurrentTimestamp();
}

void
dt_apply_feedback_send(void)
{
	char		data[64];		/* no memory that could run out */
	StringInfoData message = {.data = data,.maxlen = sizeof(data)};
	int64		now = dt_now_us();
	XLogRecPtr	progress;

	if (last_sent != 0 && now - last_sent < FEEDBACK_INTERVAL_US)
		return;
	last_sent = now;

	/* what is reported as flushed is flushed */
	progress = replorigin_session_get_progress(true);

	pq_sendbyte(&message, 'r');
	pq_sendint64(&message, progress);	/* written */
	pq_sendint64(&message, progress);	/* flushed */
	pq_sendint64(&message, progress);	/* applied */
	pq_sendint64(&message, GetCurrentTimestamp());
	pq_sendbyte(&message, 0);	/* no reply, please */

	/* if this fails, the loop will find out, too */
	connection_lost = true;
	walrcv_send(LogRepWorkerWalRcvConn, message.data, message.len);
	connection_lost = false;
}
