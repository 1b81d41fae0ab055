/*-------------------------------------------------------------------------
 *
 * pace.h
 *		The safe points.
 *
 * pace_commit.c has the one after a transaction, pace_rows.c those between two
 * rows, pace_interrupt.c those at checks for interrupts, and hooks.c those
 * before a transaction and between its statements.  They tell transaction.c
 * where the session is; it decides whether to pause there.  pace_vacuum.c
 * tells which VACUUM must not pause.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PACE_H
#define DT_PACE_H

#include "executor/execdesc.h"

/*
 * After a transaction.  A session that is in no group unregisters the
 * callback, as the server calls it several times for each transaction.
 */
extern void dt_pace_commit_init(void);
extern bool dt_pace_commit_needed;
extern void dt_pace_commit_toggle(void);

static inline void
dt_pace_commit_need(bool needed)
{
	if (unlikely(needed != dt_pace_commit_needed))
		dt_pace_commit_toggle();
}

/* Between two rows: make a plan pace, unless it does already. */
extern void dt_pace_rows_of(QueryDesc *queryDesc);

/*
 * At a check for interrupts, anywhere; called by interrupt.c.  And does the
 * timer of live.c request that?
 */
extern void dt_pace_at_check(void);
extern bool dt_pace_wants_check(int64 owed_us);

/*
 * The failsafe of VACUUM may have reported this WARNING; to be called after a
 * VACUUM, also after an error.  The third tells whether this process runs a
 * VACUUM, or autovacuum, that is so urgent that it must not be slowed down.
 */
extern void dt_pace_vacuum_note_warning(const ErrorData *warning);
extern void dt_pace_vacuum_end(void);
extern bool dt_pace_vacuum_is_urgent(void);

#endif							/* DT_PACE_H */
