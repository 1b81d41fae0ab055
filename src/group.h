/*-------------------------------------------------------------------------
 *
 * group.h
 *		The registry of resource groups in shared memory.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_H
#define DT_GROUP_H

#include "datatype/timestamp.h"
#include "meter.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "rate.h"
#include "storage/spin.h"
#include "store.h"

/*
 * One resource group.  The first part is read by every member at every safe
 * point and hardly ever written; the second is written at every charge.  They
 * do not share a cache line.
 */
typedef struct DtGroup
{
	/* guarded by the registry lock */
	uint64		id;				/* never used twice; 0 = this slot is free */
	char		name[NAMEDATALEN];
	bool		being_dropped;	/* nobody may join any more */

	/* changed under "lock", read without it: the limit has changed */
	pg_atomic_uint32 generation;

	/* guarded by "lock" */
	pg_attribute_aligned(PG_CACHE_LINE_SIZE) slock_t lock;
	DtRateGroup rate;			/* who owes what */
	DtMeter		meter;			/* how fast blocks are dirtied just now */
	int			paused;			/* members that are asleep */
	int64		blocks_dirtied; /* these since stats_reset */
	int64		pauses;
	int64		paused_us;
	TimestampTz stats_reset;
} DtGroup;

/*
 * One session's membership.  "group" is set by the member itself; it is
 * cleared by itself or, when its group is dropped by force, by the dropper,
 * in both cases under the lock of the group it names.  So a member may read
 * it at any time, but must look again once it holds that lock.
 */
typedef struct DtMember
{
	DtGroup    *group;			/* NULL: not a member */

	/* guarded by group->lock */
	DtRateMember rate;
	int64		blocks_dirtied; /* since it joined */
	int64		pauses;
	int64		paused_us;
	int64		prepaid;		/* charged by parallel workers, still to come in
								 * the leader's counter, blocks */
	int			sleepers;		/* processes asleep: the session, its workers */
	int64		paused_since_us;	/* since when any of them is; monotonic */
	TimestampTz paused_since;	/* the same for people */
} DtMember;

/* What the views show of a group and of a member: copies, no pointers. */
typedef struct DtGroupInfo
{
	char		name[NAMEDATALEN];
	int64		rate;			/* bytes/s, 0 = no limit */
	int			members;
	int			paused;
	double		dirty_rate;		/* bytes/s */
	int64		blocks_dirtied;
	int64		pauses;
	int64		paused_us;
	int64		debt;			/* bytes */
	TimestampTz stats_reset;
} DtGroupInfo;

typedef struct DtMemberInfo
{
	int			pid;
	Oid			userid;
	Oid			databaseid;
	char		group_name[NAMEDATALEN];
	int64		blocks_dirtied;
	int64		pauses;
	int64		paused_us;
	int64		debt;			/* bytes */
	TimestampTz paused_since;	/* 0 = running */
} DtMemberInfo;

/* What a definition may do when the group exists, or when it does not. */
typedef enum DtDefine
{
	DT_CREATE,					/* must not exist */
	DT_ALTER,					/* must exist */
	DT_CREATE_OR_ALTER
} DtDefine;

/* Microseconds of a monotonic clock; rates never see the wall clock. */
static inline int64
dt_now_us(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/* Shared memory: ask for it, and attach or initialize it. */
extern void dt_group_shmem_request(void);
extern void dt_group_shmem_startup(void);

/* Is there shared memory, that is, was the library preloaded? */
extern bool dt_group_available(void);

/*
 * Changes of the registry.  Durable first, then in effect; an ERROR leaves
 * everything as it was.  Names are checked by the caller.
 */
extern bool dt_group_define(const char *name, int64 rate, DtDefine how);
extern void dt_group_rename(const char *old_name, const char *new_name);
extern bool dt_group_drop(const char *name, bool missing_ok, bool force);

/* Set counters to 0, of all groups when name is NULL. */
extern void dt_group_reset_stats(const char *name);

/* The id of the group with that name, or 0. */
extern uint64 dt_group_lookup(const char *name);

/* Changes with every change of the registry: time to look up again. */
extern uint64 dt_group_registry_version(void);

/* The switch for everybody (dirty_throttle.enabled), as of this moment. */
extern bool dt_group_throttling_enabled(void);
extern void dt_group_publish_enabled(bool enabled);

/* Membership of this process. */
extern DtMember *dt_group_my_member(void);
extern DtMember *dt_group_leader_member(void);
extern DtGroup *dt_group_join(DtMember *member, uint64 *id, const char *name);
extern bool dt_group_member_name(DtMember *member, char *name);

/* Snapshots for the views, palloc'd; the result is their number. */
extern int	dt_group_list(DtGroupInfo **groups);
extern int	dt_group_list_members(DtMemberInfo **members);
extern int	dt_group_definitions(DtDefinition **definitions);

#endif							/* DT_GROUP_H */
