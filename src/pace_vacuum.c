/*-------------------------------------------------------------------------
 *
 * pace_vacuum.c
 *		Safe points in VACUUM and ANALYZE: their own cost-based naps.
 *
 * vacuum_delay_point() naps when the pages handled have cost more than a
 * limit.  It is no hook, but its parameters are variables, and a nap is a
 * plain sleep that any signal ends.  So a member's VACUUM gets a budget of a
 * few dirtied pages and a nap longer than ever needed, and a timer ends the
 * nap: its signal handler charges the group, which tells when all will be
 * paid, grants the next budget and sets the timer to that moment.  The work
 * between two naps takes its time out of the nap, and an inexact nap shows in
 * the next charge, so the rate is the group's, however slow the pages are.
 *
 * A vacuum_cost_delay of the user stays in force: pages then cost what the
 * user said, and the timer waits for the longer of the two.  Where the core
 * has switched the delay off (failsafe), we leave it off.
 *
 * Parallel vacuum workers would nap each for themselves, with copies of the
 * parameters that we cannot reach, so a member's VACUUM gets none.
 *
 * Autovacuum workers get their parameters from elsewhere, and rewritten after
 * each nap, except for the cost of a dirtied page.  In a group, they are
 * steered by that.  A vacuum to prevent wraparound is let alone.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "account.h"
#include "commands/defrem.h"
#include "commands/vacuum.h"
#include "executor/instrument.h"
#include "group.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pace.h"
#include "pause.h"
#include "session.h"
#include "statement.h"
#include "tcop/utility.h"
#include "utils/timeout.h"

#include "compat.h"

/* A nap that nothing but the timer ends. */
#define NAP_MS				10000

/*
 * The timer: at most this often, which also bounds how long a change of the
 * limit goes unnoticed unless a single page takes longer; and when the account
 * is in use by somebody else at the moment.
 */
#define SHORTEST_TURN_US	5000
#define LONGEST_TURN_US		100000
#define RETRY_US			2000
#define UNTHROTTLED_TURN_US	1000000

/* Naps of the user's that are shorter are taken together up to this. */
#define OWN_TURN_MS			20

/*
 * A page that is only looked at can be changed, and make WAL, without turning
 * dirty.  With a WAL limit it costs this part of one that does, as by the
 * core's defaults; how much WAL that makes is seen from turn to turn.
 */
#define VISITS_PER_DIRTIED	20

/* Budget of a turn, in charges' worth: clearly more than a shortest pause. */
#define CHARGES_PER_TURN	4

typedef struct CostSettings
{
	int			page_hit;
	int			page_miss;
	int			page_dirty;
	int			limit;
	double		delay;			/* ms */
	int			workers;		/* maintenance workers */
} CostSettings;

static ProcessUtility_hook_type next_process_utility = NULL;
static TimeoutId turn_timeout = MAX_TIMEOUTS;	/* not registered */

static bool pacing = false;		/* a VACUUM or ANALYZE is under way */
static bool full;				/* it is VACUUM FULL, which takes no naps */
static CostSettings own;		/* what the user has set */
static BufferUsage last_usage;	/* at the last turn */
static double own_due_us;		/* nap still due by the user's settings */
static uint64 last_wal;			/* WAL written up to the last turn, bytes */
static double wal_per_cost;		/* WAL that a unit of cost makes, bytes */
static int64 last_turn;			/* its time, us */

static void
get_settings(CostSettings *s)
{
	s->page_hit = VacuumCostPageHit;
	s->page_miss = VacuumCostPageMiss;
	s->page_dirty = VacuumCostPageDirty;
	s->limit = VacuumCostLimit;
	s->delay = VacuumCostDelay;
	s->workers = max_parallel_maintenance_workers;
}

static void
set_settings(const CostSettings *s)
{
	VacuumCostPageHit = s->page_hit;
	VacuumCostPageMiss = s->page_miss;
	VacuumCostPageDirty = s->page_dirty;
	VacuumCostLimit = s->limit;
	VacuumCostDelay = s->delay;
	max_parallel_maintenance_workers = s->workers;
	dt_vacuum_cost_changed();
}

