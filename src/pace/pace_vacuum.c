/*-------------------------------------------------------------------------
 *
 * pace_vacuum.c
 *		VACUUM that must not be slowed down.
 *
 * VACUUM and ANALYZE pause at their checks for interrupts, as all commands do,
 * in addition to the delays of vacuum_cost_delay.  An autovacuum to prevent
 * wraparound does not, nor does a VACUUM that has triggered its failsafe.
 *
 * In release 15 the only sign of the failsafe is that it switches the
 * cost-based delay off.  So there a member that has no delay gets one that is
 * too short to be slept.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pace/pace.h"
#include "storage/proc.h"

#include "compat.h"

/* In ms; more than 0, but pg_usleep() gets 0 us for it. */
#define TINY_DELAY		1e-9

static bool has_no_delay = false;	/* the user has set no delay */
static bool was_urgent = false; /* until the end of the command */

void
dt_pace_vacuum_begin(void)
{
	if (!DT_FAILSAFE_ENDS_DELAY || VacuumCostDelay > 0)
		return;
	has_no_delay = true;
	VacuumCostDelay = TINY_DELAY;
}

void
dt_pace_vacuum_end(void)
{
	if (has_no_delay)
		VacuumCostDelay = 0;
	has_no_delay = was_urgent = false;
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
