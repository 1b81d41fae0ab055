/*-------------------------------------------------------------------------
 *
 * sql_functions.c
 *		What SQL calls: argument checks and the rows of the views.
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
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "group.h"
#include "miscadmin.h"
#include "pause.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "compat.h"

#define MAX_RATE_KB		(DT_RATE_MAX / 1000)

PG_FUNCTION_INFO_V1(set_group_dirty_limit);
PG_FUNCTION_INFO_V1(create_resource_group);
PG_FUNCTION_INFO_V1(reset_group_dirty_limit);
PG_FUNCTION_INFO_V1(rename_resource_group);
PG_FUNCTION_INFO_V1(drop_resource_group);
PG_FUNCTION_INFO_V1(dirty_throttle_reset);
PG_FUNCTION_INFO_V1(dirty_throttle_pace);
PG_FUNCTION_INFO_V1(dirty_throttle_ddl);
PG_FUNCTION_INFO_V1(dirty_throttle_groups);
PG_FUNCTION_INFO_V1(dirty_throttle_sessions);

static void
need_library(void)
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
get_rate(FunctionCallInfo fcinfo, int arg)
{
	float8		kb;

	if (PG_ARGISNULL(arg))
		null_argument("dirty rate limit");
	kb = PG_GETARG_FLOAT8(arg);
	if (isnan(kb) || kb < 0 || kb > MAX_RATE_KB)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("dirty rate limit %s is out of range",
						float8out_internal(kb)),
				 errdetail("The limit is in KB/s (1 KB = 1000 bytes), from 0 to " INT64_FORMAT "; 0 means no limit.",
						   MAX_RATE_KB)));
	return kb > 0 ? Max((int64) rint(kb * 1000), 1) : 0;
}

Datum
set_group_dirty_limit(PG_FUNCTION_ARGS)
{
	char	   *name;
	int64		rate;

	need_library();
	name = get_name(fcinfo, 0, "group name");
	rate = get_rate(fcinfo, 1);
	if (dt_group_define(name, rate, DT_CREATE_OR_ALTER))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" created", name)));
	PG_RETURN_VOID();
}

Datum
create_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name;
	int64		rate;

	need_library();
	name = get_name(fcinfo, 0, "group name");
	rate = get_rate(fcinfo, 1);
	dt_group_define(name, rate, DT_CREATE);
	PG_RETURN_VOID();
}

Datum
reset_group_dirty_limit(PG_FUNCTION_ARGS)
{
	need_library();
	dt_group_define(get_name(fcinfo, 0, "group name"), 0, DT_ALTER);
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

	need_library();
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

	need_library();
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
	need_library();
	dt_group_reset_stats(PG_ARGISNULL(0) ? NULL :
						 get_name(fcinfo, 0, "group name"));
	PG_RETURN_VOID();
}

/*
 * What pace_copy.c has a COPY call for every row.  Anybody may call it: a long
 * C function or loop gets one more safe point by it.
 */
Datum
dirty_throttle_pace(PG_FUNCTION_ARGS)
{
	need_library();
	dt_pace();
	PG_RETURN_BOOL(true);
}

/*
 * One statement a group; the function is called by the name that it has
 * here, in this database.
 */
Datum
dirty_throttle_ddl(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *schema;
	DtDefinition *definitions;
	int			n;
	int			i;

	need_library();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	if (schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("extension \"dirty_throttle\" was dropped concurrently")));
	n = dt_group_definitions(&definitions);
	for (i = 0; i < n; i++)
	{
		char	   *sql = psprintf("SELECT %s.set_group_dirty_limit(%s, %s);",
								   quote_identifier(schema),
								   quote_literal_cstr(definitions[i].name),
								   float8out_internal(definitions[i].rate / 1000.0));
		Datum		value = CStringGetTextDatum(sql);
		bool		isnull = false;

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value,
							 &isnull);
	}
	return (Datum) 0;
}

/* The name of a group as a SQL name, zero-padded. */
static Datum
name_datum(const char *name)
{
	Name		result = palloc(NAMEDATALEN);

	namestrcpy(result, name);
	return NameGetDatum(result);
}

Datum
dirty_throttle_groups(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	DtGroupInfo *groups;
	int			n;
	int			i;

	need_library();
	InitMaterializedSRF(fcinfo, 0);
	n = dt_group_list(&groups);
	for (i = 0; i < n; i++)
	{
		DtGroupInfo *g = &groups[i];
		Datum		values[11];
		bool		nulls[11] = {0};
		int			c = 0;

		values[c++] = name_datum(g->name);
		values[c++] = Float8GetDatum(g->rate / 1000.0);
		values[c++] = Int32GetDatum(g->members);
		nulls[c] = g->members == 0;
		values[c++] = Float8GetDatum(g->rate / 1000.0 / Max(g->members, 1));
		values[c++] = Int32GetDatum(g->paused);
		values[c++] = Float8GetDatum(g->dirty_rate / 1000.0);
		values[c++] = Int64GetDatum(g->blocks_dirtied);
		values[c++] = Int64GetDatum(g->pauses);
		values[c++] = Float8GetDatum(g->paused_us / 1000.0);
		values[c++] = Float8GetDatum(g->debt / 1000.0);
		values[c++] = TimestampTzGetDatum(g->stats_reset);
		Assert(c == lengthof(values) && c == rsinfo->setDesc->natts);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}

Datum
dirty_throttle_sessions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	DtMemberInfo *members;
	bool		all;
	int			n;
	int			i;

	need_library();
	InitMaterializedSRF(fcinfo, 0);
	all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	n = dt_group_list_members(&members);
	for (i = 0; i < n; i++)
	{
		DtMemberInfo *m = &members[i];
		Datum		values[9];
		bool		nulls[9] = {0};
		int			c = 0;

		if (!all && !has_privs_of_role(GetUserId(), m->userid))
			continue;
		values[c++] = Int32GetDatum(m->pid);
		values[c++] = ObjectIdGetDatum(m->userid);
		values[c++] = ObjectIdGetDatum(m->databaseid);
		values[c++] = name_datum(m->group_name);
		values[c++] = Int64GetDatum(m->blocks_dirtied);
		values[c++] = Int64GetDatum(m->pauses);
		values[c++] = Float8GetDatum(m->paused_us / 1000.0);
		values[c++] = Float8GetDatum(m->debt / 1000.0);
		nulls[c] = m->paused_since == 0;
		values[c++] = TimestampTzGetDatum(m->paused_since);
		Assert(c == lengthof(values) && c == rsinfo->setDesc->natts);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values,
							 nulls);
	}
	return (Datum) 0;
}
