/*-------------------------------------------------------------------------
 *
 * views.c
 *		SQL functions that return the rows of the views.
 *
 * Each function is named for its view; dirty_throttle_groups() has the columns
 * of view dirty_throttle_group_stats, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "session/blockers.h"
#include "shared/amount.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/role_debt.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(dirty_throttle_groups);
PG_FUNCTION_INFO_V1(dirty_throttle_sessions);
PG_FUNCTION_INFO_V1(dirty_throttle_blocking);
PG_FUNCTION_INFO_V1(dirty_throttle_grants);
PG_FUNCTION_INFO_V1(dirty_throttle_thresholds);
PG_FUNCTION_INFO_V1(dirty_throttle_pressure);

/* The number of columns of the widest row. */
#define MAX_COLUMNS		32

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
begin(FunctionCallInfo fcinfo)
{
	dt_sql_need_library();
	InitMaterializedSRF(fcinfo, 0);
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

Datum
dirty_throttle_groups(PG_FUNCTION_ARGS)
{
	DtGroupCopy *copies;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	for (int i = 0; i < n; i++)
	{
		DtGroup    *g = &copies[i].group;
		bool		no_signal = (g->pressure.signal < 0);
		Row			row = {0};

		add_name(&row, g->definition.name);
		add_text(&row, g->definition.observe ? "observe" : "enforce");
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			DtGroupUsage *use = &g->usage[r];

			add_thousandths(&row, g->definition.rate[r]);
			add_thousandths(&row, use->engine.rate);
			add_thousandths(&row, dt_meter_rate(&use->meter, copies[i].now));
			add_thousandths(&row, copies[i].debt[r]);
		}
		add_thousandths(&row, g->definition.burst_us);
		add_thousandths(&row, g->definition.floor);
		add_thousandths(&row, g->definition.weight);
		add_thousandths(&row, g->definition.allowance);
		add(&row, Int32GetDatum(g->members), false);
		add(&row, Int32GetDatum(g->paused), false);
		add(&row, Float8GetDatum(g->pressure.level / 1000.0), no_signal);
		add_text(&row, no_signal ? NULL :
				 dt_definition_signal_name(&g->definition, g->pressure.signal));
		add(&row, BoolGetDatum(dt_definition_follows(&g->definition, DT_CHECKPOINT) &&
							   dt_shared->sampled.signals[DT_CHECKPOINT].out_of_reach),
			no_signal);
		add_time(&row, g->suspended_since);
		add(&row, BoolGetDatum(g->suspended_hard), g->suspended_since == 0);
		add_int(&row, g->usage[DT_DIRTY].used / BLCKSZ);
		add_int(&row, g->usage[DT_WAL].used);
		add_int(&row, g->stats[DT_PAUSES]);
		add_int(&row, g->stats[DT_WAL_PAUSES]);
		add_thousandths(&row, g->stats[DT_PAUSED_US]);
		add_int(&row, g->stats[DT_OBSERVED_PAUSES]);
		add_thousandths(&row, g->stats[DT_OBSERVED_US]);
		add_int(&row, g->stats[DT_RELEASES]);
		add_thousandths(&row, g->stats[DT_RELEASED_US]);
		add_thousandths(&row, g->forgiven);
		add_time(&row, g->stats_reset);
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * May the user see the sessions of this role?
 */
static bool
may_see(Oid role)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS) ||
		has_privs_of_role(GetUserId(), role);
}

/* A copy of what a session has to do with one group. */
typedef struct SessionCopy
{
	DtMember	member;
	int			pid;
	Oid			userid;
	Oid			databaseid;
	char		group_name[NAMEDATALEN];
	bool		pauses;
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		now;			/* time of the copy, us */
} SessionCopy;

/*
 * A session as a member of its group, or as one that has left a group and
 * still owes to it, with no counters of earlier pauses.  False when it is
 * neither.
 */
