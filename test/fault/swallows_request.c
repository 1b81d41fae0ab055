/*-------------------------------------------------------------------------
 *
 * swallows_request.c
 *		Another extension whose shmem_request_hook does not call the one before
 *		it; for test/t/012_no_preload_max_groups.pl, which compiles it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static void
request(void)
{
}

void
_PG_init(void)
{
	shmem_request_hook = request;
}
