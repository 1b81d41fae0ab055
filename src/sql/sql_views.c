/*-------------------------------------------------------------------------
 *
 * sql_views.c
 *		SQL functions that return the rows of the views.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "registry/change.h"
#include "registry/grant.h"
#include "sql/group_info.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(dirty_throttle_ddl);
PG_FUNCTION_INFO_V1(dirty_throttle_groups);
PG_FUNCTION_INFO_V1(dirty_throttle_sessions);
PG_FUNCTION_INFO_V1(dirty_throttle_grants);
PG_FUNCTION_INFO_V1(suggest_group_limits);

/* The number of columns of the widest row. */
#define MAX_COLUMNS		23

/* A row being put together. */
typedef struct Row
{
	int			n;
	Datum		values[MAX_COLUMNS];
	bool		nulls[MAX_COLUMNS];
} Row;

static void
add(Row *row, Datum value, bool isnull)
{
	Assert(row->n < MAX_COLUMNS);
	row->values[row->n] = value;
	row->nulls[row->n++] = isnull;
}

static void
add_int(Row *row, int64 value)
{
	add(row, Int64GetDatum(value), false);
}

/* A value to be divided by 1000: bytes as KB, microseconds as milliseconds. */
static void
add_thousandths(Row *row, double value)
{
	add(row, Float8GetDatum(value / 1000.0), false);
}

/* The name of a group as a SQL name, zero-padded. */
static void
add_name(Row *row, const char *name)
{
	Name		result = palloc(NAMEDATALEN);

	namestrcpy(result, name);
	add(row, NameGetDatum(result), false);
}

/* A text, NULL for a null pointer. */
static void
add_text(Row *row, const char *string)
{
	add(row, string ? CStringGetTextDatum(string) : (Datum) 0, string == NULL);
}

/* A time, NULL for 0. */
static void
add_time(Row *row, TimestampTz value)
{
	add(row, TimestampTzGetDatum(value), value == 0);
}

static void
put(FunctionCallInfo fcinfo, Row *row)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	if (rsinfo->setDesc->natts != row->n)
		elog(ERROR, "function returns %d columns, but the library has %d",
			 rsinfo->setDesc->natts, row->n);
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row->values,
						 row->nulls);
}

static const char *
mode_name(bool observe)
{
	return observe ? "observe" : "enforce";
}

/*
 * A row of SQL that calls a function of this extension, with these arguments.
 */
static void
put_call(FunctionCallInfo fcinfo, const char *function, const char *arguments)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *schema = get_namespace_name(get_func_namespace(fcinfo->flinfo->fn_oid));
	Datum		value;
	bool		isnull = false;

	if (schema == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("extension \"dirty_throttle\" was dropped concurrently")));
	value = CStringGetTextDatum(psprintf("SELECT %s.%s(%s);",
										 quote_identifier(schema), function,
										 arguments));
	tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, &value, &isnull);
}

/*
 * The definitions as SQL.  Properties that have their default are left out,
 * except for the dirty rate limit, which creates the group.
 */
Datum
dirty_throttle_ddl(PG_FUNCTION_ARGS)
{
	DtDefinitions d;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	dt_definitions_copy(&d);
	for (i = 0; i < d.n_groups; i++)
	{
		DtDefinition *g = &d.groups[i];
		char	   *name = quote_literal_cstr(g->name);

		put_call(fcinfo, "set_group_dirty_limit",
				 psprintf("%s, %s", name,
						  float8out_internal(g->rate[DT_DIRTY] / 1000.0)));
		if (g->rate[DT_WAL] > 0)
			put_call(fcinfo, "set_group_wal_limit",
					 psprintf("%s, %s", name,
							  float8out_internal(g->rate[DT_WAL] / 1000.0)));
		if (g->burst_us != DT_RATE_DEFAULT_BURST_US)
			put_call(fcinfo, "set_group_burst",
					 psprintf("%s, %s", name,
							  float8out_internal(g->burst_us / 1000.0)));
		if (g->observe)
			put_call(fcinfo, "set_group_mode",
					 psprintf("%s, 'observe'", name));
	}
	for (i = 0; i < d.n_grants; i++)
	{
		char	   *role = GetUserNameFromId(d.grants[i].role, true);

		if (role != NULL)
			put_call(fcinfo, "grant_group_use",
					 psprintf("%s, %s",
							  quote_literal_cstr(d.grants[i].group_name),
							  quote_literal_cstr(role)));
	}
	return (Datum) 0;
}

