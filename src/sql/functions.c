/*-------------------------------------------------------------------------
 *
 * functions.c
 *		SQL functions that change something.
 *
 * None of the functions is STRICT, so that a NULL is an error instead of being
 * ignored.  Who may call a function is decided by GRANT; see the extension
 * script.  What is defined of a group is changed in the entry that
 * dt_definitions_edit() returns, which dt_sql_write() then writes.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "common/shortest_dec.h"
#include "compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "session/account.h"
#include "session/pay.h"
#include "session/session.h"
#include "shared/amount.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/member.h"
#include "sql/notices.h"
#include "sql/sql.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

/* A lower limit, in bytes/s, is seldom meant. */
#define LEAST_USUAL_LIMIT	100000

/* How numbers in these units are written. */
static const struct
{
	const char *name;			/* of the unit, after a space */
	const char *meaning;		/* what an error says after the range */
	const char *hint;
}			numbers[] = {
	[DT_UNIT_RATE] = {" KB/s", " (1 KB = 1000 bytes)", "Write an amount per second with its unit, for example '5 MB', or a number of KB/s."},
	[DT_UNIT_BYTES] = {" KB", " (1 KB = 1000 bytes)", "Write an amount with its unit, for example '64 MB', or a number of KB."},
	[DT_UNIT_US] = {" ms", " of the group's limits", "Write a time with its unit, for example '1 min', or a number of milliseconds."},
	[DT_UNIT_NUMBER] = {"", "", ""}
};

/*
 * An argument of any type as text, palloc'd.  *shown: the same as messages show it, with
 * quotes unless it is a number.
 */
static char *
get_any(FunctionCallInfo fcinfo, int arg, const char **shown)
{
	Oid			type = get_fn_expr_argtype(fcinfo->flinfo, arg);
	char		category;
	bool		preferred;
	Oid			output;
	bool		is_varlena;
	char	   *value;

	if (!OidIsValid(type))
		elog(ERROR, "could not determine the type of argument %d", arg + 1);
	getTypeOutputInfo(type, &output, &is_varlena);
	/* whatever extra_float_digits is */
	value = type == FLOAT8OID ? double_to_shortest_decimal(PG_GETARG_FLOAT8(arg)) :
		type == FLOAT4OID ? float_to_shortest_decimal(PG_GETARG_FLOAT4(arg)) :
		OidOutputFunctionCall(output, PG_GETARG_DATUM(arg));
	get_type_category_preferred(type, &category, &preferred);
	*shown = category == TYPCATEGORY_NUMERIC ? value : psprintf("\"%s\"", value);
	return value;
}

/*
 * The value of a property, a number, an amount with its unit, or a word, from text;
 * "shown" is how messages show that.  A tiny rate does not become 0, which means no limit.
 */
static int64
read_value(const DtProperty *property, const char *written, const char *shown)
{
	int64		lowest = (property->min + 999) / 1000;
	float8		value = 0;		/* in thousandths of the unit, KB/s for one */
	int64		stored;

	if (property->kind == DT_WORD)
	{
		stored = dt_property_word(property, written);
		if (stored < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("unrecognized %s %s", property->label, shown),
					 errhint("%s", property == dt_property("scope") ?
							 _("Valid scopes are \"group\", \"role\" and \"database\".") :
							 _("Valid modes are \"enforce\" and \"observe\"."))));
		return stored;
	}
	if (!dt_amount_read(property->unit, written, 1000, &value))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid %s: %s", property->label, shown),
				 errhint("%s%s", _(numbers[property->unit].hint),
						 dt_amount_hint(property->unit))));
	if (!(value >= lowest * 1000 && value <= property->max))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s %s is out of range", property->label, shown),
				 errdetail("The valid range is from %lld to %lld%s%s%s.",
						   (long long) lowest,
						   (long long) property->max / 1000,
						   numbers[property->unit].name,
						   numbers[property->unit].meaning,
						   property->unit == DT_UNIT_RATE && lowest == 0 ?
						   "; 0 means no limit" : "")));
	stored = value > 0 ? Max((int64) rint(value), 1) : 0;
	if (fabs(stored - value) > 0.001)
		ereport(NOTICE,
				(errmsg("%s %s is rounded to %s%s", property->label, shown,
						float8out_internal(stored / 1000.0),
						numbers[property->unit].name)));
	return stored;
}

