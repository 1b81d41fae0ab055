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
 * dt_account_charge_live().  The timeout runs while a member executes a
 * statement, and not while it is idle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "account.h"
#include "live.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#define LIVE_CHARGE_MS	100

static TimeoutId live_timeout = MAX_TIMEOUTS;	/* not registered */

static void
charge_live(void)
{
	int64		blocks;

	(void) dt_account_charge_live(&blocks);
}

void
dt_live_start(void)
{
	/* the postmaster's registrations would not have survived the fork */
	if (live_timeout == MAX_TIMEOUTS)
		live_timeout = RegisterTimeout(USER_TIMEOUT, charge_live);
	enable_timeout_every(live_timeout,
						 TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													 LIVE_CHARGE_MS),
						 LIVE_CHARGE_MS);
}

void
dt_live_stop(void)
{
	if (live_timeout != MAX_TIMEOUTS)
		disable_timeout(live_timeout, false);
}
