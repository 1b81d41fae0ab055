/*-------------------------------------------------------------------------
 *
 * sql_views.c
 *		SQL functions that return the rows of the views.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "backend/blockers.h"
#include "catalog/pg_authid.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "registry/definitions.h"
#include "registry/member.h"
#include "registry/threshold.h"
#include "sql/group_info.h"
#include "sql/signal_info.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(dirty_throttle_groups);
PG_FUNCTION_INFO_V1(dirty_throttle_sessions);
PG_FUNCTION_INFO_V1(dirty_throttle_blocking);
PG_FUNCTION_INFO_V1(dirty_throttle_grants);
PG_FUNCTION_INFO_V1(dirty_throttle_thresholds);
PG_FUNCTION_INFO_V1(dirty_throttle_pressure);
PG_FUNCTION_INFO_V1(suggest_group_limits);

/* The number of columns of the widest row. */
#define MAX_COLUMNS		31

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
		DtDefinition *d = &g->definition;
		DtGroupUsageInfo *dirty = &g->usage[DT_DIRTY];
		DtGroupUsageInfo *wal = &g->usage[DT_WAL];
		Row			row = {0};

		add_name(&row, d->name);
		add_thousandths(&row, d->rate[DT_DIRTY]);
		add(&row, Int32GetDatum(g->members), false);
		add(&row,
			Float8GetDatum(d->rate[DT_DIRTY] / 1000.0 / Max(g->members, 1)),
			g->members == 0);
		add(&row, Int32GetDatum(g->paused), false);
		add_thousandths(&row, dirty->rate);
		add_int(&row, dirty->used / BLCKSZ);
		add_int(&row, g->stats.pauses);
		add_thousandths(&row, g->stats.paused_us);
		add_thousandths(&row, dirty->debt);
		add_time(&row, g->stats_reset);
		add_thousandths(&row, d->rate[DT_WAL]);
		add_thousandths(&row, wal->rate);
		add_int(&row, wal->used);
		add_thousandths(&row, wal->debt);
		add_int(&row, g->stats.wal_pauses);
		add_thousandths(&row, d->burst_us);
		add_text(&row, mode_name(d->observe));
		add_int(&row, g->stats.observed_pauses);
		add_thousandths(&row, g->stats.observed_pause_us);
		add_time(&row, g->suspended_since);
		add(&row, BoolGetDatum(g->suspended_hard), g->suspended_since == 0);
		add_int(&row, g->stats.releases);
		add_thousandths(&row, g->stats.released_us);
		add_thousandths(&row, dirty->effective);
		add_thousandths(&row, wal->effective);
		add(&row, Float8GetDatum(g->pressure.level / 1000.0),
			g->pressure.signal < 0);
		add_text(&row, g->pressure.signal < 0 ? NULL :
				 dt_signal_name(g->pressure.signal));
		add_thousandths(&row, d->floor);
		add_thousandths(&row, g->forgiven);
		add(&row, BoolGetDatum(g->pressure.out_of_reach),
			g->pressure.signal < 0);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

