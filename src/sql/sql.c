/*-------------------------------------------------------------------------
 *
 * sql.c
 *		Shared by the files with SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/load.h"
#include "sql/sql.h"
#include "utils/builtins.h"

void
dt_sql_need_library(void)
{
	if (!dt_shmem_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("dirty_throttle must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"dirty_throttle\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
	dt_load();
}

/*
 * ERROR if an argument is NULL; "what" names it in the message.
 */
void
dt_sql_check_not_null(FunctionCallInfo fcinfo, int arg, const char *what)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("%s must not be null", what)));
}

/*
 * An argument that names a group.
 */
char *
dt_sql_get_name(FunctionCallInfo fcinfo, int arg, const char *what)
{
	const char *flaw;
	char	   *name;

	dt_sql_check_not_null(fcinfo, arg, what);
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	flaw = dt_name_flaw(name);
	if (flaw != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not %s", what, flaw),
				 errhint("Write a name of 1 to %d bytes, without blanks around it, for example 'batch'.",
						 NAMEDATALEN - 1)));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s \"%s\" is too long", what, name),
				 errdetail("The name has %zu bytes, but the names of resource groups are limited to %d bytes.",
						   strlen(name), NAMEDATALEN - 1)));
	return name;
}

/*
 * The first argument of most functions, which need the library.
 */
char *
dt_sql_get_group(FunctionCallInfo fcinfo)
{
	dt_sql_need_library();
	return dt_sql_get_name(fcinfo, 0, "group name");
}

/*
 * Write what has been set of an entry.  A misspelt name creates a group, so tell
 * of a similar one.
 */
void
dt_sql_write(List *entries, const DtEntry *entry)
{
	const char *name = entry->definition.name;
	char		similar[NAMEDATALEN];

	dt_definitions_write(entries);
	if (entry->is_new)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" created", name),
				 dt_group_find_similar(name, similar) ?
				 errhint("There is also a resource group \"%s\". If you meant that one, use SELECT drop_resource_group(%s).",
						 similar, quote_literal_cstr(name)) : 0));
}

/*
 * Copies of all groups and instances, palloc'd.  What a group owes is summed up around the
 * ring of its members, under its lock; all else is worked out from the copy.  The lock is
 * exclusive: whoever reads views again and again, as every role may, would in shared mode
 * keep it from those that have to change something, which an LWLock lets others overtake.
 */
DtGroupCopy *
dt_group_copies(int *n)
{
	int			n_slots = dt_shared->n_groups;
	DtGroupCopy *copies = (DtGroupCopy *)
		CACHELINEALIGN(palloc0((n_slots + 1) *
							   sizeof(DtGroupCopy)));

	*n = 0;
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	for (int i = 0; i < n_slots; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtGroupCopy *copy = &copies[*n];

		if (g->id == 0)
			continue;
		copy->now = dt_now_us();
		dt_group_lock(g);
		dt_group_check_pressure(g, copy->now);
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			copy->debt[r] = dt_rate_group_debt(&g->usage[r].engine, copy->now);
			copy->rate[r] = dt_meter_rate(&g->usage[r].meter, copy->now);
		}
		copy->group = *g;
		dt_group_unlock(g);
		(*n)++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return copies;
}
