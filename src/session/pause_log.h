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

/* Is there nothing to be logged, or forgotten? */
static inline bool
dt_pause_log_is_empty(void)
{
	return (dt_account.slot->xact.stats[DT_PAUSES] |
			dt_account.slot->xact.stats[DT_OBSERVED_US] |
			dt_account.slot->xact.stats[DT_RELEASES]) == 0;
}

extern void dt_pause_log_report(int log_min_pause);

/*
 * After the pause that follows the transaction, if there is one: log its
 * pauses if they took so long, in ms, unless that is -1, and forget them.  To
 * be called where nothing is held; interrupts are not served, and an ERROR is
 * not thrown.
 */
static inline void
dt_pause_log_end(int log_min_pause)
{
	if (dt_pause_log_is_empty())
		return;
	if (log_min_pause >= 0)
		dt_pause_log_report(log_min_pause);
	memset(&dt_account.slot->xact, 0, sizeof(dt_account.slot->xact));
}

#endif							/* DT_PAUSE_LOG_H */
