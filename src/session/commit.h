/*-------------------------------------------------------------------------
 *
 * commit.h
 *		The safe point after a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMMIT_H
#define DT_COMMIT_H

extern void dt_commit_init(void);
extern bool dt_commit_needed;
extern void dt_commit_toggle(void);

/*
 * A session that is in no group unregisters the callback, as the server calls
 * it several times for each transaction.
 */
static inline void
dt_commit_need(bool needed)
{
	if (unlikely(needed != dt_commit_needed))
		dt_commit_toggle();
}

/* The transaction is being prepared: no pause follows its end. */
extern void dt_commit_note_prepare(void);

/* A command of the client begins, which may be a COMMIT. */
extern void dt_commit_note_command(const PlannedStmt *pstmt, const char *source);

/* After a transaction that parallel workers of this apply worker have applied. */
extern void dt_commit_for_workers(void);

#endif							/* DT_COMMIT_H */