/*
 * Settings that nap after so many dirtied pages, or so much WAL, or when the
 * user's would.
 */
static void
set_budget(int64 blocks, double wal)
{
	CostSettings s = own;
	bool		wal_limited = dt_account_is_limited(DT_WAL);
	double		limit;

	s.delay = NAP_MS;
	if (!full)
		s.workers = 0;
	if (own.delay > 0)
		s.page_dirty = Max(own.page_dirty, 1);
	else
	{
		s.page_hit = s.page_miss = wal_limited ? 1 : 0;
		s.page_dirty = wal_limited ? VISITS_PER_DIRTIED : 1;
	}
	limit = (double) blocks * s.page_dirty;
	if (own.delay > 0)
		limit = Min(limit, own.limit * Max(OWN_TURN_MS / own.delay, 1));
	if (wal_limited && wal < limit * wal_per_cost)
		limit = wal / wal_per_cost;
	s.limit = (int) Max(Min(limit, INT_MAX), 1);
	set_settings(&s);
	VacuumCostBalance = 0;
}

/*
 * Learn how much WAL a unit of cost makes: more of it counts at once, less of
 * it not before that has shown for a while.
 */
static void
learn_wal(void)
{
	double		wal = pgWalUsage.wal_bytes - last_wal;

	last_wal = pgWalUsage.wal_bytes;
	if (VacuumCostBalance > 0)
		wal_per_cost = Max(wal / VacuumCostBalance, wal_per_cost / 2);
}

/*
 * Settings while there is no limit: the user's.  Should one be set, there must
 * be a delay to work with, though, which is decided at the start.
 */
static void
set_unlimited(void)
{
	CostSettings s = own;

	if (own.delay <= 0)
	{
		s.page_hit = s.page_miss = s.page_dirty = 0;
		s.limit = INT_MAX;
		s.delay = NAP_MS;
	}
	set_settings(&s);
}

/*
 * How long the user's own settings would have it nap for what was done since
 * the last turn, in us.
 */
static double
own_pause(int64 now)
{
	double		cost;

	if (own.delay <= 0)
		return 0;
	cost = (double) own.page_hit *
		(pgBufferUsage.shared_blks_hit - last_usage.shared_blks_hit) +
		(double) own.page_miss *
		(pgBufferUsage.shared_blks_read - last_usage.shared_blks_read) +
		(double) own.page_dirty *
		(pgBufferUsage.shared_blks_dirtied - last_usage.shared_blks_dirtied);
	last_usage = pgBufferUsage;
	own_due_us = Max(own_due_us - (now - last_turn), 0) +
		cost / own.limit * own.delay * 1000;
	last_turn = now;
	return own_due_us;
}

static void
set_timer(int64 us)
{
	enable_timeout_at(turn_timeout, GetCurrentTimestamp() + us);
}

/*
 * A member's VACUUM: the end of a turn.  Runs in a signal handler.
 */
static void
turn(void)
{
	int64		threshold[DT_RESOURCES];
	int64		pause = dt_account_charge_live(threshold);
	double		own_us;
	int64		block_us;
	int64		wal_us;
	int64		longest;

	if (pause < 0)
	{
		set_timer(RETRY_US);
		return;
	}
	learn_wal();
	if (!dt_account_is_throttled() ||
		(dt_account_is_stopped(true) && dt_pause_server_is_stopping()))
	{
		/* Each turn cuts one of the user's naps short, so take fewer. */
		set_unlimited();
		set_timer(own.delay > 0 ? UNTHROTTLED_TURN_US : LONGEST_TURN_US);
		return;
	}

	/*
	 * A turn lets one block through at least, whatever is owed.  That must not
	 * be more than the share of the time until the next.
	 */
	block_us = Max(dt_account_block_time(DT_DIRTY), 1);
	wal_us = Max(dt_account_block_time(DT_WAL), 1);
	longest = Max(LONGEST_TURN_US, Max(block_us, wal_us));
	own_us = own_pause(dt_now_us());
	if (pause > longest)
		set_budget(1, BLCKSZ);
	else
		set_budget(Max(Min(threshold[DT_DIRTY] / BLCKSZ * CHARGES_PER_TURN,
						   longest / block_us), 1),
				   Min((double) threshold[DT_WAL] * CHARGES_PER_TURN,
					   (double) longest / wal_us * BLCKSZ));
	pause = Max(pause, (int64) Min(own_us, longest));
	set_timer(Min(Max(pause, SHORTEST_TURN_US), longest));
}

