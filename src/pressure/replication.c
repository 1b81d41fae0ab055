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
#include "utils/memutils.h"

#include "compat.h"

/* What was seen of a walsender. */
typedef struct Replica
{
	pid_t		pid;			/* 0: no standby */
	TimestampTz reply_time;		/* of the last reply, by the standby's clock */
	XLogRecPtr	written;		/* here, when it was looked at */
	XLogRecPtr	position;		/* of replay */
	TimeOffset	lag;			/* as the core has measured it, us; -1: it has
								 * not */
	DtDrain		drain;
} Replica;

/*
 * Is there a standby behind this walsender?  What it has told is copied.
 */
static bool
copy_standby(WalSnd *walsnd, Replica *replica)
{
	bool		streams;

	SpinLockAcquire(&walsnd->mutex);
	replica->pid = walsnd->pid;
	replica->reply_time = walsnd->replyTime;
	replica->position = walsnd->apply;
	replica->lag = walsnd->applyLag;
	streams = walsnd->state == WALSNDSTATE_STREAMING;
	SpinLockRelease(&walsnd->mutex);
	return replica->pid != 0 && streams &&
		!XLogRecPtrIsInvalid(replica->position) &&
		!dt_walsnd_is_logical(walsnd, replica->pid);
}

/* What a standby has told since the last look. */
static void
sample(Replica *seen, const Replica *told, int64 now)
{
	XLogRecPtr	written;

	if (seen->pid != told->pid)
	{
		memset(seen, 0, sizeof(*seen));
		seen->pid = told->pid;
	}
	written = GetFlushRecPtr(NULL); /* after the standby's position */
	if (told->reply_time != seen->reply_time ||
		told->position != seen->position || told->position >= written)
		dt_drain_sample(&seen->drain, written, Min(told->position, written),
						now);
	else if (written == seen->written)
		dt_drain_assume(&seen->drain, now);
	seen->reply_time = told->reply_time;
	seen->position = told->position;
	seen->written = written;
}

/*
 * The standbys that stream from this server, and how far the worst is behind.  A first
 * look does not know that yet, so what the core knows of it is in "other"; -1: nothing.
 */
DtLook
dt_look_replica_lag(DtFound *found)
{
	static Replica *all;		/* of all walsenders */
	static const DtDrain **drains;	/* of those that are standbys */
	const DtDrain *worst;
	int			i;

	if (max_wal_senders == 0)
		return dt_no_look(found, DT_LOOK_FAILED,
						  _("No standby can connect, since max_wal_senders is 0."));
	if (all == NULL)
	{
		drains = MemoryContextAlloc(TopMemoryContext,
									max_wal_senders * sizeof(DtDrain *));
		all = MemoryContextAllocZero(TopMemoryContext,
									 max_wal_senders * sizeof(Replica));
	}
	found->other = -1;
	for (i = 0; i < max_wal_senders; i++)
	{
		Replica    *seen = &all[i];
		Replica		told;

		if (!copy_standby(&WalSndCtl->walsnds[i], &told))
		{
			seen->pid = 0;
			continue;
		}
		sample(seen, &told, found->at);
		found->other = Max(found->other, told.lag);
		drains[found->n++] = &seen->drain;
	}
	if (found->n == 0)
		return dt_no_look(found, DT_LOOK_NOTHING,
						  _("No standby is streaming."));
	found->drains = drains;
	worst = dt_drain_worst(drains, found->n, 0, found->at);
	found->at = worst ? worst->seen_at : 0;
	found->value = worst ? dt_drain_lag_us(worst) : 0;
	return DT_LOOK_MEASURED;
}

/* What a client of a walsender has told that it has written; 0: nothing. */
static XLogRecPtr
written_by_client(pid_t pid)
{
	XLogRecPtr	written = InvalidXLogRecPtr;

	for (int i = 0; pid != 0 && i < max_wal_senders; i++)
	{
		WalSnd	   *walsnd = &WalSndCtl->walsnds[i];

		SpinLockAcquire(&walsnd->mutex);
		if (walsnd->pid == pid)
			written = walsnd->write;
		SpinLockRelease(&walsnd->mutex);
	}
	return written;
}

/*
 * How far the consumer of a slot has come; 0: the slot does not count.
 *
 * Of a logical slot that is what the consumer has confirmed.  Many have made what
 * they confirm durable, in steps of 10 s or a minute; what they have received counts
 * as soon as they say so.  Where decoding would have to begin again, the restart_lsn
 * of the slot, is held back by each running transaction, also by those of the groups
 * that are to be slowed down.
 */
static XLogRecPtr
consumed_by(ReplicationSlot *slot)
{
	XLogRecPtr	position = InvalidXLogRecPtr;
	pid_t		user = 0;

	if (!slot->in_use)
		return position;
	SpinLockAcquire(&slot->mutex);
	if (dt_slot_is_valid(slot))
	{
		position = SlotIsLogical(slot) ? slot->data.confirmed_flush :
			slot->data.restart_lsn;
		user = SlotIsLogical(slot) ? dt_slot_user(slot) : 0;
	}
	SpinLockRelease(&slot->mutex);
	return XLogRecPtrIsInvalid(position) ? position :
		Max(position, written_by_client(user));
}

/* What was seen of a slot. */
typedef struct Slot
{
	NameData	name;
	XLogRecPtr	position;		/* 0: it does not count */
	DtDrain		drain;
} Slot;

/*
 * One that was dropped, or whose client is gone, with what it had received but not
 * confirmed, tells nothing of how fast this one drains.
 */
static void
sample_slot(Slot *seen, ReplicationSlot *slot, XLogRecPtr wal, int64 now)
{
	XLogRecPtr	position = consumed_by(slot);

	if (position < seen->position)
		memset(seen, 0, sizeof(*seen));
	if (XLogRecPtrIsInvalid(position))
		return;
	if (strcmp(NameStr(seen->name), NameStr(slot->data.name)) != 0)
		memset(seen, 0, sizeof(*seen));
	seen->name = slot->data.name;
	seen->position = position;
	dt_drain_sample(&seen->drain, wal, Min(position, wal), now);
}

/*
 * Bytes of WAL that the slowest consumer of a replication slot has not received.
 * The slots that 19 has in addition, for REPACK, have none.
 */
DtLook
dt_look_slot_lag(DtFound *found)
{
	static Slot *slots = NULL;
	static const DtDrain *worst;
	XLogRecPtr	wal = GetXLogInsertRecPtr();

	if (max_replication_slots == 0)
		return dt_no_look(found, DT_LOOK_FAILED,
						  _("There cannot be a replication slot, since max_replication_slots is 0."));
	if (slots == NULL)
		slots = MemoryContextAllocZero(TopMemoryContext,
									   max_replication_slots * sizeof(Slot));
	worst = NULL;
	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		sample_slot(&slots[i], &ReplicationSlotCtl->replication_slots[i], wal,
					found->at);
		if (!XLogRecPtrIsInvalid(slots[i].position) &&
			(worst == NULL || dt_drain_backlog(&slots[i].drain) >
			 dt_drain_backlog(worst)))
			worst = &slots[i].drain;
	}
	LWLockRelease(ReplicationSlotControlLock);
	if (worst == NULL)
		return dt_no_look(found, DT_LOOK_NOTHING,
						  _("There is no replication slot that has been used and is valid."));
	found->drains = &worst;
	found->n = 1;
	found->value = dt_drain_backlog(worst);
	return DT_LOOK_MEASURED;
}
