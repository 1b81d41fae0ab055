/*-------------------------------------------------------------------------
 *
 * message.h
 *		Messages about a job, to the user and to the server log.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MESSAGE_H
#define DT_MESSAGE_H

#include "batch/job.h"

/* How much of it is done, in percent; negative: that is not known. */
extern double dt_message_percent(const DtJob *job);

/* In how many seconds it is done at its present rate; negative: not known. */
extern double dt_message_seconds_left(const DtJob *job);

/* The error with which it has ended, or after which a batch was tried again. */
extern char *dt_message_error(const DtJob *job);

/* What to type to go on with it, in a session as that of the start: a query. */
extern char *dt_message_start_again(const DtJob *job);

/* It begins, or would, or goes on: to the client, or without "start" to the server log. */
extern void dt_message_begin(const DtJob *job, const DtStart *start, bool dry_run);

/* To the client: the same, or what else there is to say of it. */
extern void dt_message_start(const DtStart *start, const DtJobOptions *options);
extern void dt_message_waits(const char *name);
extern void dt_message_progress(const DtJob *job);

/* It has ended: NOTICE or LOG. */
extern void dt_message_end(const DtJob *job, int elevel);

#endif							/* DT_MESSAGE_H */
