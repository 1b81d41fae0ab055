/*-------------------------------------------------------------------------
 *
 * pressure.c
 *		SQL functions about the signals that groups follow.
 *
 * As those of functions.c, none of them is STRICT.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "common/int.h"
#include "compat.h"
#include "fmgr.h"
#include "lib/stringinfo.h"
#include "pressure/signals.h"
#include "shared/amount.h"
#include "shared/definitions.h"
#include "sql/notices.h"
#include "sql/protect.h"
#include "sql/sql.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/timestamp.h"

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

	*name = dt_sql_get_name(fcinfo, 1, "signal");
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
 * Have a group follow a signal, which may have been reported under that name; or
 * with zeros not follow it.
 */
static void
set_threshold(DtDefinition *d, DtSignal signal, DtThreshold threshold,
			  const char *name)
{
	d->threshold[signal] = threshold;
	if (signal == DT_REPORTED)
		strncpy(d->reported, name, sizeof(d->reported));
}

/*
 * A threshold: a number with a unit; 'on' for a signal that has none.
 */
static DtThreshold
read_threshold(DtSignal signal, const char *name, const char *value,
			   int32 ignore)
{
	const DtSignalKind *kind = &dt_signals[signal];
	DtThreshold t = {.unit = kind->threshold,.ignore = ignore};
	bool		has_none = (kind->threshold == DT_UNIT_NONE);

	if (ignore < 0 || (ignore > 0 && signal != DT_REPLICA_LAG))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 ignore < 0 ?
				 errmsg("argument \"ignore\" must not be negative") :
				 errmsg("argument \"ignore\" does not apply to signal \"%s\"", name),
				 errhint("\"ignore\" is the number of slowest standbys that signal \"%s\" leaves out.",
						 dt_signals[DT_REPLICA_LAG].name)));
	if (has_none ? pg_strcasecmp(value, "on") != 0 :
		!dt_threshold_read(signal, value, &t))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid threshold for signal \"%s\": \"%s\"",
						name, value),
				 errdetail_internal("%s", _(kind->meaning)),
				 has_none ?
				 errhint("Write 'on' to follow this signal, which has no threshold.") :
				 errhint("Write a number and its unit, for example '%s'.%s",
						 kind->example, dt_amount_hint(t.unit))));
	return t;
}

/* A group no longer follows the signal. */
static void
unfollow(const char *group, DtSignal signal, const char *name)
{
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
}

PG_FUNCTION_INFO_V1(set_group_pressure);
Datum
set_group_pressure(PG_FUNCTION_ARGS)
{
	char	   *group = dt_sql_get_group(fcinfo);
	char	   *name;
	DtSignal	signal = get_signal(fcinfo, group, &name);
	const char *value;
	DtFound		found;
	DtThreshold threshold;
	DtLook		look;
	List	   *entries;
	DtEntry    *entry;
	const char *reported;

	if (PG_ARGISNULL(2))
	{
		unfollow(group, signal, name);
		PG_RETURN_VOID();
	}
	value = text_to_cstring(PG_GETARG_TEXT_PP(2));
	dt_sql_check_not_null(fcinfo, 3, "argument \"ignore\"");
	threshold = read_threshold(signal, name, value, PG_GETARG_INT32(3));
	look = dt_signal_look(signal, dt_now_us(), &found);
	if (signal == DT_REPORTED)
		look = dt_look_report(name, &found);
	if (look == DT_LOOK_FAILED)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("signal \"%s\" is not available on this server",
						dt_signals[signal].name),
				 errdetail("%s", found.reason),
				 errhint("The view dirty_throttle_pressure shows which signals are available.")));
	entry = dt_definitions_edit(group, DT_CREATE_OR_ALTER, &entries);
	reported = entry->definition.reported;
	if (signal == DT_REPORTED && reported[0] != '\0' &&
		strcmp(reported, name) != 0)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" no longer follows signal \"%s\"",
						group, reported),
				 errdetail("It follows \"%s\" instead: a group can follow only one of the signals that report_pressure() has reported.",
						   name)));
	set_threshold(&entry->definition, signal, threshold, name);
	dt_sql_write(entries, entry);
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
	char	   *group = dt_sql_get_group(fcinfo);
	List	   *entries;
	DtEntry    *entry = dt_definitions_edit(group, DT_CREATE_OR_ALTER,
											&entries);
	List	   *choices = dt_protect_choose(&entry->definition);

	dt_sql_write(entries, entry);
	dt_protect_tell(choices, entries, &entry->definition);
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
	name = dt_sql_get_name(fcinfo, 0, "signal");
	dt_sql_check_not_null(fcinfo, 1, "value");
	value = PG_GETARG_FLOAT8(1);
	if (!(value >= 0 && value <= 1000000))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("value %s is out of range", float8out_internal(value)),
				 errdetail("The valid range is from 0 to 1000000; 1 is the threshold.")));
	report.value = (int64) rint(value * 1000);
	dt_sql_check_not_null(fcinfo, 2, "argument \"ttl\"");
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
