/*-------------------------------------------------------------------------
 *
 * definitions.c
 *		Reading and changing the definitions of groups, in a transaction.
 *
 * Between text.c, which knows the form of the text, and row.c, which knows
 * where it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "lib/stringinfo.h"
#include "registry/definitions.h"
#include "registry/row.h"
#include "registry/text.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* ---------------------------------------------------------------- reading */

static DtEntry *
parse_entry(DtTextReader *reader)
{
	DtEntry    *entry = palloc0(sizeof(DtEntry));
	DtTextFound found;

	if (!dt_text_next_group(reader, &entry->definition))
		return NULL;
	for (;;)
	{
		switch (dt_text_next_word(reader, &entry->definition, &found))
		{
			case DT_TEXT_END:
				return entry;
			case DT_TEXT_GRANT:
				entry->grants = lappend(entry->grants, pstrdup(found.name));
				break;
			case DT_TEXT_UNKNOWN:
				entry->unknown = lappend(entry->unknown,
										 pnstrdup(found.start, found.size));
				break;
			case DT_TEXT_BAD:
				return NULL;
		}
	}
}

int
dt_compare_ids(const void *a, const void *b)
{
	int64		id_a = (*(DtEntry *const *) a)->definition.id;
	int64		id_b = (*(DtEntry *const *) b)->definition.id;

	return (id_a > id_b) - (id_a < id_b);
}

int
dt_compare_names(const void *a, const void *b)
{
	return strcmp((*(DtEntry *const *) a)->definition.name,
				  (*(DtEntry *const *) b)->definition.name);
}

DtEntry   **
dt_definitions_sort(List *entries, int (*compare) (const void *, const void *))
{
	DtEntry   **result = palloc((list_length(entries) + 1) * sizeof(DtEntry *));
	int			n = 0;
	ListCell   *lc;

	foreach(lc, entries)
		result[n++] = lfirst(lc);
	qsort(result, n, sizeof(DtEntry *), compare);
	return result;
}

static const char *
find_twins(List *entries)
{
	DtEntry   **by_id = dt_definitions_sort(entries, dt_compare_ids);
	DtEntry   **by_name = dt_definitions_sort(entries, dt_compare_names);
	int			i;

	for (i = 1; i < list_length(entries); i++)
	{
		if (dt_compare_names(&by_name[i - 1], &by_name[i]) == 0)
			return psprintf(_("Group \"%s\" is there twice."),
							by_name[i]->definition.name);
		if (by_id[i]->definition.id != 0 &&
			dt_compare_ids(&by_id[i - 1], &by_id[i]) == 0)
			return psprintf(_("Groups \"%s\" and \"%s\" have the same id."),
							by_id[i - 1]->definition.name,
							by_id[i]->definition.name);
	}
	return NULL;
}

List *
dt_definitions_parse(const char *string, const char **problem)
{
	List	   *entries = NIL;
	DtEntry    *entry;
	DtTextReader reader;

	dt_text_open(&reader, string ? string : "");
	while ((entry = parse_entry(&reader)) != NULL)
		entries = lappend(entries, entry);
	*problem = reader.problem[0] == '\0' ? find_twins(entries) :
		psprintf(_("In line %d, %s."), reader.line, reader.problem);
	return entries;
}

bool
dt_check_definitions(char **newval, void **extra, GucSource source)
{
	const char *problem;
	MemoryContext context;
	MemoryContext old;

	if (**newval == '\0')
		return true;
	if (source == PGC_S_SESSION)
	{
		GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
		GUC_check_errmsg("parameter \"%s\" cannot be set in a session",
						 DT_ROW_PARAMETER);
		GUC_check_errhint("Use functions such as set_group_dirty_limit() to define resource groups.");
		return false;
	}
	context = AllocSetContextCreate(CurrentMemoryContext, "dirty_throttle",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	(void) dt_definitions_parse(*newval, &problem);
	MemoryContextSwitchTo(old);
	if (problem != NULL)
		GUC_check_errdetail("%s", problem);
	MemoryContextDelete(context);
	return problem == NULL;
}

List *
dt_definitions_read(bool fail)
{
	DtRowVersion version;
	const char *problem;
	List	   *entries = dt_definitions_parse(dt_row_read(&version, NULL), &problem);

	if (problem != NULL && !fail)
		return NIL;
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the definitions of resource groups cannot be read"),
				 errdetail_internal("%s", problem),
				 errhint("A later release of dirty_throttle may have written them. Use ALTER ROLE %s SET \"%s\" to correct them, or RESET to drop all resource groups.",
						 DT_ROW_ROLE, DT_ROW_PARAMETER)));
	return entries;
}

DtEntry *
dt_definitions_find(List *entries, const char *name)
{
	ListCell   *lc;

	foreach(lc, entries)
	{
		DtEntry    *entry = lfirst(lc);

		if (strcmp(entry->definition.name, name) == 0)
			return entry;
	}
	return NULL;
}

/* ---------------------------------------------------------------- writing */

void
dt_definitions_need_writable(void)
{
	bool		recovery = RecoveryInProgress();

	if (recovery || XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 recovery ?
				 errmsg("cannot change resource groups during recovery") :
				 errmsg("cannot change resource groups in a read-only transaction"),
				 recovery ?
				 errhint("Change them on the primary.") :
				 errhint("Begin the transaction with BEGIN READ WRITE.")));
}

List *
dt_definitions_begin_change(void)
{
	dt_definitions_need_writable();
	dt_row_lock();
	return dt_definitions_read(true);
}

/*
 * IDs are times, so that groups of different servers have different ones.
 */
static void
give_ids(List *entries)
{
	int64		id = GetCurrentTimestamp();
	ListCell   *lc;

	foreach(lc, entries)
		id = Max(id, ((DtEntry *) lfirst(lc))->definition.id);
	foreach(lc, entries)
	{
		DtDefinition *d = &((DtEntry *) lfirst(lc))->definition;

		if (d->id == 0)
			d->id = ++id;
	}
}

void
dt_definitions_write(List *entries)
{
	StringInfoData lines;
	ListCell   *lc;
	ListCell   *word;

	give_ids(entries);
	initStringInfo(&lines);
	foreach(lc, entries)
	{
		DtEntry    *entry = lfirst(lc);
		char		group[DT_TEXT_GROUP_SIZE];
		char		role[DT_TEXT_NAME_SIZE];

		dt_text_write_group(group, &entry->definition);
		appendStringInfo(&lines, "%s%s", lines.len > 0 ? "\n" : "", group);
		foreach(word, entry->grants)
		{
			*dt_text_write_name(role, lfirst(word)) = '\0';
			appendStringInfo(&lines, " grant=%s", role);
		}
		foreach(word, entry->unknown)
			appendStringInfo(&lines, " %s", (char *) lfirst(word));
	}
	dt_row_write(lines.data);
}
