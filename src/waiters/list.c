/*-------------------------------------------------------------------------
 *
 * list.c
 *		For the view: all who wait, and the members in their way.
 *
 * This reads what a look reads, into a picture of its own, and changes nothing that a
 * look needs.  So no look waits for it, and it waits for none.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "waiters/chain.h"
#include "waiters/kinds.h"
#include "waiters/waits.h"

#include "compat.h"

static void
find_waits(DtPicture *picture)
{
	for (int i = 0; i < dt_n_processes; i++)
	{
		PGPROC	   *proc = GetPGProcByNumber(i);
		DtKind		kind = dt_kind_of(proc);

		if (kind == DT_WAITS_FOR_NOTHING || ((volatile PGPROC *) proc)->pid == 0)
			continue;
		picture->waits[picture->n_waits++] = (DtWait)
		{
			.number = i,.us = dt_kind_waited(kind, proc, dt_now_us()),.counts = true
		};
	}
}

/* A process is in the way of one that waits. */
static DtInTheWay *
in_the_way(const DtWait *wait, int number)
{
	PGPROC	   *waiter = GetPGProcByNumber(wait->number);
	PGPROC	   *holder = GetPGProcByNumber(number);
	DtWaitSlot *slot = &dt_wait_slots[number];	/* of one that is prepared */
	DtInTheWay *row = palloc0(sizeof(DtInTheWay));

	row->waiting_pid = waiter->pid;
	row->waited_us = wait->us;
	row->kind = dt_kind_name(dt_kind_of(waiter));
	row->holder = number;
	if (dt_is_prepared(number))
	{
		row->prepared_xid = holder->xid;
		row->prepared_by = holder->roleId;
		row->prepared_is_known = slot->prepared_xid == holder->xid;
		row->prepared_in = row->prepared_is_known ? slot->prepared_in : 0;
	}
	return row;
}

/* For whom does this process wait?  Adds to a list, and empties the picture. */
static List *
list_in_the_way(List *list, DtPicture *picture, const DtWait *wait)
{
	int			waiter = dt_node_of(GetPGProcByNumber(wait->number));

	dt_chain_begin(picture, wait, dt_now_us());
	dt_chain_walk(picture, wait);
	for (int i = 0; i < picture->n_used; i++)
	{
		int			number = picture->used[i];

		if (!dt_behind_is_empty(&picture->nodes[number].behind) &&
			number != waiter &&
			(dt_is_prepared(number) || (number < dt_shared->n_members &&
										dt_members[number].group != NULL)))
			list = lappend(list, in_the_way(wait, number));
	}
	dt_picture_clear(picture, false);
	return list;
}

List *
dt_waiters_list(void)
{
	void	   *memory = palloc(dt_picture_size());
	List	   *list = NIL;
	DtPicture	picture;

	dt_picture_init(&picture, memory);
	dt_picture_clear(&picture, true);
	find_waits(&picture);
	dt_kind_begin_walk(&picture);
	for (int i = 0; i < picture.n_waits; i++)
	{
		CHECK_FOR_INTERRUPTS();
		list = list_in_the_way(list, &picture, &picture.waits[i]);
	}
	pfree(memory);
	return list;
}
