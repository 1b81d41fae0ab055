/*-------------------------------------------------------------------------
 *
 * group_info.h
 *		Copies of groups and members, for the views.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_INFO_H
#define DT_GROUP_INFO_H

#include "shared/shmem.h"

typedef struct DtGroupCopy
{
	DtGroup		group;
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		now;			/* time of the copy, us */
} DtGroupCopy;

typedef struct DtMemberCopy
{
	DtMember	member;
	int			pid;
	Oid			userid;
	Oid			databaseid;
	DtGroup    *group;			/* only to be compared with */
	char		group_name[NAMEDATALEN];
	bool		has_left;		/* it has left the group, but owes to it */
	int64		debt[DT_RESOURCES]; /* bytes */
	int64		now;			/* time of the copy, us */
} DtMemberCopy;

/*
 * Palloc'd arrays of *n.  A session is in the second as a member, and once more
 * for a group that it has left and owes to.
 */
extern DtGroupCopy *dt_group_copies(int *n);
extern DtMemberCopy *dt_member_copies(int *n);

#endif							/* DT_GROUP_INFO_H */
