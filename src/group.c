/*-------------------------------------------------------------------------
 *
 * group.c
 *		The registry of resource groups in shared memory.
 *
 * Shared memory holds a slot per group and a slot per process, the latter
 * found by proc number.  Three locks, taken in this order:
 *
 * - the change lock (LWLock) is held by whoever changes the registry, over
 *   the write of the definitions file as well;
 * - the registry lock (LWLock) protects which groups there are and their
 *   names: exclusive for a moment when that changes, shared to look up, to
 *   join and to list.  No I/O happens under it;
 * - each group's spinlock protects its account and its members' accounts.
 *
 * A change is planned under the change lock, made durable, and only then
 * applied, by steps that cannot fail.  A process never sleeps on its latch
 * with one of these held.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"

/* What comes before the slots. */
typedef struct DtShared
{
	LWLock	   *change_lock;
	LWLock	   *registry_lock;
	pg_atomic_uint64 version;	/* of the registry; bumped by every change */
	pg_atomic_uint32 enabled;	/* written by the postmaster only */
	int			max_groups;		/* slots in the array of groups */
	int			n_members;		/* slots in the array of members */
	uint64		last_id;		/* registry lock */
} DtShared;

static DtShared *shared = NULL;
static DtGroup *groups = NULL;
static DtMember *members = NULL;

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

void
dt_group_shmem_request(void)
{
	Size		size = MAXALIGN(sizeof(DtShared));

	size = add_size(size, add_size(groups_size(dt_max_groups),
								   PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(members_size(), PG_CACHE_LINE_SIZE));
	RequestAddinShmemSpace(size);
	RequestNamedLWLockTranche("dirty_throttle", 2);
}

bool
dt_group_available(void)
{
	return shared != NULL;
}

/*
 * Make slot g an empty group.  Under the registry lock, or before anybody
 * else is there.
 */
static void
init_group(DtGroup *g, const char *name, int64 rate)
{
	int64		now = dt_now_us();

	strlcpy(g->name, name, NAMEDATALEN);
	g->being_dropped = false;
	pg_atomic_fetch_add_u32(&g->generation, 1);
	dt_rate_init(&g->rate, rate, BLCKSZ, now);
	dt_meter_reset(&g->meter, now);
	g->paused = 0;
	g->blocks_dirtied = 0;
	g->pauses = 0;
	g->paused_us = 0;
	g->stats_reset = GetCurrentTimestamp();
	g->id = ++shared->last_id;
}

/*
 * The groups of the definitions file.  More of them than max_groups allows is
 * a mistake of configuration that must not cost anybody a definition, so it
 * stops the start, as it does with replication slots.
 */
static void
load_definitions(void)
{
	DtDefinition *definitions;
	int			n = dt_store_read(&definitions);
	int			i;

	if (n > shared->max_groups)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("%d resource groups are defined, but dirty_throttle.max_groups is %d",
						n, shared->max_groups),
				 errhint("Set dirty_throttle.max_groups to %d or more and start the server again.",
						 n)));
	for (i = 0; i < n; i++)
		init_group(&groups[i], definitions[i].name, definitions[i].rate);
}

void
dt_group_shmem_startup(void)
{
	bool		found;
	int			i;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("dirty_throttle", sizeof(DtShared), &found);
	if (!found)
	{
		LWLockPadded *locks = GetNamedLWLockTranche("dirty_throttle");

		memset(shared, 0, sizeof(DtShared));
		shared->change_lock = &locks[0].lock;
		shared->registry_lock = &locks[1].lock;
		shared->max_groups = dt_max_groups;
		shared->n_members = MaxBackends;
		pg_atomic_init_u64(&shared->version, 1);
		pg_atomic_init_u32(&shared->enabled, dt_enabled);
	}

	groups = ShmemInitStruct("dirty_throttle groups",
							 groups_size(shared->max_groups), &found);
	if (!found)
	{
		memset(groups, 0, groups_size(shared->max_groups));
		for (i = 0; i < shared->max_groups; i++)
		{
			SpinLockInit(&groups[i].lock);
			pg_atomic_init_u32(&groups[i].generation, 0);
		}
		load_definitions();
	}

	members = ShmemInitStruct("dirty_throttle members", members_size(),
							  &found);
	if (!found)
		memset(members, 0, members_size());
	LWLockRelease(AddinShmemInitLock);
}

uint64
dt_group_registry_version(void)
{
	return pg_atomic_read_u64(&shared->version);
}

