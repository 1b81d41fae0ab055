/*-------------------------------------------------------------------------
 *
 * session.c
 *		This backend as a member of a resource group.
 *
 * How much this backend has dirtied is pgBufferUsage.shared_blks_dirtied, the
 * counter that the core increments for each shared buffer that turns dirty.
 * What was not charged yet is the difference to "billed".  charge() hands it
 * to the group's rate engine; pause_in_flight() and
 * dt_session_pause_after_transaction() are the places where a member sleeps,
 * both on its latch, in slices of at most a second.
 *
 * Whatever is shared is in the DtMember slot and the DtGroup, under the
 * group's spinlock; the rest is local.  The group may be dropped by force at
 * any moment: then the slot's group pointer is another one under the lock,
 * and we become a session without a group.
 *
 * A parallel worker uses its leader's slot: what it dirties is charged to the
 * leader's account, and it pauses for it, too.  The leader later adds the
 * worker's counters to its own, so the worker leaves word of what is paid for
 * ("prepaid").
 *
 * A long command without safe points is charged from a timer's signal handler
 * (dt_session_charge_live), which may interrupt anything here; "busy" tells it
 * to leave the account alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "common/pg_prng.h"
#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Blocks between two looks at a group that has no limit. */
#define UNLIMITED_CHARGE_BLOCKS		1024

/*
 * The longest pause after a transaction of an apply worker, whose publisher
 * waits for feedback, and of an autovacuum worker, which keeps its table
 * locked.
 */
#define BACKGROUND_PAUSE_US			INT64CONST(1000000)

static pg_atomic_uint32 no_generation;	/* for sessions without a group */

bool		dt_session_active = false;
int64		dt_session_next_charge = PG_INT64_MAX;
uint32		dt_session_generation = 0;
pg_atomic_uint32 *dt_session_group_generation = &no_generation;

/* What dirty_throttle.group says. */
static char wanted_name[NAMEDATALEN];
static DtWantedGroup no_extra;
static DtWantedGroup *wanted = &no_extra;	/* GUC's, beside the name */
static bool wanted_changed = false; /* and not yet acted upon */
static uint64 looked_up_version = 0;	/* registry when it was missing */

/* Membership. */
static DtMember *my = NULL;		/* our slot, or our leader's */
static DtGroup *group = NULL;	/* NULL: not a member, as far as we know */
static uint64 group_id = 0;
static bool exit_registered = false;
static uint32 wait_event = 0;
static bool asleep = false;		/* counted in my->sleepers */

/* The account. */
static int64 billed = 0;		/* counter value at the last charge */
static bool owes = false;		/* the last charge asked for a pause */
static bool was_throttled = true;	/* at the last charge, if there was any */
static int64 xact_blocks = 0;	/* charged in this transaction */
static bool xact_paces = false; /* it has once owed more than the grace */
static bool xact_cancelled = false; /* by the user or a timeout */
static bool xact_ending = false;	/* a pause after it is still to come */
static bool xact_begun = false; /* its first statement, too */
static int64 carried = 0;		/* owed since earlier transactions, bytes */
static int64 last_pause_end = 0;	/* after a transaction, us */
static bool pay_first = false;	/* a pause was evaded: before the next one */
static int64 worker_blocks = 0; /* charged by us, a parallel worker */

/* The account is being worked on: hands off, signal handler. */
static volatile sig_atomic_t busy = 0;

static int64 charge(int64 *xact_owed_us);

/*
 * The group of a process that has no settings of its own; NULL in others.
 */
static const char *
background_group(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER)
		return dt_autovacuum_group;
	if (IsLogicalWorker())
		return dt_apply_group;
	return NULL;
}

bool
dt_session_may_join(void)
{
	return MyBackendType == B_BACKEND ||
		(MyBackendType == B_BG_WORKER && OidIsValid(MyDatabaseId) &&
		 !IsParallelWorker() && !IsLogicalWorker());
}

