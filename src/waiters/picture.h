/*-------------------------------------------------------------------------
 *
 * picture.h
 *		What a look sees: who waits, and who waits behind whom.
 *
 * The picture of the looks is in shared memory, as a look must not allocate any; the
 * process that has look_lock owns it.  The view makes one of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PICTURE_H
#define DT_PICTURE_H

#include "storage/proc.h"
#include "waiters/behind.h"

#include "compat.h"

/* A process or a prepared transaction; of a lock group it is the leader's. */
typedef struct DtNode
{
	DtBehind	behind;			/* who waits behind it */
	DtWaits		own;			/* and how it waits itself */
	uint32		changes;		/* of these two */
	uint32		walked;			/* as a process: after so many changes of its
								 * leader's node its wait was walked last */
	bool		on_stack;		/* to be walked */
	bool		is_used;		/* in "used" */
} DtNode;

/* A process that waits. */
typedef struct DtWait
{
	int			number;			/* its proc number */
	int64		us;				/* for how long it has waited */
	bool		counts;			/* see dt_kind_counts() */
} DtWait;

typedef struct DtPicture
{
	DtNode	   *nodes;			/* by proc number */
	DtWait	   *waits;			/* all who wait */
	int		   *stack;			/* nodes to be walked */
	int		   *used;			/* nodes that are not empty */
	int		   *prepared;		/* of these, prepared transactions */
	int		   *pids;			/* room for process IDs */
	int			n_waits;
	int			n_stack;
	int			n_used;
	int			n_prepared;
	bool		slot_is_made;	/* see kinds.c */
} DtPicture;

/* How many proc numbers there are, of processes and of all. */
extern int	dt_n_processes;
extern int	dt_n_slots;

extern void dt_picture_count_slots(void);
extern Size dt_picture_size(void);
extern void dt_picture_init(DtPicture *picture, void *memory);
extern void dt_picture_clear(DtPicture *picture, bool all);
extern void dt_picture_use(DtPicture *picture, int number);
extern void dt_picture_push(DtPicture *picture, int number);
extern void dt_picture_put_behind(DtPicture *picture, int number,
								  const DtBehind *behind);

/* Prepared transactions come behind all processes. */
static inline bool
dt_is_prepared(int number)
{
	return number >= dt_n_processes;
}

/* The number of a process or, if it is a parallel worker, of its leader. */
static inline int
dt_node_of(PGPROC *proc)
{
	PGPROC	   *leader = ((volatile PGPROC *) proc)->lockGroupLeader;

	return GetNumberFromPGProc(leader ? leader : proc);
}

#endif							/* DT_PICTURE_H */