bool
dt_group_throttling_enabled(void)
{
	return pg_atomic_read_u32(&shared->enabled) != 0;
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

	pg_atomic_write_u32(&shared->enabled, enabled);
	for (i = 0; i < shared->max_groups; i++)
		pg_atomic_fetch_add_u32(&groups[i].generation, 1);
}

/*
 * Find a group, under the registry lock or the change lock.
 */
static DtGroup *
find_by_name(const char *name)
{
	int			i;

	for (i = 0; i < shared->max_groups; i++)
		if (groups[i].id != 0 && !groups[i].being_dropped &&
			strcmp(groups[i].name, name) == 0)
			return &groups[i];
	return NULL;
}

static DtGroup *
find_by_id(uint64 id)
{
	int			i;

	for (i = 0; i < shared->max_groups && id != 0; i++)
		if (groups[i].id == id && !groups[i].being_dropped)
			return &groups[i];
	return NULL;
}

static DtGroup *
find_free(void)
{
	int			i;

	for (i = 0; i < shared->max_groups; i++)
		if (groups[i].id == 0)
			return &groups[i];
	return NULL;
}

uint64
dt_group_lookup(const char *name)
{
	DtGroup    *g;
	uint64		id;

	LWLockAcquire(shared->registry_lock, LW_SHARED);
	g = find_by_name(name);
	id = g ? g->id : 0;
	LWLockRelease(shared->registry_lock);
	return id;
}

static void
no_such_group(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist", name),
			 errhint("The view dirty_throttle_groups lists the resource groups.")));
}

/*
 * Wake all members of g and their parallel workers, so that sleepers look
 * again at what they owe.  A latch is set for a process that may have gone
 * meanwhile, or that is not asleep; neither does any harm.
 */
static void
wake_members(DtGroup *g)
{
	int			i;

	for (i = 0; i < shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		PGPROC	   *leader = proc->lockGroupLeader;
		int			member = leader ? GetNumberFromPGProc(leader) : i;

		if (members[member].group == g)
			SetLatch(&proc->procLatch);
	}
}

/*
 * All definitions as they are, with room for one more.  Under the change
 * lock.
 */
static int
copy_definitions(DtDefinition **definitions)
{
	int			n = 0;
	int			i;

	*definitions = palloc0((shared->max_groups + 1) * sizeof(DtDefinition));
	for (i = 0; i < shared->max_groups; i++)
		if (groups[i].id != 0)
		{
			strlcpy((*definitions)[n].name, groups[i].name, NAMEDATALEN);
			(*definitions)[n].rate = groups[i].rate.rate;
			n++;
		}
	return n;
}

/* The definition with that name, which must be among them. */
static DtDefinition *
definition_of(DtDefinition *definitions, const char *name)
{
	while (strcmp(definitions->name, name) != 0)
		definitions++;
	return definitions;
}

/*
 * Create or alter a group.  Returns whether it was created.
 */
bool
dt_group_define(const char *name, int64 rate, DtDefine how)
{
	DtDefinition *definitions;
	DtGroup    *g;
	bool		create;
	int			n;

	LWLockAcquire(shared->change_lock, LW_EXCLUSIVE);
	g = find_by_name(name);
	create = (g == NULL);
	if (create && how == DT_ALTER)
		no_such_group(name);
	if (!create && how == DT_CREATE)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", name),
				 errhint("Use set_group_dirty_limit() to change its limit.")));
	if (create && (g = find_free()) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all %d resource groups are in use",
						shared->max_groups),
				 errhint("Drop one with drop_resource_group(), or set dirty_throttle.max_groups to more than %d and restart the server.",
						 shared->max_groups)));

	n = copy_definitions(&definitions);
	if (create)
		strlcpy(definitions[n++].name, name, NAMEDATALEN);
	definition_of(definitions, name)->rate = rate;
	dt_store_write(definitions, n);

	LWLockAcquire(shared->registry_lock, LW_EXCLUSIVE);
	if (create)
	{
		init_group(g, name, rate);
		pg_atomic_fetch_add_u64(&shared->version, 1);
	}
	else
	{
		SpinLockAcquire(&g->lock);
		dt_rate_set(&g->rate, rate, dt_now_us());
		pg_atomic_fetch_add_u32(&g->generation, 1);
		SpinLockRelease(&g->lock);
		wake_members(g);
	}
	LWLockRelease(shared->registry_lock);
	LWLockRelease(shared->change_lock);
	return create;
}

