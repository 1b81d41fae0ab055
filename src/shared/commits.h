/*-------------------------------------------------------------------------
 *
 * commits.h
 *		How long commits of others take.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMMITS_H
#define DT_COMMITS_H

#include "shared/shmem.h"

extern void dt_commits_follow(void);
extern void dt_commits_note_leaving(const DtGroup *g);
extern void dt_commits_read(bool anew, DtCommits *commits, int64 *waiting);

#endif							/* DT_COMMITS_H */
