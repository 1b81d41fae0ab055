/*-------------------------------------------------------------------------
 *
 * account.c
 *		What this process uses, charged to its group.
 *
 * The core counts in pgBufferUsage.shared_blks_dirtied each shared buffer that
 * this process turns dirty, and in pgWalUsage.wal_bytes the WAL that it
 * writes.  The difference to "charged_up_to" is what has not been charged yet.
 * A charge passes it to the group's rate engines, one for each resource, which
 * tell what is owed and how long to pause; transaction.c decides whether and
 * where.
 *
 * What is shared is in the DtMember slot and the DtGroup, under the group's
 * spinlock; the rest is local, in dt_account.  Others may move this session
 * out of its group or into another at any time.  dt_account_lock() notices
 * that and follows; what was not charged by then is charged to the new group.
 *
 * A timer charges long commands from a signal handler, which may interrupt
 * anything here.  "busy" is set while the account is worked on, and tells the
 * handler to leave it alone.
 *
 * Functions whose names end in "_locked" expect the group to be locked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "backend/account_internal.h"
#include "backend/debt.h"
#include "registry/group.h"
#include "registry/role_debt.h"
#include "utils/timestamp.h"

/* With no limit in force, charge after so many bytes. */
#define UNLIMITED_CHARGE	(1024 * (int64) BLCKSZ)

/* The length of a slice in a suspended group. */
#define SUSPEND_SLICE_US		INT64CONST(1000000)

int64		dt_account_next_dirty = PG_INT64_MAX;
int64		dt_account_next_wal = PG_INT64_MAX;

DtAccount	dt_account;

void
dt_account_charge_at_next_safe_point(void)
{
	dt_account_next_dirty = dt_account_next_wal = 0;
}

/* This process is in no group any more. */
static void
forget_account(void)
{
	my->group = NULL;
	my->pause_is_due = false;
	my->asleep = false;
	dt_account_next_dirty = dt_account_next_wal = PG_INT64_MAX;
}

/* Is the membership the one that this process has followed? */
static inline bool
is_followed(void)
{
	return my->slot->group == my->group &&
		my->slot->times_joined == my->times_joined;
}

/*
 * Take note of a new membership.  What was used since the last charge is
 * charged to the new group, unless the session was in no group in between.
 */
static void
follow_locked(DtGroup *g)
{
	bool		is_new = my->group == NULL ||
		my->slot->times_left != my->times_left;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		if (is_new)
		{
			/* not charged, but the leader's counter will include it */
			if (my->worker_runs)
				my->usage[r].worker_used += dt_account_counter(r) -
					my->usage[r].charged_up_to;
			my->usage[r].charged_up_to = dt_account_counter(r);
		}
		my->usage[r].was_throttled = true;
		my->usage[r].pause_is_due = false;
	}
	my->group = g;
	my->times_joined = my->slot->times_joined;
	my->times_left = my->slot->times_left;
	my->pause_is_due = false;
	my->asleep = false;
	my->generation = pg_atomic_read_u32(&g->generation) - 1;
	dt_account_charge_at_next_safe_point();
}

static void
release_busy(void)
{
	pg_compiler_barrier();
	my->busy = 0;
	pg_compiler_barrier();
	if (my->hands_off)
		dt_account_charge_at_next_safe_point();
	my->hands_off = 0;
}

DtGroup *
dt_account_lock(DtDebt *debt, int64 *now)
{
	DtGroup    *g;

	*now = dt_now_us();
	if (my->slot == NULL)
		return NULL;
	my->busy = 1;
	pg_compiler_barrier();
	while ((g = ((volatile DtMember *) my->slot)->group) != NULL)
	{
		dt_group_lock(g);
		if (my->slot->group == g)
		{
			dt_group_check_pressure(g, *now);
			if (!is_followed())
				follow_locked(g);
			return g;
		}
		dt_group_unlock(g);
	}
	/* while a session is moved, it is in no group for a moment */
	if (my->group == NULL)
		dt_account_next_dirty = dt_account_next_wal = PG_INT64_MAX;
	else if (my->slot->times_left != my->times_left)
		forget_account();
	else
		dt_account_charge_at_next_safe_point();
	if (debt != NULL && (g = dt_member_lock_debt(debt)) != NULL)
		return g;
	release_busy();
	return NULL;
}

