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
 * any moment: then the slot's group pointer is NULL under the lock, and we
 * become a session without a group.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
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

static pg_atomic_uint32 no_generation;	/* for sessions without a group */

bool		dt_session_active = false;
int64		dt_session_next_charge = PG_INT64_MAX;
uint32		dt_session_generation = 0;
pg_atomic_uint32 *dt_session_group_generation = &no_generation;

/* What dirty_throttle.group says. */
static char wanted_name[NAMEDATALEN];
static uint64 wanted_id = 0;
static bool wanted_changed = false; /* and not yet acted upon */
static bool missing_warned = false; /* the user knows that it is missing */
static uint64 looked_up_version = 0;	/* registry when it was missing */

/* Membership; the slot is ours for the backend's life. */
static DtMember *my = NULL;		/* NULL: never was a member */
static bool joined = false;
static uint64 joined_id = 0;
static uint32 wait_event = 0;

/* The account. */
static int64 billed = 0;		/* counter value at the last charge */
static bool owes = false;		/* the last charge asked for a pause */
static int64 xact_blocks = 0;	/* charged in this transaction */
static bool xact_paces = false; /* it has once owed more than the grace */
static bool xact_cancelled = false; /* by the user or a timeout */
static bool xact_ending = false;	/* a pause after it is still to come */

bool
dt_session_may_join(void)
{
	return MyBackendType == B_BACKEND ||
		(MyBackendType == B_BG_WORKER &&
		 !IsParallelWorker() && !IsLogicalWorker());
}

bool
dt_session_is_member(void)
{
	return joined;
}

void
dt_session_warn_unknown_group(const char *name)
{
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist, this session is not throttled",
					name),
			 errhint("Create it with set_group_dirty_limit(), or correct dirty_throttle.group for this role, database or server.")));
}

/*
 * Local state of a session without a group.
 */
