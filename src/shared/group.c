/*-------------------------------------------------------------------------
 *
 * group.c
 *		Resource groups as they are in force, in shared memory.
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
 * pressure allows, which the sampler does not let fall below the floor.  A burst
 * is spent at what a budget allows.
 */
static int64
effective_rate(const DtGroup *g, DtResource resource)
{
	int64		limit = g->definition.rate[resource];
	int64		allowed = g->pressure.rate[resource];

	if (allowed == 0)
		return limit;
	return limit == 0 || g->pressure.spends[resource] ? allowed : Min(limit, allowed);
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
	for (int r = 0; r < DT_RESOURCES; r++)
		if (pressure->decides[r] >= 0 &&
			!dt_definition_follows(&g->definition, pressure->decides[r]))
			pressure->decides[r] = -1;
}

/* Give a group the properties of its definition, and forgive what is owed to it. */
static void
apply_definition(DtGroup *g, const DtDefinition *d, bool forgives)
{
	int64		now = dt_now_us();

	dt_group_lock(g);
	g->definition = *d;
	forget_signals(g);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;
		bool		budgeted = dt_definition_follows(d, DT_WAL_RATE) &&
			dt_signals[DT_WAL_RATE].resource == r;
		int64		effective;

		g->pressure.spends[r] &= budgeted && engine->limit == d->rate[r];
		if (engine->burst_us != d->burst_us)
			dt_rate_set_burst(engine, d->burst_us, now);
		if (engine->budgeted != budgeted)
			dt_rate_set_budgeted(engine, budgeted, now);
		effective = effective_rate(g, r);
		if (forgives)
			dt_rate_set(engine, 0, 0, now);
		if (engine->limit != d->rate[r] || engine->rate != effective)
			dt_rate_set(engine, d->rate[r], effective, now);
	}
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
}

/* Set *pressure to none. */
void
dt_pressure_clear(DtGroupPressure *pressure)
{
	memset(pressure, 0, sizeof(*pressure));
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

/* Does the instance have nothing to do and nothing to lose? */
static bool
is_idle(DtGroup *g, int64 now)
{
	bool		result;

	if (!OidIsValid(g->key) || g->differs || g->members > 0 ||
		g->suspended_since != 0)
		return false;
	dt_group_lock(g);
	result = dt_rate_group_debt(&g->usage[DT_DIRTY].engine, now) == 0 &&
		dt_rate_group_debt(&g->usage[DT_WAL].engine, now) == 0;
	dt_group_unlock(g);
	return result;
}

/* When was it last in use? */
static int64
used_at(const DtGroup *g)
{
	return Max(g->usage[DT_DIRTY].engine.busy_until,
			   g->usage[DT_WAL].engine.busy_until);
}

/*
 * The members of a slot go into another one of the same group: that one or, with
 * NULL, their own.  Those stay that cannot be moved or are about to exit.
 */
static void
put_members(DtGroup *from, DtGroup *to)
{
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtMember   *member = &dt_members[i];

		if (member->group == from && member->pid != 0)
			dt_member_put(member, to ? to : dt_group_slot_for(from, member));
	}
}

/* What is counted of an instance that ends remains counted of its group. */
static void
pass_stats(const DtGroup *g, DtGroup *own)
{
	dt_group_lock(own);
	for (int i = 0; i < DT_COUNTERS; i++)
		own->stats[i] += g->stats[i];
	own->forgiven += g->forgiven;
	for (int r = 0; r < DT_RESOURCES; r++)
		own->usage[r].used += g->usage[r].used;
	dt_group_unlock(own);
}

/* End a group or an instance that has no members. */
static void
free_slot(DtGroup *g)
{
	DtGroup    *own = dt_group_find_id(g->of);
	int64		now = dt_now_us();

	dt_group_lock(g);
	dt_role_debt_forget_all(g, now);
	g->id = 0;
	dt_group_unlock(g);
	if (own != g)
		pass_stats(g, own);
}

/*
 * A free slot or, if there is none, that of the idle instance that was used
 * longest ago; for what is defined ("must") that of any.  NULL: there is none.  A
 * background worker that SIGTERM ends here leaves an idle instance as it is, or none.
 */
static DtGroup *
find_slot(bool must)
{
	int64		now = dt_now_us();
	DtGroup    *idle = NULL;
	DtGroup    *any = NULL;

	for (int i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		dt_shared->n_groups = Max(dt_shared->n_groups, i + 1);
		if (g->id == 0)
			return g;
		if (is_idle(g, now) && (idle == NULL || used_at(g) < used_at(idle)))
			idle = g;
		if (OidIsValid(g->key) && !g->differs)
			any = g;
	}
	if (idle != NULL)
		free_slot(idle);
	else if (must && any != NULL)
	{
		idle = any;
		put_members(any, dt_group_find_id(any->of));
		dt_group_end(any);
	}
	return idle;
}

