/*-------------------------------------------------------------------------
 *
 * interrupt_later.c
 *		An interrupt of a kind that dirty_throttle does not know; for
 *		test/t/077_interrupted_pauses.pl, which compiles it.
 *
 * interrupt_later(ms) requests it for that time: the core ends the session, as
 * if it had been idle for idle_in_transaction_session_timeout.  It comes along
 * with one to look at the client.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(interrupt_later);

static TimeoutId timer = MAX_TIMEOUTS;

static void
interrupt(void)
{
	IdleInTransactionSessionTimeoutPending = true;
	CheckClientConnectionPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

Datum
interrupt_later(PG_FUNCTION_ARGS)
{
	if (timer == MAX_TIMEOUTS)
		timer = RegisterTimeout(USER_TIMEOUT, interrupt);
	/* it would wake the session, too */
	disable_timeout(IDLE_STATS_UPDATE_TIMEOUT, false);
	enable_timeout_after(timer, PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}
