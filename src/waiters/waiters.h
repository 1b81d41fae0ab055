/*-------------------------------------------------------------------------
 *
 * waiters.h
 *		Is this session in the way of somebody who has waited too long?
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

typedef enum DtMark
{
	DT_NOT_IN_THE_WAY,
	DT_GROUP_HAS_PREPARED,		/* what is in the way is a transaction that
								 * somebody of the group has prepared, and has
								 * to finish */
	DT_IN_THE_WAY_OF_MATES,		/* who are in its own group, and owe nothing */
	DT_IN_THE_WAY_OF_OUTSIDERS
} DtMark;

/* A process that waits, and a member or prepared transaction in its way. */
typedef struct DtInTheWay
{
	int			waiting_pid;
	int64		waited_us;
	const char *kind;			/* of waiting */
	int			holder;			/* its proc number */
	TransactionId prepared_xid; /* valid: it is a prepared transaction, */
	Oid			prepared_by;	/* of that role, */
	bool		prepared_is_known;	/* and of the group with that ID, */
	uint64		prepared_in;	/* or 0, if this is known */
} DtInTheWay;

/* waits.c */
extern void dt_waiters_shmem_request(void);
extern void dt_waiters_shmem_startup(void);

/* role.c: of this process */
extern void dt_waiters_attach(bool counts_as_mate);
extern void dt_waiters_detach(void);
extern int64 dt_waiters_before_slice(bool may_be_let_go, bool wakes_to_look);
extern void dt_waiters_after_pause(void);
extern DtMark dt_waiters_mark(int *waiting_pid);
extern void dt_waiters_end_transaction(void);
extern void dt_waiters_note_debt(int64 owes_until);
extern void dt_waiters_note_prepared(TransactionId xid, uint64 group_id);

/* look.c */
extern List *dt_waiters_list(void);

/* kinds.c */
extern bool dt_waiters_must_freeze(int percent);

/* held.c */
extern bool dt_waiters_extends_relation(void);
extern bool dt_waiters_has_locks(void);

#endif							/* DT_WAITERS_H */
