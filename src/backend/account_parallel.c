/*-------------------------------------------------------------------------
 *
 * account_parallel.c
 *		The shares of parallel workers in their leader's account.
 *
 * A parallel worker has no membership of its own: it charges what it uses to
 * its leader's slot, and pauses for what is owed there.  The core later adds
 * what the worker's part of the plan has used to the leader's counters.  The
 * leader must not charge that a second time, so at its end the worker adds what
 * it has charged for that part to "charged_by_workers" in the slot (under the
 * lock of the group), and the leader's charges leave that much out.
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
#include "backend/account_internal.h"
#include "backend/account_parallel.h"

/* Workers use less than half of this before their work, in bytes. */
#define FEW_BYTES			(32 * (int64) BLCKSZ)

static void
begin_run(void)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		my->usage[r].charged_up_to = dt_account_counter(r);
		my->usage[r].worker_used = 0;
	}
	my->worker_runs = true;
}

void
dt_account_begin_worker(void)
{
	(void) dt_account_lock_and_follow();
	begin_run();
}

void
dt_account_lock_and_begin_worker_run(void)
{
	int64		owed_us;

	if (dt_account_has_used() &&
		dt_account_lock_and_charge(true, &owed_us) > 0)
		dt_account_charge_at_next_safe_point();
	begin_run();
}

void
dt_account_lock_and_end_worker_run(void)
{
	int64		owed_us;

	(void) dt_account_lock_and_charge(true, &owed_us);
	my->worker_runs = false;
}

/*
 * A worker that ends without an error hands over what it has charged before
 * its leader adds up.  While somebody else moves the session from one group to
 * another, it is in none; the registry lock keeps that from happening here,
 * where the leader would charge all of it again.
 */
void
dt_account_worker_event(XactEvent event, void *arg)
{
	bool		had_no_plan = my->worker_runs;
	DtGroup    *g;
	int64		now;
	int			r;

	if (event != XACT_EVENT_PARALLEL_COMMIT)
		return;
	dt_account_lock_and_end_worker_run();
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	if ((g = dt_account_lock(NULL, &now)) != NULL)
	{
		my->slot->workers_have_no_plan = had_no_plan;
		for (r = 0; r < DT_RESOURCES; r++)
		{
			my->slot->usage[r].charged_by_workers += my->usage[r].worker_used;
			my->usage[r].worker_used = 0;
		}
		dt_account_unlock(g);
	}
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * While it is much less than what they have charged in a command, it is the
 * leader's own: the core adds all of theirs in one go.
 */
int64
dt_account_take_workers_part_locked(int resource, int64 bytes)
{
	int64	   *charged = &my->slot->usage[resource].charged_by_workers;
	int64		theirs = Min(*charged, bytes);

	if (my->slot->workers_have_no_plan && *charged > FEW_BYTES &&
		bytes < *charged / 2)
		theirs = 0;
	*charged -= theirs;
	return theirs;
}

static pg_noinline void
skip_workers(void)
{
	int64		owed_us;

	if (dt_account_lock_and_charge(true, &owed_us) > 0)
		dt_account_charge_at_next_safe_point();
}

void
dt_account_lock_and_skip_workers(void)
{
	if (dt_account_workers_have_charged())
		skip_workers();
}

/*
 * First a charge, as if all of it were in the leader's counter.  When the
 * query has failed before the workers' counters were added, what the leader
 * itself has used since its last charge passes for theirs, and is not
 * charged.
 */
static pg_noinline void
forget_workers(void)
{
	DtGroup    *g;
	int64		now;
	int			r;

	skip_workers();

	/* no worker is left that could write it */
	if (!dt_account_workers_have_charged() || (g = dt_account_lock(NULL, &now)) == NULL)
		return;
	for (r = 0; r < DT_RESOURCES; r++)
		my->slot->usage[r].charged_by_workers = 0;
	dt_account_unlock(g);
}

void
dt_account_lock_and_forget_workers(void)
{
	if (dt_account_workers_have_charged())
		forget_workers();
}
