/*-------------------------------------------------------------------------
 *
 * commits.h
 *		How many commits of outsiders there were, and how long they took.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMMITS_H
#define DT_COMMITS_H

#include "shared/shmem.h"

extern void dt_commits_follow(void);
extern void dt_commits_note_leaving(const DtGroup *g);
extern void dt_commits_sum(int64 *commits, int64 *us, int64 *waiting);

#endif							/* DT_COMMITS_H */
