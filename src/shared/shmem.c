/*-------------------------------------------------------------------------
 *
 * shmem.c
 *		Shared memory: its sizes, its start, its locks, and look-ups.
 *
 * There are five areas, and that of waits.c: DtShared, and an array each of groups, of members, of
 * debts of roles, and of jobs in batches (queue.c).  What is in them and which lock
 * protects what is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "miscadmin.h"
#include "shared/shmem.h"
#include "storage/ipc.h"
#include "storage/shmem.h"

#include "compat.h"

#define TRANCHE		"dirty_throttle"

DtParameters dt_parameters;

DtShared   *dt_shared = NULL;
DtGroup    *dt_groups = NULL;
DtMember   *dt_members = NULL;
DtQueued   *dt_queue = NULL;

static Size
groups_size(void)
{
	return mul_size(dt_parameters.max_groups, sizeof(DtGroup));
}

static Size
members_size(void)
{
	return mul_size(MaxBackends, sizeof(DtMember));
}

/* At most this many roles may owe something to groups that their sessions have left. */
static int
n_role_debts(void)
{
	return MaxBackends + 1024;
}

static Size
queue_size(void)
{
	return mul_size(MaxBackends, sizeof(DtQueued));
}

static bool was_requested = false;

/* Request shared memory. */
void
dt_shmem_request(void)
{
	Size		size = MAXALIGN(sizeof(DtShared));

	size = add_size(size, add_size(groups_size(), PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(members_size(), PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(mul_size(n_role_debts(), sizeof(DtRoleDebt)),
								   PG_CACHE_LINE_SIZE));
	size = add_size(size, add_size(queue_size(), PG_CACHE_LINE_SIZE));
	RequestAddinShmemSpace(size);
	RequestNamedLWLockTranche(TRANCHE, 1);
	was_requested = true;
}

/*
 * A library that does not call the hooks before its own, as plprofiler 4.2 does
 * not, keeps the server from starting.  Say what to do.
 */
static void
check_requested(void)
{
	if (!was_requested)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("another library keeps dirty_throttle from requesting shared memory"),
				 errdetail("A library that \"shared_preload_libraries\" names after dirty_throttle does not call the shmem_request_hook of others."),
				 errhint("Name dirty_throttle last in \"shared_preload_libraries\".")));
}

/* Attach to an area, or allocate it, zeroed. */
static void *
attach_area(const char *name, Size size)
{
	bool		found;
	void	   *area = ShmemInitStruct(name, size, &found);

	if (!found)
		memset(area, 0, size);
	return area;
}

/* Attach to it.  At first there are no groups in it. */
void
dt_shmem_startup(void)
{
	DtRoleDebt *role_debts;

	if (!IsUnderPostmaster)
		check_requested();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dt_shared = attach_area("dirty_throttle", sizeof(DtShared));
	dt_groups = attach_area("dirty_throttle groups", groups_size());
	dt_members = attach_area("dirty_throttle members", members_size());
	role_debts = attach_area("dirty_throttle role debts",
							 mul_size(n_role_debts(), sizeof(DtRoleDebt)));
	dt_queue = attach_area("dirty_throttle batches", queue_size());
	if (dt_shared->registry_lock == NULL)
	{
		dt_shared->registry_lock = &GetNamedLWLockTranche(TRANCHE)->lock;
		dt_shared->max_groups = dt_parameters.max_groups;
		dt_shared->n_members = MaxBackends;
		pg_atomic_init_u64(&dt_shared->registry_changes, 1);
		pg_atomic_init_u32(&dt_shared->enabled, dt_parameters.enabled);
		SpinLockInit(&dt_shared->sampled.lock);
		pg_atomic_init_u32(&dt_shared->sampler, 0);
		for (int i = 0; i < dt_shared->n_members; i++)
		{
			pg_atomic_init_u32(&dt_members[i].n_pausing, 0);
			for (int r = 0; r < DT_RESOURCES; r++)
				pg_atomic_init_u64(&dt_members[i].workers_used[r], 0);
		}
		for (int i = 0; i < dt_parameters.max_groups; i++)
		{
			SpinLockInit(&dt_groups[i].lock);
			pg_atomic_init_u32(&dt_groups[i].generation, 0);
			dlist_init(&dt_groups[i].role_debts);
		}
		SpinLockInit(&dt_shared->role_debts_lock);
		dlist_init(&dt_shared->free_role_debts);
		for (int i = 0; i < n_role_debts(); i++)
			dlist_push_tail(&dt_shared->free_role_debts, &role_debts[i].node);
	}
	LWLockRelease(AddinShmemInitLock);
}

/*
 * The core's handler of SIGTERM ends a background worker at any instruction, up to
 * 18; later an extension's own handler may.  So it is held back while one of the
 * spinlocks is held that dt_spin_lock() takes, while the process looks who waits, and
 * from when it leaves at its exit on.  Only the last encloses others, and it does not
 * end, so one mask is enough.
 */
static sigset_t mask_before;

void
dt_defer_termination_slow(void)
{
	sigset_t	sigterm;

	sigemptyset(&sigterm);
	sigaddset(&sigterm, SIGTERM);
	sigprocmask(SIG_BLOCK, &sigterm, &mask_before);
}

void
dt_allow_termination_slow(void)
{
	sigprocmask(SIG_SETMASK, &mask_before, NULL);
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
	if (IsUnderPostmaster || !dt_shmem_available())
		return;
	pg_atomic_write_u32(&dt_shared->enabled, newval);
	for (int i = 0; i < dt_shared->max_groups; i++)
		pg_atomic_fetch_add_u32(&dt_groups[i].generation, 1);
}

