/*-------------------------------------------------------------------------
 *
 * grant.h
 *		Which roles may use join_group() for which groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GRANT_H
#define DT_GRANT_H

extern bool dt_grant_set(const char *group_name, Oid role, bool allow);
extern bool dt_grant_permits(const char *group_name, Oid user);
extern void dt_grant_follow_role(char *name, char *new_name);

#endif							/* DT_GRANT_H */
