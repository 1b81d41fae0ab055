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
 * sleepers.
 */
extern void dt_member_leave(DtMember *member, bool to_none, int64 now);

/*
 * With g locked: add n to a counter of g, of the member if it is in g, and of its
 * transaction.  With NULL only to that.
 */
extern void dt_member_count(DtMember *member, DtGroup *g, DtCounter counter,
							int64 n);

/*
 * A pause of the member, or of a parallel worker of it, begins; with its group
 * locked.  And it ends, unless it has: with or without a lock.
 */
extern void dt_member_begin_pause(DtMember *member, DtPause *pause, int64 now);
extern void dt_member_end_pause(DtMember *member, DtPause *pause);

/* With the pause's group locked: a slice of it is over.  Counts it. */
extern void dt_member_count_pause(DtMember *member, DtPause *pause, int64 now);

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
 * The slot of the session with that process ID, of those that can be moved; ERROR
 * when there is none.  The caller holds the registry lock, which is released before
 * that.
 */
extern DtMember *dt_member_find(int pid);

/*
 * Put a session into a group or, with NULL, take it out of its group, on its behalf,
 * and wake it.  The caller holds the registry lock exclusively.
 */
extern void dt_member_put(DtMember *member, DtGroup *g);

/*
 * Take all members out of a group that is being dropped, and forgive what is
 * owed to it.  The caller holds the registry lock exclusively.
 */
extern void dt_member_take_out_all(DtGroup *g);

/*
 * Request a check for interrupts in another process, which need not be asleep;
 * see check.c, which serves that.  False: none can be requested there.
 */
extern bool dt_member_ask(PGPROC *proc);

/*
 * Wake all members of g, with their parallel workers, so that sleepers look at
 * their accounts again.
 */
extern void dt_member_wake_all(DtGroup *g);

#endif							/* DT_MEMBER_H */
