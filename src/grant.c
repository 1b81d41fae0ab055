/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Which roles may join which groups by themselves.
 *
 * A grant is a pair of group and role, in shared memory and in the definitions
 * file.  It goes with its group, and with its role: when a transaction that
 * has dropped a role commits, its grants are removed.  Where that is not seen
 * (the role was dropped on the primary, or by COMMIT PREPARED), fails, or is
 * cut short by a crash, a grant to no role is left, which nobody can use and
 * the view does not show.  Every change of definitions begins by removing
 * those, and a new role begins with none, should it get the OID of an old one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "grant.h"
#include "miscadmin.h"
#include "registry.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"

/* Roles that this transaction has dropped; in TopTransactionContext. */
static List *dropped_roles = NIL;
static bool registered = false; /* for the ends of transactions */

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
 * Does any version of that role live, to whichever transaction?  Grants take
 * effect at once, so one may be to a role whose creation is not committed yet;
 * and what another transaction has dropped may come back.
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
 * The roles that have grants, but are gone for good.  Those that our own
 * transaction has dropped are not, before it commits.
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

/* Has anybody granted anything to one of these roles? */
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
 * Remove all grants to these roles, from memory first: that cannot fail.
 */
static void
forget_roles(const List *roles)
{
	DtDefinitions d;
	int			i;

	if (roles == NIL || !have_grants(roles))
		return;
	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	for (i = 0; i < dt_shared->max_grants; i++)
		if (list_member_oid(roles, dt_grants[i].role))
			dt_grants[i].group_id = 0;
	LWLockRelease(dt_shared->registry_lock);
	dt_registry_copy(&d);
	dt_store_write(&d);
	LWLockRelease(dt_shared->change_lock);
}

void
dt_grant_begin_change(void)
{
	forget_roles(gone_roles());
	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
}

/*
 * Make the grant be there, or not.  Returns whether that is a change.
 */
static bool
change_grant(const char *group_name, Oid role, bool allow)
{
	DtDefinitions d;
	DtGrantSlot *slot;
	DtGroup    *g;
	int			i;

	dt_grant_begin_change();
	g = dt_registry_find(group_name);
	if (g == NULL)
		dt_group_missing(group_name);
	slot = find_grant(g->id, role);
	if ((slot != NULL) == allow)
	{
		LWLockRelease(dt_shared->change_lock);
		return false;
	}
	if (allow && (slot = find_grant(0, InvalidOid)) == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("all %d grants of resource groups are in use",
						dt_shared->max_grants),
				 errhint("Grant to a role that others are members of, take grants back with revoke_group_use(), or set dirty_throttle.max_groups to a higher value and restart the server.")));

	dt_registry_copy(&d);
	if (allow)
	{
		strlcpy(d.grants[d.n_grants].group_name, group_name, NAMEDATALEN);
		d.grants[d.n_grants++].role = role;
	}
	else
	{
		for (i = 0; strcmp(d.grants[i].group_name, group_name) != 0 ||
			 d.grants[i].role != role; i++)
			;
		d.grants[i] = d.grants[--d.n_grants];
	}
	dt_store_write(&d);

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	slot->role = role;
	slot->group_id = allow ? g->id : 0;
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
	return true;
}

bool
dt_grant_allow(const char *group_name, Oid role)
{
	return change_grant(group_name, role, true);
}

bool
dt_grant_revoke(const char *group_name, Oid role)
{
	return change_grant(group_name, role, false);
}

int
dt_grant_list(DtGrant **grants)
{
	int			n = 0;
	int			i;

	*grants = palloc0(dt_shared->max_grants * sizeof(DtGrant));
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_grants; i++)
	{
		DtGroup    *g = dt_registry_find_id(dt_grants[i].group_id);

		if (g == NULL)
			continue;
		strlcpy((*grants)[n].group_name, g->name, NAMEDATALEN);
		(*grants)[n++].role = dt_grants[i].role;
	}
	LWLockRelease(dt_shared->registry_lock);
	return n;
}

bool
dt_grant_permits(const char *group_name, Oid user)
{
	DtGrant    *grants;
	int			n = dt_grant_list(&grants);
	int			i;

	if (dt_group_lookup(group_name) == 0)
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
 * After a commit nothing may fail: that would be a PANIC.
 */
static void
forget_roles_after_commit(List *roles)
{
	MemoryContext context = CurrentMemoryContext;
	uint32		interrupt_holdoff = InterruptHoldoffCount;
	uint32		cancel_holdoff = QueryCancelHoldoffCount;

	PG_TRY();
	{
		forget_roles(roles);
	}
	PG_CATCH();
	{
		ErrorData  *error;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		/* each release lets interrupts go that the error has let go already */
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
				 errmsg("grants of resource groups to a dropped role are still in file \"%s\"",
						DT_STORE_FILE),
				 errdetail_internal("%s", error->message),
				 errhint("Nobody can use them. They go when a resource group is changed the next time.")));
	}
	PG_END_TRY();
}

/*
 * A role may be dropped in a subtransaction that is rolled back, so look
 * before the commit which of them have really gone.
 */
static void
transaction_event(XactEvent event, void *arg)
{
	List	   *roles = dropped_roles;
	ListCell   *lc;

	if (likely(roles == NIL))
		return;
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
			foreach(lc, dropped_roles)
				if (role_exists(lfirst_oid(lc)))
					dropped_roles = foreach_delete_current(dropped_roles, lc);
			break;
		case XACT_EVENT_COMMIT:
			dropped_roles = NIL;
			forget_roles_after_commit(roles);
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
	if (classId != AuthIdRelationId || !dt_group_available())
		return;
	if (access == OAT_POST_CREATE)
		forget_roles(list_make1_oid(objectId));	/* an old one's */
	else if (access == OAT_DROP)
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		if (!registered)
			RegisterXactCallback(transaction_event, NULL);
		registered = true;
		dropped_roles = lappend_oid(dropped_roles, objectId);
		MemoryContextSwitchTo(old);
	}
}
