/*-------------------------------------------------------------------------
 *
 * signals.c
 *		Which signals of pressure are to be had on this server.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pressure/signals.h"
#include "replication/slot.h"
#include "replication/walsender.h"

#include "compat.h"

bool
dt_signal_is_available(DtSignal signal, DtUnit unit, char *reason)
{
	int64		value;

	switch (signal)
	{
		case DT_REPLICA_LAG:
			if (max_wal_senders > 0)
				return true;
			strlcpy(reason, _("No standby can connect, since max_wal_senders is 0."),
					DT_REASON_SIZE);
			return false;
		case DT_SLOT_LAG:
			if (dt_max_slots > 0)
				return true;
			strlcpy(reason, _("There cannot be a replication slot, since max_replication_slots is 0."),
					DT_REASON_SIZE);
			return false;
		case DT_CHECKPOINT:
		case DT_DIRTY_BUFFERS:
			return true;
		case DT_KERNEL_DIRTY:
			return dt_look_kernel_dirty(&value, reason) == DT_LOOK_MEASURED &&
				(unit != DT_UNIT_SHARE ||
				 dt_look_kernel_limit(&value, reason) == DT_LOOK_MEASURED);
		case DT_IO_PRESSURE:
			return dt_look_io_stall(&value, reason) == DT_LOOK_MEASURED;
	}
	return false;
}
