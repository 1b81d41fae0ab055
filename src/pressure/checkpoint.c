/*-------------------------------------------------------------------------
 *
 * checkpoint.c
 *		Signal checkpoint: how much WAL is left until one is forced.
 *
 * A checkpoint is forced when a segment is full that is CheckPointSegments
 * after the one in which the last checkpoint has begun (its redo point);
 * CheckPointSegments follows from max_wal_size and
 * checkpoint_completion_target.  Another one comes checkpoint_timeout after
 * the last one has begun.  The checkpointer does not tell when that was, so
 * this is the time at which the redo point was seen to move.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>
#include <time.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/pg_control.h"
#include "common/controldata_utils.h"
#include "miscadmin.h"
#include "postmaster/bgwriter.h"
#include "pressure/signals.h"
#include "utils/timestamp.h"

#include "compat.h"

#define SECOND	INT64CONST(1000000)
#define LATE	(5 * SECOND)

/*
 * How long ago, us, the checkpoint with this redo point has begun, for the first
 * look, or one after none for long: as the control file says, when it is that one.
 * Otherwise it still runs, and nobody knows since when: as if it began now.
 */
static int64
begun_ago(XLogRecPtr redo)
{
	bool		crc_ok;
	ControlFileData *control = get_controlfile(DataDir, &crc_ok);
	int64		ago = 0;

	if (crc_ok && control->checkPointCopy.redo == redo)
		ago = (int64) time(NULL) - (int64) control->checkPointCopy.time;
	pfree(control);
	return Max(ago, 0) * SECOND;
}

/*
 * How many bytes of WAL may still be written until they force a checkpoint,
 * and in how many us one comes because of checkpoint_timeout.
 */
DtLook
dt_look_checkpoint(DtFound *found)
{
	static XLogRecPtr seen_redo = InvalidXLogRecPtr;
	static int64 seen_at = 0;
	static int64 begun_at = 0;
	XLogRecPtr	redo = GetRedoRecPtr();
	int64		timeout = CheckPointTimeout * SECOND;
	int64		age;
	XLogSegNo	segment;
	XLogRecPtr	end;

	if (seen_redo != redo)
		begun_at = seen_redo == InvalidXLogRecPtr || found->at - seen_at > LATE ?
			found->at - begun_ago(redo) : found->at;
	seen_redo = redo;
	seen_at = found->at;

	XLByteToSeg(redo, segment, wal_segment_size);
	XLogSegNoOffsetToRecPtr(segment + CheckPointSegments, 0, wal_segment_size,
							end);
	found->value = Max((int64) (end - GetXLogInsertRecPtr()), 0);

	/*
	 * The checkpointer counts in whole seconds, and may be late by a little.
	 * When it is later than that, nothing had to be done (the server was
	 * idle), and the time began anew; or the last checkpoint takes longer
	 * than this, and nobody knows when the next one begins.
	 */
	age = found->at - begun_at;
	if (age > timeout + Max(LATE, timeout / 10))
		age %= timeout;
	found->other = Max(timeout - age, 0) + SECOND;
	return DT_LOOK_MEASURED;
}

/* How much WAL may be written, in bytes/s, so that no checkpoint is forced. */
int64
dt_wal_rate_without_force(void)
{
	return (int64) CheckPointSegments * wal_segment_size / CheckPointTimeout;
}

/*
 * The max_wal_size, in MB, with which no checkpoint is forced while this much
 * is written: the reverse of what the core makes of max_wal_size.  The redo point
 * may be at the end of its segment, so one more is needed.
 */
int64
dt_max_wal_size_for(int64 rate)
{
	double		segments = ceil((double) rate * CheckPointTimeout /
								wal_segment_size) + 1;

	return (int64) ceil(segments * (1.0 + CheckPointCompletionTarget) *
						wal_segment_size / (1024 * 1024));
}
