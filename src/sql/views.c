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
#include "batch/message.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "session/work.h"
#include "shared/amount.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "sql/reason.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"
#include "waiters/waiters.h"

PG_FUNCTION_INFO_V1(dirty_throttle_groups);
PG_FUNCTION_INFO_V1(dirty_throttle_sessions);
PG_FUNCTION_INFO_V1(dirty_throttle_writers);
PG_FUNCTION_INFO_V1(dirty_throttle_batches);
PG_FUNCTION_INFO_V1(dirty_throttle_blocking);
PG_FUNCTION_INFO_V1(dirty_throttle_grants);
PG_FUNCTION_INFO_V1(dirty_throttle_thresholds);
PG_FUNCTION_INFO_V1(dirty_throttle_pressure);

/* The number of columns of the widest row. */
#define MAX_COLUMNS		40

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

/*
 * Which processes pause: for each session its own pause, or the oldest one of its
 * parallel workers; NULL: none.  palloc'd.
 */
static DtPause **
find_pauses(void)
{
	DtPause   **pauses = palloc0(dt_shared->n_members * sizeof(DtPause *));

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtPause    *pause = &dt_members[i].pause;
		DtPause   **slot = &pauses[dt_member_of(GetPGProcByNumber(i)) - dt_members];

		if (pause->group != NULL &&
			(*slot == NULL || pause->since < (*slot)->since))
			*slot = pause;
	}
	return pauses;
}

/*
 * How many sessions pause for a group.  A pause that is not counted yet, since its
 * first slice is not over, counts in the copy from its beginning.
 */
static int
count_pauses(DtPause **pauses, DtGroup *copy)
{
	int			n = 0;

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtPause		pause = pauses[i] ? *pauses[i] : (DtPause) {0};

		if (pause.group == NULL || pause.group_id != copy->id)
			continue;
		n++;
		copy->stats[DT_PAUSES] += !pause.counted;
		copy->stats[DT_WAL_PAUSES] += !pause.counted &&
			dt_pause_is_by_wal(pause.cause);
	}
	return n;
}

/* Add what an instance does and has done to what is shown of its group. */
static void
add_instance(DtGroupCopy *to, const DtGroupCopy *from)
{
	to->instances++;
	to->group.members += from->group.members;
	to->group.forgiven += from->group.forgiven;
	for (int i = 0; i < DT_COUNTERS; i++)
		to->group.stats[i] += from->group.stats[i];
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		to->group.usage[r].used += from->group.usage[r].used;
		to->rate[r] += from->rate[r];
		to->debt[r] += from->debt[r];
	}
}

/*
 * Count in copies of groups and instances which sessions pause, and sum up the
 * instances of each group.  paused[] is palloc'd.
 */
static int *
sum_up(DtGroupCopy *copies, int n)
{
	DtPause   **pauses = find_pauses();
	int		   *paused = palloc0((n + 1) * sizeof(int));

	for (int i = 0; i < n; i++)
		paused[i] = count_pauses(pauses, &copies[i].group);
	for (int i = 0; i < n; i++)
	{
		int			k = 0;

		while (k < n && copies[k].group.id != copies[i].group.of)
			k++;
		if (k == i || k == n)
			continue;
		add_instance(&copies[k], &copies[i]);
		paused[k] += paused[i];
	}
	return paused;
}

/*
 * May the user see values of this signal?  They follow from what the core shows
 * to members of pg_read_all_stats only, or of the machine to nobody.
 */
static bool
may_see_values(DtSignal signal)
{
	switch (signal)
	{
		case DT_REPLICA_LAG:
		case DT_FLUSH_LAG:
		case DT_DISK_FREE:
		case DT_KERNEL_DIRTY:
		case DT_IO_PRESSURE:
			return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
		default:
			return true;
	}
}

