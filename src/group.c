/*-------------------------------------------------------------------------
 *
 * group.c
 *		The registry of resource groups in shared memory.
 *
 * A change is planned under the change lock, made durable, and only then
 * applied, by steps that cannot fail.  Locks: see registry.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "grant.h"
#include "group.h"
#include "guc.h"
#include "member.h"
#include "miscadmin.h"
#include "registry.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Roles that may join groups, for each group that can be defined. */
#define GRANTS_PER_GROUP	16

DtShared   *dt_shared = NULL;
DtGroup    *dt_groups = NULL;
DtMember   *dt_members = NULL;
DtGrantSlot *dt_grants = NULL;

static Size
groups_size(int max_groups)
{
	return mul_size(max_groups, sizeof(DtGroup));
}

static Size
members_size(void)
{
	return mul_size(MaxBackends, sizeof(DtMember));
}

static Size
grants_size(int max_groups)
{
	return mul_size(mul_size(max_groups, GRANTS_PER_GROUP),
					sizeof(DtGrantSlot));
}

void
dt_group_shmem_request(void)
{
	Size		size = MAXALIGN(sizeof(DtShared));

	size = add_size(size, add_size(groups_size(dt_max_groups),
								   PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(members_size(), PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(grants_size(dt_max_groups),
								   PG_CACHE_LINE_SIZE));
	RequestAddinShmemSpace(size);
	RequestNamedLWLockTranche("dirty_throttle", 2);
}

/*
 * Nested when a timer's handler has come in between.  It may come between any
 * two steps here, too, and what it finds and leaves must be right: whoever
 * finds 0 notes the mask, so that is noted after the count, and read before.
 */
static volatile sig_atomic_t deferring = 0;
static sigset_t mask_before;

void
dt_group_defer_termination(void)
{
	sigset_t	sigterm;
	sigset_t	old;

	sigemptyset(&sigterm);
	sigaddset(&sigterm, SIGTERM);
	sigprocmask(SIG_BLOCK, &sigterm, &old);
	if (deferring++ == 0)
	{
		pg_compiler_barrier();
		mask_before = old;
	}
}

void
dt_group_allow_termination(void)
{
	sigset_t	mask = mask_before;

	pg_compiler_barrier();
	if (--deferring == 0)
		sigprocmask(SIG_SETMASK, &mask, NULL);
}

bool
dt_group_available(void)
{
	return dt_shared != NULL;
}

static void
reset_stats(DtGroup *g, int64 now, TimestampTz wall_clock)
{
	int			r;

	memset(&g->stats, 0, sizeof(g->stats));
	g->stats_reset = wall_clock;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		g->use[r].used = 0;
		dt_profile_reset(&g->use[r].profile, now);
	}
}

/*
 * Make a group what its definition says.  Under its lock, or before anybody
 * else is there.
 */
static void
apply_definition(DtGroup *g, const DtDefinition *d, int64 now)
{
	bool		observe = (d->observe != 0);
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &g->use[r].rate;

		if (rate->burst_us != d->burst_us)
			dt_rate_set_burst(rate, d->burst_us, now);
		/* nobody has to pay for what was only observed */
		if (observe != g->observe)
			dt_rate_set(rate, 0, now);
		if (rate->rate != d->rate[r])
			dt_rate_set(rate, d->rate[r], now);
	}
	g->observe = observe;
	pg_atomic_fetch_add_u32(&g->generation, 1);
}

/*
 * Make slot g an empty group.  Under the registry lock, or before anybody
 * else is there.
 */
static void
init_group(DtGroup *g, const DtDefinition *d)
{
	int64		now = dt_now_us();
	int			r;

	strlcpy(g->name, d->name, NAMEDATALEN);
	g->being_dropped = false;
	g->observe = false;
	g->stopped_since = 0;
	g->stopped_hard = false;
	g->members = 0;
	g->paused = 0;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		/* a block is the smallest amount worth a charge, of WAL, too */
		dt_rate_init(&g->use[r].rate, 0, BLCKSZ, now);
		dt_meter_reset(&g->use[r].meter, now);
	}
	reset_stats(g, now, GetCurrentTimestamp());
	apply_definition(g, d, now);
	g->id = ++dt_shared->last_id;
}

