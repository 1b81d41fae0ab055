/*-------------------------------------------------------------------------
 *
 * text.c
 *		The definitions of all groups as text.
 *
 * There is a line for each group: its name, and words key=value:
 *
 *	batch id=814372415120000 dirty=12288 wal=8000 grant=etl
 *	"tenant a" id=814372415120001 burst=60000 mode=observe replica_lag=2s
 *	tenants id=814372415120002 wal=1000 scope=role
 *	tenants instance=gold_1 wal=5000 weight=4
 *
 * The last one says in what an instance of the group before differs from it.
 * Names of groups and roles are quoted as in SQL, at least when they are not
 * made of a-z, 0-9 and _.  Limits and the floor are in KB/s, the allowance in
 * KB (1 KB = 1000 bytes), the burst in milliseconds.  What is not there has
 * the value that the table of properties says; that value is part of the form
 * and must never change.
 *
 * Words whose key is not known are kept: a later release has written them, and
 * the limit without what that has added to it is better than none.  So a later
 * release must not give a new meaning to an old key.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <math.h>

#include "common/hashfn.h"
#include "compat.h"
#include "engine/rate.h"
#include "lib/stringinfo.h"
#include "nodes/value.h"
#include "shared/amount.h"
#include "shared/shmem.h"
#include "shared/text.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

/* The range of thresholds that say how much longer, 1e-6. */
#define LEAST_MORE		10000
#define MOST_MORE		10000000

#define NAME_CHARACTERS	"abcdefghijklmnopqrstuvwxyz0123456789_"

#define MEMBER(member)	offsetof(DtDefinition, member)

/* No function sets it alone. */
#define INTERNAL	DT_UNIT_UNUSED, NULL, NULL

/* A new property is a new line here. */
static const char *const modes[] = {"enforce", "observe", NULL};
static const char *const scopes[] = {"group", "role", "database", NULL};

static const DtProperty properties[] = {
	/* there is room for the IDs of groups to come */
	{"id", DT_INTEGER, MEMBER(id), 1, PG_INT64_MAX / 2, 0, INTERNAL},
	{"dirty", DT_THOUSANDTHS, MEMBER(rate[DT_DIRTY]), 0, DT_RATE_MAX, 0,
	DT_UNIT_RATE, "dirty rate limit", NULL},
	{"wal", DT_THOUSANDTHS, MEMBER(rate[DT_WAL]), 0, DT_RATE_MAX, 0,
	DT_UNIT_RATE, "WAL rate limit", NULL},
	{"burst", DT_THOUSANDTHS, MEMBER(burst_us), 0, DT_RATE_MAX_BURST_US, 20000,
	DT_UNIT_US, "burst", NULL},
	{"mode", DT_WORD, MEMBER(observe), 0, 1, 0, DT_UNIT_NONE, "mode", modes},
	{"scope", DT_WORD, MEMBER(scope), 0, DT_SCOPE_DATABASE, 0, DT_UNIT_NONE,
	"scope", scopes},
	{"floor", DT_THOUSANDTHS, MEMBER(floor), 1, DT_RATE_MAX, 64000,
	DT_UNIT_RATE, "floor", NULL},
	{"weight", DT_THOUSANDTHS, MEMBER(weight), 1000, DT_WEIGHT_MAX, 1000,
	DT_UNIT_NUMBER, "weight", NULL},
	{"allowance", DT_THOUSANDTHS, MEMBER(allowance), 0, DT_ALLOWANCE_MAX, 0,
	DT_UNIT_BYTES, "allowance", NULL},
	{"reported", DT_NAME, MEMBER(reported), 1, NAMEDATALEN, 0, INTERNAL},
	{"replica_lag_ignore", DT_INTEGER, MEMBER(threshold[DT_REPLICA_LAG].ignore),
	0, PG_INT32_MAX, 0, INTERNAL}
};

/* The keys are those of the properties, then the names of the signals. */
#define PROPERTIES	((int) lengthof(properties))
#define KEYS		(PROPERTIES + DT_REPORTED)