Datum
dirty_throttle_sessions(PG_FUNCTION_ARGS)
{
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
		add_text(&row, m->paused_since ? dt_member_cause_name(m->paused_by) :
				 NULL);
		add_int(&row, m->stats.observed_pauses);
		add_thousandths(&row, m->stats.observed_pause_us);
		add(&row, BoolGetDatum(m->moved), false);
		add(&row, BoolGetDatum(m->has_left), false);
		add(&row, BoolGetDatum(m->pauses_at_checks), false);
		add_int(&row, m->stats.releases);
		add_time(&row, m->released_since);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * Pairs of a process that waits and a member that pauses, or goes on because
 * of it.
 */
Datum
dirty_throttle_blocking(PG_FUNCTION_ARGS)
{
	bool		all;
	int			i;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	for (i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *holder = GetPGProcByNumber(i);
		DtMember   *member = &dt_members[i];
		ListCell   *lc;

		if ((member->paused_in == NULL && member->released_since == 0) ||
			(!all && !has_privs_of_role(GetUserId(), holder->roleId)))
			continue;
		foreach(lc, dt_blockers_list(i))
		{
			int			pid = lfirst_int(lc);
			Row			row = {0};

			add(&row, Int32GetDatum(pid), pid == DT_REPLAY);
			add(&row, Int32GetDatum(holder->pid), false);
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

Datum
dirty_throttle_grants(PG_FUNCTION_ARGS)
{
	ListCell   *lc;
	ListCell   *name;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, dt_definitions_read(true))
	{
		DtEntry    *entry = lfirst(lc);

		foreach(name, entry->grants)
		{
			Oid			role = get_role_oid(lfirst(name), true);
			Row			row = {0};

			if (!OidIsValid(role))
				continue;
			add_name(&row, entry->definition.name);
			add(&row, ObjectIdGetDatum(role), false);
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

/*
 * A value of a signal, or a threshold, in the unit that the views have for the
 * signal; NULL if it is not known.
 */
static void
add_value(Row *row, DtSignal signal, DtUnit unit, int64 value, bool known)
{
	char		reason[DT_REASON_SIZE];
	int64		limit;
	double		result = value;

	if (unit == DT_UNIT_US)
		result /= 1000;
	else if (signal == DT_DIRTY_BUFFERS && unit == DT_UNIT_BYTES)
		result *= 100.0 / ((double) NBuffers * BLCKSZ);
	else if (signal == DT_KERNEL_DIRTY && unit == DT_UNIT_SHARE)
	{
		known = known &&
			dt_look_kernel_limit(&limit, reason) == DT_LOOK_MEASURED;
		result = known ? result * (limit / 1e6) : 0;
	}
	else if (unit == DT_UNIT_SHARE)
		result /= 10000;
	add(row, Float8GetDatum(result), !known || unit == DT_UNIT_NONE);
}

static void
add_unit(Row *row, DtSignal signal)
{
	if (signal == DT_DIRTY_BUFFERS || signal == DT_IO_PRESSURE)
		add_text(row, "percent");
	else
		add_text(row, dt_signal_unit(signal) == DT_UNIT_US ? "ms" : "bytes");
}

Datum
dirty_throttle_thresholds(PG_FUNCTION_ARGS)
{
	DtGroupInfo *groups;
	int			n;
	int			i;
	int			s;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	n = dt_group_info_groups(&groups);
	for (i = 0; i < n; i++)
	{
		for (s = 0; s < DT_SIGNALS; s++)
		{
			DtThreshold *t = &groups[i].definition.threshold[s];
			Row			row = {0};

			if (t->unit == DT_UNIT_UNUSED)
				continue;
			add_name(&row, groups[i].definition.name);
			add_text(&row, dt_signal_name(s));
			add_text(&row, dt_threshold_text(t));
			add_value(&row, s, t->unit, t->value, true);
			add_unit(&row, s);
			add(&row, Int32GetDatum(t->ignore), s != DT_REPLICA_LAG);
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

Datum
dirty_throttle_pressure(PG_FUNCTION_ARGS)
{
	static const char *const states[] = {
		[DT_SIGNAL_ABSENT] = "absent",
		[DT_SIGNAL_FRESH] = "fresh",
		[DT_SIGNAL_STALE] = "stale"
	};
	int			s;

	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
	for (s = 0; s < DT_SIGNALS; s++)
	{
		DtSignalView view;
		Row			row = {0};

		dt_signal_view(s, &view);
		add_text(&row, dt_signal_name(s));
		add(&row, BoolGetDatum(view.available), false);
		add_text(&row, view.reason[0] ? view.reason : NULL);
		add(&row, Int32GetDatum(view.groups), false);
		add_value(&row, s, dt_signal_unit(s), view.value, view.has_value);
		add_unit(&row, s);
		add_text(&row, view.groups == 0 ? NULL :
				 view.out_of_reach ? "out of reach" : states[view.state]);
		add_time(&row, view.measured_at);
		add_time(&row, view.stale_since);
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

		add_name(&row, g->definition.name);
		add_text(&row, mode_name(g->definition.observe));
		add_time(&row, g->stats_reset);
		add_histogram(&row, &g->usage[DT_DIRTY].histogram, g->now);
		add_histogram(&row, &g->usage[DT_WAL].histogram, g->now);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}
