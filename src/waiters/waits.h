/*-------------------------------------------------------------------------
 *
 * waits.h
 *		What is shared about those who wait, and those they wait for.
 *
 * Each process and each prepared transaction has a slot, by its proc number.
 * The slots and the role are read and written without a lock: what is
 * missed the next look finds.  The picture is that of the process that makes a look,
 * under look_lock, which nobody waits for.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WAITS_H
#define DT_WAITS_H

#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "waiters/picture.h"
#include "waiters/waiters.h"

typedef struct DtWaitSlot
{
	/* of one that may pause; written by the process itself */
	volatile bool asleep;		/* it does, and is to be woken by a mark */
	bool		wakes_to_look;	/* ... also to take the role */
	bool		counts_as_mate; /* when it waits for one of its own group */
	int			max_blocking_ms;	/* the parameter */
	volatile int64 owes_until;	/* us, if its group earned for it alone: */
	volatile uint64 owes_in;	/* the ID of that one */

	/* of a member; written by the looker */
	volatile DtMark mark;
	int			marked_for;		/* the process ID of one that waits */

	/* of one that waits; written by the looker */
	int			pid;			/* of which the rest is true */
	uint32		wait_event;
	int64		waits_since;	/* when it was first seen to wait so, us */
	int64		seen_at;		/* when it was last seen to wait, us */
	uint32		wanted;			/* the lock it has waited for last: its hash, */
	TimestampTz attempt_start;	/* since when, and */
	int64		attempt_us;		/* for how long, when it was seen; */
	int64		earlier_us;		/* and all earlier attempts, with short breaks */
	int64		late_us;		/* for how long it had waited when that was
								 * too long for a member, ... */
	int64		late_at;		/* ... the last time */

	/* of a prepared transaction; written by the session that prepares it */
	TransactionId prepared_xid;
	uint64		prepared_in;	/* the ID of its group, or 0 */
} DtWaitSlot;

typedef struct DtWaitsShared
{
	pg_atomic_uint32 looker;	/* see role.c: proc number + 1, or 0 */
	pg_atomic_uint32 n_asleep;	/* slots, at most */
	pg_atomic_uint64 looked_at; /* us */
	pg_atomic_uint64 began_at;	/* when the look that is going on began, us;
								 * or 0 */
	volatile int interval_us;	/* the next look is due this long after that */
	volatile bool any_marked;
	volatile bool walk_is_due;	/* a process has fallen asleep since the last */

	/* the rest is guarded by look_lock */
	LWLock	   *look_lock;
	bool		is_in_use;		/* still set: the looker has died */
	uint64		signature;		/* of all who have waited at the last walk */
	int			looks_since_walk;
} DtWaitsShared;

extern DtWaitsShared *dt_waits;
extern DtWaitSlot *dt_wait_slots;	/* by proc number */
extern DtPicture dt_picture;	/* that of looks, guarded by look_lock */

#endif							/* DT_WAITS_H */
