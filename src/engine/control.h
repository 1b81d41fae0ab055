/*-------------------------------------------------------------------------
 *
 * control.h
 *		Limits that follow the server's pressure.
 *
 * A controller is a signal at a threshold: it works out how fast all groups may
 * go together that follow it.  Groups with the same threshold have the same
 * controller.  Values and a clock go in several times a second, rates of the
 * groups come out.  Like the rate engine this does not depend on PostgreSQL and
 * takes no lock; all state is in the memory of the one process that calls.  It
 * may be lost at any time: a new DtPressureGroup begins with the rate that is in
 * force.
 *
 * One cycle, about five times a second:
 *
 *		c->value, c->read_at, ... = ...		for each controller
 *		g->limit, g->follows[], ... = ...	for each group
 *		dt_pressure_step(...)
 *		use g->rate							of each group
 *
 * Units: bytes, bytes per second, microseconds of a monotonic clock; those of
 * a signal's value and thresholds are in the table of signals.  Of rates and
 * limits, 0 is none.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CONTROL_H
#define DT_CONTROL_H

#include "engine/drain.h"
#include "engine/latency.h"
#include "engine/law.h"
#include "engine/resource.h"
#include "engine/signal.h"

/* Bytes/s.  Some eight blocks: a job goes on, and a disk hardly notices it. */
#define DT_PRESSURE_DEFAULT_FLOOR	INT64_C(64000)

/* The highest pressure that is told, in thousandths of the threshold. */
#define DT_PRESSURE_MAX				INT64_C(1000000)

/* Common to all groups.  All zeros is one without any value. */
typedef struct DtPressure
{
	/* set by the caller before each step */
	int64_t		waiting;		/* commits that have begun and not ended */

	/* results of the step */
	DtLatency	latency;		/* what is known of others' commits */
	bool		new_window;		/* of these: the next ones are counted anew */
	int64_t		wal_rate;		/* of the whole server, mean of a second */

	/* these belong to control.c */
	int64_t		stepped_at;		/* time of the last step; 0: none */
	int64_t		watched_us;		/* time since the first one, up to a second */
	int64_t		wal;			/* position at that time */
	int64_t		wal_now;		/* as wal_rate, since the last step */
	int64_t		elapsed;		/* us, between the last two steps */
} DtPressure;

/* A signal at a threshold. */
typedef struct DtController
{
	/* set by the caller; another threshold is another controller */
	DtSignal	signal;
	int64_t		threshold;		/* 0 where the signal has none */
	bool		by_share;		/* law droop: the threshold is a share, 1e-6,
								 * that is added */

	/* set by the caller before each step */
	int64_t		value;			/* of laws droop, queue and rate not used */
	int64_t		other;			/* law budget: us that are left;
								 * dirty_buffers: bytes that are the whole */
	DtCommits	commits;		/* law droop: in the window that is open */
	const DtDrain *queue;		/* law queue: the one that counts */
	int64_t		read_at;		/* time of the value; 0: there is nothing to
								 * measure */
	int64_t		fresh_us;		/* so long it is fresh */
	bool		out_of_reach;	/* whatever they do: it limits nobody */

	/* results of the step */
	DtSignalState state;
	int64_t		rate;			/* of all that follow it together; ... */
	int64_t		others;			/* ... of that, what others use, and ... */
	int64_t		used;			/* ... what these use, a mean of a second */
	int64_t		pressure;		/* in thousandths of the threshold, at most
								 * DT_PRESSURE_MAX; -1: it has no value */
	int64_t		shown;			/* the value, in the unit of the signal, ... */
	int64_t		base;			/* ... what it is without them, and ... */
	int64_t		allowed;		/* ... what it may be; 0: not known, or none */

	/* these belong to control.c */
	DtDrain		level;			/* law level: the queue that is made of it, */
	int64_t		written;		/* and what the groups have written into it */
	DtBrake		brake;
	DtDroop		droop;
	bool		obeyed;			/* by somebody, in the last step */
	int64_t		worked_us;		/* for how long its groups have used more than
								 * their floors, up to a second */
} DtController;

/* One group.  All zeros is a group that is limited by nothing. */
typedef struct DtPressureGroup
{
	/* set by the caller before each step */
	int64_t		limit[DT_RESOURCES];	/* the fixed one */
	int64_t		floor;			/* pressure does not go below */
	int64_t		weight;			/* of its share beside others */
	DtController *follows[DT_SIGNALS];	/* NULL: not this signal */
	int64_t		used[DT_RESOURCES]; /* counter of bytes; may be reset to 0 */
	bool		saved[DT_RESOURCES];	/* there is a burst to spend: a budget
										 * that has room counts instead of the
										 * limit */
	bool		observe;		/* nobody obeys these rates */
	bool		redefined;		/* what is defined has changed: what is free
								 * now is free at once, and not let go slowly */

	/* results of the step */
	int64_t		rate[DT_RESOURCES]; /* in force from now on */
	int			decides[DT_RESOURCES];	/* the signal, a DtSignal, that the
										 * rate is from when it is less than
										 * the limit; -1: it was so before */
	int64_t		share[DT_SIGNALS];	/* what each signal leaves to it */
	bool		probed;			/* it is to rest for a moment only */

	/* these belong to control.c */
	bool		is_new;			/* what it used before its first step is not
								 * known */
	int64_t		ease_us[DT_RESOURCES];	/* so long it is let go slowly */
	int64_t		watched_us;		/* for how long, up to a second */
	int64_t		last_used[DT_RESOURCES];
	int64_t		bytes[DT_RESOURCES];	/* since the last step, */
	int64_t		use_now[DT_RESOURCES];	/* that is, bytes/s, and ... */
	int64_t		use_rate[DT_RESOURCES]; /* ... a mean of the last second */
} DtPressureGroup;

extern void dt_pressure_group_init(DtPressureGroup *g, const int64_t *rate,
								   const int64_t *used, const int *decides);
extern void dt_controller_take_over(DtController *c, const DtController *before);
extern void dt_pressure_step(DtPressure *p, DtController *const *controllers,
							 int n_controllers, DtPressureGroup *const *groups,
							 int n, int64_t wal, int64_t now);

#endif							/* DT_CONTROL_H */
