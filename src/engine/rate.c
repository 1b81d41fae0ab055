/*-------------------------------------------------------------------------
 *
 * rate.c
 *		The rate engine: a bucket of debt that members pay off in equal shares.
 *
 * A group's members use first and pay afterwards.  The engine keeps what each
 * of them owes, and decides for how long to pause.  All data is in the
 * DtRateGroup and in the members' DtRateMember, which the caller passes in,
 * protected by its own lock.  The control law and its bounds are explained
 * below.
 *
 * Units: a token is 1e-6 byte, which makes the income of t microseconds at R
 * bytes/s exactly R * t tokens: nothing is rounded and nothing lost.  Pool,
 * debts, F and V are in tokens.  F and V are unsigned and wrap around; only
 * their difference means anything.
 *
 * Each charge does a constant amount of work plus, while there are debtors or
 * members that are let off, its part of a tour around the members, which takes
 * SWEEP_US.  One after a longer gap makes up to three tours, some 20 ns a member
 * each; so does a change of the rate, and whoever asks what all owe makes one.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/rate.h"

#include <stddef.h>
#include <string.h>

#include "engine/arith.h"

/*
 * The control law.
 *
 * Members use first and pay afterwards, so what the engine keeps is debt, in
 * bytes: a changed rate rescales nothing.  While anybody owes, the group's
 * income (rate x time) is shared equally among the debtors, as in fluid fair
 * queueing: the virtual time V counts what has been repaid to each, and a
 * charge of c moves its member's finish tag F by c.  The member has paid, and
 * may go on, when V has reached F.  How much the others owe changes how fast
 * V moves, never who owes what, so a huge debt of one member leaves the
 * others their share.
 *
 * Income that nobody needs goes to the pool P, from which the next charge is
 * paid while there is no debtor.  The pool also gets back what a debtor was
 * paid beyond its debt, since a sleeper wakes late; the long-run rate is thus
 * exact however inexact the sleeping.  A member that lagged behind, because
 * others were in debt and it was not, may overdraw the pool to catch up; all
 * debtors then make the pool whole before V moves on.  So a member that uses
 * less than its share does not pause.
 *
 * A member that leaves in debt hands its debt over to another one, its heir,
 * which stands for all who have left, uses nothing itself, and is repaid like
 * any other: with the share of one debtor, however many have left however
 * much.  So with n members and k heirs in debt, each member gets a share of
 * 1 / (n + k) of the income, and never pays for more than that of what others
 * have left.
 *
 * Pressure may lower the rate below the fixed limit, and debts that were made
 * before are out of proportion then: what takes longer than 30 s is forgiven,
 * unless it took as long at the rate before.  Only a rate that has not been
 * exceeded for some seconds counts there, and never is less owed afterwards
 * than if the fixed limit had been the rate all the time: the claim, which each
 * charge raises and the income at that limit lowers.  So whatever pressure does,
 * the group uses no more than the fixed limit grants.
 *
 * Bounds: at rate R the pool keeps at most 100 ms x R (burst_us x R if that is
 * more; exactly that after more than a second without use), and is overdrawn
 * by at most 200 ms x R (of the limit, if that is more).  Debtors that do not call
 * any more may have been paid too much, until they are evicted: about as much as the
 * pool would keep.  In any time T the group hence uses at most R x T + 300 ms x R
 * (more with a longer burst), plus what each member owes when it runs on: less than its
 * share of min_pause(), its last charge, and the debt that it still had when
 * jitter let it wake early.  Where members come and leave in debt all the
 * time, add what their heirs still owe.  A member's debt is cut at DEBT_MAX
 * (2.3 TB) and one step's income at INCOME_MAX, so all sums fit.
 */

#define TOKENS_PER_BYTE	INT64_C(1000000)

/* Credit that the pool may keep, and overdraft that it may grant, in time. */
#define CREDIT_US		INT64_C(100000)
#define LAG_US			INT64_C(200000)

/* After a longer time without use, the pool keeps burst_us only. */
#define IDLE_US			INT64_C(1000000)

