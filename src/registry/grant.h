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

/*
 * To be called by the object access hook, which learns of changes of roles and
 * of their settings.
 */
extern void dt_grant_object_accessed(ObjectAccessType access, Oid classId,
									 Oid objectId, void *arg);

/*
 * Allow a role to join a group, or revoke that, in this transaction.  False
 * when nothing had to be changed.
 */
extern bool dt_grant_set(const char *group_name, Oid role, bool allow);

/* May this user join the group?  ERROR when there is no such group. */
extern bool dt_grant_permits(const char *group_name, Oid user);

#endif							/* DT_GRANT_H */
