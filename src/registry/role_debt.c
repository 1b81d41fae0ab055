/*-------------------------------------------------------------------------
 *
 * role_debt.c
 *		What those who have left a group still owe there, by role.
 *
 * A session that ends in debt, or is moved out of its group by somebody else,
 * hands its debt over to an account that the group keeps for the role that the
 * session has logged in as.  To the rate engine that is a member like any
 * other, which never uses anything: it repays with the share of one member,
 * however many have left.  Whoever joins the group in the same role waits until
 * it has repaid, before the first statement; see account.c.  So a client gains
 * nothing by connecting anew, and no role waits for the debts of another one.
 *
 * An account exists while something is owed.  Each group has room for a number
 * of them; when more roles than that owe something, the smallest debt becomes
 * one that nobody waits for (the ghost of rate.c), so the large ones cannot be
 * displaced by many small ones.  That is also what becomes of the debts of
 * autovacuum workers and logical replication workers: the server starts these
 * by itself, so nobody can connect anew as one, and the next one would wait
 * with a table locked, or its publisher would wait for it.
 *
 * All of this is guarded by the lock of the group, which all callers hold.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "registry/role_debt.h"

static DtRoleDebt *
find(DtGroup *g, Oid role)
{
	int			i;

	if (g->n_role_debts == 0 || !OidIsValid(role))
		return NULL;
	for (i = 0; i < DT_ROLE_DEBTS; i++)
		if (g->role_debts[i].role == role)
			return &g->role_debts[i];
	return NULL;
}

/* How long the group takes to earn what these accounts owe, us */
static int64
time_owed(DtGroup *g, DtRateMember *const accounts[DT_RESOURCES], int64 now)
{
	int64		longest = 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &g->usage[r].rate;
		int64		bytes = dt_rate_debt(rate, accounts[r], now);

		if (bytes > 0)
			longest = Max(longest, Max(dt_rate_time(rate, bytes), 1));
	}
	return longest;
}

static int64
time_owed_by(DtGroup *g, DtRoleDebt *debt, int64 now)
{
	DtRateMember *accounts[DT_RESOURCES];
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		accounts[r] = &debt->rate[r];
	return time_owed(g, accounts, now);
}

static void
begin(DtGroup *g, DtRoleDebt *debt, Oid role, int64 now)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_join(&g->usage[r].rate, &debt->rate[r], 1, now);
	debt->role = role;
	g->n_role_debts++;
}

/* What it still owes is left to the ghost. */
static void
end(DtGroup *g, DtRoleDebt *debt, int64 now)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&g->usage[r].rate, &debt->rate[r], 0, now);
	debt->role = InvalidOid;
	g->n_role_debts--;
}

/* End the accounts that have repaid. */
static void
end_repaid(DtGroup *g, int64 now)
{
	int			i;

	for (i = 0; i < DT_ROLE_DEBTS && g->n_role_debts > 0; i++)
		if (OidIsValid(g->role_debts[i].role) &&
			time_owed_by(g, &g->role_debts[i], now) == 0)
			end(g, &g->role_debts[i], now);
}

/*
 * A free entry or, when there is none, the one with the smallest debt if this
 * is less than "us"; its debt is left to the ghost.
 */
static DtRoleDebt *
make_room(DtGroup *g, int64 us, int64 now)
{
	DtRoleDebt *smallest = NULL;
	int			i;

	for (i = 0; i < DT_ROLE_DEBTS; i++)
	{
		DtRoleDebt *debt = &g->role_debts[i];
		int64		owed;

		if (!OidIsValid(debt->role))
			return debt;
		owed = time_owed_by(g, debt, now);
		if (owed < us)
		{
			smallest = debt;
			us = owed;
		}
	}
	if (smallest != NULL)
		end(g, smallest, now);
	return smallest;
}

/*
 * Take over what these accounts of a member, or of one who has left, owe.
 * What is not taken over they go on owing: the caller ends them.
 */
void
dt_role_debt_take(DtGroup *g, Oid role,
				  DtRateMember *const accounts[DT_RESOURCES], int64 now)
{
	int64		us = time_owed(g, accounts, now);
	DtRoleDebt *debt;
	int			r;

	end_repaid(g, now);
	if (us == 0 || !OidIsValid(role))
		return;
	debt = find(g, role);
	if (debt == NULL && (debt = make_room(g, us, now)) != NULL)
		begin(g, debt, role, now);
	for (r = 0; r < DT_RESOURCES && debt != NULL; r++)
		dt_rate_hand_over(&g->usage[r].rate, accounts[r], &debt->rate[r], now);
}

/*
 * For how long to pause until the role has repaid, us, at most 1 s; 0 when
 * that is not worth a pause or, for one who is asleep, when it has repaid.
 */
int64
dt_role_debt_pause(DtGroup *g, Oid role, bool asleep, int64 now)
{
	DtRoleDebt *debt = find(g, role);
	int64		longest = 0;
	int			r;

	if (debt == NULL)
		return 0;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &g->usage[r].rate;
		int64		pause = asleep ? dt_rate_wake(rate, &debt->rate[r], now) :
			dt_rate_charge(rate, &debt->rate[r], 0, now, 0);

		longest = Max(longest, pause);
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
		dt_rate_debt(&g->usage[resource].rate, &debt->rate[resource], now);
}

int64
dt_role_debt_time(DtGroup *g, Oid role, int64 now)
{
	DtRoleDebt *debt = find(g, role);

	return debt == NULL ? 0 : time_owed_by(g, debt, now);
}
