/*-------------------------------------------------------------------------
 *
 * role_debt.c
 *		What sessions that have left a group still owe there, by role.
 *
 * A session that leaves a group, in whatever way, leaves its debt in an account that
 * the group keeps for the role that it has logged in as: at the end of
 * the session, by SET or RESET, at the end of SET LOCAL or of a function's SET
 * clause, by join_group(NULL), or by a move.  Then the session owes nothing.
 * To the rate engine the account is a member like any other, which never uses
 * anything: it repays with the share of one member, however many have left.
 *
 * A session that joins the group takes over what its role has left there, as a debt
 * of its own.  So a client gains nothing by changing its group or connecting anew,
 * no role pays the debts of another one, and who is in no group pays nothing:
 * behind a pooler that is the next client of a connection.  An instance of a group with
 * scope role has one account at most.  Other groups keep one for each role: behind a
 * pool, a role that writes little would wait for all that another one has left.
 *
 * When several sessions of the role have left, each that joins takes over the
 * part of one of them: an equal part, or that of the one who has left most, if that is
 * much more.  So where all of them join again, as the connections of a pool do all the
 * time, each pays for one, and not the first one for all; and the one who owes most
 * does not get rid of that by having others leave that owe little.
 *
 * An account exists while something is owed, or while a suspension lasts in which a
 * session has left that had slipped (phase.c): the next one waits for its end.
 * There is a fixed number of them for all groups, and when there is no more, those
 * that have repaid are looked for in all of them; what is left when there is none
 * goes to an account of the group without a role, which nobody takes over.  So do
 * the debts of autovacuum workers and logical replication workers: the server starts
 * these by itself, so nobody can connect anew as one, and the next one would pause
 * with a table locked, or its publisher would wait for it.
 *
 * All of this is guarded by the lock of the group, which all callers hold.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "engine/arith.h"
#include "shared/role_debt.h"

/* Those that have repaid are looked for in all groups at most once in this time. */
#define FIND_APART_US	INT64CONST(1000000)

/* What is owed by an account in bytes, of all resources. */
static int64
owed(DtGroup *g, DtRateMember *account, int64 now)
{
	int64		bytes = 0;

	for (int r = 0; r < DT_RESOURCES; r++)
		bytes += dt_rate_debt(&g->usage[r].engine, &account[r], now);
	return bytes;
}

static bool
is_over(DtGroup *g, DtRoleDebt *debt, int64 now)
{
	return owed(g, debt->account, now) == 0 && !dt_slips_suspension(g, debt->slipped_in);
}

static void
end_account(DtGroup *g, DtRoleDebt *debt, int64 now)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&g->usage[r].engine, &debt->account[r], NULL, now);
	debt->n_left = 0;
	if (debt == &g->nobodys_debt)
		return;
	dlist_delete(&debt->node);
	SpinLockAcquire(&dt_shared->role_debts_lock);
	dlist_push_head(&dt_shared->free_role_debts, &debt->node);
	SpinLockRelease(&dt_shared->role_debts_lock);
}

/* The account of a role; NULL: none.  Ends those that have repaid. */
static DtRoleDebt *
find_account(DtGroup *g, Oid role, int64 now)
{
	DtRoleDebt *found = NULL;
	dlist_mutable_iter iter;

	if (g->nobodys_debt.n_left > 0 && is_over(g, &g->nobodys_debt, now))
		end_account(g, &g->nobodys_debt, now);
	dlist_foreach_modify(iter, &g->role_debts)
	{
		DtRoleDebt *debt = dlist_container(DtRoleDebt, node, iter.cur);

		if (is_over(g, debt, now))
			end_account(g, debt, now);
		else if (debt->role == role)
			found = debt;
	}
	return found;
}

static void
begin_account(DtGroup *g, DtRoleDebt *debt, Oid role, int64 now)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_join(&g->usage[r].engine, &debt->account[r], now);
	debt->role = role;
	memset(debt->left, 0, sizeof(debt->left));
	memset(debt->largest, 0, sizeof(debt->largest));
	memset(debt->slipped, 0, sizeof(debt->slipped));
	debt->slipped_in = 0;
	memset(&debt->reading, 0, sizeof(debt->reading));
}

/* An account for one more role; without one that is free, that of nobody. */
static DtRoleDebt *
add_account(DtGroup *g, Oid role, int64 now)
{
	DtRoleDebt *debt = NULL;

	SpinLockAcquire(&dt_shared->role_debts_lock);
	if (OidIsValid(role) && !dlist_is_empty(&dt_shared->free_role_debts))
		debt = dlist_container(DtRoleDebt, node,
							   dlist_pop_head_node(&dt_shared->free_role_debts));
	SpinLockRelease(&dt_shared->role_debts_lock);
	if (debt != NULL)
		dlist_push_head(&g->role_debts, &debt->node);
	else
		debt = &g->nobodys_debt;
	if (debt->n_left == 0)
		begin_account(g, debt, role, now);
	return debt;
}