void
dt_account_unlock(DtGroup *g)
{
	dt_group_unlock(g);
	release_busy();
}

void
dt_account_attach(DtMember *member)
{
	my->slot = member;
}

static pg_noinline void
look_again(void)
{
	int64		now;
	DtGroup    *g = dt_account_lock(NULL, &now);

	if (g != NULL)
		dt_account_unlock(g);
}

bool
dt_account_lock_and_follow(void)
{
	if (my->slot != NULL && !is_followed())
		look_again();
	return my->group != NULL;
}

/* Is what this process knows of its membership up to date? */
static inline bool
is_known(void)
{
	return my->group != NULL && is_followed();
}

static inline bool
is_suspended(DtGroup *g, bool in_flight)
{
	return dt_group_is_suspended(g, in_flight) &&
		my->slot->exempt_from != g->suspended_since;
}

bool
dt_account_is_suspended(bool in_flight)
{
	return my->group != NULL && is_suspended(my->group, in_flight) &&
		is_followed();
}

bool
dt_account_lock_and_exempt(uint64 group_id)
{
	int64		now;
	DtGroup    *g = dt_account_lock(NULL, &now);
	bool		result;

	if (g == NULL)
		return false;
	result = g->id == group_id && g->suspended_since != 0;
	if (result)
		my->slot->exempt_from = g->suspended_since;
	dt_account_unlock(g);
	return result;
}

int64
dt_account_rate(DtResource resource)
{
	return is_known() && dt_group_is_limited(my->group, resource) ?
		my->group->usage[resource].rate.rate : 0;
}

int64
dt_account_threshold(DtResource resource)
{
	return my->usage[resource].threshold;
}

/* Has this process used something since its last charge? */
static inline bool
has_uncharged(void)
{
	return dt_account_counter(DT_DIRTY) != my->usage[DT_DIRTY].charged_up_to ||
		dt_account_counter(DT_WAL) != my->usage[DT_WAL].charged_up_to;
}

bool
dt_account_has_used(void)
{
	return has_uncharged() || !is_known();
}

bool
dt_account_xact_has_used(void)
{
	return my->xact_used > 0;
}

bool
dt_account_pause_is_due(void)
{
	return my->pause_is_due;
}

bool
dt_account_is_settled(void)
{
	if (dt_debt_any)
		return false;
	if (my->slot == NULL || my->slot->group == NULL)
		return true;
	return !my->pause_is_due && !dt_account_has_used();
}

static inline bool
is_current(void)
{
	return is_known() &&
		pg_atomic_read_u32(&my->group->generation) == my->generation;
}

bool
dt_account_is_current(void)
{
	return is_current();
}

bool
dt_account_is_quiet(void)
{
	return is_current() && !my->pause_is_due && !has_uncharged() &&
		my->group->suspended_since == 0 && !dt_debt_any &&
		!dt_account_workers_have_charged();
}

/*
 * Set or clear the mark by which others see that this process sleeps, for its
 * own group or that of a debt.
 */
static void
mark_paused_locked(DtGroup *g, int64 now, TimestampTz wall_clock)
{
	dt_member_note_cause(my->slot, my->cause, now);
	if (my->asleep && my->slot->paused_in != NULL)
		return;
	my->asleep = true;
	dt_member_falls_asleep(my->slot, g, now, wall_clock);
}

static void
mark_running_locked(DtGroup *g, int64 now)
{
	if (!my->asleep)
		return;
	my->asleep = false;
	dt_member_wakes_up(my->slot, g, now);
}

/*
 * What was used since the last charge, in bytes, without what parallel workers
 * have charged.  Counts it for the views.
 */
