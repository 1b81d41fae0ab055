/*-------------------------------------------------------------------------
 *
 * load.c
 *		Loading the definitions of groups into shared memory.
 *
 * How a change comes to a member that sleeps on a standby:
 *
 * 1. A function such as set_group_dirty_limit() (functions.c) locks the row of
 *    all definitions, by a heavyweight lock, and writes a new version of it in
 *    the transaction of its caller (definitions.c).  The object access hook
 *    (hooks.c) sees that, and calls dt_load_object_accessed(), which sees to it
 *    that the next two steps follow.
 * 2. Before that transaction commits, transaction_event() reads the row.  After
 *    the commit it puts the new definitions into the primary's shared memory
 *    and wakes the sleepers there (group.c, member.c).
 * 3. Its commit record brings to the standby, with the row, a message that the
 *    relation of the row is out of date, which the replay gives to every
 *    process there: relation_is_outdated().
 * 4. The first of them that begins a statement, or logs in with a setting of
 *    dirty_throttle.group, calls dt_load(), which reads the row, and puts the
 *    definitions into the standby's shared memory.
 * 5. It sets the latches of the members of each group that has changed, and a
 *    sleeper that wakes up looks at its account, with the new limit.
 *
 * A member at work is not woken.  The group's generation has been incremented, which
 * it sees at its next charge, when its next statement begins, at a tick of its timers
 * (tick.c) or when its transaction ends; then it charges what it has used, at the new
 * limit.
 *
 * The same as 4 and 5 happens after a start, when shared memory is empty, and
 * in each process of a standby, which cannot know what was replayed before it
 * was there.  On a primary shared memory is current from the first load on.
 *
 * The catalog has the truth, and shared memory is a copy.  A process that has
 * read the row may be overtaken by one that has read a newer version.  So
 * changes are counted: a process notes the count before it reads the row, and
 * puts what it has read in force only if the count is still the same;
 * otherwise it reads the row again.  The committing process need not compare:
 * until it releases the lock on the row, nobody can have a newer version.
 *
 * Shared memory changes under the registry lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_extension.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "compat.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "shared/commits.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/load.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

/* Definitions that are ready to be put in force without any ERROR. */
typedef struct Load
{
	uint64		changes;		/* of the registry, before the row was read */
	bool		is_current;		/* see DtShared */
	DtRowVersion version;
	bool		is_same;		/* shared memory has that version already */
	bool		is_bad;			/* the groups stay as they are */
	List	   *entries;
	DtEntry   **of_slot;		/* for each of dt_groups */
} Load;

/* Has something happened since this process last compared memory and row? */
bool		dt_load_may_be_due = true;

/* What this process knows of the row, and is about to load. */
typedef struct Loading
{
	bool		outdated;		/* the row may have changed since a load has
								 * begun */
	Load	   *own_load;		/* of this transaction, when it commits */
	const char *library_version;
} Loading;

static Loading loading;

/* --------------------------------------------- from the row into memory */

