/*-------------------------------------------------------------------------
 *
 * workers.c
 *		The shares of parallel workers in their leader's account.
 *
 * A parallel worker has no membership of its own: it charges what it uses to
 * its leader's slot, and pauses for what is owed there.  The core later adds
 * what the worker's part of the plan has used to the leader's counters.  The
 * leader must not charge that a second time, so at its end the worker adds
 * what it has charged for that part to "charged_by_workers" in the slot
 * (under the lock of the group), and the leader's charges leave that much
 * out, when gathers.c tells that it was added.
 *
 * What a worker uses before and after its part of a plan, for example to set
 * hint bits in the catalogs that it reads, is charged as well, but never gets
 * into the leader's counters.  In a worker that runs no plan, but builds an
 * index or vacuums, there is no telling when that part begins: all counts as
 * part of it.  The core adds their counters at the end of the command, long
 * after the workers have ended: a leader writes all of a B-tree meanwhile.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "session/account.h"
#include "session/node.h"
#include "session/rows.h"
#include "session/workers.h"

static DtAccount *const my = &dt_account;

/* In a worker: its part of the plan runs. */
static bool runs = false;

/* What it has charged for that; while it runs, minus the counter at its start. */
static int64 part[DT_RESOURCES];

static void
begin_run(void)
{
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		my->usage[r].charged_up_to = dt_account_counter(r);
		part[r] = -my->usage[r].charged_up_to;
	}
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

	begin_run();
	return is_member;
}

/*
 * In a parallel worker, around its part of a plan: what it uses in between is
 * added to the leader's counters.  If it runs none, all is taken for that.
 * Each charges what was used until then; so the second one may also be called
 * at the worker's exit.
 */
void
dt_worker_begins_part(void)
{
	if (dt_account_has_uncharged() || !dt_account_is_known())
		dt_account_catch_up();
	begin_run();
}

void
dt_worker_ends_part(void)
{
	dt_account_catch_up();
	for (int r = 0; r < DT_RESOURCES && runs; r++)
		part[r] += my->usage[r].charged_up_to;
	runs = false;
}

/*
 * The transaction callback of a parallel worker.
 *
 * A worker that ends without an error hands over what it has charged before
 * its leader adds up.  While somebody else moves the session from one group to
 * another, it is in none; the registry lock keeps that from happening here,
 * where the leader would charge all of it again.
 */
void
dt_worker_event(XactEvent event, void *arg)
{
	bool		had_no_plan = runs;
	DtGroup    *g;
	int64		now;

	if (event != XACT_EVENT_PARALLEL_COMMIT)
		return;
	dt_worker_ends_part();
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	if ((g = dt_account_lock(&now)) != NULL)
	{
		my->slot->workers_have_no_plan = had_no_plan;
		for (int r = 0; r < DT_RESOURCES; r++)
		{
			my->slot->usage[r].charged_by_workers += part[r];
			part[r] = 0;
		}
		dt_group_unlock(g);
	}
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * In the leader.  If its counters now include what workers have used, leave out
 * what these have charged, before anything else can happen.
 */
static void
skip(void)
{
	if (dt_account_workers_have_charged())
		dt_account_catch_up();
}

/*
 * A Gather node that is not "initialized" is going to launch workers, perhaps not
 * for the first time: what was added for those before them can still be told.
 */
static inline void
note_round(PlanState *node)
{
	if (IsA(node, GatherState) ? ((GatherState *) node)->initialized :
		((GatherMergeState *) node)->initialized)
		return;
	skip();
	dt_gathers_begin_round(node);
}

static TupleTableSlot *
gather(PlanState *node)
{
	note_round(node);
	return node->ExecProcNodeReal(node);
}

/* The same for an instrumented node. */
static TupleTableSlot *
gather_measured(PlanState *node)
{
	note_round(node);
	return dt_node_next_measured(node);
}

static void
wrap_gather(PlanState *node)
{
	check_stack_depth();		/* as the core's wrapper, which goes, would */
	dt_rows_wrap(node, gather, gather_measured);
}

void
dt_workers_begin(DtGathers *run, PlanState *top)
{
	/* the error was caught; an outer query may still have workers */
	if (dt_gathers_have_failed() && !IsInParallelMode())
		dt_workers_forget();
	dt_gathers_begin(run, top, wrap_gather);
}

void
dt_workers_end(DtGathers *run)
{
	dt_gathers_end(run);
	skip();
}

/* The nodes still tell what was added. */
void
dt_workers_fail(DtGathers *run)
{
	skip();
	dt_gathers_fail(run);
}

/*
 * When the transaction ends, or a subtransaction is rolled back: charge, and
 * forget what workers have charged if the leader's counters do not include it by
 * now.
 */
void
dt_workers_forget(void)
{
	DtGroup    *g;
	int64		now;

	skip();
	dt_gathers_forget_failure();

	/* no worker is left that could write it */
	if (!dt_account_workers_have_charged() || (g = dt_account_lock(&now)) == NULL)
		return;
	for (int r = 0; r < DT_RESOURCES; r++)
		my->slot->usage[r].charged_by_workers = 0;
	dt_group_unlock(g);
}
