/*-------------------------------------------------------------------------
 *
 * threshold.c
 *		Signals and thresholds, as users write and see them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "shared/amount.h"
#include "shared/threshold.h"

/* The range of thresholds that say how much longer, 1e-6. */
#define LEAST_MORE		10000
#define MOST_MORE		10000000

/* Find a signal, other than a reported one. */
bool
dt_signal_find(const char *name, DtSignal *signal)
{
	for (int s = 0; s < DT_REPORTED; s++)
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

	initStringInfo(&known);
	for (int s = 0; s < DT_REPORTED; s++)
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
 * one where amounts are possible, too.  False: it is none.
 */
static bool
parse(DtSignal signal, const char *value, DtThreshold *t)
{
	const DtSignalKind *kind = &dt_signals[signal];
	double		number;

	if (kind->or_share && strchr(value, '%') != NULL)
		t->unit = DT_UNIT_SHARE;
	if (!dt_amount_read(kind->unit == DT_UNIT_RATE ? kind->unit : t->unit, value,
						t->unit == DT_UNIT_US ? 1000 :
						t->unit == DT_UNIT_SHARE ? 10000 : 1, &number))
		return false;
	number = rint(number);
	if (!(number >= 0 && number < 1e18))
		return false;
	t->value = (int64) number;
	if (t->unit != kind->threshold)
		return kind->law == DT_LAW_LATENCY ?
			t->value >= LEAST_MORE && t->value <= MOST_MORE :
			t->value >= 1 && t->value <= 1000000;
	return t->value >= kind->lowest && t->value <= kind->highest;
}

/*
 * A threshold as the text of definitions has it; the rest of *t stays.
 * Returns whether it fits the signal.
 */
bool
dt_threshold_read(DtSignal signal, const char *value, DtThreshold *t)
{
	t->unit = dt_signals[signal].threshold;
	return t->unit == DT_UNIT_NONE ? strcmp(value, "on") == 0 :
		parse(signal, value, t);
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
	else if (!parse(signal, value, &t))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid threshold for signal \"%s\": \"%s\"",
						kind->name, value),
				 errdetail_internal("%s", _(kind->meaning)),
				 errhint("Write a number and its unit, for example '%s'.%s",
						 kind->example, dt_amount_hints[t.unit])));
	return t;
}

/* The reverse, palloc'd; NULL: there is no threshold. */
char *
dt_threshold_text(const DtThreshold *t)
{
	return t->unit == DT_UNIT_UNUSED || t->unit == DT_UNIT_NONE ? NULL :
		dt_amount_text(t->unit, t->value);
}
