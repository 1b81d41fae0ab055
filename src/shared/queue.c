/*-------------------------------------------------------------------------
 *
 * queue.c
 *		Jobs in batches that run, or wait for a background worker.
 *
 * The transaction that starts a job takes an entry before it commits, which is then in
 * force, and is gone with the worker that runs the job, however that ends; after a crash
 * all are gone.  So nothing that has crashed seems to run, and nothing is stored that
 * would have to be corrected.
 *
 * Batches take half of the server's background workers at most, and one role all of
 * these but one.  What has to wait is started by the worker of the sampler, which needs
 * no database for that; the role with the fewest running jobs is the next one.  The postmaster forgets
 * a worker that it could not fork, so one that does not come is started again.
 *
 * The array is in shared memory, guarded by the registry lock.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "shared/queue.h"
#include "storage/ipc.h"
#include "storage/proc.h"

#include "compat.h"

/* A worker that has not come after this time is started again, us. */
#define LAUNCH_AGAIN_US		INT64CONST(5000000)

/* The entry of this process, if it is a worker that runs a job. */
static DtQueued *mine = NULL;

int
dt_queue_most(void)
{
	return Max(max_worker_processes / 2, 1);
}

/* The entry of a job of this database, or NULL; with the lock. */
static DtQueued *
find(Oid job)
{
	for (int i = 0; i < dt_shared->n_members; i++)
		if (dt_queue[i].database == MyDatabaseId && dt_queue[i].job == job)
			return &dt_queue[i];
	return NULL;
}

static DtQueueState
state_of(const DtQueued *entry)
{
	return entry == NULL ? DT_QUEUE_ABSENT :
		entry->launched_us == 0 ? DT_QUEUE_WAITS :
		entry->pid == 0 ? DT_QUEUE_STARTS :
		entry->stops > 0 ? DT_QUEUE_ENDS : DT_QUEUE_RUNS;
}

DtQueueState
dt_queue_find(Oid job, int *pid)
{
	DtQueued   *entry;
	DtQueueState state;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	entry = find(job);
	state = state_of(entry);
	if (pid != NULL)
		*pid = entry ? entry->pid : 0;
	LWLockRelease(dt_shared->registry_lock);
	return state;
}

DtQueueState
dt_queue_wait_for(Oid job)
{
	DtQueued   *entry;
	DtQueueState state;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	entry = find(job);
	state = state_of(entry);
	if (entry != NULL)
		entry->waiter = MyProcNumber + 1;
	LWLockRelease(dt_shared->registry_lock);
	return state;
}

/* How many workers of this user, or of all with an invalid one, run or were launched? */
static int
count_launched(Oid login)
{
	int			n = 0;

	for (int i = 0; i < dt_shared->n_members; i++)
		if (dt_queue[i].launched_us != 0 &&
			(!OidIsValid(login) || dt_queue[i].login == login))
			n++;
	return n;
}

/* May one more of this user be launched?  No user takes the last place of all. */
static bool
has_place(Oid login)
{
	int			free = dt_queue_most() - count_launched(InvalidOid);

	return free > 1 || (free == 1 && count_launched(login) == 0);
}

static bool
waits(const DtQueued *entry)
{
	return entry->since != 0 && entry->pid == 0 &&
		(entry->launched_us == 0 ||
		 dt_now_us() - entry->launched_us > LAUNCH_AGAIN_US);
}

/*
 * The one that may be launched next, or NULL.  One whose worker has not come has its
 * place already.
 */
static DtQueued *
find_next(void)
{
	DtQueued   *next = NULL;
	int			least = 0;

	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtQueued   *entry = &dt_queue[i];
		int			n;

		if (!waits(entry))
			continue;
		if (entry->launched_us != 0)
			return entry;
		if (!has_place(entry->login))
			continue;
		n = count_launched(entry->login);
		if (next == NULL || n < least || (n == least && entry->since < next->since))
		{
			next = entry;
			least = n;
		}
	}
	return next;
}

static bool
launch(DtQueued *entry)
{
	BackgroundWorker worker = {
		.bgw_name = "dirty_throttle batches",
		.bgw_type = "dirty_throttle batches",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION |
		DT_BGWORKER_INTERRUPTIBLE,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "dirty_throttle",
		.bgw_function_name = "dt_batches_main",
		.bgw_main_arg = Int32GetDatum(entry - dt_queue)
	};

	if (!RegisterDynamicBackgroundWorker(&worker, NULL))
		return false;
	entry->launched_us = dt_now_us();
	return true;
}

/* With the lock. */
static bool
launch_all(void)
{
	DtQueued   *next;

	while ((next = find_next()) != NULL && launch(next))
		;
	for (int i = 0; i < dt_shared->n_members; i++)
		if (dt_queue[i].since != 0 && dt_queue[i].pid == 0)
			return true;
	return false;
}

bool
dt_queue_launch(void)
{
	bool		some_wait;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	some_wait = launch_all();
	LWLockRelease(dt_shared->registry_lock);
	return some_wait;
}

bool
dt_queue_is_full(Oid login)
{
	bool		full;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	full = !has_place(login);
	LWLockRelease(dt_shared->registry_lock);
	return full;
}

bool
dt_queue_reserve(const DtQueued *job)
{
	bool		found;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	found = find(job->job) != NULL;
	for (int i = 0; i < dt_shared->n_members && !found; i++)
	{
		if (OidIsValid(dt_queue[i].database))
			continue;
		dt_queue[i] = *job;
		found = true;
	}
	LWLockRelease(dt_shared->registry_lock);
	return found;
}

void
dt_queue_settle(Oid job, bool committed)
{
	DtQueued   *entry;
	bool		some_wait;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	entry = find(job);
	if (entry != NULL && entry->since == 0)
	{
		if (committed)
			entry->since = dt_now_us();
		else
			memset(entry, 0, sizeof(DtQueued));
	}
	some_wait = launch_all();
	LWLockRelease(dt_shared->registry_lock);
	if (some_wait)
		dt_sampler_wake();
}

DtQueueState
dt_queue_stop(Oid job)
{
	DtQueued   *entry;
	DtQueueState state;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	entry = find(job);
	state = state_of(entry);
	if (state >= DT_QUEUE_RUNS)
	{
		entry->stops++;
		/* its handler ends a pause; see worker.c */
		(void) kill(entry->pid, SIGINT);
	}
	else if (state != DT_QUEUE_ABSENT)
		memset(entry, 0, sizeof(DtQueued));
	LWLockRelease(dt_shared->registry_lock);
	return state;
}

static void
leave(int code, Datum arg)
{
	int			waiter;

	LWLockReleaseAll();			/* SIGTERM may end a worker that holds one */
	/* nor may it queue for one then */
	dt_lock_unqueued(dt_shared->registry_lock, LW_EXCLUSIVE);
	waiter = mine->waiter;
	memset(mine, 0, sizeof(DtQueued));
	LWLockRelease(dt_shared->registry_lock);
	if (waiter > 0)
		SetLatch(&GetPGProcByNumber(waiter - 1)->procLatch);
	dt_sampler_wake();
}

bool
dt_queue_begin(int number, DtQueued *job)
{
	DtQueued   *entry = &dt_queue[number];

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (entry->launched_us != 0 && entry->pid == 0)
	{
		entry->pid = MyProcPid;
		mine = entry;
		*job = *entry;
		on_shmem_exit(leave, (Datum) 0);
	}
	LWLockRelease(dt_shared->registry_lock);
	return mine != NULL;
}

int
dt_queue_stops(void)
{
	return mine != NULL ? mine->stops : 0;
}
