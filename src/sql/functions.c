/*-------------------------------------------------------------------------
 *
 * functions.c
 *		SQL functions that change something.
 *
 * None of the functions is STRICT, so that a NULL is an error instead of being
 * ignored.  Who may call a function is decided by GRANT; see the extension
 * script.  What is defined of a group is changed here, in the entry that
 * dt_definitions_edit() returns, and written by dt_definitions_write().
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/dependency.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "common/int.h"
#include "compat.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/value.h"
#include "pressure/signals.h"
#include "session/account.h"
#include "session/session.h"
#include "shared/amount.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/member.h"
#include "sql/notices.h"
#include "sql/protect.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"

/*
 * ERROR if an argument is NULL; "what" names it in the message.
 */
static void
check_not_null(FunctionCallInfo fcinfo, int arg, const char *what)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/*
 * An argument that names a group.
 */
static char *
get_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	const char *flaw;
	char	   *name;

	check_not_null(fcinfo, arg, what);
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	flaw = dt_name_flaw(name);
	if (flaw != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not %s", what, flaw),
				 errhint("Write a name of 1 to %d bytes, for example 'batch'.",
						 NAMEDATALEN - 1)));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s \"%s\" is too long", what, name),
				 errdetail("The name has %zu bytes, but the names of resource groups are limited to %d bytes.",
						   strlen(name), NAMEDATALEN - 1)));
	return name;
}

/*
 * The first argument of most functions, which need the library.
 */
static char *
get_group(FunctionCallInfo fcinfo)
{
	dt_sql_need_library();
	return get_name(fcinfo, 0, "group name");
}

/*
 * Write what has been set of an entry.  A misspelt name creates a group, so tell
 * of a similar one.
 */
static void
finish(List *entries, const DtEntry *entry)
{
	const char *name = entry->definition.name;
	char		similar[NAMEDATALEN];

	dt_definitions_write(entries);
	if (entry->is_new)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" created", name),
				 dt_group_find_similar(name, similar) ?
				 errhint("There is also a resource group \"%s\". If you meant that one, use SELECT drop_resource_group(%s).",
						 similar, quote_literal_cstr(name)) : 0));
}

/* How numbers in these units are written. */
static const struct
{
	const char *name;			/* of a thousand; with a space */
	const char *meaning;		/* what follows the range */
	const char *hint;
}			numbers[] = {
	[DT_UNIT_NONE] = {"", "", "Valid modes are \"enforce\" and \"observe\"."},
	[DT_UNIT_RATE] = {" KB/s", " (1 KB = 1000 bytes)", "Write an amount per second with its unit, for example '5 MB', or a number of KB/s."},
	[DT_UNIT_BYTES] = {" KB", " (1 KB = 1000 bytes)", "Write an amount with its unit, for example '64 MB', or a number of KB."},
	[DT_UNIT_US] = {" ms", " of the group's limits", "Write a time with its unit, for example '1 min', or a number of milliseconds."},
	[DT_UNIT_NUMBER] = {"", "", ""}
};

/*
 * Set a property to the second argument, a number or a text; if there is none,
 * remove a limit.  A tiny rate does not become 0, which means no limit.
 */