/*
 * An autovacuum worker: a dirtied page costs as much of the worker's limit as
 * makes it nap for the page's time at the group's rate, and more while it
 * owes.
 */
static void
steer(void)
{
	int64		threshold[DT_RESOURCES];
	int64		pause = dt_account_charge_live(threshold);

	if (pause < 0 || !dt_account_is_throttled() || vacuum_cost_delay <= 0 ||
		(MyProc->statusFlags & PROC_VACUUM_FOR_WRAPAROUND))
		VacuumCostPageDirty = own.page_dirty;
	else
	{
		int64		block_us = dt_account_block_time(DT_DIRTY);
		double		cost;

		/* a dirtied page makes less WAL than its size, mostly */
		if (pause > 0)
			block_us = Max(block_us, dt_account_block_time(DT_WAL));
		cost = (double) block_us / 1000 / vacuum_cost_delay *
			vacuum_cost_limit;
		cost *= 1 + (double) pause / LONGEST_TURN_US;
		VacuumCostPageDirty = (int) Max(own.page_dirty,
										Min(cost, 4.0 * vacuum_cost_limit));
	}
	set_timer(LONGEST_TURN_US);
}

static void
timer_fired(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER)
		steer();
	else
		turn();
}

static void
start_timer(void)
{
	if (turn_timeout == MAX_TIMEOUTS)
		turn_timeout = RegisterTimeout(USER_TIMEOUT, timer_fired);
	set_timer(SHORTEST_TURN_US);
}

static bool
is_full(VacuumStmt *vacuum)
{
	bool		result = false;
	ListCell   *lc;

	foreach(lc, vacuum->options)
	{
		DefElem    *option = (DefElem *) lfirst(lc);

		if (strcmp(option->defname, "full") == 0)
			result = defGetBoolean(option);
	}
	return result;
}

static void
pace_vacuum_utility(PlannedStmt *pstmt, const char *queryString,
					bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	bool		pace = false;

	/* An ANALYZE within an ANALYZE's function runs in its budget. */
	if (dt_session_active() && !pacing &&
		IsA(pstmt->utilityStmt, VacuumStmt))
	{
		dt_session_begin_statement();
		pace = dt_account_is_open();
	}
	if (!pace)
	{
		dt_process_utility(next_process_utility, pstmt, queryString,
						   readOnlyTree, context, params, queryEnv, dest, qc);
		return;
	}

	full = is_full(castNode(VacuumStmt, pstmt->utilityStmt));
	get_settings(&own);
	last_usage = pgBufferUsage;
	last_turn = dt_now_us();
	own_due_us = 0;
	last_wal = pgWalUsage.wal_bytes;
	wal_per_cost = (double) BLCKSZ / VISITS_PER_DIRTIED;
	pacing = true;
	PG_TRY();
	{
		if (dt_account_is_throttled())
			set_budget(1, BLCKSZ);
		else
			set_unlimited();
		start_timer();
		dt_process_utility(next_process_utility, pstmt, queryString,
						   readOnlyTree, context, params, queryEnv, dest, qc);
	}
	PG_FINALLY();
	{
		disable_timeout(turn_timeout, false);
		set_settings(&own);
		pacing = false;
	}
	PG_END_TRY();
}

void
dt_pace_vacuum_start_autovacuum(void)
{
	if (turn_timeout != MAX_TIMEOUTS)
		return;
	get_settings(&own);
	start_timer();
}

void
dt_pace_vacuum_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = pace_vacuum_utility;
}