/* No process is stopped for this long between a look at the clock and the lock, us. */
#define SET_BACK_US		INT64_C(600000000)

/* How long a tour around all members takes; also what makes a long gap. */
#define SWEEP_US		INT64_C(50000)

/* Pauses: shorter and longer ones are not worth it, or not responsive. */
#define PAUSE_MIN_US	INT64_C(1000)
#define PAUSE_MAX_US	INT64_C(1000000)
#define PAUSE_UNIT_US	INT64_C(10000)	/* worthwhile for a lone debtor */
#define PAUSE_CROWD_US	INT64_C(80000)	/* worthwhile in any company */
#define JITTER_BASE_US	INT64_C(4000000)	/* jitter up to half of this */

#define BATCH_MAX	INT64_C(1024)	/* granules between two charges */

/*
 * Bounds that keep sums in 63 bits.  INCOME_MAX is 500 s at the highest rate;
 * it leaves room for the pool and what debtors hold at that rate.
 */
#define DEBT_MAX		(INT64_MAX / 4)
#define INCOME_MAX		(DT_RATE_MAX * INT64_C(500000000))
#define POOL_MAX		(INT64_MAX / 16)	/* 576 GB, a long burst's bound */
#define TIME_MAX		(INT64_MAX / 2)
#define GRANULE_MAX		(INT64_C(1) << 30)

/* A tour around all members.  The cursor stands still meanwhile. */
#define for_each_member(m, g) \
	for (DtRateMember *m = (g)->cursor; m != NULL; \
		 m = m->next != (g)->cursor ? m->next : NULL)

/* a / b rounded up, for b > 0 */
static inline int64_t
div_up(int64_t a, int64_t b)
{
	return a / b + (a % b > 0);
}

/*
 * What m owes, in tokens.  If that is negative, the income has paid more than
 * m owes (a debtor), or m lags behind (any other member).
 */
static inline int64_t
unpaid(const DtRateGroup *g, const DtRateMember *m)
{
	return (int64_t) (m->finish - g->vtime);
}

/* How much may be saved up of "us" of income at that rate. */
static int64_t
keepable(int64_t rate, int64_t us)
{
	return rate > 0 ? rate * min64(us, POOL_MAX / rate) : 0;
}

/* As much may be saved up at that rate while the group is in use. */
static int64_t
keepable_in_use(int64_t rate, int64_t burst_us)
{
	return keepable(rate, max64(burst_us, CREDIT_US));
}

/* What may be saved up in the pool, and so be spent at once, in time. */
static int64_t
pool_us(const DtRateGroup *g)
{
	return g->budgeted ? min64(g->burst_us, DT_RATE_DEFAULT_BURST_US) : g->burst_us;
}

/*
 * Distribute the pool to the debtors or, if there are none, cut it to what may
 * be kept.  This is the only place where V moves.  "settled" follows V at the
 * distance of the largest lag that counts, so that their difference does not
 * wrap around.
 */
static void
distribute_pool(DtRateGroup *g)
{
	int64_t		lag;

	if (g->n_debtors == 0)
	{
		bool		idle = g->t_last - g->busy_until > IDLE_US;

		g->pool = min64(g->pool, idle ? keepable(g->rate, pool_us(g)) :
						keepable_in_use(g->rate, pool_us(g)));
	}
	else if (g->pool > 0)
	{
		g->vtime += (uint64_t) (g->pool / g->n_debtors);
		g->pool %= g->n_debtors;
	}
	lag = min64((int64_t) (g->vtime - g->settled), g->rate * LAG_US);
	g->settled = g->vtime - (uint64_t) lag;
}

/*
 * Remove m, which has paid, from the debtors; the pool gets the excess back.
 * The caller has to call distribute_pool().
 */
static void
remove_debtor(DtRateGroup *g, DtRateMember *m)
{
	g->n_debtors--;
	if (m->let_off)
		g->n_let_off++;
	g->pool -= unpaid(g, m);
	m->debtor = false;
	/* the last debtor does not lag behind anybody: V moved for it alone */
	if (g->n_debtors == 0)
		m->finish = g->vtime;
}

