/*-------------------------------------------------------------------------
 *
 * amount.c
 *		Amounts of bytes, times and shares, as users write and see them.
 *
 * 1 kB is 1000 bytes, as in all rates of this extension, and 1 MB is 1000 kB,
 * for limits and thresholds alike; the configuration of the server has units
 * of the same names that are powers of 1024.  Times are written as there.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "shared/amount.h"

/* A name for a number of a DtUnit. */
typedef struct UnitName
{
	const char *name;
	int64		factor;			/* each divides the next one */
} UnitName;

static const UnitName bytes[] = {
	{"B", 1},
	{"kB", 1000},
	{"MB", 1000 * 1000},
	{"GB", 1000 * 1000 * 1000},
	{"TB", INT64CONST(1000) * 1000 * 1000 * 1000},
	{NULL, 0}
};

static const UnitName times[] = {
	{"us", 1},
	{"ms", 1000},
	{"s", 1000000},
	{"min", 60000000},
	{"h", INT64CONST(3600000000)},
	{"d", INT64CONST(86400000000)},
	{NULL, 0}
};

static const UnitName shares[] = {{"%", 10000}, {NULL, 0}};

/* NULL: what has no unit is a mere number. */
static const UnitName *const names[DT_UNIT_NUMBER + 1] = {
	[DT_UNIT_US] = times,
	[DT_UNIT_BYTES] = bytes,
	[DT_UNIT_RATE] = bytes,
	[DT_UNIT_SHARE] = shares
};

/* What can be added to a hint. */
const char *
dt_amount_hint(DtUnit unit)
{
	return names[unit] == times ?
		" Valid units are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\"." :
		names[unit] == bytes ?
		" Valid units are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\"; 1 MB = 1000 kB = 1000000 bytes." : "";
}

static const char *
skip_space(const char *p)
{
	while (isspace((unsigned char) *p))
		p++;
	return p;
}

/*
 * Read a number with the name of a unit, in upper or lower case, or without
 * one, which is the default factor then, if that is not 0; "/s" may follow in a
 * rate.  Returns whether that is what there is.
 */
bool
dt_amount_read(DtUnit unit, const char *value, double default_factor,
			   double *amount)
{
	char	   *end;
	const char *rest;

	*amount = strtod(value, &end);
	if (end == value)
		return false;
	rest = skip_space(end);
	if (*rest == '\0')
	{
		*amount *= default_factor;
		return default_factor != 0;
	}
	for (const UnitName *n = names[unit]; n && n->name != NULL; n++)
	{
		size_t		size = strlen(n->name);

		if (pg_strncasecmp(rest, n->name, size) != 0)
			continue;
		*amount *= n->factor;
		rest += size;
		if (unit == DT_UNIT_RATE && rest[0] == '/' && rest[1] == 's')
			rest += 2;
		return *skip_space(rest) == '\0';
	}
	return false;
}

/*
 * The reverse, palloc'd, in the largest unit of which it is a multiple, or in
 * percent; NULL if it has no unit.
 */
char *
dt_amount_text(DtUnit unit, int64 amount)
{
	const UnitName *n = names[unit];

	if (n == NULL)
		return NULL;
	if (unit == DT_UNIT_SHARE)
		return psprintf("%.7g%%", amount / 1e4);
	while (n[1].name != NULL && amount % n[1].factor == 0)
		n++;
	return psprintf(INT64_FORMAT "%s", amount / n->factor, n->name);
}

/*
 * The same for people to read, of any value: three digits in a unit that
 * suits it.  Rates are per second.
 */
char *
dt_amount_about(DtUnit unit, int64 amount)
{
	const UnitName *n = names[unit];
	double		value;
	int			digits;

	if (unit == DT_UNIT_NUMBER)
		return psprintf("%.3g", amount / 1e3);
	while (n[1].name != NULL && amount >= n[1].factor)
		n++;
	value = (double) amount / n->factor;
	digits = n->factor == 1 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
	return psprintf("%.*f %s%s", digits, value, n->name,
					unit == DT_UNIT_RATE ? "/s" : "");
}
