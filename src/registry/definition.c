/*-------------------------------------------------------------------------
 *
 * definition.c
 *		What is defined of a group: its limits, properties and thresholds.
 *
 * The table of signals says how the threshold of each is written.  Times and
 * amounts are written as in postgresql.conf; 1 kB is 1024 bytes there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "engine/rate.h"
#include "lib/stringinfo.h"
#include "registry/definition.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/guc.h"

#define MB	(INT64CONST(1) << 20)
#define TB	(INT64CONST(1) << 40)

typedef struct Kind
{
	const char *name;
	DtUnit		unit;			/* of values */
	bool		has[DT_UNIT_SHARE + 1]; /* units of thresholds */
	const char *meaning;		/* of the threshold, with its range */
	const char *example;
} Kind;

static const Kind kinds[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = {"replica_lag", DT_UNIT_US,
		{[DT_UNIT_US] = true},
		gettext_noop("The threshold is a time from 100ms to 1d: how far the replay of the slowest standby may be behind."),
	"2s"},
	[DT_SLOT_LAG] = {"slot_lag", DT_UNIT_BYTES,
		{[DT_UNIT_BYTES] = true},
		gettext_noop("The threshold is an amount of WAL from 1MB to 1024TB: how much the replication slots may retain."),
	"10GB"},
	[DT_CHECKPOINT] = {"checkpoint", DT_UNIT_BYTES,
		{[DT_UNIT_NONE] = true},
		gettext_noop("The limit follows from max_wal_size and checkpoint_timeout."),
	NULL},
	[DT_DIRTY_BUFFERS] = {"dirty_buffers", DT_UNIT_BYTES,
		{[DT_UNIT_SHARE] = true},
		gettext_noop("The threshold is a percentage of shared_buffers, more than 0 and up to 100: how much of it may be dirty."),
	"30%"},
	[DT_KERNEL_DIRTY] = {"kernel_dirty", DT_UNIT_BYTES,
		{[DT_UNIT_BYTES] = true,[DT_UNIT_SHARE] = true},
		gettext_noop("The threshold is an amount of memory from 1MB to 1024TB, or a percentage of the kernel's own limit, more than 0 and up to 100: how much the kernel may still have to write."),
	"500MB"},
	[DT_IO_PRESSURE] = {"io_pressure", DT_UNIT_SHARE,
		{[DT_UNIT_SHARE] = true},
		gettext_noop("The threshold is a percentage of the time, more than 0 and up to 100: for how much of it some process may wait for I/O."),
	"20%"}
};

/* The lowest and highest value of a threshold. */
static const int64 lowest[] = {
	[DT_UNIT_UNUSED] = 0,
	[DT_UNIT_NONE] = 0,
	[DT_UNIT_US] = 100000,
	[DT_UNIT_BYTES] = MB,
	[DT_UNIT_SHARE] = 1
};
static const int64 highest[] = {
	[DT_UNIT_UNUSED] = 0,
	[DT_UNIT_NONE] = 0,
	[DT_UNIT_US] = INT64CONST(86400000000),
	[DT_UNIT_BYTES] = 1024 * TB,
	[DT_UNIT_SHARE] = 1000000
};

void
dt_definition_init(DtDefinition *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	strlcpy(d->name, name, NAMEDATALEN);
	d->burst_us = DT_RATE_DEFAULT_BURST_US;
	d->floor = DT_PRESSURE_DEFAULT_FLOOR;
}

bool
dt_definition_follows_any(const DtDefinition *d)
{
	int			s;

	for (s = 0; s < DT_SIGNALS; s++)
		if (dt_definition_follows(d, s))
			return true;
	return false;
}

static bool
is_valid(DtSignal signal, const DtThreshold *t)
{
	if (t->unit < 0 || t->unit > DT_UNIT_SHARE)
		return false;
	return (t->unit == DT_UNIT_UNUSED || kinds[signal].has[t->unit]) &&
		t->value >= lowest[t->unit] && t->value <= highest[t->unit] &&
		t->ignore >= 0 && (t->ignore == 0 || signal == DT_REPLICA_LAG);
}

