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
 * Right after the commit of a remote transaction, all that was received is
 * applied, and it is the origin's progress.  Then that is what we report;
 * after other transactions, say of a chunk of a streamed one, nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "apply_feedback.h"
#include "libpq/pqformat.h"
#include "miscadmin.h"
#include "replication/origin.h"
#include "replication/walreceiver.h"
#include "replication/worker_internal.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define FEEDBACK_INTERVAL_MS	1000

static TimestampTz last_sent = 0;
static bool connection_lost = false;

bool
dt_apply_feedback_possible(void)
{
	/* LSN of what is received is set by the loop, that is, while streaming */
	return LogRepWorkerWalRcvConn != NULL && !connection_lost &&
		wal_receiver_status_interval > 0 &&
		replorigin_session_origin != InvalidRepOriginId &&
		!XLogRecPtrIsInvalid(MyLogicalRepWorker->last_lsn) &&
		replorigin_session_get_progress(false) >= MyLogicalRepWorker->last_lsn;
}

int64
dt_apply_feedback_longest_silence(void)
{
	return wal_receiver_timeout > 0 ?
		wal_receiver_timeout * INT64CONST(1000) / 2 : PG_INT64_MAX;
}

bool
dt_apply_feedback_send(void)
{
	static StringInfoData message;
	TimestampTz now = GetCurrentTimestamp();
	uint32		holdoff = InterruptHoldoffCount;
	volatile bool sent = true;
	XLogRecPtr	progress;

	if (!TimestampDifferenceExceeds(last_sent, now, FEEDBACK_INTERVAL_MS))
		return true;
	last_sent = now;

	/* what is reported as flushed is flushed */
	progress = replorigin_session_get_progress(true);

	if (message.data == NULL)
	{
		MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

		initStringInfo(&message);
		MemoryContextSwitchTo(old);
	}
	resetStringInfo(&message);
	pq_sendbyte(&message, 'r');
	pq_sendint64(&message, progress);	/* written */
	pq_sendint64(&message, progress);	/* flushed */
	pq_sendint64(&message, progress);	/* applied */
	pq_sendint64(&message, now);
	pq_sendbyte(&message, 0);	/* no reply, please */

	/* An error here, after the commit, would be a PANIC. */
	PG_TRY();
	{
		walrcv_send(LogRepWorkerWalRcvConn, message.data, message.len);
	}
	PG_CATCH();
	{
		/* The loop will find out, too. */
		FlushErrorState();
		InterruptHoldoffCount = holdoff;
		connection_lost = true;
		sent = false;
	}
	PG_END_TRY();
	return sent;
}