static const char *
state_name(DtSignalState state)
{
	static const char *const names[] = {
		[DT_SIGNAL_ABSENT] = "absent",
		[DT_SIGNAL_FRESH] = "fresh",
		[DT_SIGNAL_STALE] = "stale"
	};

	return names[state];
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

/* And what is done in an instance?  The groups themselves are for everybody. */
static bool
may_see_instance(const DtGroup *g)
{
	return g->of == g->id ||
		(g->definition.scope == DT_SCOPE_DATABASE && g->key == MyDatabaseId) ||
		may_see(g->definition.scope == DT_SCOPE_ROLE ? g->key : InvalidOid);
}

Datum
dirty_throttle_groups(PG_FUNCTION_ARGS)
{
	DtGroupCopy *copies;
	int		   *paused;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	paused = sum_up(copies, n);
	for (int i = 0; i < n; i++)
	{
		DtGroup    *g = &copies[i].group;
		bool		no_signal = (g->pressure.signal < 0);
		bool		visible = !no_signal && may_see_values(g->pressure.signal);
		bool		at_floor;
		int			reason = dt_reason_signal(g, &at_floor);
		Row			row = {0};

		if (!may_see_instance(g))
			continue;
		add_name(&row, g->definition.name);
		add(&row, ObjectIdGetDatum(g->key), !dt_is_instance(&copies[i]));
		add_text(&row, dt_property("scope")->words[g->definition.scope]);
		add(&row, Int32GetDatum(copies[i].instances),
			g->definition.scope == DT_SCOPE_GROUP || dt_is_instance(&copies[i]));
		add_text(&row, dt_property("mode")->words[g->definition.observe]);
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			add_thousandths(&row, g->definition.rate[r]);
			add_thousandths(&row, g->usage[r].engine.rate);
			add_thousandths(&row, copies[i].rate[r]);
			add_thousandths(&row, copies[i].debt[r]);
		}
		add_thousandths(&row, g->definition.burst_us);
		add_thousandths(&row, g->definition.floor);
		add_thousandths(&row, g->definition.weight);
		add_thousandths(&row, g->definition.allowance);
		add(&row, Int32GetDatum(g->members), false);
		add(&row, Int32GetDatum(paused[i]), false);
		add(&row, Float8GetDatum(g->pressure.level / 1000.0), !visible);
		add_text(&row, no_signal ? NULL :
				 dt_definition_signal_name(&g->definition, g->pressure.signal));
		add_text(&row, reason >= 0 && may_see_values(reason) ?
				 dt_reason_text(g, reason, at_floor) : NULL);
		add(&row, BoolGetDatum(dt_definition_follows(&g->definition, DT_CHECKPOINT) &&
							   dt_shared->sampled.signals[DT_CHECKPOINT].out_of_reach),
			no_signal);
		add_time(&row, g->suspended_since);
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

/* A copy of a session as a member of its group. */
typedef struct SessionCopy
{
	DtMember	member;
	DtPause		pause;			/* its group is NULL: none */
	int			pid;
	Oid			userid;
	Oid			databaseid;
	char		group_name[NAMEDATALEN];
	char		reported[NAMEDATALEN];	/* the signal of that kind that it
										 * follows */
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		now;			/* time of the copy, us */
} SessionCopy;

/* False when the session is in no group. */
static bool
copy_session(SessionCopy *copy, int number, const DtPause *pause)
{
	DtMember   *m = &dt_members[number];
	PGPROC	   *proc = GetPGProcByNumber(number);
	DtGroup    *g = m->group;

	if (g == NULL)
		return false;
	copy->now = dt_now_us();
	dt_group_lock(g);
	dt_group_check_pressure(g, copy->now);
	copy->member = *m;
	copy->pause = pause ? *pause : (DtPause)
	{
		0
	};
	copy->pid = proc->pid;
	copy->userid = proc->roleId;
	copy->databaseid = proc->databaseId;
	memcpy(copy->group_name, g->definition.name, NAMEDATALEN);
	memcpy(copy->reported, g->definition.reported, NAMEDATALEN);
	for (int r = 0; r < DT_RESOURCES && m->group == g; r++)
		copy->debt[r] = dt_rate_debt(&g->usage[r].engine, &m->account[r],
									 copy->now);
	dt_group_unlock(g);
	return copy->member.group == g;
}

/* A pause counts from its beginning, and not only when a slice of it is over. */
static void
count_pause(SessionCopy *copy)
{
	int64		us = copy->now - copy->member.paused_up_to_us;

	if (copy->pause.group == NULL)
		return;
	copy->member.stats[DT_PAUSES] += !copy->pause.counted;
	copy->member.stats[DT_PAUSED_US] += Max(us, 0);
	copy->member.xact.stats[DT_PAUSED_US] += Max(us, 0);
}

static const char *
cause_name(const SessionCopy *copy)
{
	return copy->pause.cause == DT_BY_SIGNAL + DT_REPORTED &&
		copy->reported[0] != '\0' ? copy->reported :
		dt_member_cause_name(copy->pause.cause);
}

Datum
dirty_throttle_sessions(PG_FUNCTION_ARGS)
{
	DtPause   **pauses;

	begin(fcinfo);
	pauses = find_pauses();
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		SessionCopy copy;
		DtMember   *m = &copy.member;
		bool		is_paused;
		Row			row = {0};

		if (!copy_session(&copy, i, pauses[i]) || !may_see(copy.userid))
			continue;
		count_pause(&copy);
		is_paused = copy.pause.group != NULL;
		add(&row, Int32GetDatum(copy.pid), false);
		add(&row, ObjectIdGetDatum(copy.userid), false);
		add(&row, ObjectIdGetDatum(copy.databaseid), false);
		add_name(&row, copy.group_name);
		add(&row, BoolGetDatum(m->moved), false);
		add_time(&row, is_paused ? copy.pause.since : 0);
		add_text(&row, is_paused ? cause_name(&copy) : NULL);
		add_thousandths(&row, m->xact.stats[DT_PAUSED_US]);
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
 * How fast a process that is in no group writes WAL, bytes/s: since this session has
 * looked last or, at first, since that one has begun.
 */
static double
outsiders_rate(int number, int64 bytes, TimestampTz began)
{
	static struct
	{
		TimestampTz began;		/* of which process this is */
		TimestampTz at;
		int64		bytes;
	}		   *seen;
	TimestampTz now = GetCurrentTimestamp();
	bool		is_known;
	double		rate;

	if (seen == NULL)
		seen = MemoryContextAllocZero(TopMemoryContext,
									  dt_shared->n_members * sizeof(*seen));
	is_known = seen[number].began == began && seen[number].bytes <= bytes;
	rate = (bytes - (is_known ? seen[number].bytes : 0)) * 1e6 /
		Max(now - (is_known ? seen[number].at : began), 1);
	seen[number].began = began;
	seen[number].at = now;
	seen[number].bytes = bytes;
	return rate;
}

/*
 * Who writes, of those of whom that is known: members, and from 18 on all.  The core
 * does not count for each process what that has dirtied.
 */
Datum
dirty_throttle_writers(PG_FUNCTION_ARGS)
{
	begin(fcinfo);
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		SessionCopy copy;
		int			pid = proc->pid;
		int64		wal;
		TimestampTz began;
		Row			row = {0};

		/* what parallel workers write is counted of their leader, too */
		if (pid == 0 || !may_see(proc->roleId) ||
			(proc->lockGroupLeader != NULL && proc->lockGroupLeader != proc))
			continue;
		add(&row, Int32GetDatum(pid), false);
		add(&row, ObjectIdGetDatum(proc->roleId), false);
		add(&row, ObjectIdGetDatum(proc->databaseId), false);
		if (copy_session(&copy, i, NULL))
		{
			DtMemberUsage *usage = copy.member.usage;

			add_name(&row, copy.group_name);
			add_thousandths(&row, dt_meter_rate(&usage[DT_WAL].meter, copy.now));
			add_thousandths(&row, dt_meter_rate(&usage[DT_DIRTY].meter, copy.now));
			add_int(&row, usage[DT_WAL].used);
			add_int(&row, usage[DT_DIRTY].used / BLCKSZ);
			add_time(&row, GetCurrentTimestamp() -
					 (copy.now - usage[DT_WAL].meter.started));
		}
		else if (dt_backend_wal(pid, i, &wal, &began))
		{
			add(&row, (Datum) 0, true);
			add_thousandths(&row, outsiders_rate(i, wal, began));
			add(&row, (Datum) 0, true);
			add_int(&row, wal);
			add(&row, (Datum) 0, true);
			add_time(&row, began);
		}
		else
			continue;
		put(fcinfo, &row);
	}
	return (Datum) 0;
}

/*
 * Set the name of the group of a prepared transaction: of the one that has
 * prepared it, or, if that is not known, of a member with its role in its
 * database.  False: there is none.
 */
static bool
group_of_prepared(const DtInTheWay *row, char *name)
{
	Oid			database = GetPGProcByNumber(row->holder)->databaseId;
	DtGroup    *g;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find_id(row->prepared_in);
	for (int i = 0; i < dt_shared->n_members && g == NULL &&
		 !row->prepared_is_known; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);

		if (proc->roleId == row->prepared_by && proc->databaseId == database)
			g = dt_members[i].group;
	}
	if (g != NULL)
		strlcpy(name, g->definition.name, NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return g != NULL;
}

/*
 * Pairs of a process that waits and a member, whether it pauses or not, or a
 * prepared transaction, in its way.
 */
Datum
dirty_throttle_blocking(PG_FUNCTION_ARGS)
{
	begin(fcinfo);
	foreach_ptr(DtInTheWay, pair, dt_waiters_list())
	{
		bool		is_prepared = TransactionIdIsValid(pair->prepared_xid);
		PGPROC	   *holder = GetPGProcByNumber(pair->holder);
		char		name[NAMEDATALEN];
		Row			row = {0};

		if (!may_see(is_prepared ? pair->prepared_by : holder->roleId) ||
			(is_prepared ? !group_of_prepared(pair, name) :
			 pair->holder >= dt_shared->n_members))
			continue;
		add(&row, Int32GetDatum(pair->waiting_pid), false);
		/* see time_waited() for the other case */
		add_time(&row, pair->waited_us < PG_INT64_MAX ?
				 GetCurrentTimestamp() - pair->waited_us : 0);
		add_text(&row, pair->kind);
		add(&row, Int32GetDatum(holder->pid), is_prepared);
		add(&row, TransactionIdGetDatum(pair->prepared_xid), !is_prepared);
		if (is_prepared)
			add_name(&row, name);
		else
			add(&row, (Datum) 0, true);
		put(fcinfo, &row);
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

/* The units of columns. */
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

/* A value of a signal, or a threshold, if it is known. */
static void
add_in_unit(Row *row, DtUnit unit, int64 value, bool known)
{
	add(row, Float8GetDatum(value / units[unit].size), !known);
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
			DtSignalFacts *facts = &copies[i].group.pressure.facts[s];
			DtUnit		unit = t->unit == DT_UNIT_SHARE ? t->unit :
				dt_signals[s].unit;
			Row			row = {0};

			if (t->unit == DT_UNIT_UNUSED || dt_is_instance(&copies[i]))
				continue;
			add_name(&row, d->name);
			add_text(&row, dt_definition_signal_name(d, s));
			add_text(&row, dt_amount_text(t->unit, t->value));
			add_in_unit(&row, unit, t->value, t->unit != DT_UNIT_NONE);
			add_text(&row, units[unit].name);
			add(&row, Int32GetDatum(t->ignore), s >= DT_STANDBY_SIGNALS);
			add_text(&row, s < DT_STANDBY_SIGNALS && d->standbys[s][0] != '\0' ?
					 d->standbys[s] : NULL);
			add_text(&row, state_name(!facts->known ? DT_SIGNAL_ABSENT :
									  dt_signal_state(facts->read_at,
													  facts->fresh_us,
													  copies[i].now)));
			put(fcinfo, &row);
		}
	}
	return (Datum) 0;
}

/* What is known of a signal. */
static DtSignalInfo
read_signal(DtSignal signal)
{
	DtSignalInfo info = {0};

	if (RecoveryInProgress())
	{
		strlcpy(info.reason, _("Signals are not measured during recovery."),
				DT_REASON_SIZE);
		return info;
	}
	info = dt_sampler_info(signal);
	if (info.reason[0] == '\0' && (!info.looked || !dt_sampler_runs()))
		strlcpy(info.reason, dt_sampler_runs() ?
				_("Signals are measured while there is a resource group.") :
				_("The background worker \"dirty_throttle pressure\" is not running."),
				DT_REASON_SIZE);
	return info;
}

/* A row of a signal, or of a report. */
static void
put_signal(FunctionCallInfo fcinfo, const char *name, DtSignal signal,
		   int groups, const DtSignalInfo *info, int64 fresh_us)
{
	DtSignalState state = dt_signal_state(info->read_at, fresh_us, dt_now_us());
	DtUnit		unit = dt_signals[signal].unit;
	bool		visible = may_see_values(signal);
	bool		known = visible && state != DT_SIGNAL_ABSENT;
	Row			row = {0};

	add_text(&row, name);
	add_text(&row, groups == 0 ? NULL :
			 info->out_of_reach && state == DT_SIGNAL_FRESH ? "out of reach" :
			 state_name(state));
	add_in_unit(&row, unit, info->base, known && info->base != 0);
	add_in_unit(&row, unit, info->value, known);
	add_in_unit(&row, unit, info->allowed, known && info->allowed != 0);
	add_text(&row, units[unit].name);
	add(&row, Int32GetDatum(groups), false);
	add_time(&row, info->read_at == 0 ? 0 :
			 GetCurrentTimestamp() - (dt_now_us() - info->read_at));
	add(&row, BoolGetDatum(info->available), !info->looked);
	add_text(&row, visible && info->reason[0] ? info->reason : NULL);
	put(fcinfo, &row);
}

/* How many groups follow what is reported under this name? */
static int
count_followers(const DtGroupCopy *copies, int n, const char *name)
{
	int			groups = 0;

	for (int i = 0; i < n; i++)
		groups += !dt_is_instance(&copies[i]) &&
			strcmp(copies[i].group.definition.reported, name) == 0;
	return groups;
}

static bool
is_among(const DtReport *reports, int n, const char *name)
{
	for (int i = 0; i < n; i++)
		if (strcmp(reports[i].name, name) == 0)
			return true;
	return false;
}

/*
 * Rows of what groups follow and nobody has reported: a restart forgets all
 * reports, and who watches this view must not see one follower less for that.
 */
static void
put_unreported(FunctionCallInfo fcinfo, const DtGroupCopy *copies, int n,
			   const DtReport *reports, int n_reports)
{
	DtSignalInfo info = {.looked = true,.available = true};

	strlcpy(info.reason, _("There is no report of it."), DT_REASON_SIZE);
	for (int i = 0; i < n; i++)
	{
		const char *name = copies[i].group.definition.reported;

		/* once, for the first of those who follow it */
		if (name[0] != '\0' && !is_among(reports, n_reports, name) &&
			count_followers(copies, i, name) == 0)
			put_signal(fcinfo, name, DT_REPORTED,
					   count_followers(copies, n, name), &info, DT_STALE_US);
	}
}

Datum
dirty_throttle_pressure(PG_FUNCTION_ARGS)
{
	DtReport	reports[DT_REPORTS];
	int			n_reports;
	DtGroupCopy *copies;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	for (int s = 0; s < DT_REPORTED; s++)
	{
		int			groups = 0;
		DtSignalInfo info = read_signal(s);

		for (int i = 0; i < n; i++)
			groups += !dt_is_instance(&copies[i]) &&
				dt_definition_follows(&copies[i].group.definition, s);
		put_signal(fcinfo, dt_signals[s].name, s, groups, &info, DT_STALE_US);
	}
	n_reports = dt_reports(reports);
	for (int s = n_reports - 1; s >= 0; s--)
	{
		DtSignalInfo info = {
			.looked = true,
			.available = true,
			.read_at = reports[s].at,
			.value = reports[s].value,
			.allowed = 1000
		};

		put_signal(fcinfo, reports[s].name, DT_REPORTED,
				   count_followers(copies, n, reports[s].name), &info,
				   reports[s].ttl_us);
	}
	put_unreported(fcinfo, copies, n, reports, n_reports);
	return (Datum) 0;
}

static void
add_array(Row *row, ArrayType *value)
{
	add(row, PointerGetDatum(value), value == NULL);
}

/* A number, NULL if it is negative: that is not known. */
static void
add_known(Row *row, double value)
{
	add(row, Float8GetDatum(value), value < 0);
}

/* NULL: a standby does not know what runs on the primary. */
static const char *
job_state(const DtJob *job, DtQueueState state, int pid)
{
	return state >= DT_QUEUE_RUNS ? (dt_work_is_suspended(pid) ? "suspended" : "running") :
		state != DT_QUEUE_ABSENT ? "waiting" :
		job->finished != 0 ? "finished" :
		job->outcome != NULL ? job->outcome :
		RecoveryInProgress() ? NULL : "interrupted";
}

static void
put_job(const DtJob *job, void *fcinfo)
{
	int			pid;
	DtQueueState state = dt_queue_find(job->id, &pid);
	bool		is_owner = has_privs_of_role(GetUserId(), job->owner);
	TimestampTz now = GetCurrentTimestamp();
	const char *name = job_state(job, state, pid);
	double		left = name && strcmp(name, "running") == 0 ? dt_message_seconds_left(job) : -1;
	Row			row = {0};

	if (!may_see(job->owner))
		return;
	add_name(&row, job->name);
	add(&row, ObjectIdGetDatum(job->table), false);
	add_text(&row, job->statement);
	add(&row, ObjectIdGetDatum(job->owner), false);
	add_text(&row, name);
	add(&row, Int32GetDatum(pid), pid == 0);
	add_int(&row, job->rows);
	add_int(&row, job->batches);
	add_int(&row, job->keys);
	add(&row, Int64GetDatum(job->expected), job->expected < 0);
	add_known(&row, dt_message_percent(job));
	add(&row, Float8GetDatum(job->rate), false);
	add_int(&row, job->retries);
	add_thousandths(&row, job->paused_us);
	add_thousandths(&row, job->elapsed_us +
					(pid != 0 ? now - job->updated : 0));
	/* it may be waiting for longer than it would have taken */
	add_time(&row, left < 0 ? 0 :
			 Max(job->updated + (TimestampTz) Min(left * 1e6, 1e17), now));
	add_time(&row, job->updated);
	/* both may have values of rows in them */
	add_array(&row, is_owner ? job->position : NULL);
	add_text(&row, !is_owner ? NULL : state != DT_QUEUE_WAITS ? dt_message_error(job) :
			 psprintf("no free background worker: batches use at most %d of the %d that max_worker_processes allows",
					  dt_queue_most(), max_worker_processes));
	put(fcinfo, &row);
}

Datum
dirty_throttle_batches(PG_FUNCTION_ARGS)
{
	DtStore		store;

	begin(fcinfo);
	store = dt_store_open(dt_store_oid(fcinfo->flinfo->fn_oid), AccessShareLock);
	dt_store_each(&store, put_job, fcinfo);
	dt_store_close(&store, AccessShareLock);
	return (Datum) 0;
}
