/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		Shared memory: its sizes, its start, its locks, and look-ups.
 *
 * There are three areas: DtShared, and an array each of groups and of members.
 * What is in them and which lock protects what is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "registry/shmem.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "compat.h"

#define TRANCHE		"dirty_throttle"

int			dt_max_groups = 64;
bool		dt_enabled = true;

DtShared   *dt_shared = NULL;
DtGroup    *dt_groups = NULL;
DtMember   *dt_members = NULL;

static Size
groups_size(void)
{
	return mul_size(dt_max_groups, sizeof(DtGroup));
}

static Size
members_size(void)
{
	return mul_size(MaxBackends, sizeof(DtMember));
}

void
dt_shmem_request(void)
{
	Size		size = MAXALIGN(sizeof(DtShared));

	size = add_size(size, add_size(groups_size(), PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(members_size(), PG_CACHE_LINE_SIZE));
	RequestAddinShmemSpace(size);
	RequestNamedLWLockTranche(TRANCHE, 1);
}

/*
 * Attach to an area, or allocate it, zeroed.  Returns whether it is new.
 */
static bool
attach_area(const char *name, Size size, void **area)
{
	bool		found;

	*area = ShmemInitStruct(name, size, &found);
	if (!found)
		memset(*area, 0, size);
	return !found;
}

void
dt_shmem_startup(void)
{
	bool		created;
	int			i;

	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	created = attach_area("dirty_throttle", sizeof(DtShared),
						  (void **) &dt_shared);
	(void) attach_area("dirty_throttle groups", groups_size(),
					   (void **) &dt_groups);
	(void) attach_area("dirty_throttle members", members_size(),
					   (void **) &dt_members);
	if (created)
	{
		dt_shared->registry_lock = &GetNamedLWLockTranche(TRANCHE)->lock;
		dt_shared->max_groups = dt_max_groups;
		dt_shared->n_members = MaxBackends;
		pg_atomic_init_u64(&dt_shared->version, 1);
		pg_atomic_init_u32(&dt_shared->enabled, dt_enabled);
		SpinLockInit(&dt_shared->sampled.lock);
		pg_atomic_init_u32(&dt_shared->sampler, (uint32) INVALID_PROC_NUMBER);
		for (i = 0; i < dt_max_groups; i++)
		{
			SpinLockInit(&dt_groups[i].lock);
			pg_atomic_init_u32(&dt_groups[i].generation, 0);
		}
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * The calls are nested when a timer's signal handler interrupts the holder of
 * a lock.  The handler may also interrupt these functions, between any two
 * steps.  Only the outermost call saves and restores the mask, and nested
 * calls must not overwrite it: so it is saved after "deferring" is
 * incremented, and read before "deferring" is decremented.
 */
static volatile sig_atomic_t deferring = 0;
static sigset_t mask_before;

void
dt_defer_termination(void)
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
dt_allow_termination(void)
{
	sigset_t	mask = mask_before;

	pg_compiler_barrier();
	if (--deferring == 0)
		sigprocmask(SIG_SETMASK, &mask, NULL);
}

/*
 * Assign hook of dirty_throttle.enabled.  The postmaster reads the
 * configuration first of all processes, so it publishes the value, using
 * nothing but atomics.  Then it sends SIGHUP to all its children, which wakes
 * the sleepers; those that run notice the generation.
 */
void
dt_assign_enabled(bool newval, void *extra)
{
	int			i;

	if (IsUnderPostmaster || !dt_shmem_available())
		return;
	pg_atomic_write_u32(&dt_shared->enabled, newval);
	for (i = 0; i < dt_shared->max_groups; i++)
		pg_atomic_fetch_add_u32(&dt_groups[i].generation, 1);
}

DtGroup *
dt_group_find(const char *name)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups; i++)
		if (dt_groups[i].id != 0 &&
			strcmp(dt_groups[i].definition.name, name) == 0)
			return &dt_groups[i];
	return NULL;
}

DtGroup *
dt_group_find_or_error(const char *name)
{
	DtGroup    *g = dt_group_find(name);

	if (g == NULL)
		dt_group_missing(name);
	return g;
}

DtGroup *
dt_group_find_id(uint64 id)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups && id != 0; i++)
		if (dt_groups[i].id == id)
			return &dt_groups[i];
	return NULL;
}

uint64
dt_group_lookup_id(const char *name)
{
	DtGroup    *g;
	uint64		id;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find(name);
	id = g ? g->id : 0;
	LWLockRelease(dt_shared->registry_lock);
	return id;
}

bool
dt_group_lookup_name(uint64 id, char *name)
{
	DtGroup    *g;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find_id(id);
	if (g != NULL)
		strlcpy(name, g->definition.name, NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return g != NULL;
}

void
dt_group_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist", name),
			 errhint("The view dirty_throttle_groups lists the resource groups.")));
}

uint64
dt_registry_version(void)
{
	return pg_atomic_read_u64(&dt_shared->version);
}

void
dt_registry_changed(void)
{
	pg_atomic_fetch_add_u64(&dt_shared->version, 1);
}

void
dt_sampler_register(void)
{
	pg_atomic_write_u32(&dt_shared->sampler, (uint32) MyProcNumber);
}

void
dt_sampler_unregister(void)
{
	pg_atomic_write_u32(&dt_shared->sampler, (uint32) INVALID_PROC_NUMBER);
}

bool
dt_sampler_runs(void)
{
	return pg_atomic_read_u32(&dt_shared->sampler) !=
		(uint32) INVALID_PROC_NUMBER;
}

/* It does no harm when the sampler has exited meanwhile. */
void
dt_sampler_wake(void)
{
	uint32		number = pg_atomic_read_u32(&dt_shared->sampler);

	if (number != (uint32) INVALID_PROC_NUMBER)
		SetLatch(&GetPGProcByNumber(number)->procLatch);
}

DtMember *
dt_member_mine(void)
{
	Assert(MyProc != NULL && MyProcNumber < dt_shared->n_members);
	return &dt_members[MyProcNumber];
}

DtMember *
dt_member_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return &dt_members[GetNumberFromPGProc(leader ? leader : proc)];
}
