/*-------------------------------------------------------------------------
 *
 * account.c
 *		What this process uses, charged to its group.
 *
 * The core counts in pgBufferUsage.shared_blks_dirtied each shared buffer that
 * this process turns dirty, and in pgWalUsage.wal_bytes the WAL that it
 * writes.  The difference to "charged_up_to" is what has not been charged yet.
 * A charge passes it to the group's rate engines, one for each resource, which
 * tell what is owed and how long to pause; pay.c decides whether and
 * where.
 *
 * What is shared is in the DtMember slot and the DtGroup, under the group's
 * spinlock; the rest is local, in dt_account.  Others may move this session
 * out of its group or into another at any time.  dt_account_lock() notices
 * that and follows; what was not charged by then is charged to the new group.
 *
 * The handlers of tick.c's timers read a few of these variables, to find out
 * whether a charge is worth a check for interrupts.  They never charge: they
 * request the check, and set next_dirty and next_wal so that a row that comes
 * before it charges.
 *
 * Functions whose names end in "_locked" expect the group to be locked.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "session/account.h"
#include "session/gathers.h"
#include "shared/commits.h"
#include "shared/group.h"
#include "shared/role_debt.h"
#include "utils/timestamp.h"

/* Parallel workers use less than half of this before their work, in bytes. */
#define FEW_BYTES			(32 * (int64) BLCKSZ)

/* With no limit in force, charge after so many bytes. */
#define UNLIMITED_CHARGE	(1024 * (int64) BLCKSZ)

/* What is used between two pauses at checks, in batches. */
#define QUANTUM				4

/* The length of a slice in a suspended group. */
#define SUSPEND_SLICE_US		INT64CONST(1000000)

DtMember	dt_no_slot;

DtAccount	dt_account = {
	.next_dirty = PG_INT64_MAX,.next_wal = PG_INT64_MAX,.slot = &dt_no_slot
};

static DtAccount *const my = &dt_account;

/* This process is in no group any more. */
static void
forget_account(void)
{
	if (my->group != NULL)
		dt_commits_note_leaving(my->group);
	my->group = NULL;
	my->pause_is_due = false;
	my->asleep = false;
	my->next_dirty = my->next_wal = PG_INT64_MAX;
}

/*
 * Is the membership the one that this process has followed?
 *
 * This is not dt_account_is_known(), which is false for a session in no group.
 * Such a session has nothing to follow, and must not be made to look: after
 * dt_account_leave() it has next_dirty and next_wal = 0, so that it comes to
 * pay its creditor, and dt_account_lock() would set these to the maximum.
 */
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

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		if (is_new)
			my->usage[r].charged_up_to = dt_account_counter(r);
		my->usage[r].was_throttled = true;
	}
	if (my->group != NULL && my->group != g)
		dt_commits_note_leaving(my->group);
	my->group = g;
	my->times_joined = my->slot->times_joined;
	my->times_left = my->slot->times_left;
	my->pause_is_due = false;
	my->asleep = false;
	my->generation = pg_atomic_read_u32(&g->generation) - 1;
	dt_account_charge_at_next_safe_point();
}

/*
 * Lock the group, to change the account.  *now is the time just before that.
 * Returns the group that is locked, or NULL when the session is in none (any
 * more).
 */
DtGroup *
dt_account_lock(int64 *now)
{
	DtGroup    *g;

	*now = dt_now_us();
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
		my->next_dirty = my->next_wal = PG_INT64_MAX;
	else if (my->slot->times_left != my->times_left)
		forget_account();
	else
		dt_account_charge_at_next_safe_point();
	return NULL;
}

/*
 * Is the slot in a group?  Others can change that at any time; this finds out,
 * and so does every charge.
 */
bool
dt_account_follow(void)
{
	int64		now;
	DtGroup    *g;

	if (!is_followed() && (g = dt_account_lock(&now)) != NULL)
		dt_group_unlock(g);
	return my->group != NULL;
}

static inline bool
is_suspended(DtGroup *g, bool in_flight)
{
	return dt_group_is_suspended(g, in_flight) &&
		my->slot->exempt_from != g->suspended_since;
}

/* Does suspend_group() make us pause also within a transaction? */
bool
dt_account_is_suspended_hard(void)
{
	return my->group != NULL && is_suspended(my->group, true) && is_followed();
}

