/*-------------------------------------------------------------------------
 *
 * server_sim.c
 *		The whole as a simulation: sessions, groups and pressure on one clock.
 *
 * A world has a few groups, each with a rate engine and a meter for either
 * resource, some sessions that run transactions, a standby whose lag and a
 * disk whose dirty memory some of the groups follow, and somebody who changes
 * everything at random.  Sessions join and leave groups and leave debts there,
 * are moved, fail, are let go while others wait for them, and exit.  All that
 * src/engine has is the real code.  Of src/session there is a model of the
 * decisions only: when to charge, the grace of a transaction, where it pauses,
 * for how long at most after a commit, and what is paid before the next one.
 *
 * After each step these must hold:
 * - the invariants of rate_check.h, and the books of each group: they grow by
 *   the income and shrink by what is charged;
 * - nobody's debt grows but by what it is charged, and nobody sleeps who owes
 *   nothing;
 * - in any window of time a group uses at most what it earns, what the pool
 *   keeps and debtors may be overpaid, and what is owed at its end;
 * - whoever sleeps has paid when its share of the income is worth its debt (a
 *   group's income, by the number of members and of roles that may have left
 *   something) and what others who lag behind may overdraw;
 * - rates that follow pressure are not below the floor nor above the limit,
 *   and what they forgive is not what a limit asks for;
 * - the meter shows what was used in the last five seconds.
 * In the end everything is paid when the income is worth all that was owed, a
 * group that is kept busy uses its rate, and who exits leaves nothing behind.
 *
 * Time is virtual and work takes as much of it as a world wants, so all of
 * this is exact.
 *
 *		server_sim [SEED [WORLDS [--trace]]]
 *
 * Without arguments, DT_SEED and DT_SECONDS in the environment say where to
 * begin, and for how long.  A failure names the seed of its world, which
 * "server_sim SEED 1" repeats; --trace tells what happens in it.
 *
 *-------------------------------------------------------------------------
 */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "engine/meter.h"
#include "engine/control.h"
#include "random.h"
#include "rate_check.h"
#include "tap.h"

#define MAX_GROUPS		4
#define MAX_SESSIONS	100
#define ROLES			3		/* of sessions */

#define BLOCK			INT64_C(8192)
#define MS				INT64_C(1000)
#define SEC				INT64_C(1000000)
#define MAX_STEPS		20000	/* of one run */
#define SAMPLE_US		(200 * MS)
#define METER_US		((DT_METER_BUCKETS - 1) * DT_METER_BUCKET_US)

typedef struct Account
{
	DtRateMember rate;
	int64_t		most;			/* it cannot owe more than this, bytes */
} Account;

typedef struct Usage
{
	DtRateGroup rate;
	DtMeter		meter;
	int64_t		used;			/* since the world began */
	int64_t		uncharged;		/* of that, by the present members */
	int64_t		counted;		/* by the meter */
	int64_t		then[DT_METER_BUCKETS]; /* the same, half a second apart */

	/*
	 * What was used beyond the income, and the lowest that this may have been
	 * at the beginning of a window, with what the window may begin with.
	 */
	double		excess;
	double		lowest;
	int64_t		highest;		/* rate since nobody owed anything */
	double		share;			/* what each has been paid at least */
	int64_t		since;			/* of these */
} Usage;

typedef struct Group
{
	Usage		usage[DT_RESOURCES];
	int64_t		limit[DT_RESOURCES];
	int64_t		floor;
	int64_t		threshold[DT_SIGNALS];
	DtPressureGroup pressure;
	Account		left[ROLES][DT_RESOURCES];	/* by those who have left */
	int			n_left[ROLES];	/* so many, and nobody has taken it over */
	double		paid_when[ROLES][DT_RESOURCES];
	int			generation;
	int			accounts;		/* of members and of roles */
	bool		observe;
	bool		suspended;
} Group;

typedef enum State
{
	GONE,
	IDLE,
	RUNNING,
	ASLEEP
} State;

typedef enum Place
{
	BEFORE_TRANSACTION,
	IN_FLIGHT,
	AFTER_TRANSACTION
} Place;

typedef struct Session
{
	State		state;
	int64_t		next;			/* when it does something next */
	Group	   *group;
	Account		account[DT_RESOURCES];
	double		paid_when[DT_RESOURCES];	/* at this share, at the latest */
	int			generation;		/* of the group, at the last charge */
	bool		was_throttled[DT_RESOURCES];
	int64_t		uncharged[DT_RESOURCES];
	int64_t		threshold[DT_RESOURCES];

	/* its transaction */
	int64_t		left[DT_RESOURCES]; /* to be used */
	int64_t		batch;			/* bytes between two safe points */
	bool		paces;
	bool		released;
	bool		pay_first;
	Place		place;			/* where it sleeps */
	int64_t		until;			/* at most, after a transaction */
} Session;

static Group groups[MAX_GROUPS];
static Session sessions[MAX_SESSIONS];
static DtPressure pressure;
static DtController controllers[MAX_GROUPS * 2];
static DtDrain standby;

static struct
{
	int64_t		now;
	int			n_groups;
	int			n_sessions;
	int64_t		cost;			/* us to use a block */
	int64_t		oversleep;		/* us, at most */
	int64_t		grace;			/* us */
	int64_t		commit_pause;	/* us */
	int64_t		think;			/* us between two transactions, at most */
	int64_t		size;			/* bytes of a transaction, at most */
	bool		jitter;
	bool		hopping;		/* sessions change their group by themselves */
	bool		enabled;		/* throttling */
	bool		finishing;		/* nobody begins a transaction */
	bool		greedy;			/* everybody uses as much as possible */
	bool		blind;			/* no signal can be read */
	int64_t		wal;			/* written, and ... */
	int64_t		replayed;		/* ... what of it the standby has replayed */
	int64_t		capacity;		/* of it, bytes/s */
	int64_t		dirty;			/* memory to be written back */
	const char *problem;
	bool		trace;
}			world;

