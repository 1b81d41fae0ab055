/*-------------------------------------------------------------------------
 *
 * session.h
 *		This backend as a member of a resource group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SESSION_H
#define DT_SESSION_H

#include "executor/instrument.h"
#include "port/atomics.h"

/*
 * What dirty_throttle.group means, kept by GUC beside the name for as long as
 * the value is in use or can come back.
 */
typedef struct DtWantedGroup
{
	uint64		id;				/* 0: looked up by name when needed */
	bool		warned;			/* the user knows that it is missing */
} DtWantedGroup;

/*
 * Does this session have a group, or want one?  All that a session without
 * one pays is a look at this.
 */
extern bool dt_session_active;

/*
 * For dt_pace(): the counter value at which the next charge is due, and
 * whether the group has changed since the last one.
 */
extern int64 dt_session_next_charge;
extern uint32 dt_session_generation;
extern pg_atomic_uint32 *dt_session_group_generation;

/* Parameters: dirty_throttle.group was assigned. */
extern void dt_session_want_group(const char *name, DtWantedGroup *extra);

/* Is this a kind of process that can be in a group by its own choice? */
extern bool dt_session_may_join(void);

extern void dt_session_warn_unknown_group(const char *name);

/* A statement begins: join what is wanted if that was not possible yet. */
extern void dt_session_begin_statement(void);

/*
 * The same for a process that has no settings of its own: an apply or an
 * autovacuum worker joins the group of dirty_throttle.apply_group or
 * .autovacuum_group.  At the end of its transactions.
 */
extern void dt_session_follow_background_group(void);

/*
 * An outermost statement begins.  If it is the first of its transaction, there
 * are no locks on rows yet: pay for a pause that was evaded.  May fail, by a
 * cancel for instance.
 */
extern void dt_session_pay_before_transaction(void);

/* Is this session, or its parallel leader, a member of a group? */
extern bool dt_session_is_member(void);

/*
 * Charge from a signal handler, while a command runs that has no safe points.
 * Never waits: -1 when the account is in use, try again.  Otherwise the pause
 * that is due, in us, and in *blocks how many may be dirtied before the next
 * charge.
 */
extern int64 dt_session_charge_live(int64 *blocks);

/* Does its group have a limit that is in force? */
extern bool dt_session_is_throttled(void);

/* How long a block takes at this member's share of the rate, us. */
extern int64 dt_session_block_time(void);

/*
 * A parallel worker runs its part of the plan from .. to; then, when it ends
 * well, leaves word of what it has charged.  The leader forgets what is left
 * of that when the (sub)transaction ends.
 */
extern void dt_session_begin_worker_run(void);
extern void dt_session_end_worker_run(void);
extern void dt_session_publish_worker(void);
extern void dt_session_forget_workers(void);

/* The slow part of dt_pace(). */
extern void dt_session_pace(void);

/*
 * A safe point in flight: between two rows, with no LWLock and no critical
 * section.  Charges what was dirtied when it is worth it, and pauses when the
 * transaction owes more than the grace.  Interrupts are served while it
 * pauses, so anything that CHECK_FOR_INTERRUPTS can do can happen here.
 */
static inline void
dt_pace(void)
{
	if (unlikely(pgBufferUsage.shared_blks_dirtied >= dt_session_next_charge) ||
		unlikely(pg_atomic_read_u32(dt_session_group_generation) !=
				 dt_session_generation))
		dt_session_pace();
}

/*
 * An error goes through the executor or a utility command.  A cancel or a
 * timeout, which must not be followed by a pause, is remembered until the
 * transaction ends.  Only in a PG_CATCH block.
 */
extern void dt_session_note_error(void);

/*
 * The transaction has ended and has released its locks: charge the rest.
 * True when a pause is due and may be taken; then
 * dt_session_pause_after_transaction() must follow, and changes of the group
 * wait for it.
 */
extern bool dt_session_end_transaction(bool committed, bool may_pause);

/*
 * Pause after the transaction, without serving interrupts: ends at once when
 * there is one.  Cannot fail.
 */
extern void dt_session_pause_after_transaction(void);

#endif							/* DT_SESSION_H */
