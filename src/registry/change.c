/*-------------------------------------------------------------------------
 *
 * change.c
 *		The one way in which definitions change: durable first, then in effect.
 *
 * The change lock makes changes follow each other.  It is held over the write
 * of the file; the registry lock, which others need all the time, only while
 * the change is applied.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "registry/change.h"
#include "registry/shmem.h"

int
dt_copy_grants(DtGrant *grants)
{
	int			n = 0;
	int			i;

	for (i = 0; i < dt_shared->max_grants; i++)
	{
		DtGroup    *g = dt_group_find_id(dt_grants[i].group_id);

		if (g == NULL)
			continue;
		strlcpy(grants[n].group_name, g->name, NAMEDATALEN);
		grants[n++].role = dt_grants[i].role;
	}
	return n;
}

/*
 * Under the change lock.  Only its holder changes what is copied here.
 */
static void
copy_definitions(DtDefinitions *d)
{
	int			i;

	d->n_groups = 0;
	d->groups = palloc0((dt_shared->max_groups + 1) * sizeof(DtDefinition));
	d->grants = palloc0((dt_shared->max_grants + 1) * sizeof(DtGrant));
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtDefinition *definition = &d->groups[d->n_groups];

		if (g->id == 0)
			continue;
		strlcpy(definition->name, g->name, NAMEDATALEN);
		definition->rate[DT_DIRTY] = g->usage[DT_DIRTY].rate.rate;
		definition->rate[DT_WAL] = g->usage[DT_WAL].rate.rate;
		definition->burst_us = g->usage[DT_DIRTY].rate.burst_us;
		definition->observe = g->observe;
		d->n_groups++;
	}
	d->n_grants = dt_copy_grants(d->grants);
}

void
dt_change_begin(DtDefinitions *d)
{
	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
	copy_definitions(d);
}

void
dt_change_commit(const DtDefinitions *d)
{
	dt_store_write(d);
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
}

void
dt_change_end(void)
{
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
}

void
dt_change_cancel(void)
{
	LWLockRelease(dt_shared->change_lock);
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp(((const DtDefinition *) a)->name,
				  ((const DtDefinition *) b)->name);
}

static int
compare_grants(const void *a, const void *b)
{
	const DtGrant *grant_a = (const DtGrant *) a;
	const DtGrant *grant_b = (const DtGrant *) b;
	int			result = strcmp(grant_a->group_name, grant_b->group_name);

	return result != 0 ? result :
		(grant_a->role > grant_b->role) - (grant_a->role < grant_b->role);
}

void
dt_definitions_copy(DtDefinitions *d)
{
	LWLockAcquire(dt_shared->change_lock, LW_SHARED);
	copy_definitions(d);
	LWLockRelease(dt_shared->change_lock);
	qsort(d->groups, d->n_groups, sizeof(DtDefinition), compare_names);
	qsort(d->grants, d->n_grants, sizeof(DtGrant), compare_grants);
}

void
dt_definitions_remove_grants(DtDefinitions *d, const char *group_name,
							 Oid role)
{
	int			n = 0;
	int			i;

	for (i = 0; i < d->n_grants; i++)
	{
		DtGrant    *grant = &d->grants[i];

		if ((group_name != NULL &&
			 strcmp(grant->group_name, group_name) != 0) ||
			(OidIsValid(role) && grant->role != role))
			d->grants[n++] = *grant;
	}
	d->n_grants = n;
}
