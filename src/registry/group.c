/*-------------------------------------------------------------------------
 *
 * group.c
 *		Creating, changing and dropping resource groups.
 *
 * Definitions change in the catalog, and are put in force when the change has
 * committed; see load.c.  Suspending a group and resetting its counters
 * concern shared memory only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "registry/definitions.h"
#include "registry/group.h"
#include "registry/member.h"
#include "registry/text.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

static void
reset_stats(DtGroup *g, int64 now, TimestampTz wall_clock)
{
	int			r;

	memset(&g->stats, 0, sizeof(g->stats));
	g->forgiven = 0;
	g->stats_reset = wall_clock;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		g->usage[r].used = 0;
		dt_histogram_reset(&g->usage[r].histogram, now);
	}
}

/*
 * The rate in force, bytes/s: what is defined or, when that is less, what
 * pressure allows, but not less than the floor for that reason.
 */
static int64
effective_rate(const DtGroup *g, DtResource resource)
{
	int64		limit = g->definition.rate[resource];
	int64		allowed = g->pressure.rate[resource];

	if (allowed == 0)
		return limit;
	allowed = Max(allowed, g->definition.floor);
	return limit == 0 ? allowed : Min(limit, allowed);
}

/*
 * Put a rate that pressure has changed in force; what it makes the group
 * forgive is counted.
 */
static void
follow_pressure(DtGroup *g, DtResource resource, int64 now)
{
	DtRateGroup *rate = &g->usage[resource].rate;
	int64		before = rate->rate;
	int64		effective = effective_rate(g, resource);

	if (effective == before)
		return;
	if (effective == 0)
		g->forgiven += dt_rate_group_debt(rate, now);
	dt_rate_set(rate, effective, now);
	if (effective > 0 && effective < before)
		g->forgiven += dt_rate_bound_debts(rate, DT_PRESSURE_DEBT_US, now);
	pg_atomic_fetch_add_u32(&g->generation, 1);
}

/*
 * End the pressure of signals that the group does not follow any more, and
 * leave it to the others.  When these leave the group free, so it is, until
 * the sampler has looked.
 */
static void
forget_signals(DtGroup *g, int64 now)
{
	DtGroupPressure *pressure = &g->pressure;
	int			r;
	int			s;

	if (!dt_definition_follows(&g->definition, DT_CHECKPOINT))
		pressure->out_of_reach = false;
	if (pressure->signal >= 0 &&
		!dt_definition_follows(&g->definition, pressure->signal))
		pressure->signal = -1;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (pressure->decides[r] < 0 ||
			dt_definition_follows(&g->definition, pressure->decides[r]))
			continue;
		pressure->decides[r] = -1;
		pressure->rate[r] = 0;
		for (s = 0; s < DT_SIGNALS; s++)
		{
			int64		share = pressure->share[s];

			if (dt_signal_resource(s) != r || share == 0 ||
				!dt_definition_follows(&g->definition, s) ||
				(pressure->rate[r] > 0 && pressure->rate[r] <= share))
				continue;
			pressure->rate[r] = share;
			pressure->decides[r] = s;
		}
		follow_pressure(g, r, now);
	}
}

/*
 * Give a group the properties of its definition.  The caller holds the group's
 * lock, or nobody else knows of the group yet.
 */
static void
apply_definition(DtGroup *g, const DtDefinition *d, int64 now)
{
	bool		observe = (d->observe != 0);
	int			r;

	g->definition = *d;
	forget_signals(g, now);
	if (!dt_definition_follows_any(d))
		dt_pressure_clear(&g->pressure);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &g->usage[r].rate;
		int64		effective = effective_rate(g, r);

		if (rate->burst_us != d->burst_us)
			dt_rate_set_burst(rate, d->burst_us, now);
		/* what is owed in mode observe, or until then, is forgiven */
		if (observe != g->observe)
			dt_rate_set(rate, 0, now);
		if (rate->rate != effective)
			dt_rate_set(rate, effective, now);
	}
	g->observe = observe;
	pg_atomic_fetch_add_u32(&g->generation, 1);
}

