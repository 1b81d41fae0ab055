/*-------------------------------------------------------------------------
 *
 * holder.h
 *		Who holds the lock for which a batch has waited in vain?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HOLDER_H
#define DT_HOLDER_H

#include "batch/store.h"

/* lock_timeout ends a wait: for what?  May be called in a signal handler. */
extern void dt_holder_note(void);

/* The same, after the error, and before the transaction is aborted: for which row? */
extern void dt_holder_note_row(void);

extern void dt_holder_forget(void);

/*
 * A sentence about who holds that, if anybody still does, or NULL; a row of the job's
 * table is named by its key.  In a transaction.
 */
extern char *dt_holder_describe(const DtJob *job);

#endif							/* DT_HOLDER_H */
