/*-------------------------------------------------------------------------
 *
 * dirty_throttle.c
 *		Module magic and set-up: what is installed, in which order.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "pace.h"
#include "pause.h"
#include "storage/ipc.h"

#include "compat.h"

PG_MODULE_MAGIC;

static shmem_request_hook_type next_shmem_request = NULL;
static shmem_startup_hook_type next_shmem_startup = NULL;

void		_PG_init(void);

static void
shmem_request(void)
{
	if (next_shmem_request)
		next_shmem_request();
	dt_group_shmem_request();
}

static void
shmem_startup(void)
{
	if (next_shmem_startup)
		next_shmem_startup();
	dt_group_shmem_startup();
	dt_pause_init();
}

/*
 * Shared memory and hooks are to be had at server start only.  Loaded later,
 * say by CREATE EXTENSION, we do nothing; every function says what to do.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;

	dt_guc_init();

	next_shmem_request = shmem_request_hook;
	shmem_request_hook = shmem_request;
	next_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = shmem_startup;

	dt_statement_init();
	dt_pace_interrupt_init();
	dt_pace_commit_init();
}
