/*-------------------------------------------------------------------------
 *
 * grant.h
 *		Which roles may join which groups by themselves.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GRANT_H
#define DT_GRANT_H

#include "store.h"

/* Install the hook that learns of dropped roles. */
extern void dt_grant_init(void);

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