void
dt_pressure_clear(DtGroupPressure *pressure)
{
	int			r;

	memset(pressure, 0, sizeof(*pressure));
	pressure->signal = -1;
	for (r = 0; r < DT_RESOURCES; r++)
		pressure->decides[r] = -1;
	pressure->expires = PG_INT64_MAX;
}

void
dt_group_set_pressure(DtGroup *g, const DtGroupPressure *pressure, bool wake)
{
	int64		now = dt_now_us();
	int			r;

	dt_group_lock(g);
	g->pressure = *pressure;
	for (r = 0; r < DT_RESOURCES; r++)
		follow_pressure(g, r, now);
	dt_group_unlock(g);
	if (wake)
		dt_member_wake_all(g);
}

DtPauseCause
dt_group_pause_cause(const DtGroup *g, DtResource resource)
{
	int			signal = g->pressure.decides[resource];

	if (signal < 0 || g->pressure.rate[resource] == 0 ||
		g->usage[resource].rate.rate == g->definition.rate[resource])
		return (DtPauseCause) resource;
	return (DtPauseCause) (DT_BY_SIGNAL + signal);
}

/*
 * Other sleepers find out when their slice is over.
 */
void
dt_group_end_pressure(DtGroup *g, int64 now)
{
	int			r;

	dt_pressure_clear(&g->pressure);
	for (r = 0; r < DT_RESOURCES; r++)
		follow_pressure(g, r, now);
}

void
dt_group_begin(DtGroup *g, const DtDefinition *d, uint64 id)
{
	int64		now = dt_now_us();
	int			r;

	g->observe = false;
	g->suspended_since = 0;
	g->suspended_hard = false;
	g->members = 0;
	g->paused = 0;
	g->n_role_debts = 0;
	memset(g->role_debts, 0, sizeof(g->role_debts));
	dt_pressure_clear(&g->pressure);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		/* less than a block is not worth a charge, also of WAL */
		dt_rate_init(&g->usage[r].rate, 0, BLCKSZ, now);
		dt_meter_reset(&g->usage[r].meter, now);
	}
	reset_stats(g, now, GetCurrentTimestamp());
	apply_definition(g, d, now);
	g->id = id;
}

void
dt_group_alter(DtGroup *g, const DtDefinition *d)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	apply_definition(g, d, now);
	dt_group_unlock(g);
	dt_member_wake_all(g);
}

void
dt_group_end(DtGroup *g)
{
	dt_member_take_out_all(g);
	g->id = 0;
}

static void
set_property(DtDefinition *d, DtProperty property, int64 value)
{
	switch (property)
	{
		case DT_DIRTY_LIMIT:
			d->rate[DT_DIRTY] = value;
			break;
		case DT_WAL_LIMIT:
			d->rate[DT_WAL] = value;
			break;
		case DT_BURST:
			d->burst_us = value;
			break;
		case DT_FLOOR:
			d->floor = value;
			break;
		case DT_OBSERVE:
			d->observe = value;
			break;
	}
}

/*
 * Append an entry.  Groups that are not in force, as there is no room for them,
 * count, too.
 */
static DtEntry *
add_entry(List **entries, const char *name)
{
	DtEntry    *entry = palloc0(sizeof(DtEntry));

	if (list_length(*entries) >= dt_shared->max_groups)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot define more than %d resource groups",
						dt_shared->max_groups),
				 errhint("Drop a resource group with drop_resource_group(), or increase dirty_throttle.max_groups and restart the server.")));
	dt_definition_init(&entry->definition, name);
	*entries = lappend(*entries, entry);
	return entry;
}

