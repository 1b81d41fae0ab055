/*-------------------------------------------------------------------------
 *
 * change.h
 *		The one way in which definitions change: durable first, then in effect.
 *
 *	dt_change_begin(&d);	takes the change lock, copies all definitions to d
 *	...						checks, may ERROR; edits d
 *	dt_change_commit(&d);	writes the file, then takes the registry lock
 *	...						applies the change; must not fail
 *	dt_change_end();		releases both locks
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

/* The arrays are palloc'd and have room for one more group and grant. */
extern void dt_change_begin(DtDefinitions *d);
extern void dt_change_commit(const DtDefinitions *d);
extern void dt_change_end(void);

/* Instead of dt_change_commit() and dt_change_end(): nothing has to change. */
extern void dt_change_cancel(void);

/*
 * A copy of all definitions, palloc'd.  It is sorted, so that what two servers
 * return can be compared.
 */
extern void dt_definitions_copy(DtDefinitions *d);

/*
 * Copy all grants to an array with room for them; the result is their number.
 * The caller holds the change lock or the registry lock.
 */
extern int	dt_copy_grants(DtGrant *grants);

/* Remove the grants of a group (NULL: of all) to a role (0: to all). */
extern void dt_definitions_remove_grants(DtDefinitions *d,
										 const char *group_name, Oid role);

#endif							/* DT_CHANGE_H */
