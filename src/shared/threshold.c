/*-------------------------------------------------------------------------
 *
 * threshold.c
 *		Signals and thresholds, as users write and see them.
 *
 * Times are written as in postgresql.conf, amounts as amount.c has it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "shared/amount.h"
#include "shared/threshold.h"
#include "utils/guc.h"

/* The range of thresholds that say how much longer, 1e-6. */
#define LEAST_MORE		10000
#define MOST_MORE		10000000

/* What times are written in; each factor divides the next one. */
typedef struct Scale
{
	const char *name;
	int64		factor;
} Scale;

static const Scale times[] = {
	{"us", 1},
	{"ms", 1000},
	{"s", 1000000},
	{"min", 60000000},
	{"h", INT64CONST(3600000000)},
	{"d", INT64CONST(86400000000)},
	{NULL, 0}
};

/* Find a signal, other than a reported one. */
bool
dt_signal_find(const char *name, DtSignal *signal)
{
	int			s;

	for (s = 0; s < DT_REPORTED; s++)
	{
		*signal = s;
		if (strcmp(dt_signals[s].name, name) == 0)
			return true;
	}
	return false;
}

/* ERROR: there is no such signal. */
void
dt_signal_missing(const char *name)
{
	StringInfoData known;
	int			s;

	initStringInfo(&known);
	for (s = 0; s < DT_REPORTED; s++)
		appendStringInfo(&known, s == 0 ? "\"%s\"" : ", \"%s\"",
						 dt_signals[s].name);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("signal \"%s\" does not exist", name),
			 errhint("Available signals: %s, and those that report_pressure() has reported.",
					 known.data)));
}

/*
 * Parse a number with a unit.  Percentages may have a percent sign, and need
 * one where amounts are possible, too.  False: it is none; *hint may say what
 * can be written.
 */
static bool
parse(DtSignal signal, const char *value, DtThreshold *t, const char **hint)
{
	const char *sign = strchr(value, '%');
	double		number;
	double		scale = 1;
	int			flags = 0;

	if (sign != NULL && dt_signals[signal].or_share)
		t->unit = DT_UNIT_SHARE;
	switch (t->unit)
	{
		case DT_UNIT_SHARE:
			scale = 10000;
			if (sign == NULL)
				break;
			if (strspn(sign + 1, " \t\n\v\f\r") != strlen(sign + 1))
				return false;
			value = pnstrdup(value, sign - value);
			break;
		case DT_UNIT_BYTES:
			break;
		default:
			flags = GUC_UNIT_MS;
			scale = 1000;
	}
	if (t->unit == DT_UNIT_BYTES)
	{
		*hint = DT_AMOUNT_UNITS;
		if (!dt_amount_read(value, 1,
							dt_signals[signal].unit == DT_UNIT_RATE, &number))
			return false;
	}
	else if (!parse_real(value, &number, flags, hint))
		return false;
	number = rint(number * scale);
	if (!(number >= 0 && number < 1e18))
		return false;
	t->value = (int64) number;
	if (t->unit != dt_signals[signal].threshold)
		return dt_signals[signal].law == DT_LAW_LATENCY ?
			t->value >= LEAST_MORE && t->value <= MOST_MORE :
			t->value >= 1 && t->value <= 1000000;
	return t->value >= dt_signals[signal].lowest &&
		t->value <= dt_signals[signal].highest;
}

/*
 * A threshold as the text of definitions has it; the rest of *t stays.  Returns
 * whether it fits the signal.
 */
bool
dt_threshold_read(DtSignal signal, const char *value, DtThreshold *t)
{
	const char *hint;

	t->unit = dt_signals[signal].threshold;
	return t->unit == DT_UNIT_NONE ? strcmp(value, "on") == 0 :
		parse(signal, value, t, &hint);
}

/*
 * A threshold as users write it: a number with a unit; NULL for a signal that
 * has none.  ERROR when it does not fit the signal.
 */
DtThreshold
dt_threshold_parse(DtSignal signal, const char *value, int32 ignore)
{
	const DtSignalKind *kind = &dt_signals[signal];
	DtThreshold t = {.unit = kind->threshold,.ignore = ignore};
	const char *hint = NULL;

	if (ignore < 0 || (ignore > 0 && signal >= DT_STANDBY_SIGNALS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot ignore %d for signal \"%s\"", ignore, kind->name),
				 errhint("\"ignore\" is how many of the slowest standbys do not count for signals \"%s\" and \"%s\".",
						 dt_signals[DT_REPLICA_LAG].name,
						 dt_signals[DT_FLUSH_LAG].name)));
	if (t.unit == DT_UNIT_NONE)
	{
		if (value != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("signal \"%s\" has no threshold", kind->name),
					 errdetail_internal("%s", _(kind->meaning)),
					 errhint("Leave out the threshold.")));
	}
	else if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("signal \"%s\" needs a threshold", kind->name),
				 errdetail_internal("%s", _(kind->meaning)),
				 errhint("Write a number and its unit, for example '%s'.",
						 kind->example)));
	else if (!parse(signal, value, &t, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid threshold for signal \"%s\": \"%s\"",
						kind->name, value),
				 errdetail_internal("%s", _(kind->meaning)),
				 hint ?
				 errhint("Write a number and its unit, for example '%s'. %s",
						 kind->example, _(hint)) :
				 errhint("Write a number and its unit, for example '%s'.",
						 kind->example)));
	return t;
}

/* The reverse, palloc'd; NULL: there is no threshold. */
char *
dt_threshold_text(const DtThreshold *t)
{
	const Scale *scale = times;

	if (t->unit == DT_UNIT_UNUSED || t->unit == DT_UNIT_NONE)
		return NULL;
	if (t->unit == DT_UNIT_SHARE)
		return psprintf("%.7g%%", t->value / 1e4);
	if (t->unit == DT_UNIT_BYTES)
		return dt_amount_text(t->value);
	while (scale[1].name != NULL && t->value % scale[1].factor == 0)
		scale++;
	return psprintf(INT64_FORMAT "%s", t->value / scale->factor, scale->name);
}
