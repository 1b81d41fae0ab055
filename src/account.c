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
 * Who leaves a group of his own will goes on owing to it: those debts are in
 * debt.c, and each pause here is as long as they take, too.
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
#include "debt.h"
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
static bool worker_runs = false;	/* we are a parallel worker, at work */

/* The account is being worked on: hands off, signal handler. */
static volatile sig_atomic_t busy = 0;
static volatile sig_atomic_t hands_off = 0; /* it was told so */

int64
dt_account_counter(DtResource resource)
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
		{
			/* our leader will get it all */
			if (worker_runs)
				uses[r].worker_used += dt_account_counter(r) - uses[r].billed;
			uses[r].billed = dt_account_counter(r);
		}
		uses[r].was_throttled = true;
		uses[r].owes = false;
	}
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
		dt_group_lock(g);
		if (my->group == g)
		{
			if (!is_followed())
				follow(g);
			return true;
		}
		dt_group_unlock(g);
	}
	/* while somebody moves us, we are in no group for a moment */
	if (group == NULL)
		dt_account_next_dirty = dt_account_next_wal = PG_INT64_MAX;
	else if (my->releases != releases)
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

	dt_group_unlock(g);
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

bool
dt_account_may_owe(void)
{
	return dt_debt_any || dt_account_is_open();
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
dt_account_is_stopped(bool in_flight)
{
	return is_known() && dt_group_is_stopped(group, in_flight);
}

int64
dt_account_rate(DtResource resource)
{
	return is_known() && dt_group_is_limited(group, resource) ?
		group->use[resource].rate.rate : 0;
}

bool
dt_account_has_used(void)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
		if (dt_account_counter(r) != uses[r].billed)
			return true;
	return !is_known();
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
	if (dt_debt_any)
		return false;
	if (my == NULL || my->group == NULL)
		return true;
	return !owes && !dt_account_has_used();
}

/*
 * Begin to work on the books of the group that our pause is for: our own, or
 * when we are in none, that of a debt.  NULL when there is neither.
 */
static DtGroup *
lock_books(DtDebt *debt, int64 *now)
{
	if (lock_account(now))
		return group;
	return debt != NULL ? dt_member_lock_debt(debt) : NULL;
}

static void
unlock_books(DtGroup *g)
{
	if (g == NULL)
		return;
	if (g == group)
		unlock_account();
	else
		dt_group_unlock(g);
}

/*
 * Set or clear the mark by which others see that we sleep.  With these books
 * locked.
 */
static void
mark_paused(DtGroup *books, int64 now, TimestampTz wall_clock)
{
	my->paused_by = cause;
	if (asleep && my->paused_in != NULL)
		return;
	asleep = true;
	dt_member_pause(my, books, now, wall_clock);
}

static void
mark_running(DtGroup *books, int64 now)
{
	if (!asleep)
		return;
	asleep = false;
	dt_member_resume(my, books, now);
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
	int64		used = dt_account_counter(resource);
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
	}
	if (pause == 0)
		return;
	my->stats.would_pauses++;
	my->stats.would_pause_us += pause;
	group->stats.would_pauses++;
	group->stats.would_pause_us += pause;
}

/*
 * Leave the group, taking what is owed along or not.  False when it cannot be
 * taken along.
 */
static bool
close_account(bool keep_debt)
{
	int64		unbilled[DT_RESOURCES];
	bool		left = true;
	int64		now;
	int			r;

	if (!lock_account(&now))
		return true;
	mark_running(group, now);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		unbilled[r] = take_unbilled(r, now);
		xact_used += unbilled[r];
		if (!uses[r].was_throttled || !dt_group_throttling_enabled() ||
			group->observe)
			unbilled[r] = 0;
	}
	if (group->observe)
		count_would_be_pause(now);
	if (keep_debt)
		left = dt_member_leave_owing(my, unbilled, now);
	else
		dt_member_leave(my, unbilled, now);
	if (left)
		my->releases++;
	unlock_account();
	if (left)
		forget_account();
	return left;
}

bool
dt_account_leave(void)
{
	bool		was_open = dt_account_is_open();
	bool		left;

	/* debts that have been paid make room */
	(void) dt_debt_look(my, false, 0);
	left = close_account(true);
	dt_debt_any |= was_open;
	if (was_open)
		dt_account_charge_at_next_safe_point();
	return left;
}

void
dt_account_close(void)
{
	(void) close_account(false);
	if (my != NULL)
		dt_member_leave_debts(my);
	dt_debt_any = false;
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

/*
 * What is owed to other groups is the session's own business, not that of its
 * parallel workers.
 */
static DtDebtLook
look_at_debts(bool already_asleep, double jitter)
{
	static const DtDebtLook none = {0};

	if (my == NULL || IsParallelWorker())
		return none;
	return dt_debt_look(my, already_asleep, jitter);
}

/* What we owe to our group, in us at its rate.  With the account locked. */
static int64
owed_time(int64 now)
{
	int64		owed_us = 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &group->use[r].rate;

		if (uses[r].owes)
			owed_us = Max(owed_us,
						  dt_rate_time(rate, dt_rate_debt(rate,
														  &my->use[r].rate,
														  now)));
	}
	return owed_us;
}