/*
 * What follows puts definitions in force.  The caller holds the registry lock
 * exclusively.
 *
 * Make a slot a group or, with its own slot, an instance of one, without members;
 * NULL: there is no slot.  The instance begins as its group is: with the share that a
 * member more would have of what signals leave, and suspended if that is.
 */
DtGroup *
dt_group_begin(const DtDefinition *d, DtGroup *own, Oid key, bool must)
{
	int64		now = dt_now_us();
	DtGroup    *g = find_slot(must);
	uint64		id;

	if (g == NULL)
		return NULL;
	id = ++dt_shared->last_group_id;
	g->of = own != NULL ? own->id : id;
	g->key = key;
	g->differs = false;
	g->suspended_since = own != NULL ? own->suspended_since : 0;
	g->members = 0;
	dt_pressure_clear(&g->pressure);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		/* less than a block is not worth a charge, also of WAL */
		dt_rate_init(&g->usage[r].engine, 0, BLCKSZ, now);
		dt_meter_reset(&g->usage[r].meter, now);
	}
	reset_stats(g, GetCurrentTimestamp());
	if (own != NULL)
	{
		dt_group_lock(own);
		g->pressure = own->pressure;
		dt_group_unlock(own);
	}
	apply_definition(g, d, false);
	g->id = id;
	if (dt_definition_follows_any(d))
		dt_sampler_wake();
	return g;
}

/* The slot for a member: an instance, which may begin, or the group's own. */
DtGroup *
dt_group_slot_for(DtGroup *own, const DtMember *member)
{
	DtGroup    *g = dt_group_slot(own, member);

	if (g == NULL)
		g = dt_group_begin(&own->definition, own, dt_group_key(own, member), false);
	return g != NULL ? g : own;
}

/* The members are to be in instances for others than until now, or in none. */
static void
end_instances(DtGroup *own)
{
	for (int i = 0; i < dt_shared->n_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id == 0 || g == own || g->of != own->id)
			continue;
		put_members(g, own);
		dt_group_end(g);
	}
}

/*
 * Give a group or an instance another definition, and wake its members.  What is owed
 * in mode observe, or until then, is forgiven.  So is what is owed when the scope
 * changes, at the end, as members that wake before they are moved may owe more by then.
 */
void
dt_group_alter(DtGroup *g, const DtDefinition *d)
{
	bool		scope_changes = d->scope != g->definition.scope;

	if (scope_changes)
		end_instances(g);
	apply_definition(g, d, d->observe != g->definition.observe);
	if (scope_changes)
	{
		put_members(g, NULL);
		apply_definition(g, d, true);
	}
	dt_member_wake_all(g);
}

/* Take the members out of a group or an instance, and free its slots. */
void
dt_group_end(DtGroup *g)
{
	if (g->of == g->id)
		end_instances(g);
	dt_member_take_out_all(g);
	free_slot(g);
}

/* Set the counters of a group, or with NULL of all groups, to 0. */
void
dt_group_reset_stats(const char *name)
{
	bool		found = false;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups; i++)
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

static void
set_suspended(DtGroup *g, bool suspended, TimestampTz now)
{
	dt_group_lock(g);
	if (!suspended)
		g->suspended_since = 0;
	else if (g->suspended_since == 0)
		g->suspended_since = now;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);
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
	DtGroup    *own;
	bool		was_suspended;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	own = dt_group_find_or_error(name);
	was_suspended = own->suspended_since != 0;
	for (int i = 0; i < dt_shared->n_groups; i++)
		if (dt_groups[i].id != 0 && dt_groups[i].of == own->id)
			set_suspended(&dt_groups[i], suspended, now);
	LWLockRelease(dt_shared->registry_lock);
	return was_suspended;
}

void
dt_group_move(int pid, const char *name)
{
	DtGroup    *own = NULL;
	DtMember   *member;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (name != NULL && name[0] != '\0')
		own = dt_group_find_or_error(name);
	member = dt_member_find(pid);
	if (name != NULL || member->moved)
	{
		member->moved = (name != NULL); /* before it is woken */
		dt_member_put(member, own ? dt_group_slot_for(own, member) : NULL);
	}
	LWLockRelease(dt_shared->registry_lock);
}
