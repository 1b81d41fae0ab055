/*-------------------------------------------------------------------------
 *
 * signal_info.c
 *		What is known of a signal of pressure, for the view.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "pressure/signals.h"
#include "registry/shmem.h"
#include "sql/signal_info.h"
#include "utils/timestamp.h"

static int
count_followers(DtSignal signal)
{
	int			n = 0;
	int			i;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
		if (dt_groups[i].id != 0 &&
			dt_definition_follows(&dt_groups[i].definition, signal))
			n++;
	LWLockRelease(dt_shared->registry_lock);
	return n;
}

/*
 * The time on the wall clock, for one of the monotonic clock.
 */
static TimestampTz
wall_clock(int64 us)
{
	return GetCurrentTimestamp() - (dt_now_us() - us);
}

/*
 * What the sampler knows.  It may have ended since, so the age counts here as
 * it does in the laws.
 */
static void
view_sampled(const DtSignalInfo *info, DtSignalView *view)
{
	int64		age = dt_now_us() - info->read_at;

	view->state = info->state;
	if (info->reason[0] != '\0')
		strlcpy(view->reason, info->reason, DT_REASON_SIZE);
	if (info->read_at == 0)
		return;
	view->measured_at = wall_clock(info->read_at);
	if (age >= DT_STALE_US + DT_STALE_COUNTS_US)
		view->state = DT_SIGNAL_ABSENT;
	else if (age >= DT_STALE_US && view->state == DT_SIGNAL_FRESH)
		view->state = DT_SIGNAL_STALE;
	if (age >= DT_STALE_US)
		view->stale_since = wall_clock(info->read_at + DT_STALE_US);
	view->out_of_reach = info->out_of_reach &&
		view->state == DT_SIGNAL_FRESH;
	view->has_value = view->state != DT_SIGNAL_ABSENT;
	view->value = info->value;
}

static void
view_look(DtSignal signal, DtSignalView *view)
{
	DtCheckpointSeen seen = {0};
	DtLook		result = DT_LOOK_NOTHING;
	int64		now = dt_now_us();
	int64		time_left;

	switch (signal)
	{
		case DT_REPLICA_LAG:
		case DT_IO_PRESSURE:
			return;				/* one look is not enough */
		case DT_SLOT_LAG:
			result = dt_look_slot_lag((int64) GetXLogInsertRecPtr(),
									  &view->value, view->reason);
			break;
		case DT_CHECKPOINT:
			dt_look_checkpoint(&seen, now, &view->value, &time_left);
			result = DT_LOOK_MEASURED;
			break;
		case DT_DIRTY_BUFFERS:
			view->value = dt_look_dirty_buffers();
			result = DT_LOOK_MEASURED;
			break;
		case DT_KERNEL_DIRTY:
			result = dt_look_kernel_dirty(&view->value, view->reason);
			break;
	}
	view->has_value = result == DT_LOOK_MEASURED;
	if (view->has_value)
		view->measured_at = GetCurrentTimestamp();
}

void
dt_signal_view(DtSignal signal, DtSignalView *view)
{
	DtSignalInfo info;

	memset(view, 0, sizeof(*view));
	view->state = DT_SIGNAL_ABSENT;
	view->groups = count_followers(signal);
	view->available = dt_signal_is_available(signal, DT_UNIT_NONE,
											 view->reason);
	if (RecoveryInProgress())
	{
		if (view->available)
			strlcpy(view->reason, _("Signals are not measured during recovery."),
					DT_REASON_SIZE);
		return;
	}
	dt_spin_lock(&dt_shared->sampled.lock);
	info = dt_shared->sampled.signals[signal];
	dt_spin_unlock(&dt_shared->sampled.lock);
	if (view->groups > 0 && !dt_sampler_runs())
		strlcpy(view->reason,
				_("The background worker \"dirty_throttle pressure\" is not running."),
				DT_REASON_SIZE);
	if (view->groups > 0 && info.followed)
		view_sampled(&info, view);
	else if (view->groups == 0 && view->available)
		view_look(signal, view);
}