/*
 * A limit that may not be what was meant: a number of KB/s that was taken for MB/s, or
 * 0, which stops nothing.
 */
static void
notice_limit(const DtProperty *property, const char *written, int64 limit,
			 const char *group, const char *instance)
{
	const char *limited = instance[0] == '\0' ?
		psprintf(_("resource group \"%s\""), group) :
		psprintf(_("instance \"%s\" of resource group \"%s\""), instance, group);
	char	   *number = float8out_internal(limit / 1000.0);
	float8		unused;

	if (limit == 0)
		ereport(NOTICE,
				(errmsg("%s now has no %s", limited, property->label),
				 errhint("A limit of 0 means no limit. To stop the group, use SELECT suspend_group(%s).",
						 quote_literal_cstr(group))));
	else if (limit < LEAST_USUAL_LIMIT &&
			 !dt_amount_read(property->unit, written, 0, &unused))
		ereport(NOTICE,
				(errmsg("%s of %s is %s KB/s", property->label, limited, number),
				 errhint("A number without a unit is in KB/s; for %s MB/s write '%s MB'.",
						 number, number)));
}

/*
 * Set a property, of a group or in the entry of one of its instances, to an argument of
 * any type, unless that is NULL.  Returns whether it is not.
 */
static bool
set_property(FunctionCallInfo fcinfo, int arg, const char *key,
			 const DtEntry *group, DtEntry *entry)
{
	const DtProperty *property = dt_property(key);
	const char *written;
	const char *shown;
	int64		value;

	if (PG_ARGISNULL(arg))
		return false;
	written = get_any(fcinfo, arg, &shown);
	value = read_value(property, written, shown);
	*dt_property_value(&entry->definition, property) = value;
	dt_property_differs(entry, property);
	if (property->unit == DT_UNIT_RATE && property->min == 0)
		notice_limit(property, written, value, group->definition.name,
					 entry->instance);
	return true;
}

/* Set a limit of a group to the second argument. */
static Datum
set_limit(FunctionCallInfo fcinfo, const char *key)
{
	char	   *name = dt_sql_get_group(fcinfo);
	List	   *entries;
	DtEntry    *group;

	dt_sql_check_not_null(fcinfo, 1, dt_property(key)->label);
	group = dt_definitions_edit(name, DT_CREATE_OR_ALTER, &entries);
	(void) set_property(fcinfo, 1, key, group, group);
	dt_sql_write(entries, group);
	dt_notice_floor(&group->definition);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(set_group_dirty_limit);
Datum
set_group_dirty_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, "dirty");
}

PG_FUNCTION_INFO_V1(set_group_wal_limit);
Datum
set_group_wal_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, "wal");
}

/*
 * The entry in which alter_resource_group() sets something: that of the group or, if
 * an instance is named, what differs of that; it is added if it is not there.
 */
static DtEntry *
edit_instance(FunctionCallInfo fcinfo, int arg, List *entries, DtEntry *group)
{
	char	   *name;
	DtEntry    *instance;

	if (PG_ARGISNULL(arg))
		return group;
	name = dt_sql_get_name(fcinfo, arg, "instance");
	if (group->definition.scope == DT_SCOPE_GROUP)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("resource group \"%s\" has no instances", group->definition.name),
				 errhint("Use SELECT alter_resource_group(%s, scope => 'role') to give each role limits of its own.",
						 quote_literal_cstr(group->definition.name))));
	instance = dt_instance_find(group, name);
	if (instance == NULL)
	{
		if (group->definition.scope == DT_SCOPE_ROLE)
			(void) get_role_oid(name, false);
		else
			(void) get_database_oid(name, false);
		dt_definitions_check_room(entries);
		instance = palloc0(sizeof(DtEntry));
		strlcpy(instance->instance, name, NAMEDATALEN);
		group->instances = lappend(group->instances, instance);
	}
	return instance;
}

