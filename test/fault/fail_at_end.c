/*-------------------------------------------------------------------------
 *
 * fail_at_end.c
 *		An error after the commit, when locks have been released already; for
 *		test/t/006_errors.pl, which compiles it.
 *
 * fail_at_end() sets a parameter until the end of the transaction, whose assign
 * hook then fails, as no hook must.  The transaction must have no ID: otherwise
 * that is a PANIC.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/guc.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(fail_at_end);

static bool parameter = false;

/* It comes here again when the transaction is aborted. */
static void
assign(bool newval, void *extra)
{
	static bool armed = false;
	bool		fail = armed && !newval;

	armed = newval;
	if (fail)
		elog(ERROR, "failed at the end");
}

Datum
fail_at_end(PG_FUNCTION_ARGS)
{
	DefineCustomBoolVariable("fail_at_end.on", "Fails when it is reset.", NULL,
							 &parameter, false, PGC_USERSET, 0,
							 NULL, assign, NULL);
	(void) set_config_option("fail_at_end.on", "on", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_LOCAL, true, 0, false);
	PG_RETURN_VOID();
}
