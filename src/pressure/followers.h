/*-------------------------------------------------------------------------
 *
 * followers.h
 *		The groups that follow signals, and the controllers of these.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_FOLLOWERS_H
#define DT_FOLLOWERS_H

#include "pressure/signals.h"

/* A group that follows signals. */
typedef struct DtFollower
{
	DtPressureGroup law;		/* comes first */
	uint64		id;				/* 0: none */
	uint64		of;				/* of an instance the ID of its group */
	DtGroup    *group;
	DtDefinition definition;	/* as of the last cycle */
	int64		woken_rate[DT_RESOURCES];	/* sleepers know of this one, or
											 * of a lower one */
	int64		floor_since;	/* it is at its floor, us; 0 = it is not */
	bool		floor_logged;
} DtFollower;

/* All there are, until they are looked for again. */
typedef struct DtFollowers
{
	bool		any_group;		/* there is one, which may follow nothing */
	int			n;
	DtPressureGroup **laws;		/* each in a DtFollower */
	int			n_controllers;
	DtController **controllers;
	bool		followed[DT_SIGNALS];	/* by a group */
} DtFollowers;

extern const DtFollowers *dt_followers_find(void);
extern void dt_followers_read(DtSignal signal, DtLook look,
							  const DtFound *found, int64 now);
extern void dt_followers_log(int64 now);

#endif							/* DT_FOLLOWERS_H */
