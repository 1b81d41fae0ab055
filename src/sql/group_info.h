/*-------------------------------------------------------------------------
 *
 * group_info.h
 *		Snapshots of groups and members, for the views.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_INFO_H
#define DT_GROUP_INFO_H

#include "registry/shmem.h"

typedef struct DtGroupUsageInfo
{
	int64		effective;		/* the rate in force, bytes/s, 0 = none */
	double		rate;			/* measured, bytes/s */
	int64		used;			/* bytes */
	int64		debt;			/* bytes */
	DtHistogram histogram;
} DtGroupUsageInfo;

typedef struct DtGroupInfo
{
	DtDefinition definition;
	int64		now;			/* time of the snapshot, us */
	int			members;
	int			paused;
	bool		suspended_hard;
	TimestampTz suspended_since;	/* 0 = it is not */
	DtPauseStats stats;
	int64		forgiven;		/* because of pressure, bytes */
	TimestampTz stats_reset;
	DtGroupPressure pressure;
	DtGroupUsageInfo usage[DT_RESOURCES];
} DtGroupInfo;

typedef struct DtMemberInfo
{
	int			pid;
	Oid			userid;
	Oid			databaseid;
	char		group_name[NAMEDATALEN];
	bool		moved;
	bool		has_left;		/* it has left the group, but owes to it */
	bool		pauses_at_checks;	/* for interrupts */
	int64		used[DT_RESOURCES]; /* bytes */
	int64		debt[DT_RESOURCES]; /* bytes */
	DtPauseStats stats;
	TimestampTz paused_since;	/* 0 = running */
	TimestampTz released_since; /* it does not pause, for others; 0 = no */
	DtPauseCause paused_by;
} DtMemberInfo;

/*
 * Palloc'd arrays; the result is their length.  A session is in the second as
 * a member, and in addition once for each group that it has left and owes to.
 */
extern int	dt_group_info_groups(DtGroupInfo **infos);
extern int	dt_group_info_members(DtMemberInfo **infos);

#endif							/* DT_GROUP_INFO_H */