/* In the order of the arguments of alter_resource_group(), after the name. */
static const char *const altered[] = {
	"dirty", "wal", "burst", "allowance", "floor", "weight", "mode", "scope"
};

#define ARG_SCOPE		8
#define ARG_INSTANCE	9

/*
 * Set what is not NULL of a group, which is created if it does not exist, or of an
 * instance of one.  An instance for which nothing is set is as its group again.
 */
PG_FUNCTION_INFO_V1(alter_resource_group);
Datum
alter_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name = dt_sql_get_group(fcinfo);
	bool		is_instance = !PG_ARGISNULL(ARG_INSTANCE);
	List	   *entries;
	DtEntry    *group = dt_definitions_edit(name, is_instance ? DT_ALTER :
											DT_CREATE_OR_ALTER, &entries);
	int64		scope = group->definition.scope;
	DtEntry    *entry = edit_instance(fcinfo, ARG_INSTANCE, entries, group);
	bool		any = false;

	if (is_instance && !PG_ARGISNULL(ARG_SCOPE))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("scope cannot be set for an instance"),
				 errhint("Set it for the group, without an instance.")));
	for (int i = 0; i < (int) lengthof(altered); i++)
		any |= set_property(fcinfo, i + 1, altered[i], group, entry);
	if (is_instance && !any)
		group->instances = list_delete_ptr(group->instances, entry);
	if (group->definition.scope != scope && group->instances != NIL)
	{
		ereport(NOTICE,
				(errmsg("resource group \"%s\" no longer has instances with settings of their own",
						name),
				 errdetail("Those settings were for the old scope.")));
		group->instances = NIL;
	}
	dt_sql_write(entries, group);
	dt_notice_floor(&group->definition);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(suspend_group);
Datum
suspend_group(PG_FUNCTION_ARGS)
{
	(void) dt_group_set_suspended(dt_sql_get_group(fcinfo), true);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(resume_group);
Datum
resume_group(PG_FUNCTION_ARGS)
{
	char	   *name = dt_sql_get_group(fcinfo);

	if (!dt_group_set_suspended(name, false))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" is not suspended", name)));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(set_session_group);
Datum
set_session_group(PG_FUNCTION_ARGS)
{
	const char *name;

	dt_sql_need_library();
	dt_sql_check_not_null(fcinfo, 0, "process ID");
	if (PG_ARGISNULL(1))
		name = NULL;
	else if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(1)) == 0)
		name = "";
	else
		name = dt_sql_get_name(fcinfo, 1, "group name");
	dt_group_move(PG_GETARG_INT32(0), name);
	PG_RETURN_VOID();
}

/*
 * Allow a role to join a group, or revoke that.  A grant is a word in the line
 * of its group, with the name of the role, so that it can be dumped and
 * restored; load.c renames or drops it with the role.  A name without a role,
 * as after a restore of the definitions only, grants nothing until there is
 * one, and can be revoked.
 */