static Datum
set_property(FunctionCallInfo fcinfo, const char *key, DtDefine how,
			 bool is_text)
{
	char	   *group = get_group(fcinfo);
	const DtProperty *property = dt_property(key);
	bool		is_mode = (property->kind == DT_MODE);
	int64		lowest = (property->min + 999) / 1000;
	const char *shown = "";
	float8		value = 0;		/* in thousandths */
	float8		stored;
	List	   *entries;
	DtEntry    *entry;

	if (PG_NARGS() > 1)
		check_not_null(fcinfo, 1, property->label);
	else
		how = DT_ALTER;
	if (is_text)
	{
		char	   *written = text_to_cstring(PG_GETARG_TEXT_PP(1));

		value = strcmp(written, "observe") == 0;
		if (is_mode ? value == 0 && strcmp(written, "enforce") != 0 :
			!dt_amount_read(property->unit, written, 1000, &value))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 is_mode ? errmsg("unrecognized mode \"%s\"", written) :
					 errmsg("invalid %s: \"%s\"", property->label, written),
					 errhint("%s%s", numbers[property->unit].hint,
							 dt_amount_hint(property->unit))));
		shown = psprintf("\"%s\"", written);
	}
	else if (PG_NARGS() > 1)
	{
		value = PG_GETARG_FLOAT8(1) * 1000;
		shown = float8out_internal(PG_GETARG_FLOAT8(1));
	}
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
	stored = value > 0 ? Max(rint(value), 1) : 0;
	entry = dt_definitions_edit(group, how, &entries);
	*dt_property_value(&entry->definition, property) = (int64) stored;
	finish(entries, entry);
	if (stored > 0 && property->unit == DT_UNIT_RATE)
		dt_notice_floor(&entry->definition);
	if (fabs(stored - value) > 0.001)
		ereport(NOTICE,
				(errmsg("%s %s is rounded to %s%s", property->label, shown,
						float8out_internal(stored / 1000),
						numbers[property->unit].name)));
	PG_RETURN_VOID();
}

#define PROPERTY_FUNCTION(function, key, how, is_text) \
	PG_FUNCTION_INFO_V1(function); \
	Datum function(PG_FUNCTION_ARGS) \
	{ \
		return set_property(fcinfo, key, how, is_text); \
	}

/* The same with a number, and with a text. */
#define PROPERTY_FUNCTIONS(function, key, how) \
	PROPERTY_FUNCTION(function, key, how, false) \
	PROPERTY_FUNCTION(function##_text, key, how, true)

PROPERTY_FUNCTIONS(create_resource_group, "dirty", DT_CREATE)
PROPERTY_FUNCTIONS(set_group_dirty_limit, "dirty", DT_CREATE_OR_ALTER)
PROPERTY_FUNCTIONS(set_group_wal_limit, "wal", DT_CREATE_OR_ALTER)
PROPERTY_FUNCTIONS(set_group_burst, "burst", DT_CREATE_OR_ALTER)
PROPERTY_FUNCTIONS(set_group_floor, "floor", DT_CREATE_OR_ALTER)
PROPERTY_FUNCTIONS(set_group_allowance, "allowance", DT_CREATE_OR_ALTER)
PROPERTY_FUNCTION(set_group_weight, "weight", DT_CREATE_OR_ALTER, false)
PROPERTY_FUNCTION(set_group_mode, "mode", DT_CREATE_OR_ALTER, true)

/* ERROR: there is no such signal. */
static void
signal_missing(const char *name)
{
	DtReport	reports[DT_REPORTS];
	const char *similar = NULL;
	StringInfoData known;

	for (int i = dt_reports(reports) - 1; i >= 0; i--)
		if (dt_name_is_similar(name, reports[i].name))
			similar = reports[i].name;
	initStringInfo(&known);
	for (int s = 0; s < DT_REPORTED; s++)
	{
		if (dt_name_is_similar(name, dt_signals[s].name))
			similar = dt_signals[s].name;
		appendStringInfo(&known, s == 0 ? "\"%s\"" : ", \"%s\"",
						 dt_signals[s].name);
	}
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("signal \"%s\" does not exist", name),
			 similar != NULL ? errhint("Perhaps you meant \"%s\".", similar) :
			 errhint("Available signals: %s, and those that report_pressure() has reported.",
					 known.data)));
}

/*
 * The second argument, which names a signal.  What the group follows need not
 * be reported any more.
 */
static DtSignal
get_signal(FunctionCallInfo fcinfo, const char *group, char **name)
{
	DtReport	reports[DT_REPORTS];
	DtSignal	signal;
	DtEntry    *entry;

	*name = get_name(fcinfo, 1, "signal");
	signal = dt_signal_find(*name);
	if (signal != DT_REPORTED)
		return signal;
	for (int i = dt_reports(reports) - 1; i >= 0; i--)
		if (strcmp(reports[i].name, *name) == 0)
			return signal;
	entry = dt_definitions_find(dt_definitions_read(true), group);
	if (entry != NULL && strcmp(entry->definition.reported, *name) == 0)
		return signal;
	signal_missing(*name);
	return signal;
}

