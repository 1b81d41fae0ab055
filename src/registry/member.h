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

#include "registry/shmem.h"

/* From now on, or no longer, set_session_group() can move this session. */
extern void dt_member_publish(DtMember *member);
extern void dt_member_unpublish(DtMember *member);

/*
 * With the registry lock: make this process, which is in no group, a member of
 * the group with that ID or, when that does not exist any more, of the one
 * with that name.  Sets *id to the ID of the group.  False when there is
 * neither.
 */
extern bool dt_member_join(DtMember *member, uint64 *id, const char *name);

/*
 * End a membership, with the group locked: charge "uncharged" bytes, the use
 * since the last charge, and leave the debt to the next sessions of the role;
 * see role_debt.c.  Does not wake sleepers.
 */
extern void dt_member_leave(DtMember *member,
							const int64 uncharged[DT_RESOURCES], int64 now);

/*
 * The same, but what is owed becomes one of the session's debts.  False when
 * it has DT_DEBTS already: then the bytes are charged, and it is still a
 * member.  The caller holds the registry lock, too.
 */
extern bool dt_member_leave_owing(DtMember *member,
								  const int64 uncharged[DT_RESOURCES],
								  int64 now);

/* Lock the group of a debt.  NULL when there is no debt (any more). */
extern DtGroup *dt_member_lock_debt(DtDebt *debt);

/* With its group locked: end a debt, and leave it to the role in that way. */
extern void dt_member_end_debt(DtMember *member, DtDebt *debt, int64 now);

/* The same for all debts. */
extern void dt_member_hand_over_debts(DtMember *member);

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
 * dt_member_end_release(): it does not any more.
 */
extern void dt_member_note_release(DtMember *member, DtGroup *g, int pid,
								   int64 now, TimestampTz wall_clock);
extern void dt_member_end_release(DtMember *member, DtGroup *g, int64 now);

/* All pauses of the member's transaction, us; only for its own processes. */
extern int64 dt_member_xact_paused_us(const DtMember *member);

/* The name of a cause, as the views and the server log have it. */
extern const char *dt_member_cause_name(DtPauseCause cause);

/*
 * Move the session with that process ID into a group, or out of its group when
 * name is NULL.  ERROR when there is no such session, or no such group.
 *
 * A session that was in no group does not look at its account while it runs a
 * command.  To make it do so, "ask" is called for each of its processes that
 * can pause at checks for interrupts, with the process ID and the address of
 * "asked" in the slot of that process.
 */
extern void dt_member_move(int pid, const char *name,
						   void (*ask) (int pid, volatile sig_atomic_t *asked));

/* set_session_group() does not count any more for this member. */
extern void dt_member_end_move(DtMember *member);

/*
 * Take all members out of a group that is being dropped, and forgive what is
 * owed to it.  The caller holds the registry lock exclusively.
 */
extern void dt_member_take_out_all(DtGroup *g);

/*
 * Wake all members of g, with their parallel workers, and all that owe to g,
 * so that sleepers look at their accounts again.
 */
extern void dt_member_wake_all(DtGroup *g);

/* Copy the name of the member's group, NAMEDATALEN bytes; false: none. */
extern bool dt_member_group_name(DtMember *member, char *name);

#endif							/* DT_MEMBER_H */
