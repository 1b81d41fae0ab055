/*-------------------------------------------------------------------------
 *
 * session.h
 *		The resource group of this process.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SESSION_H
#define DT_SESSION_H

#include "session/account.h"
#include "shared/load.h"
#include "utils/guc.h"

/* States of a process in which hooks may concern it, also in no group. */
#define DT_UNATTACHED	0x1		/* it has not called dt_session_attach() yet */
#define DT_WANTS_GROUP	0x2		/* its parameter names a group */

/* A set of these flags.  Other files only read it. */
extern int	dt_session_state;

/*
 * May this session be in a group, or want one, or may definitions have changed,
 * or has a transaction of a member begun?  A session for which this is false does
 * little more than this test in a hook.
 */
static inline bool
dt_session_active(void)
{
	return unlikely((dt_session_state | dt_xact.phase) != 0 ||
					dt_account_is_member() || dt_load_may_be_due);
}

/* Check, assign and show hooks. */
extern bool dt_check_background_group(char **newval, void **extra,
									  GucSource source);
extern bool dt_check_group(char **newval, void **extra, GucSource source);
extern void dt_assign_group(const char *newval, void *extra);
extern void dt_assign_interrupt_pauses(bool newval, void *extra);
extern const char *dt_show_group(void);

/*
 * For join_group(): set dirty_throttle.group of this
 * session, or with NULL reset it, although the user may lack the privilege to
 * do so; the caller has checked that the user may call the function.  ERROR
 * when there is no such group.
 */
extern void dt_session_set_parameter(const char *name);

/*
 * Others may have moved the session into a group: is it in one?  To be called
 * before it is charged there.
 */
extern bool dt_session_follow(void);

/* Has join_group() set the parameter? */
extern bool dt_session_has_joined(void);

/*
 * Attach to the slot, if that has not been done yet, so that others can put
 * this process into a group.  To be called at the latest when the first
 * transaction ends, the one in which a process starts up.
 */
extern void dt_session_attach(void);

/* The rest of the next one, for a process that is not current. */
extern bool dt_session_begin_statement_slow(void);

/*
 * A statement begins: join the group if that was not possible yet.  Returns
 * whether the session is in a group.
 */
static inline bool
dt_session_begin_statement(void)
{
	return likely(dt_account_is_current()) || dt_session_begin_statement_slow();
}

/*
 * The same for autovacuum and logical replication workers, to be called at the
 * end of each transaction: join the group that the parameter for them names.
 */
extern void dt_session_follow_background_group(void);

/*
 * A transaction has ended, and is over now.  Until then, which after an error in a
 * block takes until ROLLBACK, the session has stayed in its group, whatever value
 * the parameter got meanwhile.
 */
extern void dt_session_allow_changes(void);

#endif							/* DT_SESSION_H */