/* The group of that name, or NULL; the caller holds the registry lock. */
DtGroup *
dt_group_find(const char *name)
{
	for (int i = 0; i < dt_shared->n_groups; i++)
		if (dt_groups[i].id != 0 && dt_groups[i].of == dt_groups[i].id &&
			strcmp(dt_groups[i].definition.name, name) == 0)
			return &dt_groups[i];
	return NULL;
}

/*
 * The group of that name; ERROR when there is none.  The registry lock is
 * released before that, as the client may be slow to take the message.
 */
DtGroup *
dt_group_find_or_error(const char *name)
{
	DtGroup    *g = dt_group_find(name);

	if (g == NULL)
	{
		LWLockRelease(dt_shared->registry_lock);
		dt_group_missing(name);
	}
	return g;
}

/* The group with that ID, or NULL; the caller holds the registry lock. */
DtGroup *
dt_group_find_id(uint64 id)
{
	for (int i = 0; i < dt_shared->n_groups && id != 0; i++)
		if (dt_groups[i].id == id)
			return &dt_groups[i];
	return NULL;
}

/* For whom an instance of the group is that this member is to be in. */
Oid
dt_group_key(const DtGroup *own, const DtMember *member)
{
	switch (own->definition.scope)
	{
		case DT_SCOPE_ROLE:
			return member->role;
		case DT_SCOPE_DATABASE:
			return GetPGProcByNumber(member - dt_members)->databaseId;
		default:
			return InvalidOid;
	}
}

DtGroup *
dt_group_slot(DtGroup *own, const DtMember *member)
{
	Oid			key = dt_group_key(own, member);

	for (int i = 0; i < dt_shared->n_groups && OidIsValid(key); i++)
		if (dt_groups[i].id != 0 && dt_groups[i].of == own->id &&
			dt_groups[i].key == key)
			return &dt_groups[i];
	return OidIsValid(key) ? NULL : own;
}

/* The ID of the group of that name, or 0. */
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

/* Why no group can have this name, after "must not"; NULL: it can. */
const char *
dt_name_flaw(const char *name)
{
	for (const char *p = name; *p != '\0'; p++)
		if ((unsigned char) *p < ' ' || *p == 0x7f)
			return "contain control characters";
	if (*name == '\0')
		return "be empty";
	return name[0] == ' ' || name[strlen(name) - 1] == ' ' ?
		"begin or end with a blank" : NULL;
}

/*
 * Is the one the other, misspelt: with other capitals, another, a missing or
 * an additional letter, or two that have changed places?  Names that differ
 * by a digit are meant so.
 */
bool
dt_name_is_similar(const char *a, const char *b)
{
	size_t		left_a = strlen(a);
	size_t		left_b = strlen(b);

	for (; left_a > 0 && left_b > 0 && pg_tolower(*a) == pg_tolower(*b); a++, b++)
	{
		left_a--;
		left_b--;
	}
	for (; left_a > 0 && left_b > 0 &&
		 pg_tolower(a[left_a - 1]) == pg_tolower(b[left_b - 1]); left_a--)
		left_b--;
	if (left_a == 2 && left_b == 2)
		return pg_tolower(a[0]) == pg_tolower(b[1]) &&
			pg_tolower(a[1]) == pg_tolower(b[0]);
	return left_a <= 1 && left_b <= 1 &&
		!(left_a == 1 && isdigit((unsigned char) *a)) &&
		!(left_b == 1 && isdigit((unsigned char) *b));
}

/*
 * Copy the name of another group that may be meant with this one.  Returns
 * false if there is none.  Names are bytes, of whatever encoding.
 */
bool
dt_group_find_similar(const char *name, char *similar)
{
	bool		has_lock = LWLockHeldByMe(dt_shared->registry_lock);
	bool		found = false;

	if (!has_lock)
		LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups && !found; i++)
	{
		const DtGroup *g = &dt_groups[i];
		const char *other = g->definition.name;

		found = g->id != 0 && g->of == g->id && strcmp(name, other) != 0 &&
			dt_name_is_similar(name, other);
		if (found)
			strlcpy(similar, other, NAMEDATALEN);
	}
	if (!has_lock)
		LWLockRelease(dt_shared->registry_lock);
	return found;
}

/* What to do if there is no group of that name, palloc'd: for hints. */
char *
dt_group_advice(const char *name, const char *advice)
{
	char		similar[NAMEDATALEN];

	if (!dt_group_find_similar(name, similar))
		return pstrdup(advice);
	return psprintf(_("Perhaps you meant \"%s\". %s"), similar, advice);
}

/* ERROR: there is no such group. */
void
dt_group_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist", name),
			 errhint("%s", dt_group_advice(name, _("The view dirty_throttle_groups lists the resource groups.")))));
}

/*
 * The sampler sleeps while no group has a threshold, so it is woken by each
 * change of the definitions.  It does no harm when it has exited meanwhile.
 */
void
dt_sampler_wake(void)
{
	uint32		number = pg_atomic_read_u32(&dt_shared->sampler);

	if (number != 0)
		SetLatch(&GetPGProcByNumber(number - 1)->procLatch);
}

DtSignalInfo
dt_sampler_info(DtSignal signal)
{
	DtSignalInfo info;

	dt_spin_lock(&dt_shared->sampled.lock);
	info = dt_shared->sampled.signals[signal];
	dt_spin_unlock(&dt_shared->sampled.lock);
	return info;
}

/* The slot of this process. */
DtMember *
dt_member_mine(void)
{
	Assert(MyProc != NULL && MyProcNumber < dt_shared->n_members);
	return &dt_members[MyProcNumber];
}

/* The slot of a process or, if it is a parallel worker, of its leader. */
DtMember *
dt_member_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return &dt_members[GetNumberFromPGProc(leader ? leader : proc)];
}
