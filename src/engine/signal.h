/*-------------------------------------------------------------------------
 *
 * signal.h
 *		The signals that limits can follow.
 *
 * What there is to know of a signal is a row of the table in signal.c and a
 * function that looks at it, in src/pressure.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SIGNAL_H
#define DT_SIGNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/resource.h"

typedef enum DtSignal
{
	DT_REPLICA_LAG,
	DT_FLUSH_LAG,
	DT_SLOT_LAG,
	DT_ARCHIVE_LAG,
	DT_CHECKPOINT,
	DT_WAL_RATE,
	DT_DISK_FREE,
	DT_DIRTY_BUFFERS,
	DT_KERNEL_DIRTY,
	DT_IO_PRESSURE,
	DT_COMMIT_LATENCY,
	DT_REPORTED					/* what somebody has reported under a name */
} DtSignal;

#define DT_SIGNALS	12

/* Units of values and thresholds. */
typedef enum DtUnit
{
	DT_UNIT_UNUSED,				/* the group does not follow the signal */
	DT_UNIT_NONE,				/* it does, but the signal has no threshold */
	DT_UNIT_US,					/* microseconds */
	DT_UNIT_BYTES,
	DT_UNIT_RATE,				/* bytes/s; thresholds are written in bytes */
	DT_UNIT_SHARE,				/* 1e-6 of the whole; written in percent */
	DT_UNIT_NUMBER				/* in thousandths of the threshold */
} DtUnit;

/* How a rate follows from the values of a signal; see law.c. */
typedef enum DtLawKind
{
	DT_LAW_ZONES,				/* of a queue, whose DtDrain is told */
	DT_LAW_LEVEL,				/* zones, too, of a queue made up from a level */
	DT_LAW_BUDGET,
	DT_LAW_RATE,				/* a budget of each second */
	DT_LAW_RAMP,				/* of what must not rise above the threshold */
	DT_LAW_RESERVE,				/* a ramp, of what must not fall below it */
	DT_LAW_BRAKE,
	DT_LAW_LATENCY
} DtLawKind;

typedef struct DtSignalKind
{
	const char *name;
	DtResource	resource;		/* that it limits */
	DtLawKind	law;
	DtUnit		unit;			/* of its values */
	DtUnit		threshold;		/* unit of its thresholds (with DT_LAW_LATENCY
								 * DT_UNIT_SHARE, too), and ... */
	int64_t		lowest;			/* ... their range */
	int64_t		highest;
	bool		or_share;		/* a threshold may be a share of the whole */
	bool		takes_time;		/* no value is known after a single look */
	const char *meaning;		/* of the threshold, with its range */
	const char *example;		/* of a threshold */
} DtSignalKind;

extern const DtSignalKind dt_signals[DT_SIGNALS];

#endif							/* DT_SIGNAL_H */