void
dt_group_rename(const char *old_name, const char *new_name)
{
	DtDefinition *definitions;
	DtGroup    *g;
	int			n;

	LWLockAcquire(shared->change_lock, LW_EXCLUSIVE);
	g = find_by_name(old_name);
	if (g == NULL)
		no_such_group(old_name);
	if (find_by_name(new_name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", new_name)));

	n = copy_definitions(&definitions);
	namestrcpy((Name) definition_of(definitions, old_name)->name, new_name);
	dt_store_write(definitions, n);

	LWLockAcquire(shared->registry_lock, LW_EXCLUSIVE);
	strlcpy(g->name, new_name, NAMEDATALEN);
	pg_atomic_fetch_add_u64(&shared->version, 1);
	LWLockRelease(shared->registry_lock);
	LWLockRelease(shared->change_lock);
}

/*
 * Take every member out of g, which nobody can join any more, and wake it:
 * from here on there is nothing to pause for.
 */
static void
release_members(DtGroup *g)
{
	int64		now = dt_now_us();
	int			i;

	SpinLockAcquire(&g->lock);
	dt_rate_set(&g->rate, 0, now);
	pg_atomic_fetch_add_u32(&g->generation, 1);
	SpinLockRelease(&g->lock);
	wake_members(g);

	for (i = 0; i < shared->n_members; i++)
	{
		DtMember   *m = &members[i];

		if (m->group != g)
			continue;
		SpinLockAcquire(&g->lock);
		if (m->group == g)
		{
			dt_rate_leave(&g->rate, &m->rate, 0, now);
			m->sleepers = 0;
			m->prepaid = 0;
			m->group = NULL;
		}
		SpinLockRelease(&g->lock);
	}
}

/*
 * Drop a group; false when there is none and missing_ok.  From the check that
 * nobody uses it until the file is written, nobody may join it.
 */
bool
dt_group_drop(const char *name, bool missing_ok, bool force)
{
	DtDefinition *definitions;
	DtGroup    *g;
	int			in_use;
	int			n;

	LWLockAcquire(shared->change_lock, LW_EXCLUSIVE);
	g = find_by_name(name);
	if (g == NULL)
	{
		if (!missing_ok)
			no_such_group(name);
		LWLockRelease(shared->change_lock);
		return false;
	}

	n = copy_definitions(&definitions);
	*definition_of(definitions, name) = definitions[n - 1];
	n--;

	LWLockAcquire(shared->registry_lock, LW_EXCLUSIVE);
	SpinLockAcquire(&g->lock);
	in_use = g->rate.n_members;
	SpinLockRelease(&g->lock);
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
	LWLockRelease(shared->registry_lock);

	PG_TRY();
	{
		dt_store_write(definitions, n);
	}
	PG_CATCH();
	{
		/*
		 * Under the change lock still, so this is ours to take back.  Who has
		 * looked for it meanwhile has to look again.
		 */
		g->being_dropped = false;
		pg_atomic_fetch_add_u64(&shared->version, 1);
		PG_RE_THROW();
	}
	PG_END_TRY();

	LWLockAcquire(shared->registry_lock, LW_EXCLUSIVE);
	release_members(g);
	g->id = 0;
	g->being_dropped = false;
	pg_atomic_fetch_add_u64(&shared->version, 1);
	LWLockRelease(shared->registry_lock);
	LWLockRelease(shared->change_lock);
	return true;
}

void
dt_group_reset_stats(const char *name)
{
	bool		found = false;
	int			i;

	LWLockAcquire(shared->registry_lock, LW_SHARED);
	for (i = 0; i < shared->max_groups; i++)
	{
		DtGroup    *g = &groups[i];
		TimestampTz now = GetCurrentTimestamp();

		if (g->id == 0 || (name != NULL && strcmp(g->name, name) != 0))
			continue;
		found = true;
		SpinLockAcquire(&g->lock);
		g->blocks_dirtied = 0;
		g->pauses = 0;
		g->paused_us = 0;
		g->stats_reset = now;
		SpinLockRelease(&g->lock);
	}
	LWLockRelease(shared->registry_lock);
	if (!found && name != NULL)
		no_such_group(name);
}

DtMember *
dt_group_my_member(void)
{
	Assert(MyProc != NULL && MyProcNumber < shared->n_members);
	return &members[MyProcNumber];
}

/*
 * The membership that counts for this process: in a parallel worker its
 * leader's, else its own.
 */
DtMember *
dt_group_leader_member(void)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;

	return leader ? &members[GetNumberFromPGProc(leader)] :
		dt_group_my_member();
}

/*
 * Make this process a member of the group with that id or, when there is none
 * any more, with that name; *id is set to its id.  NULL when there is neither.
 */
DtGroup *
dt_group_join(DtMember *member, uint64 *id, const char *name)
{
	DtGroup    *g;

	Assert(member->group == NULL);
	LWLockAcquire(shared->registry_lock, LW_SHARED);
	g = find_by_id(*id);
	if (g == NULL)
		g = find_by_name(name);
	if (g != NULL)
	{
		int64		now = dt_now_us();

		*id = g->id;
		SpinLockAcquire(&g->lock);
		member->blocks_dirtied = 0;
		member->pauses = 0;
		member->paused_us = 0;
		member->sleepers = 0;
		member->prepaid = 0;
		dt_rate_join(&g->rate, &member->rate, 1, now);
		member->group = g;
		SpinLockRelease(&g->lock);
	}
	LWLockRelease(shared->registry_lock);
	return g;
}

/*
 * Copy the name of member's group, NAMEDATALEN bytes; false when it has none.
 */
bool
dt_group_member_name(DtMember *member, char *name)
{
	DtGroup    *g;

	LWLockAcquire(shared->registry_lock, LW_SHARED);
	g = member->group;
	if (g != NULL)
		strlcpy(name, g->name, NAMEDATALEN);
	LWLockRelease(shared->registry_lock);
	return g != NULL;
}

int
dt_group_list(DtGroupInfo **infos)
{
	int			n = 0;
	int			i;

	*infos = palloc(shared->max_groups * sizeof(DtGroupInfo));
	LWLockAcquire(shared->registry_lock, LW_SHARED);
	for (i = 0; i < shared->max_groups; i++)
	{
		DtGroup    *g = &groups[i];
		DtGroupInfo *info = &(*infos)[n];
		int64		now;

		if (g->id == 0)
			continue;
		memset(info, 0, sizeof(*info));
		strlcpy(info->name, g->name, NAMEDATALEN);
		now = dt_now_us();
		SpinLockAcquire(&g->lock);
		info->rate = g->rate.rate;
		info->members = g->rate.n_members;
		info->paused = g->paused;
		info->dirty_rate = dt_meter_rate(&g->meter, now);
		info->blocks_dirtied = g->blocks_dirtied;
		info->pauses = g->pauses;
		info->paused_us = g->paused_us;
		info->debt = dt_rate_group_debt(&g->rate, now);
		info->stats_reset = g->stats_reset;
		SpinLockRelease(&g->lock);
		n++;
	}
	LWLockRelease(shared->registry_lock);
	return n;
}

int
dt_group_list_members(DtMemberInfo **infos)
{
	int			n = 0;
	int			i;

	*infos = palloc(shared->n_members * sizeof(DtMemberInfo));
	LWLockAcquire(shared->registry_lock, LW_SHARED);
	for (i = 0; i < shared->n_members; i++)
	{
		DtMember   *m = &members[i];
		DtMemberInfo *info = &(*infos)[n];
		DtGroup    *g = m->group;
		PGPROC	   *proc = GetPGProcByNumber(i);
		int64		now;
		bool		still_member;

		if (g == NULL)
			continue;
		memset(info, 0, sizeof(*info));
		strlcpy(info->group_name, g->name, NAMEDATALEN);
		now = dt_now_us();
		SpinLockAcquire(&g->lock);
		still_member = (m->group == g);
		if (still_member)
		{
			info->pid = proc->pid;
			info->userid = proc->roleId;
			info->databaseid = proc->databaseId;
			info->blocks_dirtied = m->blocks_dirtied;
			info->pauses = m->pauses;
			info->paused_us = m->paused_us;
			info->debt = dt_rate_debt(&g->rate, &m->rate, now);
			if (m->sleepers > 0)
			{
				info->paused_us += now - m->paused_since_us;
				info->paused_since = m->paused_since;
			}
		}
		SpinLockRelease(&g->lock);
		if (still_member)
			n++;
	}
	LWLockRelease(shared->registry_lock);
	return n;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const DtDefinition *) a)->name,
				  ((const DtDefinition *) b)->name);
}

/* By name, whatever slots they are in, so that two servers can be compared. */
int
dt_group_definitions(DtDefinition **definitions)
{
	int			n;

	LWLockAcquire(shared->change_lock, LW_SHARED);
	n = copy_definitions(definitions);
	LWLockRelease(shared->change_lock);
	qsort(*definitions, n, sizeof(DtDefinition), compare_names);
	return n;
}
