/*-------------------------------------------------------------------------
 *
 * debt.h
 *		What this session owes to groups that it has left.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEBT_H
#define DT_DEBT_H

#include "member.h"

/* May there be any?  Found out by dt_debt_look(). */
extern bool dt_debt_any;

/* For the debts that this slot has, all together: */
typedef struct DtDebtLook
{
	int64		pause_us;		/* how long to pause, at most 1 s; 0: no need */
	int64		owed_us;		/* in time at the group's rate, if one is due */
	DtPauseCause cause;			/* of the pause */
	DtDebt	   *debt;			/* that takes longest, NULL when pause_us is 0 */
} DtDebtLook;

/*
 * Is a pause due for these debts, or when already asleep, how much of it is
 * left?  Those that have been paid end here.  Takes the locks of their groups,
 * one after the other.
 */
extern DtDebtLook dt_debt_look(DtMember *member, bool asleep, double jitter);

#endif							/* DT_DEBT_H */
