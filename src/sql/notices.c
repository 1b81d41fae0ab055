/*-------------------------------------------------------------------------
 *
 * notices.c
 *		What follows from a threshold that is set, if that may be unexpected.
 *
 * What was set is written, and is meant; but on this server, or together with what
 * else is defined, something unexpected may follow from it.  These notices report
 * it, with figures, and say what to do.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "postmaster/bgwriter.h"
#include "pressure/signals.h"
#include "shared/amount.h"
#include "sql/notices.h"
#include "storage/procarray.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"

#include "compat.h"

/*
 * Dirty memory below what the kernel waits for is not written until it is old,
 * so a group that is kept there, at two thirds of its threshold, waits for
 * that.
 */
static void
notice_kernel_waits(const DtThreshold *t)
{
	DtFound		background;

	if (dt_look_kernel_background(&background) == DT_LOOK_MEASURED &&
		t->value / 3 * 2 < background.value)
		ereport(NOTICE,
				(errmsg("two thirds of the threshold are less than the dirty memory at which the kernel begins to write"),
				 errdetail("The kernel begins at " INT64_FORMAT " MB, as vm.dirty_background_bytes or vm.dirty_background_ratio says. Less than that is written only when it is old, and the group is slowed down for that long.",
						   background.value / 1000000),
				 errhint("Set a higher threshold, or a lower vm.dirty_background_bytes.")));
}

/*
 * Signal checkpoint has no threshold, so tell what it comes to.  What others
 * write of that is known only when the signal is followed.
 */
static void
notice_budget(const DtDefinition *d)
{
	int64		budget = dt_wal_rate_without_force();

	ereport(NOTICE,
			(errmsg("all sessions together can write " INT64_FORMAT " KB/s of WAL without forcing a checkpoint",
					budget / 1000),
			 errdetail("This is what fits between two timed checkpoints, with max_wal_size = %d MB and checkpoint_timeout = %d s. Resource group \"%s\" gets what others leave, but at least its floor.",
					   max_wal_size_mb, CheckPointTimeout, d->name),
			 errhint("Twice as much fits with a max_wal_size of " INT64_FORMAT " MB.",
					 dt_max_wal_size_for(2 * budget))));
}

/* A group that ignores as many standbys as there are is slowed down by nobody. */
static void
notice_standbys(const DtDefinition *d, DtSignal signal, const DtFound *found)
{
	if (found->n <= d->threshold[signal].ignore)
		ereport(NOTICE,
				(errmsg("signal \"%s\" slows no group down at present",
						dt_signals[signal].name),
				 errdetail_plural("The %d standby that is streaming is ignored.",
								  "All %d standbys that are streaming are ignored.",
								  found->n, found->n)));
}

/*
 * What is known of the signal already: is the threshold not kept?  Below that of
 * disk_free nothing is left but the floor; of what drains some is left.
 */
static void
notice_value(const DtDefinition *d, DtSignal signal, const DtFound *found)
{
	const DtThreshold *t = &d->threshold[signal];
	int64		threshold = t->value;
	bool		is_less = dt_signals[signal].law == DT_LAW_RESERVE;

	if (signal == DT_REPLICA_LAG)
	{
		notice_standbys(d, signal, found);
		return;
	}
	if (t->unit == DT_UNIT_NONE || dt_signals[signal].unit != DT_UNIT_BYTES ||
		dt_signals[signal].resource != DT_WAL)
		return;					/* it changes by itself, or takes time to
								 * measure */
	if (is_less && t->unit == DT_UNIT_SHARE)
		threshold = muldiv64(found->other, t->value, 1000000);
	if (is_less ? found->value >= threshold : found->value <= threshold)
		return;
	ereport(NOTICE,
			(is_less ?
			 errmsg("signal \"%s\" slows resource group \"%s\" down to its floor at present",
					dt_signals[signal].name, d->name) :
			 errmsg("signal \"%s\" is above the threshold of resource group \"%s\" at present",
					dt_signals[signal].name, d->name),
			 errdetail("Its value is %s, and its threshold %s.",
					   dt_amount_about(dt_signals[signal].unit, found->value),
					   dt_amount_about(dt_signals[signal].unit, threshold))));
}

/*
 * Of groups with different thresholds those with the stricter one get less, and
 * the signal ends up between what each of them aims at.
 */
static void
notice_other_threshold(List *entries, const DtDefinition *d, DtSignal signal)
{
	const DtThreshold *t = &d->threshold[signal];

	if (signal == DT_REPORTED || t->unit == DT_UNIT_NONE)
		return;
	foreach_ptr(DtEntry, entry, entries)
	{
		const DtDefinition *other = &entry->definition;

		if (other == d || !dt_definition_follows(other, signal) ||
			(other->threshold[signal].unit == t->unit &&
			 other->threshold[signal].value == t->value))
			continue;
		ereport(NOTICE,
				(errmsg("resource group \"%s\" follows signal \"%s\" at another threshold",
						other->name, dt_signals[signal].name),
				 errdetail("The group with the stricter threshold gets less, down to its floor, and the signal may exceed that threshold."),
				 errhint("Set the same threshold for groups that are to share.")));
		break;
	}
}

