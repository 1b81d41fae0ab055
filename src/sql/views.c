/*-------------------------------------------------------------------------
 *
 * views.c
 *		SQL functions that return the rows of the views.
 *
 * Each function is named for its view.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "batch/message.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
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
#include "utils/array.h"
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

/* A limit in KB/s, NULL for none. */
static void
add_limit(Row *row, int64 rate)
{
	add(row, Float8GetDatum(rate / 1000.0), rate == 0);
}

/* A name as a SQL name, zero-padded. */
static Datum
name_datum(const char *name)
{
	Name		result = palloc(NAMEDATALEN);

	namestrcpy(result, name);
	return NameGetDatum(result);
}

static void
add_name(Row *row, const char *name)
{
	add(row, name_datum(name), false);
}

/* A list of names, NULL for an empty one. */
static void
add_names(Row *row, List *names)
{
	Datum	   *elements = palloc((list_length(names) + 1) * sizeof(Datum));
	int			n = 0;

	foreach_ptr(String, name, names)
		elements[n++] = name_datum(strVal(name));
	add(row, PointerGetDatum(construct_array(elements, n, NAMEOID, NAMEDATALEN,
											 false, TYPALIGN_CHAR)), n == 0);
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
		case DT_DISK_FREE:
		case DT_KERNEL_DIRTY:
		case DT_IO_PRESSURE:
			return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
		default:
			return true;
	}
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

/* What pressure makes of a group; NULL for users who may not see the values. */
static char *
pressure_reason(const DtGroup *g)
{
	bool		at_floor;
	int			signal = dt_reason_signal(g, &at_floor);

	return signal >= 0 && may_see_values(signal) ?
		dt_reason_text(g, signal, at_floor) : NULL;
}

/* The counters of a group or an instance. */
static void
add_counters(Row *row, const DtGroup *g)
{
	add_int(row, g->usage[DT_DIRTY].used / BLCKSZ);
	add_int(row, g->usage[DT_WAL].used);
	add_int(row, g->stats[DT_PAUSES]);
	add_thousandths(row, g->stats[DT_PAUSED_US]);
	add_int(row, g->stats[DT_OBSERVED_PAUSES]);
	add_thousandths(row, g->stats[DT_OBSERVED_US]);
	add_int(row, g->stats[DT_RELEASES]);
	add_thousandths(row, g->forgiven);
	add_time(row, g->stats_reset);
}

/*
 * Grants are in the catalog only.  Where that cannot be understood no role is granted
 * anything, and the rest of the view is as useful as ever.
 */
