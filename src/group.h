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
#include "miscadmin.h"
#include "port/atomics.h"
#include "portability/instr_time.h"
#include "profile.h"
#include "rate.h"
#include "resource.h"
#include "storage/spin.h"
#include "store.h"

/* What a group has used of a resource, and who owes what. */
typedef struct DtGroupUse
{
	DtRateGroup rate;
	DtMeter		meter;			/* how fast just now */
	DtProfile	profile;		/* how fast since stats_reset */
	int64		used;			/* since stats_reset, bytes */
} DtGroupUse;

/* How often and for how long members have paused, or would have. */
typedef struct DtPauseStats
{
	int64		pauses;
	int64		wal_pauses;		/* those of them that the WAL limit caused */
	int64		paused_us;
	int64		would_pauses;	/* in mode observe */
	int64		would_pause_us;
	int64		releases;		/* went on unpaused since others waited */
} DtPauseStats;

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

	/* changed under "lock", read without it: look at the account again */
	pg_atomic_uint32 generation;

	/* guarded by "lock" */
	pg_attribute_aligned(PG_CACHE_LINE_SIZE) slock_t lock;
	bool		observe;		/* limits make nobody pause */
	bool		stopped_hard;	/* also between rows */
	TimestampTz stopped_since;	/* by pause_group(); 0 = it is not */
	int			members;		/* the engine's are more: debts of others */
	int			paused;			/* sessions that are asleep for it */
	DtPauseStats stats;			/* since stats_reset */
	TimestampTz stats_reset;
	DtGroupUse	use[DT_RESOURCES];
} DtGroup;

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

/*
 * A background worker ends by the core's own handler of SIGTERM, at whatever
 * instruction it is; that must not be one between these two.
 */
extern void dt_group_defer_termination(void);
extern void dt_group_allow_termination(void);

/* Take and release a group's spinlock.  Also in a signal handler. */
static inline void
dt_group_lock(DtGroup *g)
{
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_group_defer_termination();
	SpinLockAcquire(&g->lock);
}

static inline void
dt_group_unlock(DtGroup *g)
{
	SpinLockRelease(&g->lock);
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_group_allow_termination();
}

/* The same without waiting: false when somebody has it. */
static inline bool
dt_group_try_lock(DtGroup *g)
{
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_group_defer_termination();
	if (!TAS(&g->lock))
		return true;
	if (unlikely(MyBackendType == B_BG_WORKER))
		dt_group_allow_termination();
	return false;
}

/* Is there shared memory, that is, was the library preloaded? */
extern bool dt_group_available(void);

/* What a definition may do when the group exists, or when it does not. */
typedef enum DtDefine
{
	DT_CREATE,					/* must not exist */
	DT_ALTER,					/* must exist */
	DT_CREATE_OR_ALTER
} DtDefine;

/* What can be defined of a group, and the value's unit. */
typedef enum DtProperty
{
	DT_DIRTY_LIMIT,				/* bytes/s */
	DT_WAL_LIMIT,				/* bytes/s */
	DT_BURST,					/* us */
	DT_OBSERVE					/* 0 or 1 */
} DtProperty;

/*
 * Changes of the registry.  Durable first, then in effect; an ERROR leaves
 * everything as it was.  Names are checked by the caller.  dt_group_define()
 * returns whether the group was created.
 */
extern bool dt_group_define(const char *name, DtProperty property, int64 value,
							DtDefine how);
extern void dt_group_rename(const char *old_name, const char *new_name);
extern bool dt_group_drop(const char *name, bool missing_ok, bool force);

/* Not durable: stop the members of a group, and let them go on. */
extern void dt_group_stop(const char *name, bool hard);
extern bool dt_group_resume(const char *name);

/* Set counters to 0, of all groups when name is NULL. */
extern void dt_group_reset_stats(const char *name);

/* The id of the group with that name, or 0. */
extern uint64 dt_group_lookup(const char *name);

/* ERROR: there is no such group. */
extern void dt_group_missing(const char *name);

/* Changes with every change of the registry: time to look up again. */
extern uint64 dt_group_registry_version(void);

/* The switch for everybody (dirty_throttle.enabled), as of this moment. */
extern bool dt_group_throttling_enabled(void);
extern void dt_group_publish_enabled(bool enabled);

/*
 * Is the group stopped, for who runs a transaction, or for who does not?  Does
 * it have a limit that is enforced?
 */
static inline bool
dt_group_is_stopped(const DtGroup *g, bool in_flight)
{
	return g->stopped_since != 0 && (g->stopped_hard || !in_flight) &&
		dt_group_throttling_enabled();
}

static inline bool
dt_group_is_limited(const DtGroup *g, DtResource resource)
{
	return g->use[resource].rate.rate > 0 && !g->observe &&
		dt_group_throttling_enabled();
}

/* All definitions, palloc'd, by name, so that two servers can be compared. */
extern void dt_group_definitions(DtDefinitions *definitions);

#endif							/* DT_GROUP_H */
