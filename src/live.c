/*-------------------------------------------------------------------------
 *
 * live.c
 *		Charging while a command runs.
 *
 * Many commands dirty a lot without passing a safe point: building an index,
 * rewriting a table, a scan that rejects all it reads, a C function.  They
 * cannot be paused there, but they are charged ten times a second, so that the
 * views show it, the other members make room at once, and the next safe point
 * knows what is owed.
 *
 * The charge is made in the handler of a timeout, that is of a signal; see
 * dt_account_charge_live().  To set a timer is not cheap, so one that was set
 * for a statement is left to the next one; it is not set again when it finds
 * the session idle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "account.h"
#include "live.h"
#include "utils/timeout.h"

#define LIVE_CHARGE_MS	100

static TimeoutId live_timeout = MAX_TIMEOUTS;	/* not registered */
static volatile sig_atomic_t running = 0;	/* a statement that is charged */

static void
charge_live(void)
{
	int64		threshold[DT_RESOURCES];

	if (!running)
		return;
	(void) dt_account_charge_live(threshold);
	enable_timeout_after(live_timeout, LIVE_CHARGE_MS);
}

void
dt_live_start(void)
{
	running = 1;
	/* the postmaster's registrations would not have survived the fork */
	if (live_timeout == MAX_TIMEOUTS)
		live_timeout = RegisterTimeout(USER_TIMEOUT, charge_live);
	/* it may have expired meanwhile, or an error may have disabled it */
	if (!get_timeout_active(live_timeout))
		enable_timeout_after(live_timeout, LIVE_CHARGE_MS);
}

void
dt_live_stop(void)
{
	running = 0;
}
