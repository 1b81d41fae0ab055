/*-------------------------------------------------------------------------
 *
 * signals.h
 *		The signals of pressure: what they are, here and now.
 *
 * A function for each signal looks at the server's shared memory or at files
 * of the kernel, without SQL, a transaction or a heavyweight lock, so it works
 * in any process.  Files: replication.c, checkpoint.c, buffers.c, kernel.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SIGNALS_H
#define DT_SIGNALS_H

#include "engine/drain.h"
#include "registry/definition.h"

/*
 * What came of a look at a signal.  If there is no value, "reason", which has
 * DT_REASON_SIZE bytes, says why in a sentence.
 */
typedef enum DtLook
{
	DT_LOOK_MEASURED,			/* there is a value */
	DT_LOOK_NOTHING,			/* there is nothing to measure: no standby */
	DT_LOOK_FAILED				/* it cannot be measured now */
} DtLook;

/*
 * Can this signal, with a threshold in this unit, be had on this server?
 * False: "reason" says why not.
 */
extern bool dt_signal_is_available(DtSignal signal, DtUnit unit,
								   char *reason);

/*
 * The standbys that stream from this server, and how fast each of them replays
 * WAL.  dt_look_replicas() adds what they have told since the last call.
 */
typedef struct DtReplica DtReplica;

typedef struct DtReplicas
{
	int			n;				/* standbys there are */
	DtDrain    *drains;			/* of these */
	DtReplica  *slots;			/* all walsenders, as seen the last time */
} DtReplicas;

extern void dt_replicas_init(DtReplicas *r);	/* palloc's */
extern DtLook dt_look_replicas(DtReplicas *r, int64 now, char *reason);

/* Bytes of WAL, up to this position, that the replication slots retain. */
extern DtLook dt_look_slot_lag(int64 wal, int64 *bytes, char *reason);

/*
 * How many bytes of WAL may still be written until they force a checkpoint,
 * and in how many us one comes because of checkpoint_timeout.  The state is
 * the caller's, zeroed at first.
 */
typedef struct DtCheckpointSeen
{
	uint64		redo;			/* where the last checkpoint has begun */
	int64		begun_at;		/* when, us of the monotonic clock */
} DtCheckpointSeen;

extern void dt_look_checkpoint(DtCheckpointSeen *seen, int64 now,
							   int64 *bytes_left, int64 *time_left);

/*
 * How much WAL has been written, in bytes/s, since the last completed
 * checkpoint has begun; 0: not known.  And the max_wal_size, in MB, with which
 * no checkpoint is forced while this much is written.
 */
extern int64 dt_look_wal_rate(void);
extern int64 dt_max_wal_size_for(int64 rate);

/*
 * Bytes of shared_buffers that are dirty, judged by a sample of them, or by a
 * quarter (0 to 3) of that sample.
 */
extern int64 dt_look_dirty_buffers(void);
extern int64 dt_look_dirty_quarter(int quarter);

/*
 * Bytes that the kernel has to write to disks; at how many of them it stops
 * those who write; and from how many on it writes, if they are not old yet.
 */
extern DtLook dt_look_kernel_dirty(int64 *bytes, char *reason);
extern DtLook dt_look_kernel_limit(int64 *bytes, char *reason);
extern DtLook dt_look_kernel_background(int64 *bytes, char *reason);

/* For how many us, since some time, some process has waited for I/O. */
extern DtLook dt_look_io_stall(int64 *us, char *reason);

#endif							/* DT_SIGNALS_H */
