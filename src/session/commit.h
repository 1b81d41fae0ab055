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

/* A command of the client begins, which may be a COMMIT. */
extern void dt_commit_note_command(const PlannedStmt *pstmt, const char *source);

/* After a transaction that parallel workers of this apply worker have applied. */
extern void dt_commit_for_workers(void);

#endif							/* DT_COMMIT_H */