static bool
copy_session(SessionCopy *copy, int number, bool has_left)
{
	DtMember   *m = &dt_members[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	DtGroup    *g = has_left ? m->creditor : m->group;
	bool		owes;

	if (g == NULL)
		return false;
	copy->now = dt_now_us();
	dt_group_lock(g);
	dt_group_check_pressure(g, copy->now);
	copy->member = *m;
	copy->pid = proc->pid;
	copy->userid = proc->roleId;
	copy->databaseid = proc->databaseId;
	memcpy(copy->group_name, g->definition.name, NAMEDATALEN);
	owes = m->owes_creditor && m->creditor == g &&
		m->creditor_id == g->id;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		copy->debt[r] = m->group != g ? 0 :
			dt_rate_debt(&g->usage[r].engine, &m->account[r], copy->now);
		if (owes || (m->paused_in == g && m->paused_by == DT_BY_ROLE))
			copy->debt[r] += dt_role_debt_bytes(g, m->role, r, copy->now);
	}
	dt_group_unlock(g);
	m = &copy->member;
	copy->pauses = (m->paused_in == g);
	if (!has_left)
		return m->group == g;
	memset(m->usage, 0, sizeof(m->usage));
	memset(m->stats, 0, sizeof(m->stats));
	m->moved = false;
	m->released_since = 0;
	/* that it has been repaid only the session itself notes */
	return owes && m->group != g &&
		(copy->debt[DT_DIRTY] != 0 || copy->debt[DT_WAL] != 0);
}

