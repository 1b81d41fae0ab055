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
	DT_SLOT_LAG,
	DT_ARCHIVE_LAG,
	DT_CHECKPOINT,
	DT_WAL_RATE,
	DT_DISK_FREE,
	DT_KERNEL_DIRTY,
	DT_IO_PRESSURE,
	DT_COMMIT_LATENCY,
	DT_REPORTED					/* what somebody has reported under a name */
} DtSignal;

#define DT_SIGNALS	10

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

/*
 * How a rate follows from the values of a signal: by the law of room, in the
 * first five cases, by the brake or by the droop.
 */
typedef enum DtLawKind
{
	DT_LAW_QUEUE,				/* room in a queue, which has a DtDrain */
	DT_LAW_LEVEL,				/* room below a level; its DtDrain is made up */
	DT_LAW_BUDGET,				/* room until a date */
	DT_LAW_RATE,				/* room in each second */
	DT_LAW_RESERVE,				/* room above what must not be touched */
	DT_LAW_BRAKE,
	DT_LAW_DROOP
} DtLawKind;

typedef struct DtSignalKind
{
	const char *name;
	DtResource	resource;		/* that it limits */
	DtLawKind	law;
	DtUnit		unit;			/* of its values */
	DtUnit		threshold;		/* unit of its thresholds (of DT_LAW_DROOP
								 * DT_UNIT_SHARE, too), and ... */
	int64_t		lowest;			/* ... their range */
	int64_t		highest;
	bool		or_share;		/* a threshold may be a share of the whole */
	const char *meaning;		/* of the threshold, with its range */
	const char *example;		/* of a threshold */
} DtSignalKind;

extern const DtSignalKind dt_signals[DT_SIGNALS];

/*
 * A value of this age is stale: fifty looks in a row that failed are no accident.  It
 * counts for another while, as what presses may go on unseen, and then as if there
 * were nothing to measure, so that nobody is slow for ever for what is not known.
 */
#define DT_STALE_US				INT64_C(10000000)
#define DT_STALE_COUNTS_US		INT64_C(30000000)

typedef enum DtSignalState
{
	DT_SIGNAL_ABSENT,			/* presses nobody */
	DT_SIGNAL_FRESH,
	DT_SIGNAL_STALE				/* counts as its last value */
} DtSignalState;

/*
 * What becomes of a value that was read then, 0 = never, and is fresh for so
 * long.  One of the future counts for nothing: the clock was set back.
 */
static inline DtSignalState
dt_signal_state(int64_t read_at, int64_t fresh_us, int64_t now)
{
	if (read_at <= 0 || now < read_at ||
		now - read_at >= fresh_us + DT_STALE_COUNTS_US)
		return DT_SIGNAL_ABSENT;
	return now - read_at >= fresh_us ? DT_SIGNAL_STALE : DT_SIGNAL_FRESH;
}

#endif							/* DT_SIGNAL_H */
