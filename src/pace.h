/*-------------------------------------------------------------------------
 *
 * pace.h
 *		The safe points: a file pace_*.c for each kind.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PACE_H
#define DT_PACE_H

#include "executor/execdesc.h"

/* Where statements begin. */
extern void dt_statement_init(void);

/*
 * After a transaction.  Is that of interest in this session from now on?  What
 * is said to those that are in no group, and have no say in it, is cheap.
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
extern void dt_pace_executor_wrap(QueryDesc *queryDesc);

/* At the checks for interrupts, wherever they are. */
extern void dt_pace_interrupt_init(void);

/*
 * Around a member's VACUUM, also after an error; and is the one that this
 * process runs so urgent that it must not be slowed down?
 */
extern void dt_pace_vacuum_begin(void);
extern void dt_pace_vacuum_end(void);
extern bool dt_pace_vacuum_is_urgent(void);

#endif							/* DT_PACE_H */