/* A session can have two rows. */
Datum
dirty_throttle_sessions(PG_FUNCTION_ARGS)
{
	begin(fcinfo);
	for (int i = 0; i < dt_shared->n_members * 2; i++)
	{
		bool		has_left = (i % 2 == 1);
		SessionCopy copy;
		DtMember   *m = &copy.member;
		Row			row = {0};

		if (!copy_session(&copy, i / 2, has_left) || !may_see(copy.userid))
			continue;
		if (copy.pauses)
			m->stats[DT_PAUSED_US] += copy.now - m->paused_since_us;
		add(&row, Int32GetDatum(copy.pid), false);
		add(&row, ObjectIdGetDatum(copy.userid), false);
		add(&row, ObjectIdGetDatum(copy.databaseid), false);
		add_name(&row, copy.group_name);
		add(&row, BoolGetDatum(m->moved), false);
		add(&row, BoolGetDatum(has_left), false);
		add_time(&row, copy.pauses ? m->paused_since : 0);
		add_text(&row, copy.pauses ? dt_member_cause_name(m->paused_by) : NULL);
		add_time(&row, m->released_since);
		add_thousandths(&row, copy.debt[DT_DIRTY]);
		add_thousandths(&row, copy.debt[DT_WAL]);
		add(&row, BoolGetDatum(m->can_be_asked && m->pauses_at_checks),
			false);
		add_int(&row, m->usage[DT_DIRTY].used / BLCKSZ);
		add_int(&row, m->usage[DT_WAL].used);
		add_int(&row, m->stats[DT_PAUSES]);
		add_thousandths(&row, m->stats[DT_PAUSED_US]);
		add_int(&row, m->stats[DT_OBSERVED_PAUSES]);
		add_thousandths(&row, m->stats[DT_OBSERVED_US]);
		add_int(&row, m->stats[DT_RELEASES]);
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
	begin(fcinfo);
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *holder = GetPGProcByNumber(i);
		DtMember   *member = &dt_members[i];

		if ((member->paused_in == NULL && member->released_since == 0) ||
			!may_see(holder->roleId))
			continue;
		foreach_int(pid, dt_blockers_list(i))
		{
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
	begin(fcinfo);
	foreach_ptr(DtEntry, entry, dt_definitions_read(true))
	{
		foreach_ptr(String, role, entry->grants)
		{
			Row			row = {0};

			add_name(&row, entry->definition.name);
			add_name(&row, strVal(role));
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

/*
 * A value of a signal, or a threshold, if it is known, and its unit.
 */
static void
add_value(Row *row, DtUnit unit, int64 value, bool known)
{
	static const struct
	{
		const char *name;
		double		size;
	}			units[] = {
		[DT_UNIT_US] = {"ms", 1000},
		[DT_UNIT_BYTES] = {"bytes", 1},
		[DT_UNIT_RATE] = {"bytes/s", 1},
		[DT_UNIT_SHARE] = {"percent", 10000},
		[DT_UNIT_NUMBER] = {"thresholds", 1000}
	};

	add(row, Float8GetDatum(value / units[unit].size), !known);
	add_text(row, units[unit].name);
}

Datum
dirty_throttle_thresholds(PG_FUNCTION_ARGS)
{
	DtGroupCopy *copies;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	for (int i = 0; i < n; i++)
	{
		for (int s = 0; s < DT_SIGNALS; s++)
		{
			DtDefinition *d = &copies[i].group.definition;
			DtThreshold *t = &d->threshold[s];
			Row			row = {0};

			if (t->unit == DT_UNIT_UNUSED)
				continue;
			add_name(&row, d->name);
			add_text(&row, dt_definition_signal_name(d, s));
			add_text(&row, dt_amount_text(t->unit, t->value));
			add_value(&row,
					  t->unit == DT_UNIT_SHARE ? t->unit : dt_signals[s].unit,
					  t->value, t->unit != DT_UNIT_NONE);
			add(&row, Int32GetDatum(t->ignore), s >= DT_STANDBY_SIGNALS);
			add_text(&row, s < DT_STANDBY_SIGNALS && d->standbys[s][0] != '\0' ?
					 d->standbys[s] : NULL);
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

#define TAKES_TIME(s) \
	((s) == DT_REPLICA_LAG || (s) == DT_FLUSH_LAG || (s) == DT_WAL_RATE || \
	 (s) == DT_IO_PRESSURE || (s) == DT_COMMIT_LATENCY)

/*
 * What is known of a signal: the sampler's last value or, while no group
 * follows the signal, what this process finds by one look; that is nothing for
 * those that take time to measure.  The sampler may have ended since, so the
 * age of its value counts here as it does in the laws.  Returns whether the
 * signal is to be had on this server.
 */
static bool
read_signal(DtSignal signal, bool followed, int64 now, DtSignalInfo *info)
{
	DtFound		found;
	DtLook		look = dt_signal_look(signal, now, &found);

	memset(info, 0, sizeof(*info));
	if (followed && !RecoveryInProgress())
	{
		dt_spin_lock(&dt_shared->sampled.lock);
		*info = dt_shared->sampled.signals[signal];
		dt_spin_unlock(&dt_shared->sampled.lock);
		info->state = dt_signal_state(info->read_at, DT_STALE_US, now);
		if (info->reason[0] == '\0' && !dt_sampler_runs())
			strlcpy(info->reason,
					_("The background worker \"dirty_throttle pressure\" is not running."),
					DT_REASON_SIZE);
	}
	else if (!followed && look == DT_LOOK_MEASURED &&
			 !TAKES_TIME(signal) && !RecoveryInProgress())
	{
		info->state = DT_SIGNAL_FRESH;
		info->value = found.value;
		info->read_at = now;
	}
	if (info->reason[0] == '\0' &&
		(!followed || look == DT_LOOK_FAILED || RecoveryInProgress()))
		strlcpy(info->reason, found.reason, DT_REASON_SIZE);
	return look != DT_LOOK_FAILED;
}

/* A row of a signal, or of a report. */
static void
put_signal(FunctionCallInfo fcinfo, const char *name, DtSignal signal,
		   int groups, const DtSignalInfo *info, bool available)
{
	static const char *const states[] = {
		[DT_SIGNAL_ABSENT] = "absent",
		[DT_SIGNAL_FRESH] = "fresh",
		[DT_SIGNAL_STALE] = "stale"
	};
	Row			row = {0};

	add_text(&row, name);
	add_text(&row, groups == 0 ? NULL :
			 info->out_of_reach && info->state == DT_SIGNAL_FRESH ?
			 "out of reach" : states[info->state]);
	add_value(&row, dt_signals[signal].unit, info->value,
			  info->state != DT_SIGNAL_ABSENT);
	add(&row, Int32GetDatum(groups), false);
	add_time(&row, info->read_at == 0 ? 0 :
			 GetCurrentTimestamp() - (dt_now_us() - info->read_at));
	add(&row, BoolGetDatum(available), false);
	add_text(&row, info->reason[0] ? info->reason : NULL);
	put(fcinfo, &row);
}

Datum
dirty_throttle_pressure(PG_FUNCTION_ARGS)
{
	DtReport	reports[DT_REPORTS];
	DtGroupCopy *copies;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	for (int s = 0; s < DT_REPORTED; s++)
	{
		int			groups = 0;
		int64		now = dt_now_us();
		DtSignalInfo info;
		bool		available;

		for (int i = 0; i < n; i++)
			groups += dt_definition_follows(&copies[i].group.definition, s);
		available = read_signal(s, groups > 0, now, &info);
		put_signal(fcinfo, dt_signals[s].name, s, groups, &info, available);
	}
	for (int s = dt_reports(reports) - 1; s >= 0; s--)
	{
		int			groups = 0;
		DtSignalInfo info = {
			.state = dt_signal_state(reports[s].at, reports[s].ttl_us, dt_now_us()),
			.value = reports[s].value,
			.read_at = reports[s].at
		};

		for (int i = 0; i < n; i++)
			groups += strcmp(copies[i].group.definition.reported,
							 reports[s].name) == 0;
		put_signal(fcinfo, reports[s].name, DT_REPORTED, groups, &info, true);
	}
	return (Datum) 0;
}
