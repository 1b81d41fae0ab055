/*-------------------------------------------------------------------------
 *
 * grant.c
 *		Which roles may use join_group() for which groups.
 *
 * A grant is a word in the line of its group, with the name of the role, so
 * that it can be dumped and restored.  It is needed only where the catalog can
 * be read, so it is not in shared memory.  The transaction that renames or
 * drops the role changes the line, too.  As the core does, who grants locks
 * the role against that, so that no name stays behind.  A name without a role,
 * as after a restore of the definitions only, grants nothing until there is
 * one.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "shared/definitions.h"
#include "shared/grant.h"
#include "utils/acl.h"

/*
 * Allow a role to join a group, or revoke that, in this transaction.  Returns
 * whether anything had to be changed.
 */
bool
dt_grant_set(const char *group_name, Oid role, bool allow)
{
	String	   *role_name;
	List	   *entries;
	DtEntry    *entry;

	dt_definitions_need_writable();
	shdepLockAndCheckObject(AuthIdRelationId, role);
	role_name = makeString(GetUserNameFromId(role, false));
	entry = dt_definitions_edit(group_name, DT_ALTER, &entries);
	if (list_member(entry->grants, role_name) == allow)
		return false;
	if (allow)
		entry->grants = lappend(entry->grants, role_name);
	else
		entry->grants = list_delete(entry->grants, role_name);
	dt_definitions_write(entries);
	return true;
}

/* May this user join the group?  ERROR when there is no such group. */
bool
dt_grant_permits(const char *group_name, Oid user)
{
	DtEntry    *entry = dt_definitions_find(dt_definitions_read(true),
											group_name);

	if (entry == NULL)
		dt_group_missing(group_name);
	if (superuser_arg(user))
		return true;
	foreach_ptr(String, name, entry->grants)
	{
		Oid			role = get_role_oid(strVal(name), true);

		if (OidIsValid(role) && has_privs_of_role(user, role))
			return true;
	}
	return false;
}

/* Rename a role in all grants, or with NULL drop it; false: it has none. */
static bool
replace(List *entries, char *name, char *new_name)
{
	String	   *old = makeString(name);
	bool		found = false;

	foreach_ptr(DtEntry, entry, entries)
	{
		if (!list_member(entry->grants, old))
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
 * A role is renamed, or with NULL dropped.  The row is locked only if that
 * concerns a grant.
 */
void
dt_grant_follow_role(char *name, char *new_name)
{
	List	   *entries;

	if (!replace(dt_definitions_read(false), name, new_name))
		return;
	entries = dt_definitions_begin_change();
	if (replace(entries, name, new_name))
		dt_definitions_write(entries);
}