/* What all worlds did: one in which nothing happens proves nothing. */
static struct
{
	int64_t		steps;
	int64_t		pauses;
	int64_t		observed;
	int64_t		bounded;		/* debts that were cut, bytes */
	int64_t		pressed;		/* rates below the limit */
	int64_t		hopped;			/* times that one who owes has left */
	int64_t		left;			/* debts left behind, bytes */
	double		fullest;		/* window, of what it may be */
}			seen;

static void trace(const char *fmt,...) __attribute__((format(printf, 1, 2)));

static void
trace(const char *fmt,...)
{
	va_list		args;

	if (!world.trace)
		return;
	printf("# %12.6f ", world.now / 1e6);
	va_start(args, fmt);
	vprintf(fmt, args);
	va_end(args);
	printf("\n");
}

static void
check(bool condition, const char *problem)
{
	if (!condition && world.problem == NULL)
	{
		world.problem = problem;
		trace("%s", problem);
	}
}

static void
check_text(const char *problem)
{
	check(problem == NULL, problem);
}

/*-------------------------------------------------------------------------
 * A group's account of one resource, with what must hold
 *-------------------------------------------------------------------------
 */

/* Bytes that a window that begins now may use beyond what it earns. */
static double
saved_up(const Usage *u)
{
	double		us = u->rate.burst_us;

	if (us < CREDIT_US)
		us = CREDIT_US;
	/* debtors that are about to be evicted hold as much as the pool keeps */
	return u->highest * (us + CREDIT_US) / 1e6;
}

static void
lower(Usage *u)
{
	if (u->rate.n_debtors == 0 || u->highest < u->rate.rate)
		u->highest = u->rate.rate;
	if (u->excess + saved_up(u) < u->lowest)
		u->lowest = u->excess + saved_up(u);
}

/* Begin to watch anew, where what is used is not owed. */
static void
reset_window(Usage *u)
{
	u->highest = u->rate.rate;
	u->excess = u->uncharged;
	u->lowest = u->excess + saved_up(u);
}

/* Let the time pass for it. */
static void
up_to_date(Group *g, Usage *u)
{
	double		income = (double) u->rate.rate * (world.now - u->since) / 1e6;

	u->excess -= income;
	u->share += income / g->accounts;
	u->since = world.now;
	check_text(pass_time(&u->rate, world.now));
	lower(u);
}

/* What was used beyond the income must be owed.  The group is up to date. */
static void
check_window(Usage *u)
{
	double		owed;
	double		fullness;

	if (u->rate.rate == 0)
	{
		reset_window(u);
		return;
	}
	owed = (double) (dt_rate_group_debt(&u->rate, world.now) + u->uncharged);
	check(u->excess - u->lowest <= owed + 16,
		  "a window has used more than was earned, saved up or is owed");
	fullness = (u->excess - u->lowest + saved_up(u) - owed) / saved_up(u);
	if (fullness > seen.fullest)
		seen.fullest = fullness;
}

/* Its debt may have become less, but not more. */
static void
check_debt(Usage *u, Account *a)
{
	int64_t		debt = dt_rate_debt(&u->rate, &a->rate, world.now);

	check(debt <= a->most, "a debt has grown by itself");
	a->most = debt;
}

/* The rate, and what it is without pressure. */
static int64_t
most_rate(const Usage *u)
{
	return u->rate.limit > 0 ? u->rate.limit : u->rate.rate;
}

/*
 * At which share it has been paid.  The overdraft comes first, and that of all
 * others, who may each lag behind by half of it (where there is one debtor).
 */
static double
due(const Usage *u, const Account *a, const Group *g)
{
	double		overdraft = most_rate(u) * (LAG_US / 1e6);

	return u->share + a->most + 16 +
		(overdraft + g->accounts * overdraft / 2) / g->accounts;
}

static int64_t
charge(Group *g, int r, Account *a, int64_t bytes, double *paid_when)
{
	Usage	   *u = &g->usage[r];
	int128		before;
	int64_t		cap;
	int64_t		pause;

	up_to_date(g, u);
	before = books(&u->rate);
	cap = pool_cap(&u->rate, u->rate.rate);
	if (u->rate.rate == 0)
		bytes = 0;
	pause = dt_rate_charge(&u->rate, &a->rate, bytes, world.now,
						   world.jitter ? rng_double() : 0);
	check_text(find_wrong_charge(before, books(&u->rate), cap, bytes));
	check_text(find_violation(&u->rate));
	a->most += bytes + 1;
	check_debt(u, a);
	check(pause == 0 || a->most > 0, "a pause of one who owes nothing");
	check(pause >= 0 && pause <= SEC, "a pause is out of range");
	*paid_when = due(u, a, g);
	check_window(u);
	return pause;
}

static int64_t
wake(Group *g, int r, Account *a, double paid_when)
{
	Usage	   *u = &g->usage[r];
	int64_t		pause;

	up_to_date(g, u);
	pause = dt_rate_wake(&u->rate, &a->rate, world.now);
	check_text(find_violation(&u->rate));
	check_debt(u, a);
	check(pause == 0 || a->most > 0, "one who owes nothing goes on to pause");
	check(pause == 0 || u->share <= paid_when,
		  "one has not been paid its share of the income");
	return pause;
}

