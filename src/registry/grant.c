/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Which roles may use join_group() for which groups.
 *
 * A grant is a word in the line of its group, with the name of the role, so
 * that it can be dumped and restored.  It is needed only where the catalog can
 * be read, so it is not in shared memory.  The transaction that renames or
 * drops the role changes the line, too.  As the core does, who grants locks the
 * role against that, so that no name stays behind.  A name without a role, as
 * after a restore of the definitions only, grants nothing until there is one.
 *
 * The role whose setting all definitions are cannot be renamed, nor dropped
 * while there are groups.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "miscadmin.h"
#include "registry/definitions.h"
#include "registry/grant.h"
#include "registry/load.h"
#include "registry/shmem.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"

/* The element of a list of names, or NULL. */
static char *
find_name(List *names, const char *name)
{
	ListCell   *lc;

	foreach(lc, names)
		if (strcmp(lfirst(lc), name) == 0)
		return lfirst(lc);
	return NULL;
}

bool
dt_grant_set(const char *group_name, Oid role, bool allow)
{
	char	   *role_name;
	List	   *entries;
	DtEntry    *entry;
	char	   *granted;

	dt_definitions_need_writable();
	shdepLockAndCheckObject(AuthIdRelationId, role);
	role_name = GetUserNameFromId(role, false);
	entries = dt_definitions_begin_change();
	entry = dt_definitions_find(entries, group_name);
	if (entry == NULL)
		dt_group_missing(group_name);
	granted = find_name(entry->grants, role_name);
	if ((granted != NULL) == allow)
		return false;
	if (allow)
		entry->grants = lappend(entry->grants, role_name);
	else
		entry->grants = list_delete_ptr(entry->grants, granted);
	dt_definitions_write(entries);
	return true;
}

bool
dt_grant_permits(const char *group_name, Oid user)
{
	DtEntry    *entry;
	ListCell   *lc;

	if (dt_group_lookup_id(group_name) == 0)
		dt_group_missing(group_name);
	if (superuser_arg(user))
		return true;
	entry = dt_definitions_find(dt_definitions_read(true), group_name);
	if (entry == NULL)
		return false;
	foreach(lc, entry->grants)
	{
		Oid			role = get_role_oid(lfirst(lc), true);

		if (OidIsValid(role) && has_privs_of_role(user, role))
			return true;
	}
	return false;
}

/* Does any group have a grant to this role? */
static bool
has_grants(List *entries, const char *role_name)
{
	ListCell   *lc;

	foreach(lc, entries)
		if (find_name(((DtEntry *) lfirst(lc))->grants, role_name) != NULL)
		return true;
	return false;
}

/*
 * Give the grants of a role to another one, or with NULL to nobody.
 */
static void
replace_grants(const char *role_name, char *new_name)
{
	List	   *entries;
	ListCell   *lc;

	if (!has_grants(dt_definitions_read(false), role_name))
		return;
	entries = dt_definitions_begin_change();
	foreach(lc, entries)
	{
		DtEntry    *entry = lfirst(lc);
		char	   *granted = find_name(entry->grants, role_name);

		if (granted == NULL)
			continue;
		entry->grants = list_delete_ptr(entry->grants, granted);
		if (new_name != NULL && find_name(entry->grants, new_name) == NULL)
			entry->grants = lappend(entry->grants, new_name);
	}
	dt_definitions_write(entries);
}

static void
role_is_dropped(Oid role)
{
	char	   *name;

	LockSharedObject(AuthIdRelationId, role, 0, AccessExclusiveLock);
	name = GetUserNameFromId(role, true);
	if (name == NULL)
		return;
	if (strcmp(name, DT_ROW_ROLE) != 0)
		replace_grants(name, NULL);
	else if (dt_definitions_begin_change() != NIL)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("role \"%s\" cannot be dropped because its settings define resource groups",
						DT_ROW_ROLE),
				 errhint("Use drop_resource_group() to drop them one by one, or ALTER ROLE %s RESET \"%s\" to drop them all.",
						 DT_ROW_ROLE, DT_ROW_PARAMETER)));
}

/* The name that this command gives to the role, palloc'd, or NULL. */
static char *
new_name_of(Oid role)
{
	Relation	authid = table_open(AuthIdRelationId, AccessShareLock);
	char	   *name = NULL;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_authid_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(role));
	scan = systable_beginscan(authid, AuthIdOidIndexId, true, SnapshotSelf, 1,
							  &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		name = pstrdup(NameStr(((Form_pg_authid) GETSTRUCT(tuple))->rolname));
	systable_endscan(scan);
	table_close(authid, AccessShareLock);
	return name;
}

/* The caches have its old name still. */
static void
role_is_altered(Oid role)
{
	char	   *name = GetUserNameFromId(role, true);
	char	   *new_name = new_name_of(role);

	if (name == NULL || new_name == NULL || strcmp(name, new_name) == 0)
		return;
	if (strcmp(name, DT_ROW_ROLE) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("role \"%s\" cannot be renamed because its settings define resource groups",
						DT_ROW_ROLE)));
	if (strcmp(new_name, DT_ROW_ROLE) == 0)
		dt_load_at_commit();
	LockSharedObject(AuthIdRelationId, role, 0, AccessExclusiveLock);
	replace_grants(name, new_name);
}

void
dt_grant_object_accessed(ObjectAccessType access, Oid classId, Oid objectId,
						 void *arg)
{
	if (!dt_shmem_available())
		return;
	if (classId == AuthIdRelationId && access == OAT_DROP)
		role_is_dropped(objectId);
	else if (classId == AuthIdRelationId && access == OAT_POST_ALTER)
		role_is_altered(objectId);
	else if (classId == DbRoleSettingRelationId &&
			 access == OAT_POST_ALTER && !OidIsValid(objectId) &&
			 ((ObjectAccessPostAlter *) arg)->auxiliary_id == dt_row_role())
		dt_load_at_commit();
}
