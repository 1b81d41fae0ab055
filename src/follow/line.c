/*-------------------------------------------------------------------------
 *
 * line.c
 *		All definitions as one line of text, for another server.
 *
 * The line consists of words, separated by one space each:
 *
 *	dirty_throttle 1.0 system=7301234567890123456 timeline=1
 *	change=814372415123456 complete=1 groups=2 grants=1 group=batch
 *	id=814372415120000 dirty_rate=12288000 grant=16384 group=tenant%20a id=...
 *	checksum=1A2B3C4D
 *
 * The first two words are the same in all versions of the format.  Then come
 * keys and values: of the whole, up to the first "group"; of each group; the
 * checksum of all that is before the space before it.  Names have %XX for all
 * bytes but the most harmless ones, so the line survives any conversion of
 * encodings.  A number that is not there has the value that the table of
 * fields says; that value is part of the format and must never change.
 *
 * A reader ignores keys that it does not know, and counts them: a limit
 * without what a newer release has added to it is better than the limit of
 * last week.  What must not be ignored needs a new major version, whose lines
 * an older release refuses.
 *
 * Roles are written as OIDs.  Those are the same in a server and its physical
 * standbys, and no others follow each other.  So neither side needs to look
 * into the catalogs, which a walsender without a database can hardly do; a
 * role may be renamed; and a standby that has not replayed a rename yet does
 * not give a grant to the wrong role.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/rate.h"
#include "follow/line.h"

#define FIRST_WORD		"dirty_throttle "
#define CHECKSUM		" checksum="
#define CHECKSUM_DIGITS	8

/* The longest words that are written: of a number, and before the groups. */
#define NUMBER_MAX		64
#define HEADER_MAX		400

/* A number of a group: a new one is a new line here. */
typedef struct Field
{
	const char *key;
	size_t		offset;			/* in DtDefinition */
	size_t		size;			/* 4 or 8 */
	int64		absent;			/* the value when the key is not there */
} Field;

#define FIELD(key, member, absent) \
	{key, offsetof(DtDefinition, member), \
	sizeof(((DtDefinition *) NULL)->member), absent}
#define THRESHOLD(key, signal) \
	FIELD(key, threshold[signal].value, 0), \
	FIELD(key "_unit", threshold[signal].unit, 0), \
	FIELD(key "_ignore", threshold[signal].ignore, 0)

static const Field fields[] = {
	FIELD("id", id, 0),
	FIELD("dirty_rate", rate[DT_DIRTY], 0), /* bytes/s */
	FIELD("wal_rate", rate[DT_WAL], 0), /* bytes/s */
	FIELD("burst", burst_us, 20000),	/* us */
	FIELD("observe", observe, 0),	/* 0 or 1 */
	FIELD("floor", floor, 64000),	/* bytes/s */
	/* in the unit that the second number says: a DtUnit */
	THRESHOLD("replica_lag", DT_REPLICA_LAG),
	THRESHOLD("slot_lag", DT_SLOT_LAG),
	THRESHOLD("checkpoint", DT_CHECKPOINT),
	THRESHOLD("dirty_buffers", DT_DIRTY_BUFFERS),
	THRESHOLD("kernel_dirty", DT_KERNEL_DIRTY),
	THRESHOLD("io_pressure", DT_IO_PRESSURE)
};

static int64
get_field(const DtDefinition *d, const Field *field)
{
	const char *from = (const char *) d + field->offset;
	int64		value;
	int32		value32;

	if (field->size == sizeof(value))
	{
		memcpy(&value, from, sizeof(value));
		return value;
	}
	memcpy(&value32, from, sizeof(value32));
	return value32;
}

/* False when it does not fit. */
static bool
set_field(DtDefinition *d, const Field *field, int64 value)
{
	char	   *to = (char *) d + field->offset;
	int32		value32 = (int32) value;

	if (field->size == sizeof(value))
		memcpy(to, &value, sizeof(value));
	else if (value32 != value)
		return false;
	else
		memcpy(to, &value32, sizeof(value32));
	return true;
}

