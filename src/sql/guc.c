/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The table of configuration parameters.
 *
 * The variables, and the check, assign and show hooks, are in the files that
 * the parameters are about.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "backend/blockers.h"
#include "backend/live.h"
#include "backend/session.h"
#include "backend/transaction.h"
#include "sql/guc.h"
#include "utils/guc.h"

void
dt_guc_init(void)
{
	DefineCustomStringVariable("dirty_throttle.group",
							   "Sets the resource group of the session.",
							   "All sessions of a group share its limits. An empty string means that the session is not throttled. Set it per role or database to throttle a workload, or grant SET on it to let a role choose. In SQL the name is written dirty_throttle.\"group\".",
							   &dt_group_name,
							   "",
							   PGC_SUSET,
							   GUC_NOT_IN_SAMPLE,
							   dt_check_group,
							   dt_assign_group,
							   dt_show_group);

	DefineCustomStringVariable("dirty_throttle.autovacuum_group",
							   "Sets the resource group of autovacuum workers.",
							   "An empty string means that they are not throttled, whatever dirty_throttle.group is set to for their database. A vacuum to prevent wraparound is never throttled.",
							   &dt_autovacuum_group,
							   "",
							   PGC_SIGHUP,
							   0,
							   dt_check_background_group,
							   NULL,
							   NULL);

	DefineCustomStringVariable("dirty_throttle.apply_group",
							   "Sets the resource group of the logical replication workers of subscriptions.",
							   "An empty string means that they are not throttled. Otherwise they pause after the transactions that they apply, and send feedback to the publisher while they pause.",
							   &dt_apply_group,
							   "",
							   PGC_SIGHUP,
							   0,
							   dt_check_background_group,
							   NULL,
							   NULL);

	DefineCustomBoolVariable("dirty_throttle.enabled",
							 "Enables throttling of the members of resource groups.",
							 "Turn it off to let all sessions go on at once, for example in an emergency. What they use is still counted.",
							 &dt_enabled,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL,
							 dt_assign_enabled,
							 NULL);

	DefineCustomIntVariable("dirty_throttle.transaction_grace",
							"Sets how much a transaction may owe, in time at its group's rate, before it pauses while it runs.",
							"A transaction that owes less pays after its end, when it holds no lock. Raise it when short transactions hold locks that many sessions want; lower it for a smoother rate.",
							&dt_transaction_grace_ms,
							50,
							0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("dirty_throttle.max_commit_pause",
							"Sets the maximum duration of a pause after a transaction.",
							"What is owed beyond it is paid before the next transaction begins. Lower it when clients time out while they wait for the end of a command. 0 means to answer at once, for sessions whose clients hold locks elsewhere while they wait, as coordinators of distributed transactions do.",
							&dt_max_commit_pause_ms,
							30000,
							0, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("dirty_throttle.max_blocking_time",
							"Sets the maximum time for which a pausing member may keep sessions outside its group waiting for its locks.",
							"When a session has waited that long, the member goes on without pausing for as long as a session outside its group waits, and pays after its transaction. 0 means not to pause at all while one waits, -1 means no limit.",
							&dt_max_blocking_time_ms,
							100,
							-1, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("dirty_throttle.interrupt_pauses",
							 "Enables pauses in the middle of commands, where they check for interrupts.",
							 "When off, index builds, rewrites, VACUUM, COPY and other commands that do not return or change rows in a plan run at full speed and pay after their transactions.",
							 &dt_interrupt_pauses,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL,
							 NULL,
							 NULL);

	DefineCustomIntVariable("dirty_throttle.max_groups",
							"Sets the maximum number of resource groups.",
							"The server does not start if more groups, or more than 16 times as many grants, are defined.",
							&dt_max_groups,
							64,
							1, 10000,
							PGC_POSTMASTER,
							0,
							NULL,
							NULL,
							NULL);

	/*
	 * A parameter that has a source is assigned in each parallel worker.  So
	 * the library learns of those that run no part of a plan, too.
	 */
	SetConfigOption("dirty_throttle.group", "", PGC_POSTMASTER,
					PGC_S_DYNAMIC_DEFAULT);

	MarkGUCPrefixReserved("dirty_throttle");
}