bool
dt_session_is_member(void)
{
	return group != NULL && my->group == group;
}

/*
 * The next two look at the rate without its lock: it may be a moment old.
 */
bool
dt_session_is_throttled(void)
{
	return dt_session_is_member() && group->rate.rate > 0 &&
		dt_group_throttling_enabled();
}

int64
dt_session_block_time(void)
{
	int64		rate = group != NULL ? group->rate.rate : 0;
	int64		debtors = group != NULL ? group->rate.debtor_weight : 0;

	return rate > 0 ? BLCKSZ * INT64CONST(1000000) / rate * Max(debtors, 1) : 0;
}

void
dt_session_warn_unknown_group(const char *name)
{
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist, this session is not throttled",
					name),
			 errhint("Create it with set_group_dirty_limit(), or correct the setting dirty_throttle.\"group\" of this role, database or server.")));
}

static inline void
account_lock(void)
{
	busy = 1;
	pg_compiler_barrier();
}

static inline void
account_unlock(void)
{
	pg_compiler_barrier();
	busy = 0;
}

/*
 * Local state of a session without a group.
 */
static void
forget_group(void)
{
	group = NULL;
	owes = false;
	asleep = false;
	dt_session_next_charge = PG_INT64_MAX;
	dt_session_generation = 0;
	dt_session_group_generation = &no_generation;
	dt_session_active = (wanted_name[0] != '\0');
}

/*
 * Set or clear the mark by which others see that we sleep.  Under the group's
 * lock.
 */
static void
mark_paused(int64 now, TimestampTz wall_clock)
{
	if (asleep)
		return;
	asleep = true;
	if (my->sleepers++ > 0)
		return;
	my->paused_since_us = now;
	my->paused_since = wall_clock;
	group->paused++;
}

static void
mark_running(int64 now)
{
	if (!asleep)
		return;
	asleep = false;
	if (my->sleepers == 0 || --my->sleepers > 0)
		return;
	my->paused_us += now - my->paused_since_us;
	group->paused_us += now - my->paused_since_us;
	group->paused--;
}

/*
 * Count blocks for the views.  Under the group's lock.
 */
static void
count_blocks(int64 blocks, int64 now)
{
	my->blocks_dirtied += blocks;
	group->blocks_dirtied += blocks;
	dt_meter_add(&group->meter, blocks * BLCKSZ, now);
}

/*
 * What was dirtied since the last charge and is not paid for by a parallel
 * worker.  Under the group's lock.
 */
static int64
take_unbilled(void)
{
	int64		used = pgBufferUsage.shared_blks_dirtied;
	int64		blocks = used - billed;

	billed = used;
	if (my->prepaid > 0 && !IsParallelWorker())
	{
		int64		prepaid = Min(my->prepaid, blocks);

		my->prepaid -= prepaid;
		blocks -= prepaid;
	}
	return blocks;
}

static void
leave_group(void)
{
	int64		now = dt_now_us();

	account_lock();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
	{
		int64		blocks = take_unbilled();

		mark_running(now);
		if (my->sleepers > 0)
		{
			/* our parallel workers, which have to find out themselves */
			group->paused_us += now - my->paused_since_us;
			group->paused--;
			my->sleepers = 0;
		}
		count_blocks(blocks, now);
		dt_rate_leave(&group->rate, &my->rate,
					  was_throttled && dt_group_throttling_enabled() ?
					  blocks * BLCKSZ : 0, now);
		my->group = NULL;
	}
	SpinLockRelease(&group->lock);
	forget_group();
	account_unlock();
}

/*
 * on_shmem_exit and not before_shmem_exit: the last abort comes in between,
 * and what it dirties is ours, too.
 */
static void
leave_at_exit(int code, Datum arg)
{
	if (group != NULL)
		leave_group();
}

/*
 * Local state of a member of g.
 */