static inline void
remove_if_paid(DtRateGroup *g, DtRateMember *m)
{
	if (m->debtor && unpaid(g, m) <= 0)
	{
		remove_debtor(g, m);
		distribute_pool(g);
	}
}

/* The pause that m would have made is over, or does not count any more. */
static void
end_let_off(DtRateGroup *g, DtRateMember *m)
{
	if (m->let_off && !m->debtor)
		g->n_let_off--;
	m->let_off = false;
}

/*
 * Look after a member that may not have called for long.  A debtor that is
 * overpaid by at least "overpaid" has stopped, or uses nothing: give its
 * income back to the others.  The tags of other members must not fall so far
 * behind V that the difference wraps around; beyond the largest lag that
 * counts it has no meaning.  The caller has to call distribute_pool().
 */
static void
evict_one(DtRateGroup *g, DtRateMember *m, int64_t overpaid)
{
	if (m->let_off && m->let_off_until <= g->t_last)
		end_let_off(g, m);
	if (m->debtor && unpaid(g, m) <= -overpaid)
		remove_debtor(g, m);
	if (!m->debtor && unpaid(g, m) < -g->rate * LAG_US)
		m->finish = g->vtime - (uint64_t) (g->rate * LAG_US);
}

/* Evict all debtors that have paid. */
static void
evict_all(DtRateGroup *g)
{
	for_each_member(m, g)
	{
		evict_one(g, m, 0);
	}
}

/* Pay what debtor m owes from the pool, as far as that goes. */
static void
pay_from_pool(DtRateGroup *g, DtRateMember *m)
{
	int64_t		part;

	if (!m->debtor || g->pool <= 0)
		return;
	part = min64(unpaid(g, m), g->pool);
	g->pool -= part;
	m->finish -= (uint64_t) part;
	if (unpaid(g, m) == 0)
		remove_debtor(g, m);
}

/*
 * Evict from all members.  What removed debtors give back may pay others, so
 * make a second tour for these.  What they give back in turn might pay yet
 * others, and so on for dozens of tours.  So the rest pays the members in the
 * order of the ring, beginning where that ended the last time.
 *
 * If that settles all debts, there was time to spare and nobody lags behind:
 * forget the tags.  V has run past the last of them, and would pass for lag
 * otherwise.
 */
static void
sweep_all(DtRateGroup *g)
{
	evict_all(g);
	if (g->n_debtors > 0 && g->pool >= g->n_debtors)
	{
		distribute_pool(g);
		evict_all(g);
		for (int32_t i = 0; i < g->n_members && g->pool > 0; i++)
		{
			pay_from_pool(g, g->cursor);
			g->cursor = g->cursor->next;
		}
	}
	if (g->n_debtors == 0)
		g->settled = g->vtime;
	distribute_pool(g);
}

/*
 * Evict from as many members as dt is worth.  A debtor that oversleeps a
 * little is left alone: it is about to wake.
 */
static void
sweep_some(DtRateGroup *g, int64_t dt)
{
	int64_t		overpaid;

	overpaid = g->rate * SWEEP_US / max64(g->n_debtors, 1);
	for (int64_t n = dt * g->n_members / SWEEP_US; n >= 0 && g->cursor; n--)
	{
		evict_one(g, g->cursor, overpaid);
		g->cursor = g->cursor->next;
	}
	distribute_pool(g);
}

/* The fixed limit has earned that many tokens, of which it saves up a few. */
static void
lower_claim(DtRateGroup *g, int64_t tokens)
{
	g->claim = max64(g->claim - tokens, -keepable_in_use(g->limit, g->burst_us));
}

/*
 * Credit the income up to now.
 *
 * Callers read the clock before they take the lock, so "now" may be a little
 * in the past, or more if they were stopped meanwhile; the time until t_last has
 * been credited already.  Farther in the past: the clock was set back, and we start
 * anew from there.
 */