Datum
dirty_throttle_groups(PG_FUNCTION_ARGS)
{
	DtGroupInfo *groups;
	int			n;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	n = dt_group_info_groups(&groups);
	for (i = 0; i < n; i++)
	{
		DtGroupInfo *g = &groups[i];
		DtGroupUsageInfo *dirty = &g->usage[DT_DIRTY];
		DtGroupUsageInfo *wal = &g->usage[DT_WAL];
		Row			row = {0};

		add_name(&row, g->name);
		add_thousandths(&row, dirty->limit);
		add(&row, Int32GetDatum(g->members), false);
		add(&row,
			Float8GetDatum(dirty->limit / 1000.0 / Max(g->members, 1)),
			g->members == 0);
		add(&row, Int32GetDatum(g->paused), false);
		add_thousandths(&row, dirty->rate);
		add_int(&row, dirty->used / BLCKSZ);
		add_int(&row, g->stats.pauses);
		add_thousandths(&row, g->stats.paused_us);
		add_thousandths(&row, dirty->debt);
		add_time(&row, g->stats_reset);
		add_thousandths(&row, wal->limit);
		add_thousandths(&row, wal->rate);
		add_int(&row, wal->used);
		add_thousandths(&row, wal->debt);
		add_int(&row, g->stats.wal_pauses);
		add_thousandths(&row, g->burst_us);
		add_text(&row, mode_name(g->observe));
		add_int(&row, g->stats.observed_pauses);
		add_thousandths(&row, g->stats.observed_pause_us);
		add_time(&row, g->suspended_since);
		add(&row, BoolGetDatum(g->suspended_hard), g->suspended_since == 0);
		add_int(&row, g->stats.releases);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

Datum
dirty_throttle_sessions(PG_FUNCTION_ARGS)
{
	static const char *const causes[] = {"dirty", "wal", "suspend_group"};
	DtMemberInfo *members;
	bool		all;
	int			n;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	n = dt_group_info_members(&members);
	for (i = 0; i < n; i++)
	{
		DtMemberInfo *m = &members[i];
		Row			row = {0};

		if (!all && !has_privs_of_role(GetUserId(), m->userid))
			continue;
		add(&row, Int32GetDatum(m->pid), false);
		add(&row, ObjectIdGetDatum(m->userid), false);
		add(&row, ObjectIdGetDatum(m->databaseid), false);
		add_name(&row, m->group_name);
		add_int(&row, m->used[DT_DIRTY] / BLCKSZ);
		add_int(&row, m->stats.pauses);
		add_thousandths(&row, m->stats.paused_us);
		add_thousandths(&row, m->debt[DT_DIRTY]);
		add_time(&row, m->paused_since);
		add_int(&row, m->used[DT_WAL]);
		add_thousandths(&row, m->debt[DT_WAL]);
		add_text(&row, m->paused_since ? causes[m->paused_by] : NULL);
		add_int(&row, m->stats.observed_pauses);
		add_thousandths(&row, m->stats.observed_pause_us);
		add(&row, BoolGetDatum(m->moved), false);
		add(&row, BoolGetDatum(m->has_left), false);
		add(&row, BoolGetDatum(m->pauses_at_checks), false);
		add_int(&row, m->stats.releases);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

Datum
dirty_throttle_grants(PG_FUNCTION_ARGS)
{
	DtGrant    *grants;
	int			n;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	n = dt_grant_list(&grants);
	for (i = 0; i < n; i++)
	{
		Row			row = {0};

		add_name(&row, grants[i].group_name);
		add(&row, ObjectIdGetDatum(grants[i].role), false);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

/* A rate in bytes/s, rounded up to two digits, in KB/s; at least 1 KB/s. */
static double
suggestion(int64 rate)
{
	double		kb = Max(rate / 1000.0, 1);
	double		unit = pow(10, Max(floor(log10(kb)) - 1, 0));

	return ceil(kb / unit) * unit;
}

static void
add_histogram(Row *row, DtHistogram *histogram, int64 now)
{
	int64		p50 = dt_histogram_quantile(histogram, 0.5, now);
	int64		p95 = dt_histogram_quantile(histogram, 0.95, now);
	bool		unknown = histogram->seconds == 0;

	add_int(row, histogram->seconds);
	add(row, Float8GetDatum(p50 / 1000.0), unknown);
	add(row, Float8GetDatum(p95 / 1000.0), unknown);
	add(row, Float8GetDatum(histogram->max / 1000.0), unknown);
	add(row, Float8GetDatum(suggestion(p95)), unknown);
}

Datum
suggest_group_limits(PG_FUNCTION_ARGS)
{
	DtGroupInfo *groups;
	int			n;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	n = dt_group_info_groups(&groups);
	for (i = 0; i < n; i++)
	{
		DtGroupInfo *g = &groups[i];
		Row			row = {0};

		add_name(&row, g->name);
		add_text(&row, mode_name(g->observe));
		add_time(&row, g->stats_reset);
		add_histogram(&row, &g->usage[DT_DIRTY].histogram, g->now);
		add_histogram(&row, &g->usage[DT_WAL].histogram, g->now);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}