static void
remember_group(DtGroup *g, uint64 id)
{
	account_lock();
	group = g;
	group_id = id;
	billed = pgBufferUsage.shared_blks_dirtied;
	owes = false;
	xact_blocks = 0;
	xact_paces = false;
	was_throttled = true;
	carried = 0;
	dt_session_active = true;
	dt_session_group_generation = &g->generation;
	dt_session_next_charge = billed;	/* the first charge sets the pace */
	account_unlock();
}

static void
join_group(uint64 id, const char *name)
{
	DtGroup    *g;

	if (!exit_registered)
	{
		on_shmem_exit(leave_at_exit, (Datum) 0);
		exit_registered = true;
		my = dt_group_my_member();
	}
	g = dt_group_join(my, &id, name);
	if (g == NULL)
		return;
	remember_group(g, id);

	/* from now on the value means this group, also when it is renamed */
	wanted->id = id;
	wanted->warned = false;
}

/*
 * Make the membership what dirty_throttle.group says.  Does not fail.
 */
static void
apply_wanted_group(void)
{
	uint64		id = wanted->id;

	wanted_changed = false;
	looked_up_version = dt_group_registry_version();
	if (id == 0 && wanted_name[0] != '\0')
		id = dt_group_lookup(wanted_name);
	if (group != NULL)
	{
		if (id != 0 && id == group_id && my->group == group)
			return;				/* as it is */
		leave_group();
	}
	if (wanted_name[0] != '\0')
		join_group(id, wanted_name);
}

/*
 * Assign hooks must not fail, and also run when a transaction ends; then what
 * it still owes is paid to the group in which it was dirtied.
 */
void
dt_session_want_group(const char *name, DtWantedGroup *extra)
{
	bool		usable = strlen(name) < NAMEDATALEN;

	if (background_group() != NULL)
		return;
	strlcpy(wanted_name, usable ? name : "", NAMEDATALEN);
	wanted = extra ? extra : &no_extra;
	looked_up_version = 0;
	wanted_changed = true;
	dt_session_active = group != NULL || wanted_name[0] != '\0';

	if (dt_group_available() && MyProc != NULL && dt_session_may_join() &&
		!xact_ending)
		apply_wanted_group();
}

/*
 * A parallel worker: what its leader is in, it is in.
 */
static void
join_leader(void)
{
	DtGroup    *g;

	my = dt_group_leader_member();
	g = my->group;
	if (g != NULL)
		remember_group(g, 0);
}

void
dt_session_begin_statement(void)
{
	if (!dt_group_available() || xact_ending)
		return;
	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("DirtyThrottle");
	if (group != NULL && my->group != group)
		forget_group();			/* dropped by force */

	if (IsParallelWorker())
	{
		if (group == NULL)
			join_leader();
		return;
	}

	/* Set where there was no shared memory yet, or missing up to now. */
	if (group == NULL && wanted_name[0] != '\0' && dt_session_may_join() &&
		(!wanted->warned ||
		 looked_up_version != dt_group_registry_version()))
	{
		apply_wanted_group();
		if (group == NULL && !wanted->warned)
		{
			wanted->warned = true;
			dt_session_warn_unknown_group(wanted_name);
		}
	}

	/* What comes now is subject to the limit as it is now. */
	if (group != NULL &&
		pg_atomic_read_u32(dt_session_group_generation) != dt_session_generation)
	{
		int64		xact_owed_us;

		(void) charge(&xact_owed_us);
	}
}

void
dt_session_follow_background_group(void)
{
	const char *name = background_group();

	if (name == NULL || !dt_group_available() || xact_ending)
		return;
	if (group != NULL && my->group != group)
		forget_group();			/* dropped by force */
	if (strcmp(name, wanted_name) != 0 ||
		(group == NULL && name[0] != '\0' &&
		 looked_up_version != dt_group_registry_version()))
	{
		strlcpy(wanted_name, name, NAMEDATALEN);
		wanted = &no_extra;
		wanted->id = 0;
		apply_wanted_group();
	}
	dt_session_active = group != NULL;
}

