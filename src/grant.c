/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Which roles may join which groups by themselves.
 *
 * A grant is a pair of group and role, in shared memory and in the definitions
 * file.  It goes with its group, and with its role: when a transaction that
 * has dropped a role commits, its grants are removed.  Should that fail, or the
 * server crash before, a grant to no role is left, which nobody can use and
 * the view does not show.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_authid.h"
#include "grant.h"
#include "miscadmin.h"
#include "registry.h"
#include "utils/acl.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

#include "compat.h"

static object_access_hook_type next_object_access = NULL;

/* Roles that this transaction has dropped; in TopTransactionContext. */
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

	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
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

static bool
role_exists(Oid role)
{
	return SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(role));
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

/* Has anybody granted anything to this role? */
static bool
has_grants(Oid role)
{
	bool		result = false;
	int			i;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (i = 0; i < dt_shared->max_grants; i++)
		if (dt_grants[i].group_id != 0 && dt_grants[i].role == role)
			result = true;
	LWLockRelease(dt_shared->registry_lock);
	return result;
}

static void
object_accessed(ObjectAccessType access, Oid classId, Oid objectId, int subId,
				void *arg)
{
	if (next_object_access)
		next_object_access(access, classId, objectId, subId, arg);

	if (access == OAT_DROP && classId == AuthIdRelationId &&
		dt_group_available() && has_grants(objectId))
	{
		MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);

		dropped_roles = lappend_oid(dropped_roles, objectId);
		MemoryContextSwitchTo(old);
	}
}

/*
 * Remove all grants to these roles, from memory first: that cannot fail.
 */
static void
forget_roles(List *roles)
{
	DtDefinitions d;
	int			i;

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
dt_grant_init(void)
{
	next_object_access = object_access_hook;
	object_access_hook = object_accessed;
	RegisterXactCallback(transaction_event, NULL);
}
