/*-------------------------------------------------------------------------
 *
 * group.h
 *		Creating, changing and dropping resource groups.
 *
 * Looking groups up, and locking them, is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_GROUP_H
#define DT_GROUP_H

#include "registry/shmem.h"

/* Whether a group has to exist already when it is defined. */
typedef enum DtDefine
{
	DT_CREATE,					/* must not exist */
	DT_ALTER,					/* must exist */
	DT_CREATE_OR_ALTER
} DtDefine;

/* The properties of a group that can be set, with the unit of the value. */
typedef enum DtProperty
{
	DT_DIRTY_LIMIT,				/* bytes/s */
	DT_WAL_LIMIT,				/* bytes/s */
	DT_BURST,					/* us */
	DT_OBSERVE					/* 0 or 1 */
} DtProperty;

/*
 * Load the definitions file into new shared memory.  FATAL if
 * dirty_throttle.max_groups is too small for it.
 */
extern void dt_group_load_definitions(void);

/*
 * These follow the protocol of change.h.  The caller has checked the names.
 * dt_group_define() returns whether the group was created, dt_group_drop()
 * whether there was one.
 */
extern bool dt_group_define(const char *name, DtProperty property, int64 value,
							DtDefine how);
extern void dt_group_rename(const char *old_name, const char *new_name);
extern bool dt_group_drop(const char *name, bool missing_ok, bool force);

/*
 * Suspend a group, or resume it.  The members of a suspended group pause after
 * their next transaction or, if that pause is canceled or not possible, before
 * the one that follows it; with "hard" also before and within any.  A restart
 * resumes all groups.  Returns whether the group was suspended before.
 */
extern bool dt_group_set_suspended(const char *name, bool suspended,
								   bool hard);

/* Set the counters of a group, or with NULL of all groups, to 0. */
extern void dt_group_reset_stats(const char *name);

#endif							/* DT_GROUP_H */
