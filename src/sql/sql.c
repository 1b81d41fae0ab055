/*-------------------------------------------------------------------------
 *
 * sql.c
 *		Shared by the files with SQL functions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/group.h"
#include "shared/load.h"
#include "sql/sql.h"

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
 * Copies of all groups, palloc'd.  What a group owes is summed up around the
 * ring of its members, under its lock; all else is worked out from the copy.
 */
DtGroupCopy *
dt_group_copies(int *n)
{
	DtGroupCopy *copies = (DtGroupCopy *)
		CACHELINEALIGN(palloc0((dt_shared->max_groups + 1) *
							   sizeof(DtGroupCopy)));

	*n = 0;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtGroupCopy *copy = &copies[*n];

		if (g->id == 0)
			continue;
		copy->now = dt_now_us();
		dt_group_lock(g);
		dt_group_check_pressure(g, copy->now);
		for (int r = 0; r < DT_RESOURCES; r++)
			copy->debt[r] = dt_rate_group_debt(&g->usage[r].engine, copy->now);
		copy->group = *g;
		dt_group_unlock(g);
		(*n)++;
	}
	LWLockRelease(dt_shared->registry_lock);
	return copies;
}
