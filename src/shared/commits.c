/*-------------------------------------------------------------------------
 *
 * commits.c
 *		How long commits of others take.
 *
 * What others notice of a job that writes much is that they wait for the WAL to
 * be flushed when they commit, and for synchronous standbys.  So while a group
 * follows the signal commit_latency, client sessions outside of such groups, and
 * members of these that owe nothing, measure it: from the writing of the commit
 * record, when the server takes the time of the commit, until the transaction has
 * ended.  What comes before
 * that is not the job's doing: triggers, the emptying of temporary tables,
 * commits on foreign servers, and the lock of NOTIFY.
 *
 * Each session has a histogram in its own slot, so nobody waits for a cache line, and
 * the sampler can see to it that no session counts for too much.  Commits that have
 * begun are marked, too: while none ends, as without the synchronous standby,
 * that is no sign that nobody commits.
 *
 * The callback that does so is only registered once a group follows the signal.
 * Whether one does changes with the definitions, and each process learns that
 * these have changed anyway: see load.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "shared/commits.h"
#include "shared/shmem.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"

/* What this process does about it. */
typedef struct CommitWatch
{
	bool		followed;		/* a group follows the signal */
	bool		registered;		/* the callback is */
	bool		was_member;		/* in this transaction, of one that does */
} CommitWatch;

static CommitWatch watch;

static bool
follows(const DtGroup *g)
{
	return g != NULL &&
		dt_definition_follows(&g->definition, DT_COMMIT_LATENCY);
}

/* Does this member of g owe nothing? */
static bool
owes_nothing(DtMember *m, DtGroup *g)
{
	int64		now = dt_now_us();
	bool		result;

	dt_group_lock(g);
	result = m->group == g &&
		dt_rate_debt(&g->usage[DT_DIRTY].engine, &m->account[DT_DIRTY], now) == 0 &&
		dt_rate_debt(&g->usage[DT_WAL].engine, &m->account[DT_WAL], now) == 0;
	dt_group_unlock(g);
	return result;
}

/*
 * Is this session one of those that are to be protected: outside of the groups that
 * follow the signal, and was so all the time, or in one without a debt?  Where all
 * are in such groups, those that write little are harmed by those that write much.
 * The threshold is read without a lock, as a moment does not matter.
 */
static bool
counts(void)
{
	DtMember   *m = dt_member_mine();
	DtGroup    *g = m->group;

	return !watch.was_member && (!follows(g) || owes_nothing(m, g));
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
	DtMember   *m = dt_member_mine();

	if (event == XACT_EVENT_PRE_COMMIT)
	{
		m->commits = watch.followed && is_flushed() && counts();
		return;
	}
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT &&
		event != XACT_EVENT_PREPARE)
		return;
	watch.was_member = false;
	if (!m->commits)
		return;
	/* a clock that was set back meanwhile counts as no time */
	if (event == XACT_EVENT_COMMIT)
		m->commit_times.n[dt_latency_bucket(GetCurrentTimestamp() -
											GetCurrentTransactionStopTimestamp())]++;
	m->commits = false;
}

/*
 * This session leaves a group.  What it has written in this transaction as a
 * member is flushed by its commit.
 */
void
dt_commits_note_leaving(const DtGroup *g)
{
	if (watch.registered && (IsTransactionState() || IsSubTransaction()) &&
		follows(g))
		watch.was_member = true;
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
	watch.followed = dt_shared->commits_followed;
	LWLockRelease(dt_shared->registry_lock);
	if (!watch.followed || watch.registered)
		return;
	RegisterXactCallback(transaction_event, NULL);
	watch.registered = true;
}

/*
 * The commits of all sessions since the window began, and how many have begun and not
 * ended.  With "anew" the window begins at the call before.  For the sampler.
 */
void
dt_commits_read(bool anew, DtCommits *commits, int64 *waiting)
{
	static DtSessionCommits *then;	/* of each slot, when the window began, */
	static DtSessionCommits *since; /* since then, */
	static DtSessionCommits *last;	/* and at the last call */
	int			n = dt_shared->n_members;
	Size		size = n * sizeof(DtSessionCommits);
	bool		is_first = then == NULL;

	if (is_first)
	{
		since = MemoryContextAlloc(TopMemoryContext, size);
		then = MemoryContextAlloc(TopMemoryContext, size);
		last = MemoryContextAlloc(TopMemoryContext, size);
	}
	else if (anew)
		memcpy(then, last, size);
	*waiting = 0;
	for (int i = 0; i < n; i++)
	{
		last[i] = dt_members[i].commit_times;
		*waiting += dt_members[i].commits;
	}
	if (is_first)
		memcpy(then, last, size);
	for (int i = 0; i < n; i++)
		for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
			since[i].n[b] = last[i].n[b] - then[i].n[b];
	*commits = dt_latency_commits(since, n);
}