/* The signal of that name; DT_REPORTED: it is none that is measured here. */
DtSignal
dt_signal_find(const char *name)
{
	int			s = 0;

	while (s < DT_REPORTED && strcmp(dt_signals[s].name, name) != 0)
		s++;
	return s;
}

/* The index of a key, or KEYS. */
static int
find_key(const char *key)
{
	for (int i = 0; i < PROPERTIES; i++)
		if (strcmp(properties[i].key, key) == 0)
			return i;
	return PROPERTIES + dt_signal_find(key);
}

/* The property with a key that there is. */
const DtProperty *
dt_property(const char *key)
{
	return &properties[find_key(key)];
}

/* This is not the value of its group. */
void
dt_property_differs(DtEntry *instance, const DtProperty *property)
{
	instance->differs |= UINT64CONST(1) << (property - properties);
}

/* How many slots do groups and the instances that differ take? */
int
dt_entries_slots(List *entries)
{
	int			n = list_length(entries);

	foreach_ptr(DtEntry, entry, entries)
	{
		n += list_length(entry->instances);
	}
	return n;
}

/* What a group says of that instance, or NULL. */
DtEntry *
dt_instance_find(const DtEntry *group, const char *name)
{
	foreach_ptr(DtEntry, entry, group->instances)
	{
		if (strcmp(entry->instance, name) == 0)
			return entry;
	}
	return NULL;
}

/* All that holds for an instance: what the group says, but for what differs. */
DtDefinition
dt_instance_definition(const DtEntry *group, const DtEntry *instance)
{
	DtDefinition d = group->definition;

	for (int i = 0; i < PROPERTIES; i++)
		if ((instance->differs & (UINT64CONST(1) << i)) != 0)
			*dt_property_value(&d, &properties[i]) =
				*dt_property_value(&instance->definition, &properties[i]);
	return d;
}

int64 *
dt_property_value(const DtDefinition *d, const DtProperty *property)
{
	return (int64 *) ((char *) d + property->offset);
}

/* Of a group that has just been created; without limits. */
void
dt_definition_init(DtDefinition *d, const char *name)
{
	memset(d, 0, sizeof(*d));
	strlcpy(d->name, name, NAMEDATALEN);
	for (int i = 0; i < PROPERTIES; i++)
		if (properties[i].kind != DT_NAME)
			*dt_property_value(d, &properties[i]) = properties[i].absent;
}

/* ---------------------------------------------------------------- writing */

static bool
is_absent(const DtEntry *entry, const DtProperty *property)
{
	int64	   *p = dt_property_value(&entry->definition, property);

	if (entry->instance[0] != '\0')
		return (entry->differs & (UINT64CONST(1) << (property - properties))) == 0;
	return property->kind == DT_NAME ? *(char *) p == '\0' :
		*p == property->absent;
}

static void
append_property(StringInfo to, const DtProperty *property, const DtEntry *entry)
{
	int64	   *p = dt_property_value(&entry->definition, property);

	if (is_absent(entry, property))
		return;
	appendStringInfo(to, " %s=", property->key);
	if (property->kind == DT_NAME)
		appendStringInfoString(to, quote_identifier((char *) p));
	else if (property->kind == DT_INTEGER)
		appendStringInfo(to, INT64_FORMAT, *p);
	else if (property->kind == DT_THOUSANDTHS)
		appendStringInfo(to, "%.15g", *p / 1000.0);
	else
		appendStringInfoString(to, property->words[*p]);
}

/* Append the line of a group, or of an instance. */
static void
append_group(StringInfo to, const DtEntry *entry)
{
	const DtDefinition *d = &entry->definition;

	if (to->len > 0)
		appendStringInfoChar(to, '\n');
	appendStringInfoString(to, quote_identifier(d->name));
	if (entry->instance[0] != '\0')
		appendStringInfo(to, " instance=%s", quote_identifier(entry->instance));
	for (int i = 0; i < PROPERTIES; i++)
		append_property(to, &properties[i], entry);
	for (int i = 0; i < DT_REPORTED; i++)
	{
		const DtThreshold *t = &d->threshold[i];

		if (dt_definition_follows(d, i))
			appendStringInfo(to, " %s=%s", dt_signals[i].name,
							 t->unit == DT_UNIT_NONE ? "on" :
							 dt_amount_text(t->unit, t->value));
	}
	foreach_ptr(String, role, entry->grants)
		appendStringInfo(to, " grant=%s", quote_identifier(strVal(role)));
	foreach_ptr(char, word, entry->unknown)
		appendStringInfo(to, " %s", word);
}

