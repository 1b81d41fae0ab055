/*-------------------------------------------------------------------------
 *
 * commits.h
 *		How many commits of outsiders there were, and how long they took.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMMITS_H
#define DT_COMMITS_H

extern void dt_commits_follow(void);
extern void dt_commits_sum(int64 *commits, int64 *us);

#endif							/* DT_COMMITS_H */
