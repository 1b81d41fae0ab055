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

typedef enum DtKind
{
	DT_WAITS_FOR_NOTHING,
	DT_WAITS_FOR_LOCK,
	DT_WAITS_FOR_PINS,
	DT_WAITS_FOR_SAFE_SNAPSHOT,
	DT_WAITS_TO_REPLAY
} DtKind;

/* Called for a process, or a prepared transaction, that is in the way. */
typedef void (*DtFound) (PGPROC *proc);

/* How does this process wait? */
extern DtKind dt_kind_of(PGPROC *proc);

/* Does it matter that it does? */
extern bool dt_kind_counts(PGPROC *waiter);

/* May the process of this number, or prepared transaction, be let go? */
extern bool dt_kind_may_be_let_go(int number);

/* As the view dirty_throttle_blocking has it. */
extern const char *dt_kind_name(DtKind kind);

/* Who is in the way of this process?  Not for locks, which the look reads itself. */
extern void dt_kind_find(DtKind kind, PGPROC *waiter, DtFound found);

/*
 * Is it to be asked who will be in the way of this process when it has the lock that
 * it waits for, and if so, who is it?  The first is to be called before, when those who
 * wait have been found.
 */
extern void dt_kind_begin_walk(void);
extern bool dt_kind_has_next(PGPROC *waiter, const LOCK *lock);
extern void dt_kind_find_next(PGPROC *waiter, const LOCKTAG *tag, DtFound found);

#endif							/* DT_KINDS_H */