/*
 * Charge the group with what was dirtied since the last charge, and set when
 * the next charge is due.  Returns for how long to pause, in us.  Under the
 * group's lock, as a member; also in a signal handler.
 */
static int64
charge_locked(int64 now, double jitter)
{
	int64		blocks = take_unbilled();
	int64		threshold = UNLIMITED_CHARGE_BLOCKS;
	int64		pause = 0;
	bool		throttled = group->rate.rate > 0 &&
		dt_group_throttling_enabled();

	dt_session_generation = pg_atomic_read_u32(&group->generation);
	count_blocks(blocks, now);
	if (IsParallelWorker())
		worker_blocks += blocks;
	if (throttled)
	{
		/* nobody owes what was dirtied while there was no limit */
		int64		bill = was_throttled ? blocks * BLCKSZ : 0;

		if (carried > 0)
			carried = Min(carried, dt_rate_debt(&group->rate, &my->rate, now));
		pause = dt_rate_charge(&group->rate, &my->rate, bill, now, jitter);
		threshold = dt_rate_threshold(&group->rate, &my->rate) / BLCKSZ;
	}
	xact_blocks += blocks;
	owes = pause > 0;
	was_throttled = throttled;
	dt_session_next_charge = billed + threshold;
	return pause;
}

/*
 * The same from a place that can be a safe point.  *xact_owed_us is how much
 * of the debt is this transaction's, in time at the group's rate.
 */
static int64
charge(int64 *xact_owed_us)
{
	double		jitter = pg_prng_double(&pg_global_prng_state);
	int64		now;
	int64		pause = 0;
	int64		debt = 0;
	int64		rate = 0;
	bool		member;

	account_lock();
	now = dt_now_us();
	SpinLockAcquire(&group->lock);
	member = (my->group == group);
	if (member)
	{
		mark_running(now);		/* an error has ended the last pause */
		pause = charge_locked(now, jitter);
		rate = group->rate.rate;
		if (pause > 0)
			debt = dt_rate_debt(&group->rate, &my->rate, now);
	}
	SpinLockRelease(&group->lock);
	if (!member)
		forget_group();			/* dropped by force */
	account_unlock();

	*xact_owed_us = 0;
	if (pause > 0)
		*xact_owed_us = (double) Max(debt - carried, 0) * 1000000.0 / rate;
	return pause;
}

int64
dt_session_charge_live(int64 *blocks)
{
	int64		pause = 0;

	*blocks = UNLIMITED_CHARGE_BLOCKS;
	if (busy)
		return -1;
	if (group == NULL)
		return 0;
	/* The lock may be held by whom we interrupted: never wait for it. */
	if (TAS(&group->lock))
		return -1;
	if (my->group == group)
	{
		pause = charge_locked(dt_now_us(), 0);
		*blocks = dt_session_next_charge - billed;
		if (pause > 0)
			dt_session_next_charge = billed;	/* the next safe point pauses */
	}
	SpinLockRelease(&group->lock);
	return pause;
}

/*
 * How much longer to pause, in us, until nothing is owed but "keep" bytes;
 * 0 marks us as running again.
 */
static int64
remaining_pause(bool first, int64 keep)
{
	TimestampTz wall_clock = GetCurrentTimestamp();
	int64		now;
	int64		pause = 0;

	if (group == NULL)
		return 0;
	account_lock();
	now = dt_now_us();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
	{
		if (dt_group_throttling_enabled())
			pause = dt_rate_wake(&group->rate, &my->rate, keep, now);
		if (pause > 0)
		{
			mark_paused(now, wall_clock);
			if (first)
			{
				my->pauses++;
				group->pauses++;
			}
		}
		else
			mark_running(now);
	}
	SpinLockRelease(&group->lock);
	owes = pause > 0 || keep > 0;
	account_unlock();
	return pause;
}

/*
 * The pause ends before all is paid.
 */