static void
advance(DtRateGroup *g, int64_t now)
{
	int64_t		dt;

	now = clamp64(now, 0, TIME_MAX);
	dt = now - g->t_last;
	if (dt <= 0 && dt >= -SET_BACK_US)
		return;
	g->t_last = now;
	if (dt < 0)
		g->busy_until = g->lower_since = now;
	if (dt < 0 || g->rate == 0)
		return;

	g->pool += g->rate * min64(dt, INCOME_MAX / g->rate);
	if (g->limit > 0)
		lower_claim(g, g->limit * min64(dt, INCOME_MAX / g->limit));
	distribute_pool(g);

	if (g->n_debtors == 0 && g->n_let_off == 0)
	{
		/* nobody to evict; see sweep_all() */
		if (dt >= SWEEP_US || now - g->busy_until > IDLE_US)
			g->settled = g->vtime;
	}
	else if (dt >= SWEEP_US || now - g->busy_until > IDLE_US)
		sweep_all(g);
	else
		sweep_some(g, dt);
}

/* The group is in use up to "until". */
static inline void
busy(DtRateGroup *g, int64_t until)
{
	g->busy_until = max64(g->busy_until, until);
}

/* Make m owe that many more tokens, > 0; there is nothing in the pool. */
static void
add_debt(DtRateGroup *g, DtRateMember *m, int64_t tokens)
{
	if (!m->debtor)
	{
		m->finish = g->vtime;
		m->debtor = true;
		g->n_debtors++;
		if (m->let_off)
			g->n_let_off--;
	}
	m->finish = g->vtime + (uint64_t) min64(unpaid(g, m) + tokens, DEBT_MAX);
}

/* Enter a charge of bytes > 0 into the books. */
static void
enter_charge(DtRateGroup *g, DtRateMember *m, int64_t bytes)
{
	int64_t		tokens = min64(bytes, DEBT_MAX / TOKENS_PER_BYTE) *
		TOKENS_PER_BYTE;

	if (g->limit > 0)
		g->claim = min64(g->claim + tokens, DEBT_MAX);
	if (!m->debtor)
	{
		int64_t		lag;
		int64_t		part;

		/* From the pool; there is nothing in it while anybody owes. */
		part = min64(max64(g->pool, 0), tokens);
		g->pool -= part;
		tokens -= part;

		/* Then what m lags behind, up to its share of the overdraft. */
		lag = min64(-unpaid(g, m), (int64_t) (g->vtime - g->settled));
		lag = min64(lag, g->rate * LAG_US / (g->n_debtors + 1));
		part = min64(lag, max64(g->pool + g->rate * LAG_US, 0));
		part = min64(part, tokens);
		g->pool -= part;
		tokens -= part;
		m->finish = g->vtime - (uint64_t) (lag - part);
		if (tokens == 0)
			return;
	}
	add_debt(g, m, tokens);
}

/*
 * In how many us will debtor m have paid all but "slack", if nothing else
 * happens?  At most some 30 years.
 */
static int64_t
predict(const DtRateGroup *g, const DtRateMember *m, int64_t slack)
{
	double		tokens;
	double		us;
	int64_t		result;

	tokens = (double) max64(unpaid(g, m) - slack, 0) * g->n_debtors;
	us = (tokens + max64(-g->pool, 0)) / g->rate;
	if (us > 1e15)
		us = 1e15;
	result = (int64_t) us;
	return result < us ? result + 1 : result;
}

/* In how many us will m, a debtor, have paid what it owes? */
int64_t
dt_rate_left(const DtRateGroup *g, const DtRateMember *m)
{
	return predict(g, m, 0);
}

/*
 * The shortest pause worth making when there are that many debtors:
 * PAUSE_UNIT_US x (1 + log2(n)), with the logarithm linear between powers of
 * two.  The more debtors there are, the longer each pauses at a time, or the
 * group wakes up too often.
 */
