/*-------------------------------------------------------------------------
 *
 * commits.c
 *		How many commits of outsiders there were, and how long they took.
 *
 * What others notice of a job that writes much is that they wait for the WAL to
 * be flushed when they commit, and for synchronous standbys.  So while a group
 * follows the signal commit_latency, client sessions outside of such groups
 * measure the time from before their commit until it is done, and add it to
 * counters in shared memory, which the sampler reads.
 *
 * The callback that does so is only registered once a group follows the signal.
 * Whether one does changes with the definitions, and each process learns that
 * these have changed anyway: see load.c.
 *
 * There are several counters, or all sessions would wait for the same cache
 * line.  Commits that have begun are counted, too: while none ends, as without
 * the synchronous standby, that is no sign that nobody commits.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "shared/commits.h"
#include "shared/shmem.h"

#include "compat.h"

static struct
{
	bool		followed;		/* a group follows the signal */
	bool		registered;		/* the callback is */
	bool		was_member;		/* in this transaction, of one that does */
	bool		measuring;		/* the commit that has begun then */
	instr_time	begun;
}			my;

static bool
follows(const DtGroup *g)
{
	return g != NULL &&
		dt_definition_follows(&g->definition, DT_COMMIT_LATENCY);
}

/*
 * Is this session outside of the groups that follow the signal, and was so all
 * the time?  The threshold is read without a lock, as a moment does not matter.
 */
static bool
is_outsider(void)
{
	return !my.was_member && !follows(dt_member_mine()->group);
}

/* Does the commit that begins wait for a flush?  See RecordTransactionCommit(). */
static bool
is_flushed(void)
{
	return XactLastRecEnd != 0 && synchronous_commit > SYNCHRONOUS_COMMIT_OFF &&
		TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void
transaction_event(XactEvent event, void *arg)
{
	DtCommits  *c = &dt_shared->commits[MyProcNumber % DT_COMMIT_COUNTERS];
	instr_time	end;

	if (event == XACT_EVENT_PRE_COMMIT)
	{
		my.measuring = my.followed && is_flushed() && is_outsider();
		if (!my.measuring)
			return;
		pg_atomic_fetch_add_u64(&c->begun, 1);
		INSTR_TIME_SET_CURRENT(my.begun);
		return;
	}
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	my.was_member = false;
	if (!my.measuring)
		return;
	my.measuring = false;
	if (event == XACT_EVENT_COMMIT)
	{
		INSTR_TIME_SET_CURRENT(end);
		INSTR_TIME_SUBTRACT(end, my.begun);
		pg_atomic_fetch_add_u64(&c->n, 1);
		pg_atomic_fetch_add_u64(&c->us, INSTR_TIME_GET_MICROSEC(end));
	}
	else
		pg_atomic_fetch_sub_u64(&c->begun, 1);
}

/*
 * This session leaves a group.  What it has written in this transaction as a
 * member is flushed by its commit.
 */
void
dt_commits_note_leaving(const DtGroup *g)
{
	if (my.registered && (IsTransactionState() || IsSubTransaction()) &&
		follows(g))
		my.was_member = true;
}

/*
 * The definitions may have changed: measure commits if a group follows the
 * signal.  The callback stays, since another one may have led here, and the
 * server must not find it gone when that returns.
 */
void
dt_commits_follow(void)
{
	if (MyBackendType != B_BACKEND || !dt_shmem_available())
		return;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	my.followed = dt_shared->commits_followed;
	LWLockRelease(dt_shared->registry_lock);
	if (!my.followed || my.registered)
		return;
	RegisterXactCallback(transaction_event, NULL);
	my.registered = true;
}

/*
 * All commits until now, how long they took, and how many have begun and not
 * ended.
 */
void
dt_commits_sum(int64 *commits, int64 *us, int64 *waiting)
{
	int64		begun = 0;

	*commits = *us = 0;
	for (int i = 0; i < DT_COMMIT_COUNTERS; i++)
	{
		*commits += pg_atomic_read_u64(&dt_shared->commits[i].n);
		*us += pg_atomic_read_u64(&dt_shared->commits[i].us);
		begun += pg_atomic_read_u64(&dt_shared->commits[i].begun);
	}
	*waiting = begun - *commits;
}