/*
 * The text of the entries, palloc'd.  New entries get their IDs, which are
 * times, so that groups of different servers have different ones.
 */
char *
dt_text_write(List *entries)
{
	StringInfoData lines;
	int64		id = GetCurrentTimestamp();

	foreach_ptr(DtEntry, entry, entries)
		id = Max(id, entry->definition.id);
	initStringInfo(&lines);
	foreach_ptr(DtEntry, entry, entries)
	{
		if (entry->definition.id == 0)
			entry->definition.id = ++id;
		append_group(&lines, entry);
		foreach_ptr(DtEntry, instance, entry->instances)
		{
			memcpy(instance->definition.name, entry->definition.name, NAMEDATALEN);
			append_group(&lines, instance);
		}
	}
	return lines.data;
}

/* ---------------------------------------------------------------- reading */

typedef struct Reader
{
	const char *next;			/* what has not been read yet */
	int			line;			/* from 1 */
	const char *problem;		/* NULL: none yet.  It has nothing of what was
								 * read but keys */
} Reader;

static bool
refuse(Reader *reader, const char *problem)
{
	reader->problem = problem;
	return false;
}

/*
 * The next word of the line, palloc'd, with quotes as they are; NULL: there is
 * none, or a problem.
 */
static char *
next_word(Reader *reader)
{
	const char *start = reader->next + strspn(reader->next, " ");
	const char *p;
	bool		is_quoted = false;

	for (p = start; *p != '\0' && (is_quoted || strchr(" \n", *p) == NULL); p++)
	{
		if (*p == '"')
			is_quoted = !is_quoted;
		else if (*p == '\n')
			reader->line++;
	}
	reader->next = p;
	if (is_quoted)
		refuse(reader, "a quoted name does not end");
	return is_quoted || p == start ? NULL : pnstrdup(start, p - start);
}

/* A name that is all of a word, palloc'd; NULL: a problem. */
static char *
read_name(Reader *reader, const char *word, size_t size)
{
	char	   *name = pstrdup(word);
	char	   *to = name;

	if (*word == '"')
	{
		for (word++; *word != '\0'; *to++ = *word++)
			if (*word == '"' && *++word != '"')
				break;
		*to = '\0';
	}
	else if (!isdigit((unsigned char) *word))
		word += strspn(word, NAME_CHARACTERS);
	if (*word != '\0')
		refuse(reader, "a name is missing, or has to be quoted");
	else if (*name == '\0')
		refuse(reader, "a name is empty");
	else if (strlen(name) >= size)
		refuse(reader, "a name is too long");
	return reader->problem ? NULL : name;
}

/* The value that a word stands for, or -1. */
int64
dt_property_word(const DtProperty *property, const char *word)
{
	for (int i = 0; property->words[i] != NULL; i++)
		if (strcmp(property->words[i], word) == 0)
			return i;
	return -1;
}

static bool
read_property(Reader *reader, const DtProperty *property, const char *value,
			  int64 *result)
{
	double		number;
	char	   *end;

	switch (property->kind)
	{
		case DT_INTEGER:
			errno = 0;
			*result = strtoi64(value, &end, 10);
			if (errno != 0 || end == value || *end != '\0')
				return false;
			break;
		case DT_THOUSANDTHS:
			if (!parse_real(value, &number, 0, NULL) || fabs(number) > 1e12)
				return false;
			*result = (int64) rint(number * 1000);
			break;
		case DT_WORD:
			*result = dt_property_word(property, value);
			break;
		case DT_NAME:
			end = read_name(reader, value, property->max);
			if (end != NULL)
				strlcpy((char *) result, end, property->max);
			return end != NULL;
	}
	return *result >= property->min && *result <= property->max;
}