/*
 * Have a group follow a signal, with the standbys that count or the name under
 * which the signal is reported; or with zeros not follow it.
 */
static void
set_threshold(DtDefinition *d, DtSignal signal, DtThreshold threshold,
			  const char *names)
{
	d->threshold[signal] = threshold;
	if (signal == DT_REPORTED)
		strncpy(d->reported, names, sizeof(d->reported));
	else if (signal < DT_STANDBY_SIGNALS)
		strncpy(d->standbys[signal], names, sizeof(d->standbys[signal]));
}

/*
 * The standbys that count, an argument that may be NULL.
 */
static char *
get_standbys(FunctionCallInfo fcinfo, int arg, DtSignal signal,
			 const char *name)
{
	char	   *names = PG_ARGISNULL(arg) ? "" :
		text_to_cstring(PG_GETARG_TEXT_PP(arg));

	if (names[0] == '\0')
		return names;
	if (signal >= DT_STANDBY_SIGNALS)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("signal \"%s\" is not about standbys", name)));
	if (strlen(names) >= DT_STANDBYS_SIZE || strchr(names, '\n') != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid list of standbys"),
				 errdetail("The names, separated by commas, are limited to %d bytes in one line.",
						   DT_STANDBYS_SIZE - 1)));
	return names;
}

/*
 * A threshold: a number with a unit; NULL for a signal that has none.
 */
static DtThreshold
read_threshold(DtSignal signal, const char *name, const char *value,
			   int32 ignore)
{
	const DtSignalKind *kind = &dt_signals[signal];
	DtThreshold t = {.unit = kind->threshold,.ignore = ignore};
	bool		has_none = (kind->threshold == DT_UNIT_NONE);

	if (ignore < 0 || (ignore > 0 && signal >= DT_STANDBY_SIGNALS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot ignore %d for signal \"%s\"", ignore, name),
				 errhint("\"ignore\" is how many of the slowest standbys do not count for signals \"%s\" and \"%s\".",
						 dt_signals[DT_REPLICA_LAG].name,
						 dt_signals[DT_FLUSH_LAG].name)));
	if (value == NULL ? !has_none :
		has_none || !dt_threshold_read(signal, value, &t))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 has_none ?
				 errmsg("signal \"%s\" has no threshold", name) :
				 value == NULL ?
				 errmsg("signal \"%s\" needs a threshold", name) :
				 errmsg("invalid threshold for signal \"%s\": \"%s\"",
						name, value),
				 errdetail_internal("%s", _(kind->meaning)),
				 has_none ? errhint("Leave out the threshold.") :
				 errhint("Write a number and its unit, for example '%s'.%s",
						 kind->example,
						 value ? dt_amount_hint(t.unit) : "")));
	return t;
}

PG_FUNCTION_INFO_V1(set_group_pressure);
Datum
set_group_pressure(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	char	   *names;
	char	   *standbys;
	DtSignal	signal = get_signal(fcinfo, name, &names);
	const char *value = PG_ARGISNULL(2) ? NULL :
		text_to_cstring(PG_GETARG_TEXT_PP(2));
	DtFound		found;
	DtThreshold threshold;
	DtLook		look;
	List	   *entries;
	DtEntry    *entry;
	const char *reported;

	check_not_null(fcinfo, 3, "argument \"ignore\"");
	threshold = read_threshold(signal, names, value, PG_GETARG_INT32(3));
	standbys = get_standbys(fcinfo, 4, signal, names);
	if (signal != DT_REPORTED)
		names = standbys;
	look = dt_signal_look(signal, dt_now_us(), &found);
	if (look == DT_LOOK_FAILED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("signal \"%s\" is not available on this server",
						dt_signals[signal].name),
				 errdetail("%s", found.reason),
				 errhint("The view dirty_throttle_pressure shows which signals are available.")));
	entry = dt_definitions_edit(name, DT_CREATE_OR_ALTER, &entries);
	reported = entry->definition.reported;
	if (signal == DT_REPORTED && reported[0] != '\0' &&
		strcmp(reported, names) != 0)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" no longer follows signal \"%s\"",
						name, reported),
				 errdetail("It follows \"%s\" instead: a group can follow only one of the signals that report_pressure() has reported.",
						   names)));
	set_threshold(&entry->definition, signal, threshold, names);
	finish(entries, entry);
	if (threshold.unit == DT_UNIT_SHARE && threshold.value < 10000 &&
		strchr(value, '%') == NULL)
		ereport(NOTICE,
				(errmsg("threshold \"%s\" means %g percent", value,
						threshold.value / 1e4),
				 errhint("Write '%g%%' if that is what you meant.",
						 threshold.value / 1e2)));
	dt_notice_pressure(entries, &entry->definition, signal, look, &found);
	PG_RETURN_VOID();
}

