/*-------------------------------------------------------------------------
 *
 * control.h
 *		Limits that follow the server's pressure.
 *
 * Readings of signals and a clock value go in several times a second, rates of
 * the groups come out.  Like the rate engine this does not depend on
 * PostgreSQL and takes no lock; all state is in DtPressure and in each group's
 * DtPressureGroup, in the memory of the one process that calls.  It may be lost
 * at any time: a new DtPressureGroup begins with the rates that are in force.
 *
 * One cycle, about five times a second:
 *
 *		dt_pressure_read(&p, signal, ...)	for each signal with a fresh value
 *		dt_pressure_absent(&p, signal)		where there is nothing to measure
 *		groups[i]->limit, floor, ... = ...	for each group that uses pressure
 *		dt_pressure_step(&p, groups, n, wal, now)
 *		use groups[i]->rate					of each
 *
 * Units: bytes, bytes per second, microseconds of a monotonic clock; those of
 * a signal's value and thresholds are in the table of signals.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CONTROL_H
#define DT_CONTROL_H

#include "engine/drain.h"
#include "engine/latency.h"
#include "engine/law.h"
#include "engine/signal.h"

#define DT_PRESSURE_DEFAULT_FLOOR	INT64_C(64000)	/* bytes/s */

/* The highest pressure that is told, in thousandths of the threshold. */
#define DT_PRESSURE_MAX				INT64_C(1000000)

/* See DT_STALE_US. */
typedef enum DtSignalState
{
	DT_SIGNAL_ABSENT,			/* presses nobody */
	DT_SIGNAL_FRESH,
	DT_SIGNAL_STALE				/* counts as its last value */
} DtSignalState;

/* A signal.  Only the first three fields are for readers. */
typedef struct DtSignalReading
{
	DtSignalState state;		/* as of the last step */
	int64_t		value;
	int64_t		read_at;		/* time of the last reading; 0: none */

	bool		is_new;			/* read since the last step */
	int64_t		interval;		/* time between the last two readings */
	int64_t		watched_us;		/* time since the first one */
	int64_t		other;			/* see dt_pressure_read() */
	int64_t		means[2];		/* DT_IO_PRESSURE: over two windows */
	DtDrain		drain;			/* law level: the queue, and what ... */
	int64_t		written;		/* ... the groups have written into it */
	int64_t		waiting;		/* law latency, set by the caller before
								 * dt_pressure_read(): commits under way */
	DtLatency	latency;		/* and what is known of those that ended */
} DtSignalReading;

/* Common to all groups.  All zeros is one without any reading. */
typedef struct DtPressure
{
	DtSignalReading signal[DT_SIGNALS];
	int64_t		stepped_at;		/* time of the last step; 0: none */
	int64_t		watched_us;		/* time since the first one, up to a second */
	int64_t		wal;			/* position at that time */
	int64_t		wal_rate;		/* of the whole server, mean of a second */
	int64_t		wal_now;		/* the same, since the last step */
} DtPressure;

/* One group.  All zeros is a group that is limited by nothing. */
typedef struct DtPressureGroup
{
	/* set by the caller before each step */
	int64_t		limit[DT_RESOURCES];	/* the fixed one, 0 = none */
	int64_t		floor;			/* pressure does not go below */
	int64_t		weight;			/* of its share beside others */
	int64_t		threshold[DT_SIGNALS];	/* 0 = this signal is not used; of
										 * DT_CHECKPOINT any other number */
	bool		by_share[DT_SIGNALS];	/* law latency: the threshold is a
										 * share, 1e-6, that is added */
	const DtDrain *drain[DT_SIGNALS];	/* law zones: the queue that counts
										 * for it, NULL = none */
	int64_t		reported;		/* DT_REPORTED: the value for it; -1 = none */
	bool		out_of_reach;	/* DT_CHECKPOINT slows it down no more */
	int64_t		used[DT_RESOURCES]; /* counter of bytes; may be reset to 0 */
	bool		observe;		/* nobody obeys these rates */
	bool		redefined;		/* what is defined has changed: what is free
								 * now is free at once, and not let go slowly */

	/* results of the step */
	int64_t		rate[DT_RESOURCES]; /* in force from now on, 0 = none */
	int			decides[DT_RESOURCES];	/* the signal, a DtSignal, that the
										 * rate is from when it is less than
										 * the limit; -1: it was so before */
	int64_t		share[DT_SIGNALS];	/* what each signal leaves to it, 0 = all */
	bool		probed;			/* it is to rest for a moment only */
	int64_t		others;			/* DT_CHECKPOINT: what others write, bytes/s,
								 * with what is uncharged of the groups' own, */
	int64_t		others_least;	/* and without; both may be 0 */
	int64_t		pressure;		/* of the worst signal, in thousandths of its
								 * threshold, at most DT_PRESSURE_MAX */
	int			signal;			/* which one that is, a DtSignal; -1: no
								 * signal that it uses has a value */

	/* these belong to control.c */
	DtLaw		law[DT_SIGNALS];	/* zeroed by the caller when the user has
									 * set a threshold that lets it go faster */
	int64_t		pressures[DT_SIGNALS];	/* -1: the signal has no value */
	int64_t		ease_us[DT_RESOURCES];	/* so long it is let go slowly */
	int64_t		watched_us;		/* for how long, up to a second */
	int64_t		last_used[DT_RESOURCES];
	int64_t		use_rate[DT_RESOURCES]; /* mean of the last second or so */
	int64_t		use_now[DT_RESOURCES];	/* since the last step */
	int64_t		settled;		/* its floor, or what it wants, when it gets
								 * that; -1: its share by weight */
} DtPressureGroup;

extern void dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
								   const int64_t *used);
extern void dt_pressure_read(DtPressure *p, DtSignal signal, int64_t value,
							 int64_t other, int64_t now);
extern void dt_pressure_absent(DtPressure *p, DtSignal signal);
extern void dt_pressure_step(DtPressure *p, DtPressureGroup *const *groups,
							 int n, int64_t wal, int64_t now);

#endif							/* DT_CONTROL_H */
