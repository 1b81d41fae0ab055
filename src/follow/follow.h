/*-------------------------------------------------------------------------
 *
 * follow.h
 *		A standby's definitions follow those of its primary.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_FOLLOW_H
#define DT_FOLLOW_H

#include "registry/shmem.h"

/*
 * Show hook of dirty_throttle.definitions: all definitions as one line of
 * text, palloc'd.  Needs no transaction and no database.
 */
extern const char *dt_show_definitions(void);

/* Have the process that follows started, if this server is a standby. */
extern void dt_follow_register(void);

extern PGDLLEXPORT void dt_follow_main(Datum arg);

/* For the view: one of these words, and the rest. */
typedef struct DtFollowInfo
{
	const char *status;
	DtStamp		stamp;
	DtFollowing following;
} DtFollowInfo;

extern void dt_follow_info(DtFollowInfo *info);

#endif							/* DT_FOLLOW_H */
