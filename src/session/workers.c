/*-------------------------------------------------------------------------
 *
 * workers.c
 *		The shares of parallel workers in their leader's account.
 *
 * A parallel worker has no membership of its own: it charges what it uses to
 * its leader's slot as it goes, and pauses for what is owed there.  The core later
 * adds what the worker's part of the plan has used to the leader's counters, so at
 * its end the worker adds that to workers_used of the slot, in a group or not, for
 * the leader to leave out: see account.c.
 *
 * What a worker uses before and after its part of a plan, for example to set
 * hint bits in the catalogs that it reads, is charged as well, but never gets
 * into the leader's counters.  In a worker that runs no plan, but builds an
 * index or vacuums, there is no telling when that part begins: all counts as
 * part of it, so that many bytes of the leader's own are left out.
 *
 * A worker that fails adds nothing: then its leader fails, too, and leaves nothing
 * out.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "session/account.h"
#include "session/pay.h"
#include "session/workers.h"

static DtAccount *const my = &dt_account;

/* In a worker: it has not ended its part, which has begun at these counters. */
static bool runs = false;
static int64 part_begin[DT_RESOURCES];

static void
begin_part(void)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		part_begin[r] = dt_account_counter(r);
	runs = true;
}

/*
 * In a parallel worker when it starts: from now on what it uses is charged.
 * Returns whether its leader is in a group.
 */
bool
dt_worker_begins(void)
{
	bool		is_member = dt_account_follow();

	begin_part();
	for (int r = 0; r < DT_RESOURCES; r++)
		my->usage[r].charged_up_to = part_begin[r];
	return is_member;
}

/*
 * In a parallel worker, around its part of a plan: what it uses in between is
 * added to the leader's counters.  If it runs none, all is taken for that.
 */
void
dt_worker_begins_part(void)
{
	if (dt_account_has_uncharged() || !dt_account_is_known())
		dt_pay_catch_up();
	begin_part();
}

void
dt_worker_ends_part(void)
{
	dt_pay_catch_up();
	for (int r = 0; r < DT_RESOURCES && runs; r++)
		pg_atomic_fetch_add_u64(&my->slot->workers_used[r],
								dt_account_counter(r) - part_begin[r]);
	runs = false;
}

/* The transaction callback of a parallel worker: before its leader adds up. */
void
dt_worker_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PARALLEL_COMMIT)
		dt_worker_ends_part();
}

/* In the leader, around a plan.  Returns what the second one is to be given. */
int
dt_workers_begin_plan(void)
{
	int			outer = IsInParallelMode() ? my->plan_level : 0;

	dt_account_leave_workers_out();
	my->plan_level = GetCurrentTransactionNestLevel();
	return outer;
}

void
dt_workers_end_plan(int outer)
{
	my->plan_level = outer;
	dt_account_leave_workers_out();
}

/*
 * In the leader, when a transaction or subtransaction fails.  From 17 on a function of
 * a running parallel plan may have a subtransaction: then it matters only whether a
 * plan has failed that has begun in it.
 */
void
dt_workers_fail(void)
{
	int			level = GetCurrentTransactionNestLevel();

	if (IsInParallelMode())
	{
		if (my->plan_level < level)
			return;
		my->plan_level = level - 1;
	}
	else
		my->plan_level = 0;
	if (dt_account_has_workers())
		dt_account_fail_workers();
}
