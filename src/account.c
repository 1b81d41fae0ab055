/*-------------------------------------------------------------------------
 *
 * account.c
 *		What this backend has used, charged to its group.
 *
 * How much this backend has dirtied is pgBufferUsage.shared_blks_dirtied, the
 * counter that the core increments for each shared buffer that turns dirty;
 * how much WAL it has written is pgWalUsage.wal_bytes.  What was not charged
 * yet is the difference to "billed".  A charge hands it to the group's rate
 * engines, one for each of the two, which tell what is owed and for how long
 * to pause; pause.c decides whether and where.
 *
 * Whatever is shared is in the DtMember slot and the DtGroup, under the
 * group's spinlock; the rest is local.  Others may take us out of the group,
 * or put us into another, at any moment: then the slot's group pointer is
 * another one than ours, and lock_account() follows it.  What was not charged
 * by then is charged to the new group.
 *
 * A parallel worker uses its leader's slot, and pauses for what is charged
 * there, too.  The leader later adds the worker's counters to its own, so the
 * worker leaves word of what is paid for ("prepaid").
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
#include "utils/timestamp.h"

#include "compat.h"

/* Use between two looks at a group that has no limit, bytes. */
#define UNLIMITED_CHARGE	(1024 * (int64) BLCKSZ)

/* A pause of a stopped group: then look again. */
#define STOP_SLICE_US		INT64CONST(1000000)

int64		dt_account_next_dirty = PG_INT64_MAX;
int64		dt_account_next_wal = PG_INT64_MAX;

/* This backend's account of one resource; bytes. */
typedef struct Use
{
	int64		billed;			/* counter value at the last charge */
	int64		next_charge;	/* counter value at which one is due */
	bool		was_throttled;	/* at the last charge, if there was any */
	bool		owes;			/* the last charge asked for a pause */
	int64		carried;		/* owed since earlier transactions */
	int64		worker_used;	/* charged by us, a parallel worker */
} Use;

static DtMember *my = NULL;		/* our slot, or our leader's */
static DtGroup *group = NULL;	/* NULL: no account, as far as we know */
static Use	uses[DT_RESOURCES];
static uint32 generation = 0;	/* group->generation at the last charge */
static uint32 entries = 0;		/* my->entries at the last look */
static uint32 releases = 0;		/* the same of my->releases */
static bool owes = false;		/* the last look found a pause to make */
static DtPauseCause cause = DT_BY_DIRTY;	/* of that pause */
static bool asleep = false;		/* counted in my->sleepers */
static int64 xact_used = 0;		/* charged in this transaction, bytes */

/* The account is being worked on: hands off, signal handler. */
static volatile sig_atomic_t busy = 0;
static volatile sig_atomic_t hands_off = 0; /* it was told so */

static inline int64
counter(int resource)
{
	return resource == DT_DIRTY ?
		pgBufferUsage.shared_blks_dirtied * BLCKSZ :
		(int64) pgWalUsage.wal_bytes;
}

void
dt_account_charge_at_next_safe_point(void)
{
	dt_account_next_dirty = dt_account_next_wal = 0;
}

/* There is no account any more. */
static void
forget_account(void)
{
	group = NULL;
	owes = false;
	asleep = false;
	dt_account_next_dirty = dt_account_next_wal = PG_INT64_MAX;
}

/* Is our slot still the member of the group that it was? */
static inline bool
is_followed(void)
{
	return my->group == group && my->entries == entries;
}

/*
 * It is a member of another group than we knew of, or again.  What was used
 * while it was in none is nobody's.
 */
static void
follow(DtGroup *g)
{
	bool		is_new = group == NULL || my->releases != releases;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (is_new)
			uses[r].billed = counter(r);
		uses[r].was_throttled = true;
		uses[r].owes = false;
		uses[r].carried = 0;
	}
	if (is_new)
		xact_used = 0;
	group = g;
	entries = my->entries;
	releases = my->releases;
	owes = false;
	asleep = false;
	generation = pg_atomic_read_u32(&g->generation) - 1;
	dt_account_charge_at_next_safe_point();
}

static void
release_busy(void)
{
	pg_compiler_barrier();
	busy = 0;
	pg_compiler_barrier();
	if (hands_off)
		dt_account_charge_at_next_safe_point();
	hands_off = 0;
}