/*
 * A threshold: a number with a unit, or "on" where the signal has none; the
 * rest of *t stays.  Percentages need no percent sign where nothing else is
 * possible.  Returns whether it fits the signal.
 */
bool
dt_threshold_read(DtSignal signal, const char *value, DtThreshold *t)
{
	const DtSignalKind *kind = &dt_signals[signal];
	double		number;

	t->unit = kind->threshold;
	if (t->unit == DT_UNIT_NONE)
		return strcmp(value, "on") == 0;
	if (kind->or_share && strchr(value, '%') != NULL)
		t->unit = DT_UNIT_SHARE;
	if (!dt_amount_read(kind->unit == DT_UNIT_RATE ? kind->unit : t->unit, value,
						t->unit == DT_UNIT_SHARE ? 10000 : 0, &number))
		return false;
	number = rint(number);
	if (!(number >= 0 && number < 1e18))
		return false;
	t->value = (int64) number;
	if (t->unit != kind->threshold)
		return kind->law == DT_LAW_DROOP ?
			t->value >= LEAST_MORE && t->value <= MOST_MORE :
			t->value >= 1 && t->value <= 1000000;
	return t->value >= kind->lowest && t->value <= kind->highest;
}

/* Read a word key=value of a group; *seen has a bit for each key before it. */
static bool
read_word(Reader *reader, DtEntry *entry, char *word, uint64 *seen)
{
	DtDefinition *d = &entry->definition;
	size_t		size = strspn(word, NAME_CHARACTERS);
	char	   *name = pnstrdup(word, size);
	char	   *value = word + size + 1;
	int			key = find_key(name);
	bool		fits;

	if (size == 0 || word[size] != '=')
		return refuse(reader, "a word is not key=value");
	if (strcmp(name, "instance") == 0)
	{
		name = read_name(reader, value, NAMEDATALEN);
		if (name != NULL)
			strlcpy(entry->instance, name, NAMEDATALEN);
		return name != NULL;
	}
	if (strcmp(name, "grant") == 0)
	{
		name = read_name(reader, value, NAMEDATALEN);
		if (name != NULL)
			entry->grants = list_append_unique(entry->grants, makeString(name));
		return name != NULL;
	}
	if (key == KEYS)
	{
		entry->unknown = lappend(entry->unknown, word);
		return *value != '\0' || refuse(reader, "a value is missing");
	}
	fits = key < PROPERTIES ?
		read_property(reader, &properties[key], value,
					  dt_property_value(d, &properties[key])) :
		dt_threshold_read(key - PROPERTIES, value,
						  &d->threshold[key - PROPERTIES]);
	if (reader->problem != NULL)
		return false;
	if (!fits || (*seen & (UINT64CONST(1) << key)) != 0)
		return refuse(reader, psprintf("the value of \"%s\" is malformed or out of range, or occurs twice",
									   name));
	*seen |= UINT64CONST(1) << key;
	entry->differs = *seen;
	return true;
}

/* The next group, palloc'd; NULL: there is none, or a problem. */
static DtEntry *
read_group(Reader *reader)
{
	DtEntry    *entry = palloc0(sizeof(DtEntry));
	DtDefinition *d = &entry->definition;
	uint64		seen = 0;
	const char *flaw;
	char	   *word;

	for (; *reader->next == '\n' || *reader->next == ' '; reader->next++)
		if (*reader->next == '\n')
			reader->line++;
	word = next_word(reader);
	if (word == NULL || (word = read_name(reader, word, NAMEDATALEN)) == NULL)
		return NULL;
	flaw = dt_name_flaw(word);
	if (flaw != NULL)
	{
		refuse(reader, psprintf("the name of a group must not %s", flaw));
		return NULL;
	}
	dt_definition_init(d, word);
	while ((word = next_word(reader)) != NULL)
		if (!read_word(reader, entry, word, &seen))
			return NULL;
	if (d->reported[0] != '\0')
		d->threshold[DT_REPORTED].unit = DT_UNIT_NONE;
	if (!dt_definition_follows(d, DT_REPLICA_LAG) &&
		d->threshold[DT_REPLICA_LAG].ignore > 0)
		refuse(reader, "there is replica_lag_ignore without replica_lag");
	return reader->problem ? NULL : entry;
}

