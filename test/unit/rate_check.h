/*-------------------------------------------------------------------------
 *
 * rate_check.h
 *		What the rate engine promises, its invariants, and its books.
 *
 * The bounds are those of rate.c, stated here again on purpose.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RATE_CHECK_H
#define RATE_CHECK_H

#include "engine/rate.h"

#define TOKENS		INT64_C(1000000)	/* per byte */
#define CREDIT_US	INT64_C(100000)
#define LAG_US		INT64_C(200000)
#define DEBT_TOKENS	(INT64_MAX / 4)
#define POOL_TOKENS	(INT64_MAX / 16)
#define DEBT_MAX	(DEBT_TOKENS / TOKENS)	/* bytes */
#define POOL_MAX	(POOL_TOKENS / TOKENS)	/* 576 GB, the most saved up */

/* A fixed limit, which no pressure lowers. */
static inline void
fix_rate(DtRateGroup *g, int64_t limit, int64_t now)
{
	dt_rate_set(g, limit, limit, now);
}

/* The invariants of one account; NULL or what is wrong with it. */
static const char *
find_member_violation(const DtRateGroup *g, const DtRateMember *m)
{
	int64_t		unpaid = (int64_t) (m->finish - g->vtime);

	if (!m->debtor)
		return unpaid <= 0 ? NULL : "a member that owes is no debtor";
	if (unpaid > DEBT_TOKENS)
		return "a debt exceeds the maximum";
	if (m->slack < 0)
		return "negative slack";
	return NULL;
}

/* How many tokens may be saved up of "us" of income at this rate. */
static inline int64_t
most_saved_up(int64_t rate, int64_t us)
{
	if (rate > 0 && us > POOL_TOKENS / rate)
		us = POOL_TOKENS / rate;
	return rate * us;
}

/*
 * NULL if the invariants that hold between two calls are intact, otherwise a
 * text that names the one that is violated.
 */
static const char *
find_violation(const DtRateGroup *g)
{
	const DtRateMember *m = g->cursor;
	const char *problem = NULL;
	int64_t		kept_us = g->burst_us < CREDIT_US ? CREDIT_US : g->burst_us;
	int32_t		debtors = 0;
	int32_t		let_off = 0;
	int32_t		n = 0;

	if (m != NULL)
	{
		do
		{
			if (m->next == NULL || m->next->prev != m || n > g->n_members)
				return "the ring of members is broken";
			if (problem == NULL)
				problem = find_member_violation(g, m);
			debtors += m->debtor;
			let_off += m->let_off && !m->debtor;
			n++;
			m = m->next;
		} while (m != g->cursor);
	}
	if (problem != NULL)
		return problem;
	if (n != g->n_members)
		return "the number of members is wrong";
	if (debtors != g->n_debtors)
		return "the number of debtors is wrong";
	if (let_off != g->n_let_off)
		return "the number of those that were let off is wrong";
	if (g->burst_us < 0 || g->burst_us > DT_RATE_MAX_BURST_US)
		return "the burst is out of range";
	if (g->rate < 0 || g->rate > DT_RATE_MAX)
		return "the rate is out of range";
	if (g->limit < 0 || g->limit > DT_RATE_MAX ||
		(g->limit > 0 && (g->rate > g->limit || g->rate == 0)))
		return "the limit is out of range";
	if (g->rate == 0 && (debtors != 0 || g->pool != 0))
		return "debt or credit without a limit";
	if (g->limit == 0 && g->claim != 0)
		return "a claim without a limit";
	if (g->claim > DEBT_TOKENS ||
		g->claim < -most_saved_up(g->limit, kept_us))
		return "the claim is out of range";
	if (g->lower < 0 || (g->lower > 0 && g->lower >= g->lasting) ||
		g->rate > dt_rate_lately(g))
		return "the lasting rate is out of range";
	if (g->pool < -(g->limit > 0 ? g->limit : g->rate) * LAG_US)
		return "the pool is overdrawn";
	if ((int64_t) (g->vtime - g->settled) < 0 ||
		(int64_t) (g->vtime - g->settled) > g->rate * LAG_US)
		return "the time when all was settled is out of range";
	if (debtors == 0 && g->pool > most_saved_up(g->rate, kept_us))
		return "the pool keeps too much";
	if (debtors > 0 && g->pool >= debtors)
		return "the pool keeps what debtors need";
	return NULL;
}

typedef __int128 int128;

static inline int128
least(int128 a, int128 b)
{
	return a < b ? a : b;
}

/* The books: the pool less what debtors owe, in tokens. */
static inline int128
books(const DtRateGroup *g)
{
	int128		sum = g->pool;
	const DtRateMember *m = g->cursor;

	if (m != NULL)
	{
		do
		{
			if (m->debtor)
				sum -= (int64_t) (m->finish - g->vtime);
			m = m->next;
		} while (m != g->cursor);
	}
	return sum;
}

/* How many tokens the pool may keep at this rate. */
static inline int64_t
pool_cap(const DtRateGroup *g, int64_t rate)
{
	int64_t		us = g->burst_us;

	if (us < CREDIT_US && g->t_last - g->busy_until <= INT64_C(1000000))
		us = CREDIT_US;
	return most_saved_up(rate, us);
}

/*
 * Let the engine know what time it is.  The books grow by the income, and
 * nothing is dropped but at the cap while nobody owes.  NULL or what is wrong.
 */
static inline const char *
pass_time(DtRateGroup *g, int64_t now)
{
	int128		expected = books(g);
	int64_t		dt = now > g->t_last ? now - g->t_last : 0;

	if (g->rate > 0 && dt > DT_RATE_MAX * INT64_C(500000000) / g->rate)
		dt = DT_RATE_MAX * INT64_C(500000000) / g->rate;
	expected += dt * g->rate;
	dt_rate_group_debt(g, now);
	if (g->n_debtors == 0)
		expected = least(expected, pool_cap(g, g->rate));
	if (books(g) != expected)
		return "the books do not show the income";
	return find_violation(g);
}

/*
 * The books were "before" until that many bytes were charged.  NULL or what is
 * wrong.
 */
static inline const char *
find_wrong_charge(int128 before, int128 after, int64_t cap, int64_t bytes)
{
	int128		tokens = (int128) bytes * TOKENS;

	if (after > before - tokens || after < least(before, cap) - tokens)
		return "the books do not show the charge";
	return NULL;
}

#endif							/* RATE_CHECK_H */
