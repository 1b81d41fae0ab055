/*-------------------------------------------------------------------------
 *
 * dirty_throttle.c
 *		Module magic and set-up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pace/hooks.h"
#include "pressure/sampler.h"
#include "registry/load.h"
#include "sql/explain.h"
#include "sql/guc.h"

#include "compat.h"

PG_MODULE_MAGIC_EXT(
					.name = "dirty_throttle",
					.version = DT_VERSION
);

void		_PG_init(void);

/*
 * Shared memory and hooks can be had at server start only.  When the library
 * is loaded later, for example by CREATE EXTENSION, it does nothing, and every
 * function says how to load it.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	dt_clock_init();
	dt_guc_init();
	dt_hooks_install();
	dt_explain_init();
	dt_load_init();
	dt_sampler_init();
}