/*
 * This session has suspended the group with that ID: if it is a member, the
 * suspension does not make it pause, however long it lasts.  Returns whether
 * it is one.
 */
bool
dt_account_exempt(uint64 group_id)
{
	int64		now;
	DtGroup    *g = dt_account_lock(&now);
	bool		result;

	if (g == NULL)
		return false;
	result = g->id == group_id && g->suspended_since != 0;
	if (result)
		my->slot->exempt_from = g->suspended_since;
	dt_group_unlock(g);
	return result;
}

/* How many bytes are worth a check for interrupts, as of the last charge? */
int64
dt_account_quantum(DtResource resource)
{
	return QUANTUM * my->usage[resource].batch;
}

/* Is this process in a group, as far as it or others know? */
bool
dt_account_is_member(void)
{
	return my->slot->group != NULL || my->group != NULL;
}

/*
 * Is there reason for a check for interrupts?  Has a quantum of bytes been
 * used or more, and so many that the group takes worth_us or more to earn
 * them; or has something changed, or is the group suspended with "hard"?
 */
bool
dt_account_check_is_due(int64 worth_us)
{
	if (!dt_account_is_current() || is_suspended(my->group, true))
		return true;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		bytes = dt_account_counter(r) - my->usage[r].charged_up_to;

		if (bytes >= dt_account_quantum(r) &&
			bytes * USECS_PER_SEC >= (double) worth_us * my->group->usage[r].engine.rate)
			return true;
	}
	return false;
}

/*
 * Set or clear the mark by which others see that this process sleeps, for its
 * own group or its creditor.  wall_clock: 0 if this is a part of the last
 * pause.
 */
static void
mark_paused_locked(DtGroup *g, int64 now, TimestampTz wall_clock)
{
	bool		falls_asleep = !my->asleep || my->slot->paused_in == NULL;

	my->asleep = true;
	dt_member_pauses(my->slot, g, my->cause, falls_asleep, now, wall_clock);
}

static void
mark_running_locked(DtGroup *g, int64 now)
{
	if (!my->asleep)
		return;
	my->asleep = false;
	dt_member_wakes_up(my->slot, g, now);
}

/* How much of it is more than the group allows each transaction? */
static int64
beyond_allowance_locked(DtMemberUsage *shared_usage, int64 bytes)
{
	int64		left = my->group->definition.allowance - shared_usage->allowed;
	int64		allowed = Min(bytes, Max(left, 0));

	shared_usage->allowed += allowed;
	return bytes - allowed;
}

/*
 * The leader's counter has gained "bytes": how many of these have parallel
 * workers charged already?  From then on they count as left out.
 *
 * Workers without a plan, such as those of CREATE INDEX, charge for the whole
 * command, and the core adds all that they have used to the leader's counter
 * in one go, at its end.  A gain that is much less than that is the leader's
 * own.
 */
static int64
take_workers_part_locked(int64 *charged, int64 *added, int64 bytes)
{
	int64		theirs = Min(Min(*charged, *added), bytes);

	if (my->slot->workers_have_no_plan && *charged > FEW_BYTES &&
		bytes < *charged / 2)
		theirs = 0;
	*charged -= theirs;
	if (*added != PG_INT64_MAX)
		*added -= theirs;
	return theirs;
}

/*
 * What was used since the last charge, in bytes, without what parallel workers
 * have charged.  Counts it for the views.  Returns how much of it is owed if
 * there is a limit.
 */
static int64
take_uncharged_locked(int resource, int64 now)
{
	DtGroupUsage *group_usage = &my->group->usage[resource];
	DtMemberUsage *shared_usage = &my->slot->usage[resource];
	DtUsage    *usage = &my->usage[resource];
	int64		used = dt_account_counter(resource);
	int64		bytes = used - usage->charged_up_to;

	usage->charged_up_to = used;
	if (shared_usage->charged_by_workers > 0 && !IsParallelWorker())
		bytes -= take_workers_part_locked(&shared_usage->charged_by_workers,
										  &dt_gathers_added[resource], bytes);
	if (bytes == 0)
		return 0;
	shared_usage->used += bytes;
	group_usage->used += bytes;
	dt_meter_add(&group_usage->meter, bytes, now);
	return beyond_allowance_locked(shared_usage, bytes);
}

/*
 * In mode observe: forgive what is owed, and count the pause that would have
 * paid for it.
 */
