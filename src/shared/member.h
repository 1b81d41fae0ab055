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

/* From now on set_session_group() can move this session, or with 0 no longer. */
extern void dt_member_publish(DtMember *member, int pid);

/* With the registry lock: put one that is in no group into g. */
extern void dt_member_join(DtMember *member, DtGroup *g);

/*
 * End a membership, with the group locked, and leave the debt to the role; see
 * role_debt.c.  to_none: the session is in no group then.  Does not wake
 * sleepers.  Returns in what time the group earns what the role owes then, us,
 * or 0 when the member has left no debt that anybody waits for.
 */
extern int64 dt_member_leave(DtMember *member, bool to_none, int64 now);

/*
 * With g, its group, locked: the member is to wait there before its first
 * statement for what its role has left.
 */
extern void dt_member_wait_for_role(DtMember *member, DtGroup *g);

/*
 * Lock the creditor.  NULL when there is none, or it was dropped.
 * dt_member_forget_creditor(): the session does not pause any more for what it
 * has left there.
 */
extern DtGroup *dt_member_lock_creditor(DtMember *member);
extern void dt_member_forget_creditor(DtMember *member);

/* With g locked: add n to a counter of the member and of g. */
extern void dt_member_count(DtMember *member, DtGroup *g, DtCounter counter,
							int64 n);

/*
 * With g locked: a process of the member (the session or a parallel worker) is
 * in a pause for g, or wakes up.  The first that falls asleep begins the
 * member's pause, and the last that wakes up ends it.  wall_clock: since when
 * the process pauses, for one that is to be counted; 0: it is a part of the
 * last one.
 */
extern void dt_member_pauses(DtMember *member, DtGroup *g, DtPauseCause cause,
							 bool falls_asleep, int64 now,
							 TimestampTz wall_clock);
extern void dt_member_wakes_up(DtMember *member, DtGroup *g, int64 now);

/*
 * With its group locked: the member goes on without pausing, as the process with
 * that ID waits for it.  To be called again and again while that is so, and with
 * 0 when nobody waits any more.
 */
extern void dt_member_note_release(DtMember *member, DtGroup *g, int pid,
								   int64 now, TimestampTz wall_clock);

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

#endif							/* DT_MEMBER_H */
