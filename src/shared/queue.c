/*-------------------------------------------------------------------------
 *
 * queue.c
 *		Jobs in batches that run, or wait for a background worker.
 *
 * An entry is made by the COMMIT that starts a job, and is gone with the worker that
 * runs it, however that ends; after a crash all are gone.  So nothing that has crashed
 * seems to run, and nothing is stored that would have to be corrected.
 *
 * Batches take half of the server's background workers at most.  What has to wait is
 * started by the worker of the sampler, which needs no database for that.
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
		!entry->launched ? DT_QUEUE_WAITS :
		entry->pid == 0 ? DT_QUEUE_STARTS : DT_QUEUE_RUNS;
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

/* The one that has waited longest, or NULL if none waits.  Counts the others. */
static DtQueued *
find_next(int *launched)
{
	DtQueued   *next = NULL;

	*launched = 0;
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtQueued   *entry = &dt_queue[i];

		if (entry->launched)
			(*launched)++;
		else if (OidIsValid(entry->database) &&
				 (next == NULL || entry->since < next->since))
			next = entry;
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

	entry->launched = RegisterDynamicBackgroundWorker(&worker, NULL);
	return entry->launched;
}

/* The same, with the lock. */
static bool
launch_locked(void)
{
	int			launched;
	DtQueued   *next;

	while ((next = find_next(&launched)) != NULL &&
		   launched < dt_queue_most() && launch(next))
		;
	return next != NULL;
}

bool
dt_queue_is_full(void)
{
	int			launched;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	(void) find_next(&launched);
	LWLockRelease(dt_shared->registry_lock);
	return launched >= dt_queue_most();
}

bool
dt_queue_launch(void)
{
	bool		waits;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	waits = launch_locked();
	LWLockRelease(dt_shared->registry_lock);
	return waits;
}

void
dt_queue_add(const DtQueued *job)
{
	bool		waits;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (find(job->job) == NULL)
	{
		for (int i = 0; i < dt_shared->n_members; i++)
		{
			if (OidIsValid(dt_queue[i].database))
				continue;
			dt_queue[i] = *job;
			dt_queue[i].since = dt_now_us();
			break;
		}
	}
	waits = launch_locked();
	LWLockRelease(dt_shared->registry_lock);
	if (waits)
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
	if (state == DT_QUEUE_RUNS)
	{
		entry->stop = true;
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
	if (entry->launched && entry->pid == 0)
	{
		entry->pid = MyProcPid;
		mine = entry;
		*job = *entry;
		on_shmem_exit(leave, (Datum) 0);
	}
	LWLockRelease(dt_shared->registry_lock);
	return mine != NULL;
}

bool
dt_queue_is_to_stop(void)
{
	return mine != NULL && mine->stop;
}
