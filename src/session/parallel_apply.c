/*-------------------------------------------------------------------------
 *
 * parallel_apply.c
 *		Who pays for what parallel apply workers use.
 *
 * From 16 on, with streaming = parallel, the apply worker of a subscription
 * passes the changes of a large transaction on to a parallel apply worker while
 * they arrive.  When the commit arrives it waits until that worker, which it
 * leads, has committed, and then reads on.
 *
 * A parallel apply worker is a member as its leader is, and is charged for what
 * it uses.  But it cannot pay: while it pauses after its transaction, its leader
 * waits for it, and sends the publisher no feedback, and when it has finished its
 * leader may end it at once.  So it passes what it owes to its leader, which
 * pays as soon as the message with the commit is done with, as for a transaction
 * that it has applied itself, with feedback (apply.c).
 *
 * The leader runs no transaction of its own for that message.  What it does at
 * its end is to reset the memory context for messages, so a callback for that
 * is where it pays.  The worker requests a check for interrupts in its leader
 * before it lets go of the lock that the leader waits for (member.c); there the
 * leader registers the callback.
 *
 * All state is local to this process.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "replication/logicalworker.h"
#include "replication/worker_internal.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/apply.h"
#include "session/parallel_apply.h"
#include "shared/member.h"
#include "shared/shmem.h"
#include "storage/ipc.h"
#include "storage/procarray.h"

#include "compat.h"

static void leader_pays(void *arg);

static MemoryContextCallback callback = {.func = leader_pays};

static struct
{
	void		(*pay) (void);	/* NULL: no worker has ever asked this process */
	bool		registered;		/* the callback */
}			my;

bool
dt_parallel_apply_pass_debt(bool ask)
{
	PGPROC	   *leader;

	if (dt_process() != DT_APPLY || DT_APPLY_LEADER_PID == InvalidPid ||
		(leader = BackendPidGetProc(DT_APPLY_LEADER_PID)) == NULL ||
		!dt_member_of(leader)->can_be_asked ||
		!dt_account_pass_debt(dt_member_of(leader)))
		return false;
	if (ask)
		(void) dt_member_ask(leader);
	return true;
}

void
dt_parallel_apply_note_check(void (*pay) (void))
{
	if (DT_APPLY_MESSAGE_CONTEXT == NULL || my.registered ||
		DT_APPLY_LEADER_PID != InvalidPid || dt_apply_copies_table())
		return;
	my.pay = pay;
	my.registered = true;
	MemoryContextRegisterResetCallback(DT_APPLY_MESSAGE_CONTEXT, &callback);
}

/*
 * A message is done with.  In the middle of a transaction nothing is paid: that
 * comes after it.
 */
static void
leader_pays(void *arg)
{
	my.registered = false;
	if (proc_exit_inprogress || IsTransactionState())
		return;
	HOLD_INTERRUPTS();
	my.pay();
	RESUME_INTERRUPTS();
}

/*
 * Its workers set the latch of a leader whenever they have read something.  Then
 * a changed subscription has to wait until the pause is over, but a changed
 * configuration has not.
 */
bool
dt_parallel_apply_latch_counts(void)
{
	return my.pay == NULL || ConfigReloadPending;
}
