/*-------------------------------------------------------------------------
 *
 * pace_vacuum.c
 *		VACUUM that must not be slowed down.
 *
 * VACUUM and ANALYZE pause at their checks for interrupts, as all commands do,
 * in addition to the delays of vacuum_cost_delay.  An autovacuum to prevent
 * wraparound does not, nor does a VACUUM that has triggered its failsafe.
 *
 * From release 16 on a variable tells that the failsafe was triggered.  In 15
 * it ends the cost-based delay, if there is one, and reports a WARNING.  Where
 * there is no delay and log_min_messages is higher than that, it cannot be
 * seen.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pace/pace.h"
#include "storage/proc.h"

#include "compat.h"

static bool was_urgent = false; /* until the end of the command */

void
dt_pace_vacuum_note_warning(const ErrorData *warning)
{
	if (DT_FAILSAFE_WARNS && warning->funcname != NULL &&
		strcmp(warning->funcname, "lazy_check_wraparound_failsafe") == 0)
		was_urgent = true;
}

void
dt_pace_vacuum_end(void)
{
	was_urgent = false;
}

bool
dt_pace_vacuum_is_urgent(void)
{
	/* in a parallel worker the variable is the leader's, and ends with it */
	if (VacuumFailsafeActive && MyBackendType == B_BACKEND)
		was_urgent = true;
	return was_urgent || VacuumFailsafeActive ||
		(MyProc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) != 0;
}
