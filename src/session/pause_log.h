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
	return dt_account.slot->xact.stats[DT_PAUSES] == 0 &&
		dt_account.slot->xact.stats[DT_OBSERVED_US] == 0 &&
		dt_account.slot->xact.stats[DT_RELEASES] == 0;
}

/*
 * The transaction has ended.  Reads the parameter, as the end of the
 * transaction may be about to undo a SET LOCAL.  Has it paused so long, or
 * would it have in mode enforce, that there is something to be logged?
 */
extern bool dt_pause_log_note_end(void);

/*
 * After the pause that follows the transaction, if there is one: log its
 * pauses if they took so long, and forget them.  To be called where nothing is
 * held; interrupts are not served, and an ERROR is not thrown.
 */
extern void dt_pause_log_report(void);
extern void dt_pause_log_forget(void);

#endif							/* DT_PAUSE_LOG_H */
