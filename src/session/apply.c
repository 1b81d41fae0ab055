/*-------------------------------------------------------------------------
 *
 * apply.c
 *		Feedback to the publisher while an apply worker pauses.
 *
 * The publisher ends a connection on which it receives nothing for
 * wal_sender_timeout, and the apply worker's main loop, which sends feedback,
 * does not run during a pause.  So the pause sends feedback in its place.
 *
 * Reported positions must not go backwards.  The pause knows only the origin's
 * progress, which is the last commit; the loop may have reported more, when
 * nothing was left to be flushed.  The two are the same when the progress has
 * reached all that was received, as it has right after the commit of a remote
 * transaction.  Otherwise, for example after a chunk of a streamed
 * transaction, feedback is not possible, and the pause has to be short.
 *
 * The pause has to be short, too, in workers that others wait for: the apply
 * worker for a tablesync worker, and the leader for a parallel apply worker,
 * which has no connection to the publisher.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_subscription_rel.h"
#include "libpq/pqformat.h"
#include "replication/origin.h"
#include "replication/walreceiver.h"
#include "replication/worker_internal.h"
#include "session/apply.h"
#include "shared/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"

#define FEEDBACK_INTERVAL_US	1000000

static struct
{
	int64		last_sent;		/* us */
	bool		connection_lost;
}			my;

bool
dt_apply_copies_table(void)
{
	return MyLogicalRepWorker != NULL && am_tablesync_worker() &&
		MyLogicalRepWorker->relstate == SUBREL_STATE_DATASYNC;
}

bool
dt_apply_feedback_possible(void)
{
	return LogRepWorkerWalRcvConn != NULL && !my.connection_lost &&
		!am_tablesync_worker() && wal_receiver_status_interval > 0 &&
		DT_APPLY_ORIGIN != InvalidReplOriginId &&
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
	char		data[64];		/* cannot run out of memory */
	StringInfoData message = {.data = data,.maxlen = sizeof(data)};
	int64		now = dt_now_us();
	XLogRecPtr	progress;

	if (my.last_sent != 0 && now - my.last_sent < FEEDBACK_INTERVAL_US)
		return;
	my.last_sent = now;

	/* true: flush what is reported as flushed */
	progress = replorigin_session_get_progress(true);

	pq_sendbyte(&message, 'r');
	pq_sendint64(&message, progress);	/* written */
	pq_sendint64(&message, progress);	/* flushed */
	pq_sendint64(&message, progress);	/* applied */
	pq_sendint64(&message, GetCurrentTimestamp());
	pq_sendbyte(&message, 0);	/* no reply, please */

	/* still set after an ERROR; the main loop will find out by itself */
	my.connection_lost = true;
	walrcv_send(LogRepWorkerWalRcvConn, message.data, message.len);
	my.connection_lost = false;
}
