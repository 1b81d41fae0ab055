/*-------------------------------------------------------------------------
 *
 * holder.h
 *		Who holds the lock for which a batch has waited in vain?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_HOLDER_H
#define DT_HOLDER_H

/* lock_timeout ends a wait: for what?  May be called in a signal handler. */
extern void dt_holder_note(void);

extern void dt_holder_forget(void);

/* A sentence about who holds that, if anybody still does, or NULL.  In a transaction. */
extern char *dt_holder_describe(void);

#endif							/* DT_HOLDER_H */