Datum
dirty_throttle_groups(PG_FUNCTION_ARGS)
{
	DtGroupCopy *copies;
	List	   *entries;
	int		   *paused;
	int			n;

	begin(fcinfo);
	entries = dt_definitions_read(false);
	copies = dt_group_copies(&n);
	paused = sum_up(copies, n);
	for (int i = 0; i < n; i++)
	{
		DtGroup    *g = &copies[i].group;
		DtDefinition *d = &g->definition;
		DtEntry    *entry = dt_definitions_find(entries, d->name);
		bool		is_instance = dt_is_instance(&copies[i]);
		Row			row = {0};

		if (!may_see_instance(g))
			continue;
		add_name(&row, d->name);
		add(&row, ObjectIdGetDatum(g->key), !is_instance);
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			add_thousandths(&row, copies[i].rate[r]);
			add_limit(&row, d->rate[r]);
			add_limit(&row, g->usage[r].engine.rate);
		}
		add_text(&row, pressure_reason(g));
		add(&row, Int32GetDatum(g->members), false);
		add(&row, Int32GetDatum(paused[i]), false);
		for (int r = 0; r < DT_RESOURCES; r++)
			add_thousandths(&row, copies[i].debt[r]);
		add_time(&row, g->suspended_since);
		add_text(&row, dt_property("mode")->words[d->observe]);
		add_text(&row, dt_property("scope")->words[d->scope]);
		add(&row, Int32GetDatum(copies[i].instances),
			d->scope == DT_SCOPE_GROUP || is_instance);
		add_thousandths(&row, d->burst_us);
		add_thousandths(&row, d->allowance);
		add_thousandths(&row, d->floor);
		add_thousandths(&row, d->weight);
		add_names(&row, entry ? entry->grants : NIL);
		add_counters(&row, g);
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
		add_int(&row, m->usage[DT_DIRTY].used / BLCKSZ);
		add_int(&row, m->usage[DT_WAL].used);
		add_int(&row, m->stats[DT_PAUSES]);
		add_thousandths(&row, m->stats[DT_PAUSED_US]);
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
		/* or the slot is that of another session by now */
		if (proc->pid == pid)
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

/*
 * The state of a signal for a group that follows it, or for none; see DtSignalState.
 */
static const char *
state_name(DtSignalState state, const DtSignalInfo *info, bool is_followed)
{
	if (info->looked && !info->available &&
		(!is_followed || state == DT_SIGNAL_ABSENT))
		return "unavailable";
	if (!is_followed)
		return NULL;
	if (state == DT_SIGNAL_ABSENT)
		return "absent";
	if (state == DT_SIGNAL_STALE)
		return "stale";
	return info->out_of_reach ? "out of reach" : "fresh";
}

/*
 * Why a signal is absent for a group that follows it, where looking at the signal has
 * not shown why: there may be a value, but none that counts for the group; or NULL.
 */
static const char *
absence_reason(DtSignal signal, const DtSignalInfo *info)
{
	if (signal == DT_REPORTED)
		return _("Its last report is too old to count.");
	if (signal == DT_COMMIT_LATENCY)
		return _("No commits outside of the groups that follow the signal, and none in them of sessions that owe nothing.");
	if (signal == DT_REPLICA_LAG)
		return _("No standby that counts is streaming.");
	/* else the sampler has not looked since the group follows the signal */
	return dt_signal_state(info->read_at, DT_STALE_US, dt_now_us()) == DT_SIGNAL_ABSENT ?
		_("It has had no new value for 40 seconds.") : NULL;
}

/*
 * What the value may be: that is known once there is a value, and before it where the
 * threshold is no share of something else.
 */
static void
add_threshold_value(Row *row, DtSignal signal, const DtThreshold *t,
					const DtSignalFacts *facts)
{
	DtUnit		unit = dt_signals[signal].unit;
	bool		is_given = t->unit != DT_UNIT_UNUSED && t->unit != DT_UNIT_NONE &&
		(t->unit != DT_UNIT_SHARE || unit == DT_UNIT_SHARE);

	if (t->unit != DT_UNIT_UNUSED && facts->allowed != 0 && may_see_values(signal))
		add_in_unit(row, unit, facts->allowed, true);
	else
		add_in_unit(row, unit, t->value, is_given);
}

/* A row of a signal: of a group that follows it or, where d is NULL, of none. */
static void
put_signal(FunctionCallInfo fcinfo, DtSignal signal, const char *name,
		   const DtDefinition *d, const DtSignalFacts *facts,
		   const DtSignalInfo *info)
{
	static const DtThreshold none = {0};
	const DtThreshold *t = d ? &d->threshold[signal] : &none;
	DtSignalState state = dt_signal_state(facts->read_at, facts->fresh_us,
										  dt_now_us());
	DtUnit		unit = dt_signals[signal].unit;
	bool		is_visible = may_see_values(signal);
	bool		is_known = is_visible && state != DT_SIGNAL_ABSENT;
	Row			row = {0};

	add_text(&row, name);
	add(&row, d ? name_datum(d->name) : (Datum) 0, d == NULL);
	add_text(&row, state_name(state, info, d != NULL));
	add_in_unit(&row, unit, facts->value, is_known);
	add_threshold_value(&row, signal, t, facts);
	add_text(&row, units[unit].name);
	add_in_unit(&row, unit, facts->base, is_known && facts->base != 0);
	add(&row, Float8GetDatum(facts->pressure / 1000.0), d == NULL || !is_known);
	add_text(&row, t->unit == DT_UNIT_NONE ? "on" :
			 dt_amount_text(t->unit, t->value));
	add(&row, Int32GetDatum(t->ignore), d == NULL || signal != DT_REPLICA_LAG);
	add_time(&row, facts->read_at == 0 ? 0 :
			 GetCurrentTimestamp() - (dt_now_us() - facts->read_at));
	add_text(&row, !is_visible ? NULL : info->reason[0] != '\0' ? info->reason :
			 d != NULL && state == DT_SIGNAL_ABSENT ?
			 absence_reason(signal, info) : NULL);
	put(fcinfo, &row);
}

/*
 * Rows of the groups that follow a signal or, if none does, one of what is known
 * without them.  A report counts for groups as soon as it is there.
 */
static void
put_followers(FunctionCallInfo fcinfo, DtSignal signal, const char *name,
			  const DtGroupCopy *copies, int n, const DtSignalFacts *facts,
			  const DtSignalInfo *info)
{
	bool		is_followed = false;

	for (int i = 0; i < n; i++)
	{
		const DtGroup *g = &copies[i].group;
		const DtDefinition *d = &g->definition;

		if (dt_is_instance(&copies[i]) || !dt_definition_follows(d, signal) ||
			strcmp(dt_definition_signal_name(d, signal), name) != 0)
			continue;
		put_signal(fcinfo, signal, name, d, signal == DT_REPORTED ? facts :
				   &g->pressure.facts[signal], info);
		is_followed = true;
	}
	if (!is_followed)
		put_signal(fcinfo, signal, name, NULL, facts, info);
}

static void
put_measured(FunctionCallInfo fcinfo, DtSignal signal, const DtGroupCopy *copies,
			 int n)
{
	DtSignalInfo info = read_signal(signal);
	DtSignalFacts facts = {
		.read_at = info.read_at,
		.fresh_us = DT_STALE_US,
		.value = info.value
	};

	put_followers(fcinfo, signal, dt_signals[signal].name, copies, n, &facts, &info);
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
 * Rows of reports, and of the groups that follow what has no report: a restart forgets
 * all of them, and a monitoring system must not see one follower less for that.
 */
static void
put_reports(FunctionCallInfo fcinfo, const DtGroupCopy *copies, int n)
{
	DtReport	reports[DT_REPORTS];
	int			n_reports = dt_reports(reports);
	DtSignalInfo info = {.looked = true,.available = true};
	DtSignalFacts facts = {.allowed = 1000};

	for (int s = n_reports - 1; s >= 0; s--)
	{
		facts.read_at = reports[s].at;
		facts.fresh_us = reports[s].ttl_us;
		facts.value = facts.pressure = reports[s].value;
		put_followers(fcinfo, DT_REPORTED, reports[s].name, copies, n, &facts, &info);
	}
	facts.read_at = 0;
	strlcpy(info.reason, _("There is no report of it."), DT_REASON_SIZE);
	for (int i = 0; i < n; i++)
	{
		const DtDefinition *d = &copies[i].group.definition;

		if (d->reported[0] != '\0' && !dt_is_instance(&copies[i]) &&
			!is_among(reports, n_reports, d->reported))
			put_signal(fcinfo, DT_REPORTED, d->reported, d, &facts, &info);
	}
}

Datum
dirty_throttle_pressure(PG_FUNCTION_ARGS)
{
	DtGroupCopy *copies;
	int			n;

	begin(fcinfo);
	copies = dt_group_copies(&n);
	for (int s = 0; s < DT_REPORTED; s++)
		put_measured(fcinfo, s, copies, n);
	put_reports(fcinfo, copies, n);
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
