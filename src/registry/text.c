/*-------------------------------------------------------------------------
 *
 * text.c
 *		The definitions of all groups as text.
 *
 * There is a line for each group: its name, and words key=value:
 *
 *	batch id=814372415120000 dirty=12288 wal=8000 grant=etl
 *	"tenant a" id=814372415120001 burst=60000 mode=observe replica_lag=2s
 *
 * Names of groups and roles are quoted as in SQL, but always when they are not
 * made of a-z, 0-9 and _.  Limits and the floor are in KB/s (1 KB = 1000
 * bytes), the burst in milliseconds.  What is not there has the value that the
 * table of properties says; that value is part of the form and must never
 * change.
 *
 * A reader passes on words whose key it does not know: a later release has
 * written them, and the limit without what that has added to it is better than
 * none.  So a later release must not give a new meaning to an old key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/rate.h"
#include "registry/text.h"

#define MB	(INT64CONST(1) << 20)
#define TB	(INT64CONST(1) << 40)

/* ---------------------------------------------------------------- signals */

typedef struct Signal
{
	const char *name;
	bool		has[DT_UNIT_SHARE + 1]; /* units of thresholds */
} Signal;

static const Signal signals[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = {"replica_lag", {[DT_UNIT_US] = true}},
	[DT_SLOT_LAG] = {"slot_lag", {[DT_UNIT_BYTES] = true}},
	[DT_CHECKPOINT] = {"checkpoint", {[DT_UNIT_NONE] = true}},
	[DT_DIRTY_BUFFERS] = {"dirty_buffers", {[DT_UNIT_SHARE] = true}},
	[DT_KERNEL_DIRTY] = {"kernel_dirty",
	{[DT_UNIT_BYTES] = true,[DT_UNIT_SHARE] = true}},
	[DT_IO_PRESSURE] = {"io_pressure", {[DT_UNIT_SHARE] = true}}
};

/* The lowest and highest value of a threshold; 0 where it has none. */
static const int64 lowest[] = {
	[DT_UNIT_US] = 100000,
	[DT_UNIT_BYTES] = MB,
	[DT_UNIT_SHARE] = 1
};
static const int64 highest[] = {
	[DT_UNIT_US] = INT64CONST(86400000000),
	[DT_UNIT_BYTES] = 1024 * TB,
	[DT_UNIT_SHARE] = 1000000
};

/* What thresholds are written in, from the smallest unit to the largest. */
typedef struct Scale
{
	DtUnit		unit;
	const char *name;
	int64		factor;
} Scale;

static const Scale scales[] = {
	{DT_UNIT_US, "us", 1},
	{DT_UNIT_US, "ms", 1000},
	{DT_UNIT_US, "s", 1000000},
	{DT_UNIT_US, "min", 60000000},
	{DT_UNIT_US, "h", INT64CONST(3600000000)},
	{DT_UNIT_US, "d", INT64CONST(86400000000)},
	{DT_UNIT_BYTES, "B", 1},
	{DT_UNIT_BYTES, "kB", 1024},
	{DT_UNIT_BYTES, "MB", MB},
	{DT_UNIT_BYTES, "GB", 1024 * MB},
	{DT_UNIT_BYTES, "TB", TB},
	{DT_UNIT_SHARE, "%", 10000},
	{DT_UNIT_NONE, "on", 0}
};

const char *
dt_signal_name(DtSignal signal)
{
	return signals[signal].name;
}

bool
dt_signal_has_unit(DtSignal signal, DtUnit unit)
{
	return signals[signal].has[unit];
}

bool
dt_threshold_in_range(const DtThreshold *t)
{
	return t->value >= lowest[t->unit] && t->value <= highest[t->unit];
}

/* ------------------------------------------------------------- properties */

typedef enum Kind
{
	NUMBER,
	THOUSANDTHS,				/* written as a decimal fraction */
	MODE
} Kind;

/* A property of a group: a new one is a new line here. */
typedef struct Property
{
	const char *key;
	Kind		kind;
	size_t		offset;			/* of an int64 in DtDefinition */
	int64		min;
	int64		max;
	int64		absent;			/* the value when the key is not there */
} Property;

#define MEMBER(member)	offsetof(DtDefinition, member)