static void
forget_group(void)
{
	joined = false;
	owes = false;
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
mark_paused(DtGroup *g, int64 now, TimestampTz wall_clock)
{
	if (my->paused)
		return;
	my->paused = true;
	my->paused_since_us = now;
	my->paused_since = wall_clock;
	g->paused++;
}

static void
mark_running(DtGroup *g, int64 now)
{
	if (!my->paused)
		return;
	my->paused = false;
	my->paused_us += now - my->paused_since_us;
	g->paused_us += now - my->paused_since_us;
	g->paused--;
}

/*
 * Count blocks for the views.  Under the group's lock.
 */
static void
count_blocks(DtGroup *g, int64 blocks, int64 now)
{
	my->blocks_dirtied += blocks;
	g->blocks_dirtied += blocks;
	dt_meter_add(&g->meter, blocks * BLCKSZ, now);
}

static void
leave_group(void)
{
	DtGroup    *g = my->group;

	if (g != NULL)
	{
		int64		used = pgBufferUsage.shared_blks_dirtied;
		int64		now = dt_now_us();

		SpinLockAcquire(&g->lock);
		if (my->group == g)
		{
			mark_running(g, now);
			count_blocks(g, used - billed, now);
			dt_rate_leave(&g->rate, &my->rate, (used - billed) * BLCKSZ, now);
			my->group = NULL;
		}
		SpinLockRelease(&g->lock);
		billed = used;
	}
	forget_group();
}

/*
 * on_shmem_exit and not before_shmem_exit: the last abort comes in between,
 * and what it dirties is ours, too.
 */
static void
leave_at_exit(int code, Datum arg)
{
	if (joined)
		leave_group();
}

static void
join_group(uint64 id, const char *name)
{
	DtGroup    *g;

	if (my == NULL)
	{
		on_shmem_exit(leave_at_exit, (Datum) 0);
		my = dt_group_my_member();
	}
	g = dt_group_join(my, &id, name);
	if (g == NULL)
		return;

	joined = true;
	joined_id = id;
	billed = pgBufferUsage.shared_blks_dirtied;
	owes = false;
	xact_blocks = 0;
	xact_paces = false;
	dt_session_active = true;
	dt_session_group_generation = &g->generation;
	dt_session_next_charge = billed;	/* the first charge sets the pace */
}

/*
 * Make the membership what dirty_throttle.group says.  Does not fail.
 */
static void
apply_wanted_group(void)
{
	uint64		id = wanted_id;

	wanted_changed = false;
	looked_up_version = dt_group_registry_version();
	if (id == 0 && wanted_name[0] != '\0')
		id = dt_group_lookup(wanted_name);
	if (joined)
	{
		if (id != 0 && id == joined_id && my->group != NULL)
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
dt_session_want_group(const char *name, DtWantedGroup *wanted)
{
	bool		usable = strlen(name) < NAMEDATALEN;

	strlcpy(wanted_name, usable ? name : "", NAMEDATALEN);
	wanted_id = wanted ? wanted->id : 0;
	missing_warned = wanted ? wanted->warned : false;
	looked_up_version = 0;
	wanted_changed = true;
	dt_session_active = joined || wanted_name[0] != '\0';

	if (dt_group_available() && MyProc != NULL && dt_session_may_join() &&
		!xact_ending)
		apply_wanted_group();
}

void
dt_session_begin_statement(void)
{
	if (!dt_session_may_join() || !dt_group_available() || xact_ending)
		return;

	if (wait_event == 0)
		wait_event = WaitEventExtensionNew("DirtyThrottle");
	if (joined && my->group == NULL)
		forget_group();			/* dropped by force */

	/* Set where there was no shared memory yet, or missing up to now. */
	if (!joined && wanted_name[0] != '\0' &&
		looked_up_version != dt_group_registry_version())
	{
		apply_wanted_group();
		if (!joined && !missing_warned)
		{
			missing_warned = true;
			dt_session_warn_unknown_group(wanted_name);
		}
	}
}

/*
 * Charge the group with what was dirtied since the last charge.  Returns for
 * how long to pause, in us; *xact_owed_us is how much of the debt is this
 * transaction's, in time at the group's rate.
 */
static int64
charge(int64 *xact_owed_us)
{
	DtGroup    *g = my->group;
	int64		used = pgBufferUsage.shared_blks_dirtied;
	int64		blocks = used - billed;
	int64		pause = 0;
	int64		debt = 0;
	int64		rate = 0;
	int64		threshold = UNLIMITED_CHARGE_BLOCKS;
	bool		member = false;

	*xact_owed_us = 0;
	if (g != NULL)
	{
		double		jitter = pg_prng_double(&pg_global_prng_state);
		int64		now = dt_now_us();

		SpinLockAcquire(&g->lock);
		member = (my->group == g);
		if (member)
		{
			dt_session_generation = pg_atomic_read_u32(&g->generation);
			mark_running(g, now);	/* an error has ended the last pause */
			count_blocks(g, blocks, now);
			rate = g->rate.rate;
			if (rate > 0 && dt_group_throttling_enabled())
			{
				pause = dt_rate_charge(&g->rate, &my->rate, blocks * BLCKSZ,
									   now, jitter);
				threshold = dt_rate_threshold(&g->rate, &my->rate) / BLCKSZ;
				if (pause > 0)
					debt = dt_rate_debt(&g->rate, &my->rate, now);
			}
		}
		SpinLockRelease(&g->lock);
	}
	if (!member)
	{
		forget_group();			/* dropped by force */
		return 0;
	}

	billed = used;
	xact_blocks += blocks;
	owes = pause > 0;
	dt_session_next_charge = used + threshold;
	if (pause > 0)
		*xact_owed_us = Min((double) debt, (double) xact_blocks * BLCKSZ) *
			1000000.0 / rate;
	return pause;
}

/*
 * How much longer to pause, in us; 0 marks us as running again.
 */
static int64
remaining_pause(bool first)
{
	DtGroup    *g = my->group;
	TimestampTz wall_clock = GetCurrentTimestamp();
	int64		now = dt_now_us();
	int64		pause = 0;

	if (g == NULL)
		return 0;
	SpinLockAcquire(&g->lock);
	if (my->group == g)
	{
		if (dt_group_throttling_enabled())
			pause = dt_rate_wake(&g->rate, &my->rate, now);
		if (pause > 0)
		{
			mark_paused(g, now, wall_clock);
			if (first)
			{
				my->pauses++;
				g->pauses++;
			}
		}
		else
			mark_running(g, now);
	}
	SpinLockRelease(&g->lock);
	owes = pause > 0;
	return pause;
}

/*
 * The pause ends before all is paid.
 */
static void
interrupt_pause(void)
{
	DtGroup    *g = my->group;
	int64		now = dt_now_us();

	if (g == NULL)
		return;
	SpinLockAcquire(&g->lock);
	if (my->group == g)
		mark_running(g, now);
	SpinLockRelease(&g->lock);
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
 * Pause between two rows.  An ERROR leaves nothing to undo: what is owed
 * stays on the books.
 */
static void
pause_in_flight(void)
{
	bool		latch_set = false;
	bool		first = true;
	int64		pause;

	while ((pause = remaining_pause(first)) > 0)
	{
		first = false;
		(void) sleep_slice(pause, WL_EXIT_ON_PM_DEATH, &latch_set);
		if (InterruptPending)
		{
			interrupt_pause();
			CHECK_FOR_INTERRUPTS();
		}
	}
	if (latch_set)
		SetLatch(MyLatch);
}

void
dt_session_pace(void)
{
	int64		xact_owed_us;
	int64		pause;

	if (!joined)
		return;
	pause = charge(&xact_owed_us);
	if (pause == 0)
		return;

	/* Not a place to sleep: what is owed is paid at the next one. */
	if (CritSectionCount > 0 || InterruptHoldoffCount > 0 ||
		QueryCancelHoldoffCount > 0 || proc_exit_inprogress)
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
	pause_in_flight();
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

	if (joined && (owes || pgBufferUsage.shared_blks_dirtied != billed))
		pause = charge(&xact_owed_us);

	/*
	 * Who has cancelled something wants to go on now, and who has dirtied
	 * nothing in vain owes only what earlier transactions have left.
	 */
	if (!committed && (xact_cancelled || xact_blocks == 0))
		may_pause = false;
	xact_blocks = 0;
	xact_paces = false;
	xact_cancelled = false;

	if (pause == 0 || !may_pause || proc_exit_inprogress)
		return false;
	xact_ending = true;
	return true;
}

void
dt_session_pause_after_transaction(void)
{
	int64		until = dt_now_us() + dt_max_commit_pause_ms * INT64CONST(1000);
	int			stop_at = WL_POSTMASTER_DEATH;
	bool		latch_set = false;
	bool		first = true;

	/*
	 * A background worker may learn by its latch alone that it has to stop,
	 * through a signal handler of its own.
	 */
	if (MyBackendType != B_BACKEND)
		stop_at |= WL_LATCH_SET;

	/* A failed transaction block may be left by leaving the server. */
	while (!InterruptPending && !proc_exit_inprogress)
	{
		int64		left = until - dt_now_us();
		int64		pause;

		if (left <= 0 || (pause = remaining_pause(first)) == 0)
			break;
		first = false;
		if (sleep_slice(Min(pause, left), WL_POSTMASTER_DEATH,
						&latch_set) & stop_at)
			break;
	}
	interrupt_pause();
	if (latch_set)
		SetLatch(MyLatch);

	xact_ending = false;
	if (wanted_changed)
		apply_wanted_group();
}
