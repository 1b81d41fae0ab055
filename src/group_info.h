/*-------------------------------------------------------------------------
 *
 * group_info.h
 *		What the views show of groups and of members: copies, no pointers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_INFO_H
#define DT_GROUP_INFO_H

#include "member.h"

typedef struct DtGroupUseInfo
{
	int64		limit;			/* bytes/s, 0 = no limit */
	double		rate;			/* measured, bytes/s */
	int64		used;			/* bytes */
	int64		debt;			/* bytes */
	DtProfile	profile;
} DtGroupUseInfo;

typedef struct DtGroupInfo
{
	char		name[NAMEDATALEN];
	int64		now;			/* when it was so, us */
	int			members;
	int			paused;
	int64		burst_us;
	bool		observe;
	bool		stopped_hard;
	TimestampTz stopped_since;	/* 0 = it is not */
	DtPauseStats stats;
	TimestampTz stats_reset;
	DtGroupUseInfo use[DT_RESOURCES];
} DtGroupInfo;

typedef struct DtMemberInfo
{
	int			pid;
	Oid			userid;
	Oid			databaseid;
	char		group_name[NAMEDATALEN];
	bool		moved;
	bool		has_left;		/* but owes to it still */
	bool		pauses_at_checks;	/* for interrupts */
	int64		used[DT_RESOURCES]; /* bytes */
	int64		debt[DT_RESOURCES]; /* bytes */
	DtPauseStats stats;
	TimestampTz paused_since;	/* 0 = running */
	DtPauseCause paused_by;
} DtMemberInfo;

/*
 * Snapshots, palloc'd; the result is their number.  A session is in the second
 * as a member, and once more for each group that it has left and still owes to.
 */
extern int	dt_group_info_groups(DtGroupInfo **infos);
extern int	dt_group_info_members(DtMemberInfo **infos);

#endif							/* DT_GROUP_INFO_H */
