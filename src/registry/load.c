/*-------------------------------------------------------------------------
 *
 * load.c
 *		Loading the definitions of groups into shared memory.
 *
 * How a change comes to a member that sleeps on a standby:
 *
 * 1. A function such as set_group_dirty_limit() locks the row of all
 *    definitions (row.c), and writes a new version of it in the transaction of
 *    its caller.
 * 2. When that transaction commits, the committing process puts the new
 *    definitions into the primary's shared memory and wakes the sleepers there.
 * 3. Its commit record brings to the standby, with the row, a message that the
 *    relation of the row is out of date, which the replay gives to every
 *    process there.
 * 4. The first of them that begins a statement, or logs in, reads the row, and
 *    puts the definitions into the standby's shared memory.
 * 5. It sets the latches of the members of each group that has changed, and a
 *    sleeper that wakes up looks at its account, with the new limit.
 *
 * The same as 3 to 5 happens after a start, when shared memory is empty: each
 * process takes it to be out of date before its first statement.
 *
 * The catalog has the truth, and shared memory is a copy.  Who has read the row
 * may be overtaken by somebody who has read a newer version.  So each load has
 * a number: who has read the row puts it in force only if there was no other
 * load since before it was read, and else reads it again.  The committing
 * process need not compare: until it releases the lock on the row, nobody can
 * have a newer version.
 *
 * Shared memory changes under the registry lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_db_role_setting.h"
#include "miscadmin.h"
#include "registry/definitions.h"
#include "registry/group.h"
#include "registry/load.h"
#include "utils/inval.h"
#include "utils/memutils.h"

/* Definitions that are ready to be put in force without any ERROR. */
typedef struct Load
{
	DtRowVersion version;
	bool		is_bad;			/* the groups stay as they are */
	int			n;
	DtEntry   **by_id;			/* sorted; also those without an ID */
	DtEntry   **by_name;
	DtEntry   **of_slot;		/* for each of dt_groups */
} Load;

bool		dt_load_may_be_due = true;

static bool changed = false;	/* this transaction has changed the row */
static Load *own_load = NULL;	/* of this transaction, when it commits */

/*
 * The object access hook calls this, so it does not matter whether one of our
 * functions has written the row or ALTER ROLE.
 */
void
dt_load_at_commit(void)
{
	dt_row_lock();
	CacheInvalidateRelcacheByRelid(DbRoleSettingRelationId);
	ForceSyncCommit();
	changed = true;
}

/* Tell what is not going to be in force. */
static void
warn(const Load *load, const char *problem)
{
	int			left_out = load->n - dt_shared->max_groups;
	int			ignored = 0;
	int			i;

	for (i = 0; i < load->n; i++)
		ignored += list_length(load->by_id[i]->unknown);
	if (load->is_bad)
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the definitions of resource groups cannot be read, so those in force stay"),
				 errdetail_internal("%s", problem)));
	else if (left_out > 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg_plural("%d resource group is not in force",
							   "%d resource groups are not in force",
							   left_out, left_out),
				 errdetail("There are more than dirty_throttle.max_groups = %d.",
						   dt_shared->max_groups),
				 errhint("Increase dirty_throttle.max_groups and restart the server.")));
	if (ignored > 0)
		ereport(WARNING,
				(errmsg_plural("%d word in the definitions of resource groups is ignored",
							   "%d words in the definitions of resource groups are ignored",
							   ignored, ignored),
				 errdetail("A later release of dirty_throttle has written it.")));
}

/*
 * Read the row; NULL: it is still of the version "known".
 */
static Load *
prepare(const DtRowVersion *known)
{
	Load	   *load = palloc0(sizeof(Load));
	char	   *string = dt_row_read(&load->version, known);
	const char *problem;
	List	   *entries;

	if (known != NULL && dt_row_same_version(&load->version, known))
		return NULL;
	entries = dt_definitions_parse(string, &problem);
	load->n = list_length(entries);
	load->by_id = dt_definitions_sort(entries, dt_compare_ids);
	load->by_name = dt_definitions_sort(entries, dt_compare_names);
	load->of_slot = palloc0(dt_shared->max_groups * sizeof(DtEntry *));
	load->is_bad = problem != NULL;
	warn(load, problem);
	return load;
}

/*
 * Find out what becomes of each slot.  A group is known by its ID, so a group
 * that was renamed keeps its members; and by its name, when the row was written
 * by hand or comes from another server.
 */