/*
 * Begin to work on the account: takes the group's lock, unless there is no
 * account (any more): false.  *now is the time.
 */
static bool
lock_account(int64 *now)
{
	DtGroup    *g;

	*now = dt_now_us();
	if (my == NULL)
		return false;
	busy = 1;
	pg_compiler_barrier();
	while ((g = ((volatile DtMember *) my)->group) != NULL)
	{
		SpinLockAcquire(&g->lock);
		if (my->group == g)
		{
			if (!is_followed())
				follow(g);
			return true;
		}
		SpinLockRelease(&g->lock);
	}
	/* while somebody moves us, we are in no group for a moment */
	if (group == NULL || my->releases != releases)
		forget_account();
	else
		dt_account_charge_at_next_safe_point();
	release_busy();
	return false;
}

static void
unlock_account(void)
{
	DtGroup    *g = group;

	SpinLockRelease(&g->lock);
	release_busy();
}

void
dt_account_attach(DtMember *member)
{
	my = member;
}

bool
dt_account_is_open(void)
{
	int64		now;

	if (my != NULL && !is_followed() && lock_account(&now))
		unlock_account();
	return group != NULL;
}

/* Is the account what we know of it, without a look under the lock? */
static bool
is_known(void)
{
	return group != NULL && is_followed();
}

/*
 * These look at the group without its lock: it may be a moment old.
 */
bool
dt_account_is_limited(DtResource resource)
{
	return is_known() && dt_group_is_limited(group, resource);
}

bool
dt_account_is_stopped(bool in_flight)
{
	return is_known() && dt_group_is_stopped(group, in_flight);
}

bool
dt_account_is_throttled(void)
{
	return dt_account_is_limited(DT_DIRTY) || dt_account_is_limited(DT_WAL) ||
		dt_account_is_stopped(true);
}

int64
dt_account_block_time(DtResource resource)
{
	int64		rate;
	int64		debtors;

	if (!is_known())
		return 0;
	if (dt_group_is_stopped(group, true))
		return STOP_SLICE_US;
	rate = group->use[resource].rate.rate;
	debtors = group->use[resource].rate.debtor_weight;
	return rate > 0 ? BLCKSZ * INT64CONST(1000000) / rate * Max(debtors, 1) : 0;
}

bool
dt_account_xact_has_used(void)
{
	return xact_used > 0;
}

bool
dt_account_owes(void)
{
	return owes;
}

bool
dt_account_is_settled(void)
{
	int			r;

	if (my == NULL || my->group == NULL)
		return true;
	if (owes || !is_followed())
		return false;
	for (r = 0; r < DT_RESOURCES; r++)
		if (counter(r) != uses[r].billed)
			return false;
	return true;
}

/*
 * Set or clear the mark by which others see that we sleep.  With the account
 * locked.
 */
static void
mark_paused(int64 now, TimestampTz wall_clock)
{
	my->paused_by = cause;
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
	my->stats.paused_us += now - my->paused_since_us;
	group->stats.paused_us += now - my->paused_since_us;
	group->paused--;
}

/*
 * What was used since the last charge and is not paid for by a parallel
 * worker, in bytes; counted for the views.  With the account locked.
 */
static int64
take_unbilled(int resource, int64 now)
{
	DtGroupUse *group_use = &group->use[resource];
	DtMemberUse *my_use = &my->use[resource];
	Use		   *use = &uses[resource];
	int64		used = counter(resource);
	int64		bytes = used - use->billed;

	use->billed = used;
	if (my_use->prepaid > 0 && !IsParallelWorker())
	{
		int64		prepaid = Min(my_use->prepaid, bytes);

		my_use->prepaid -= prepaid;
		bytes -= prepaid;
	}
	if (bytes == 0)
		return 0;
	my_use->used += bytes;
	group_use->used += bytes;
	dt_meter_add(&group_use->meter, bytes, now);
	dt_profile_add(&group_use->profile, bytes, now);
	if (IsParallelWorker())
		use->worker_used += bytes;
	return bytes;
}

/*
 * The limits are not enforced: forgive what is owed, and count the pause that
 * would have paid for it.  With the account locked.
 */
static void
count_would_be_pause(int64 now)
{
	int64		pause = 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		due = dt_rate_forgive(&group->use[r].rate,
										  &my->use[r].rate, now);

		pause = Max(pause, due);
		uses[r].carried = 0;
	}
	if (pause == 0)
		return;
	my->stats.would_pauses++;
	my->stats.would_pause_us += pause;
	group->stats.would_pauses++;
	group->stats.would_pause_us += pause;
}

