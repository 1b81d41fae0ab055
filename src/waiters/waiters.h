/*-------------------------------------------------------------------------
 *
 * waiters.h
 *		Is this session in the way of a process that has waited too long?
 *
 * This part knows who waits for whom.  What a session owes, and whether it
 * pauses, it does not know.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WAITERS_H
#define DT_WAITERS_H

#include "nodes/pg_list.h"
#include "storage/lock.h"
#include "storage/proc.h"

typedef enum DtMark
{
	DT_NOT_IN_THE_WAY,
	DT_GROUP_HAS_PREPARED,		/* what is in the way is a transaction that a
								 * session of the group has prepared, and has
								 * to finish */
	DT_IN_THE_WAY_OF_MATES,		/* who are in its own group, and owe nothing */
	DT_IN_THE_WAY_OF_OUTSIDERS
} DtMark;

/* A process that waits, and a member or prepared transaction in its way. */
typedef struct DtInTheWay
{
	int			waiting_pid;
	int64		waited_us;		/* PG_INT64_MAX: that is not known */
	const char *kind;			/* of waiting */
	int			holder;			/* its proc number */
	TransactionId prepared_xid; /* valid: it is a prepared transaction, */
	Oid			prepared_by;	/* of that role, */
	bool		prepared_is_known;	/* and of the group with that ID, */
	uint64		prepared_in;	/* or 0, if this is known */
} DtInTheWay;

/*
 * The status flags of a process, and those of its leader: a parallel worker of
 * autovacuum, which 19 has, is as urgent as that one, and no client's.
 */
static inline uint8
dt_flags_with_leader(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return ((volatile PGPROC *) proc)->statusFlags |
		(leader != NULL ? ((volatile PGPROC *) leader)->statusFlags : 0);
}

/* waits.c */
extern void dt_waiters_shmem_request(void);
extern void dt_waiters_shmem_startup(void);

/*
 * role.c: of this process.  From the first of these two to the second, which is
 * called when it exits, it may be marked.  counts_as_mate: when it waits for a
 * member of its own group, and owes nothing, that one may be let go.
 */
extern void dt_waiters_attach(bool counts_as_mate);
extern void dt_waiters_detach(void);

/*
 * Is this session in the way of a process that has waited too long for it?  Sets
 * *waiting_pid to which one, or to the session's own process ID if nobody can
 * look.  To be asked before a pause begins and before each slice of it.  Looks if
 * the last look is too old.
 */
extern DtMark dt_waiters_mark(int *waiting_pid);

/*
 * notify.c: does this session listen, with something unread, while the queue of
 * notifications is half full?
 */
extern bool dt_waiters_notify_queue_is_full(void);

/*
 * To be called before each slice of a pause.  The process looks if it is its turn.
 * Returns how long the slice may be, us.  wakes_to_look: its latch may be set so
 * that it looks, and not only by a mark.
 */
extern int64 dt_waiters_before_slice(bool wakes_to_look);

/* When a pause is over, in whatever way it has ended; and when a transaction is. */
extern void dt_waiters_after_pause(void);
extern void dt_waiters_end_transaction(void);

/*
 * What this session owes the group with that ID, its own, that group earns up to this
 * time (us), if it earns for nobody else.  0: it owes nothing.
 */
extern void dt_waiters_note_debt(uint64 group_id, int64 owes_until);

/*
 * A transaction of this session, with that ID, was prepared.  group_id: in which
 * group, or 0.
 */
extern void dt_waiters_note_prepared(TransactionId xid, uint64 group_id);

/*
 * list.c: for the view, a list of DtInTheWay: all who wait, however long, and the members
 * and prepared transactions that are in their way
 */
extern List *dt_waiters_list(void);

/*
 * kinds.c: is the oldest transaction ID or multixact of the server older than so
 * many percent of the age at which autovacuum must freeze it?
 */
extern bool dt_waiters_must_freeze(int percent);

/*
 * held.c: does this process extend a relation?  And does it hold locks, but for
 * those that statements take on the tables that they read and write, as long as
 * nobody waits for these; and such that reading does not need?
 */
extern bool dt_waiters_extends_relation(void);
extern bool dt_waiters_has_locks(void);
extern bool dt_waiters_has_more_than_read_locks(void);

#endif							/* DT_WAITERS_H */