static void
forgive(Group *g, int r, Account *a)
{
	Usage	   *u = &g->usage[r];
	int64_t		debt;

	up_to_date(g, u);
	debt = dt_rate_debt(&u->rate, &a->rate, world.now);
	u->excess -= debt;
	lower(u);
	check((dt_rate_forgive(&u->rate, &a->rate, world.now) > 0) == (debt > 0),
		  "what is forgiven is not what was owed");
	check_text(find_violation(&u->rate));
	a->most = 0;
	seen.observed += debt > 0;
}

static void
enter(Group *g, int r, Account *a)
{
	dt_rate_join(&g->usage[r].rate, &a->rate, world.now);
	a->most = 0;
}

/* Returns whether it owes something. */
static bool
leave(Group *g, int r, Account *a, int role)
{
	Usage	   *u = &g->usage[r];
	Account    *heir = &g->left[role][r];
	int128		before;
	int64_t		owed;
	int64_t		cap;

	up_to_date(g, u);
	before = books(&u->rate);
	cap = pool_cap(&u->rate, u->rate.rate);
	owed = dt_rate_debt(&u->rate, &a->rate, world.now);
	dt_rate_leave(&u->rate, &a->rate, &heir->rate, world.now);
	check_text(find_wrong_charge(before, books(&u->rate), cap, 0));
	check_text(find_violation(&u->rate));
	heir->most += owed;
	check_debt(u, heir);
	g->paid_when[role][r] = due(u, heir, g);
	check_window(u);
	seen.left += owed;
	return owed > 0;
}

/*
 * Who joins takes over the part of one of those of its role that have left.
 */
static void
take_over(Group *g, int r, Account *a, int role, double *paid_when)
{
	Usage	   *u = &g->usage[r];
	Account    *left = &g->left[role][r];
	int128		before = books(&u->rate);
	int64_t		cap = pool_cap(&u->rate, u->rate.rate);
	int64_t		part;

	if (g->n_left[role] == 0)
		return;
	check_debt(u, left);
	part = (left->most + g->n_left[role] - 1) / g->n_left[role];
	dt_rate_pass_debt(&u->rate, &left->rate, &a->rate, g->n_left[role], 0, world.now);
	check_text(find_wrong_charge(before, books(&u->rate), cap, 0));
	check_text(find_violation(&u->rate));
	a->most += part + 1;
	check_debt(u, a);
	left->most -= a->most - 1;
	check_debt(u, left);
	*paid_when = due(u, a, g);
	check_window(u);
}

static void
set_rate(Group *g, int r, int64_t rate)
{
	Usage	   *u = &g->usage[r];
	int64_t		before = u->rate.rate;
	int64_t		most = most_rate(u);
	int			i;
	int			k;

	if (rate == before && g->limit[r] == u->rate.limit)
		return;
	up_to_date(g, u);
	dt_rate_set(&u->rate, g->limit[r], rate, world.now);
	check_text(find_violation(&u->rate));
	/* what of the overdraft is more than the new rate allows is forgiven */
	most -= most_rate(u);
	u->excess -= (most > 0 ? most : 0) * LAG_US / 1e6;
	if (rate == 0 || before == 0)
		reset_window(u);
	lower(u);
	/* a sleeper has to look at its account again */
	for (i = 0; i < world.n_sessions; i++)
	{
		if (sessions[i].group == g)
			sessions[i].paid_when[r] = due(u, &sessions[i].account[r], g);
	}
	for (k = 0; k < ROLES; k++)
		g->paid_when[k][r] = due(u, &g->left[k][r], g);
}

/* As in group.c: a rate that pressure lowers bounds what is owed. */
static void
follow_pressure(Group *g, int r, int64_t rate)
{
	Usage	   *u = &g->usage[r];
	int64_t		forgiven;
	int128		b;

	set_rate(g, r, rate);
	up_to_date(g, u);
	b = books(&u->rate);
	forgiven = dt_rate_bound_debts(&u->rate, world.now);
	check(books(&u->rate) >= b + (int128) forgiven * TOKENS &&
		  books(&u->rate) < b + (int128) (forgiven + 1) * TOKENS,
		  "what was bounded is not in the books");
	check(forgiven == 0 || u->rate.rate < most_rate(u) || u->rate.limit == 0,
		  "something is forgiven without pressure");
	if (forgiven == 0)
		return;
	u->excess -= forgiven + 1;
	lower(u);
	seen.bounded += forgiven;
}

/*-------------------------------------------------------------------------
 * Sessions: a model of src/session
 *-------------------------------------------------------------------------
 */

static void
wake_all(Group *g)
{
	int			i;

	g->generation++;
	for (i = 0; i < world.n_sessions; i++)
	{
		Session    *s = &sessions[i];

		if (s->group == g && s->state == ASLEEP)
			s->next = world.now;
	}
}

static int
role_of(const Session *s)
{
	return (int) (s - sessions) % ROLES;
}

static void
join_group(Session *s, Group *g)
{
	int			r;

	trace("session %d joins group %d", (int) (s - sessions),
		  (int) (g - groups));
	g->accounts++;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		up_to_date(g, &g->usage[r]);
		enter(g, r, &s->account[r]);
		take_over(g, r, &s->account[r], role_of(s), &s->paid_when[r]);
		s->pay_first |= s->account[r].most > 0;
		/* what was not charged before is used here */
		g->usage[r].uncharged += s->uncharged[r];
		g->usage[r].excess += s->uncharged[r];
		s->was_throttled[r] = true;
	}
	if (g->n_left[role_of(s)] > 0)
		g->n_left[role_of(s)]--;
	s->group = g;
	s->generation = g->generation - 1;
}

