/*-------------------------------------------------------------------------
 *
 * adopt.c
 *		Taking over the definitions of the primary.
 *
 * Groups are known by their IDs, which are those of the primary, so that the
 * members of a group that was renamed there stay in it here.  What has changed
 * is found out under the change lock; under the registry lock, which others
 * need all the time, it is only put in effect.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "registry/adopt.h"
#include "registry/change.h"
#include "registry/group.h"
#include "registry/shmem.h"

/* What becomes of a slot in the array of groups. */
typedef struct Fate
{
	bool		end;			/* its group ends */
	const DtDefinition *begin;	/* then a group begins in it */
	const DtDefinition *alter;	/* or its group gets this definition */
} Fate;

static int
compare_ids(const void *a, const void *b)
{
	uint64		id_a = ((const DtDefinition *) a)->id;
	uint64		id_b = ((const DtDefinition *) b)->id;

	return (id_a > id_b) - (id_a < id_b);
}

static int
compare_grants(const void *a, const void *b)
{
	const DtGrantSlot *grant_a = (const DtGrantSlot *) a;
	const DtGrantSlot *grant_b = (const DtGrantSlot *) b;

	if (grant_a->group_id != grant_b->group_id)
		return grant_a->group_id > grant_b->group_id ? 1 : -1;
	return (grant_a->role > grant_b->role) - (grant_a->role < grant_b->role);
}

static int
compare_pointers_by_name(const void *a, const void *b)
{
	return strcmp((*(DtDefinition *const *) a)->name,
				  (*(DtDefinition *const *) b)->name);
}

/*
 * The grants as they are in shared memory, palloc'd and sorted, with room for
 * all that fit there; but "group" is a subscript of d->groups.  Grants on
 * groups that are not there are left out of both.
 */
static DtGrantSlot *
find_grants(DtDefinitions *d)
{
	DtGrantSlot *slots = palloc0(dt_shared->max_grants * sizeof(DtGrantSlot));
	DtDefinition **by_name = palloc(Max(d->n_groups, 1) * sizeof(*by_name));
	int			n = 0;
	int			i;

	for (i = 0; i < d->n_groups; i++)
		by_name[i] = &d->groups[i];
	qsort(by_name, d->n_groups, sizeof(*by_name), compare_pointers_by_name);
	for (i = 0; i < d->n_grants && n < dt_shared->max_grants; i++)
	{
		DtDefinition key;
		DtDefinition *pkey = &key;
		DtDefinition **found;

		memcpy(key.name, d->grants[i].group_name, NAMEDATALEN);
		found = bsearch(&pkey, by_name, d->n_groups, sizeof(*by_name),
						compare_pointers_by_name);
		if (found == NULL)
			continue;
		d->grants[n] = d->grants[i];
		slots[n].group_id = (*found)->id;
		slots[n].role = d->grants[n].role;
		slots[n].group = *found - d->groups;
		n++;
	}
	d->n_grants = n;
	qsort(slots, n, sizeof(DtGrantSlot), compare_grants);
	pfree(by_name);
	return slots;
}

/*
 * What becomes of each slot, palloc'd; *slots says in which slot each of
 * d->groups is then.  Sets *any when something happens to a slot.
 */
static Fate *
find_fates(const DtDefinitions *d, int **slots, bool *any)
{
	Fate	   *fates = palloc0(dt_shared->max_groups * sizeof(Fate));
	int			slot = 0;
	int			i;

	*slots = palloc(Max(d->n_groups, 1) * sizeof(int));
	for (i = 0; i < d->n_groups; i++)
		(*slots)[i] = -1;

	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];
		DtDefinition *definition = NULL;
		DtDefinition key;

		if (g->id == 0)
			continue;
		key.id = g->id;
		if (d->n_groups > 0)
			definition = bsearch(&key, d->groups, d->n_groups,
								 sizeof(DtDefinition), compare_ids);
		if (definition == NULL)
			fates[i].end = true;
		else
		{
			(*slots)[definition - d->groups] = i;
			if (memcmp(definition, &g->definition, sizeof(DtDefinition)) != 0)
				fates[i].alter = definition;
		}
		if (fates[i].end || fates[i].alter != NULL)
			*any = true;
	}
	for (i = 0; i < d->n_groups; i++)
	{
		if ((*slots)[i] >= 0)
			continue;
		while (dt_groups[slot].id != 0 && !fates[slot].end)
			slot++;
		(*slots)[i] = slot;
		fates[slot++].begin = &d->groups[i];
		*any = true;
	}
	return fates;
}

/* Are these the grants that there are? */
static bool
same_grants(const DtGrantSlot *grants, int n)
{
	DtGrantSlot *present = palloc(dt_shared->max_grants * sizeof(DtGrantSlot));
	int			n_present = 0;
	int			i;

	for (i = 0; i < dt_shared->max_grants; i++)
		if (dt_grants[i].group_id != 0)
			present[n_present++] = dt_grants[i];
	qsort(present, n_present, sizeof(DtGrantSlot), compare_grants);
	for (i = 0; i < n && n == n_present; i++)
		if (compare_grants(&grants[i], &present[i]) != 0)
			break;
	pfree(present);
	return n == n_present && i == n;
}

static void
put_in_effect(const Fate *fates, const DtGrantSlot *grants)
{
	int			i;

	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (fates[i].end)
			dt_group_end(g);
		if (fates[i].alter != NULL)
			dt_group_alter(g, fates[i].alter);
		if (fates[i].begin != NULL)
			dt_group_begin(g, fates[i].begin);
	}
	memcpy(dt_grants, grants, dt_shared->max_grants * sizeof(DtGrantSlot));
	dt_registry_changed();
}

DtAdoption
dt_adopt(DtDefinitions *d, int *left_out)
{
	int			n = d->n_groups + d->n_grants;
	DtDefinitions present;
	DtGrantSlot *grants;
	Fate	   *fates;
	int		   *slots;
	bool		any = false;
	int			newer;
	int			i;

	if (!dt_change_begin_following(&present))
		return DT_NOT_ADOPTED;
	qsort(d->groups, d->n_groups, sizeof(DtDefinition), compare_ids);
	d->n_groups = Min(d->n_groups, dt_shared->max_groups);
	grants = find_grants(d);
	*left_out = n - d->n_groups - d->n_grants;
	if (*left_out > 0)
		d->stamp.complete = 0;
	newer = dt_stamp_compare(&d->stamp, &present.stamp);
	fates = find_fates(d, &slots, &any);
	for (i = 0; i < d->n_grants; i++)
		grants[i].group = slots[grants[i].group];
	if (newer < 0 ||
		(newer == 0 && !any && same_grants(grants, d->n_grants)))
	{
		dt_change_cancel();
		return newer < 0 ? DT_NOT_ADOPTED_OLDER : DT_ADOPTED_BEFORE;
	}
	dt_change_commit(d);
	put_in_effect(fates, grants);
	dt_change_end();
	dt_sampler_wake();
	return DT_ADOPTED;
}
