/*-------------------------------------------------------------------------
 *
 * debt.h
 *		What this session owes to groups that it has left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEBT_H
#define DT_DEBT_H

#include "registry/member.h"

/*
 * May there be any?  Other files only read this.  dt_debt_expect() sets it,
 * dt_debt_lock_and_look() finds out whether there are any.
 */
extern bool dt_debt_any;
extern void dt_debt_expect(void);

/* All debts of a slot together. */
typedef struct DtDebtLook
{
	int64		pause_us;		/* how long to pause, at most 1 s; or 0 */
	int64		owed_us;		/* the largest, in time at its group's rate */
	DtPauseCause cause;			/* of the pause */
	DtDebt	   *debt;			/* the one to pause for; NULL: no pause */
} DtDebtLook;

/*
 * Is a pause due for these debts, or if the session is asleep, how much
 * longer?  Debts that have been paid are removed.  Takes the locks of their
 * groups, one after the other.
 */
extern DtDebtLook dt_debt_lock_and_look(DtMember *member, bool asleep,
										double jitter);

#endif							/* DT_DEBT_H */