static int64
take_uncharged_locked(int resource, int64 now)
{
	DtGroupUsage *group_usage = &my->group->usage[resource];
	DtMemberUsage *my_usage = &my->slot->usage[resource];
	DtUsage    *usage = &my->usage[resource];
	int64		used = dt_account_counter(resource);
	int64		bytes = used - usage->charged_up_to;

	usage->charged_up_to = used;
	if (my_usage->charged_by_workers > 0 && !IsParallelWorker())
		bytes -= dt_account_take_workers_part_locked(resource, bytes);
	if (bytes == 0)
		return 0;
	my_usage->used += bytes;
	group_usage->used += bytes;
	dt_meter_add(&group_usage->meter, bytes, now);
	dt_histogram_add(&group_usage->histogram, bytes, now);
	if (my->worker_runs)
		usage->worker_used += bytes;
	return bytes;
}

/*
 * In mode observe: forgive what is owed, and count the pause that would have
 * paid for it.
 */
static void
forgive_locked(int64 now)
{
	int64		pause = 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		due = dt_rate_forgive(&my->group->usage[r].rate,
										  &my->slot->usage[r].rate, now);

		pause = Max(pause, due);
	}
	if (pause == 0)
		return;
	my->slot->stats.observed_pauses++;
	my->slot->stats.observed_pause_us += pause;
	my->group->stats.observed_pauses++;
	my->group->stats.observed_pause_us += pause;
}

/*
 * Leave the group.  keep_debt: the session goes on owing what it owes there.
 * False when it has too many debts already.
 */
static bool
lock_and_leave(bool keep_debt)
{
	int64		uncharged[DT_RESOURCES];
	bool		left = true;
	DtGroup    *g;
	int64		now;
	int			r;

	if ((g = dt_account_lock(NULL, &now)) == NULL)
		return true;
	mark_running_locked(g, now);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		uncharged[r] = take_uncharged_locked(r, now);
		my->xact_used += uncharged[r];
		if (!my->usage[r].was_throttled || !dt_throttling_is_enabled() ||
			g->observe)
			uncharged[r] = 0;
	}
	if (g->observe)
		forgive_locked(now);
	if (keep_debt)
		left = dt_member_leave_owing(my->slot, uncharged, now);
	else
		dt_member_leave(my->slot, uncharged, now);
	if (left && keep_debt)
		my->slot->times_left++; /* the caller holds the registry lock */
	dt_account_unlock(g);
	if (left)
		forget_account();
	return left;
}

bool
dt_account_lock_and_leave(void)
{
	bool		was_open = dt_account_lock_and_follow();
	bool		left;

	/* removes debts that have been paid */
	(void) dt_debt_lock_and_look(my->slot, false, 0);
	left = lock_and_leave(true);
	if (was_open)
	{
		dt_debt_expect();
		dt_account_charge_at_next_safe_point();
	}
	return left;
}

void
dt_account_lock_and_close(void)
{
	(void) lock_and_leave(false);
	if (my->slot != NULL)
		dt_member_hand_over_debts(my->slot);
}

/*
 * Before its first statement in a group a session waits for what others of its
 * role have left there unpaid.  For how long, in us?  Returns "pause" if that
 * is longer, otherwise sets "cause".  asleep: this goes on with a pause, which
 * is the last one for that reason when nothing is left.
 */
static int64
left_to_role_locked(int64 pause, bool asleep, int64 now)
{
	int64		left = 0;

	if (my->slot->pays_for_role && !my->group->observe &&
		dt_throttling_is_enabled())
		left = dt_role_debt_pause(my->group, my->slot->role, asleep, now);
	if (asleep && left == 0)
		my->slot->pays_for_role = false;
	if (left <= pause)
		return pause;
	my->cause = DT_BY_ROLE;
	return left;
}

static pg_noinline bool
lock_and_pays_for_role(void)
{
	int64		pause;
	DtGroup    *g;
	int64		now;

	if ((g = dt_account_lock(NULL, &now)) == NULL)
		return false;
	pause = left_to_role_locked(0, false, now);
	if (pause == 0)
		my->slot->pays_for_role = false;
	dt_account_unlock(g);
	return pause > 0;
}

bool
dt_account_lock_and_pays_for_role(void)
{
	return my->slot != NULL && my->slot->pays_for_role &&
		lock_and_pays_for_role();
}

/*
 * Charge the group with what was used since the last charge, and set when the
 * next charge is due.  Returns for how long to pause, in us, and sets "cause".
 * May be called in a signal handler.
 */
