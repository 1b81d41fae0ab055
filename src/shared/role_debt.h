/*-------------------------------------------------------------------------
 *
 * role_debt.h
 *		What those who have left a group still owe there, by role.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ROLE_DEBT_H
#define DT_ROLE_DEBT_H

#include "shared/shmem.h"

/*
 * A member leaves, and one joins.  slips: what the member owes was used without
 * having passed the gate.  The second returns this for a part of what is taken over,
 * or for the suspension that goes on.
 */
extern void dt_role_debt_leave(DtGroup *g, Oid role, DtRateMember *account,
							   bool slips, int64 now);
extern bool dt_role_debt_take_over(DtGroup *g, Oid role, DtRateMember *account,
								   int64 now);

/*
 * Is no account free, so that those of all groups that have repaid should be ended?
 * It is not said again within a second.  The caller holds no group's lock.
 */
extern bool dt_role_debt_is_short(int64 now);
extern void dt_role_debt_end_repaid(DtGroup *g, int64 now);
extern void dt_role_debt_forget_all(DtGroup *g, int64 now);

#endif							/* DT_ROLE_DEBT_H */
