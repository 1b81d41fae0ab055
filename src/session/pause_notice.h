/*-------------------------------------------------------------------------
 *
 * pause_notice.h
 *		A notice to the client of a session that pauses for long.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PAUSE_NOTICE_H
#define DT_PAUSE_NOTICE_H

#include "session/account.h"

/*
 * A slice of a pause begins for what is due; the pause lasts at_most_us.  Sends a
 * notice if the pause is long and none was sent for it lately.  Never waits, and
 * never fails.
 */
extern void dt_pause_notice(const DtDue *due, int64 at_most_us);

#endif							/* DT_PAUSE_NOTICE_H */