/* ----------------------------------------------------------------- writing */

size_t
dt_line_bound(const DtDefinitions *d)
{
	return HEADER_MAX +
		(size_t) d->n_groups * (3 * NAMEDATALEN + lengthof(fields) * NUMBER_MAX) +
		(size_t) d->n_grants * NUMBER_MAX;
}

static bool
is_plain(unsigned char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		(c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

static char *
write_name(char *to, const char *name)
{
	to += sprintf(to, " group=");
	for (; *name != '\0'; name++)
	{
		if (is_plain((unsigned char) *name))
			*to++ = *name;
		else
			to += sprintf(to, "%%%02X", (unsigned char) *name);
	}
	return to;
}

static char *
write_group(char *to, const DtDefinition *d)
{
	int			i;

	to = write_name(to, d->name);
	for (i = 0; i < (int) lengthof(fields); i++)
	{
		int64		value = get_field(d, &fields[i]);

		if (value != fields[i].absent)
			to += sprintf(to, " %s=" INT64_FORMAT, fields[i].key, value);
	}
	return to;
}

size_t
dt_line_write(char *line, const DtDefinitions *d, uint64 system_identifier,
			  DtChecksum checksum)
{
	char	   *to = line;
	int			grant = 0;
	int			i;

	to += sprintf(to, FIRST_WORD "%d.%d system=" UINT64_FORMAT
				  " timeline=%u change=" INT64_FORMAT
				  " complete=%u groups=%d grants=%d",
				  DT_LINE_MAJOR, DT_LINE_MINOR, system_identifier,
				  d->stamp.timeline, d->stamp.change, d->stamp.complete,
				  d->n_groups, d->n_grants);
	for (i = 0; i < d->n_groups; i++)
	{
		to = write_group(to, &d->groups[i]);
		for (; grant < d->n_grants &&
			 strcmp(d->grants[grant].group_name, d->groups[i].name) == 0; grant++)
			to += sprintf(to, " grant=%u", d->grants[grant].role);
	}
	to += sprintf(to, CHECKSUM "%08X", checksum(line, to - line));
	return to - line;
}

/* ----------------------------------------------------------------- reading */

/* A word: key=value. */
typedef struct Word
{
	const char *key;
	const char *value;
	size_t		key_size;
	size_t		value_size;
} Word;

static bool
refuse(DtLineReader *reader, const char *problem)
{
	snprintf(reader->problem, sizeof(reader->problem), "%s", problem);
	return false;
}

/*
 * The next word, after the space that must be there.
 */
static bool
next_word(DtLineReader *reader, Word *word)
{
	const char *p = reader->next;

	if (p == reader->end || *p++ != ' ')
		return false;
	word->key = p;
	while (p < reader->end && ((*p >= 'a' && *p <= 'z') || *p == '_' ||
							   (*p >= '0' && *p <= '9')))
		p++;
	word->key_size = p - word->key;
	if (word->key_size == 0 || p == reader->end || *p++ != '=')
		return false;
	word->value = p;
	while (p < reader->end && *p > ' ' && *p <= '~')
		p++;
	word->value_size = p - word->value;
	reader->next = p;
	return word->value_size > 0 && (p == reader->end || *p == ' ');
}

static bool
is_key(const Word *word, const char *key)
{
	return strlen(key) == word->key_size &&
		memcmp(word->key, key, word->key_size) == 0;
}

/* A number from 0 to max, without needless zeros. */
static bool
get_unsigned(const char *p, size_t size, uint64 max, uint64 *number)
{
	uint64		n = 0;
	size_t		i;

	if (size == 0 || (p[0] == '0' && size > 1))
		return false;
	for (i = 0; i < size; i++)
	{
		unsigned int digit = (unsigned char) p[i] - '0';

		if (digit > 9 || digit > max || n > (max - digit) / 10)
			return false;
		n = n * 10 + digit;
	}
	*number = n;
	return n <= max;
}

static bool
get_number(const Word *word, int64 *number)
{
	bool		negative = word->value[0] == '-';
	uint64		n;

	if (!get_unsigned(word->value + negative, word->value_size - negative,
					  PG_INT64_MAX, &n))
		return false;
	*number = negative ? -(int64) n : (int64) n;
	return true;
}

static int
hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' :
		c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Into NAMEDATALEN zeroed bytes. */
static bool
get_name(const Word *word, char *name)
{
	size_t		n = 0;
	size_t		i;

	for (i = 0; i < word->value_size; i++)
	{
		int			c = (unsigned char) word->value[i];

		if (c == '%')
		{
			int			high;
			int			low;

			if (i + 2 >= word->value_size)
				return false;
			high = hex_digit(word->value[i + 1]);
			low = hex_digit(word->value[i + 2]);
			if (high < 0 || low < 0)
				return false;
			c = high * 16 + low;
			i += 2;
		}
		else if (!is_plain(c))
			return false;
		if (c == '\0' || n + 1 >= NAMEDATALEN)
			return false;
		name[n++] = (char) c;
	}
	return true;
}

/*
 * The magic, and the version.
 */
static bool
read_version(DtLineReader *reader)
{
	const char *p = reader->next;
	const char *dot;
	const char *space;
	uint64		major;
	uint64		minor;

	if ((size_t) (reader->end - p) <= strlen(FIRST_WORD) ||
		memcmp(p, FIRST_WORD, strlen(FIRST_WORD)) != 0)
		return refuse(reader, "it is not a line of definitions");
	p += strlen(FIRST_WORD);
	space = memchr(p, ' ', reader->end - p);
	dot = memchr(p, '.', reader->end - p);
	if (space == NULL || dot == NULL || dot > space ||
		!get_unsigned(p, dot - p, PG_INT32_MAX, &major) ||
		!get_unsigned(dot + 1, space - dot - 1, PG_INT32_MAX, &minor))
		return refuse(reader, "it has no format version");
	if (major != DT_LINE_MAJOR)
	{
		snprintf(reader->problem, sizeof(reader->problem),
				 "its format version is %d.%d, and this release of dirty_throttle reads %d.x",
				 (int) major, (int) minor, DT_LINE_MAJOR);
		return false;
	}
	reader->next = space;
	return true;
}

/*
 * The checksum, which is taken off.
 */
static bool
check_checksum(DtLineReader *reader, const char *line, DtChecksum checksum)
{
	size_t		size = strlen(CHECKSUM) + CHECKSUM_DIGITS;
	const char *p;
	uint32		stored = 0;
	int			i;

	if ((size_t) (reader->end - reader->next) < size ||
		memcmp(reader->end - size, CHECKSUM, strlen(CHECKSUM)) != 0)
		return refuse(reader, "it has no checksum at its end");
	p = reader->end - CHECKSUM_DIGITS;
	for (i = 0; i < CHECKSUM_DIGITS; i++)
	{
		int			digit = hex_digit(p[i]);

		if (digit < 0)
			return refuse(reader, "it has no checksum at its end");
		stored = stored << 4 | (uint32) digit;
	}
	reader->end -= size;
	if (checksum(line, reader->end - line) != stored)
		return refuse(reader, "its checksum does not fit its content");
	return true;
}

bool
dt_line_open(DtLineReader *reader, const char *line, size_t size,
			 DtChecksum checksum)
{
	static const char *const keys[] = {
		"system", "timeline", "change", "complete", "groups", "grants"
	};
	static const uint64 max[lengthof(keys)] = {
		PG_UINT64_MAX, PG_UINT32_MAX, DT_CHANGE_MAX, 1,
		DT_LINE_MAX_GROUPS, DT_LINE_MAX_GRANTS
	};
	uint64		values[lengthof(keys)];
	bool		found[lengthof(keys)] = {false};
	const char *before;
	Word		word;
	int			i;

	memset(reader, 0, sizeof(*reader));
	reader->next = line;
	reader->end = line + size;
	if (size > DT_LINE_MAX_SIZE)
		return refuse(reader, "it is too long");
	if (!read_version(reader) || !check_checksum(reader, line, checksum))
		return false;

	for (before = reader->next;
		 reader->next < reader->end; before = reader->next)
	{
		if (!next_word(reader, &word))
			return refuse(reader, "its first part is malformed");
		if (is_key(&word, "group"))
		{
			reader->next = before;
			break;
		}
		for (i = 0; i < (int) lengthof(keys); i++)
			if (is_key(&word, keys[i]))
				break;
		if (i == lengthof(keys))
			reader->ignored++;
		else if (found[i] || !get_unsigned(word.value, word.value_size, max[i],
										   &values[i]))
			return refuse(reader, "a number in its first part is out of range or there twice");
		else
			found[i] = true;
	}
	for (i = 0; i < (int) lengthof(keys); i++)
		if (!found[i])
			return refuse(reader, "its first part is not complete");
	reader->system_identifier = values[0];
	reader->stamp.timeline = (uint32) values[1];
	reader->stamp.change = (int64) values[2];
	reader->stamp.complete = (uint32) values[3];
	reader->n_groups = (int) values[4];
	reader->n_grants = (int) values[5];
	return true;
}

static bool
begin_group(DtLineReader *reader, const Word *word, DtDefinition *group)
{
	int			i;

	if (!get_name(word, group->name))
		return refuse(reader, "a name of a group is malformed");
	for (i = 0; i < (int) lengthof(fields); i++)
		(void) set_field(group, &fields[i], fields[i].absent);
	return true;
}

/* A property of a group; *seen has a bit for each field. */
static bool
read_property(DtLineReader *reader, const Word *word, DtDefinition *group,
			  uint64 *seen)
{
	int64		value;
	int			i;

	for (i = 0; i < (int) lengthof(fields); i++)
		if (is_key(word, fields[i].key))
			break;
	if (i == lengthof(fields))
	{
		reader->ignored++;
		return true;
	}
	if ((*seen & UINT64CONST(1) << i) != 0 || !get_number(word, &value) ||
		!set_field(group, &fields[i], value))
		return refuse(reader, "a number of a group is out of range or there twice");
	*seen |= UINT64CONST(1) << i;
	return true;
}

bool
dt_line_read(DtLineReader *reader, DtDefinitions *d)
{
	DtDefinition *group = NULL;
	uint64		seen = 0;
	uint64		role;
	Word		word;

	d->n_groups = 0;
	d->n_grants = 0;
	while (reader->next < reader->end)
	{
		if (!next_word(reader, &word))
			return refuse(reader, "it is malformed");
		if (is_key(&word, "group"))
		{
			if (d->n_groups == reader->n_groups)
				return refuse(reader, "it has more groups than it says");
			group = &d->groups[d->n_groups++];
			seen = 0;
			if (!begin_group(reader, &word, group))
				return false;
		}
		else if (is_key(&word, "grant"))
		{
			if (d->n_grants == reader->n_grants)
				return refuse(reader, "it has more grants than it says");
			if (!get_unsigned(word.value, word.value_size, PG_UINT32_MAX, &role))
				return refuse(reader, "a grant is malformed");
			memcpy(d->grants[d->n_grants].group_name, group->name, NAMEDATALEN);
			d->grants[d->n_grants++].role = (Oid) role;
		}
		else if (!read_property(reader, &word, group, &seen))
			return false;
	}
	if (d->n_groups != reader->n_groups || d->n_grants != reader->n_grants)
		return refuse(reader, "it has fewer groups or grants than it says");
	return true;
}
