/*-------------------------------------------------------------------------
 *
 * member.h
 *		Who is a member of which group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MEMBER_H
#define DT_MEMBER_H

#include "group.h"

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
	bool		listens;		/* to DT_MOVED_SIGNAL */
	bool		moved;			/* by set_session_group() */
	uint32		entries;		/* how often it was put in a group */
	uint32		releases;		/* how often it was put in no group */

	/* guarded by group->lock */
	DtMemberUse use[DT_RESOURCES];
	DtPauseStats stats;			/* since it joined */
	int			sleepers;		/* processes asleep: the session, its workers */
	DtPauseCause paused_by;
	int64		paused_since_us;	/* since when any of them is; monotonic */
	TimestampTz paused_since;	/* the same for people */
} DtMember;

/* This process's slot; for a parallel worker its leader's. */
extern DtMember *dt_member_mine(void);
extern DtMember *dt_member_leader(void);

/*
 * From now on, until the process exits, others may move this session; if it
 * listens, they send DT_MOVED_SIGNAL when they do.
 */
extern void dt_member_publish(DtMember *member, bool listens);
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
 * End a membership, under the group's lock; "unbilled" bytes are charged.  It
 * does not wake anybody.
 */
extern void dt_member_leave(DtMember *member,
							const int64 unbilled[DT_RESOURCES], int64 now);

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
