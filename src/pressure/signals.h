/*-------------------------------------------------------------------------
 *
 * signals.h
 *		Looking at the signals of pressure, here and now.
 *
 * A function for each signal, but wal_rate, commit_latency and reported ones, looks at the
 * server's shared memory or at files of the kernel, without SQL, a transaction or
 * a heavyweight lock, so it works in any process.  Files: replication.c, wal.c, checkpoint.c,
 * kernel.c, reports.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SIGNALS_H
#define DT_SIGNALS_H

#include "engine/drain.h"
#include "shared/shmem.h"

/* What came of a look at a signal. */
typedef enum DtLook
{
	DT_LOOK_MEASURED,			/* there is a value */
	DT_LOOK_NOTHING,			/* there is nothing to measure: no standby */
	DT_LOOK_FAILED				/* it cannot be measured now, or here */
} DtLook;

typedef struct DtFound
{
	int64		value;			/* in the unit of the signal, ... */
	int64		other;			/* ... as a DtController has it */
	int64		at;				/* when that was so, us; 0: not known yet */
	DtCommits	commits;		/* of commit_latency, and set by the sampler */

	/* law queue: the queues, until the next look */
	int			n;
	const DtDrain *const *drains;

	char		reason[DT_REASON_SIZE]; /* why there is no value; or empty */
} DtFound;

extern DtLook dt_signal_look(DtSignal signal, int64 now, DtFound *found);

/* The functions for these, which dt_signal_look() calls. */
extern DtLook dt_look_replica_lag(DtFound *found);
extern DtLook dt_look_slot_lag(DtFound *found);
extern DtLook dt_look_archive_lag(DtFound *found);
extern DtLook dt_look_disk_free(DtFound *found);
extern DtLook dt_look_checkpoint(DtFound *found);
extern DtLook dt_look_kernel_dirty(DtFound *found);
extern DtLook dt_look_io_pressure(DtFound *found);

extern DtLook dt_no_look(DtFound *found, DtLook result, const char *format,...)
			pg_attribute_printf(3, 4);
extern int64 dt_wal_rate_without_force(void);
extern int64 dt_max_wal_size_for(int64 rate);
extern DtLook dt_look_kernel_background(DtFound *found);

extern bool dt_report(const DtReport *report);
extern int	dt_reports(DtReport *reports);
extern DtLook dt_look_report(const char *name, DtFound *found);

extern void dt_sampler_init(void);

#endif							/* DT_SIGNALS_H */