/* End the account of a member that leaves. */
void
dt_role_debt_leave(DtGroup *g, DtMember *member, int64 now)
{
	DtRateMember *account = member->account;
	DtRoleDebt *heir = NULL;
	bool		slips_suspended = dt_slips_suspension(g, member->slipped_in);

	if (owed(g, account, now) > 0 || slips_suspended)
	{
		heir = find_account(g, member->role, now);
		if (heir == NULL)
			heir = add_account(g, member->role, now);
		heir->n_left++;
		if (slips_suspended)
			heir->slipped_in = member->slipped_in;
		dt_reading_add(&heir->reading, member->reading.bytes, member->reading.wal,
					   now);
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			int64		bytes = dt_rate_debt(&g->usage[r].engine, &account[r], now);

			heir->left[r] += bytes;
			heir->largest[r] = Max(heir->largest[r], bytes);
			if (member->slips)
				heir->slipped[r] += bytes;
		}
	}
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_leave(&g->usage[r].engine, &account[r],
					  heir ? &heir->account[r] : NULL, now);
}

/*
 * What one of those who have left has of what is still owed: an equal part; or that of
 * that had left most, if it had left more than twice that.
 */
static void
pass_part(DtRateGroup *engine, DtRoleDebt *debt, int r, DtRateMember *to, int64 now)
{
	int64		part = debt->left[r] / debt->n_left;
	int64		least = 0;

	if (debt->largest[r] / 2 > part)
	{
		part = debt->largest[r];
		least = muldiv64(dt_rate_debt(engine, &debt->account[r], now), part,
						 debt->left[r]);
		debt->largest[r] = 0;	/* it has joined again, as it were */
	}
	debt->left[r] -= part;
	debt->largest[r] = Min(debt->largest[r], debt->left[r]);
	dt_rate_pass_debt(engine, &debt->account[r], to, debt->n_left, least, now);
}

/* What was left by slipping is taken over first.  Is it something? */
static bool
pass_slipped(DtRoleDebt *debt, int r, int64 part)
{
	int64		slipped = Min(debt->slipped[r], part);

	debt->slipped[r] -= slipped;
	return slipped > 0;
}

/* A member joins: its account is new. */
void
dt_role_debt_take_over(DtGroup *g, DtMember *member, int64 now)
{
	DtRoleDebt *debt;

	member->slips = false;
	member->slipped_in = 0;
	memset(&member->reading, 0, sizeof(member->reading));
	if (!OidIsValid(member->role) || dlist_is_empty(&g->role_debts) ||
		(debt = find_account(g, member->role, now)) == NULL)
		return;
	if (dt_slips_suspension(g, debt->slipped_in))
		member->slipped_in = debt->slipped_in;
	member->reading = debt->reading;
	memset(&debt->reading, 0, sizeof(debt->reading));
	member->slips = member->slipped_in != 0 ||
		member->reading.bytes >= DT_READING_FREE;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		left = debt->left[r];

		pass_part(&g->usage[r].engine, debt, r, &member->account[r], now);
		member->slips |= pass_slipped(debt, r, left - debt->left[r]);
	}
	if (--debt->n_left == 0)
		end_account(g, debt, now);
}

/* The group ends: nobody owes anything to it. */
void
dt_role_debt_forget_all(DtGroup *g, int64 now)
{
	dlist_mutable_iter iter;

	if (g->nobodys_debt.n_left > 0)
		end_account(g, &g->nobodys_debt, now);
	dlist_foreach_modify(iter, &g->role_debts)
	{
		end_account(g, dlist_container(DtRoleDebt, node, iter.cur), now);
	}
}

bool
dt_role_debt_is_short(int64 now)
{
	bool		due;

	if (!dlist_is_empty(&dt_shared->free_role_debts))
		return false;			/* most often; a glance is enough */
	dt_spin_lock(&dt_shared->role_debts_lock);
	due = dlist_is_empty(&dt_shared->free_role_debts) &&
		now - dt_shared->role_debts_found_at >= FIND_APART_US;
	if (due)
		dt_shared->role_debts_found_at = now;
	dt_spin_unlock(&dt_shared->role_debts_lock);
	return due;
}

void
dt_role_debt_end_repaid(DtGroup *g, int64 now)
{
	(void) find_account(g, InvalidOid, now);
}
