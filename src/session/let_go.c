/*-------------------------------------------------------------------------
 *
 * let_go.c
 *		Does this session go on without pausing, for another one that waits for it?
 *
 * src/waiters finds whether a process has waited too long that is outside the
 * session's group or, owing nothing, in it.  Here it is decided what follows from
 * that, and counted.
 *
 * A process outside that waits for a session in a transaction lets the session run
 * to the end of its transaction, whatever that uses; what was used is paid then.  In all
 * other cases the process may wait for ever, for a lock that the session keeps between
 * its transactions for example; and a second session of the same user must not make the
 * limit go away.
 * So there a session that owes too much pauses, whatever waits.
 *
 * What is prepared can be finished only outside of a transaction, by whichever
 * session: so while a process waits for it the whole group goes on there.  So does a
 * session that listens while the queue of notifications is half full: it reads that
 * only while it waits for a command.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "session/account.h"
#include "session/let_go.h"
#include "waiters/waiters.h"

/* When others wait, the session goes on for this time before it asks again. */
#define RELEASED_US		INT64CONST(20000)

/* What the group earns in this time may be owed, and more is too much. */
#define TOO_MUCH_US		INT64CONST(30000000)

/*
 * The session may go on if it owes no more than this of the resource that takes longest,
 * in bytes, as the rate may change: what it owed the last time that it went on although
 * that was too much.  No bound if it has owed less since then; 0 if it has owed too much
 * since it came into the group.
 */
static int64 owed_before[DT_RESOURCES];
static uint32 times_joined;

/* For whom it has gone on last: whatever it owes, or whatever the group owes. */
typedef enum Bound
{
	OWN_BOUND,					/* what it owes itself must not be too much */
	GROUP_BOUND,				/* the same of what all members owe */
	NO_BOUND
} Bound;

static Bound bound = OWN_BOUND;

static bool
is_too_much(const DtDue *due)
{
	return due->owed_us >= TOO_MUCH_US ||
		(bound == GROUP_BOUND && dt_account_group_owes_us() >= TOO_MUCH_US);
}

/*
 * So that it is known that it has owed less, or that it owed too much from the beginning,
 * this looks at each charge, whether or not others wait.  Returns whether it owes too much.
 */
bool
dt_let_go_note(const DtDue *due)
{
	bool		too_much;

	if (times_joined != dt_account.times_joined)
		bound = OWN_BOUND;
	too_much = is_too_much(due);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		if (!too_much)
			owed_before[r] = PG_INT64_MAX;
		else if (times_joined != dt_account.times_joined)
			owed_before[r] = 0;
	}
	times_joined = dt_account.times_joined;
	return too_much;
}

/*
 * May the session go on that owes so much?  One that owes too much may if it has
 * paid for what it has used since the last time.  So a process that waits does so
 * for that, and not for all that is owed; and debts do not grow.  What it has taken
 * over from its role it pays first, until it does not owe too much: others may have
 * left it for this.
 */
static bool
may_go_on(const DtDue *due)
{
	bool		too_much = dt_let_go_note(due);

	if (due->owed_bytes[due->slowest] > owed_before[due->slowest])
		return false;
	if (too_much)
		memcpy(owed_before, due->owed_bytes, sizeof(owed_before));
	return true;
}

/*
 * Does the session go on that has this mark?  See above.  Where mates wait each of all
 * members may be in their way, so all together have one bound; unless it is only not
 * known who waits.
 */
static bool
goes_on(DtMark mark, int pid, bool in_flight, const DtDue *due)
{
	switch (mark)
	{
		case DT_IN_THE_WAY_OF_OUTSIDERS:
			bound = in_flight ? NO_BOUND : OWN_BOUND;
			return in_flight || may_go_on(due);
		case DT_IN_THE_WAY_OF_MATES:
			bound = pid == MyProcPid ? OWN_BOUND : GROUP_BOUND;
			return may_go_on(due);
		case DT_GROUP_HAS_PREPARED:
			bound = OWN_BOUND;
			return !in_flight && may_go_on(due);
		default:
			return false;
	}
}

bool
dt_let_go_holds(const DtDue *due)
{
	return dt_account_is_released() && (bound == NO_BOUND || !is_too_much(due));
}

bool
dt_let_go(bool in_flight, bool queue_is_full, const DtDue *due)
{
	int			pid = MyProcPid;
	DtMark		mark = queue_is_full ?
		DT_GROUP_HAS_PREPARED : dt_waiters_mark(&pid);

	if (goes_on(mark, pid, in_flight, due))
	{
		dt_account_note_release(pid);
		dt_account.slot->released_until = dt_now_us() + RELEASED_US;
		return true;
	}
	if (dt_account.slot->released_until != 0)
		dt_let_go_end();
	return false;
}

/*
 * Nobody waits any more, or the transaction is over and its locks are free.  To
 * be called where released_until is not 0.
 */
void
dt_let_go_end(void)
{
	dt_account.slot->released_until = 0;
	dt_account_note_release(0);
}
