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

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/shmem.h"
#include "waiters/waits.h"

#include "compat.h"

#define AREA	"dirty_throttle waits"

DtWaitsShared *dt_waits = NULL;
DtWaitSlot *dt_wait_slots;
DtPicture	dt_picture;

static Size
slots_size(void)
{
	return MAXALIGN(mul_size(dt_n_slots, sizeof(DtWaitSlot)));
}

static Size
area_size(void)
{
	return add_size(MAXALIGN(sizeof(DtWaitsShared)),
					add_size(slots_size(), dt_picture_size()));
}

/* Request shared memory. */
void
dt_waiters_shmem_request(void)
{
	dt_picture_count_slots();
	RequestAddinShmemSpace(area_size());
	RequestNamedLWLockTranche(AREA, 1);
}

/* Divide it up. */
static void
find_arrays(void)
{
	char	   *memory = (char *) dt_waits + MAXALIGN(sizeof(DtWaitsShared));

	dt_wait_slots = (DtWaitSlot *) memory;
	dt_picture_init(&dt_picture, memory + slots_size());
}

/* Attach to it, or set it up. */
void
dt_waiters_shmem_startup(void)
{
	bool		found;

	dt_picture_count_slots();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	dt_waits = ShmemInitStruct(AREA, area_size(), &found);
	find_arrays();
	if (!found)
	{
		memset(dt_waits, 0, area_size());
		pg_atomic_init_u32(&dt_waits->looker, 0);
		pg_atomic_init_u32(&dt_waits->n_asleep, 0);
		pg_atomic_init_u64(&dt_waits->looked_at, 0);
		pg_atomic_init_u64(&dt_waits->began_at, 0);
		dt_waits->look_lock = &GetNamedLWLockTranche(AREA)->lock;
		dt_waits->is_in_use = true; /* the picture is to be emptied */
	}
	LWLockRelease(AddinShmemInitLock);
}
