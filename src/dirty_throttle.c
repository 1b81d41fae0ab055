/*-------------------------------------------------------------------------
 *
 * dirty_throttle.c
 *		Module magic and set-up.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "commands/extension.h"
#include "fmgr.h"
#include "guc.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "session/hooks.h"
#include "shared/load.h"
#include "sql/sql.h"

#include "compat.h"

PG_MODULE_MAGIC_EXT(
					.name = "dirty_throttle",
					.version = DT_VERSION
);

void		_PG_init(void);

/*
 * What to do when the library has come too late.  The other libraries are no
 * secret from who may create an extension.
 */
static void
warn_not_preloaded(void)
{
	const char *others = shared_preload_libraries_string;

	if (others == NULL)
		others = "";
	ereport(WARNING,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("dirty_throttle must be loaded via \"shared_preload_libraries\""),
			 errdetail("Until then nothing is throttled, and the functions and views report an error."),
			 errhint("Write shared_preload_libraries = '%s%sdirty_throttle' into postgresql.conf, and restart the server.",
					 others, others[0] == '\0' ? "" : ", ")));
}

/*
 * Shared memory and hooks can be had at server start only.  When the library
 * is loaded later, for example by CREATE EXTENSION, it does nothing, and every
 * function says how to load it.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
	{
		if (creating_extension)
			warn_not_preloaded();
		return;
	}
	dt_clock_init();
	dt_guc_init();
	dt_hooks_install();
	dt_explain_init();
	dt_load_init(DT_VERSION);
	dt_sampler_init();
}