static const Property properties[] = {
	{"id", NUMBER, MEMBER(id), 1, PG_INT64_MAX / 2, 0}, /* others follow */
	{"dirty", THOUSANDTHS, MEMBER(rate[DT_DIRTY]), 0, DT_RATE_MAX, 0},
	{"wal", THOUSANDTHS, MEMBER(rate[DT_WAL]), 0, DT_RATE_MAX, 0},
	{"burst", THOUSANDTHS, MEMBER(burst_us), 0, DT_RATE_MAX_BURST_US, 20000},
	{"mode", MODE, MEMBER(observe), 0, 1, 0},
	{"floor", THOUSANDTHS, MEMBER(floor), 1, DT_RATE_MAX, 64000}
};

#define IGNORE_KEY		"replica_lag_ignore"

/* Bits of "seen": first the properties, then the signals, and one more. */
#define SIGNAL_BIT		lengthof(properties)
#define IGNORE_BIT		(SIGNAL_BIT + DT_SIGNALS)

static int64 *
value_of(DtDefinition *d, const Property *property)
{
	return (int64 *) ((char *) d + property->offset);
}

void
dt_definition_init(DtDefinition *d, const char *name)
{
	size_t		i;

	memset(d, 0, sizeof(*d));
	strncpy(d->name, name, NAMEDATALEN - 1);
	for (i = 0; i < lengthof(properties); i++)
		*value_of(d, &properties[i]) = properties[i].absent;
}

/* ---------------------------------------------------------------- writing */

/* value / 10 to the power of "digits", without needless digits. */
static char *
write_fraction(char *to, int64 value, int digits)
{
	int64		power = 1;
	int			i;

	for (i = 0; i < digits; i++)
		power *= 10;
	to += sprintf(to, INT64_FORMAT, value / power);
	value %= power;
	if (value == 0)
		return to;
	*to++ = '.';
	for (; value != 0; value %= power)
	{
		power /= 10;
		*to++ = (char) ('0' + value / power);
	}
	*to = '\0';
	return to;
}

void
dt_text_write_threshold(char *to, const DtThreshold *t)
{
	const Scale *best = NULL;
	size_t		i;

	if (t->unit == DT_UNIT_SHARE)
	{
		strcpy(write_fraction(to, t->value, 4), "%");
		return;
	}
	for (i = 0; i < lengthof(scales); i++)
		if (scales[i].unit == (DtUnit) t->unit &&
			(best == NULL || t->value % scales[i].factor == 0))
			best = &scales[i];
	if (best->factor == 0)
		strcpy(to, best->name);
	else
		sprintf(to, INT64_FORMAT "%s", t->value / best->factor, best->name);
}

static bool
starts_name(char c)
{
	return (c >= 'a' && c <= 'z') || c == '_';
}

static bool
continues_name(char c)
{
	return starts_name(c) || (c >= '0' && c <= '9');
}

char *
dt_text_write_name(char *to, const char *name)
{
	const char *p = name;

	if (starts_name(*p))
		while (continues_name(*p))
			p++;
	if (*p == '\0')
		return to + sprintf(to, "%s", name);
	*to++ = '"';
	for (p = name; *p != '\0'; p++)
	{
		if (*p == '"')
			*to++ = '"';
		*to++ = *p;
	}
	*to++ = '"';
	return to;
}

void
dt_text_write_group(char *to, const DtDefinition *d)
{
	size_t		i;

	to = dt_text_write_name(to, d->name);
	for (i = 0; i < lengthof(properties); i++)
	{
		const Property *property = &properties[i];
		int64		value = *value_of((DtDefinition *) d, property);

		if (value == property->absent)
			continue;
		to += sprintf(to, " %s=", property->key);
		if (property->kind == MODE)
			to += sprintf(to, "observe");
		else
			to = write_fraction(to, value,
								property->kind == THOUSANDTHS ? 3 : 0);
	}
	for (i = 0; i < DT_SIGNALS; i++)
	{
		if (!dt_definition_follows(d, (DtSignal) i))
			continue;
		to += sprintf(to, " %s=", signals[i].name);
		dt_text_write_threshold(to, &d->threshold[i]);
		to += strlen(to);
	}
	if (d->threshold[DT_REPLICA_LAG].ignore > 0)
		to += sprintf(to, " " IGNORE_KEY "=%d",
					  d->threshold[DT_REPLICA_LAG].ignore);
	*to = '\0';
}

