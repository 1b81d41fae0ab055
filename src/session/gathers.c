/*-------------------------------------------------------------------------
 *
 * gathers.c
 *		What the core has added to the counters of a leader.
 *
 * When the workers of a Gather or Gather Merge node have ended, the core adds
 * what they have used to the counters of the leader, all at once: when the node
 * has no more rows, is to begin again, or the plan ends.  If the query fails
 * before that, it never does.  There is no hook; but the node tells by
 * "finished" that it was done, and how much that was, as long as it is not
 * cleaned up, and that happens only after it.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/execParallel.h"
#include "executor/instrument.h"
#include "nodes/nodeFuncs.h"
#include "session/gathers.h"
#include "storage/ipc.h"

#include "compat.h"

typedef struct Entry
{
	PlanState  *node;
	bool		taken;			/* what was added in this round was found */
} Entry;

int64		dt_gathers_added[DT_RESOURCES] = {PG_INT64_MAX, PG_INT64_MAX};

static DtGathers *running = NULL;
static bool failed = false;

static ParallelExecutorInfo *
info_of(PlanState *node)
{
	return IsA(node, GatherState) ? ((GatherState *) node)->pei :
		((GatherMergeState *) node)->pei;
}

static void
add_usage(const ParallelExecutorInfo *info)
{
	for (int i = 0; i < info->pcxt->nworkers_launched; i++)
	{
		dt_gathers_added[DT_DIRTY] +=
			info->buffer_usage[i].shared_blks_dirtied * BLCKSZ;
		dt_gathers_added[DT_WAL] += info->wal_usage[i].wal_bytes;
	}
}

/*
 * Find what was added since the last call.  Returns whether this is all that
 * workers have used that have ended.
 */
static bool
look_at(List *nodes)
{
	bool		all = true;

	foreach_ptr(Entry, gather, nodes)
	{
		ParallelExecutorInfo *info = info_of(gather->node);

		if (info == NULL)
			continue;			/* not yet, or cleaned up */
		if (!info->finished)
			all = false;
		else if (!gather->taken)
		{
			add_usage(info);
			gather->taken = true;
		}
	}
	return all;
}

/* When the process exits, the nodes may be gone.  Cannot fail. */
void
dt_gathers_look(void)
{
	bool		all = !failed && !proc_exit_inprogress;

	for (int r = 0; r < DT_RESOURCES; r++)
		if (dt_gathers_added[r] == PG_INT64_MAX)
			dt_gathers_added[r] = 0;
	for (DtGathers *run = running; run && !proc_exit_inprogress; run = run->outer)
		all &= look_at(run->nodes);
	for (int r = 0; r < DT_RESOURCES && all; r++)
		dt_gathers_added[r] = PG_INT64_MAX;
}

typedef struct Walk
{
	DtGathers  *run;
	PlanState  *top;
	void		(*found) (PlanState *node);
} Walk;

static bool
find_gathers(PlanState *node, void *context)
{
	Walk	   *walk = context;

	if (IsA(node, GatherState) || IsA(node, GatherMergeState))
	{
		Entry	   *gather = palloc0(sizeof(Entry));

		gather->node = node;
		walk->run->nodes = lappend(walk->run->nodes, gather);
		if (node != walk->top)	/* which launches workers only once */
			walk->found(node);
	}
	return planstate_tree_walker(node, find_gathers, context);
}

void
dt_gathers_begin(DtGathers *run, PlanState *top, void (*found) (PlanState *node))
{
	Walk		walk = {run, top, found};

	run->nodes = NIL;
	(void) find_gathers(top, &walk);
	run->outer = running;
	running = run;
}

void
dt_gathers_begin_round(PlanState *node)
{
	for (DtGathers *run = running; run; run = run->outer)
	{
		foreach_ptr(Entry, gather, run->nodes)
		{
			if (gather->node == node)
				gather->taken = false;
		}
	}
}

void
dt_gathers_end(DtGathers *run)
{
	running = run->outer;
}

void
dt_gathers_fail(DtGathers *run)
{
	running = run->outer;
	failed = true;
}

bool
dt_gathers_have_failed(void)
{
	return failed;
}

void
dt_gathers_forget_failure(void)
{
	failed = false;
}