void
dt_account_close(void)
{
	int64		unbilled[DT_RESOURCES];
	int64		now;
	int			r;

	if (!lock_account(&now))
		return;
	mark_running(now);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		unbilled[r] = take_unbilled(r, now);
		if (!uses[r].was_throttled || !dt_group_throttling_enabled() ||
			group->observe)
			unbilled[r] = 0;
	}
	if (group->observe)
		count_would_be_pause(now);
	dt_member_leave(my, unbilled, now);
	my->releases++;
	unlock_account();
	forget_account();
}

/*
 * Charge the group with what was used since the last charge, and set when the
 * next charge is due.  Returns for how long to pause, in us, and sets "cause".
 * With the account locked; also in a signal handler.
 */
static int64
charge_locked(int64 now, double jitter, bool in_flight)
{
	int64		pause = 0;
	int			r;

	generation = pg_atomic_read_u32(&group->generation);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &group->use[r].rate;
		DtRateMember *account = &my->use[r].rate;
		Use		   *use = &uses[r];
		int64		bytes = take_unbilled(r, now);
		int64		threshold = UNLIMITED_CHARGE;
		int64		due = 0;
		bool		throttled = rate->rate > 0 &&
			dt_group_throttling_enabled();

		if (throttled)
		{
			if (use->carried > 0)
				use->carried = Min(use->carried,
								   dt_rate_debt(rate, account, now));
			/* nobody owes what was used while there was no limit */
			due = dt_rate_charge(rate, account, use->was_throttled ? bytes : 0,
								 now, jitter);
			threshold = dt_rate_threshold(rate, account);
		}
		xact_used += bytes;
		use->was_throttled = throttled;
		use->owes = due > 0;
		use->next_charge = use->billed + threshold;
		if (due > pause)
		{
			pause = due;
			cause = (DtPauseCause) r;
		}
	}
	if (dt_group_is_stopped(group, in_flight))
	{
		pause = STOP_SLICE_US;
		cause = DT_BY_STOP;
	}
	owes = pause > 0;
	dt_account_next_dirty = uses[DT_DIRTY].next_charge / BLCKSZ;
	dt_account_next_wal = uses[DT_WAL].next_charge;
	return pause;
}

int64
dt_account_charge(bool in_flight, int64 *xact_owed_us)
{
	double		jitter = pg_prng_double(&pg_global_prng_state);
	int64		pause;
	int64		now;
	int			r;

	*xact_owed_us = 0;
	if (!lock_account(&now))
		return 0;
	mark_running(now);			/* an error has ended the last pause */
	pause = charge_locked(now, jitter, in_flight);
	for (r = 0; r < DT_RESOURCES && pause > 0; r++)
	{
		DtRateGroup *rate = &group->use[r].rate;
		int64		debt = 0;

		if (uses[r].owes)
			debt = dt_rate_debt(rate, &my->use[r].rate, now) - uses[r].carried;
		if (debt > 0)
			*xact_owed_us = Max(*xact_owed_us,
								(int64) (debt * 1000000.0 / rate->rate));
	}
	unlock_account();
	return pause;
}

void
dt_account_follow_limit(void)
{
	int64		xact_owed_us;

	if (group != NULL && pg_atomic_read_u32(&group->generation) != generation)
		(void) dt_account_charge(true, &xact_owed_us);
}

int64
dt_account_charge_live(int64 threshold[DT_RESOURCES])
{
	int64		pause;
	DtGroup    *g;
	bool		locked;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		threshold[r] = UNLIMITED_CHARGE;
	if (busy)
	{
		hands_off = 1;
		return -1;
	}

	/*
	 * Asleep, we use nothing, and a charge would make us wake at the same time
	 * as the others; see dt_rate_charge() about jitter.
	 */
	if (my == NULL || (g = my->group) == NULL || (asleep && is_followed()))
		return 0;
	/* The lock may be held by whom we interrupted: never wait for it. */
	locked = !TAS(&g->lock);
	if (locked && my->group != g)
	{
		SpinLockRelease(&g->lock);
		locked = false;
	}
	if (!locked)
	{
		dt_account_charge_at_next_safe_point();
		return -1;
	}
	if (!is_followed())
		follow(g);
	pause = charge_locked(dt_now_us(), 0, true);
	for (r = 0; r < DT_RESOURCES; r++)
		threshold[r] = uses[r].next_charge - uses[r].billed;
	if (pause > 0)
		dt_account_charge_at_next_safe_point();
	SpinLockRelease(&g->lock);
	return pause;
}