/* Report what is not going to be in force. */
static void
warn(const Load *load, const char *problem)
{
	int			left_out = dt_entries_slots(load->entries) - dt_shared->max_groups;
	int			ignored = 0;

	foreach_ptr(DtEntry, entry, load->entries)
		ignored += list_length(entry->unknown);
	if (load->is_bad)
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the definitions of resource groups cannot be read, so those in force stay"),
				 errdetail_internal("%s", problem)));
	else if (left_out > 0)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg_plural("%d resource group or instance is not in force",
							   "%d resource groups or instances are not in force",
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

/* Find the roles or databases whose instances differ; some may not exist. */
static void
find_keys(DtEntry *group)
{
	foreach_ptr(DtEntry, instance, group->instances)
	{
		instance->key = group->definition.scope == DT_SCOPE_ROLE ?
			get_role_oid(instance->instance, true) :
			get_database_oid(instance->instance, true);
	}
}

/* Read the row, and make all that can fail. */
static Load *
prepare(void)
{
	Load	   *load = palloc0(sizeof(Load));
	char	   *string;
	const char *problem;

	load->is_current = !RecoveryInProgress();
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	load->changes = dt_registry_changes();
	load->version = dt_shared->row;
	LWLockRelease(dt_shared->registry_lock);
	load->is_same = !dt_definitions_read_row(&load->version, &string);
	if (load->is_same)
		return load;
	load->entries = dt_text_read(string, &problem);
	foreach_ptr(DtEntry, entry, load->entries)
	{
		find_keys(entry);
	}
	load->of_slot = palloc0(dt_shared->max_groups * sizeof(DtEntry *));
	load->is_bad = problem != NULL;
	warn(load, problem);
	return load;
}

/*
 * Find out what becomes of the slots for which this is not known yet: match
 * groups and entries by "compare".
 */
static void
find_slots(Load *load, list_sort_comparator compare)
{
	list_sort(load->entries, compare);
	for (int i = 0; i < dt_shared->n_groups && load->entries != NIL; i++)
	{
		DtGroup    *g = &dt_groups[i];
		ListCell	key = {.ptr_value = &g->definition};
		ListCell   *found;
		DtEntry    *entry;

		if (g->id == 0 || g->of != g->id || load->of_slot[i] != NULL ||
			(compare == dt_compare_ids && g->definition.id == 0))
			continue;
		found = bsearch(&key, load->entries->elements,
						list_length(load->entries), sizeof(ListCell),
						(int (*) (const void *, const void *)) compare);
		entry = found ? lfirst(found) : NULL;
		if (entry == NULL || entry->has_slot)
			continue;
		entry->has_slot = true;
		load->of_slot[i] = entry;
	}
}

static void
alter(DtGroup *g, const DtDefinition *d)
{
	if (memcmp(&g->definition, d, sizeof(DtDefinition)) != 0)
		dt_group_alter(g, d);
}

/* An instance is as its group is, but for what differs. */
static void
replace_instance(DtGroup *g, const DtEntry *group)
{
	DtEntry    *mine = NULL;
	DtDefinition d = group->definition;

	foreach_ptr(DtEntry, instance, group->instances)
	{
		if (instance->key == g->key)
			mine = instance;
	}
	g->differs = mine != NULL;
	if (mine != NULL)
	{
		d = dt_instance_definition(group, mine);
		mine->has_slot = true;
	}
	alter(g, &d);
}

/* Instances that differ have slots for as long as they do. */
static void
begin_instances(DtEntry *group)
{
	DtGroup    *own = dt_group_find(group->definition.name);

	foreach_ptr(DtEntry, instance, group->instances)
	{
		DtGroup    *g;

		if (instance->has_slot || !OidIsValid(instance->key) || own == NULL)
			continue;
		g = dt_group_begin(&own->definition, own, instance->key, true);
		if (g != NULL)
			replace_instance(g, group);
	}
}

/*
 * A group is known by its ID, so a group that was renamed keeps its members; and
 * by its name, when the row was written by hand or comes from another server.
 */
static void
replace_definitions(Load *load)
{
	find_slots(load, dt_compare_ids);
	find_slots(load, dt_compare_names);
	for (int i = 0; i < dt_shared->n_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id == 0 || g->of != g->id)
			continue;
		if (load->of_slot[i] != NULL)
			alter(g, &load->of_slot[i]->definition);
		else
			dt_group_end(g);
	}
	for (int i = 0; i < dt_shared->n_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id != 0 && g->of != g->id)
			replace_instance(g, load->of_slot[dt_group_find_id(g->of) - dt_groups]);
	}
	dt_shared->commits_followed = false;
	foreach_ptr(DtEntry, entry, load->entries)
	{
		if (!entry->has_slot &&
			dt_group_begin(&entry->definition, NULL, InvalidOid, true) == NULL)
			continue;			/* there is no room for it */
		dt_shared->commits_followed |=
			dt_definition_follows(&entry->definition, DT_COMMIT_LATENCY);
	}
	foreach_ptr(DtEntry, entry, load->entries)
	{
		begin_instances(entry);
	}
	dt_sampler_wake();
}

/*
 * Put what was read in force, with the registry lock.  This must not fail.  What
 * memory has is noted when all is done: some background workers are ended by
 * SIGTERM wherever they are, and then the next load does everything again.
 */