static void
forgive_locked(int64 now)
{
	int64		pause = 0;

	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		due = dt_rate_forgive(&my->group->usage[r].engine,
										  &my->slot->account[r], now);

		pause = Max(pause, due);
	}
	if (pause == 0)
		return;
	dt_member_count(my->slot, my->group, DT_OBSERVED_PAUSES, 1);
	dt_member_count(my->slot, my->group, DT_OBSERVED_US, pause);
	strlcpy(my->slot->xact.group_name, my->group->definition.name, NAMEDATALEN);
}

/*
 * While a member is to wait for its role, what the group repays is as good as
 * paid for the member: it does not fall behind with a share of its own, to use
 * that in advance afterwards.
 */
static void
forget_lag_locked(DtGroup *g, int64 now)
{
	for (int r = 0; r < DT_RESOURCES; r++)
		dt_rate_forget_lag(&g->usage[r].engine, &my->slot->account[r], now);
}

/*
 * Is a pause due for what the role of the session has left unpaid at its
 * creditor or, if it is asleep, how much longer?  Then sets "cause", and
 * *owed_us to what is owed there in time at that group's rate; otherwise to 0.
 *
 * When that is not worth a pause (any more), the session is done with it.  It
 * first waits for what it owes elsewhere.  The wait before its first statement
 * in a group is over only when that statement begins, or within that wait: then
 * "begins" is true.  Parallel workers know nothing of all that.
 */
static int64
look_at_creditor(bool asleep, bool begins, int64 *owed_us)
{
	int64		now;
	int64		pause = 0;
	DtResource	resource;
	DtGroup    *g;

	*owed_us = 0;
	if (my->slot->creditor == NULL || IsParallelWorker())
		return 0;
	now = dt_now_us();
	if ((g = dt_member_lock_creditor(my->slot)) == NULL)
		return 0;
	dt_group_check_pressure(g, now);
	if (dt_throttling_is_enabled())
		pause = dt_role_debt_pause(g, my->slot->role, asleep, now, &resource);
	if (pause > 0)
	{
		my->cause = my->slot->owes_creditor ?
			dt_group_pause_cause(g, resource) : DT_BY_ROLE;
		*owed_us = dt_role_debt_time(g, my->slot->role, now);
	}
	else if (my->slot->owes_creditor ? dt_throttling_is_enabled() : begins)
	{
		my->slot->creditor = NULL;
		if (my->slot->group == g)
			forget_lag_locked(g, now);
	}
	dt_group_unlock(g);
	if (my->slot->creditor != NULL || my->slot->group == g ||
		(g = dt_account_lock(&now)) == NULL)
		return pause;
	dt_member_wait_for_role(my->slot, g);
	dt_group_unlock(g);
	return look_at_creditor(asleep, begins, owed_us);
}

/*
 * Before a transaction: has the session to wait for what it or others of its
 * role have left unpaid in a group?
 */
bool
dt_account_waits_for_role(void)
{
	int64		owed_us;

	return look_at_creditor(false, true, &owed_us) > 0;
}

/*
 * Returns the longer one of "pause" and "due", a pause for a resource.  Sets
 * "cause" to that resource if it decides.  As the engine cuts pauses to a
 * second, two resources may have equal ones: then the one decides that takes
 * longer to pay.  *longest is how long that is, of the resources until now.
 */
static int64
longer_pause_locked(int64 pause, int64 due, DtResource resource, int64 *longest)
{
	int64		left;

	if (due <= 0 || due < pause)
		return pause;
	left = dt_rate_left(&my->group->usage[resource].engine,
						&my->slot->account[resource]);
	if (due > pause || (*longest > 0 && left > *longest))
	{
		*longest = left;
		my->cause = dt_group_pause_cause(my->group, resource);
	}
	return due;
}

/*
 * How long a pause is due: for the creditor "pause", for each resource due[],
 * and when the group is suspended.  Sets "cause" if it is not the creditor.
 */
static int64
decide_locked(int64 pause, const int64 due[DT_RESOURCES], bool in_flight)
{
	int64		longest = 0;

	for (int r = 0; r < DT_RESOURCES; r++)
		pause = longer_pause_locked(pause, due[r], r, &longest);
	if (is_suspended(my->group, in_flight))
	{
		pause = SUSPEND_SLICE_US;
		my->cause = DT_BY_SUSPEND;
	}
	return pause;
}

