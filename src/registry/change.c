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

#include "access/xlog.h"
#include "registry/change.h"
#include "registry/shmem.h"
#include "registry/standby.h"
#include "storage/sinval.h"
#include "storage/standby.h"
#include "utils/timestamp.h"

int
dt_copy_grants(DtGrant *grants)
{
	int			n = 0;
	int			i;

	for (i = 0; i < dt_shared->max_grants; i++)
	{
		DtGroup    *g = &dt_groups[dt_grants[i].group];

		if (dt_grants[i].group_id == 0 || g->being_dropped)
			continue;
		Assert(g->id == dt_grants[i].group_id);
		strlcpy(grants[n].group_name, g->definition.name, NAMEDATALEN);
		grants[n++].role = dt_grants[i].role;
	}
	return n;
}

static void
allocate(DtDefinitions *d)
{
	d->groups = palloc0((dt_shared->max_groups + 1) * sizeof(DtDefinition));
	d->grants = palloc0((dt_shared->max_grants + 1) * sizeof(DtGrant));
}

/*
 * Under the change lock or the registry lock: who changes what is copied here
 * holds both.
 */
static void
copy_definitions(DtDefinitions *d)
{
	int			i;

	d->stamp = dt_shared->stamp;
	d->n_groups = 0;
	for (i = 0; i < dt_shared->max_groups; i++)
	{
		DtGroup    *g = &dt_groups[i];

		if (g->id != 0)
			d->groups[d->n_groups++] = g->definition;
	}
	d->n_grants = dt_copy_grants(d->grants);
}

/*
 * The timeline of the definitions of a primary.  A standby that was promoted
 * need not change them to make them newer than those of the old primary.
 */
static uint32
primary_timeline(uint32 timeline)
{
	return Max(timeline, GetWALInsertionTimeLine());
}

/*
 * The stamp of definitions that are about to change here.
 */
static void
advance_stamp(DtStamp *stamp)
{
	stamp->timeline = RecoveryInProgress() ? 0 :
		primary_timeline(stamp->timeline);
	stamp->change = Max(stamp->change + 1, GetCurrentTimestamp());
	stamp->complete = 1;
}

void
dt_change_begin(DtDefinitions *d)
{
	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
	dt_standby_refuse_change();
	allocate(d);
	copy_definitions(d);
	advance_stamp(&d->stamp);
}

bool
dt_change_begin_following(DtDefinitions *d)
{
	LWLockAcquire(dt_shared->change_lock, LW_EXCLUSIVE);
	if (!dt_standby_follows())
	{
		LWLockRelease(dt_shared->change_lock);
		return false;
	}
	allocate(d);
	copy_definitions(d);
	return true;
}

void
dt_change_commit(const DtDefinitions *d)
{
	dt_store_write(d);
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	dt_shared->stamp = d->stamp;
}

/*
 * Tell the standbys of a primary that there is something to ask for.  The
 * record is one that every server knows how to replay, with or without this
 * library; nobody waits until it is flushed.
 */
static void
announce(void)
{
	SharedInvalidationMessage message;

	if (RecoveryInProgress() || !XLogStandbyInfoActive())
		return;
	memset(&message, 0, sizeof(message));
	message.rc.id = SHAREDINVALRELCACHE_ID;
	message.rc.dbId = InvalidOid;
	message.rc.relId = DT_ANNOUNCED_RELATION;
	LogStandbyInvalidations(1, &message, false);
	XLogSetAsyncXactLSN(XactLastRecEnd);
}

void
dt_change_end(void)
{
	LWLockRelease(dt_shared->registry_lock);
	LWLockRelease(dt_shared->change_lock);
	announce();
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

static DtStamp
stamp_in_effect(DtStamp stamp)
{
	if (!RecoveryInProgress())
	{
		stamp.timeline = primary_timeline(stamp.timeline);
		stamp.complete = 1;
	}
	return stamp;
}

DtStamp
dt_definitions_stamp(void)
{
	DtStamp		stamp;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	stamp = dt_shared->stamp;
	LWLockRelease(dt_shared->registry_lock);
	return stamp_in_effect(stamp);
}

void
dt_definitions_copy(DtDefinitions *d)
{
	allocate(d);
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	copy_definitions(d);
	LWLockRelease(dt_shared->registry_lock);
	d->stamp = stamp_in_effect(d->stamp);
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