/*
 * The groups of the definitions file.  More of them than max_groups allows is
 * a mistake of configuration that must not cost anybody a definition, so it
 * stops the start, as it does with replication slots.
 */
static void
load_definitions(void)
{
	DtDefinitions d;
	int			needed;
	int			i;

	dt_store_read(&d);
	needed = Max(d.n_groups,
				 (d.n_grants + GRANTS_PER_GROUP - 1) / GRANTS_PER_GROUP);
	if (needed > dt_shared->max_groups)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("%d resource groups are defined, but dirty_throttle.max_groups is %d",
						d.n_groups, dt_shared->max_groups),
				 errhint("Set dirty_throttle.max_groups to %d or more and start the server again.",
						 needed)));
	for (i = 0; i < d.n_groups; i++)
		init_group(&dt_groups[i], &d.groups[i]);
	for (i = 0; i < d.n_grants; i++)
	{
		dt_grants[i].group_id = dt_registry_find(d.grants[i].group_name)->id;
		dt_grants[i].role = d.grants[i].role;
	}
}

void
dt_group_shmem_startup(void)
{
	bool		found;
	int			i;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dt_shared = ShmemInitStruct("dirty_throttle", sizeof(DtShared), &found);
	if (!found)
	{
		LWLockPadded *locks = GetNamedLWLockTranche("dirty_throttle");

		memset(dt_shared, 0, sizeof(DtShared));
		dt_shared->change_lock = &locks[0].lock;
		dt_shared->registry_lock = &locks[1].lock;
		dt_shared->max_groups = dt_max_groups;
		dt_shared->n_members = MaxBackends;
		dt_shared->max_grants = dt_max_groups * GRANTS_PER_GROUP;
		pg_atomic_init_u64(&dt_shared->version, 1);
		pg_atomic_init_u32(&dt_shared->enabled, dt_enabled);
	}

	dt_grants = ShmemInitStruct("dirty_throttle grants",
							 grants_size(dt_shared->max_groups), &found);
	if (!found)
		memset(dt_grants, 0, grants_size(dt_shared->max_groups));

	dt_groups = ShmemInitStruct("dirty_throttle groups",
							 groups_size(dt_shared->max_groups), &found);
	if (!found)
	{
		memset(dt_groups, 0, groups_size(dt_shared->max_groups));
		for (i = 0; i < dt_shared->max_groups; i++)
		{
			SpinLockInit(&dt_groups[i].lock);
			pg_atomic_init_u32(&dt_groups[i].generation, 0);
		}
		load_definitions();
	}

	dt_members = ShmemInitStruct("dirty_throttle members", members_size(),
							  &found);
	if (!found)
		memset(dt_members, 0, members_size());
	LWLockRelease(AddinShmemInitLock);
}

uint64
dt_group_registry_version(void)
{
	return pg_atomic_read_u64(&dt_shared->version);
}

bool
dt_group_throttling_enabled(void)
{
	return pg_atomic_read_u32(&dt_shared->enabled) != 0;
}

/*
 * The postmaster has read a new value of dirty_throttle.enabled.  It touches
 * nothing but atomics here.  Right after this it sends SIGHUP to all its
 * children, which wakes the sleepers; those that run see the generation.
 */
void
dt_group_publish_enabled(bool enabled)
{
	int			i;

	pg_atomic_write_u32(&dt_shared->enabled, enabled);
	for (i = 0; i < dt_shared->max_groups; i++)
		pg_atomic_fetch_add_u32(&dt_groups[i].generation, 1);
}

DtGroup *
dt_registry_find(const char *name)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups; i++)
		if (dt_groups[i].id != 0 && !dt_groups[i].being_dropped &&
			strcmp(dt_groups[i].name, name) == 0)
			return &dt_groups[i];
	return NULL;
}

DtGroup *
dt_registry_find_id(uint64 id)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups && id != 0; i++)
		if (dt_groups[i].id == id && !dt_groups[i].being_dropped)
			return &dt_groups[i];
	return NULL;
}

