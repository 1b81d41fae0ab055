/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Which roles may use join_group() for which groups.
 *
 * A grant is a pair of group and role, in shared memory (registry lock) and in
 * the definitions file (change lock).  It ends with its group, and with its
 * role: when a transaction that has dropped a role commits, the grants to that
 * role are removed.
 *
 * That fails if the file cannot be written or the server crashes, and it does
 * not happen on a standby or after COMMIT PREPARED.  Then a grant to a role
 * that does not exist is left, which nobody can use and the view does not
 * show.  Every change of definitions removes such grants first.  When a role
 * is created with the OID of an old one, the old one's grants are removed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "registry/change.h"
#include "registry/grant.h"
#include "registry/shmem.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* The roles that this transaction has dropped, in TopTransactionContext. */
static List *dropped_roles = NIL;

static DtGrantSlot *
find_grant(uint64 group_id, Oid role)
{
	int			i;

	for (i = 0; i < dt_shared->max_grants; i++)
		if (dt_grants[i].group_id == group_id &&
			(group_id == 0 || dt_grants[i].role == role))
			return &dt_grants[i];
	return NULL;
}

static bool
role_exists(Oid role)
{
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role));
}

/*
 * Does the role exist for any transaction?  A grant may be to a role whose
 * creation is not committed yet, since grants take effect at once; and the
 * transaction that has dropped a role may still abort.
 */
static bool
role_may_exist(Relation authid, Oid role)
{
	SnapshotData dirty;
	ScanKeyData key;
	SysScanDesc scan;
	bool		found;

	InitDirtySnapshot(dirty);
	ScanKeyInit(&key, Anum_pg_authid_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(authid, AuthIdOidIndexId, true, &dirty, 1, &key);
	found = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	return found;
}

/*
 * The roles that have grants, but do not exist any more.  Those that this
 * transaction has dropped are not included, since it may abort.
 */
static List *
gone_roles(void)
{
	DtGrant    *grants;
	int			n = dt_grant_list(&grants);
	List	   *gone = NIL;
	Relation	authid = NULL;
	int			i;

	for (i = 0; i < n; i++)
	{
		Oid			role = grants[i].role;

		if (role_exists(role) || list_member_oid(dropped_roles, role) ||
			list_member_oid(gone, role))
			continue;
		if (authid == NULL)
			authid = table_open(AuthIdRelationId, AccessShareLock);
		if (!role_may_exist(authid, role))
			gone = lappend_oid(gone, role);
	}
	if (authid != NULL)
		table_close(authid, AccessShareLock);
	pfree(grants);
	return gone;
}

/* Is there a grant to one of these roles? */
static bool
have_grants(const List *roles)
{
	DtGrant    *grants;
	int			n = dt_grant_list(&grants);

	while (n > 0 && !list_member_oid(roles, grants[n - 1].role))
		n--;
	pfree(grants);
	return n > 0;
}

/*
 * Remove all grants to these roles.  They are removed from shared memory even
 * when the file cannot be written, since the OID may be given to another role.
 */
static void
remove_grants_to(const List *roles)
{
	DtDefinitions d;
	ListCell   *lc;
	int			i;

	if (roles == NIL || !have_grants(roles))
		return;
	dt_change_begin(&d);
	foreach(lc, roles)
		dt_definitions_remove_grants(&d, NULL, lfirst_oid(lc));
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	for (i = 0; i < dt_shared->max_grants; i++)
		if (list_member_oid(roles, dt_grants[i].role))
			dt_grants[i].group_id = 0;
	LWLockRelease(dt_shared->registry_lock);
	dt_change_commit(&d);
	dt_change_end();
}

void
dt_grant_remove_unusable(void)
{
	remove_grants_to(gone_roles());
}

bool
dt_grant_set(const char *group_name, Oid role, bool allow)
{
	DtDefinitions d;
	DtGrantSlot *slot;
	DtGroup    *g;

	dt_grant_remove_unusable();
	dt_change_begin(&d);
	g = dt_group_find_or_error(group_name);
	slot = find_grant(g->id, role);
	if ((slot != NULL) == allow)
	{
		dt_change_cancel();
		return false;
	}
	if (allow && (slot = find_grant(0, InvalidOid)) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot make more than %d grants on resource groups",
						dt_shared->max_grants),
				 errhint("Grant the use of the group to one role instead of several, and that role to the others; revoke grants with revoke_group_use(), or increase dirty_throttle.max_groups and restart the server.")));
	if (allow)
	{
		strlcpy(d.grants[d.n_grants].group_name, group_name, NAMEDATALEN);
		d.grants[d.n_grants++].role = role;
	}
	else
		dt_definitions_remove_grants(&d, group_name, role);

	dt_change_commit(&d);
	slot->role = role;
	slot->group = g - dt_groups;
	slot->group_id = allow ? g->id : 0;
	dt_change_end();
	return true;
}

