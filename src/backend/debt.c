/*-------------------------------------------------------------------------
 *
 * debt.c
 *		What this session owes to groups that it has left.
 *
 * A session that leaves a group by its own choice takes its debt along, so
 * that nobody gets rid of a debt by SET.  The debt is repaid from that group's
 * income at that group's rate, and the session pauses for it at the same
 * places as a member does, also when it is in another group by then, or in
 * none.  Several groups repay their debts at the same time, so the pause is as
 * long as the longest of them takes.
 *
 * The debts are in the session's slot in shared memory, each guarded by the
 * lock of its group; see DtDebt in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "backend/debt.h"
#include "registry/group.h"

bool		dt_debt_any = false;

DtDebtLook
dt_debt_lock_and_look(DtMember *member, bool asleep, double jitter)
{
	DtDebtLook	result = {0};
	bool		any = false;
	int			i;
	int			r;

	if (!dt_debt_any)
		return result;
	for (i = 0; i < DT_DEBTS; i++)
	{
		DtDebt	   *debt = &member->debts[i];
		int64		now = dt_now_us();
		DtGroup    *g = dt_member_lock_debt(debt);
		bool		owes = false;

		if (g == NULL)
			continue;
		dt_group_check_pressure(g, now);
		for (r = 0; r < DT_RESOURCES; r++)
		{
			DtRateGroup *rate = &g->usage[r].rate;
			DtRateMember *account = &debt->rate[r];
			int64		pause;
			int64		bytes;

			pause = asleep ? dt_rate_wake(rate, account, now) :
				dt_rate_charge(rate, account, 0, now, jitter);
			bytes = dt_rate_debt(rate, account, now);
			owes |= bytes > 0;
			if (pause <= 0 || !dt_throttling_is_enabled())
				continue;
			result.owed_us = Max(result.owed_us, dt_rate_time(rate, bytes));
			if (pause > result.pause_us)
			{
				result.pause_us = pause;
				result.cause = dt_group_pause_cause(g, r);
				result.debt = debt;
			}
		}
		if (owes)
			any = true;
		else
			dt_member_end_debt(member, debt, now);
		dt_group_unlock(g);
	}
	dt_debt_any = any;
	return result;
}

void
dt_debt_expect(void)
{
	dt_debt_any = true;
}
