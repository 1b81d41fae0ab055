/*-------------------------------------------------------------------------
 *
 * notify.c
 *		Does a session that listens hold back the queue of notifications?
 *
 * It reads the queue only while it waits for a command, so not in a pause.  When
 * the queue is full, NOTIFY fails for the whole server; so from a half on, where
 * the server begins to warn, the session is in the way of others.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "clock.h"
#include "commands/async.h"
#include "utils/fmgrprotos.h"
#include "waiters/waiters.h"

#define FULL		0.5

/* How often to ask: that takes a lock which every NOTIFY takes. */
#define LOOK_US		INT64CONST(1000000)

/*
 * A session that does not listen, or has read all that there is for it, has nothing
 * pending, and asks no more than that.
 */
bool
dt_waiters_notify_queue_is_full(void)
{
	static int64 next_look = 0;
	static bool is_full = false;
	int64		now;

	if (!notifyInterruptPending)
		return false;
	now = dt_now_us();
	if (now >= next_look)
	{
		next_look = now + LOOK_US;
		is_full = DatumGetFloat8(DirectFunctionCall1(pg_notification_queue_usage,
													 (Datum) 0)) >= FULL;
	}
	return is_full;
}
