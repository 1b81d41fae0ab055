/*-------------------------------------------------------------------------
 *
 * sql_functions.c
 *		What SQL calls to change something: argument checks and privileges.
 *
 * None of the functions is STRICT, so that a NULL is an error and not an
 * answer.  Who may call them is a matter of GRANT, see the extension script.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "grant.h"
#include "group.h"
#include "guc.h"
#include "member.h"
#include "miscadmin.h"
#include "pause.h"
#include "session.h"
#include "sql.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/rel.h"

#include "compat.h"

#define MAX_RATE_KB		(DT_RATE_MAX / 1000)

PG_FUNCTION_INFO_V1(set_group_dirty_limit);
PG_FUNCTION_INFO_V1(create_resource_group);
PG_FUNCTION_INFO_V1(reset_group_dirty_limit);
PG_FUNCTION_INFO_V1(rename_resource_group);
PG_FUNCTION_INFO_V1(drop_resource_group);
PG_FUNCTION_INFO_V1(dirty_throttle_reset);
PG_FUNCTION_INFO_V1(set_group_wal_limit);
PG_FUNCTION_INFO_V1(reset_group_wal_limit);
PG_FUNCTION_INFO_V1(set_group_burst);
PG_FUNCTION_INFO_V1(set_group_mode);
PG_FUNCTION_INFO_V1(pause_group);
PG_FUNCTION_INFO_V1(resume_group);
PG_FUNCTION_INFO_V1(set_session_group);
PG_FUNCTION_INFO_V1(grant_group_use);
PG_FUNCTION_INFO_V1(revoke_group_use);
PG_FUNCTION_INFO_V1(join_group);
PG_FUNCTION_INFO_V1(leave_joined_group);

void
dt_sql_need_library(void)
{
	if (!dt_group_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("dirty_throttle must be loaded via \"shared_preload_libraries\""),
				 errhint("Add shared_preload_libraries = 'dirty_throttle' to postgresql.conf and restart the server.")));
}

static void
null_argument(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be NULL", what)));
}

/*
 * An argument that names a group.
 */
static char *
get_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	char	   *name;

	if (PG_ARGISNULL(arg))
		null_argument(what);
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be empty", what),
				 errhint("The name of a resource group has 1 to %d bytes.",
						 NAMEDATALEN - 1)));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s \"%s\" is too long", what, name),
				 errdetail("It has %zu bytes.", strlen(name)),
				 errhint("The name of a resource group has 1 to %d bytes.",
						 NAMEDATALEN - 1)));
	return name;
}

/*
 * An argument that gives a rate in KB/s; the result is in bytes/s.  What is
 * not zero stays so, however small: zero means no limit.
 */
static int64
get_rate(FunctionCallInfo fcinfo, int arg, const char *what)
{
	float8		kb;

	if (PG_ARGISNULL(arg))
		null_argument(what);
	kb = PG_GETARG_FLOAT8(arg);
	if (isnan(kb) || kb < 0 || kb > MAX_RATE_KB)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s %s is out of range", what, float8out_internal(kb)),
				 errdetail("The limit is in KB/s (1 KB = 1000 bytes), from 0 to " INT64_FORMAT "; 0 means no limit.",
						   MAX_RATE_KB)));
	return kb > 0 ? Max((int64) rint(kb * 1000), 1) : 0;
}

static void
set_limit(FunctionCallInfo fcinfo, DtProperty limit, const char *what)
{
	char	   *name;
	int64		rate;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	rate = get_rate(fcinfo, 1, what);
	if (dt_group_define(name, limit, rate, DT_CREATE_OR_ALTER))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" created", name)));
}

Datum
set_group_dirty_limit(PG_FUNCTION_ARGS)
{
	set_limit(fcinfo, DT_DIRTY_LIMIT, "dirty rate limit");
	PG_RETURN_VOID();
}

Datum
set_group_wal_limit(PG_FUNCTION_ARGS)
{
	set_limit(fcinfo, DT_WAL_LIMIT, "WAL rate limit");
	PG_RETURN_VOID();
}

Datum
create_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name;
	int64		rate;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	rate = get_rate(fcinfo, 1, "dirty rate limit");
	dt_group_define(name, DT_DIRTY_LIMIT, rate, DT_CREATE);
	PG_RETURN_VOID();
}

Datum
reset_group_dirty_limit(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	dt_group_define(get_name(fcinfo, 0, "group name"), DT_DIRTY_LIMIT, 0,
					DT_ALTER);
	PG_RETURN_VOID();
}

Datum
reset_group_wal_limit(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	dt_group_define(get_name(fcinfo, 0, "group name"), DT_WAL_LIMIT, 0,
					DT_ALTER);
	PG_RETURN_VOID();
}

Datum
set_group_burst(PG_FUNCTION_ARGS)
{
	char	   *name;
	float8		ms;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (PG_ARGISNULL(1))
		null_argument("burst");
	ms = PG_GETARG_FLOAT8(1);
	if (isnan(ms) || ms < 0 || ms > DT_RATE_MAX_BURST_US / 1000)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("burst %s is out of range", float8out_internal(ms)),
				 errdetail("The burst is in milliseconds of the group's rate, from 0 to " INT64_FORMAT ".",
						   DT_RATE_MAX_BURST_US / 1000)));
	dt_group_define(name, DT_BURST, (int64) rint(ms * 1000), DT_ALTER);
	PG_RETURN_VOID();
}