/* ---------------------------------------------------------------- reading */

void
dt_text_open(DtTextReader *reader, const char *string)
{
	memset(reader, 0, sizeof(*reader));
	reader->next = string;
	reader->line = 1;
}

static bool
refuse(DtTextReader *reader, const char *problem)
{
	snprintf(reader->problem, sizeof(reader->problem), "%s", problem);
	return false;
}

static bool
ends_word(char c)
{
	return c == '\0' || c == '\n' || c == ' ';
}

/*
 * The end of something quoted, after the closing quote; NULL: there is none.
 */
static const char *
skip_quoted(DtTextReader *reader, const char *p)
{
	for (p++; *p != '\0'; p++)
	{
		if (*p == '\n')
			reader->line++;
		if (*p == '"' && *++p != '"')
			return p;
	}
	return NULL;
}

/*
 * A name, which ends where a word does, into NAMEDATALEN zeroed bytes.
 */
static bool
read_name(DtTextReader *reader, char *name)
{
	const char *p = reader->next;
	const char *end = p;
	bool		quoted = *p == '"';
	size_t		n = 0;

	if (quoted)
		end = skip_quoted(reader, p);
	else if (starts_name(*p))
		while (continues_name(*end))
			end++;
	if (end == NULL)
		return refuse(reader, "a quoted name does not end");
	if (!ends_word(*end) || end == p)
		return refuse(reader, "a name is missing, or has to be quoted");
	reader->next = end;
	if (quoted)
	{
		p++;
		end--;
	}
	for (; p < end; p++)
	{
		if (n == NAMEDATALEN - 1)
			return refuse(reader, "a name is too long");
		name[n++] = *p;
		if (*p == '"')
			p++;				/* it is doubled */
	}
	return n > 0 || refuse(reader, "a name is empty");
}

/*
 * A number from 0 to max, with up to so many digits after the point, times 10
 * to their power.
 */
static bool
read_fraction(const char **next, int digits, int64 max, int64 *value)
{
	const char *p = *next;
	const char *point = NULL;
	int64		n = 0;

	if (*p < '0' || *p > '9')
		return false;
	while ((*p >= '0' && *p <= '9') || (*p == '.' && point == NULL))
	{
		if (*p == '.')
		{
			if (digits == 0)
				return false;
			point = p++;
			continue;
		}
		if (point != NULL && digits-- == 0)
			return false;
		if (n > (PG_INT64_MAX - (*p - '0')) / 10)
			return false;
		n = n * 10 + (*p++ - '0');
	}
	if (point == p - 1)
		return false;
	for (; digits > 0; digits--)
	{
		if (n > PG_INT64_MAX / 10)
			return false;
		n *= 10;
	}
	*value = n;
	*next = p;
	return n <= max;
}

static bool
read_property(const char **next, const Property *property, int64 *value)
{
	const size_t size = strlen("observe");

	if (property->kind != MODE)
		return read_fraction(next, property->kind == THOUSANDTHS ? 3 : 0,
							 property->max, value) && *value >= property->min;
	*value = strncmp(*next, "observe", size) == 0;
	if (*value == 0 && strncmp(*next, "enforce", size) != 0)
		return false;
	*next += size;
	return true;
}

static bool
read_threshold(const char **next, DtSignal signal, DtThreshold *t)
{
	const char *p = *next;
	const char *end = p;
	bool		has_number = *p >= '0' && *p <= '9';
	int64		number = 0;
	size_t		i;

	while (*end != '%' && !ends_word(*end))
		end++;
	if (has_number &&
		!read_fraction(&p, *end == '%' ? 4 : 0, PG_INT64_MAX, &number))
		return false;
	for (i = 0; i < lengthof(scales); i++)
	{
		const Scale *scale = &scales[i];
		size_t		size = strlen(scale->name);

		if (!signals[signal].has[scale->unit] ||
			has_number != (scale->factor != 0) ||
			strncmp(p, scale->name, size) != 0 || !ends_word(p[size]))
			continue;
		t->unit = scale->unit;
		t->value = number;
		if (scale->factor != 0 && scale->unit != DT_UNIT_SHARE)
		{
			if (number > PG_INT64_MAX / scale->factor)
				return false;
			t->value = number * scale->factor;
		}
		*next = p + size;
		return dt_threshold_in_range(t);
	}
	return false;
}

