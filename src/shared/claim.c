/*-------------------------------------------------------------------------
 *
 * claim.c
 *		Which session runs which job in batches.
 *
 * That a job runs is not stored: who runs it has a claim in shared memory, in
 * the slot of its process.  It ends with the CALL, with the process, or with
 * the server, however these end, so nothing that has crashed seems to run.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "shared/claim.h"
#include "storage/ipc.h"

static bool
is_same(const DtJobName *a, const DtJobName *b)
{
	return a->database == b->database && a->owner == b->owner &&
		strcmp(a->name, b->name) == 0;
}

/* The claim of who runs the job, or NULL; with the registry lock. */
static DtClaim *
find(const DtJobName *job)
{
	for (int i = 0; i < dt_shared->n_members; i++)
		if (dt_claims[i].pid != 0 && is_same(&dt_claims[i].job, job))
			return &dt_claims[i];
	return NULL;
}

static void
release_at_exit(int code, Datum arg)
{
	LWLockReleaseAll();			/* SIGTERM may end a worker that holds one */
	dt_claim_release();
}

int
dt_claim(const DtJobName *job)
{
	static bool registered = false;
	DtClaim    *claim;
	int			pid;

	if (!registered)
		on_shmem_exit(release_at_exit, (Datum) 0);
	registered = true;
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	claim = find(job);
	pid = claim ? claim->pid : 0;
	if (claim == NULL)
		dt_claims[MyProcNumber] =
			(DtClaim)
	{
		.pid = MyProcPid,.job = *job
	};
	LWLockRelease(dt_shared->registry_lock);
	return pid;
}

void
dt_claim_release(void)
{
	if (dt_claims[MyProcNumber].pid == 0)
		return;
	dt_lock_unqueued(dt_shared->registry_lock, LW_EXCLUSIVE);
	memset(&dt_claims[MyProcNumber], 0, sizeof(DtClaim));
	LWLockRelease(dt_shared->registry_lock);
}

int
dt_claim_holder(const DtJobName *job)
{
	DtClaim    *claim;
	int			pid;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	claim = find(job);
	pid = claim ? claim->pid : 0;
	LWLockRelease(dt_shared->registry_lock);
	return pid;
}

int
dt_claim_stop(const DtJobName *job)
{
	DtClaim    *claim;
	int			pid = 0;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	claim = find(job);
	if (claim != NULL)
	{
		pid = claim->pid;
		claim->stop = true;
		SetLatch(&GetPGProcByNumber(claim - dt_claims)->procLatch);
	}
	LWLockRelease(dt_shared->registry_lock);
	return pid;
}
