/*-------------------------------------------------------------------------
 *
 * tell.h
 *		What the user and the server log are told of a job.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TELL_H
#define DT_TELL_H

#include "batch/job.h"

/* How much of it is done, in percent; negative: that is not known. */
extern double dt_tell_percent(const DtJob *job);

/* In how many seconds it is done at its present rate; negative: not known. */
extern double dt_tell_seconds_left(const DtJob *job);

/* Instead of running it. */
extern void dt_tell_plan(const DtRun *run);

/* It begins; it goes on; it has ended; it had finished before. */
extern void dt_tell_begin(const DtRun *run);
extern void dt_tell_progress(const DtRun *run);
extern void dt_tell_end(const DtRun *run);
extern void dt_tell_nothing_to_do(const DtRun *run);
extern void dt_tell_failure(const DtRun *run);

/* A batch of "keys" keys has changed "rows" rows, which are more. */
extern void dt_tell_too_many(const DtRun *run, int64 rows, int64 keys);

#endif							/* DT_TELL_H */