static int64_t
min_pause(int32_t n)
{
	double		ratio = n;
	int64_t		result = 0;

	while (ratio >= 2 && result < PAUSE_CROWD_US)
	{
		ratio /= 2;
		result += PAUSE_UNIT_US;
	}
	result += (int64_t) (PAUSE_UNIT_US * ratio);
	return min64(result, PAUSE_CROWD_US);
}

void
dt_rate_init(DtRateGroup *g, int64_t limit, int64_t granule, int64_t now)
{
	memset(g, 0, sizeof(*g));
	g->burst_us = DT_RATE_DEFAULT_BURST_US;
	g->granule = clamp64(granule, 1, GRANULE_MAX);
	g->t_last = g->busy_until = clamp64(now, 0, TIME_MAX);
	dt_rate_set(g, limit, limit, now);
}

/* Forgive all members everything. */
static void
forgive_all(DtRateGroup *g)
{
	for_each_member(m, g)
	{
		end_let_off(g, m);
		m->finish = g->vtime;
		m->debtor = false;
	}
	g->n_debtors = 0;
	g->pool = g->claim = 0;
}

/*
 * Since when is the rate lower?  What pressure does not lower is not.  Called
 * when the rate has changed.
 */
static void
note_lower_rate(DtRateGroup *g, int64_t old_rate)
{
	if (old_rate == 0 || (g->limit > 0 && g->rate >= g->limit) ||
		g->rate >= g->lasting)
	{
		g->lasting = g->rate;
		g->lower = 0;
	}
	else if (g->lower == 0)
	{
		g->lower = g->rate;
		g->lower_since = g->t_last;
	}
	else
		g->lower = max64(g->lower, g->rate);
}

void
dt_rate_set(DtRateGroup *g, int64_t limit, int64_t rate, int64_t now)
{
	int64_t		old_rate = g->rate;

	advance(g, now);
	g->limit = clamp64(limit, 0, DT_RATE_MAX);
	g->rate = clamp64(rate, g->limit > 0,
					  g->limit > 0 && !g->budgeted ? g->limit : DT_RATE_MAX);
	note_lower_rate(g, old_rate);
	for_each_member(m, g)
	{
		m->slack = 0;			/* belongs to a pause at the old rate */
	}

	if (g->limit == 0)
		g->claim = 0;
	if (g->rate == 0)
		forgive_all(g);
	else if (old_rate == 0)
		/* nothing was saved up while there was no limit */
		g->pool = g->rate * min64(g->burst_us, DT_RATE_DEFAULT_BURST_US);
	else
		g->pool = max64(g->pool, -max64(g->rate, g->limit) * LAG_US);
	lower_claim(g, 0);			/* for the cap at the new limit */
	distribute_pool(g);			/* for the cap at the new rate */
}

void
dt_rate_set_burst(DtRateGroup *g, int64_t burst_us, int64_t now)
{
	advance(g, now);
	g->burst_us = clamp64(burst_us, 0, DT_RATE_MAX_BURST_US);
	lower_claim(g, 0);			/* for the cap, as ... */
	distribute_pool(g);			/* ... here */
}

void
dt_rate_set_budgeted(DtRateGroup *g, bool budgeted, int64_t now)
{
	advance(g, now);
	g->budgeted = budgeted;
	distribute_pool(g);			/* for the cap */
}

/* What is saved up in any case is not worth a rate of its own. */
int64_t
dt_rate_saved(DtRateGroup *g, int64_t now)
{
	advance(g, now);
	return max64(-g->claim - keepable(g->limit, CREDIT_US), 0) / TOKENS_PER_BYTE;
}

void
dt_rate_join(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	advance(g, now);

	memset(m, 0, sizeof(*m));
	m->finish = g->vtime;
	if (g->cursor == NULL)
		g->cursor = m->next = m->prev = m;
	else
	{
		m->next = g->cursor;
		m->prev = g->cursor->prev;
		m->prev->next = m;
		m->next->prev = m;
	}
	g->n_members++;
}