static DtGroup *
find_free(void)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups; i++)
		if (dt_groups[i].id == 0)
			return &dt_groups[i];
	return NULL;
}

uint64
dt_group_lookup(const char *name)
{
	DtGroup    *g;
	uint64		id;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_registry_find(name);
	id = g ? g->id : 0;
	LWLockRelease(dt_shared->registry_lock);
	return id;
}

void
dt_group_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist", name),
			 errhint("The view dirty_throttle_groups lists the resource groups.")));
}

void
dt_registry_copy(DtDefinitions *d)
{
	int			i;

	d->n_groups = d->n_grants = 0;
	d->groups = palloc0((dt_shared->max_groups + 1) * sizeof(DtDefinition));
	d->grants = palloc0((dt_shared->max_grants + 1) * sizeof(DtGrant));
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtDefinition *definition = &d->groups[d->n_groups];

		if (g->id == 0)
			continue;
		strlcpy(definition->name, g->name, NAMEDATALEN);
		/* only written by who holds the change lock */
		definition->rate[DT_DIRTY] = g->use[DT_DIRTY].rate.rate;
		definition->rate[DT_WAL] = g->use[DT_WAL].rate.rate;
		definition->burst_us = g->use[DT_DIRTY].rate.burst_us;
		definition->observe = g->observe;
		d->n_groups++;
	}
	for (i = 0; i < dt_shared->max_grants; i++)
	{
		DtGroup    *g = dt_registry_find_id(dt_grants[i].group_id);

		if (g == NULL)
			continue;
		strlcpy(d->grants[d->n_grants].group_name, g->name, NAMEDATALEN);
		d->grants[d->n_grants++].role = dt_grants[i].role;
	}
}

/* The definition with that name, which must be among them. */
static DtDefinition *
definition_of(const DtDefinitions *d, const char *name)
{
	DtDefinition *definition = d->groups;

	while (strcmp(definition->name, name) != 0)
		definition++;
	return definition;
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
		case DT_OBSERVE:
			d->observe = value;
			break;
	}
}

/*
 * Create or alter a group.  Returns whether it was created.
 */
bool
dt_group_define(const char *name, DtProperty property, int64 value,
				DtDefine how)
{
	DtDefinitions d;
	DtDefinition *definition;
	DtGroup    *g;
	bool		create;

	dt_grant_begin_change();
	g = dt_registry_find(name);
	create = (g == NULL);
	if (create && how == DT_ALTER)
		dt_group_missing(name);
	if (!create && how == DT_CREATE)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", name),
				 errhint("Use set_group_dirty_limit() to change its limit.")));
	if (create && (g = find_free()) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all %d resource groups are in use",
						dt_shared->max_groups),
				 errhint("Drop one with drop_resource_group(), or set dirty_throttle.max_groups to more than %d and restart the server.",
						 dt_shared->max_groups)));

	dt_registry_copy(&d);
	if (create)
	{
		strlcpy(d.groups[d.n_groups].name, name, NAMEDATALEN);
		d.groups[d.n_groups++].burst_us = DT_RATE_DEFAULT_BURST_US;
	}
	definition = definition_of(&d, name);
	set_property(definition, property, value);
	dt_store_write(&d);

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (create)
	{
		init_group(g, definition);
		pg_atomic_fetch_add_u64(&dt_shared->version, 1);
	}
	else
	{
		int64		now = dt_now_us();

		dt_group_lock(g);
		apply_definition(g, definition, now);
		dt_group_unlock(g);
		dt_member_wake_all(g);
	}
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
	return create;
}