static void
put_in_force(Load *load)
{
	if (!load->is_same)
	{
		dt_shared->is_current = false;
		/* neither a row's nor that of no row */
		dt_shared->row.xmin = BootstrapTransactionId;
		pg_atomic_fetch_add_u64(&dt_shared->registry_changes, 1);
		if (!load->is_bad)
			replace_definitions(load);
		dt_shared->row = load->version;
	}
	dt_shared->is_current = load->is_current;
}

/*
 * After a start, when it is known how many groups there are, log what
 * runs here.
 */
static void
log_start(int groups)
{
	ereport(LOG_SERVER_ONLY,
			(errmsg_plural("dirty_throttle %s has loaded %d resource group%s",
						   "dirty_throttle %s has loaded %d resource groups%s",
						   groups, loading.library_version, groups,
						   dt_throttling_is_enabled() ? "" :
						   "; dirty_throttle.enabled = off"),
			 errhidestmt(true)));
}

/* False: another process has been faster, perhaps with a newer version. */
static bool
load_once(void)
{
	Load	   *load = prepare();
	int			groups = 0;
	bool		first;
	bool		done;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	done = load->changes == dt_registry_changes();
	if (done)
		put_in_force(load);
	first = done && !dt_shared->start_logged;
	dt_shared->start_logged |= done;
	for (int i = 0; i < dt_shared->n_groups && first; i++)
		groups += dt_groups[i].id != 0 && dt_groups[i].of == dt_groups[i].id;
	LWLockRelease(dt_shared->registry_lock);
	if (first)
		log_start(groups);
	return done;
}

/* Can the row be read now, in this process? */
static bool
row_is_readable(void)
{
	return IsTransactionState() && OidIsValid(MyDatabaseId) &&
		criticalRelcachesBuilt && CurrentResourceOwner != NULL &&
		!HistoricSnapshotActive();
}

/*
 * Bring shared memory up to date, if this is possible here.  A transaction
 * that has changed the row does not load it before its end: it would read
 * what it has not committed yet, and as it holds the lock on the row, nobody
 * else can have committed anything.
 */
void
dt_load_now(void)
{
	/* for the leader to do, or never */
	if (IsParallelWorker() || !dt_shmem_available() || dt_shared->is_current)
		dt_load_may_be_due = false;
	if (!dt_load_may_be_due)
		dt_commits_follow();
	if (!dt_load_may_be_due || dt_definitions_locked || !row_is_readable())
		return;
	do
		loading.outdated = false;	/* a message while the row is read counts */
	while (!load_once());
	dt_load_may_be_due = loading.outdated;
	dt_commits_follow();
}

/* ----------------------------------------- changes of roles and settings */

/* This transaction has changed the row: it is loaded at COMMIT. */
static void
load_at_commit(void)
{
	dt_definitions_lock();
	CacheInvalidateRelcacheByRelid(DbRoleSettingRelationId);
	ForceSyncCommit();
}

/* Does an instance for the role or database of that name differ? */
static DtEntry *
find_instance(const DtEntry *group, Oid class, const char *name)
{
	bool		is_of_roles = group->definition.scope == DT_SCOPE_ROLE;

	return is_of_roles == (class == AuthIdRelationId) ? dt_instance_find(group, name) : NULL;
}

/*
 * Rename a role or database in all grants and instances, or with NULL drop it; with
 * its own name nothing changes.  What a restore has defined for one of the new name,
 * which there was not, holds for it now, unless it has something of its own.  False: it
 * is in none.
 */
static bool
replace_name(List *entries, Oid class, char *name, char *new_name)
{
	String	   *old = makeString(name);
	bool		found = false;

	foreach_ptr(DtEntry, entry, entries)
	{
		DtEntry    *instance = find_instance(entry, class, name);
		DtEntry    *waiting = new_name != NULL ? find_instance(entry, class, new_name) : NULL;

		found |= instance != NULL || waiting != NULL;
		if (instance != NULL && instance != waiting)
		{
			entry->instances = list_delete_ptr(entry->instances,
											   new_name != NULL ? waiting : instance);
			if (new_name != NULL)
				strlcpy(instance->instance, new_name, NAMEDATALEN);
		}
		if (class != AuthIdRelationId || !list_member(entry->grants, old))
			continue;
		found = true;
		entry->grants = list_delete(entry->grants, old);
		if (new_name != NULL)
			entry->grants = list_append_unique(entry->grants,
											   makeString(new_name));
	}
	return found;
}

