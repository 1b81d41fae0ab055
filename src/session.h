/*-------------------------------------------------------------------------
 *
 * session.h
 *		Which resource group this backend is in.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SESSION_H
#define DT_SESSION_H

#include "debt.h"

/*
 * What dirty_throttle.group means, kept by GUC beside the name for as long as
 * the value is in use or can come back.
 */
typedef struct DtWantedGroup
{
	uint64		id;				/* 0: looked up by name when needed */
	bool		warned;			/* the user knows that it is missing */
	bool		joined;			/* by join_group() */
	bool		configured;		/* by the configuration file, or nowhere */
	bool		set_now;		/* by SET, and not assigned yet */
} DtWantedGroup;

/* Does dirty_throttle.group name a group? */
extern bool dt_session_wants_group;

/*
 * Our membership, in a parallel worker our leader's.  Before the first use, and
 * where there can be none, a slot of our own.
 */
extern DtMember *dt_session_slot;

/*
 * Does this session have a group, want one, or owe to one?  All that a session
 * without one pays is this.
 */
static inline bool
dt_session_active(void)
{
	return unlikely(dt_session_wants_group || dt_session_slot->group != NULL ||
					dt_debt_any);
}

/* Parameters: dirty_throttle.group was assigned. */
extern void dt_session_want_group(const char *name, DtWantedGroup *extra);

/* Is this a kind of process that can be in a group by its own choice? */
extern bool dt_session_may_join(void);

/*
 * The group of a process that has no settings of its own (autovacuum, logical
 * replication), '' when it is in none; NULL in other processes.
 */
extern const char *dt_session_background_group(void);

/* Has join_group() put it where it is?  Has set_session_group()? */
extern bool dt_session_has_joined(void);
extern bool dt_session_was_moved(void);

extern void dt_session_warn_unknown_group(const char *name);

/*
 * Take note of our slot, so that others can put us into a group.  Called at
 * the end of a process's first transaction, which is part of its start.
 */
extern void dt_session_attach(void);

/*
 * A change of the group waits until something has been paid: it owes to too
 * many groups.
 */
extern bool dt_session_change_waits(void);

/* A statement begins: join what is wanted if that was not possible yet. */
extern void dt_session_begin_statement(void);

/*
 * The same for a process that has no settings of its own: an apply or an
 * autovacuum worker joins the group of dirty_throttle.apply_group or
 * .autovacuum_group.  At the end of its transactions.
 */
extern void dt_session_follow_background_group(void);

/*
 * A transaction is ending and will pause: its group stays what it is, whatever
 * is assigned from now on, until the changes are released.
 */
extern void dt_session_hold_changes(void);
extern void dt_session_release_changes(void);

#endif							/* DT_SESSION_H */