/* The session has left its debts, if any, to its role. */
static void
note_debt_left(Group *g, const Session *s, bool owes)
{
	if (!owes)
		return;
	g->n_left[role_of(s)]++;
	seen.hopped++;
}

/* Forget what was used since the last charge: it counts in another group. */
static void
take_away(Session *s)
{
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		up_to_date(s->group, &s->group->usage[r]);
		s->group->usage[r].uncharged -= s->uncharged[r];
		s->group->usage[r].excess -= s->uncharged[r];
		lower(&s->group->usage[r]);
	}
}

/* On behalf of the session: its debts stay, and what is not charged goes on. */
static void
move_to(Session *s, Group *g)
{
	Group	   *old = s->group;
	bool		owes = false;
	int			r;

	if (old == g)
		return;
	trace("session %d is moved", (int) (s - sessions));
	if (old != NULL)
	{
		take_away(s);
		for (r = 0; r < DT_RESOURCES; r++)
		{
			if (old->observe)
				forgive(old, r, &s->account[r]);
			owes |= leave(old, r, &s->account[r], role_of(s));
		}
		note_debt_left(old, s, owes);
		old->accounts--;
		s->group = NULL;
	}
	if (old == NULL || g == NULL)
		memset(s->uncharged, 0, sizeof(s->uncharged));
	if (g != NULL)
		join_group(s, g);
	if (s->state == ASLEEP)
		s->next = world.now;
}

static bool
is_throttled(Session *s, int r)
{
	return s->group->usage[r].rate.rate > 0 && world.enabled;
}

/* What it has used since the last charge, and what of that it has to pay. */
static int64_t
take_uncharged(Session *s, int r)
{
	Usage	   *u = &s->group->usage[r];
	int64_t		bytes = s->uncharged[r];

	up_to_date(s->group, u);
	s->uncharged[r] = 0;
	u->uncharged -= bytes;
	u->counted += bytes;
	dt_meter_add(&u->meter, bytes, world.now);
	if (s->was_throttled[r] && is_throttled(s, r))
		return bytes;
	u->excess -= bytes;
	lower(u);
	return 0;
}

/* By itself: it leaves what it owes to its role. */
static void
leave_group(Session *s)
{
	Group	   *g = s->group;
	bool		owes = false;
	int			r;

	trace("session %d leaves group %d", (int) (s - sessions),
		  (int) (g - groups));
	for (r = 0; r < DT_RESOURCES; r++)
	{
		Usage	   *u = &g->usage[r];
		int64_t		bytes = take_uncharged(s, r);

		if (g->observe)
		{
			u->excess -= bytes;
			lower(u);
			forgive(g, r, &s->account[r]);
		}
		else
			(void) charge(g, r, &s->account[r], bytes, &s->paid_when[r]);
		owes |= leave(g, r, &s->account[r], role_of(s));
	}
	note_debt_left(g, s, owes);
	g->accounts--;
	s->group = NULL;
}

/* For how long to pause, and what is owed. */
static int64_t
charge_session(Session *s, int64_t *owed_us)
{
	int64_t		longest = 0;
	int			r;

	*owed_us = 0;
	if (s->group == NULL)
		return 0;
	s->generation = s->group->generation;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		Usage	   *u = &s->group->usage[r];
		int64_t		bytes = take_uncharged(s, r);
		int64_t		pause;
		int64_t		us;

		s->was_throttled[r] = is_throttled(s, r);
		s->threshold[r] = dt_rate_batch(&u->rate, &s->account[r].rate);
		check(s->threshold[r] >= BLOCK && s->threshold[r] <= 1024 * BLOCK,
			  "a threshold is out of range");
		if (!is_throttled(s, r))
			continue;
		pause = charge(s->group, r, &s->account[r], bytes, &s->paid_when[r]);
		if (pause == 0)
			continue;
		us = dt_rate_time(&u->rate, s->account[r].most);
		*owed_us = us > *owed_us ? us : *owed_us;
		longest = pause > longest ? pause : longest;
	}
	return longest;
}

/* How much longer to pause. */
static int64_t
look_again(Session *s, bool in_flight)
{
	Group	   *g = s->group;
	int64_t		longest = 0;
	int			r;

	if (g == NULL || !world.enabled)
		return 0;
	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64_t		pause;

		if (g->observe)
		{
			forgive(g, r, &s->account[r]);
			continue;
		}
		pause = wake(g, r, &s->account[r], s->paid_when[r]);
		longest = pause > longest ? pause : longest;
	}
	if (g->suspended && !in_flight)
		longest = SEC;
	return longest;
}

/* Sleeps on, or goes on. */
static void
sleep_or_go_on(Session *s)
{
	bool		in_flight = s->place == IN_FLIGHT;
	bool		was_asleep = s->state == ASLEEP;
	int64_t		pause = look_again(s, in_flight);
	int64_t		left = s->until - world.now;
	bool		suspended = s->group != NULL && world.enabled &&
		s->group->suspended && !in_flight;
	bool		released = in_flight && !suspended && !world.greedy &&
		rng() % 100 == 0;

	if (released)
		s->released = true;
	if (pause > left)
		pause = left;
	if (released || pause <= 0)
	{
		if (s->place == AFTER_TRANSACTION)
			s->pay_first = left <= 0;
		else if (s->place == BEFORE_TRANSACTION)
			s->pay_first = false;
		s->state = s->place == IN_FLIGHT ? RUNNING : IDLE;
		s->next = world.now;
		return;
	}
	s->state = ASLEEP;
	s->next = world.now + (pause + MS - 1) / MS * MS +
		rng_range(0, world.oversleep);
	if (!was_asleep)
		seen.pauses++;
}

