/*-------------------------------------------------------------------------
 *
 * account.c
 *		What this process uses, charged to its group.
 *
 * The core counts in pgBufferUsage.shared_blks_dirtied each shared buffer that
 * this process turns dirty, and in pgWalUsage.wal_bytes the WAL that it
 * writes.  The difference to "charged_up_to" is what has not been charged yet.
 * A charge passes it to the group's rate engines, one for each resource, which
 * return what is owed and how long to pause; pay.c, and commit.c after a transaction,
 * decide whether and where.
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

#include "access/xact.h"
#include "session/account.h"
#include "session/activity.h"
#include "shared/commits.h"
#include "shared/group.h"
#include "utils/timestamp.h"
#include "waiters/waiters.h"

/* With no limit in force, charge after this many bytes. */
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

/*
 * Parallel workers charge what they use themselves.  When those of a node or a
 * command have ended, the core adds it to the counters of their leader, all at
 * once, and there is no hook.  So each adds it to workers_used of the leader's slot
 * before it ends, and here the leader leaves as much out of what its counters gain.
 *
 * It does not matter which gain that is: when all was added, all was left out.  While
 * a command works that has no plan, a gain that is much less is taken for the leader's
 * own: the leader of a B-tree's build writes all of it when its workers have ended.
 * Outside of parallel mode all was added, or never will be: dt_account_fail_workers().
 */
void
dt_account_leave_workers_out_slow(void)
{
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtUsage    *usage = &my->usage[r];
		int64		open = dt_account_open(r);
		int64		gain = dt_account_uncharged(r);
		int64		theirs = Min(open, gain);

		if (IsInParallelMode() && my->plan_level == 0 && gain < open / 2)
			continue;
		usage->charged_up_to += theirs;
		usage->taken += theirs;
		usage->left_out += theirs;
		if (!IsInParallelMode())
		{
			usage->taken += open - theirs;
			usage->left_out = 0;
		}
	}
}

/*
 * A transaction or subtransaction that had workers has failed.  What was left out
 * may never have been added, and what they have used never will be: charge all that
 * the counters have gained.
 */
void
dt_account_fail_workers(void)
{
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		my->usage[r].charged_up_to -= my->usage[r].left_out;
		my->usage[r].left_out = 0;
		my->usage[r].taken += dt_account_open(r);
	}
}

/* This process is in no group any more. */
static void
forget_account(void)
{
	if (my->group != NULL)
		dt_commits_note_leaving(my->group);
	my->group = NULL;
	my->is_due = false;
	dt_phase_leave();
	my->next_dirty = my->next_wal = PG_INT64_MAX;
}

/*
 * Is the membership the one that this process has followed?  This is not
 * dt_account_is_known(), which is false for a session in no group: such a
 * session has nothing to follow.
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
follow_locked(DtGroup *g, int64 now)
{
	bool		is_new = my->group == NULL ||
		my->slot->times_left != my->times_left;
	bool		owes = false;

	/* while there are workers, what these have used may still be added */
	if (is_new && !IsInParallelMode())
		dt_account_leave_workers_out();
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		if (is_new)
		{
			my->usage[r].charged_up_to = dt_account_counter(r);
			my->usage[r].left_out = 0;
		}
		my->usage[r].was_throttled = true;
		/* what it has taken over from its role */
		if (dt_rate_debt(&g->usage[r].engine, &my->slot->account[r], now) > 0)
			owes = true;
	}
	my->is_due = owes;
	if (!IsParallelWorker())	/* it is what its leader is */
		dt_phase_join(owes, my->slot->slips);
	/* what a worker does counts as writing; its login must not pay for others */
	if (dt_process() == DT_JOB)
		memset(&my->slot->reading, 0, sizeof(my->slot->reading));
	if (my->group != NULL && my->group != g)
		dt_commits_note_leaving(my->group);
	my->group = g;
	my->times_joined = my->slot->times_joined;
	my->times_left = my->slot->times_left;
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
				follow_locked(g, *now);
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

/* How many bytes are worth a check for interrupts, as of the last charge? */
int64
dt_account_quantum(DtResource resource)
{
	return QUANTUM * my->usage[resource].batch;
}

/*
 * Is there reason for a check for interrupts?  Has a quantum of bytes been
 * used or more, and so many that the group takes worth_us or more to earn
 * them; or has the membership changed, or what is defined of the group?
 */
