/*-------------------------------------------------------------------------
 *
 * holder.h
 *		Who holds the lock for which a batch has waited too long?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HOLDER_H
#define DT_HOLDER_H

#include "batch/store.h"

/* A batch begins: it has waited for nothing yet. */
extern void dt_holder_forget(void);

/* lock_timeout ends a wait: for which lock?  May be called in a signal handler. */
extern void dt_holder_note_lock(void);

/* After the error of that, and before its transaction is aborted: for which row? */
extern void dt_holder_note_row(void);

/*
 * In the next transaction: a sentence that says who holds the lock, palloc'd, or NULL if
 * none was noted or nobody holds it any more.  Each lock is described once.
 */
extern char *dt_holder_describe(const DtJob *job);

#endif							/* DT_HOLDER_H */
