/*-------------------------------------------------------------------------
 *
 * change.h
 *		The one way in which definitions change: durable first, then in effect.
 *
 *	dt_change_begin(&d);	takes the change lock, copies all definitions to d,
 *							with the stamp that they are to have
 *	...						checks, may ERROR; edits d
 *	dt_change_commit(&d);	writes the file, then takes the registry lock
 *	...						applies the change; must not fail
 *	dt_change_end();		releases both locks, and announces the change
 *
 * "Definitions" are what the file keeps: groups, their limits and other
 * properties, and grants.  An ERROR before or in dt_change_commit() leaves
 * them as they were: the abort of the transaction releases the lock.
 *
 * There is one exception: the grants to a dropped role are removed from shared
 * memory before the file is written, and even when that fails; see grant.c.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_CHANGE_H
#define DT_CHANGE_H

#include "registry/store.h"

/*
 * ERROR on a standby that follows its primary.  The arrays are palloc'd and
 * have room for one more group and grant.
 */
extern void dt_change_begin(DtDefinitions *d);

/*
 * The same for what has come from the primary: returns false, without a lock,
 * when this server does not follow it any more.  The stamp is the present one.
 */
extern bool dt_change_begin_following(DtDefinitions *d);

extern void dt_change_commit(const DtDefinitions *d);
extern void dt_change_end(void);

/* Instead of dt_change_commit() and dt_change_end(): nothing has to change. */
extern void dt_change_cancel(void);

/*
 * A copy of all definitions as they are in effect, palloc'd, with their stamp:
 * a primary's definitions are those of its present timeline.  It is sorted by
 * name, so that what two servers return can be compared.
 */
extern void dt_definitions_copy(DtDefinitions *d);

/* Their stamp. */
extern DtStamp dt_definitions_stamp(void);

/*
 * A primary announces each change to the standbys, in the WAL, as a relcache
 * invalidation of the relation with this OID.  There is none, and if there was
 * one some day, it would do no harm.
 */
#define DT_ANNOUNCED_RELATION	((Oid) PG_UINT32_MAX)

/*
 * Copy all grants to an array with room for them; the result is their number.
 * The caller holds the change lock or the registry lock.
 */
extern int	dt_copy_grants(DtGrant *grants);

/* Remove the grants of a group (NULL: of all) to a role (0: to all). */
extern void dt_definitions_remove_grants(DtDefinitions *d,
										 const char *group_name, Oid role);

#endif							/* DT_CHANGE_H */
