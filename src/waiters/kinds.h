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

extern DtKind dt_kind_of(PGPROC *proc);
extern bool dt_kind_counts(PGPROC *waiter);
extern bool dt_kind_may_be_let_go(int number);
extern const char *dt_kind_name(DtKind kind);
extern void dt_kind_find(DtKind kind, PGPROC *waiter, DtFound found);
extern bool dt_kind_has_next(PGPROC *waiter, const LOCK *lock);
extern void dt_kind_find_next(PGPROC *waiter, const LOCKTAG *tag, DtFound found);

#endif							/* DT_KINDS_H */