/*
 * How much longer to pause for the limits; sets "cause".  With the account
 * locked.
 */
static int64
left_to_pay(bool in_flight, int64 now)
{
	int64		pause = 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		left = dt_rate_wake(&group->use[r].rate, &my->use[r].rate,
										in_flight ? uses[r].carried : 0, now);

		if (left > pause)
		{
			pause = left;
			cause = (DtPauseCause) r;
		}
	}
	return pause;
}

/*
 * A pause begins.  With the account locked.
 */
static void
count_pause(DtPauseStats *stats)
{
	stats->pauses++;
	if (cause == DT_BY_WAL)
		stats->wal_pauses++;
}

int64
dt_account_pause_left(bool first, bool in_flight)
{
	TimestampTz wall_clock = GetCurrentTimestamp();
	int64		now;
	int64		pause = 0;

	if (!lock_account(&now))
		return 0;
	if (dt_group_throttling_enabled())
	{
		if (group->observe)
			count_would_be_pause(now);
		else
			pause = left_to_pay(in_flight, now);
		if (dt_group_is_stopped(group, in_flight))
		{
			pause = STOP_SLICE_US;
			cause = DT_BY_STOP;
		}
	}
	if (pause > 0)
	{
		mark_paused(now, wall_clock);
		if (first)
		{
			count_pause(&my->stats);
			count_pause(&group->stats);
		}
	}
	else
		mark_running(now);
	owes = pause > 0 ||
		(in_flight && (uses[DT_DIRTY].carried > 0 || uses[DT_WAL].carried > 0));
	unlock_account();
	return pause;
}

void
dt_account_end_pause(void)
{
	int64		now;

	if (!lock_account(&now))
		return;
	mark_running(now);
	unlock_account();
}

void
dt_account_carry(void)
{
	int64		now;
	int			r;

	xact_used = 0;
	for (r = 0; r < DT_RESOURCES; r++)
		uses[r].carried = 0;
	if (!owes || !lock_account(&now))
		return;
	for (r = 0; r < DT_RESOURCES; r++)
		uses[r].carried = dt_rate_debt(&group->use[r].rate, &my->use[r].rate,
									   now);
	unlock_account();
}

/*
 * In a parallel worker, the leader will get the counters of what is used from
 * here to dt_account_end_worker_run(), and of nothing else.
 */
void
dt_account_begin_worker_run(void)
{
	int			r;

	if (IsParallelWorker() && group != NULL)
		for (r = 0; r < DT_RESOURCES; r++)
			uses[r].billed = counter(r);
}

void
dt_account_end_worker_run(void)
{
	int64		xact_owed_us;

	if (IsParallelWorker())
		(void) dt_account_charge(true, &xact_owed_us);
}

void
dt_account_publish_worker(void)
{
	int64		now;
	int			r;

	if (!lock_account(&now))
		return;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		my->use[r].prepaid += uses[r].worker_used;
		uses[r].worker_used = 0;
	}
	unlock_account();
}

/* Does anything wait to be struck off? */
static bool
has_prepaid(void)
{
	return group != NULL && !IsParallelWorker() &&
		(my->use[DT_DIRTY].prepaid > 0 || my->use[DT_WAL].prepaid > 0);
}

void
dt_account_settle_workers(void)
{
	int64		xact_owed_us;

	if (has_prepaid() && dt_account_charge(true, &xact_owed_us) > 0)
		dt_account_charge_at_next_safe_point();
}

void
dt_account_forget_workers(void)
{
	int64		now;
	int			r;

	/*
	 * First as if all of it were in our counter.  Where the query has failed
	 * before it was, our own blocks since the last charge are taken for the
	 * workers': a few are charged too little.
	 */
	dt_account_settle_workers();

	/* no worker is left that could write it */
	if (!has_prepaid() || !lock_account(&now))
		return;
	for (r = 0; r < DT_RESOURCES; r++)
		my->use[r].prepaid = 0;
	unlock_account();
}
