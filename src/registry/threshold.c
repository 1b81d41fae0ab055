/*-------------------------------------------------------------------------
 *
 * threshold.c
 *		Signals and thresholds, as users write and see them.
 *
 * Times and amounts are written as in postgresql.conf; 1 kB is 1024 bytes
 * there.  Which unit and range a threshold has is in text.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "lib/stringinfo.h"
#include "registry/text.h"
#include "registry/threshold.h"
#include "utils/guc.h"

typedef struct Kind
{
	DtUnit		unit;			/* of values */
	const char *meaning;		/* of the threshold, with its range */
	const char *example;
} Kind;

static const Kind kinds[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = {DT_UNIT_US,
		gettext_noop("The threshold is a time from 100ms to 1d: how far the replay of the slowest standby may be behind."),
	"2s"},
	[DT_SLOT_LAG] = {DT_UNIT_BYTES,
		gettext_noop("The threshold is an amount of WAL from 1MB to 1024TB: how much the replication slots may retain."),
	"10GB"},
	[DT_CHECKPOINT] = {DT_UNIT_BYTES,
		gettext_noop("The limit follows from max_wal_size and checkpoint_timeout."),
	NULL},
	[DT_DIRTY_BUFFERS] = {DT_UNIT_BYTES,
		gettext_noop("The threshold is a percentage of shared_buffers, more than 0 and up to 100: how much of it may be dirty."),
	"30%"},
	[DT_KERNEL_DIRTY] = {DT_UNIT_BYTES,
		gettext_noop("The threshold is an amount of memory from 1MB to 1024TB, or a percentage of the kernel's own limit, more than 0 and up to 100: how much the kernel may still have to write."),
	"500MB"},
	[DT_IO_PRESSURE] = {DT_UNIT_SHARE,
		gettext_noop("The threshold is a percentage of the time, more than 0 and up to 100: for how much of it some process may wait for I/O."),
	"20%"}
};

DtUnit
dt_signal_unit(DtSignal signal)
{
	return kinds[signal].unit;
}

DtSignal
dt_signal_of_name(const char *name)
{
	StringInfoData known;
	int			s;

	for (s = 0; s < DT_SIGNALS; s++)
		if (strcmp(dt_signal_name(s), name) == 0)
			return s;
	initStringInfo(&known);
	for (s = 0; s < DT_SIGNALS; s++)
		appendStringInfo(&known, s == 0 ? "\"%s\"" : ", \"%s\"",
						 dt_signal_name(s));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("signal \"%s\" does not exist", name),
			 errhint("Available signals: %s.", known.data)));
}

/*
 * Parse a number with a unit.  Percentages may have a percent sign, and need
 * one where amounts are possible, too.  False: it is none; *hint may say why.
 */
static bool
parse(DtSignal signal, const char *value, DtThreshold *t, const char **hint)
{
	const char *sign = strchr(value, '%');
	double		number;
	double		scale = 1;
	int			flags = 0;

	if (dt_signal_has_unit(signal, DT_UNIT_SHARE) &&
		(sign || !dt_signal_has_unit(signal, DT_UNIT_BYTES)))
	{
		t->unit = DT_UNIT_SHARE;
		scale = 10000;
		if (sign != NULL)
		{
			if (strspn(sign + 1, " \t\n\v\f\r") != strlen(sign + 1))
				return false;
			value = pnstrdup(value, sign - value);
		}
	}
	else if (dt_signal_has_unit(signal, DT_UNIT_BYTES))
	{
		t->unit = DT_UNIT_BYTES;
		flags = GUC_UNIT_BYTE;
	}
	else
	{
		t->unit = DT_UNIT_US;
		flags = GUC_UNIT_MS;
		scale = 1000;
	}
	if (!parse_real(value, &number, flags, hint))
		return false;
	number = rint(number * scale);
	if (!(number >= 0 && number < 1e18))
		return false;
	t->value = (int64) number;
	return dt_threshold_in_range(t);
}

DtThreshold
dt_threshold_parse(DtSignal signal, const char *value, int32 ignore)
{
	const Kind *kind = &kinds[signal];
	DtThreshold t = {0};
	const char *hint = NULL;

	if (ignore < 0 || (ignore > 0 && signal != DT_REPLICA_LAG))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("cannot ignore %d for signal \"%s\"", ignore,
						dt_signal_name(signal)),
				 errhint("\"ignore\" is how many of the slowest standbys do not count for signal \"%s\".",
						 dt_signal_name(DT_REPLICA_LAG))));
	t.ignore = ignore;
	if (dt_signal_has_unit(signal, DT_UNIT_NONE))
	{
		if (value != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("signal \"%s\" has no threshold", dt_signal_name(signal)),
					 errdetail_internal("%s", _(kind->meaning)),
					 errhint("Leave out the threshold.")));
		t.unit = DT_UNIT_NONE;
	}
	else if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("signal \"%s\" needs a threshold", dt_signal_name(signal)),
				 errdetail_internal("%s", _(kind->meaning)),
				 errhint("Write a number and its unit, for example '%s'.",
						 kind->example)));
	else if (!parse(signal, value, &t, &hint))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid threshold for signal \"%s\": \"%s\"",
						dt_signal_name(signal), value),
				 errdetail_internal("%s", _(kind->meaning)),
				 hint ?
				 errhint("Write a number and its unit, for example '%s'. %s",
						 kind->example, _(hint)) :
				 errhint("Write a number and its unit, for example '%s'.",
						 kind->example)));
	return t;
}

char *
dt_threshold_text(const DtThreshold *t)
{
	char	   *result;

	if (t->unit == DT_UNIT_UNUSED || t->unit == DT_UNIT_NONE)
		return NULL;
	result = palloc(DT_TEXT_THRESHOLD_SIZE);
	dt_text_write_threshold(result, t);
	return result;
}
