/*-------------------------------------------------------------------------
 *
 * pressure.h
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
 *		dt_drain_sample(&drains[i], ...)	for each standby with fresh news
 *		dt_pressure_read_...(&p, ...)		for each signal with a fresh value
 *		dt_pressure_absent(&p, signal)		where there is nothing to measure
 *		groups[i].limit, floor, ... = ...	for each group that uses pressure
 *		dt_pressure_step(&p, groups, n, wal, now)
 *		use groups[i].rate					of each
 *
 * Units: bytes, bytes per second, microseconds of a monotonic clock; those of
 * a signal's value and thresholds are at DtSignal.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PRESSURE_H
#define DT_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/drain.h"
#include "engine/law.h"
#include "engine/resource.h"

/* The signals, with the unit of their values and thresholds. */
typedef enum DtSignal
{
	DT_REPLICA_LAG,				/* us; limits WAL; law: zones */
	DT_SLOT_LAG,				/* bytes retained; limits WAL; zones */
	DT_CHECKPOINT,				/* bytes left, without a threshold; limits
								 * WAL; budget */
	DT_DIRTY_BUFFERS,			/* bytes; limits dirtying; zones */
	DT_KERNEL_DIRTY,			/* bytes; limits dirtying; zones */
	DT_IO_PRESSURE				/* of the time, in 1e-6; limits dirtying;
								 * brake */
} DtSignal;

#define DT_SIGNALS	6

/* The resource that a signal limits. */
static inline DtResource
dt_signal_resource(DtSignal signal)
{
	return signal <= DT_CHECKPOINT ? DT_WAL : DT_DIRTY;
}

#define DT_PRESSURE_DEFAULT_FLOOR	INT64_C(64000)	/* bytes/s */

/* The highest pressure that is told, in thousandths of the threshold. */
#define DT_PRESSURE_MAX				INT64_C(1000000)

/*
 * A debt that was made at a higher rate is bounded to this at the rate that
 * pressure has lowered; see dt_rate_bound_debts().
 */
#define DT_PRESSURE_DEBT_US			INT64_C(30000000)

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
	int64_t		value;			/* unit: see DtSignal */
	int64_t		read_at;		/* time of the last reading; 0: none */

	bool		is_new;			/* read since the last step */
	int64_t		interval;		/* time between the last two readings */
	int64_t		watched_us;		/* time since the first one */
	int64_t		time_left;		/* DT_CHECKPOINT */
	int64_t		stalled;		/* DT_IO_PRESSURE: the counter, and */
	int64_t		means[2];		/* its means over two windows */
	DtDrain		drain;			/* law zones: the queue */
	int64_t		written;		/* by the groups, into that queue, and */
	int64_t		entered;		/* what of it the value has in it */

	/* of the groups that share what the signal leaves to them */
	int64_t		used;			/* by them */
	int64_t		observed;		/* by those who follow it in mode observe */
	int64_t		largest;		/* of their fixed limits */
	int64_t		weights;		/* sum */
	int64_t		split;			/* what was split last; -1: nothing yet */
	int64_t		left;			/* of that to those who want more, and ... */
	int64_t		left_weights;	/* ... their sum */
} DtSignalReading;

/* Common to all groups.  All fields but "signal" belong to pressure.c. */
typedef struct DtPressure
{
	DtSignalReading signal[DT_SIGNALS];
	int64_t		stepped_at;		/* time of the last step; 0: none */
	int64_t		watched_us;		/* time since the first one, up to a second */
	int64_t		wal;			/* position at that time */
	int64_t		wal_rate;		/* of the whole server, mean of a second */
	const DtDrain *drains;		/* DT_REPLICA_LAG: of all standbys */
	int			n_drains;
} DtPressure;