void
dt_group_rename(const char *old_name, const char *new_name)
{
	DtDefinitions d;
	DtGroup    *g;
	int			i;

	dt_grant_begin_change();
	g = dt_registry_find(old_name);
	if (g == NULL)
		dt_group_missing(old_name);
	if (dt_registry_find(new_name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", new_name)));

	dt_registry_copy(&d);
	namestrcpy((Name) definition_of(&d, old_name)->name, new_name);
	for (i = 0; i < d.n_grants; i++)
		if (strcmp(d.grants[i].group_name, old_name) == 0)
			namestrcpy((Name) d.grants[i].group_name, new_name);
	dt_store_write(&d);

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	strlcpy(g->name, new_name, NAMEDATALEN);
	pg_atomic_fetch_add_u64(&dt_shared->version, 1);
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
}

/*
 * Drop a group; false when there is none and missing_ok.  From the check that
 * nobody uses it until the file is written, nobody may join it.
 */
bool
dt_group_drop(const char *name, bool missing_ok, bool force)
{
	DtDefinitions d;
	DtGroup    *g;
	int			in_use;
	int			i;
	int			n = 0;

	dt_grant_begin_change();
	g = dt_registry_find(name);
	if (g == NULL)
	{
		if (!missing_ok)
			dt_group_missing(name);
		LWLockRelease(dt_shared->change_lock);
		return false;
	}

	dt_registry_copy(&d);
	*definition_of(&d, name) = d.groups[--d.n_groups];
	for (i = 0; i < d.n_grants; i++)
		if (strcmp(d.grants[i].group_name, name) != 0)
			d.grants[n++] = d.grants[i];
	d.n_grants = n;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	dt_group_lock(g);
	in_use = g->members;
	dt_group_unlock(g);
	if (in_use > 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("resource group \"%s\" is in use", name),
				 errdetail_plural("%d session is a member of it.",
								  "%d sessions are members of it.",
								  in_use, in_use),
				 errhint("SELECT pid FROM dirty_throttle_sessions WHERE group_name = %s lists them; drop_resource_group(..., force => true) releases them.",
						 quote_literal_cstr(name))));
	g->being_dropped = true;
	LWLockRelease(dt_shared->registry_lock);

	PG_TRY();
	{
		dt_store_write(&d);
	}
	PG_CATCH();
	{
		/*
		 * Under the change lock still, so this is ours to take back.  Who has
		 * looked for it meanwhile has to look again.
		 */
		g->being_dropped = false;
		pg_atomic_fetch_add_u64(&dt_shared->version, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	dt_member_release_all(g);
	for (i = 0; i < dt_shared->max_grants; i++)
		if (dt_grants[i].group_id == g->id)
			dt_grants[i].group_id = 0;
	g->id = 0;
	g->being_dropped = false;
	pg_atomic_fetch_add_u64(&dt_shared->version, 1);
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
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

		if (g->id == 0 || (name != NULL && strcmp(g->name, name) != 0))
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

/*
 * Stop the members of a group, or change how hard they are stopped.
 */
void
dt_group_stop(const char *name, bool hard)
{
	TimestampTz now = GetCurrentTimestamp();
	DtGroup    *g;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_registry_find(name);
	if (g == NULL)
		dt_group_missing(name);
	dt_group_lock(g);
	if (g->stopped_since == 0)
		g->stopped_since = now;
	g->stopped_hard = hard;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * Let them go on; false when they were not stopped.
 */
bool
dt_group_resume(const char *name)
{
	DtGroup    *g;
	bool		stopped;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_registry_find(name);
	if (g == NULL)
		dt_group_missing(name);
	dt_group_lock(g);
	stopped = (g->stopped_since != 0);
	g->stopped_since = 0;
	g->stopped_hard = false;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_group_unlock(g);
	dt_member_wake_all(g);
	LWLockRelease(dt_shared->registry_lock);
	return stopped;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const DtDefinition *) a)->name,
				  ((const DtDefinition *) b)->name);
}

static int
compare_grants(const void *a, const void *b)
{
	const DtGrant *grant_a = (const DtGrant *) a;
	const DtGrant *grant_b = (const DtGrant *) b;
	int			result = strcmp(grant_a->group_name, grant_b->group_name);

	return result != 0 ? result :
		(grant_a->role > grant_b->role) - (grant_a->role < grant_b->role);
}

void
dt_group_definitions(DtDefinitions *d)
{
	LWLockAcquire(dt_shared->change_lock, LW_SHARED);
	dt_registry_copy(d);
	LWLockRelease(dt_shared->change_lock);
	qsort(d->groups, d->n_groups, sizeof(DtDefinition), compare_names);
	qsort(d->grants, d->n_grants, sizeof(DtGrant), compare_grants);
}
