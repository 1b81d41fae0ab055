/*-------------------------------------------------------------------------
 *
 * waits.c
 *		Shared memory for those who wait, and those they wait for.
 *
 * All of its size is known at server start, so a look allocates nothing.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "waiters/waits.h"

#include "compat.h"

#define AREA	"dirty_throttle waits"

int			dt_n_processes;
int			dt_n_slots;
DtWaitsShared *dt_waits = NULL;
DtWaitSlot *dt_wait_slots;
DtNode	   *dt_nodes;
DtWait	   *dt_wait_list;
int		   *dt_stack;
int		   *dt_used;
int		   *dt_prepared;
int		   *dt_pids;

/* Prepared transactions come behind all processes. */
static void
count_slots(void)
{
	dt_n_processes = MaxBackends + NUM_AUXILIARY_PROCS;
	dt_n_slots = dt_n_processes + max_prepared_xacts;
}

static Size
area_size(void)
{
	Size		each = sizeof(DtWaitSlot) + sizeof(DtNode) + sizeof(DtWait) +
		4 * sizeof(int);

	return add_size(MAXALIGN(sizeof(DtWaitsShared)),
					mul_size(dt_n_slots, each));
}

/* Request shared memory. */
void
dt_waiters_shmem_request(void)
{
	count_slots();
	RequestAddinShmemSpace(area_size());
	RequestNamedLWLockTranche(AREA, 1);
}

/* Divide it up. */
static void
find_arrays(void)
{
	dt_wait_slots = (DtWaitSlot *) ((char *) dt_waits +
									MAXALIGN(sizeof(DtWaitsShared)));
	dt_nodes = (DtNode *) (dt_wait_slots + dt_n_slots);
	dt_wait_list = (DtWait *) (dt_nodes + dt_n_slots);
	dt_stack = (int *) (dt_wait_list + dt_n_slots);
	dt_used = dt_stack + dt_n_slots;
	dt_prepared = dt_used + dt_n_slots;
	dt_pids = dt_prepared + dt_n_slots;
}

/* Attach to it, or set it up. */
void
dt_waiters_shmem_startup(void)
{
	bool		found;

	count_slots();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dt_waits = ShmemInitStruct(AREA, area_size(), &found);
	find_arrays();
	if (!found)
	{
		memset(dt_waits, 0, area_size());
		for (int role = 0; role < DT_ROLES; role++)
			pg_atomic_init_u32(&dt_waits->roles[role], 0);
		pg_atomic_init_u32(&dt_waits->n_asleep, 0);
		pg_atomic_init_u64(&dt_waits->looked_at, 0);
		pg_atomic_init_u64(&dt_waits->began_at, 0);
		dt_waits->look_lock = &GetNamedLWLockTranche(AREA)->lock;
		dt_waits->is_in_use = true; /* the nodes are to be emptied */
	}
	LWLockRelease(AddinShmemInitLock);
}
