/*-------------------------------------------------------------------------
 *
 * group.c
 *		What is in force of resource groups.
 *
 * Definitions change in the catalog, and load.c puts them in force when the
 * change has committed.  Pressure, suspending a group and resetting its
 * counters concern shared memory only.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/group.h"
#include "shared/member.h"
#include "shared/role_debt.h"
#include "utils/timestamp.h"

static void
reset_stats(DtGroup *g, TimestampTz now)
{
	memset(g->stats, 0, sizeof(g->stats));
	g->forgiven = 0;
	g->stats_reset = now;
	for (int r = 0; r < DT_RESOURCES; r++)
		g->usage[r].used = 0;
}

/*
 * The rate in force, bytes/s: what is defined or, when that is less, what
 * pressure allows, which the sampler does not let fall below the floor.
 */
static int64
effective_rate(const DtGroup *g, DtResource resource)
{
	int64		limit = g->definition.rate[resource];
	int64		allowed = g->pressure.rate[resource];

	if (allowed == 0)
		return limit;
	return limit == 0 ? allowed : Min(limit, allowed);
}

/*
 * Put a rate that pressure has changed in force; what it makes the group
 * forgive is counted.
 */
static void
follow_pressure(DtGroup *g, DtResource resource, int64 now)
{
	DtRateGroup *engine = &g->usage[resource].engine;
	int64		limit = g->definition.rate[resource];
	int64		effective = effective_rate(g, resource);

	if (effective != engine->rate)
	{
		if (effective == 0)
			g->forgiven += dt_rate_group_debt(engine, now);
		dt_rate_set(engine, limit, effective, now);
		pg_atomic_fetch_add_u32(&g->generation, 1);
	}
	g->forgiven += dt_rate_bound_debts(engine, now);
}

/*
 * What the group does not follow any more is not the reason for anything.  The
 * rates stay until the sampler has looked, which is woken for that.
 */
static void
forget_signals(DtGroup *g)
{
	DtGroupPressure *pressure = &g->pressure;

	if (!dt_definition_follows_any(&g->definition))
		dt_pressure_clear(pressure);
	if (pressure->signal >= 0 &&
		!dt_definition_follows(&g->definition, pressure->signal))
		pressure->signal = -1;
	for (int r = 0; r < DT_RESOURCES; r++)
		if (pressure->decides[r] >= 0 &&
			!dt_definition_follows(&g->definition, pressure->decides[r]))
			pressure->decides[r] = -1;
}

/*
 * Give a group the properties of its definition.  The caller holds the group's
 * lock, or nobody else knows of the group yet.
 */
static void
apply_definition(DtGroup *g, const DtDefinition *d, int64 now)
{
	bool		mode_changes = d->observe != g->definition.observe;

	g->definition = *d;
	forget_signals(g);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;
		int64		effective = effective_rate(g, r);

		if (engine->burst_us != d->burst_us)
			dt_rate_set_burst(engine, d->burst_us, now);
		/* what is owed in mode observe, or until then, is forgiven */
		if (mode_changes)
			dt_rate_set(engine, 0, 0, now);
		if (engine->limit != d->rate[r] || engine->rate != effective)
			dt_rate_set(engine, d->rate[r], effective, now);
	}
	pg_atomic_fetch_add_u32(&g->generation, 1);
}

/* Set *pressure to none. */
void
dt_pressure_clear(DtGroupPressure *pressure)
{
	memset(pressure, 0, sizeof(*pressure));
	pressure->signal = -1;
	for (int r = 0; r < DT_RESOURCES; r++)
		pressure->decides[r] = -1;
	pressure->expires = PG_INT64_MAX;
}

/*
 * What the sampler says of a group.  With "wake", sleepers look at their
 * accounts.
 */
void
dt_group_set_pressure(DtGroup *g, const DtGroupPressure *pressure, bool wake)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	g->pressure = *pressure;
	for (int r = 0; r < DT_RESOURCES; r++)
		follow_pressure(g, r, now);
	dt_group_unlock(g);
	if (wake)
		dt_member_wake_all(g);
}

/*
 * With g locked: end its pressure.  Other sleepers find out when their slice
 * is over.
 */
void
dt_group_end_pressure(DtGroup *g, int64 now)
{
	dt_pressure_clear(&g->pressure);
	for (int r = 0; r < DT_RESOURCES; r++)
		follow_pressure(g, r, now);
}

/*
 * These three put definitions in force.  The caller holds the registry lock
 * exclusively.
 *
 * dt_group_begin() makes a free slot a group without members.
 */
void
dt_group_begin(DtGroup *g, const DtDefinition *d, uint64 id)
{
	int64		now = dt_now_us();

	g->suspended_since = 0;
	g->members = 0;
	dt_pressure_clear(&g->pressure);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		/* less than a block is not worth a charge, also of WAL */
		dt_rate_init(&g->usage[r].engine, 0, BLCKSZ, now);
		dt_meter_reset(&g->usage[r].meter, now);
	}
	reset_stats(g, GetCurrentTimestamp());
	apply_definition(g, d, now);
	g->id = id;
}

/* Give a group another definition, and wake its members. */
void
dt_group_alter(DtGroup *g, const DtDefinition *d)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	apply_definition(g, d, now);
	dt_group_unlock(g);
	dt_member_wake_all(g);
}

/* Take the members out of a group, and free its slot. */
void
dt_group_end(DtGroup *g)
{
	int64		now;

	dt_member_take_out_all(g);
	now = dt_now_us();
	dt_group_lock(g);
	dt_role_debt_forget_all(g, now);
	g->id = 0;
	dt_group_unlock(g);
}

/* Set the counters of a group, or with NULL of all groups, to 0. */
void
dt_group_reset_stats(const char *name)
{
	bool		found = false;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		TimestampTz now = GetCurrentTimestamp();

		if (g->id == 0 ||
			(name != NULL && strcmp(g->definition.name, name) != 0))
			continue;
		found = true;
		dt_group_lock(g);
		reset_stats(g, now);
		dt_group_unlock(g);
	}
	LWLockRelease(dt_shared->registry_lock);
	if (!found && name != NULL)
		dt_group_missing(name);
}

/*
 * Suspend a group, or resume it.  The members of a suspended group pause after
 * their next transaction or, if that pause is canceled or not possible, before
 * the one that follows it.  A restart resumes all groups.  Returns whether the group
 * was suspended before.
 */
bool
dt_group_set_suspended(const char *name, bool suspended)
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
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);
	LWLockRelease(dt_shared->registry_lock);
	return was_suspended;
}