static void
find_slots(Load *load)
{
	int			pass;
	int			i;

	for (pass = 0; pass < 2; pass++)
	{
		for (i = 0; i < dt_shared->max_groups; i++)
		{
			DtGroup    *g = &dt_groups[i];
			DtEntry    *key = (DtEntry *) &g->definition;
			DtEntry   **found = NULL;

			if (g->id == 0 || load->of_slot[i] != NULL || load->n == 0)
				continue;
			if (pass == 1)
				found = bsearch(&key, load->by_name, load->n,
								sizeof(DtEntry *), dt_compare_names);
			else if (g->definition.id != 0)
				found = bsearch(&key, load->by_id, load->n,
								sizeof(DtEntry *), dt_compare_ids);
			if (found == NULL || (*found)->has_slot)
				continue;
			(*found)->has_slot = true;
			load->of_slot[i] = *found;
		}
	}
}

/*
 * Put definitions in force, with the registry lock.  This must not fail.
 */
static void
put_in_force(Load *load)
{
	int			slot = 0;
	int			i;

	dt_shared->loads++;
	dt_shared->row = load->version;
	if (load->is_bad)
		return;
	find_slots(load);
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtEntry    *entry = load->of_slot[i];

		if (g->id != 0 && entry == NULL)
			dt_group_end(g);
		else if (g->id != 0 && memcmp(&g->definition, &entry->definition,
									  sizeof(DtDefinition)) != 0)
			dt_group_alter(g, &entry->definition);
	}
	for (i = 0; i < load->n; i++)
	{
		if (load->by_name[i]->has_slot)
			continue;
		while (slot < dt_shared->max_groups && dt_groups[slot].id != 0)
			slot++;
		if (slot == dt_shared->max_groups)
			break;				/* there is no room for the others */
		dt_group_begin(&dt_groups[slot], &load->by_name[i]->definition,
					   ++dt_shared->last_group_id);
	}
	dt_registry_changed();
	dt_sampler_wake();
}

static bool
load_once(void)
{
	bool		done;
	uint64		loads;
	DtRowVersion known;
	Load	   *load;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	loads = dt_shared->loads;
	known = dt_shared->row;
	LWLockRelease(dt_shared->registry_lock);
	load = prepare(loads > 0 ? &known : NULL);
	if (load == NULL)
		return true;
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	done = loads == dt_shared->loads;
	if (done)
		put_in_force(load);
	LWLockRelease(dt_shared->registry_lock);
	return done;
}

/*
 * What this transaction has not committed yet must not be loaded, and while it
 * has the lock there is nothing else.
 */
void
dt_load_slow(void)
{
	MemoryContext context;
	MemoryContext old;

	if (IsParallelWorker() || !dt_shmem_available())
		dt_load_may_be_due = false; /* for the leader to do, or never */
	if (!dt_load_may_be_due || changed || !dt_row_is_readable())
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "dirty_throttle",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	PG_TRY();
	{
		do
		{
			/* a message that comes while the row is read counts */
			dt_load_may_be_due = false;
		} while (!load_once());
	}
	PG_CATCH();
	{
		dt_load_may_be_due = true;
		PG_RE_THROW();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}

/*
 * Also called when all caches are reset, and when this process has changed the
 * row.
 */
static void
relation_is_outdated(Datum arg, Oid relation)
{
	if (relation == DbRoleSettingRelationId || relation == InvalidOid)
		dt_load_may_be_due = true;
}

/*
 * After the commit nothing can be read, and nothing may fail, so all that can
 * be done before is done before.  Interrupts are held from then on, so only
 * the end of the server can keep a process from the rest, and that ends shared
 * memory, too.
 */
static void
prepare_own(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	dt_row_lock();				/* ROLLBACK TO may have released it */
	CommandCounterIncrement();	/* the last command may have changed it */
	own_load = prepare(NULL);
	MemoryContextSwitchTo(old);
}

static void
transaction_event(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (changed)
				prepare_own();
			else if (MyBackendType != B_BACKEND)
				dt_load();		/* it may run no statements */
			break;
		case XACT_EVENT_PRE_PREPARE:
			/* also if there was nothing to change: it would keep the lock */
			if (dt_row_locked)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has changed resource groups")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_ABORT:
			if (event == XACT_EVENT_COMMIT && own_load != NULL)
			{
				LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
				put_in_force(own_load);
				LWLockRelease(dt_shared->registry_lock);
			}
			changed = dt_row_locked = false;
			own_load = NULL;
			break;
		default:
			break;
	}
}

void
dt_load_init(void)
{
	CacheRegisterRelcacheCallback(relation_is_outdated, (Datum) 0);
	RegisterXactCallback(transaction_event, NULL);
}