void
dt_rate_leave(DtRateGroup *g, DtRateMember *m, DtRateMember *heir, int64_t now)
{
	int64_t		tokens = 0;

	advance(g, now);
	end_let_off(g, m);
	if (m->debtor)
	{
		tokens = unpaid(g, m);
		g->n_debtors--;
		/* what it was paid too much */
		if (tokens < 0)
			g->pool -= tokens;
	}

	if (g->cursor == m)
		g->cursor = m->next != m ? m->next : NULL;
	m->prev->next = m->next;
	m->next->prev = m->prev;
	g->n_members--;
	memset(m, 0, sizeof(*m));

	if (tokens > 0 && heir != NULL)
		add_debt(g, heir, tokens);
	distribute_pool(g);			/* the number of debtors has changed */
}

void
dt_rate_pass_debt(DtRateGroup *g, DtRateMember *from, DtRateMember *to,
				  int32_t n, int64_t least, int64_t now)
{
	int64_t		part;

	advance(g, now);
	remove_if_paid(g, from);
	if (!from->debtor)
		return;
	least = min64(least, DEBT_MAX / TOKENS_PER_BYTE) * TOKENS_PER_BYTE;
	part = max64(div_up(unpaid(g, from), n), min64(unpaid(g, from), least));
	add_debt(g, to, part);
	from->finish -= (uint64_t) part;
	remove_if_paid(g, from);
}

int64_t
dt_rate_charge(DtRateGroup *g, DtRateMember *m, int64_t bytes, int64_t now,
			   double jitter)
{
	int64_t		pause;
	int64_t		early = 0;

	if (g->rate == 0)
		return 0;
	advance(g, now);
	remove_if_paid(g, m);
	if (bytes > 0)
	{
		enter_charge(g, m, bytes);
		busy(g, g->t_last);
	}
	if (!m->debtor)
		return 0;

	pause = predict(g, m, 0);
	if (pause < min_pause(g->n_debtors))
		return 0;				/* runs on, in debt */

	/*
	 * Debtors that fell into debt together would wake together for ever.  Let
	 * each wake somewhat early, at random; it then still owes the difference.
	 */
	if (g->n_debtors > 1 && jitter > 0)
		early = (int64_t) (0.5 * (jitter < 1 ? jitter : 1) *
						   min64(pause, JITTER_BASE_US));
	m->slack = g->rate * early / g->n_debtors;
	pause = clamp64(pause - early, PAUSE_MIN_US, PAUSE_MAX_US);
	busy(g, g->t_last + pause);
	return pause;
}

/* Brings the group up to date.  Is the member still in debt then? */
static bool
is_in_debt(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	if (g->rate == 0)
		return false;
	advance(g, now);
	remove_if_paid(g, m);
	return m->debtor;
}

int64_t
dt_rate_wake(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	int64_t		pause;

	if (!is_in_debt(g, m, now))
		return 0;

	pause = predict(g, m, m->slack);
	if (pause < PAUSE_MIN_US)
		return 0;
	pause = min64(pause, PAUSE_MAX_US);
	busy(g, g->t_last + pause);
	return pause;
}

int64_t
dt_rate_forgive(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	double		us;

	if (!is_in_debt(g, m, now))
		return 0;
	g->n_debtors--;
	m->debtor = false;
	g->n_let_off++;
	if (!m->let_off)
	{
		m->let_off = true;
		m->let_off_until = g->t_last;
	}

	/* Others that were let off would be in debt, too, and share the income. */
	us = (double) unpaid(g, m) *
		(g->n_debtors + g->n_let_off) / g->rate;
	if (us > 1e15)
		us = 1e15;
	m->let_off_until = min64(max64(m->let_off_until, g->t_last) + (int64_t) us,
							 TIME_MAX);
	m->finish = g->vtime;
	distribute_pool(g);			/* the number of debtors has changed */
	return (int64_t) us + 1;
}