static int64
charge_locked(int64 now, double jitter, bool in_flight)
{
	int64		next_charge[DT_RESOURCES];
	int64		pause = 0;
	int			r;

	my->generation = pg_atomic_read_u32(&my->group->generation);
	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &my->group->usage[r].rate;
		DtRateMember *account = &my->slot->usage[r].rate;
		DtUsage    *usage = &my->usage[r];
		int64		bytes = take_uncharged_locked(r, now);
		int64		threshold = UNLIMITED_CHARGE;
		int64		due = 0;
		bool		throttled = rate->rate > 0 &&
			dt_throttling_is_enabled();

		if (throttled)
		{
			/* what was used while there was no limit is not owed */
			due = dt_rate_charge(rate, account,
								 usage->was_throttled ? bytes : 0, now,
								 jitter);
			threshold = dt_rate_threshold(rate, account);
		}
		my->xact_used += bytes;
		usage->was_throttled = throttled;
		usage->pause_is_due = due > 0;
		usage->threshold = threshold;
		next_charge[r] = usage->charged_up_to + threshold;
		if (due > pause)
		{
			pause = due;
			my->cause = dt_group_pause_cause(my->group, r);
		}
	}
	pause = left_to_role_locked(pause, false, now);
	if (is_suspended(my->group, in_flight))
	{
		pause = SUSPEND_SLICE_US;
		my->cause = DT_BY_SUSPEND;
	}
	my->pause_is_due = pause > 0;
	dt_account_next_dirty = next_charge[DT_DIRTY] / BLCKSZ;
	dt_account_next_wal = next_charge[DT_WAL];
	return pause;
}

/*
 * Only the session itself pauses for its debts, and not its parallel workers,
 * which know nothing of them.
 */
static DtDebtLook
lock_and_look_at_debts(bool already_asleep, double jitter)
{
	static const DtDebtLook none = {0};

	if (my->slot == NULL || IsParallelWorker())
		return none;
	return dt_debt_lock_and_look(my->slot, already_asleep, jitter);
}

/* What is owed to the group, in us at its rate. */
static int64
owed_time_locked(int64 now)
{
	int64		owed_us = my->slot->pays_for_role ?
		dt_role_debt_time(my->group, my->slot->role, now) : 0;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *rate = &my->group->usage[r].rate;

		if (my->usage[r].pause_is_due)
		{
			int64		bytes = dt_rate_debt(rate, &my->slot->usage[r].rate,
											 now);

			owed_us = Max(owed_us, dt_rate_time(rate, bytes));
		}
	}
	return owed_us;
}

int64
dt_account_lock_and_charge(bool in_flight, int64 *owed_us)
{
	double		jitter = dt_clock_jitter();
	DtDebtLook	debts = lock_and_look_at_debts(false, jitter);
	DtGroup    *g;
	int64		pause;
	int64		now;

	*owed_us = debts.owed_us;
	if ((g = dt_account_lock(NULL, &now)) == NULL)
	{
		my->pause_is_due = debts.pause_us > 0;
		my->cause = debts.cause;
		return debts.pause_us;
	}
	mark_running_locked(g, now);	/* an error has ended the last pause */
	pause = charge_locked(now, jitter, in_flight);
	*owed_us = Max(*owed_us, owed_time_locked(now));
	if (debts.pause_us > pause)
	{
		pause = debts.pause_us;
		my->cause = debts.cause;
	}
	my->pause_is_due = pause > 0;
	dt_account_unlock(g);
	return pause;
}

void
dt_account_lock_and_follow_limit(void)
{
	int64		owed_us;

	if (my->group != NULL && !dt_account_is_current())
		(void) dt_account_lock_and_charge(true, &owed_us);
}