const char *
dt_definition_find_invalid(const DtDefinition *d)
{
	int			i;

	for (i = 0; i < DT_RESOURCES; i++)
		if (d->rate[i] < 0 || d->rate[i] > DT_RATE_MAX)
			return psprintf("a rate of " INT64_FORMAT " bytes/s", d->rate[i]);
	if (d->burst_us < 0 || d->burst_us > DT_RATE_MAX_BURST_US)
		return psprintf("a burst of " INT64_FORMAT " us", d->burst_us);
	if (d->observe != 0 && d->observe != 1)
		return psprintf("mode " INT64_FORMAT, d->observe);
	if (d->floor < 1 || d->floor > DT_RATE_MAX)
		return psprintf("a floor of " INT64_FORMAT " bytes/s", d->floor);
	for (i = 0; i < DT_SIGNALS; i++)
		if (!is_valid(i, &d->threshold[i]))
			return psprintf("a threshold of " INT64_FORMAT " for signal \"%s\"",
							d->threshold[i].value, kinds[i].name);
	return NULL;
}

const char *
dt_signal_name(DtSignal signal)
{
	return kinds[signal].name;
}

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
		if (strcmp(kinds[s].name, name) == 0)
			return s;
	initStringInfo(&known);
	for (s = 0; s < DT_SIGNALS; s++)
		appendStringInfo(&known, s == 0 ? "\"%s\"" : ", \"%s\"",
						 kinds[s].name);
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
parse(const Kind *kind, const char *value, DtThreshold *t, const char **hint)
{
	const char *sign = strchr(value, '%');
	double		number;
	double		scale = 1;
	int			flags = 0;

	if (kind->has[DT_UNIT_SHARE] && (sign || !kind->has[DT_UNIT_BYTES]))
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
	else if (kind->has[DT_UNIT_BYTES])
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
	if (number < lowest[t->unit] || number > highest[t->unit])
		return false;
	t->value = (int64) number;
	return true;
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
						kind->name),
				 errhint("\"ignore\" is how many of the slowest standbys do not count for signal \"%s\".",
						 kinds[DT_REPLICA_LAG].name)));
	t.ignore = ignore;
	if (kind->has[DT_UNIT_NONE])
	{
		if (value != NULL)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("signal \"%s\" has no threshold", kind->name),
					 errdetail_internal("%s", _(kind->meaning)),
					 errhint("Leave out the threshold.")));
		t.unit = DT_UNIT_NONE;
	}
	else if (value == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("signal \"%s\" needs a threshold", kind->name),
				 errdetail_internal("%s", _(kind->meaning)),
				 errhint("Write a number and its unit, for example '%s'.",
						 kind->example)));
	else if (!parse(kind, value, &t, &hint))
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

/* A value in the largest of these units that it is a multiple of. */
static char *
in_units(int64 value, const char *const *names, const int64 *factors, int n)
{
	int			i = 0;

	while (i + 1 < n && value % factors[i + 1] == 0)
		i++;
	return psprintf(INT64_FORMAT "%s", value / factors[i], names[i]);
}

char *
dt_threshold_text(const DtThreshold *t)
{
	static const char *const times[] = {"us", "ms", "s", "min", "h", "d"};
	static const int64 us[] = {1, 1000, 1000000, 60000000,
	INT64CONST(3600000000), INT64CONST(86400000000)};
	static const char *const amounts[] = {"B", "kB", "MB", "GB", "TB"};
	static const int64 bytes[] = {1, 1024, MB, 1024 * MB, TB};

	switch ((DtUnit) t->unit)
	{
		case DT_UNIT_US:
			return in_units(t->value, times, us, lengthof(us));
		case DT_UNIT_BYTES:
			return in_units(t->value, amounts, bytes, lengthof(bytes));
		case DT_UNIT_SHARE:
			return psprintf("%s%%", float8out_internal(t->value / 10000.0));
		case DT_UNIT_UNUSED:
		case DT_UNIT_NONE:
			break;
	}
	return NULL;
}
