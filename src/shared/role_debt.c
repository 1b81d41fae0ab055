/*-------------------------------------------------------------------------
 *
 * role_debt.c
 *		What those who have left a group still owe there, by role.
 *
 * A session that ends in debt, leaves its group, or is moved out of it, hands
 * its debt over to an account that the group keeps for the role that the
 * session has logged in as.  To the rate engine that is a member like any
 * other, which never uses anything: it repays with the share of one member,
 * however many have left.
 *
 * Whoever has left by its own choice pauses until that account has repaid, at
 * the same places as a member; whoever joins the group in the same role waits
 * for it before the first statement, and after what it owes elsewhere; see
 * look_at_creditor() in account.c.  So a client gains nothing
 * by changing its group or connecting anew, and no role waits for the debts of
 * another one.  A session that has left several groups in debt pauses for the
 * one that takes longest, as they repay at the same time.
 *
 * An account exists while something is owed.  Each group has room for a
 * number of them; when more roles than that owe something, the smallest debt
 * goes to an account without a role, for which nobody waits, so the large
 * ones cannot be displaced by many small ones.  That is also what becomes of
 * the debts of autovacuum workers and logical replication workers: the server
 * starts these by itself, so nobody can connect anew as one, and the next one
 * would wait with a table locked, or its publisher would wait for it.
 *
 * All of this is guarded by the lock of the group, which all callers hold.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "shared/role_debt.h"

/* The account of a role, or with InvalidOid the one without; NULL: none. */
static DtRoleDebt *
find(DtGroup *g, Oid role)
{
	for (int i = 0; i <= DT_ROLE_DEBTS && g->n_role_debts > 0; i++)
		if (g->role_debts[i].exists && g->role_debts[i].role == role)
			return &g->role_debts[i];
	return NULL;
}

/* How long the group takes to earn what is owed by an account, us */
static int64
time_owed(DtGroup *g, DtRateMember *account, int64 now)
{
	int64		longest = 0;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;
		int64		bytes = dt_rate_debt(engine, &account[r], now);

		if (bytes > 0)
			longest = Max(longest, Max(dt_rate_time(engine, bytes), 1));
	}
	return longest;
}

static void
begin(DtGroup *g, DtRoleDebt *debt, Oid role, int64 now)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_join(&g->usage[r].engine, &debt->account[r], now);
	debt->role = role;
	debt->exists = true;
	g->n_role_debts++;
}

/* heir: who owes what it still owes; NULL: it owes nothing. */
static void
end(DtGroup *g, DtRoleDebt *debt, DtRoleDebt *heir, int64 now)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&g->usage[r].engine, &debt->account[r],
					  heir ? &heir->account[r] : NULL, now);
	debt->exists = false;
	g->n_role_debts--;
}

/* End the accounts that have repaid. */
static void
end_repaid(DtGroup *g, int64 now)
{
	for (int i = 0; i <= DT_ROLE_DEBTS && g->n_role_debts > 0; i++)
		if (g->role_debts[i].exists &&
			time_owed(g, g->role_debts[i].account, now) == 0)
			end(g, &g->role_debts[i], NULL, now);
}

/* The account without a role, which has a place of its own. */
static DtRoleDebt *
nobodys(DtGroup *g, int64 now)
{
	DtRoleDebt *debt = &g->role_debts[DT_ROLE_DEBTS];

	if (!debt->exists)
		begin(g, debt, InvalidOid, now);
	return debt;
}

/*
 * An account for one more role, which will owe so much.  When there are too
 * many, the one with the smallest debt makes room if that is less; otherwise
 * the role has none.
 */
static DtRoleDebt *
add(DtGroup *g, Oid role, int64 us, int64 now)
{
	DtRoleDebt *debt = NULL;

	for (int i = 0; i < DT_ROLE_DEBTS; i++)
	{
		int64		owed = !g->role_debts[i].exists ? 0 :
			time_owed(g, g->role_debts[i].account, now);

		if (owed >= us)
			continue;
		debt = &g->role_debts[i];
		us = owed;
		if (!debt->exists)
			break;
	}
	if (debt == NULL)
		return nobodys(g, now);
	if (debt->exists)
		end(g, debt, nobodys(g, now), now);
	begin(g, debt, role, now);
	return debt;
}

/*
 * End the account of a member with this role that leaves.  Returns in what time
 * the group earns what the role owes then, us; 0 if nothing was left for which it
 * could wait.
 */
int64
dt_role_debt_inherit(DtGroup *g, Oid role, DtRateMember *account, int64 now)
{
	int64		us = time_owed(g, account, now);
	DtRoleDebt *heir = NULL;

	end_repaid(g, now);
	if (us > 0 && (heir = find(g, role)) == NULL)
		heir = OidIsValid(role) ? add(g, role, us, now) : nobodys(g, now);
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&g->usage[r].engine, &account[r],
					  heir ? &heir->account[r] : NULL, now);
	return heir != NULL && OidIsValid(heir->role) ?
		time_owed(g, heir->account, now) : 0;
}

/*
 * For how long to pause until the role has repaid, us, at most 1 s; 0 when
 * that is not worth a pause or, for one who is asleep, when it has repaid.
 * Otherwise sets *longest_for to what takes longest.
 */
int64
dt_role_debt_pause(DtGroup *g, Oid role, bool asleep, int64 now,
				   DtResource *longest_for)
{
	DtRoleDebt *debt = find(g, role);
	int64		longest = 0;

	if (debt == NULL)
		return 0;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;
		DtRateMember *account = &debt->account[r];
		int64		pause = asleep ? dt_rate_wake(engine, account, now) :
			dt_rate_charge(engine, account, 0, now, 0);

		if (pause <= longest)
			continue;
		longest = pause;
		*longest_for = r;
	}
	end_repaid(g, now);
	return longest;
}

/* What the role owes, in bytes and in time at the group's rate, us. */
int64
dt_role_debt_bytes(DtGroup *g, Oid role, DtResource resource, int64 now)
{
	DtRoleDebt *debt = find(g, role);

	return debt == NULL ? 0 :
		dt_rate_debt(&g->usage[resource].engine, &debt->account[resource], now);
}

int64
dt_role_debt_time(DtGroup *g, Oid role, int64 now)
{
	DtRoleDebt *debt = find(g, role);

	return debt == NULL ? 0 : time_owed(g, debt->account, now);
}
