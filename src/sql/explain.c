/*-------------------------------------------------------------------------
 *
 * explain.c
 *		The option THROTTLE of EXPLAIN.
 *
 * EXPLAIN (ANALYZE, THROTTLE) shows how often and for how long the statement
 * has paused: the session and its parallel workers, in flight.  What follows
 * the transaction is not known yet.  The counters of the transaction are noted
 * when the options are read, before the statement is planned and run.  It also
 * shows how long the transaction has been until then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "sql/sql.h"

#include "compat.h"

#ifdef DT_HAS_EXPLAIN_OPTIONS

#include "access/xact.h"
#include "clock.h"
#include "commands/defrem.h"
#include "commands/explain.h"
#include "commands/explain_format.h"
#include "commands/explain_state.h"
#include "session/session.h"
#include "utils/guc.h"

/* What this EXPLAIN knows. */
typedef struct ThrottleOption
{
	bool		is_on;
	int64		before[DT_COUNTERS];	/* of the transaction, before the
										 * statement */
} ThrottleOption;

typedef struct ExplainHooks
{
	int			extension_id;
	/* the hooks that were there before */
	explain_validate_options_hook_type validate_options;
	explain_per_plan_hook_type per_plan;
} ExplainHooks;

static ExplainHooks hooks;

static void
read_option(ExplainState *es, DefElem *opt, ParseState *pstate)
{
	ThrottleOption *option = GetExplainExtensionState(es, hooks.extension_id);

	if (option == NULL)
	{
		option = palloc0(sizeof(ThrottleOption));
		SetExplainExtensionState(es, hooks.extension_id, option);
	}
	option->is_on = defGetBoolean(opt);
	memcpy(option->before, dt_account.slot->xact.stats, sizeof(option->before));
}

/*
 * auto_explain reads its options when the statement has run.  That is too late
 * for this one.
 */
pg_attribute_unused() static bool
check_parameter(const char *name, const char *value, NodeTag node)
{
	GUC_check_errmsg("EXPLAIN option %s cannot be set by a parameter",
					 "THROTTLE");
	return false;
}

static ThrottleOption *
get_option(ExplainState *es)
{
	ThrottleOption *option = GetExplainExtensionState(es, hooks.extension_id);

	return option != NULL && option->is_on ? option : NULL;
}

static void
dt_explain_validate_options(ExplainState *es, List *options,
							ParseState *pstate)
{
	if (hooks.validate_options)
		hooks.validate_options(es, options, pstate);
	if (get_option(es) != NULL && !es->analyze)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("EXPLAIN option %s requires ANALYZE", "THROTTLE")));
}

/*
 * A statement can have several plans, because of rules.  Each is shown with
 * its own pauses.
 */
static void
dt_explain_per_plan(PlannedStmt *plannedstmt, IntoClause *into,
					ExplainState *es, const char *queryString,
					ParamListInfo params, QueryEnvironment *queryEnv)
{
	ThrottleOption *option = get_option(es);
	int64	   *stats;
	int64		pauses;
	double		ms;
	double		xact_ms;
	double		xact_paused_ms;

	if (hooks.per_plan)
		hooks.per_plan(plannedstmt, into, es, queryString, params,
					   queryEnv);
	if (option == NULL)
		return;
	stats = dt_account.slot->xact.stats;
	pauses = stats[DT_PAUSES] - option->before[DT_PAUSES];
	ms = (stats[DT_PAUSED_US] - option->before[DT_PAUSED_US]) / 1000.0;
	xact_ms = dt_clock_since(GetCurrentTransactionStartTimestamp()) / 1000.0;
	xact_paused_ms = stats[DT_PAUSED_US] / 1000.0;
	memcpy(option->before, stats, sizeof(option->before));
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		ExplainIndentText(es);
		appendStringInfo(es->str,
						 "Throttle: pauses=" INT64_FORMAT " time=%.3f ms\n",
						 pauses, ms);
		ExplainIndentText(es);
		appendStringInfo(es->str, "Transaction: time=%.3f ms paused=%.3f ms\n",
						 xact_ms, xact_paused_ms);
		return;
	}
	ExplainOpenGroup("Throttle", "Throttle", true, es);
	ExplainPropertyInteger("Pauses", NULL, pauses, es);
	ExplainPropertyFloat("Pause Time", "ms", ms, 3, es);
	ExplainPropertyFloat("Transaction Time", "ms", xact_ms, 3, es);
	ExplainPropertyFloat("Transaction Pause Time", "ms", xact_paused_ms, 3, es);
	ExplainCloseGroup("Throttle", "Throttle", true, es);
}

void
dt_explain_init(void)
{
	hooks.extension_id = GetExplainExtensionId("dirty_throttle");
	RegisterExtensionExplainOption("throttle",
								   DT_EXPLAIN_HANDLERS(read_option,
													   check_parameter));
	hooks.validate_options = explain_validate_options_hook;
	explain_validate_options_hook = dt_explain_validate_options;
	hooks.per_plan = explain_per_plan_hook;
	explain_per_plan_hook = dt_explain_per_plan;
}

#else

void
dt_explain_init(void)
{
}

#endif
