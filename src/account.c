/*-------------------------------------------------------------------------
 *
 * account.c
 *		What this backend has dirtied, charged to its group.
 *
 * How much this backend has dirtied is pgBufferUsage.shared_blks_dirtied, the
 * counter that the core increments for each shared buffer that turns dirty.
 * What was not charged yet is the difference to "billed".  A charge hands it
 * to the group's rate engine, which tells what is owed and for how long to
 * pause; pause.c decides whether and where.
 *
 * Whatever is shared is in the DtMember slot and the DtGroup, under the
 * group's spinlock; the rest is local.  The group may be dropped by force at
 * any moment: then the slot's group pointer is another one under the lock,
 * and there is no account any more.
 *
 * A parallel worker uses its leader's slot: what it dirties is charged to the
 * leader's account, and it pauses for it, too.  The leader later adds the
 * worker's counters to its own, so the worker leaves word of what is paid for
 * ("prepaid").
 *
 * A long command without safe points is charged from a timer's signal handler
 * (dt_account_charge_live), which may interrupt anything here; "busy" tells it
 * to leave the account alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "account.h"
#include "common/pg_prng.h"
#include "executor/instrument.h"
#include "utils/timestamp.h"

#include "compat.h"

/* Blocks between two looks at a group that has no limit. */
#define UNLIMITED_CHARGE_BLOCKS		1024

int64		dt_account_next_charge = PG_INT64_MAX;

static DtMember *my = NULL;		/* our slot, or our leader's */
static DtGroup *group = NULL;	/* NULL: no account, as far as we know */
static int64 billed = 0;		/* counter value at the last charge */
static uint32 generation = 0;	/* group->generation at the last charge */
static bool owes = false;		/* the last charge asked for a pause */
static bool was_throttled = true;	/* at the last charge, if there was any */
static bool asleep = false;		/* counted in my->sleepers */
static int64 carried = 0;		/* owed since earlier transactions, bytes */
static int64 xact_blocks = 0;	/* charged in this transaction */
static int64 worker_blocks = 0; /* charged by us, a parallel worker */

/* The account is being worked on: hands off, signal handler. */
static volatile sig_atomic_t busy = 0;

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
 * There is no account any more.
 */
static void
forget_account(void)
{
	group = NULL;
	owes = false;
	asleep = false;
	dt_account_next_charge = PG_INT64_MAX;
}

void
dt_account_open(DtMember *member, DtGroup *g)
{
	account_lock();
	my = member;
	group = g;
	billed = pgBufferUsage.shared_blks_dirtied;
	owes = false;
	was_throttled = true;
	carried = 0;
	xact_blocks = 0;
	dt_account_next_charge = billed;	/* the first charge sets the pace */
	account_unlock();
}

bool
dt_account_is_open(void)
{
	if (group != NULL && my->group != group)
		forget_account();		/* dropped by force */
	return group != NULL;
}

/*
 * These two look at the rate without its lock: it may be a moment old.
 */
bool
dt_account_is_throttled(void)
{
	return group != NULL && my->group == group && group->rate.rate > 0 &&
		dt_group_throttling_enabled();
}

int64
dt_account_block_time(void)
{
	int64		rate = group != NULL ? group->rate.rate : 0;
	int64		debtors = group != NULL ? group->rate.debtor_weight : 0;

	return rate > 0 ? BLCKSZ * INT64CONST(1000000) / rate * Max(debtors, 1) : 0;
}

int64
dt_account_xact_blocks(void)
{
	return xact_blocks;
}

bool
dt_account_owes(void)
{
	return owes;
}

bool
dt_account_is_settled(void)
{
	return group == NULL ||
		(!owes && pgBufferUsage.shared_blks_dirtied == billed);
}

int64
dt_account_carried(void)
{
	return carried;
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

void
dt_account_close(void)
{
	int64		now = dt_now_us();

	if (group == NULL)
		return;
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
	forget_account();
	account_unlock();
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

	generation = pg_atomic_read_u32(&group->generation);
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
	dt_account_next_charge = billed + threshold;
	return pause;
}

int64
dt_account_charge(int64 *xact_owed_us)
{
	double		jitter = pg_prng_double(&pg_global_prng_state);
	int64		now;
	int64		pause = 0;
	int64		debt = 0;
	int64		rate = 0;
	bool		member;

	*xact_owed_us = 0;
	if (group == NULL)
		return 0;
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
		forget_account();		/* dropped by force */
	account_unlock();

	if (pause > 0)
		*xact_owed_us = (double) Max(debt - carried, 0) * 1000000.0 / rate;
	return pause;
}

void
dt_account_follow_limit(void)
{
	int64		xact_owed_us;

	if (group != NULL && pg_atomic_read_u32(&group->generation) != generation)
		(void) dt_account_charge(&xact_owed_us);
}

int64
dt_account_charge_live(int64 *blocks)
{
	int64		pause = 0;

	*blocks = UNLIMITED_CHARGE_BLOCKS;
	if (busy)
		return -1;

	/*
	 * Asleep, we dirty nothing, and a charge would make us wake at the same
	 * time as the others; see dt_rate_charge() about jitter.
	 */
	if (group == NULL || asleep)
		return 0;
	/* The lock may be held by whom we interrupted: never wait for it. */
	if (TAS(&group->lock))
		return -1;
	if (my->group == group)
	{
		pause = charge_locked(dt_now_us(), 0);
		*blocks = dt_account_next_charge - billed;
		if (pause > 0)
			dt_account_next_charge = billed;	/* the next safe point pauses */
	}
	SpinLockRelease(&group->lock);
	return pause;
}

int64
dt_account_pause_left(bool first, int64 keep)
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

void
dt_account_end_pause(void)
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

void
dt_account_carry(void)
{
	int64		now;

	carried = 0;
	xact_blocks = 0;
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
 * In a parallel worker, the leader will get the counters of what is dirtied
 * from here to dt_account_end_worker_run(), and of nothing else.
 */
void
dt_account_begin_worker_run(void)
{
	if (IsParallelWorker() && group != NULL)
		billed = pgBufferUsage.shared_blks_dirtied;
}

void
dt_account_end_worker_run(void)
{
	int64		xact_owed_us;

	if (IsParallelWorker())
		(void) dt_account_charge(&xact_owed_us);
}

void
dt_account_publish_worker(void)
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
dt_account_settle_workers(void)
{
	int64		xact_owed_us;

	if (group != NULL && !IsParallelWorker() && my->prepaid > 0 &&
		dt_account_charge(&xact_owed_us) > 0)
		dt_account_next_charge = billed;	/* the next safe point pauses */
}

void
dt_account_forget_workers(void)
{
	/*
	 * First as if all of it were in our counter.  Where the query has failed
	 * before it was, our own blocks since the last charge are taken for the
	 * workers': a few are charged too little.
	 */
	dt_account_settle_workers();

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