static Datum
set_grant(FunctionCallInfo fcinfo, bool allow)
{
	char	   *group = dt_sql_get_group(fcinfo);
	String	   *name;
	Oid			role;
	List	   *entries;
	DtEntry    *entry;

	dt_sql_check_not_null(fcinfo, 1, "role name");
	name = makeString(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	role = get_role_oid(strVal(name), !allow);
	if (OidIsValid(role))
	{
		/*
		 * as the core does: if it is renamed or dropped, no name stays
		 * behind; see role_is_altered()
		 */
		shdepLockAndCheckObject(AuthIdRelationId, role);
		LockSharedObject(AuthIdRelationId, role, 0, RowExclusiveLock);
		name = makeString(GetUserNameFromId(role, false));
	}
	entry = dt_definitions_edit(group, DT_ALTER, &entries);
	if (!OidIsValid(role) && !list_member(entry->grants, name))
		(void) get_role_oid(strVal(name), false);
	if (list_member(entry->grants, name) != allow)
	{
		entry->grants = allow ? lappend(entry->grants, name) :
			list_delete(entry->grants, name);
		dt_definitions_write(entries);
	}
	else if (!allow)
		ereport(NOTICE,
				(errmsg("role \"%s\" has not been granted the use of resource group \"%s\"",
						strVal(name), group)));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(grant_group_use);
Datum
grant_group_use(PG_FUNCTION_ARGS)
{
	return set_grant(fcinfo, true);
}

PG_FUNCTION_INFO_V1(revoke_group_use);
Datum
revoke_group_use(PG_FUNCTION_ARGS)
{
	return set_grant(fcinfo, false);
}

/* May a role join a group? */
static bool
is_granted(const DtEntry *entry, Oid user)
{
	foreach_ptr(String, name, entry->grants)
	{
		Oid			role = get_role_oid(strVal(name), true);

		if (OidIsValid(role) && has_privs_of_role(user, role))
			return true;
	}
	return superuser_arg(user);
}

/* ERROR if this session must not join the group. */
static void
check_granted(const char *name)
{
	DtEntry    *entry = dt_definitions_find(dt_definitions_read(true), name);
	Oid			user = GetUserId();

	if (entry == NULL)
		dt_group_missing(name);

	/*
	 * The session stays in the group when a SECURITY DEFINER function, a
	 * trigger perhaps, has returned.  So its owner cannot answer for the role
	 * that has called it, which is that of SET ROLE, if any.
	 */
	if (is_granted(entry, user))
		user = GetOuterUserId();
	if (!is_granted(entry, user))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for resource group \"%s\"", name),
				 errhint("The view dirty_throttle_groups lists in column granted_to which roles may join a group. A superuser can use SELECT grant_group_use(%s, %s) to allow it.",
						 quote_literal_cstr(name),
						 quote_literal_cstr(GetUserNameFromId(user, false)))));
}

/*
 * Set the parameter in this session, or with NULL go back to what the settings of role
 * and database say.
 */
PG_FUNCTION_INFO_V1(join_group);
Datum
join_group(PG_FUNCTION_ARGS)
{
	char	   *name = NULL;

	dt_sql_need_library();
	if (!PG_ARGISNULL(0))
	{
		name = dt_sql_get_name(fcinfo, 0, "group name");
		check_granted(name);
	}
	if (dt_account.slot->moved)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the resource group of a session that was moved by set_session_group()"),
				 errhint("A role that may call set_session_group() can end the move, with NULL instead of a group name.")));
	if (name == NULL && !dt_session_has_joined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session has not joined a resource group with join_group()"),
				 errhint("A role that may set the parameter can leave any group, with SET dirty_throttle.\"group\" = ''.")));
	dt_pay_before_leaving(true);
	dt_session_set_parameter(name);
	PG_RETURN_VOID();
}

/* How many rows has a query with one parameter, a text? */
static int
count_rows(const char *query, const char *parameter)
{
	Datum		value = CStringGetTextDatum(parameter);
	Oid			type = TEXTOID;
	int			found;

	SPI_connect();
	SPI_execute_with_args(query, 1, &type, &value, NULL, true, 0);
	found = (int) SPI_processed;
	SPI_finish();
	return found;
}

/* A parameter still has the name of a group that was renamed or dropped. */
static void
notice_parameter(const char *parameter, const char *value, const char *name)
{
	if (value != NULL && strcmp(value, name) == 0)
		ereport(NOTICE,
				(errmsg("%s still refers to resource group \"%s\"", parameter, name),
				 errdetail("Processes to which it applies will not be throttled."),
				 errhint("Use ALTER SYSTEM SET %s, or correct the configuration file, and reload it.",
						 parameter)));
}

/*
 * The settings of roles and databases contain names of groups, and so do the SET
 * clauses of routines.  After a group was renamed or dropped, tell how many
 * contain the old name: new sessions would not find the group and run
 * unthrottled, and calls would fail.  The routines of other databases cannot be
 * seen from here.
 */
