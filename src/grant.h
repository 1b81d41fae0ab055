/*-------------------------------------------------------------------------
 *
 * grant.h
 *		Which roles may join which groups by themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GRANT_H
#define DT_GRANT_H

#include "catalog/objectaccess.h"
#include "store.h"

/* Of what the hook for accesses to objects tells: roles come and go. */
extern void dt_grant_object_accessed(ObjectAccessType access, Oid classId,
									 Oid objectId);

/*
 * Begin a change of definitions: remove the grants of roles that are gone, and
 * take the change lock.  Looks into the catalog, so no other lock may be held.
 * ERROR when the file cannot be written.
 */
extern void dt_grant_begin_change(void);

/*
 * Allow a role to join a group, and take that back.  Durable first, then in
 * effect; an ERROR changes nothing.  False: it was so already.
 */
extern bool dt_grant_allow(const char *group_name, Oid role);
extern bool dt_grant_revoke(const char *group_name, Oid role);

/* May this user join the group?  ERROR when there is no such group. */
extern bool dt_grant_permits(const char *group_name, Oid user);

/* All grants, palloc'd; the result is their number. */
extern int	dt_grant_list(DtGrant **grants);

#endif							/* DT_GRANT_H */
