/*-------------------------------------------------------------------------
 *
 * kinds.h
 *		What a process can wait for that a member may have, or be in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_KINDS_H
#define DT_KINDS_H

#include "storage/lock.h"
#include "storage/proc.h"
#include "waiters/waits.h"

/* For this time it is remembered how a process has waited. */
#define DT_WAIT_MEMORY_US	INT64CONST(1000000)

typedef enum DtKind
{
	DT_WAITS_FOR_NOTHING,
	DT_WAITS_FOR_LOCK,
	DT_WAITS_FOR_PINS,
	DT_WAITS_FOR_SAFE_SNAPSHOT,
	DT_WAITS_TO_REPLAY
} DtKind;

/* How does this process wait? */
extern DtKind dt_kind_of(PGPROC *proc);

/*
 * For how long, us, as of "now"?  PG_INT64_MAX: that is not known.  Has the slot seen
 * the process wait within the last second?
 */
extern int64 dt_kind_waited(DtKind kind, PGPROC *proc, int64 now);
extern bool dt_kind_is_known(const DtWaitSlot *slot, PGPROC *proc, int64 now);

/* Does it matter that it does? */
extern bool dt_kind_counts(PGPROC *waiter);

/* May the process of this number, or prepared transaction, be let go? */
extern bool dt_kind_may_be_let_go(int number);

/* As the view dirty_throttle_blocking has it. */
extern const char *dt_kind_name(DtKind kind);

/*
 * Put this process, and who waits behind it, behind all who are in its way.  Not for
 * locks, whose queues chain.c reads.
 */
extern void dt_kind_find(DtPicture *picture, DtKind kind, PGPROC *waiter,
						 const DtBehind *behind);

/*
 * Is it to be asked who will be in the way of this process when it has the lock that
 * it waits for, and if so, who is it?  The first is to be called before, when those who
 * wait have been found.
 */
extern void dt_kind_begin_walk(DtPicture *picture);
extern bool dt_kind_has_next(const DtPicture *picture, PGPROC *waiter, const LOCK *lock);
extern void dt_kind_find_next(DtPicture *picture, PGPROC *waiter, const LOCKTAG *tag,
							  const DtBehind *behind);

#endif							/* DT_KINDS_H */