/*
 * Charge the group with what was used since the last charge, and set when the
 * next charge is due.  Sets due[] to how long a pause each resource asks for,
 * us.  *owed_us becomes what is owed, in us at the group's rate, if that is
 * more.
 */
static void
charge_locked(int64 now, double jitter, int64 due[DT_RESOURCES],
			  int64 *owed_us)
{
	int64		next_charge[DT_RESOURCES];

	my->generation = pg_atomic_read_u32(&my->group->generation);
	if (my->slot->creditor != NULL)
		forget_lag_locked(my->group, now);
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &my->group->usage[r].engine;
		DtRateMember *account = &my->slot->account[r];
		DtUsage    *usage = &my->usage[r];
		int64		bytes = take_uncharged_locked(r, now);
		bool		throttled = engine->rate > 0 &&
			dt_throttling_is_enabled();

		due[r] = 0;
		usage->batch = UNLIMITED_CHARGE;
		if (throttled)
		{
			/* what was used while there was no limit is not owed */
			due[r] = dt_rate_charge(engine, account,
									usage->was_throttled ? bytes : 0, now,
									jitter);
			usage->batch = dt_rate_batch(engine, account);
		}
		if (due[r] > 0)
			*owed_us = Max(*owed_us,
						   dt_rate_time(engine,
										dt_rate_debt(engine, account, now)));
		usage->was_throttled = throttled;
		next_charge[r] = usage->charged_up_to + usage->batch;
	}
	my->next_dirty = next_charge[DT_DIRTY] / BLCKSZ;
	my->next_wal = next_charge[DT_WAL];
}

/*
 * Who owes elsewhere, and has joined this group since then, comes to wait here
 * for its role when that is paid.  Until then what the role has left here
 * counts as well, or a little that is owed elsewhere would hide it from a
 * transaction that pays in flight what is more than the grace.
 */
static int64
left_to_role_locked(int64 pause, int64 now, int64 *owed_us)
{
	DtResource	resource;
	int64		left;

	if (my->slot->creditor == NULL || my->slot->creditor == my->group ||
		IsParallelWorker() || !dt_throttling_is_enabled())
		return pause;
	left = dt_role_debt_pause(my->group, my->slot->role, false, now, &resource);
	if (left == 0)
		return pause;
	*owed_us = Max(*owed_us,
				   dt_role_debt_time(my->group, my->slot->role, now));
	if (left > pause)
		my->cause = DT_BY_ROLE;
	return Max(pause, left);
}

/*
 * Leave the group.  What is left unpaid there, the session goes on pausing for
 * if that takes longer than owed_us.
 */
static void
leave(int64 owed_us)
{
	int64		due[DT_RESOURCES];
	int64		ignored = 0;
	int64		left_us;
	DtGroup    *g;
	int64		now;

	if ((g = dt_account_lock(&now)) == NULL)
		return;
	mark_running_locked(g, now);
	charge_locked(now, 0, due, &ignored);
	if (g->definition.observe)
		forgive_locked(now);
	left_us = dt_member_leave(my->slot, true, now);
	if (left_us > owed_us)		/* by its own choice: with the registry lock */
	{
		my->slot->creditor = g;
		my->slot->creditor_id = g->id;
		my->slot->owes_creditor = true;
	}
	dt_group_unlock(g);
	forget_account();
}

/*
 * Leave the group, if any, by the session's own choice: charge the rest, and
 * pause for what is owed there from now on.  Of several groups that were left
 * in debt only the one that takes longest counts, as they are repaid at the
 * same time.  The caller holds the registry lock in shared mode.
 */
void
dt_account_leave(void)
{
	bool		was_member = dt_account_follow();
	int64		owed_us = 0;

	if (my->slot->owes_creditor)
		(void) look_at_creditor(false, false, &owed_us);
	leave(my->slot->owes_creditor ? owed_us : 0);
	if (was_member)
		dt_account_charge_at_next_safe_point();
}

/* The process ends: leave the group, and pause for nothing any more. */
void
dt_account_close(void)
{
	leave(PG_INT64_MAX);
	dt_member_forget_creditor(my->slot);
}

