/*-------------------------------------------------------------------------
 *
 * interrupt_later.c
 *		Interrupts that come into pauses; for test/t/077_interrupted_pauses.pl,
 *		which compiles it.
 *
 * interrupt_later(ms) requests one of a kind that dirty_throttle does not know for
 * that time: the core ends the session, as if it had been idle for
 * idle_in_transaction_session_timeout.  It comes along with one to look at the
 * client.
 *
 * messages_at_checks(): from now on a parallel worker's message is there whenever
 * a check for interrupts begins that dirty_throttle has requested.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(interrupt_later);
PG_FUNCTION_INFO_V1(messages_at_checks);

static TimeoutId timer = MAX_TIMEOUTS;
static emit_log_hook_type next = NULL;

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

static void
message_comes(ErrorData *message)
{
	if (message->funcname &&
		strcmp(message->funcname, "ProcessLogMemoryContextInterrupt") == 0)
	{
		ParallelMessagePending = true;
		InterruptPending = true;
	}
	if (next)
		next(message);
}

Datum
messages_at_checks(PG_FUNCTION_ARGS)
{
	next = emit_log_hook;
	emit_log_hook = message_comes;
	PG_RETURN_VOID();
}