bool
dt_account_check_is_due(int64 worth_us)
{
	if (!dt_account_is_current())
		return true;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		bytes = dt_account_uncharged(r);

		if (bytes >= dt_account_quantum(r) &&
			bytes * USECS_PER_SEC >= (double) worth_us * my->group->usage[r].engine.rate)
			return true;
	}
	return false;
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
	int64		bytes = dt_account_uncharged(resource);

	usage->charged_up_to += bytes;
	if (bytes == 0)
		return 0;
	shared_usage->used += bytes;
	group_usage->used += bytes;
	dt_meter_add(&group_usage->meter, bytes, now);
	dt_meter_add(&shared_usage->meter, bytes, now);
	return beyond_allowance_locked(shared_usage, bytes);
}

/*
 * What is due: for each resource a pause_us[], of which used[] bytes were used since
 * the last charge, and when the group is suspended.  As the engine cuts pauses to a
 * second, two resources may have equal ones: then the one decides that takes longer
 * to pay.
 */
static void
decide_locked(DtDue *due, const int64 pause_us[DT_RESOURCES],
			  const int64 used[DT_RESOURCES], bool heeds_suspension, int64 now)
{
	DtGroup    *g = my->group;
	bool		any = pause_us[DT_DIRTY] > 0 || pause_us[DT_WAL] > 0;

	due->heeds_suspension = heeds_suspension;
	for (int r = 0; r < DT_RESOURCES && any; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;
		DtRateMember *account = &my->slot->account[r];
		int64		left_us;

		if (engine->rate == 0)
			continue;
		due->owed_bytes[r] = dt_rate_debt(engine, account, now);
		if (pause_us[r] <= 0)
			continue;
		due->owed_us = Max(due->owed_us,
						   dt_rate_time(engine, due->owed_bytes[r]));
		left_us = dt_rate_left(engine, account);
		if (pause_us[r] > due->pause_us ||
			(pause_us[r] == due->pause_us && left_us > due->left_us))
			due->cause = dt_group_pause_cause(g, r);
		due->pause_us = Max(due->pause_us, pause_us[r]);
		due->used_us = Max(due->used_us,
						   (int64) (Min((double) used[r] / Max(due->owed_bytes[r], 1),
										1) * left_us));
		if (left_us < due->left_us)
			continue;
		due->left_us = left_us;
		due->slowest = r;
	}
	if (heeds_suspension && dt_group_is_suspended(g))
	{
		due->pause_us = SUSPEND_SLICE_US;
		due->cause = DT_BY_SUSPEND;
	}
	due->observed = g->definition.observe && due->cause != DT_BY_SUSPEND;
	if (due->pause_us > 0)
		strlcpy(my->slot->xact.group_name, g->definition.name, NAMEDATALEN);
}

/*
 * Charge the group with what was used since the last charge, and set when the
 * next charge is due.  Sets pause_us[] to how long a pause each resource asks
 * for, and used[] to what was charged.
 */
static void
charge_locked(int64 now, double jitter, int64 pause_us[DT_RESOURCES],
			  int64 used[DT_RESOURCES])
{
	int64		next_charge[DT_RESOURCES];

	my->generation = pg_atomic_read_u32(&my->group->generation);
	dt_account_leave_workers_out();
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &my->group->usage[r].engine;
		DtRateMember *account = &my->slot->account[r];
		DtUsage    *usage = &my->usage[r];
		int64		bytes = take_uncharged_locked(r, now);
		bool		throttled = engine->rate > 0 &&
			dt_throttling_is_enabled();

		pause_us[r] = 0;
		used[r] = bytes;
		usage->batch = UNLIMITED_CHARGE;
		if (throttled)
		{
			/* what was used while there was no limit is not owed */
			pause_us[r] = dt_rate_charge(engine, account,
										 usage->was_throttled ? bytes : 0, now,
										 jitter);
			usage->batch = dt_rate_batch(engine, account);
		}
		usage->was_throttled = throttled;
		next_charge[r] = usage->charged_up_to + usage->batch;
	}
	my->next_dirty = next_charge[DT_DIRTY] / BLCKSZ;
	my->next_wal = next_charge[DT_WAL];
}

/* Those who look who waits for whom know of it, too. */
static void
note_due(const DtDue *due, int64 now)
{
	my->is_due = due->pause_us > 0;
	dt_waiters_note_debt(my->group != NULL ? my->group->id : 0,
						 due->owed_us > 0 ? now + due->owed_us : 0);
}

DtDue
dt_account_charge(bool heeds_suspension)
{
	double		jitter = dt_clock_jitter();
	int64		pause_us[DT_RESOURCES];
	int64		used[DT_RESOURCES];
	DtDue		due = {0};
	int64		now;
	DtGroup    *g;

	g = dt_account_lock(&now);
	if (g != NULL)
	{
		charge_locked(now, jitter, pause_us, used);
		decide_locked(&due, pause_us, used, heeds_suspension, now);
		dt_group_unlock(g);
	}
	note_due(&due, now);
	return due;
}

