/*-------------------------------------------------------------------------
 *
 * replication.c
 *		Signals replica_lag and slot_lag.
 *
 * Walsenders keep in shared memory what their standbys have told them, each
 * under its spinlock.  A standby counts while it streams: one that is still
 * catching up after it was away does not, and a client that replays nothing
 * (pg_receivewal, pg_basebackup) or decodes (a subscriber) is none.
 *
 * A standby sends its position with every reply: when it has written or
 * flushed what came, and every wal_receiver_status_interval.  Between two
 * replies nothing is known, unless it has replayed everything there is.  So
 * while this server writes nothing, a standby that has received all of it may
 * say nothing for long about what it still replays; it is assumed to go on.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "pressure/signals.h"
#include "replication/slot.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"

#include "compat.h"

/* What was seen of a walsender. */
struct DtReplica
{
	pid_t		pid;			/* 0: no standby */
	TimestampTz reply_time;		/* of the last reply, by the standby's clock */
	XLogRecPtr	written;		/* here, when it was looked at */
	XLogRecPtr	apply;
	DtDrain		drain;
};

void
dt_replicas_init(DtReplicas *r)
{
	r->n = 0;
	r->drains = palloc0(Max(max_wal_senders, 1) * sizeof(DtDrain));
	r->slots = palloc0(Max(max_wal_senders, 1) * sizeof(DtReplica));
}

/*
 * Is there a standby behind this walsender?  What it has told is copied.
 */
static bool
copy_standby(WalSnd *walsnd, DtReplica *replica)
{
	bool		streams;

	SpinLockAcquire(&walsnd->mutex);
	replica->pid = walsnd->pid;
	replica->reply_time = walsnd->replyTime;
	replica->apply = walsnd->apply;
	streams = walsnd->state == WALSNDSTATE_STREAMING;
	SpinLockRelease(&walsnd->mutex);
	return replica->pid != 0 && streams &&
		!XLogRecPtrIsInvalid(replica->apply) &&
		!dt_walsnd_is_logical(walsnd, replica->pid);
}

DtLook
dt_look_replicas(DtReplicas *r, int64 now, char *reason)
{
	int			i;

	r->n = 0;
	for (i = 0; i < max_wal_senders; i++)
	{
		DtReplica  *seen = &r->slots[i];
		DtReplica	told;
		XLogRecPtr	written;

		if (!copy_standby(&WalSndCtl->walsnds[i], &told))
		{
			seen->pid = 0;
			continue;
		}
		if (seen->pid != told.pid)
		{
			memset(seen, 0, sizeof(*seen));
			seen->pid = told.pid;
			dt_drain_init(&seen->drain);
		}
		written = GetFlushRecPtr(NULL); /* after the standby's position */
		if (told.reply_time != seen->reply_time ||
			told.apply != seen->apply || told.apply >= written)
			dt_drain_sample(&seen->drain, written, Min(told.apply, written),
							now);
		else if (written == seen->written)
			dt_drain_assume(&seen->drain, now);
		seen->reply_time = told.reply_time;
		seen->apply = told.apply;
		seen->written = written;
		r->drains[r->n++] = seen->drain;
	}
	if (r->n > 0)
		return DT_LOOK_MEASURED;
	strlcpy(reason, _("No standby is streaming."), DT_REASON_SIZE);
	return DT_LOOK_NOTHING;
}

DtLook
dt_look_slot_lag(int64 wal, int64 *bytes, char *reason)
{
	XLogRecPtr	oldest = InvalidXLogRecPtr;
	int			i;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (i = 0; i < dt_max_slots; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];
		XLogRecPtr	restart = InvalidXLogRecPtr;

		if (!slot->in_use)
			continue;
		SpinLockAcquire(&slot->mutex);
		if (dt_slot_is_valid(slot))
			restart = slot->data.restart_lsn;
		SpinLockRelease(&slot->mutex);
		if (!XLogRecPtrIsInvalid(restart) &&
			(XLogRecPtrIsInvalid(oldest) || restart < oldest))
			oldest = restart;
	}
	LWLockRelease(ReplicationSlotControlLock);
	if (XLogRecPtrIsInvalid(oldest))
	{
		strlcpy(reason, _("There is no replication slot that retains WAL."),
				DT_REASON_SIZE);
		return DT_LOOK_NOTHING;
	}
	*bytes = Max(wal - (int64) oldest, 0);
	return DT_LOOK_MEASURED;
}
