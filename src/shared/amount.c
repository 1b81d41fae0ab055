/*-------------------------------------------------------------------------
 *
 * amount.c
 *		Amounts of bytes, as users write and see them.
 *
 * 1 kB is 1000 bytes, as in all rates of this extension, and 1 MB is 1000 kB,
 * for limits and thresholds alike; the configuration of the server has units
 * of the same names that are powers of 1024.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "shared/amount.h"

typedef struct Unit
{
	const char *name;
	int64		factor;			/* each divides the next one */
} Unit;

static const Unit units[] = {
	{"B", 1},
	{"kB", 1000},
	{"MB", 1000 * 1000},
	{"GB", 1000 * 1000 * 1000},
	{"TB", INT64CONST(1000) * 1000 * 1000 * 1000}
};

static const char *
skip_space(const char *p)
{
	while (isspace((unsigned char) *p))
		p++;
	return p;
}

/*
 * Read a number with a unit, in upper or lower case, or without one, which is
 * the default factor then; "/s" may follow the unit of an amount per second.
 * Returns whether that is what there is.
 */
bool
dt_amount_read(const char *value, double default_factor, bool per_second,
			   double *bytes)
{
	char	   *end;
	const char *unit;
	int			i;

	*bytes = strtod(value, &end);
	if (end == value)
		return false;
	unit = skip_space(end);
	if (*unit == '\0')
		*bytes *= default_factor;
	for (i = 0; *unit != '\0'; i++)
	{
		size_t		size;

		if (i == lengthof(units))
			return false;
		size = strlen(units[i].name);
		if (pg_strncasecmp(unit, units[i].name, size) != 0)
			continue;
		*bytes *= units[i].factor;
		unit += size;
		if (per_second && unit[0] == '/' && unit[1] == 's')
			unit += 2;
		return *skip_space(unit) == '\0';
	}
	return true;
}

/* The reverse, palloc'd, in the largest unit of which it is a multiple. */
char *
dt_amount_text(int64 bytes)
{
	int			i = 0;

	while (i + 1 < lengthof(units) && bytes % units[i + 1].factor == 0)
		i++;
	return psprintf(INT64_FORMAT "%s", bytes / units[i].factor, units[i].name);
}