/*
 * Charge what was used since the last charge.  Returns the pause that is due,
 * us, also for the creditor.  in_flight: where suspend_group() makes it pause
 * only with "hard", in a transaction for example.  Sets *owed_us to the
 * largest debt for which a pause is due, in time at its group's rate.
 *
 * If a pause is due, and that debt is pause_from_us or more or the group is
 * suspended, the pause begins here: this process is marked as asleep, and with
 * is_new the pause is counted; without, it is a part of the last one.  With
 * DT_NO_PAUSE no pause begins, nor in mode observe or in no group.
 */
int64
dt_account_charge(bool in_flight, int64 pause_from_us, bool is_new,
				  int64 *owed_us)
{
	double		jitter = dt_clock_jitter();
	bool		may_begin = pause_from_us != DT_NO_PAUSE;
	TimestampTz wall_clock = is_new && may_begin ? GetCurrentTimestamp() : 0;
	int64		pause = look_at_creditor(false, false, owed_us);
	int64		due[DT_RESOURCES];
	int64		now;
	DtGroup    *g;

	if (dt_account_workers_have_charged())
		dt_gathers_look();
	g = dt_account_lock(&now);
	if (g != NULL)
	{
		mark_running_locked(g, now);	/* an error has ended the last pause */
		charge_locked(now, jitter, due, owed_us);
		pause = left_to_role_locked(pause, now, owed_us);
		pause = decide_locked(pause, due, in_flight);
		if (pause > 0 && may_begin && !g->definition.observe &&
			(*owed_us >= pause_from_us || is_suspended(g, in_flight)))
			mark_paused_locked(g, now, wall_clock);
		dt_group_unlock(g);
	}
	my->pause_is_due = pause > 0;
	return pause;
}

/* Charge; if a pause is due, it is made at the next safe point. */
void
dt_account_catch_up(void)
{
	int64		owed_us;

	if (dt_account_charge(true, DT_NO_PAUSE, false, &owed_us) > 0)
		dt_account_charge_at_next_safe_point();
}

/*
 * Before a slice of a pause: returns for how much longer to sleep, us, but at
 * most "longest", unless the group is suspended.  If the result is more than
 * 0, this process is marked as asleep, and the pause is counted if it is new;
 * otherwise the caller calls dt_account_end_pause(), which ends a pause for a
 * creditor, too.  In mode observe the limits of the group cause no sleep: what
 * is owed is forgiven, and counted as an observed pause.
 */
int64
dt_account_pause(bool is_new, bool in_flight, int64 longest)
{
	TimestampTz wall_clock = is_new ? GetCurrentTimestamp() : 0;
	int64		owed_us;
	int64		pause = look_at_creditor(true, true, &owed_us);
	int64		due[DT_RESOURCES] = {0};
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		g = dt_member_lock_creditor(my->slot);
	else if (dt_throttling_is_enabled())
	{
		if (g->definition.observe)
			forgive_locked(now);
		else
			for (int r = 0; r < DT_RESOURCES; r++)
				due[r] = dt_rate_wake(&g->usage[r].engine,
									  &my->slot->account[r], now);
		pause = decide_locked(pause, due, in_flight);
	}
	if (g == NULL)
		pause = 0;
	my->pause_is_due = pause > 0;
	if (pause > 0 && my->cause != DT_BY_SUSPEND)
		pause = Min(pause, longest);
	if (g != NULL)
	{
		if (pause > 0)
			mark_paused_locked(g, now, wall_clock);
		else if (my->slot->paused_in == g)
			mark_running_locked(g, now);
		dt_group_unlock(g);
	}
	return pause;
}

/* End a pause before all is paid. */
void
dt_account_end_pause(void)
{
	DtGroup    *g;
	int64		now;

	if (!my->asleep)
		return;
	/* in no group it is for its creditor */
	if ((g = dt_account_lock(&now)) == NULL &&
		(g = my->slot->paused_in) != NULL)
		dt_group_lock(g);
	if (g != NULL)
	{
		mark_running_locked(g, now);
		dt_group_unlock(g);
	}
	my->asleep = false;
}

/*
 * The process goes on without pausing, because others wait: pid is one of them.
 * 0: nobody waits any more.  See dt_member_note_release().
 */
void
dt_account_note_release(int pid)
{
	TimestampTz wall_clock = GetCurrentTimestamp();
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return;
	dt_member_note_release(my->slot, g, pid, now, wall_clock);
	dt_group_unlock(g);
}