bool
dt_group_define(const char *name, DtProperty property, int64 value,
				DtDefine how)
{
	List	   *entries = dt_definitions_begin_change();
	DtEntry    *entry = dt_definitions_find(entries, name);
	bool		create = (entry == NULL);

	if (create && how == DT_ALTER)
		dt_group_missing(name);
	if (!create && how == DT_CREATE)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", name),
				 errhint("Use set_group_dirty_limit() to change its limit.")));
	if (create)
		entry = add_entry(&entries, name);
	set_property(&entry->definition, property, value);
	dt_definitions_write(entries);
	return create;
}

bool
dt_group_set_threshold(const char *name, DtSignal signal,
					   const DtThreshold *threshold)
{
	static const DtThreshold unused = {0};
	List	   *entries = dt_definitions_begin_change();
	DtEntry    *entry = dt_definitions_find(entries, name);
	DtThreshold *defined;

	if (threshold == NULL)
		threshold = &unused;
	if (entry == NULL)
		dt_group_missing(name);
	defined = &entry->definition.threshold[signal];
	if (memcmp(defined, threshold, sizeof(DtThreshold)) == 0)
		return false;
	*defined = *threshold;
	dt_definitions_write(entries);
	return true;
}

void
dt_group_rename(const char *old_name, const char *new_name)
{
	List	   *entries = dt_definitions_begin_change();
	DtEntry    *entry = dt_definitions_find(entries, old_name);

	if (entry == NULL)
		dt_group_missing(old_name);
	if (dt_definitions_find(entries, new_name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", new_name)));
	memset(entry->definition.name, 0, NAMEDATALEN);
	strlcpy(entry->definition.name, new_name, NAMEDATALEN);
	dt_definitions_write(entries);
}

/*
 * Sessions that join the group from now on leave it when the transaction
 * commits.
 */
static void
check_not_in_use(const char *name)
{
	DtGroup    *g;
	int			members = 0;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find(name);
	if (g != NULL)
	{
		dt_group_lock(g);
		members = g->members;
		dt_group_unlock(g);
	}
	LWLockRelease(dt_shared->registry_lock);
	if (members > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("resource group \"%s\" is in use", name),
				 errdetail_plural("%d session is a member of the group.",
								  "%d sessions are members of the group.",
								  members, members),
				 errhint("Use SELECT pid FROM dirty_throttle_sessions WHERE group_name = %s to list them, or drop_resource_group(..., force => true) to take them out of the group.",
						 quote_literal_cstr(name))));
}

bool
dt_group_drop(const char *name, bool missing_ok, bool force)
{
	List	   *entries = dt_definitions_begin_change();
	DtEntry    *entry = dt_definitions_find(entries, name);

	if (entry == NULL && !missing_ok)
		dt_group_missing(name);
	if (entry == NULL)
		return false;
	if (!force)
		check_not_in_use(name);
	dt_definitions_write(list_delete_ptr(entries, entry));
	return true;
}

void
dt_group_reset_stats(const char *name)
{
	bool		found = false;
	int			i;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		TimestampTz wall_clock = GetCurrentTimestamp();
		int64		now = dt_now_us();

		if (g->id == 0 ||
			(name != NULL && strcmp(g->definition.name, name) != 0))
			continue;
		found = true;
		dt_group_lock(g);
		reset_stats(g, now, wall_clock);
		dt_group_unlock(g);
	}
	LWLockRelease(dt_shared->registry_lock);
	if (!found && name != NULL)
		dt_group_missing(name);
}

bool
dt_group_set_suspended(const char *name, bool suspended, bool hard)
{
	TimestampTz now = GetCurrentTimestamp();
	DtGroup    *g;
	bool		was_suspended;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find_or_error(name);
	dt_group_lock(g);
	was_suspended = (g->suspended_since != 0);
	if (!suspended)
		g->suspended_since = 0;
	else if (!was_suspended)
		g->suspended_since = now;
	g->suspended_hard = hard;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);
	LWLockRelease(dt_shared->registry_lock);
	return was_suspended;
}