static void
pause_at(Session *s, Place place, int64_t longest_us)
{
	s->place = place;
	s->until = longest_us < INT64_MAX / 2 ? world.now + longest_us :
		INT64_MAX / 2;
	sleep_or_go_on(s);
}

static void
end_transaction(Session *s, bool cancelled)
{
	int64_t		owed_us;
	int64_t		pause = charge_session(s, &owed_us);
	bool		suspended = s->group != NULL && s->group->suspended &&
		world.enabled;

	s->state = IDLE;
	s->paces = s->released = false;
	memset(s->left, 0, sizeof(s->left));
	s->next = world.now + (world.greedy ? 0 : rng_range(0, world.think));
	s->pay_first = pause > 0;
	if ((pause > 0 || suspended) && world.commit_pause > 0 && !cancelled)
		pause_at(s, AFTER_TRANSACTION, world.commit_pause);
}

/* SET dirty_throttle."group" */
static void
change_group(Session *s, Group *g)
{
	if (s->group != NULL)
		leave_group(s);
	if (g != NULL)
		join_group(s, g);
}

static void
begin_transaction(Session *s)
{
	int			r;

	if (s->pay_first || (s->group != NULL && s->group->suspended))
	{
		pause_at(s, BEFORE_TRANSACTION, INT64_MAX);
		if (s->state == ASLEEP)
			return;
	}
	for (r = 0; r < DT_RESOURCES; r++)
		s->left[r] = world.greedy ? 100 * BLOCK : rng_log(30) % world.size;
	s->batch = (1 + rng_log(5)) * BLOCK;
	s->state = RUNNING;
}

/* Work until the next safe point. */
static void
work(Session *s)
{
	bool		is_current = s->group == NULL ||
		s->generation == s->group->generation;
	bool		charge_now = !is_current;
	int64_t		owed_us;
	int			r;

	for (r = 0; r < DT_RESOURCES; r++)
	{
		int64_t		bytes = s->left[r] < s->batch ? s->left[r] : s->batch;

		s->left[r] -= bytes;
		if (r == DT_WAL)
			world.wal += bytes;
		else
			world.dirty += bytes;
		if (s->group == NULL)
			continue;
		up_to_date(s->group, &s->group->usage[r]);
		s->group->usage[r].used += bytes;
		s->group->usage[r].excess += bytes;
		s->group->usage[r].uncharged += bytes;
		s->uncharged[r] += bytes;
		if (s->uncharged[r] >= s->threshold[r])
			charge_now = true;
	}
	s->next += s->batch / BLOCK * world.cost;
	if (!world.greedy && rng() % 500 == 0)
		end_transaction(s, true);
	else if (s->left[DT_DIRTY] == 0 && s->left[DT_WAL] == 0)
		end_transaction(s, false);
	else if (world.hopping && !world.greedy && rng() % 16 == 0)
		change_group(s, &groups[rng() % world.n_groups]);
	else if (charge_now && charge_session(s, &owed_us) > 0 && !s->released &&
			 (s->paces || owed_us >= world.grace))
	{
		s->paces = true;
		pause_at(s, IN_FLIGHT, INT64_MAX);
	}
}

static void
do_something(Session *s)
{
	switch (s->state)
	{
		case GONE:
			memset(s, 0, sizeof(*s));
			if (rng() % 8)
				join_group(s, &groups[rng() % world.n_groups]);
			s->state = IDLE;
			s->next = world.now;
			break;
		case IDLE:
			if (world.finishing)
				s->next = INT64_MAX;
			else
				begin_transaction(s);
			break;
		case RUNNING:
			work(s);
			break;
		case ASLEEP:
			sleep_or_go_on(s);
			break;
	}
}

static void
disconnect(Session *s)
{
	trace("session %d exits", (int) (s - sessions));
	if (s->group != NULL)
		leave_group(s);
	s->state = GONE;
	s->next = world.finishing ? INT64_MAX :
		world.now + rng_range(0, world.think);
}

/*-------------------------------------------------------------------------
 * The sampler
 *-------------------------------------------------------------------------
 */

static void
start_sampler(void)
{
	int			i;
	int			r;

	memset(&pressure, 0, sizeof(DtPressure));
	memset(controllers, 0, sizeof(controllers));
	memset(&standby, 0, sizeof(DtDrain));
	for (i = 0; i < world.n_groups; i++)
	{
		int64_t		rates[DT_RESOURCES];
		int64_t		used[DT_RESOURCES];
		int			decides[DT_RESOURCES];

		for (r = 0; r < DT_RESOURCES; r++)
		{
			rates[r] = dt_rate_lately(&groups[i].usage[r].rate);
			used[r] = groups[i].usage[r].used;
			decides[r] = groups[i].pressure.decides[r];
		}
		dt_pressure_group_init(&groups[i].pressure, rates, used, decides);
	}
}

static bool
follows_any(const Group *g)
{
	int			i;

	for (i = 0; i < DT_SIGNALS; i++)
		if (g->threshold[i] > 0)
			return true;
	return false;
}

/* What group i follows; a new threshold has a new controller. */
static void
follow(int i, DtSignal signal)
{
	DtController *c = &controllers[i * 2 + (signal == DT_KERNEL_DIRTY)];
	int64_t		threshold = groups[i].threshold[signal];

	if (c->threshold != threshold)
	{
		memset(c, 0, sizeof(*c));
		c->threshold = threshold;
	}
	c->signal = signal;
	c->fresh_us = DT_STALE_US;
	if (signal == DT_REPLICA_LAG)
	{
		c->queue = &standby;
		c->read_at = standby.seen_at;
	}
	else if (!world.blind)
	{
		c->value = world.dirty;
		c->read_at = world.now;
	}
	groups[i].pressure.follows[signal] = threshold > 0 ? c : NULL;
}