/* Is the session of this process in a group that follows the signal, or will be? */
static bool
is_in_follower(int pid, const DtDefinition *d)
{
	PGPROC	   *proc = BackendPidGetProc(pid);
	DtGroup    *g = proc != NULL ? dt_member_of(proc)->group : NULL;

	return g != NULL &&
		(dt_definition_follows(&g->definition, DT_COMMIT_LATENCY) ||
		 strcmp(g->definition.name, d->name) == 0);
}

/*
 * Commits count of those who are in no group that follows the signal, and of members
 * that owe nothing, as those that write little do if there is an allowance.
 */
static void
notice_nobody_outside(const DtDefinition *d)
{
	int			inside = 0;

	for (int i = 1; i <= pgstat_fetch_stat_numbackends(); i++)
	{
		PgBackendStatus *b =
			&pgstat_get_local_beentry_by_index(i)->backendStatus;

		if (b->st_backendType != B_BACKEND || b->st_procpid == MyProcPid)
			continue;
		if (!is_in_follower(b->st_procpid, d))
			return;
		inside++;
	}
	if (inside > 0)
		ereport(NOTICE,
				(errmsg("signal \"%s\" protects only members that owe nothing at present",
						dt_signals[DT_COMMIT_LATENCY].name),
				 errdetail_plural("The %d other session is in a group that follows it, where only commits of sessions that owe nothing count.",
								  "All %d other sessions are in groups that follow it, where only commits of sessions that owe nothing count.",
								  inside, inside),
				 errhint("Put only those sessions into the group that are to be slowed down, or use alter_resource_group(%s, allowance => '1 MB'), so that small transactions neither owe nor pause.",
						 quote_literal_cstr(d->name))));
}

/* A limit or a budget that a floor reaches leaves nothing to a signal. */
void
dt_notice_floor(const DtDefinition *d)
{
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		bool		follows = false;

		for (int s = 0; s < DT_SIGNALS; s++)
			follows |= dt_definition_follows(d, s) &&
				dt_signals[s].resource == r;
		if (follows && d->rate[r] > 0 && d->floor >= d->rate[r])
			ereport(NOTICE,
					(errmsg("no signal slows resource group \"%s\" down below its %s",
							d->name, dt_property(r == DT_WAL ? "wal" : "dirty")->label),
					 errdetail("Its floor is %s/s, and the limit %s/s.",
							   dt_amount_about(DT_UNIT_BYTES, d->floor),
							   dt_amount_about(DT_UNIT_BYTES, d->rate[r])),
					 errhint("Use SELECT alter_resource_group(%s, floor => ...) to set a lower one.",
							 quote_literal_cstr(d->name))));
	}
	if (dt_definition_follows(d, DT_WAL_RATE) &&
		d->floor >= d->threshold[DT_WAL_RATE].value)
		ereport(NOTICE,
				(errmsg("signal \"wal_rate\" does not slow resource group \"%s\" down below its budget",
						d->name),
				 errdetail("The floor of the group is %s/s, and the budget of the server %s/s.",
						   dt_amount_about(DT_UNIT_BYTES, d->floor),
						   dt_amount_about(DT_UNIT_BYTES, d->threshold[DT_WAL_RATE].value)),
				 errhint("Use SELECT alter_resource_group(%s, floor => ...) to set a lower one.",
						 quote_literal_cstr(d->name))));
}

/* What other groups and sessions mean for a group that begins to follow a signal. */
void
dt_notice_others(List *entries, const DtDefinition *d, DtSignal signal)
{
	notice_other_threshold(entries, d, signal);
	if (signal == DT_COMMIT_LATENCY)
		notice_nobody_outside(d);
}

/* Signals are measured by a worker, which may have found no place. */
void
dt_notice_sampler(void)
{
	if (!dt_sampler_runs())
		ereport(NOTICE,
				(errmsg("signals are not measured at present"),
				 errdetail("The background worker \"dirty_throttle pressure\" is not running."),
				 errhint("If max_worker_processes is too small for all workers, increase it and restart the server.")));
}

/*
 * A group follows a signal; "look" is what has come of a look at that.
 */
void
dt_notice_pressure(List *entries, const DtDefinition *d, DtSignal signal,
				   DtLook look, const DtFound *found)
{
	if (look == DT_LOOK_NOTHING)
		ereport(NOTICE,
				(errmsg("signal \"%s\" slows no group down at present",
						dt_definition_signal_name(d, signal)),
				 errdetail_internal("%s", found->reason)));
	else
		notice_value(d, signal, found);
	dt_notice_others(entries, d, signal);
	dt_notice_floor(d);
	if (signal == DT_KERNEL_DIRTY)
		notice_kernel_waits(&d->threshold[signal]);
	if (signal == DT_CHECKPOINT)
		notice_budget(d);
	dt_notice_sampler();
}
