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

extern int64 dt_role_debt_inherit(DtGroup *g, Oid role, DtRateMember *account,
								  int64 now);
extern int64 dt_role_debt_pause(DtGroup *g, Oid role, bool asleep, int64 now,
								DtResource *longest_for);
extern int64 dt_role_debt_bytes(DtGroup *g, Oid role, DtResource resource,
								int64 now);
extern int64 dt_role_debt_time(DtGroup *g, Oid role, int64 now);

#endif							/* DT_ROLE_DEBT_H */
