/*-------------------------------------------------------------------------
 *
 * signals.c
 *		The table of the functions that look at signals.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "pressure/signals.h"

typedef DtLook (*LookFunction) (DtFound *found);

static const LookFunction looks[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = dt_look_replica_lag,
	[DT_SLOT_LAG] = dt_look_slot_lag,
	[DT_ARCHIVE_LAG] = dt_look_archive_lag,
	[DT_CHECKPOINT] = dt_look_checkpoint,
	[DT_WAL_RATE] = NULL,		/* the controller computes it itself */
	[DT_DISK_FREE] = dt_look_disk_free,
	[DT_KERNEL_DIRTY] = dt_look_kernel_dirty,
	[DT_IO_PRESSURE] = dt_look_io_pressure,
	[DT_COMMIT_LATENCY] = NULL, /* the sampler reads it itself */
	[DT_REPORTED] = NULL		/* each name is one */
};

/*
 * Look at a signal.  DT_LOOK_FAILED at the first look also means that the
 * signal is not to be had on this server.
 */
DtLook
dt_signal_look(DtSignal signal, int64 now, DtFound *found)
{
	memset(found, 0, sizeof(*found));
	found->at = now;
	if (RecoveryInProgress())
		return dt_no_look(found, DT_LOOK_NOTHING,
						  _("Signals are not measured during recovery."));
	return looks[signal] ? looks[signal] (found) : DT_LOOK_MEASURED;
}

/* There is no value for this reason, a sentence. */
DtLook
dt_no_look(DtFound *found, DtLook result, const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(found->reason, DT_REASON_SIZE, format, arguments);
	va_end(arguments);
	return result;
}