/* One group.  All zeros is a group that is limited by nothing. */
typedef struct DtPressureGroup
{
	/* set by the caller before each step */
	int64_t		limit[DT_RESOURCES];	/* the fixed one, 0 = none */
	int64_t		floor;			/* pressure does not go below */
	int64_t		threshold[DT_SIGNALS];	/* 0 = this signal is not used; of
										 * DT_CHECKPOINT any other number */
	int			ignore;			/* so many of the standbys that lag most do
								 * not count for DT_REPLICA_LAG */
	int64_t		used[DT_RESOURCES]; /* counter of bytes; may be reset to 0 */
	bool		observe;		/* nobody obeys these rates */

	/* results of the step */
	int64_t		rate[DT_RESOURCES]; /* in force from now on, 0 = none */
	int			decides[DT_RESOURCES];	/* the signal, a DtSignal, that the
										 * rate is from when it is less than
										 * the limit; -1: it was so before */
	int64_t		share[DT_SIGNALS];	/* what each signal leaves to it, 0 = all */
	int64_t		budget;			/* DT_CHECKPOINT: what all may write until one
								 * comes by time, bytes/s, and ... */
	int64_t		others;			/* ... what of it others write; both may be 0 */
	int64_t		pressure;		/* of the worst signal, in thousandths of its
								 * threshold, at most DT_PRESSURE_MAX */
	int			signal;			/* which one that is, a DtSignal; -1: no
								 * signal that it uses has a value */

	/* these belong to pressure.c */
	bool		redefined;		/* since the last step */
	DtLaw		law[DT_SIGNALS];
	int64_t		pressures[DT_SIGNALS];	/* -1: the signal has no value */
	int64_t		drain_seen_at;	/* the sample that the law has seen */
	int64_t		ease_us[DT_RESOURCES];	/* so long it is let go slowly */
	int64_t		watched_us;		/* for how long, up to a second */
	int64_t		last_used[DT_RESOURCES];
	int64_t		use_rate[DT_RESOURCES]; /* mean of the last second or so */
	bool		is_content[DT_SIGNALS]; /* with less than its share */
} DtPressureGroup;

/* Start without any reading. */
extern void dt_pressure_init(DtPressure *p);

/*
 * Start a group at the rates now in force (0 = none), which change from there
 * without a jump.  Also when a group takes the place of another one.  "used"
 * are its counters of bytes.
 */
extern void dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
								   const int64_t *used);

/*
 * The user has changed what is defined of a group: what the next step finds
 * free is free at once, and not let go slowly.
 *
 * When he has set a threshold that lets it go faster than the one before, the
 * signal's law is to start anew, too.
 */
extern void dt_pressure_group_redefined(DtPressureGroup *g);
extern void dt_pressure_group_restart(DtPressureGroup *g, DtSignal signal);

/*
 * A fresh value.  _read() is for DT_SLOT_LAG, DT_DIRTY_BUFFERS and
 * DT_KERNEL_DIRTY.
 *
 * _read_drains() is for DT_REPLICA_LAG: all standbys, or none; they must stay
 * where they are until the step.  How old a drain's last sample is decides
 * whether it is fresh, so this is called in each cycle.
 *
 * _read_budget() is for DT_CHECKPOINT: how much WAL may still be written
 * before a checkpoint is forced (<= 0: one is due), and in how many us one
 * comes by time.
 *
 * _read_stall() is for DT_IO_PRESSURE: a counter of microseconds.
 */
extern void dt_pressure_read(DtPressure *p, DtSignal signal, int64_t value,
							 int64_t now);
extern void dt_pressure_read_drains(DtPressure *p, const DtDrain *drains,
									int n, int64_t now);
extern void dt_pressure_read_budget(DtPressure *p, int64_t bytes_left,
									int64_t time_left, int64_t now);
extern void dt_pressure_read_stall(DtPressure *p, int64_t stalled,
								   int64_t now);

/*
 * There is nothing to measure: no standby, no slot.  It presses nobody from
 * now on.  When a value just cannot be read, do not call this, nor one of the
 * above: then it goes stale.
 */
extern void dt_pressure_absent(DtPressure *p, DtSignal signal);

/*
 * Work out the rates of all groups.  One without any threshold, or with all
 * zeros, may be among them, and gets its fixed limits.  "wal" is the position
 * of the last WAL written, by anybody, in bytes.
 */
extern void dt_pressure_step(DtPressure *p, DtPressureGroup *groups, int n,
							 int64_t wal, int64_t now);

#endif							/* DT_PRESSURE_H */