int64
dt_account_group_owes_us(void)
{
	int64		us = 0;
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return 0;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		DtRateGroup *engine = &g->usage[r].engine;

		if (engine->rate > 0)
			us = Max(us, dt_rate_time(engine, dt_rate_group_debt(engine, now)));
	}
	dt_group_unlock(g);
	return us;
}

/*
 * In mode observe, where a pause would be made: forgive what is owed, and count
 * that pause.
 */
void
dt_account_forgive(void)
{
	int64		pause = 0;
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	my->is_due = false;
	if (g == NULL)
		return;
	for (int r = 0; r < DT_RESOURCES; r++)
	{
		int64		us = dt_rate_forgive(&g->usage[r].engine,
										 &my->slot->account[r], now);

		pause = Max(pause, us);
	}
	if (pause > 0)
	{
		dt_member_count(my->slot, g, DT_OBSERVED_PAUSES, 1);
		dt_member_count(my->slot, g, DT_OBSERVED_US, pause);
	}
	dt_group_unlock(g);
}

bool
dt_account_pass_debt(DtMember *to)
{
	int64		now;
	DtGroup    *g = dt_account_lock(&now);
	bool		same;

	if (g == NULL)
		return false;
	same = to->group == g;
	for (int r = 0; r < DT_RESOURCES && same; r++)
		dt_rate_pass_debt(&g->usage[r].engine, &my->slot->account[r],
						  &to->account[r], 1, 0, now);
	dt_group_unlock(g);
	if (same)
		my->is_due = false;
	return same;
}

bool
dt_account_begin_pause(DtPause *pause)
{
	uint32		times_joined = my->times_joined;
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return false;
	if (my->times_joined == times_joined)
		dt_member_begin_pause(my->slot, pause, now);
	dt_group_unlock(g);
	return pause->is_on;
}

/* The session left its group while it paused: the pause was for that one. */
static void
count_pause_elsewhere(DtPause *pause)
{
	int64		now = dt_now_us();

	dt_group_lock(pause->group);
	dt_member_count_pause(my->slot, pause, now);
	dt_group_unlock(pause->group);
}

/*
 * A slice of a pause is over: count it, and return how much longer to pause.
 */
DtDue
dt_account_look(bool heeds_suspension, DtPause *pause)
{
	static const int64 nothing[DT_RESOURCES] = {0};
	int64		pause_us[DT_RESOURCES] = {0};
	DtDue		due = {0};
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g != NULL)
	{
		for (int r = 0; r < DT_RESOURCES && dt_throttling_is_enabled() &&
			 !g->definition.observe; r++)
			pause_us[r] = dt_rate_wake(&g->usage[r].engine,
									   &my->slot->account[r], now);
		decide_locked(&due, pause_us, nothing, heeds_suspension, now);
		if (pause->group == g)
			dt_member_count_pause(my->slot, pause, now);
		dt_group_unlock(g);
	}
	if (pause->group != g)
		count_pause_elsewhere(pause);
	note_due(&due, now);
	return due;
}

/*
 * Leave the group, if any.  The rest is charged, and what is owed is left to the
 * role; see role_debt.c.  By the session's own choice that is done with the
 * registry lock, in shared mode; at the exit of the process without it.
 */
void
dt_account_leave(void)
{
	int64		pause_us[DT_RESOURCES];
	int64		used[DT_RESOURCES];
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return;
	charge_locked(now, 0, pause_us, used);
	dt_member_leave(my->slot, true, now);
	dt_group_unlock(g);
	forget_account();
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

/*
 * That is what the group earns within the grace, and what it allows each
 * transaction.
 */
int64
dt_account_without_pause(DtResource resource)
{
	int64		bytes = 0;
	int64		now;
	DtGroup    *g = dt_account_lock(&now);

	if (g == NULL)
		return 0;
	if (dt_throttling_is_enabled() && !g->definition.observe &&
		g->usage[resource].engine.rate > 0)
		bytes = 1 + g->definition.allowance +
			(int64) (g->usage[resource].engine.rate *
					 (dt_parameters.transaction_grace / 1000.0));
	dt_group_unlock(g);
	return bytes;
}

int64
dt_account_paused_us(void)
{
	int64		now;
	DtGroup    *g = dt_account_lock(&now);
	int64		us = my->slot->stats[DT_PAUSED_US];

	if (g != NULL)
		dt_group_unlock(g);
	return us;
}
