/*-------------------------------------------------------------------------
 *
 * member.h
 *		Which session is a member of which group.
 *
 * Finding the slot of a process is in shmem.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_MEMBER_H
#define DT_MEMBER_H

#include "shared/shmem.h"

/* From now on, or no longer, set_session_group() can move this session. */
extern void dt_member_publish(DtMember *member);
extern void dt_member_unpublish(DtMember *member);

/* With the registry lock: put one that is in no group into g. */
extern void dt_member_join(DtMember *member, DtGroup *g);

/*
 * End a membership, with the group locked: charge "uncharged" bytes, the use
 * since the last charge, and leave the debt to the role; see role_debt.c.
 * Does not wake sleepers.  Returns in what time the group earns what the role
 * owes then, us, or 0 when the member has left no debt that anybody waits
 * for.
 */
extern int64 dt_member_leave(DtMember *member,
							 const int64 uncharged[DT_RESOURCES], int64 now);

/*
 * Lock the group that the session owes to, other than as a member.  NULL when
 * it owes to none, or that was dropped.  dt_member_forget_creditor(): it does
 * not pause for that any more.
 */
extern DtGroup *dt_member_lock_creditor(DtMember *member);
extern void dt_member_forget_creditor(DtMember *member);

/*
 * With g locked: a process of the member (the session or a parallel worker)
 * falls asleep, or wakes up, in a pause for g.  The first that falls asleep
 * begins the member's pause, and the last that wakes up ends it.
 * dt_member_note_cause() sets the cause of the pause that begins or goes on.
 */
extern void dt_member_note_cause(DtMember *member, DtPauseCause cause,
								 int64 now);
extern void dt_member_falls_asleep(DtMember *member, DtGroup *g, int64 now,
								   TimestampTz wall_clock);
extern void dt_member_wakes_up(DtMember *member, DtGroup *g, int64 now);

/*
 * With its group locked: the member goes on without pausing, as the process
 * with that ID waits for it; to be called again and again while that is so.
 * 0: it does not any more.
 */
extern void dt_member_note_release(DtMember *member, DtGroup *g, int pid,
								   int64 now, TimestampTz wall_clock);

/* All pauses of the member's transaction, us; only for its own processes. */
extern int64 dt_member_xact_paused_us(const DtMember *member);

/* The name of a cause, as the views and the server log have it. */
extern const char *dt_member_cause_name(DtPauseCause cause);

/*
 * Move the session with that process ID into a group, or with "" out of its
 * group.  NULL ends such a move, if there is one: the session leaves the
 * group, and its next statement joins the one that its parameter names.
 * ERROR when there is no such session, or no such group.
 */
extern void dt_member_move(int pid, const char *name);

/*
 * Take all members out of a group that is being dropped, and forgive what is
 * owed to it.  The caller holds the registry lock exclusively.
 */
extern void dt_member_take_out_all(DtGroup *g);

/*
 * Wake all members of g, with their parallel workers, and all who owe to g,
 * so that sleepers look at their accounts again; with "also_busy", also those
 * that work or wait for something else.
 */
extern void dt_member_wake_all(DtGroup *g, bool also_busy);

/* Copy the name of the member's group, NAMEDATALEN bytes; false: none. */
extern bool dt_member_group_name(DtMember *member, char *name);
extern int64 dt_member_take_workers_part(DtMember *member, DtResource resource,
										 int64 bytes);

#endif							/* DT_MEMBER_H */
