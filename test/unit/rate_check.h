/*-------------------------------------------------------------------------
 *
 * rate_check.h
 *		What the rate engine promises, and its invariants.
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

/* The invariants of one account; NULL or what is wrong with it. */
static const char *
find_member_violation(const DtRateGroup *g, const DtRateMember *m)
{
	int64_t		unpaid = (int64_t) (m->finish - g->vtime);

	if (!m->debtor)
		return unpaid <= 0 ? NULL : "a member that owes is no debtor";
	if (m->weight < 1)
		return "a debtor without weight";
	if (unpaid > DEBT_TOKENS / m->weight)
		return "a debt exceeds the maximum";
	if (m->slack < 0)
		return "negative slack";
	return NULL;
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
	int64_t		weight = 0;
	int64_t		let_off = 0;
	int32_t		n = 0;

	if (g->ghost.debtor)
	{
		problem = find_member_violation(g, &g->ghost);
		weight = g->ghost.weight;
	}
	if (m != NULL)
	{
		do
		{
			if (m->next == NULL || m->next->prev != m || n > g->n_members)
				return "the ring of members is broken";
			if (problem == NULL)
				problem = find_member_violation(g, m);
			if (m->debtor)
				weight += m->weight;
			if (m->let_off && !m->debtor)
				let_off += m->weight;
			n++;
			m = m->next;
		} while (m != g->cursor);
	}
	if (problem != NULL)
		return problem;
	if (g->ghost.debtor && g->ghost.weight > 1 &&
		g->ghost.weight > weight - g->ghost.weight)
		return "the ghost outweighs the members in debt";
	if (n != g->n_members)
		return "the number of members is wrong";
	if (weight != g->debtor_weight)
		return "the debtors' weights do not add up";
	if (let_off != g->let_off_weight)
		return "the weights of those that were let off do not add up";
	if (g->burst_us < 0 || g->burst_us > DT_RATE_MAX_BURST_US)
		return "the burst is out of range";
	if (g->rate < 0 || g->rate > DT_RATE_MAX)
		return "the rate is out of range";
	if (g->rate == 0 && (weight != 0 || g->pool != 0))
		return "debt or credit without a limit";
	if (g->pool < -g->rate * LAG_US)
		return "the pool is overdrawn";
	if ((int64_t) (g->vtime - g->settled) < 0 ||
		(int64_t) (g->vtime - g->settled) > g->rate * LAG_US)
		return "the time when all was settled is out of range";
	if (g->rate > 0 && kept_us > POOL_TOKENS / g->rate)
		kept_us = POOL_TOKENS / g->rate;
	if (weight == 0 && g->pool > g->rate * kept_us)
		return "the pool keeps too much";
	if (weight > 0 && g->pool >= weight)
		return "the pool keeps what debtors need";
	return NULL;
}

#endif							/* RATE_CHECK_H */