static bool
is_key(const char *key, const char *start, size_t size)
{
	return strlen(key) == size && memcmp(key, start, size) == 0;
}

/* The value of a key that is known by this bit of "seen". */
static bool
read_value(DtTextReader *reader, DtDefinition *d, size_t bit)
{
	int64		ignore = 0;
	bool		fits;

	if ((reader->seen & UINT64CONST(1) << bit) != 0)
		return false;
	reader->seen |= UINT64CONST(1) << bit;
	if (bit < SIGNAL_BIT)
		fits = read_property(&reader->next, &properties[bit],
							 value_of(d, &properties[bit]));
	else if (bit < IGNORE_BIT)
		fits = read_threshold(&reader->next, (DtSignal) (bit - SIGNAL_BIT),
							  &d->threshold[bit - SIGNAL_BIT]);
	else
	{
		fits = read_fraction(&reader->next, 0, PG_INT32_MAX, &ignore);
		d->threshold[DT_REPLICA_LAG].ignore = (int32) ignore;
	}
	return fits && ends_word(*reader->next);
}

/* Skip a value that this release does not know; it may be quoted. */
static bool
skip_value(DtTextReader *reader)
{
	const char *p = reader->next;

	if (*p == '"')
		p = skip_quoted(reader, p);
	else
		while (!ends_word(*p))
			p++;
	if (p == NULL || p == reader->next || !ends_word(*p))
		return false;
	reader->next = p;
	return true;
}

bool
dt_text_next_group(DtTextReader *reader, DtDefinition *d)
{
	char		name[NAMEDATALEN] = "";

	for (; *reader->next == '\n' || *reader->next == ' '; reader->next++)
		if (*reader->next == '\n')
			reader->line++;
	if (*reader->next == '\0' || !read_name(reader, name))
		return false;
	dt_definition_init(d, name);
	reader->seen = 0;
	return true;
}

DtTextWord
dt_text_next_word(DtTextReader *reader, DtDefinition *d, DtTextFound *found)
{
	for (;;)
	{
		const char *start;
		size_t		size;
		size_t		bit;

		while (*reader->next == ' ')
			reader->next++;
		start = reader->next;
		if (ends_word(*start))
		{
			if ((reader->seen & UINT64CONST(1) << IGNORE_BIT) == 0 ||
				dt_definition_follows(d, DT_REPLICA_LAG))
				return DT_TEXT_END;
			refuse(reader, "there is " IGNORE_KEY " without replica_lag");
			return DT_TEXT_BAD;
		}
		while (continues_name(*reader->next))
			reader->next++;
		size = reader->next - start;
		if (size == 0 || size > 60 || *reader->next++ != '=')
		{
			refuse(reader, "a word is not key=value");
			return DT_TEXT_BAD;
		}
		if (is_key("grant", start, size))
		{
			memset(found, 0, sizeof(*found));
			return read_name(reader, found->name) ?
				DT_TEXT_GRANT : DT_TEXT_BAD;
		}
		for (bit = 0; bit < IGNORE_BIT; bit++)
			if (is_key(bit < SIGNAL_BIT ? properties[bit].key :
					   signals[bit - SIGNAL_BIT].name, start, size))
				break;
		if (bit == IGNORE_BIT && !is_key(IGNORE_KEY, start, size))
		{
			if (!skip_value(reader))
			{
				refuse(reader, "a value is missing, or does not end");
				return DT_TEXT_BAD;
			}
			found->start = start;
			found->size = reader->next - start;
			return DT_TEXT_UNKNOWN;
		}
		if (!read_value(reader, d, bit))
		{
			snprintf(reader->problem, sizeof(reader->problem),
					 "the value of %.*s is malformed, out of range or there twice",
					 (int) size, start);
			return DT_TEXT_BAD;
		}
	}
}
