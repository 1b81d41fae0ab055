/*-------------------------------------------------------------------------
 *
 * pace_vacuum.c
 *		A vacuum that nobody may slow down.
 *
 * VACUUM and ANALYZE pause at their checks for interrupts, as all commands do,
 * beside the naps that vacuum_cost_delay makes them take.  Those against
 * wraparound do not, nor does one that has come to its failsafe.
 *
 * Release 15 tells that only by switching the user's naps off.  So there a
 * member that has none gets some that are shorter than can be slept.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/vacuum.h"
#include "miscadmin.h"
#include "pace.h"
#include "storage/proc.h"

#include "compat.h"

/* ms; pg_usleep() gets 0 us for it. */
#define NO_NAP		1e-9

static bool has_no_naps = false;	/* of the user's own */
static bool was_urgent = false; /* and at its end holds what all others need */

void
dt_pace_vacuum_begin(void)
{
	if (!DT_FAILSAFE_ENDS_NAPS || VacuumCostDelay > 0)
		return;
	has_no_naps = true;
	VacuumCostDelay = NO_NAP;
}

void
dt_pace_vacuum_end(void)
{
	if (has_no_naps)
		VacuumCostDelay = 0;
	has_no_naps = was_urgent = false;
}

bool
dt_pace_vacuum_is_urgent(void)
{
	/* a parallel worker's failsafe is its leader's */
	if (VacuumFailsafeActive && MyBackendType == B_BACKEND)
		was_urgent = true;
	return was_urgent || VacuumFailsafeActive ||
		(MyProc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND) != 0;
}