/*
 * A role or database is renamed, or with NULL dropped, or, with its own name, new.
 * The row is locked, and a new version of it leads to a load, only if that concerns
 * a grant or an instance.
 */
static void
follow_name(Oid class, char *name, char *new_name)
{
	List	   *entries;

	if (!replace_name(dt_definitions_read(false), class, name, new_name))
		return;
	entries = dt_definitions_begin_change();
	if (replace_name(entries, class, name, new_name))
		dt_definitions_write(entries);
}

/*
 * A transaction that changes the definitions keeps others from that until it
 * ends; and so does any other change of that role's row.  In PostgreSQL 15 every
 * role with CREATEROLE may alter and drop that role, as far as the core is
 * concerned.
 */
static void
check_superuser(void)
{
	if (!superuser())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to change role \"%s\"", DT_DEFINITIONS_ROLE),
				 errdetail("Only superusers can change it, since resource groups are defined in its settings.")));
}

static void
role_is_dropped(Oid role)
{
	char	   *name;

	LockSharedObject(AuthIdRelationId, role, 0, AccessExclusiveLock);
	name = GetUserNameFromId(role, true);
	if (name == NULL)
		return;
	if (strcmp(name, DT_DEFINITIONS_ROLE) != 0)
	{
		follow_name(AuthIdRelationId, name, NULL);
		return;
	}
	check_superuser();
	if (dt_definitions_begin_change() != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("role \"%s\" cannot be dropped because its settings define resource groups",
						DT_DEFINITIONS_ROLE),
				 errhint("Use drop_resource_group() to drop them one by one, or ALTER ROLE %s RESET \"%s\" to drop them all.",
						 DT_DEFINITIONS_ROLE, DT_DEFINITIONS_PARAMETER)));
}

/* The name that the command that runs has given to a role or database. */
static char *
read_new_name(Oid class, Oid object)
{
	bool		is_role = class == AuthIdRelationId;
	Relation	rel = table_open(class, AccessShareLock);
	char	   *name = NULL;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, is_role ? Anum_pg_authid_oid : Anum_pg_database_oid,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(object));
	scan = systable_beginscan(rel, is_role ? AuthIdOidIndexId : DatabaseOidIndexId,
							  true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		name = pstrdup(is_role ?
					   NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname) :
					   NameStr(((Form_pg_database) GETSTRUCT(tuple))->datname));
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return name;
}

/*
 * A role or database may have another name, or is new: instances may be defined for it
 * already, as after a restore of the definitions.
 */
static void
object_is_named(Oid class, Oid object, bool is_new)
{
	char	   *new_name = read_new_name(class, object);
	char	   *name = is_new ? new_name : class == DatabaseRelationId ?
		get_database_name(object) : GetUserNameFromId(object, true);

	if (name == NULL || new_name == NULL || (!is_new && strcmp(name, new_name) == 0))
		return;
	if (class == AuthIdRelationId && !is_new)
	{
		if (strcmp(name, DT_DEFINITIONS_ROLE) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
					 errmsg("role \"%s\" cannot be renamed because resource groups are defined in its settings",
							DT_DEFINITIONS_ROLE)));
		if (strcmp(new_name, DT_DEFINITIONS_ROLE) == 0)
			load_at_commit();
		/* who grants something to it waits, and not who creates what it owns */
		LockSharedObject(AuthIdRelationId, object, 0, ShareLock);
	}
	follow_name(class, name, new_name);
}

/* A setting has changed, of a role or of all roles. */
static void
setting_is_altered(Oid role)
{
	if (!OidIsValid(role) || role != dt_definitions_role())
		return;
	if (!dt_definitions_changed())
		check_superuser();
	load_at_commit();
}