static void
sample(void)
{
	static DtPressureGroup results[MAX_GROUPS];
	DtPressureGroup *all[MAX_GROUPS];
	DtController *those[MAX_GROUPS * 2];
	int64_t		drained = world.capacity / (SEC / SAMPLE_US);
	int64_t		behind = world.wal - world.replayed;
	int			i;
	int			r;

	world.replayed += drained < behind ? drained : behind;
	world.dirty -= drained < world.dirty ? drained : world.dirty;
	if (!world.blind)
		dt_drain_sample(&standby, world.wal, world.replayed, world.now);
	for (i = 0; i < world.n_groups; i++)
	{
		Group	   *g = &groups[i];

		for (r = 0; r < DT_RESOURCES; r++)
		{
			g->pressure.limit[r] = g->limit[r];
			g->pressure.used[r] = g->usage[r].used;
		}
		follow(i, DT_REPLICA_LAG);
		follow(i, DT_KERNEL_DIRTY);
		those[i * 2] = &controllers[i * 2];
		those[i * 2 + 1] = &controllers[i * 2 + 1];
		g->pressure.floor = g->floor;
		g->pressure.observe = g->observe;
		results[i] = g->pressure;
		all[i] = &results[i];
	}
	dt_pressure_step(&pressure, those, world.n_groups * 2, all, world.n_groups,
					 world.wal, world.now);
	for (i = 0; i < world.n_groups; i++)
	{
		Group	   *g = &groups[i];
		bool		changed = false;

		g->pressure = results[i];
		for (r = 0; r < DT_RESOURCES; r++)
		{
			int64_t		rate = g->pressure.rate[r];
			int64_t		floor = g->floor;

			if (g->limit[r] > 0 && g->limit[r] < floor)
				floor = g->limit[r];
			check(rate == 0 || rate >= floor, "a rate is below the floor");
			check(g->limit[r] == 0 || (rate > 0 && rate <= g->limit[r]),
				  "a rate is above the limit");
			check(follows_any(g) || g->pressure.ease_us[r] > 0 ||
				  rate == g->limit[r], "a rate without a signal");
			seen.pressed += rate != g->limit[r];
			changed |= rate != g->usage[r].rate.rate;
			follow_pressure(g, r, rate);
		}
		if (changed)
			wake_all(g);
	}
}

static void
look_at_meters(void)
{
	int			bucket = (int) (world.now / DT_METER_BUCKET_US %
								DT_METER_BUCKETS);
	int			i;
	int			r;

	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
		{
			Usage	   *u = &groups[i].usage[r];
			int64_t		before = u->then[(bucket + 1) % DT_METER_BUCKETS];

			u->then[bucket] = u->counted;
			if (world.now - u->meter.started < METER_US)
				continue;
			check((int64_t) (dt_meter_rate(&u->meter, world.now) * METER_US /
							 SEC + 0.5) == u->counted - before,
				  "the meter does not show what was used");
		}
}

/*-------------------------------------------------------------------------
 * Worlds
 *-------------------------------------------------------------------------
 */

static int64_t
random_rate(void)
{
	return 20000 + rng_log(27);
}

static Group *
random_group(void)
{
	return &groups[rng() % world.n_groups];
}

static void
set_limit(Group *g, int r, int64_t rate)
{
	g->limit[r] = rate;
	set_rate(g, r, rate);
	/* the sampler goes on from there */
	g->pressure.rate[r] = rate;
	wake_all(g);
}

/* What an administrator, or a user, does. */
static void
intervene(void)
{
	Session    *s = &sessions[rng() % world.n_sessions];
	Group	   *g = random_group();
	int			r = (int) (rng() % DT_RESOURCES);

	switch (rng() % 18)
	{
		case 0:
		case 1:
		case 2:
			trace("group %d: limit", (int) (g - groups));
			set_limit(g, r, rng() % 6 ? random_rate() : 0);
			break;
		case 3:
			up_to_date(g, &g->usage[r]);
			dt_rate_set_burst(&g->usage[r].rate, rng() % 3 ? rng_log(23) :
							  DT_RATE_DEFAULT_BURST_US, world.now);
			check_text(find_violation(&g->usage[r].rate));
			lower(&g->usage[r]);
			break;
		case 4:
			trace("group %d: observe", (int) (g - groups));
			/* as in group.c, what is owed is forgiven */
			for (r = 0; r < DT_RESOURCES; r++)
			{
				int64_t		rate = g->usage[r].rate.rate;
				int64_t		limit = g->limit[r];

				g->limit[r] = 0;
				set_rate(g, r, 0);
				g->limit[r] = limit;
				set_rate(g, r, rate);
			}
			g->observe = !g->observe && rng() % 2;
			wake_all(g);
			break;
		case 5:
			trace("group %d: suspend", (int) (g - groups));
			g->suspended = !g->suspended && rng() % 2;
			wake_all(g);
			break;
		case 6:
			world.enabled = !world.enabled || rng() % 4;
			trace("throttling %d", world.enabled);
			for (g = groups; g < groups + world.n_groups; g++)
				wake_all(g);
			break;
		case 7:
			g->floor = 10000 + rng_log(22);
			break;
		case 8:
			g->threshold[DT_REPLICA_LAG] = rng() % 2 ?
				rng_range(SEC, 5 * SEC) : 0;
			break;
		case 9:
			g->threshold[DT_KERNEL_DIRTY] = rng() % 2 ?
				world.capacity * rng_range(1, 5) : 0;
			break;
		case 10:
			world.capacity = random_rate();
			break;
		case 11:
			world.blind = rng() % 3 == 0;
			break;
		case 12:
			if (rng() % 4 == 0)
				start_sampler();
			break;
		case 13:
		case 14:
			if (s->state != GONE)
				disconnect(s);
			break;
		case 15:
			if (s->state != GONE)
				move_to(s, rng() % 6 ? g : NULL);
			break;
		default:
			if (s->state == IDLE || s->state == RUNNING)
				change_group(s, rng() % 6 ? g : NULL);
	}
}

