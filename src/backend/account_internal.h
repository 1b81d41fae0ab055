/*-------------------------------------------------------------------------
 *
 * account_internal.h
 *		What account.c and account_parallel.c share, and nobody else.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACCOUNT_INTERNAL_H
#define DT_ACCOUNT_INTERNAL_H

#include <signal.h>

#include "access/parallel.h"
#include "backend/account.h"

/* What this process knows of its use of one resource; bytes. */
typedef struct DtUsage
{
	int64		charged_up_to;	/* counter value at the last charge */
	bool		was_throttled;	/* at the last charge, if there was any */
	bool		pause_is_due;	/* a pause was due at the last charge */
	int64		threshold;		/* bytes, as of the last charge */
	int64		worker_used;	/* by this parallel worker: what the leader
								 * must not charge again */
} DtUsage;

typedef struct DtAccount
{
	DtMember   *slot;			/* ours or our leader's; NULL: not attached */
	DtGroup    *group;			/* NULL: no account, as far as we know */
	DtUsage		usage[DT_RESOURCES];
	uint32		generation;		/* group->generation at the last charge */
	uint32		times_joined;	/* slot->times_joined at the last look */
	uint32		times_left;		/* the same of slot->times_left */
	bool		pause_is_due;	/* the last charge or slice found a pause to
								 * make */
	DtPauseCause cause;			/* of that pause */
	bool		asleep;			/* counted in slot->sleepers */
	int64		xact_used;		/* charged in this transaction, bytes */
	bool		worker_runs;	/* this is a parallel worker, at work */

	/* The account is being changed, so a signal handler must not do so. */
	volatile sig_atomic_t busy;
	volatile sig_atomic_t hands_off;	/* a handler has found it busy */
} DtAccount;

extern DtAccount dt_account;

static DtAccount *const my = &dt_account;

/* Is there anything that workers have charged and the leader has not seen? */
static inline bool
dt_account_workers_have_charged(void)
{
	return my->group != NULL && !IsParallelWorker() &&
		(my->slot->usage[DT_DIRTY].charged_by_workers > 0 ||
		 my->slot->usage[DT_WAL].charged_by_workers > 0);
}

/*
 * How much of what the leader's counter has gained, in bytes, have workers
 * charged?  That is not to be left out again.
 */
extern int64 dt_account_take_workers_part_locked(int resource, int64 bytes);

/*
 * Begin to change the account: marks it as busy and locks the group.  *now is
 * the time just before that.  When the session is in no group (any more) but a
 * debt is given, that debt's group is locked instead.  Returns the group that
 * is locked, or NULL.
 */
extern DtGroup *dt_account_lock(DtDebt *debt, int64 *now);
extern void dt_account_unlock(DtGroup *g);

#endif							/* DT_ACCOUNT_INTERNAL_H */