static void
notice_settings_of(const char *name)
{
	char	   *setting = psprintf("dirty_throttle.group=%s", name);
	int			found;

	found = count_rows("SELECT FROM pg_catalog.pg_db_role_setting "
					   "WHERE $1 OPERATOR(pg_catalog.=) ANY (setconfig)",
					   setting);
	if (found > 0)
		ereport(NOTICE,
				(errmsg_plural("%d setting of a role or database still refers to resource group \"%s\"",
							   "%d settings of roles and databases still refer to resource group \"%s\"",
							   found, found, name),
				 errdetail("New sessions with such a setting will not be throttled."),
				 errhint("Use SELECT * FROM pg_db_role_setting WHERE %s = ANY (setconfig) to list them.",
						 quote_literal_cstr(setting))));
	found = count_rows("SELECT FROM pg_catalog.pg_proc "
					   "WHERE $1 OPERATOR(pg_catalog.=) ANY (proconfig)",
					   setting);
	if (found > 0)
		ereport(NOTICE,
				(errmsg_plural("%d routine of this database still refers to resource group \"%s\"",
							   "%d routines of this database still refer to resource group \"%s\"",
							   found, found, name),
				 errdetail("Calls of such a routine will fail. Routines of other databases are not counted."),
				 errhint("Use SELECT oid::regprocedure FROM pg_proc WHERE %s = ANY (proconfig) to list them, and ALTER ROUTINE to set or reset dirty_throttle.\"group\".",
						 quote_literal_cstr(setting))));
	notice_parameter("dirty_throttle.autovacuum_group",
					 dt_parameters.autovacuum_group, name);
	notice_parameter("dirty_throttle.apply_group", dt_parameters.apply_group, name);
}

PG_FUNCTION_INFO_V1(rename_resource_group);
Datum
rename_resource_group(PG_FUNCTION_ARGS)
{
	char	   *old_name;
	char	   *new_name;
	List	   *entries;
	DtEntry    *entry;

	dt_sql_need_library();
	old_name = dt_sql_get_name(fcinfo, 0, "old group name");
	new_name = dt_sql_get_name(fcinfo, 1, "new group name");
	entry = dt_definitions_edit(old_name, DT_ALTER, &entries);
	if (dt_definitions_find(entries, new_name) != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("resource group \"%s\" already exists", new_name),
				 errhint("Choose another name, or drop that group with drop_resource_group().")));
	strncpy(entry->definition.name, new_name, NAMEDATALEN);
	dt_definitions_write(entries);
	notice_settings_of(old_name);
	PG_RETURN_VOID();
}

/*
 * ERROR if the group has members.  Sessions that join it from now on leave it
 * when the transaction commits, so their number is read without its lock.  This
 * transaction may have renamed it.
 */
static void
check_not_in_use(const DtDefinition *d)
{
	const char *name = d->name;
	int			members = 0;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups; i++)
		if (dt_groups[i].id != 0 &&
			dt_definition_is_of(d, &dt_groups[i].definition))
			members += dt_groups[i].members;
	LWLockRelease(dt_shared->registry_lock);
	if (members > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("resource group \"%s\" is in use", name),
				 errdetail_plural("%d session is a member of the group.",
								  "%d sessions are members of the group.",
								  members, members),
				 errhint("Use SELECT pid FROM dirty_throttle_sessions WHERE group_name = %s to list them, or drop_resource_group(..., force => true) to take them out of the group.",
						 quote_literal_cstr(name))));
}

PG_FUNCTION_INFO_V1(drop_resource_group);
Datum
drop_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name = dt_sql_get_group(fcinfo);
	List	   *entries;
	DtEntry    *entry;

	dt_sql_check_not_null(fcinfo, 1, "argument \"if_exists\"");
	dt_sql_check_not_null(fcinfo, 2, "argument \"force\"");
	entry = dt_definitions_edit(name, PG_GETARG_BOOL(1) ? DT_ALTER_IF_EXISTS :
								DT_ALTER, &entries);
	if (entry == NULL)
	{
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not exist, skipping",
						name)));
		PG_RETURN_VOID();
	}
	if (!PG_GETARG_BOOL(2))
		check_not_in_use(&entry->definition);
	dt_definitions_write(list_delete_ptr(entries, entry));
	notice_settings_of(name);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(dirty_throttle_reset);
Datum
dirty_throttle_reset(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	dt_group_reset_stats(PG_ARGISNULL(0) ? NULL :
						 dt_sql_get_name(fcinfo, 0, "group name"));
	PG_RETURN_VOID();
}