Datum
set_group_mode(PG_FUNCTION_ARGS)
{
	char	   *name;
	char	   *mode;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (PG_ARGISNULL(1))
		null_argument("mode");
	mode = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (strcmp(mode, "enforce") != 0 && strcmp(mode, "observe") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("mode \"%s\" is not known", mode),
				 errhint("The modes are \"enforce\" and \"observe\".")));
	dt_group_define(name, DT_OBSERVE, strcmp(mode, "observe") == 0, DT_ALTER);
	PG_RETURN_VOID();
}

Datum
pause_group(PG_FUNCTION_ARGS)
{
	char	   *name;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (PG_ARGISNULL(1))
		null_argument("hard");
	dt_group_stop(name, PG_GETARG_BOOL(1));
	PG_RETURN_VOID();
}

Datum
resume_group(PG_FUNCTION_ARGS)
{
	char	   *name;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (!dt_group_resume(name))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" is not paused", name)));
	PG_RETURN_VOID();
}

Datum
set_session_group(PG_FUNCTION_ARGS)
{
	text	   *name;

	dt_sql_need_library();
	if (PG_ARGISNULL(0))
		null_argument("process ID");
	name = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	dt_member_move(PG_GETARG_INT32(0),
				   name == NULL || VARSIZE_ANY_EXHDR(name) == 0 ? NULL :
				   get_name(fcinfo, 1, "group name"));
	PG_RETURN_VOID();
}

/*
 * An argument that names a role.
 */
static Oid
get_role(FunctionCallInfo fcinfo, int arg)
{
	if (PG_ARGISNULL(arg))
		null_argument("role name");
	return get_role_oid(text_to_cstring(PG_GETARG_TEXT_PP(arg)), false);
}

Datum
grant_group_use(PG_FUNCTION_ARGS)
{
	char	   *name;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	dt_grant_allow(name, get_role(fcinfo, 1));
	PG_RETURN_VOID();
}

Datum
revoke_group_use(PG_FUNCTION_ARGS)
{
	char	   *name;
	Oid			role;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	role = get_role(fcinfo, 1);
	if (!dt_grant_revoke(name, role))
		ereport(NOTICE,
				(errmsg("role \"%s\" has not been granted the use of resource group \"%s\"",
						GetUserNameFromId(role, false), name)));
	PG_RETURN_VOID();
}

/*
 * Who was put where he is by a DBA cannot go elsewhere by himself.
 */
static void
must_not_be_moved(void)
{
	if (dt_session_was_moved())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this session was put where it is by set_session_group()"),
				 errhint("Whoever may call that can move it again; RESET dirty_throttle.\"group\" ends it.")));
}

Datum
join_group(PG_FUNCTION_ARGS)
{
	char	   *name;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (!dt_grant_permits(name, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for resource group \"%s\"", name),
				 errhint("The view dirty_throttle_grants lists who may join which group; SELECT grant_group_use(%s, %s) allows it.",
						 quote_literal_cstr(name),
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	must_not_be_moved();
	dt_guc_join_group(name);
	PG_RETURN_VOID();
}

Datum
leave_joined_group(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	must_not_be_moved();
	if (!dt_session_has_joined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("this session has not joined a resource group by join_group()")));
	dt_guc_reset_group();
	PG_RETURN_VOID();
}

/*
 * Settings of roles and databases hold names, so whoever renames
 * or drops a group wants to know of those that name it: a new session would
 * find no such group and run unthrottled.
 */
static void
notice_settings_of(const char *name)
{
	char	   *setting = psprintf("dirty_throttle.group=%s", name);
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;
	int			found = 0;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		config = heap_getattr(tuple,
										  Anum_pg_db_role_setting_setconfig,
										  RelationGetDescr(rel), &isnull);
		Datum	   *elements;
		int			n;
		int			i;

		if (isnull)
			continue;
		deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false,
						  TYPALIGN_INT, &elements, NULL, &n);
		for (i = 0; i < n; i++)
			if (strcmp(TextDatumGetCString(elements[i]), setting) == 0)
				found++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);

	if (found > 0)
		ereport(NOTICE,
				(errmsg_plural("%d setting of a role or database still names resource group \"%s\"",
							   "%d settings of roles and databases still name resource group \"%s\"",
							   found, found, name),
				 errdetail("Sessions that begin with such a setting will not be throttled."),
				 errhint("SELECT * FROM pg_db_role_setting WHERE %s = ANY (setconfig) lists them.",
						 quote_literal_cstr(setting))));
}

Datum
rename_resource_group(PG_FUNCTION_ARGS)
{
	char	   *old_name;
	char	   *new_name;

	dt_sql_need_library();
	old_name = get_name(fcinfo, 0, "old group name");
	new_name = get_name(fcinfo, 1, "new group name");
	dt_group_rename(old_name, new_name);
	notice_settings_of(old_name);
	PG_RETURN_VOID();
}

Datum
drop_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "group name");
	if (PG_ARGISNULL(1))
		null_argument("if_exists");
	if (PG_ARGISNULL(2))
		null_argument("force");
	if (dt_group_drop(name, PG_GETARG_BOOL(1), PG_GETARG_BOOL(2)))
		notice_settings_of(name);
	else
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not exist, skipping",
						name)));
	PG_RETURN_VOID();
}

Datum
dirty_throttle_reset(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	dt_group_reset_stats(PG_ARGISNULL(0) ? NULL :
						 get_name(fcinfo, 0, "group name"));
	PG_RETURN_VOID();
}
