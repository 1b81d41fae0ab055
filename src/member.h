/*-------------------------------------------------------------------------
 *
 * member.h
 *		Who is a member of which group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MEMBER_H
#define DT_MEMBER_H

#include <signal.h>

#include "group.h"
#include "storage/proc.h"

/* What makes a member pause. */
typedef enum DtPauseCause
{
	DT_BY_DIRTY = DT_DIRTY,		/* a limit: the resource */
	DT_BY_WAL = DT_WAL,
	DT_BY_STOP					/* pause_group() */
} DtPauseCause;

typedef struct DtMemberUse
{
	DtRateMember rate;
	int64		used;			/* since it joined, bytes */
	int64		prepaid;		/* charged by parallel workers, still to come in
								 * the leader's counter, bytes */
} DtMemberUse;

/*
 * What a session owes to a group that it has left of its own will.  "group"
 * is like that of DtMember, but only the session itself sets it.
 */
typedef struct DtDebt
{
	DtGroup    *group;			/* NULL: nothing */
	DtRateMember rate[DT_RESOURCES];	/* guarded by group->lock */
} DtDebt;

/* To so many groups.  Who owes to more stays where he is until he has paid. */
#define DT_DEBTS	4

/*
 * One session's membership, in the slot of its process.  "group" may be
 * changed by the session itself and, by set_session_group() or a forced drop,
 * by others; always under the lock of the group that it leaves or enters.
 * So anybody may read it at any time, but must look again once he holds the
 * lock of the group that he has seen.  Who makes it a member also holds the
 * registry lock, so only one does at a time.
 */
typedef struct DtMember
{
	DtGroup    *group;			/* NULL: not a member */

	/* guarded by the registry lock */
	int			pid;			/* of a session that may be moved, or 0 */
	bool		moved;			/* by set_session_group() */
	uint32		entries;		/* how often it was put in a group */
	uint32		releases;		/* how often it was put in no group */

	/*
	 * Others have waited too long: goes on without pauses, then looks again,
	 * us; 0: they have not.  Written by its own processes only.
	 */
	volatile int64 released_until;

	/* written by the process itself, but for "asked" */
	bool		pauses_at_checks;	/* for interrupts */
	volatile sig_atomic_t asked;	/* to look at its account at one */

	/* guarded by group->lock */
	DtMemberUse use[DT_RESOURCES];

	/*
	 * The same.  But while the session is in no group and pays a debt, by the
	 * lock of the debt's group.
	 */
	DtPauseStats stats;			/* since it joined */
	int			sleepers;		/* processes asleep: the session, its workers */
	DtGroup    *paused_in;		/* in whose books that is */
	DtPauseCause paused_by;
	int64		paused_since_us;	/* since when any of them is; monotonic */
	TimestampTz paused_since;	/* the same for people */

	DtDebt		debts[DT_DEBTS];
} DtMember;

/* This process's slot; and a process's, for a parallel worker its leader's. */
extern DtMember *dt_member_mine(void);
extern DtMember *dt_member_of(PGPROC *proc);

/*
 * From now on, until the process exits, others may move this session.
 */
extern void dt_member_publish(DtMember *member);
extern void dt_member_unpublish(DtMember *member);

/* Between these two nobody else changes memberships, and groups stay. */
extern void dt_member_lock(void);
extern void dt_member_unlock(void);

/*
 * Between them: make this process, which is in no group, a member of the one
 * with that id or, when there is none any more, with that name; *id is set to
 * its id.  False when there is neither.
 */
extern bool dt_member_join(DtMember *member, uint64 *id, const char *name);

/*
 * End a membership, under the group's lock; "unbilled" bytes are charged, and
 * what is owed is left to the group.  It does not wake anybody.
 */
extern void dt_member_leave(DtMember *member,
							const int64 unbilled[DT_RESOURCES], int64 now);

/*
 * The same, but what is owed becomes one of the session's debts.  False when
 * it has no room for another one: then it has been charged, and stays.
 */
extern bool dt_member_leave_owing(DtMember *member,
								  const int64 unbilled[DT_RESOURCES],
								  int64 now);

/*
 * A debt's group, locked; NULL when there is no debt (any more).
 */
extern DtGroup *dt_member_lock_debt(DtDebt *debt);

/* With its group locked: the debt is paid, or is left to the group. */
extern void dt_member_end_debt(DtMember *member, DtDebt *debt, int64 now);

/* Leave all debts to their groups. */
extern void dt_member_leave_debts(DtMember *member);

/*
 * With the group locked in whose books the pause is: a process of the member
 * falls asleep, or the last one has woken up.
 */
extern void dt_member_pause(DtMember *member, DtGroup *g, int64 now,
							TimestampTz wall_clock);
extern void dt_member_resume(DtMember *member, DtGroup *g, int64 now);

/*
 * Move the session with that process ID into a group, or out of its group when
 * name is NULL.  ERROR when there is no such session, or no such group.
 */
extern void dt_member_move(int pid, const char *name);

/* Forget that somebody has moved it: it goes its own way again. */
extern void dt_member_settle(DtMember *member);

/* Take all members out of a group that nobody can join any more. */
extern void dt_member_release_all(DtGroup *g);

/*
 * Wake all members of g and their parallel workers, so that sleepers look
 * again at what they owe.
 */
extern void dt_member_wake_all(DtGroup *g);

/* Between lock and unlock: the id of member's group, 0 when it has none. */
extern uint64 dt_member_group_id(DtMember *member);

/* The name, NAMEDATALEN bytes, of member's group; false when it has none. */
extern bool dt_member_group_name(DtMember *member, char *name);

#endif							/* DT_MEMBER_H */