static void
interrupt_pause(void)
{
	int64		now = dt_now_us();

	if (group == NULL)
		return;
	account_lock();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
		mark_running(now);
	SpinLockRelease(&group->lock);
	account_unlock();
}

/*
 * What is owed now is not the next transaction's.
 */
static void
carry_debt(void)
{
	int64		now;

	carried = 0;
	if (group == NULL || !owes)
		return;
	account_lock();
	now = dt_now_us();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
		carried = dt_rate_debt(&group->rate, &my->rate, now);
	SpinLockRelease(&group->lock);
	account_unlock();
}

/*
 * One slice of a pause.  Somebody else's reason to set our latch is not ours
 * to swallow, so the caller sets it again afterwards when *latch_set.
 */
static int
sleep_slice(int64 pause_us, int on_postmaster_death, bool *latch_set)
{
	int			events;

	events = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | on_postmaster_death,
					   (pause_us + 999) / 1000,
					   wait_event ? wait_event : PG_WAIT_EXTENSION);
	if (events & WL_LATCH_SET)
	{
		ResetLatch(MyLatch);
		*latch_set = true;
	}
	return events;
}

/*
 * Pause with interrupts served, until nothing is owed but "keep" bytes, for at
 * most max_us.  An ERROR leaves nothing to undo: what is owed stays on the
 * books.
 */
static void
pause_interruptibly(int64 keep, int64 max_us)
{
	int64		until = dt_now_us() + max_us;
	bool		latch_set = false;
	bool		first = true;
	int64		left;
	int64		pause;

	while ((left = until - dt_now_us()) > 0 &&
		   (pause = remaining_pause(first, keep)) > 0)
	{
		first = false;
		(void) sleep_slice(Min(pause, left), WL_EXIT_ON_PM_DEATH, &latch_set);
		if (InterruptPending)
		{
			interrupt_pause();
			if (latch_set)
				SetLatch(MyLatch);
			latch_set = false;
			CHECK_FOR_INTERRUPTS();
		}
	}
	interrupt_pause();
	if (latch_set)
		SetLatch(MyLatch);
}

/*
 * May we sleep here, with interrupts served?
 */
static bool
may_pause_here(void)
{
	return CritSectionCount == 0 && InterruptHoldoffCount == 0 &&
		QueryCancelHoldoffCount == 0 && !proc_exit_inprogress &&
		background_group() == NULL;
}

/*
 * Who evaded the last pause, by a cancel, pays now, when evading means not to
 * run the statement.  Background workers always pay here: the core's own
 * handler of SIGTERM may end them at any instruction, which must not happen in
 * the pause after a transaction.
 */
void
dt_session_pay_before_transaction(void)
{
	/* nor before a ROLLBACK, which must not fail */
	if (xact_begun || IsAbortedTransactionBlockState())
		return;
	xact_begun = true;
	if (!pay_first || group == NULL || !may_pause_here())
		return;
	pause_interruptibly(0, dt_max_commit_pause_ms * INT64CONST(1000));
	pay_first = owes;
	carry_debt();
}

void
dt_session_pace(void)
{
	int64		xact_owed_us;
	int64		pause;

	if (group == NULL)
		return;
	pause = charge(&xact_owed_us);
	if (pause == 0)
		return;

	/* Not a place to sleep: what is owed is paid at the next one. */
	if (!may_pause_here())
		return;

	/*
	 * A small transaction pays when it holds no locks any more.  One that has
	 * shown that it is not small pays as it goes, for a smooth rate.
	 */
	if (!xact_paces)
	{
		if (xact_owed_us < dt_transaction_grace_ms * INT64CONST(1000))
			return;
		xact_paces = true;
	}
	pause_interruptibly(carried, PG_INT64_MAX / 2);
}

/*
 * In a parallel worker, the leader will get the counters of what is dirtied
 * from here to dt_session_end_worker_run(), and of nothing else.
 */
void
dt_session_begin_worker_run(void)
{
	if (IsParallelWorker() && group != NULL)
		billed = pgBufferUsage.shared_blks_dirtied;
}