/* What entries can be sorted by. */
int
dt_compare_ids(const ListCell *a, const ListCell *b)
{
	int64		id_a = ((DtEntry *) lfirst(a))->definition.id;
	int64		id_b = ((DtEntry *) lfirst(b))->definition.id;

	return (id_a > id_b) - (id_a < id_b);
}

int
dt_compare_names(const ListCell *a, const ListCell *b)
{
	return strcmp(((DtEntry *) lfirst(a))->definition.name,
				  ((DtEntry *) lfirst(b))->definition.name);
}

/* What is wrong with the entries together, or NULL. */
static const char *
find_twins(const List *entries)
{
	List	   *by_id = list_copy(entries);
	List	   *by_name = list_copy(entries);

	list_sort(by_id, dt_compare_ids);
	list_sort(by_name, dt_compare_names);
	for (int i = 1; i < list_length(entries); i++)
	{
		DtDefinition *a = &((DtEntry *) list_nth(by_id, i - 1))->definition;
		DtDefinition *b = &((DtEntry *) list_nth(by_id, i))->definition;
		ListCell   *name = list_nth_cell(by_name, i);

		if (dt_compare_names(name - 1, name) == 0)
			return psprintf(_("Group \"%s\" occurs twice."),
							((DtEntry *) lfirst(name))->definition.name);
		if (b->id != 0 && a->id == b->id)
			return psprintf(_("Groups \"%s\" and \"%s\" have the same id."),
							a->name, b->name);
	}
	return NULL;
}

static bool
has_id(List *entries, int64 id)
{
	foreach_ptr(DtEntry, entry, entries)
		if (entry->definition.id == id)
		return true;
	return false;
}

/*
 * Groups whose text was written by hand get IDs that follow from their names, so
 * that memory has the same as what is written next.
 */
static void
number_groups(List *entries)
{
	foreach_ptr(DtEntry, entry, entries)
	{
		DtDefinition *d = &entry->definition;
		int64		id = 1 + (int64) hash_bytes((const unsigned char *) d->name,
												strlen(d->name));

		while (d->id == 0 && has_id(entries, id))
			id++;
		if (d->id == 0)
			d->id = id;
	}
}

/* Does an instance have only what can differ? */
static bool
may_be_instance(const DtEntry *entry)
{
	for (int key = 0; key < KEYS; key++)
		if ((entry->differs & (UINT64CONST(1) << key)) != 0 &&
			(key >= PROPERTIES || properties[key].label == NULL ||
			 properties[key].words == scopes))
			return false;
	return entry->grants == NIL;
}

/* An instance belongs to its group, which comes before it. */
static bool
add_entry(Reader *reader, List **entries, DtEntry *entry)
{
	DtEntry    *group = NULL;

	if (entry->instance[0] == '\0')
	{
		*entries = lappend(*entries, entry);
		return true;
	}
	foreach_ptr(DtEntry, other, *entries)
	{
		if (strcmp(other->definition.name, entry->definition.name) == 0)
			group = other;
	}
	if (!may_be_instance(entry))
		return refuse(reader, "an instance has what only its group can have");
	if (group == NULL || group->definition.scope == DT_SCOPE_GROUP)
		return refuse(reader, "there is an instance of a group without instances");
	if (dt_instance_find(group, entry->instance) != NULL)
		return refuse(reader, "an instance occurs twice");
	group->instances = lappend(group->instances, entry);
	return true;
}

/*
 * The entries of a text that may be anything at all, palloc'd, up to the first
 * problem; NULL counts as an empty text.  *problem is a sentence that says what
 * is wrong, or NULL.
 */
List *
dt_text_read(const char *string, const char **problem)
{
	Reader		reader = {.next = string ? string : "",.line = 1};
	List	   *entries = NIL;
	DtEntry    *entry;

	while ((entry = read_group(&reader)) != NULL &&
		   add_entry(&reader, &entries, entry))
		;
	*problem = reader.problem == NULL ? find_twins(entries) :
		psprintf(_("In line %d, %s."), reader.line, reader.problem);
	number_groups(entries);
	return entries;
}