static void
begin_world(uint64_t seed)
{
	bool		was_traced = world.trace;
	int			i;
	int			r;
	int			k;

	seed_rng(seed);
	memset(groups, 0, sizeof(groups));
	memset(sessions, 0, sizeof(sessions));
	memset(&world, 0, sizeof(world));
	world.trace = was_traced;
	/* a multiple of all the intervals */
	world.now = rng_range(1, 30000000) * SEC;
	world.n_groups = (int) rng_range(1, MAX_GROUPS);
	world.n_sessions = (int) rng_range(1, rng() % 8 ? 12 : MAX_SESSIONS);
	world.cost = 10 + rng_log(10);
	world.oversleep = rng() % 2 ? rng_log(13) : rng() % 2 ? 0 : 150 * MS;
	world.grace = rng() % 2 ? 50 * MS : rng() % 2 ? 0 : rng_log(21);
	world.commit_pause = rng() % 2 ? 30 * SEC : rng() % 3 ? rng_log(22) : 0;
	world.think = MS + rng_log(20);
	world.size = 1 + rng_log(25);
	world.jitter = rng() % 4 != 0;
	world.hopping = rng() % 4 == 0;
	world.enabled = true;
	world.capacity = random_rate();
	for (i = 0; i < world.n_groups; i++)
	{
		groups[i].floor = DT_PRESSURE_DEFAULT_FLOOR;
		groups[i].accounts = ROLES;
		if (rng() % 2)
			groups[i].threshold[DT_REPLICA_LAG] = rng_range(SEC, 5 * SEC);
		if (rng() % 4 == 0)
			groups[i].threshold[DT_KERNEL_DIRTY] = 4 * world.capacity;
		for (r = 0; r < DT_RESOURCES; r++)
		{
			Usage	   *u = &groups[i].usage[r];

			if (rng() % 4)
				groups[i].limit[r] = random_rate();
			dt_rate_init(&u->rate, groups[i].limit[r], BLOCK, world.now);
			dt_meter_reset(&u->meter, world.now);
			for (k = 0; k < ROLES; k++)
				enter(&groups[i], r, &groups[i].left[k][r]);
			u->since = world.now;
			reset_window(u);
		}
	}
	for (i = 0; i < world.n_sessions; i++)
		sessions[i].next = world.now + rng_range(0, world.think);
	start_sampler();
}

/*
 * Let the sessions work until then, or for very many steps.  With "interval"
 * somebody intervenes that often, and the sampler runs.
 */
static void
run(int64_t until, int64_t interval)
{
	int64_t		last_step = seen.steps + MAX_STEPS;
	int64_t		sample_at = world.now - world.now % SAMPLE_US + SAMPLE_US;
	int64_t		meter_at = world.now - world.now % DT_METER_BUCKET_US +
		DT_METER_BUCKET_US;
	int64_t		intervene_at = world.now;

	while (world.problem == NULL && seen.steps < last_step)
	{
		Session    *s = &sessions[0];
		int64_t		next;
		int			i;

		for (i = 1; i < world.n_sessions; i++)
			if (sessions[i].next < s->next)
				s = &sessions[i];
		next = s->next;
		if (interval > 0)
		{
			next = next < sample_at ? next : sample_at;
			next = next < meter_at ? next : meter_at;
			next = next < intervene_at ? next : intervene_at;
		}
		if (next > until)
			break;
		if (next > world.now)
			world.now = next;
		seen.steps++;
		/* buckets end before what happens at the same time */
		if (interval > 0 && next == meter_at)
		{
			look_at_meters();
			meter_at += DT_METER_BUCKET_US;
		}
		else if (interval > 0 && next == sample_at)
		{
			sample();
			sample_at += SAMPLE_US;
		}
		else if (interval > 0 && next == intervene_at)
		{
			intervene();
			intervene_at += 1 + rng_range(0, 2 * interval);
		}
		else
			do_something(s);
	}
	if (world.now < until && seen.steps < last_step)
		world.now = until;
}

/* Nothing gets in the way any more: fixed limits, and all pauses are made. */
static void
calm_down(void)
{
	int			i;
	int			r;

	world.enabled = true;
	for (i = 0; i < world.n_groups; i++)
	{
		groups[i].suspended = groups[i].observe = false;
		for (r = 0; r < DT_RESOURCES; r++)
			set_limit(&groups[i], r, groups[i].limit[r]);
	}
}