int64
dt_account_try_charge(void)
{
	int64		owed_us = 0;
	DtGroup    *g;
	bool		locked;
	int64		now;

	if (my->busy)
	{
		my->hands_off = 1;
		return -1;
	}

	/*
	 * A sleeping process uses nothing, and a charge would remove the jitter
	 * from its pause; see dt_rate_charge().
	 */
	if (my->slot == NULL || (g = my->slot->group) == NULL ||
		(my->asleep && is_followed()))
		return 0;

	/*
	 * This handler may have interrupted the holder: never wait for the lock.
	 */
	now = dt_now_us();
	locked = dt_group_try_lock(g);
	if (locked && my->slot->group != g)
	{
		dt_group_unlock(g);
		locked = false;
	}
	if (!locked)
	{
		dt_account_charge_at_next_safe_point();
		return -1;
	}
	dt_group_check_pressure(g, now);
	if (!is_followed())
		follow_locked(g);
	if (charge_locked(now, 0, true) > 0)
	{
		owed_us = Max(owed_time_locked(now), 1);
		dt_account_charge_at_next_safe_point();
	}
	dt_group_unlock(g);
	return owed_us;
}

/*
 * How much longer to pause for the limits.  Returns "pause" if that is longer,
 * otherwise sets "cause".
 */
static int64
left_to_pay_locked(int64 pause, int64 now)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64		left = dt_rate_wake(&my->group->usage[r].rate,
										&my->slot->usage[r].rate, now);

		if (left > pause)
		{
			pause = left;
			my->cause = dt_group_pause_cause(my->group, r);
		}
	}
	return pause;
}

static void
count_pause_locked(DtPauseStats *stats)
{
	stats->pauses++;
	if (dt_pause_is_by_wal(my->cause))
		stats->wal_pauses++;
}

int64
dt_account_lock_and_pause(bool first, bool in_flight, int64 longest,
						  bool *suspended)
{
	static TimestampTz since = 0;
	DtDebtLook	debts = lock_and_look_at_debts(true, 0);
	int64		pause = debts.pause_us;
	int64		now;
	DtGroup    *g;

	if (first)
		since = GetCurrentTimestamp();
	g = dt_account_lock(debts.debt, &now);
	*suspended = false;
	my->cause = debts.cause;
	if (g != NULL && g == my->group && dt_throttling_is_enabled())
	{
		if (g->observe)
			forgive_locked(now);
		else
			pause = left_to_role_locked(left_to_pay_locked(pause, now), true,
										now);
		if (is_suspended(g, in_flight))
		{
			*suspended = true;
			pause = SUSPEND_SLICE_US;
			my->cause = DT_BY_SUSPEND;
		}
	}
	my->pause_is_due = (g != NULL && pause > 0);
	if (!my->pause_is_due)
		pause = 0;
	else if (!*suspended)
		pause = Min(pause, longest);
	if (pause > 0)
	{
		mark_paused_locked(g, now, since);
		if (first)
		{
			count_pause_locked(&my->slot->stats);
			count_pause_locked(&g->stats);
			my->slot->xact.pauses++;
		}
	}
	if (g != NULL)
		dt_account_unlock(g);
	if (pause <= 0)
		dt_account_lock_and_end_pause();
	return pause;
}

void
dt_account_lock_and_end_pause(void)
{
	DtGroup    *g;
	int64		now;

	if (!my->asleep)
		return;
	if ((g = dt_account_lock(NULL, &now)) != NULL)
	{
		mark_running_locked(g, now);
		dt_account_unlock(g);
	}
	else if ((g = my->slot->paused_in) != NULL)
	{
		/* for a debt */
		dt_group_lock(g);
		mark_running_locked(g, now);
		dt_group_unlock(g);
	}
	my->asleep = false;
}

void
dt_account_lock_and_note_release(int pid)
{
	TimestampTz wall_clock = GetCurrentTimestamp();
	int64		now;
	DtGroup    *g = dt_account_lock(NULL, &now);

	if (g == NULL)
		return;
	dt_member_note_release(my->slot, g, pid, now, wall_clock);
	dt_account_unlock(g);
}

void
dt_account_lock_and_end_release(void)
{
	int64		now;
	DtGroup    *g = dt_account_lock(NULL, &now);

	if (g == NULL)
		return;
	dt_member_end_release(my->slot, g, now);
	dt_account_unlock(g);
}

void
dt_account_end_transaction(void)
{
	my->xact_used = 0;
}
