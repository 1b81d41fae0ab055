/*-------------------------------------------------------------------------
 *
 * grant.h
 *		Which roles may use join_group() for which groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GRANT_H
#define DT_GRANT_H

#include "catalog/objectaccess.h"
#include "registry/store.h"

/*
 * To be called by the object access hook, which learns of roles that are
 * created and dropped.
 */
extern void dt_grant_object_accessed(ObjectAccessType access, Oid classId,
									 Oid objectId);

/*
 * Remove the grants to roles that do not exist any more; every change of
 * definitions calls this first.  Looks into the catalog, so the caller must
 * not hold an LWLock.  ERROR when the file cannot be written.
 */
extern void dt_grant_remove_unusable(void);

/*
 * Allow a role to join a group, or revoke that, by the protocol of change.h.
 * False when nothing had to be changed.
 */
extern bool dt_grant_set(const char *group_name, Oid role, bool allow);

/* May this user join the group?  ERROR when there is no such group. */
extern bool dt_grant_permits(const char *group_name, Oid user);

/* All grants, palloc'd; the result is their number. */
extern int	dt_grant_list(DtGrant **grants);

#endif							/* DT_GRANT_H */