/* All is paid when the groups have earned it, and then nobody sleeps. */
static void
finish(void)
{
	double		longest = 0;
	int			i;
	int			r;

	calm_down();
	world.finishing = true;
	for (i = 0; i < world.n_sessions; i++)
		if (sessions[i].state == RUNNING)
			end_transaction(&sessions[i], false);
		else if (sessions[i].state == ASLEEP && sessions[i].place == IN_FLIGHT)
			memset(sessions[i].left, 0, sizeof(sessions[i].left));
	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
		{
			Usage	   *u = &groups[i].usage[r];
			double		us;

			if (u->rate.rate == 0)
				continue;
			up_to_date(&groups[i], u);
			us = (dt_rate_group_debt(&u->rate, world.now) + u->uncharged) *
				1e6 / u->rate.rate;
			longest = us > longest ? us : longest;
		}
	/* whoever is in a transaction may come to its end that late */
	run(world.now + (int64_t) longest + SEC + 2 * world.oversleep + 2 * MS, 0);
	for (i = 0; i < world.n_sessions; i++)
		check(sessions[i].state != ASLEEP, "one sleeps when all is paid");
	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
		{
			up_to_date(&groups[i], &groups[i].usage[r]);
			check(dt_rate_group_debt(&groups[i].usage[r].rate, world.now) == 0,
				  "debts outlive the time in which they are earned");
		}
}

/* A group with sessions that use all they can uses its rate. */
static void
be_greedy(void)
{
	int64_t		used[MAX_GROUPS][DT_RESOURCES];
	int64_t		since;
	int			i;
	int			r;

	world.finishing = false;
	world.greedy = true;
	world.commit_pause = 30 * SEC;
	world.cost = 10;
	/* what is overslept beyond the credit is lost */
	world.oversleep = world.oversleep < 50 * MS ? world.oversleep : 50 * MS;
	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
			set_limit(&groups[i], r, rng_range(1000000, 20000000));
	for (i = 0; i < world.n_sessions; i++)
		if (sessions[i].state == IDLE && sessions[i].group != NULL)
			sessions[i].next = world.now;
	run(world.now + 2 * SEC, 0);
	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
			used[i][r] = groups[i].usage[r].used;
	since = world.now;
	run(since + 20 * SEC, 0);
	for (i = 0; i < world.n_groups; i++)
	{
		double		part = 0;
		int			members = 0;
		int			k;

		for (k = 0; k < world.n_sessions; k++)
			members += sessions[k].group == &groups[i];
		for (r = 0; r < DT_RESOURCES; r++)
		{
			Usage	   *u = &groups[i].usage[r];
			double		income = u->rate.rate * (world.now - since) / 1e6;

			/* at both ends each may be about to use what it has paid for */
			income -= 2.0 * members * 33 * BLOCK;
			if (income <= 0)
				part = 1;
			else if ((u->used - used[i][r]) / income > part)
				part = (u->used - used[i][r]) / income;
		}
		check(members == 0 || part >= 0.97,
			  "a busy group does not use its rate");
	}
}

static void
end_world(void)
{
	int			i;
	int			r;

	world.finishing = true;
	for (i = 0; i < world.n_sessions; i++)
		if (sessions[i].state != GONE)
			disconnect(&sessions[i]);
	for (i = 0; i < world.n_groups; i++)
		for (r = 0; r < DT_RESOURCES; r++)
		{
			Usage	   *u = &groups[i].usage[r];
			int64_t		owed = dt_rate_group_debt(&u->rate, world.now);

			/* at the latest after a gap in which all are looked at */
			int64_t		paid_at = world.now + 50 * MS;

			check(u->rate.n_members == ROLES,
				  "who has exited is still a member");
			check(u->uncharged == 0, "the model has lost count");
			if (u->rate.rate == 0)
				continue;
			paid_at += (int64_t) (owed * 1e6 / u->rate.rate);
			check(dt_rate_group_debt(&u->rate, paid_at) == 0,
				  "the debts of those who have left are not paid in time");
		}
}

static const char *
simulate(uint64_t seed)
{
	begin_world(seed);
	/* now and then with little to do for who intervenes, but for pressure */
	if (rng() % 4)
		run(world.now + rng_range(5, 40) * SEC, 20 * MS + rng_log(21));
	else
		run(world.now + rng_range(50, 400) * SEC, 2 * SEC + rng_log(24));
	if (world.problem == NULL)
		finish();
	if (world.problem == NULL)
		be_greedy();
	if (world.problem == NULL)
		end_world();
	return world.problem;
}

static uint64_t
number(const char *text, uint64_t otherwise)
{
	return text !=NULL ? strtoull(text, NULL, 0) : otherwise;
}

int
main(int argc, char **argv)
{
	const char *seconds = argc > 1 ? NULL : getenv("DT_SECONDS");
	uint64_t	seed = number(argc > 1 ? argv[1] : getenv("DT_SEED"), 1);
	uint64_t	count = number(argc > 2 ? argv[2] : NULL,
							   seconds != NULL ? UINT64_MAX : 60);
	time_t		until = time(NULL) + (time_t) number(seconds, 0);
	const char *problem = NULL;
	uint64_t	i;

	world.trace = argc > 3 && strcmp(argv[3], "--trace") == 0;
	printf("# seed %" PRIu64 "\n", seed);
	fflush(stdout);
	for (i = 0; i < count && problem == NULL &&
		 (seconds == NULL || time(NULL) < until); i++)
		problem = simulate(seed + i);
	ok(problem == NULL, "%" PRIu64 " worlds%s%s", i, problem ? ": " : "",
	   problem ? problem : "");
	if (problem != NULL)
		printf("# \"server_sim %" PRIu64 " 1\" repeats that, at %" PRId64 "\n",
			   seed + i - 1, world.now);
	printf("# %" PRId64 " steps, %" PRId64 " pauses, %" PRId64 " observed, %"
		   PRId64 " hops in debt, %" PRId64 " bytes left behind, %" PRId64
		   " bytes bounded, %" PRId64 " rates by pressure; the fullest window "
		   "was at %.3f\n", seen.steps, seen.pauses, seen.observed,
		   seen.hopped, seen.left, seen.bounded, seen.pressed, seen.fullest);
	return done_testing();
}