int64
dt_account_charge(bool in_flight, int64 *owed_us)
{
	double		jitter = pg_prng_double(&pg_global_prng_state);
	DtDebtLook	debts = look_at_debts(false, jitter);
	int64		pause;
	int64		now;

	*owed_us = debts.owed_us;
	if (!lock_account(&now))
	{
		owes = debts.pause_us > 0;
		cause = debts.cause;
		return debts.pause_us;
	}
	mark_running(group, now);	/* an error has ended the last pause */
	pause = charge_locked(now, jitter, in_flight);
	*owed_us = Max(*owed_us, owed_time(now));
	if (debts.pause_us > pause)
	{
		pause = debts.pause_us;
		cause = debts.cause;
	}
	owes = pause > 0;
	unlock_account();
	return pause;
}

void
dt_account_follow_limit(void)
{
	int64		owed_us;

	if (group != NULL && pg_atomic_read_u32(&group->generation) != generation)
		(void) dt_account_charge(true, &owed_us);
}

int64
dt_account_charge_live(void)
{
	int64		owed_us = 0;
	DtGroup    *g;
	bool		locked;
	int64		now;

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
	locked = dt_group_try_lock(g);
	if (locked && my->group != g)
	{
		dt_group_unlock(g);
		locked = false;
	}
	if (!locked)
	{
		dt_account_charge_at_next_safe_point();
		return -1;
	}
	if (!is_followed())
		follow(g);
	now = dt_now_us();
	if (charge_locked(now, 0, true) > 0)
	{
		owed_us = Max(owed_time(now), 1);
		dt_account_charge_at_next_safe_point();
	}
	dt_group_unlock(g);
	return owed_us;
}

/*
 * How much longer to pause for the limits, if that is longer than "pause";
 * then sets "cause".  With the account locked.
 */
static int64
left_to_pay(int64 pause, int64 now)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		left = dt_rate_wake(&group->use[r].rate, &my->use[r].rate,
										now);

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
	static TimestampTz since = 0;
	DtDebtLook	debts = look_at_debts(true, 0);
	int64		pause = debts.pause_us;
	int64		now = dt_now_us();
	DtGroup    *books = lock_books(debts.debt, &now);

	cause = debts.cause;
	if (books != NULL && books == group && dt_group_throttling_enabled())
	{
		if (group->observe)
			count_would_be_pause(now);
		else
			pause = left_to_pay(pause, now);
		if (dt_group_is_stopped(group, in_flight))
		{
			pause = STOP_SLICE_US;
			cause = DT_BY_STOP;
		}
	}
	owes = (books != NULL && pause > 0);
	if (first)
		since = GetCurrentTimestamp();
	if (owes)
	{
		mark_paused(books, now, since);
		if (first)
		{
			count_pause(&my->stats);
			count_pause(&books->stats);
		}
	}
	unlock_books(books);
	if (!owes)
		dt_account_end_pause();
	return owes ? pause : 0;
}

void
dt_account_end_pause(void)
{
	DtGroup    *books;
	int64		now;

	if (!asleep)
		return;
	if (lock_account(&now))
	{
		mark_running(group, now);
		unlock_account();
	}
	else if ((books = my->paused_in) != NULL)
	{
		dt_group_lock(books);
		mark_running(books, now);
		dt_group_unlock(books);
	}
	asleep = false;
}

void
dt_account_count_release(void)
{
	int64		now;

	if (!lock_account(&now))
		return;
	my->stats.releases++;
	group->stats.releases++;
	unlock_account();
}

void
dt_account_end_transaction(void)
{
	xact_used = 0;
}

/*
 * In a parallel worker, the leader will get the counters of what is used from
 * here on, to dt_account_end_worker_run() or the end, and of nothing else.
 */
void
dt_account_begin_worker(void)
{
	int			r;

	(void) dt_account_is_open();
	for (r = 0; r < DT_RESOURCES; r++)
	{
		uses[r].billed = dt_account_counter(r);
		uses[r].worker_used = 0;
	}
	worker_runs = true;
}

void
dt_account_end_worker_run(void)
{
	int64		owed_us;

	if (worker_runs)
		(void) dt_account_charge(true, &owed_us);
	worker_runs = false;
}

void
dt_account_publish_worker(void)
{
	int64		now;
	int			r;

	dt_account_end_worker_run();
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
	int64		owed_us;

	if (has_prepaid() && dt_account_charge(true, &owed_us) > 0)
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