/* The functions go, and the groups, which are the server's, stay. */
static void
extension_is_dropped(Oid extension)
{
	char	   *name = get_extension_name(extension);
	int			groups;

	if (name == NULL || strcmp(name, "dirty_throttle") != 0)
		return;
	groups = list_length(dt_definitions_read(false));
	if (groups > 0)
		ereport(WARNING,
				(errmsg_plural("%d resource group stays in force without the extension",
							   "%d resource groups stay in force without the extension",
							   groups, groups),
				 errdetail("Resource groups belong to the server, not to a database."),
				 errhint("To drop them all, use ALTER ROLE %s RESET \"%s\".",
						 DT_DEFINITIONS_ROLE, DT_DEFINITIONS_PARAMETER)));
}

/*
 * The object access hook calls this, so it does not matter whether one of our
 * functions has written the row or ALTER ROLE.  The role whose setting it is
 * cannot be renamed, nor dropped while there are groups; what is granted to
 * another role follows it.
 */
void
dt_load_object_accessed(ObjectAccessType access, Oid classId,
						Oid objectId, void *arg)
{
	if (!dt_shmem_available())
		return;
	if ((classId == AuthIdRelationId || classId == DatabaseRelationId) &&
		(access == OAT_POST_ALTER || access == OAT_POST_CREATE))
		object_is_named(classId, objectId, access == OAT_POST_CREATE);
	else if (classId == AuthIdRelationId && access == OAT_DROP)
		role_is_dropped(objectId);
	else if (classId == DatabaseRelationId && access == OAT_DROP)
		follow_name(classId, get_database_name(objectId), NULL);
	else if (classId == ExtensionRelationId && access == OAT_DROP)
		extension_is_dropped(objectId);
	else if (classId == DbRoleSettingRelationId &&
			 access == OAT_POST_ALTER && !OidIsValid(objectId))
		setting_is_altered(((ObjectAccessPostAlter *) arg)->auxiliary_id);
}

/* --------------------------------- the events that load what has changed */

/*
 * Also called when all caches are reset, and when this process has changed the
 * row.
 */
static void
relation_is_outdated(Datum arg, Oid relation)
{
	if (relation == DbRoleSettingRelationId || relation == InvalidOid)
		loading.outdated = dt_load_may_be_due = true;
}

/*
 * Before the commit: do all that can fail.  After it nothing can be read and
 * nothing may fail; the load is only put in force.  Interrupts are held from
 * the commit until then, so only the end of the server can come in between,
 * and that ends shared memory, too.
 */
static void
prepare_own(void)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

	CommandCounterIncrement();	/* the last command may have changed it */
	loading.own_load = prepare();
	MemoryContextSwitchTo(old);
}

static pg_noinline void
handle_transaction_event(XactEvent event)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			if (dt_definitions_still_locked())
				prepare_own();
			else if (MyBackendType != B_BACKEND)
				dt_load();		/* it may run no statements */
			break;
		case XACT_EVENT_PRE_PREPARE:
			/* also if there was nothing to change: it would keep the lock */
			if (dt_definitions_still_locked())
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has changed resource groups"),
						 errhint("Change them in a transaction of its own.")));
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
		case XACT_EVENT_ABORT:
			if (event == XACT_EVENT_COMMIT && loading.own_load != NULL)
			{
				LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
				put_in_force(loading.own_load);
				LWLockRelease(dt_shared->registry_lock);
			}
			dt_definitions_locked = false;
			loading.own_load = NULL;
			break;
		default:
			break;
	}
}

/* Called twice for each transaction of each session: 7 instructions each. */
static void
transaction_event(XactEvent event, void *arg)
{
	if (unlikely(dt_definitions_locked || MyBackendType != B_BACKEND))
		handle_transaction_event(event);
}

/* While shared_preload_libraries is processed. */
void
dt_load_init(const char *library_version)
{
	loading.library_version = library_version;
	CacheRegisterRelcacheCallback(relation_is_outdated, (Datum) 0);
	RegisterXactCallback(transaction_event, NULL);
}