/* Have a group follow what this server has. */
PG_FUNCTION_INFO_V1(protect_from);
Datum
protect_from(PG_FUNCTION_ARGS)
{
	char	   *group = get_group(fcinfo);
	List	   *entries;
	DtEntry    *entry = dt_definitions_edit(group, DT_CREATE_OR_ALTER,
											&entries);
	List	   *choices = dt_protect_choose(&entry->definition);

	finish(entries, entry);
	dt_protect_tell(choices, entries, &entry->definition);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(reset_group_pressure);
Datum
reset_group_pressure(PG_FUNCTION_ARGS)
{
	char	   *group = get_group(fcinfo);
	char	   *name;
	DtSignal	signal = get_signal(fcinfo, group, &name);
	List	   *entries;
	DtEntry    *entry = dt_definitions_edit(group, DT_ALTER, &entries);
	DtDefinition *d = &entry->definition;
	DtThreshold none = {0};

	if (dt_definition_follows(d, signal) &&
		strcmp(dt_definition_signal_name(d, signal), name) == 0)
	{
		set_threshold(d, signal, none, "");
		dt_definitions_write(entries);
	}
	else
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not follow signal \"%s\"",
						group, name)));
	PG_RETURN_VOID();
}

/*
 * The value of a signal that somebody else measures.
 */
PG_FUNCTION_INFO_V1(report_pressure);
Datum
report_pressure(PG_FUNCTION_ARGS)
{
	DtReport	report = {.at = dt_now_us()};
	char	   *name;
	Interval   *ttl;
	float8		value;

	dt_sql_need_library();
	name = get_name(fcinfo, 0, "signal");
	check_not_null(fcinfo, 1, "value");
	value = PG_GETARG_FLOAT8(1);
	if (!(value >= 0 && value <= 1000000))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %s is out of range", float8out_internal(value)),
				 errdetail("The valid range is from 0 to 1000000; 1 is the threshold.")));
	report.value = (int64) rint(value * 1000);
	check_not_null(fcinfo, 2, "argument \"ttl\"");
	ttl = PG_GETARG_INTERVAL_P(2);
	if (ttl->month != 0 ||
		pg_mul_s64_overflow(ttl->day, USECS_PER_DAY, &report.ttl_us) ||
		pg_add_s64_overflow(report.ttl_us, ttl->time, &report.ttl_us) ||
		report.ttl_us < 1000 || report.ttl_us > USECS_PER_DAY)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("argument \"ttl\" is out of range"),
				 errdetail("The valid range is from 1 millisecond to 1 day.")));
	if (dt_signal_find(name) != DT_REPORTED)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("signal \"%s\" is measured by dirty_throttle", name),
				 errhint("Report it under another name.")));
	strlcpy(report.name, name, NAMEDATALEN);
	if (!dt_report(&report))
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot report more than %d signals", DT_REPORTS)));
	PG_RETURN_VOID();
}

/*
 * Whoever suspends the group that he is in goes on, or he could not resume it.
 */