int
dt_grant_list(DtGrant **grants)
{
	int			n;

	*grants = palloc0(dt_shared->max_grants * sizeof(DtGrant));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	n = dt_copy_grants(*grants);
	LWLockRelease(dt_shared->registry_lock);
	return n;
}

bool
dt_grant_permits(const char *group_name, Oid user)
{
	DtGrant    *grants;
	int			n = dt_grant_list(&grants);
	int			i;

	if (dt_group_lookup_id(group_name) == 0)
		dt_group_missing(group_name);
	if (superuser_arg(user))
		return true;
	for (i = 0; i < n; i++)
		if (strcmp(grants[i].group_name, group_name) == 0 &&
			role_exists(grants[i].role) &&
			has_privs_of_role(user, grants[i].role))
			return true;
	return false;
}

/*
 * An ERROR after the commit would be a PANIC, so it becomes a WARNING.
 */
static void
remove_grants_after_commit(List *roles)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupt_holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;

	PG_TRY();
	{
		remove_grants_to(roles);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();

		/*
		 * The error has reset InterruptHoldoffCount, which each release of a
		 * lock decrements.
		 */
		if (LWLockHeldByMe(dt_shared->registry_lock))
		{
			HOLD_INTERRUPTS();
			LWLockRelease(dt_shared->registry_lock);
		}
		if (LWLockHeldByMe(dt_shared->change_lock))
		{
			HOLD_INTERRUPTS();
			LWLockRelease(dt_shared->change_lock);
		}
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("could not remove grants to a dropped role from file \"%s\"",
						DT_STORE_FILE),
				 errdetail_internal("%s", error->message),
				 errhint("Nothing needs to be done. The grants have no effect, and the next change of a resource group removes them.")));
	}
	PG_END_TRY();
}

/*
 * The subtransaction that has dropped a role may have been rolled back, so the
 * roles are looked up before the commit, which is the last time that this is
 * possible.
 */
static void
transaction_event(XactEvent event, void *arg)
{
	List	   *roles = dropped_roles;
	ListCell   *lc;

	if (roles == NIL)
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			foreach(lc, dropped_roles)
			{
				if (role_exists(lfirst_oid(lc)))
					dropped_roles = foreach_delete_current(dropped_roles, lc);
			}
			break;
		case XACT_EVENT_COMMIT:
			dropped_roles = NIL;
			remove_grants_after_commit(roles);
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PREPARE:
			dropped_roles = NIL;
			break;
		default:
			break;
	}
}

void
dt_grant_object_accessed(ObjectAccessType access, Oid classId, Oid objectId)
{
	if (classId != AuthIdRelationId || !dt_shmem_available())
		return;
	if (access == OAT_POST_CREATE)
		remove_grants_to(list_make1_oid(objectId)); /* an old role's */
	else if (access == OAT_DROP)
	{
		static bool registered = false;
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		if (!registered)
			RegisterXactCallback(transaction_event, NULL);
		registered = true;
		dropped_roles = lappend_oid(dropped_roles, objectId);
		MemoryContextSwitchTo(old);
	}
}
