/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The table of configuration parameters.
 *
 * The values are in dt_parameters; the check, assign and show hooks are in the
 * files that the parameters are about.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "guc.h"
#include "session/session.h"
#include "shared/definitions.h"
#include "utils/guc.h"

void
dt_guc_init(void)
{
	DefineCustomStringVariable("dirty_throttle.group",
							   "Sets the resource group of the session.",
							   "All sessions of a group share its limits. An empty string means that the session is not throttled. Set it per role or database to throttle a workload, or grant SET on it to let a role choose. Superusers, roles with REPLICATION and members of pg_monitor are not put into a group by a value for the database, for all roles or for the server. In SQL the name is written dirty_throttle.\"group\".",
							   &dt_parameters.group, "",
							   PGC_SUSET, GUC_NOT_IN_SAMPLE,
							   dt_check_group, dt_assign_group, dt_show_group);

	DefineCustomStringVariable("dirty_throttle.autovacuum_group",
							   "Sets the resource group of autovacuum workers.",
							   "An empty string means that they are not throttled, whatever dirty_throttle.group is set to for their database. A vacuum to prevent wraparound does not pause while it runs and the server is beyond autovacuum_freeze_max_age, and its worker pauses for at most a second after each of its transactions.",
							   &dt_parameters.autovacuum_group, "",
							   PGC_SIGHUP, 0,
							   dt_check_background_group, NULL, NULL);

	DefineCustomStringVariable("dirty_throttle.apply_group",
							   "Sets the resource group of the logical replication workers of subscriptions.",
							   "An empty string means that they are not throttled. Otherwise they pause after the transactions that they apply, where possible sending feedback to the publisher, and in the initial copy of a table also while it runs.",
							   &dt_parameters.apply_group, "",
							   PGC_SIGHUP, 0,
							   dt_check_background_group, NULL, NULL);

	DefineCustomBoolVariable("dirty_throttle.enabled",
							 "Enables throttling of the members of resource groups.",
							 "Turn it off to end all pauses immediately, for example in an emergency. What sessions use is still counted.",
							 &dt_parameters.enabled, true,
							 PGC_SIGHUP, 0, NULL, dt_assign_enabled, NULL);

	DefineCustomIntVariable("dirty_throttle.transaction_grace",
							"Sets how much a transaction may owe before it pauses while it runs: as much as its group's limit allows in this time.",
							"A transaction that owes less pays after its end, when it holds no lock. Raise it when short transactions hold locks that many sessions want, or for a role whose transactions must not pause while they run, such as that of the nodes of a distributed database; lower it for a smoother rate.",
							&dt_parameters.transaction_grace, 50, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("dirty_throttle.max_commit_pause",
							"Sets the maximum duration of a pause after a transaction.",
							"It applies in a suspended group, too. What is still owed at its end is paid before the next statement that writes. Lower it when clients time out while they wait for the end of a command. 0 means to answer at once, for sessions whose clients hold locks elsewhere while they wait, as coordinators of distributed transactions do.",
							&dt_parameters.max_commit_pause, 20000, 0, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("dirty_throttle.max_blocking_time",
							"Sets the maximum time for which a pausing member may keep others waiting.",
							"When a session outside its group, or in it without debts, has waited that long, the member goes on without pausing for as long as anybody waits, and pays later. 0 means that it never pauses while such a session waits, -1 that it pauses nevertheless.",
							&dt_parameters.max_blocking_time, 100, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomIntVariable("dirty_throttle.log_min_pause",
							"Sets the minimum pause time of a transaction above which its pauses are logged.",
							"The pauses before it writes, in and after the transaction count together. 0 logs each transaction that has paused, -1 none.",
							&dt_parameters.log_min_pause, -1, -1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS, NULL, NULL, NULL);

	DefineCustomStringVariable(DT_DEFINITIONS_PARAMETER,
							   "Defines all resource groups, as a setting of role dirty_throttle.",
							   "The functions that change resource groups write it. In a session it has no value.",
							   &dt_parameters.groups, "",
							   PGC_SUSET,
							   GUC_NO_SHOW_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE,
							   dt_check_definitions, NULL, NULL);

	DefineCustomIntVariable("dirty_throttle.max_groups",
							"Sets the maximum number of resource groups and of their instances together.",
							"If more are defined, for example by a restore, some of them are not in force.",
							&dt_parameters.max_groups, 1024, 1, 10000,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);

	MarkGUCPrefixReserved("dirty_throttle");
}
