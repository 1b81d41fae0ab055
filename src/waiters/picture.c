/*-------------------------------------------------------------------------
 *
 * picture.c
 *		What a look sees: who waits, and who waits behind whom.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/twophase.h"
#include "miscadmin.h"
#include "storage/shmem.h"
#include "waiters/picture.h"

#include "compat.h"

int			dt_n_processes;
int			dt_n_slots;

/* Of the server that has just started. */
void
dt_picture_count_slots(void)
{
	dt_n_processes = MaxBackends + NUM_AUXILIARY_PROCS;
	dt_n_slots = dt_n_processes + max_prepared_xacts;
}

/* How much memory the arrays take. */
Size
dt_picture_size(void)
{
	return mul_size(dt_n_slots, sizeof(DtNode) + sizeof(DtWait) + 4 * sizeof(int));
}

/* A picture whose arrays are there, and have anything in them. */
void
dt_picture_init(DtPicture *picture, void *memory)
{
	memset(picture, 0, sizeof(*picture));
	picture->nodes = memory;
	picture->waits = (DtWait *) (picture->nodes + dt_n_slots);
	picture->stack = (int *) (picture->waits + dt_n_slots);
	picture->used = picture->stack + dt_n_slots;
	picture->prepared = picture->used + dt_n_slots;
	picture->pids = picture->prepared + dt_n_slots;
}

/* Empty the nodes that are in use, or all of them. */
void
dt_picture_clear(DtPicture *picture, bool all)
{
	int			n = all ? dt_n_slots : picture->n_used;

	for (int i = 0; i < n; i++)
	{
		DtNode	   *node = &picture->nodes[all ? i : picture->used[i]];

		memset(node, 0, sizeof(DtNode));
		node->behind = DT_NOBODY_BEHIND;
		node->own = DT_NO_WAITS;
	}
	picture->n_used = picture->n_prepared = picture->n_stack = 0;
}

/* The node is not empty any more. */
void
dt_picture_use(DtPicture *picture, int number)
{
	if (picture->nodes[number].is_used)
		return;
	picture->nodes[number].is_used = true;
	picture->used[picture->n_used++] = number;
	if (dt_is_prepared(number))
		picture->prepared[picture->n_prepared++] = number;
}

/* The node is to be walked. */
void
dt_picture_push(DtPicture *picture, int number)
{
	if (picture->nodes[number].on_stack)
		return;
	picture->nodes[number].on_stack = true;
	picture->stack[picture->n_stack++] = number;
}

/* Those wait behind the process with that number. */
void
dt_picture_put_behind(DtPicture *picture, int number, const DtBehind *behind)
{
	DtNode	   *node = &picture->nodes[number];

	if (!dt_behind_add_all(&node->behind, behind))
		return;
	node->changes++;
	dt_picture_use(picture, number);
	dt_picture_push(picture, number);
}