/* Shrink m's debt to that part of it; returns how many tokens are forgiven. */
static int64_t
shrink_debt(DtRateGroup *g, DtRateMember *m, double part)
{
	int64_t		owed = unpaid(g, m);
	int64_t		keep;

	if (!m->debtor || owed <= 0)
		return 0;
	keep = min64((int64_t) (owed * part), owed);
	m->finish -= (uint64_t) (owed - keep);
	return owed - keep;
}

/* What m, if it is a debtor, owes, in tokens */
static inline int64_t
debt_tokens(const DtRateGroup *g, const DtRateMember *m)
{
	return m->debtor ? max64(unpaid(g, m), 0) : 0;
}

/* What all members owe, and what the pool is overdrawn by, in tokens. */
static double
total_debt(const DtRateGroup *g)
{
	double		owed = max64(-g->pool, 0);

	for_each_member(m, g)
	{
		owed += debt_tokens(g, m);
	}
	return owed;
}

/* Shrink all debts to that part of them; returns the bytes forgiven. */
static int64_t
shrink_all(DtRateGroup *g, double part)
{
	int64_t		forgiven = 0;
	int64_t		bytes;

	if (g->pool < 0)
	{
		forgiven = (int64_t) (-g->pool * (1 - part));
		g->pool += forgiven;
	}
	bytes = forgiven / TOKENS_PER_BYTE;
	for_each_member(m, g)
	{
		forgiven = forgiven % TOKENS_PER_BYTE + shrink_debt(g, m, part);
		bytes += forgiven / TOKENS_PER_BYTE;
	}
	evict_all(g);
	distribute_pool(g);			/* the number of debtors may have changed */
	return bytes;
}

int64_t
dt_rate_bound_debts(DtRateGroup *g, int64_t now)
{
	double		before = g->lasting;
	double		owed;
	double		keep;

	advance(g, now);
	if (g->lower == 0 || g->t_last - g->lower_since < DT_RATE_LASTING_US)
		return 0;
	g->lasting = g->lower;
	g->lower = 0;
	note_lower_rate(g, g->rate);

	owed = total_debt(g);
	keep = (double) g->lasting * DT_RATE_DEBT_US;
	if (keep < owed * g->lasting / before)
		keep = owed * g->lasting / before;
	if (keep < g->claim)
		keep = g->claim;
	return keep < owed ? shrink_all(g, keep / owed) : 0;
}

int64_t
dt_rate_batch(const DtRateGroup *g, const DtRateMember *m)
{
	int32_t		n = g->n_debtors + (m->debtor ? 0 : 1);
	int64_t		tokens;
	int64_t		granules;

	if (g->rate == 0)
		return BATCH_MAX * g->granule;

	/*
	 * Half of the shortest pause, so that a pause is seldom overlooked; and
	 * all members together not more than half of the credit.
	 */
	tokens = (int64_t) ((double) g->rate * min_pause(n) / 2 / n);
	tokens = min64(tokens, g->rate * CREDIT_US / (2 * max64(g->n_members, 1)));
	granules = tokens / TOKENS_PER_BYTE / g->granule;
	return clamp64(granules, 1, BATCH_MAX) * g->granule;
}

/* m's debt in bytes, rounded up */
static int64_t
debt_bytes(const DtRateGroup *g, const DtRateMember *m)
{
	return div_up(debt_tokens(g, m), TOKENS_PER_BYTE);
}

int64_t
dt_rate_debt(DtRateGroup *g, DtRateMember *m, int64_t now)
{
	advance(g, now);
	return debt_bytes(g, m);
}

/* What debtors have been paid beyond their debt is as good as in the pool. */
int64_t
dt_rate_group_debt(DtRateGroup *g, int64_t now)
{
	int64_t		bytes = 0;
	int64_t		overdraft;

	advance(g, now);
	overdraft = -g->pool;
	if (g->n_debtors > 0)
	{
		for_each_member(m, g)
		{
			bytes += debt_bytes(g, m);
			if (m->debtor)
				overdraft += min64(unpaid(g, m), 0);
		}
	}
	return bytes + div_up(max64(overdraft, 0), TOKENS_PER_BYTE);
}
