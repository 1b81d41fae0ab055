/*-------------------------------------------------------------------------
 *
 * pause_log.h
 *		A message in the server log about a transaction that has paused.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PAUSE_LOG_H
#define DT_PAUSE_LOG_H

#include "session/session.h"

/*
 * How long a transaction has taken, and for how much of that it has paused,
 * without what comes before its first statement that may write, and what follows
 * it.  Of a command with several transactions, all of them.
 */
typedef struct DtXactTimes
{
	int64		us;
	int64		paused_us;
	int64		before_us;		/* pauses that these do not have */
} DtXactTimes;

/* Have pauses made the transaction so long that it is always logged? */
static inline bool
dt_pause_log_is_long(const DtXactTimes *times)
{
	return times->paused_us > 60 * USECS_PER_SEC &&
		times->paused_us > times->us / 10 * 9;
}

/* Is there nothing to be logged, or forgotten? */
static inline bool
dt_pause_log_is_empty(void)
{
	return (dt_account.slot->xact.stats[DT_PAUSES] |
			dt_account.slot->xact.stats[DT_OBSERVED_US] |
			dt_account.slot->xact.stats[DT_RELEASES]) == 0;
}

/* A command has ended that has paused nowhere. */
static inline void
dt_pause_log_forget_times(DtXactTimes *times)
{
	times->us = times->before_us = 0;
}

extern void dt_pause_log_report(int log_min_pause, const DtXactTimes *times);

/*
 * After the pause that follows the transaction, if there is one: log its
 * pauses if they took so long, in ms, unless that is -1, and forget them, and
 * its times.  To be called where nothing is held; interrupts are not served,
 * and an ERROR is not thrown.
 */
static inline void
dt_pause_log_end(int log_min_pause, DtXactTimes *times)
{
	if (!dt_pause_log_is_empty())
	{
		if (log_min_pause >= 0 || dt_pause_log_is_long(times))
			dt_pause_log_report(log_min_pause, times);
		memset(&dt_account.slot->xact, 0, sizeof(dt_account.slot->xact));
	}
	dt_pause_log_forget_times(times);
}

#endif							/* DT_PAUSE_LOG_H */