PG_FUNCTION_INFO_V1(suspend_group);
Datum
suspend_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	check_not_null(fcinfo, 1, "argument \"hard\"");
	(void) dt_group_set_suspended(name, true, PG_GETARG_BOOL(1));
	if (dt_account_exempt(dt_group_lookup_id(name)))
		ereport(NOTICE,
				(errmsg("this session is a member of resource group \"%s\", but is not suspended with it",
						name),
				 errhint("To let the other sessions continue, use SELECT resume_group(%s).",
						 quote_literal_cstr(name))));
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(resume_group);
Datum
resume_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	if (!dt_group_set_suspended(name, false, false))
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
	check_not_null(fcinfo, 0, "process ID");
	if (PG_ARGISNULL(1))
		name = NULL;
	else if (VARSIZE_ANY_EXHDR(PG_GETARG_TEXT_PP(1)) == 0)
		name = "";
	else
		name = get_name(fcinfo, 1, "group name");
	dt_member_move(PG_GETARG_INT32(0), name);
	PG_RETURN_VOID();
}

/*
 * Allow a role to join a group, or revoke that.  A grant is a word in the line
 * of its group, with the name of the role, so that it can be dumped and
 * restored; load.c renames or drops it with the role.  A name without a role,
 * as after a restore of the definitions only, grants nothing until there is
 * one.
 */
static Datum
set_grant(FunctionCallInfo fcinfo, bool allow)
{
	char	   *group = get_group(fcinfo);
	Oid			role;
	String	   *name;
	List	   *entries;
	DtEntry    *entry;

	check_not_null(fcinfo, 1, "role name");
	role = get_role_oid(text_to_cstring(PG_GETARG_TEXT_PP(1)), false);
	/* as the core does: if it is renamed or dropped, no name stays behind */
	shdepLockAndCheckObject(AuthIdRelationId, role);
	name = makeString(GetUserNameFromId(role, false));
	entry = dt_definitions_edit(group, DT_ALTER, &entries);
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

/* May the user join a group? */
static bool
is_granted(const DtEntry *entry)
{
	foreach_ptr(String, name, entry->grants)
	{
		Oid			role = get_role_oid(strVal(name), true);

		if (OidIsValid(role) && has_privs_of_role(GetUserId(), role))
			return true;
	}
	return superuser();
}

/*
 * ERROR in a session that was moved by set_session_group(), where the
 * parameter has no effect.
 */
static void
check_not_moved(void)
{
	if (dt_account.slot->moved)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the resource group of a session that was moved by set_session_group()"),
				 errhint("A role that may call set_session_group() can end the move, with NULL instead of a group name.")));
}

PG_FUNCTION_INFO_V1(join_group);
Datum
join_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	DtEntry    *entry = dt_definitions_find(dt_definitions_read(true), name);

	if (entry == NULL)
		dt_group_missing(name);
	if (!is_granted(entry))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for resource group \"%s\"", name),
				 errhint("The view dirty_throttle_grants lists which roles may join which groups. A superuser can use SELECT grant_group_use(%s, %s) to allow it.",
						 quote_literal_cstr(name),
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	check_not_moved();
	dt_session_set_parameter(name);
	PG_RETURN_VOID();
}

PG_FUNCTION_INFO_V1(leave_joined_group);
Datum
leave_joined_group(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	check_not_moved();
	if (!dt_session_has_joined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session has not joined a resource group with join_group()"),
				 errhint("A role that may set the parameter can leave any group, with SET dirty_throttle.\"group\" = ''.")));
	dt_session_set_parameter(NULL);
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
				 errdetail("Calls of such a routine will fail. Those of other databases are not counted."),
				 errhint("Use SELECT oid::regprocedure FROM pg_proc WHERE %s = ANY (proconfig) to list them, and ALTER ROUTINE to set or reset dirty_throttle.\"group\".",
						 quote_literal_cstr(setting))));
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
	old_name = get_name(fcinfo, 0, "old group name");
	new_name = get_name(fcinfo, 1, "new group name");
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
 * when the transaction commits, so their number is read without its lock.
 */
static void
check_not_in_use(const char *name)
{
	DtGroup    *g;
	int			members;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_group_find(name);
	members = g ? g->members : 0;
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
	char	   *name = get_group(fcinfo);
	List	   *entries;
	DtEntry    *entry;

	check_not_null(fcinfo, 1, "argument \"if_exists\"");
	check_not_null(fcinfo, 2, "argument \"force\"");
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
		check_not_in_use(name);
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
						 get_name(fcinfo, 0, "group name"));
	PG_RETURN_VOID();
}