void
dt_session_end_worker_run(void)
{
	int64		xact_owed_us;

	if (IsParallelWorker() && group != NULL)
		(void) charge(&xact_owed_us);
}

void
dt_session_publish_worker(void)
{
	if (group == NULL || worker_blocks == 0)
		return;
	account_lock();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
		my->prepaid += worker_blocks;
	SpinLockRelease(&group->lock);
	worker_blocks = 0;
	account_unlock();
}

void
dt_session_forget_workers(void)
{
	/* no worker is left that could write it */
	if (group == NULL || IsParallelWorker() || my->prepaid == 0)
		return;
	account_lock();
	SpinLockAcquire(&group->lock);
	if (my->group == group)
		my->prepaid = 0;
	SpinLockRelease(&group->lock);
	account_unlock();
}

void
dt_session_note_error(void)
{
	int			code = geterrcode();

	if (code == ERRCODE_QUERY_CANCELED || code == ERRCODE_LOCK_NOT_AVAILABLE)
		xact_cancelled = true;
}

bool
dt_session_end_transaction(bool committed, bool may_pause)
{
	int64		xact_owed_us;
	int64		pause = 0;
	bool		evaded;

	if (group != NULL && (owes || pgBufferUsage.shared_blks_dirtied != billed))
		pause = charge(&xact_owed_us);
	dt_session_forget_workers();

	/*
	 * Who has cancelled something wants to go on now, and who has dirtied
	 * nothing in vain owes only what earlier transactions have left.
	 */
	evaded = !committed && xact_cancelled;
	if (evaded || (!committed && xact_blocks == 0))
		may_pause = false;
	if (MyBackendType == B_BG_WORKER && background_group() == NULL)
	{
		evaded = true;
		may_pause = false;
	}
	xact_blocks = 0;
	xact_paces = false;
	xact_cancelled = false;
	xact_begun = false;

	if (pause == 0 || !may_pause || proc_exit_inprogress)
	{
		pay_first |= evaded && pause > 0;
		carry_debt();
		return false;
	}
	xact_ending = true;
	return true;
}

/*
 * Is there an interrupt that cannot wait?  When it is only time to see whether
 * the client is still there, which may be configured to come often, see for
 * ourselves.
 */
static bool
interrupted(void)
{
	if (!InterruptPending)
		return false;
	if (CheckClientConnectionPending && !QueryCancelPending &&
		!ProcDiePending && !ProcSignalBarrierPending && MyProcPort != NULL)
		return !pq_check_connection();
	return true;
}

/*
 * How long may the pause be that begins now, in us?  An apply worker sends
 * feedback when it has nothing left to apply, so it must be able to catch up:
 * it never pauses longer than it has not paused since the last time, and so
 * for half of the time at most.
 */
static int64
longest_pause_after_transaction(void)
{
	int64		longest = dt_max_commit_pause_ms * INT64CONST(1000);

	if (background_group() != NULL)
		longest = Min(longest, BACKGROUND_PAUSE_US);
	if (IsLogicalWorker())
		longest = Min(longest, dt_now_us() - last_pause_end);
	return longest;
}

void
dt_session_pause_after_transaction(void)
{
	int64		until = dt_now_us() + longest_pause_after_transaction();
	bool		latch_set = false;
	bool		first = true;

	/* A failed transaction block may be left by leaving the server. */
	while (!interrupted() && !proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;

		if (left <= 0 || (pause = remaining_pause(first, 0)) == 0)
			break;
		first = false;
		if (sleep_slice(Min(pause, left), WL_POSTMASTER_DEATH,
						&latch_set) & WL_POSTMASTER_DEATH)
			break;
	}
	interrupt_pause();
	last_pause_end = dt_now_us();
	SetLatch(MyLatch);			/* may have been reset for others than us */
	pay_first |= InterruptPending && owes;
	carry_debt();

	xact_ending = false;
	if (wanted_changed)
		apply_wanted_group();
}
