/*-------------------------------------------------------------------------
 *
 * rate.h
 *		The rate engine: who owes how much, and for how long to pause.
 *
 * A member is charged with what it has used.  Its group's income, which is the
 * rate, pays for that; what is not paid yet is the member's debt, and while it
 * has one it is a debtor.
 *
 * Integers and a clock value go in, a pause in microseconds comes out.
 * Nothing here knows PostgreSQL, processes or sleeping, so a plain C program
 * can drive it; see rate.c for the control law.
 *
 * The engine takes no lock.  The caller keeps a DtRateGroup and its members
 * where all users see them (shared memory) and holds one lock per group
 * around every call.
 *
 * Units: time in microseconds of a monotonic clock, amounts in bytes, rates
 * in bytes per second.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_RATE_H
#define DT_RATE_H

#include <stdbool.h>
#include <stdint.h>

/* The highest rate: 16777216 KB/s, 1 KB = 1000 bytes. */
#define DT_RATE_MAX		INT64_C(16777216000)

/*
 * The burst: how much unused income a group may save up, in time at its rate,
 * that is, the time in which it earns as much.
 */
#define DT_RATE_DEFAULT_BURST_US	INT64_C(20000)
#define DT_RATE_MAX_BURST_US		INT64_C(3600000000)

/*
 * When pressure has lowered a rate for LASTING_US, that part of a debt is forgiven
 * that it would take longer than DEBT_US to pay.
 */
#define DT_RATE_LASTING_US			INT64_C(5000000)
#define DT_RATE_DEBT_US				INT64_C(30000000)

/* One member's account.  All fields belong to the engine. */
typedef struct DtRateMember
{
	uint64_t	finish;			/* finish tag F: V at which all is repaid */
	int64_t		slack;			/* jitter: so far before F the last pause ends */
	bool		debtor;			/* counted in the group's n_debtors */

	/*
	 * Let off: its debt was forgiven, and it would still pause for that debt
	 * if it were not; see dt_rate_forgive().
	 */
	bool		let_off;		/* counted in the group's n_let_off, unless it
								 * is a debtor again */
	int64_t		let_off_until;	/* when that pause would end */

	struct DtRateMember *next;	/* ring of the group's members; NULL: none */
	struct DtRateMember *prev;
} DtRateMember;

/* One group's account of one resource.  All fields belong to the engine. */
typedef struct DtRateGroup
{
	int64_t		rate;			/* R, bytes/s; 0 = no limit */
	int64_t		limit;			/* the fixed one, bytes/s; 0 = none */
	int64_t		claim;			/* what would be owed at that, tokens; < 0:
								 * what would be saved up */
	int64_t		lasting;		/* what debts were bounded for: the highest
								 * rate of some seconds */
	int64_t		lower;			/* the highest rate since it fell below that;
								 * 0: it has not */
	int64_t		lower_since;
	int64_t		burst_us;		/* in time at the group's rate */
	bool		budgeted;		/* the burst is not spent at once; see
								 * dt_rate_set_budgeted() */
	int64_t		granule;		/* a charge of less is not worthwhile, bytes */
	int64_t		t_last;			/* income is credited up to this time */
	int64_t		busy_until;		/* time of the last charge, or end of the
								 * latest pause */
	int64_t		pool;			/* P, tokens: > 0 credit, < 0 owed by all */
	uint64_t	vtime;			/* V, tokens repaid to each debtor; wraps */
	uint64_t	settled;		/* V when nobody owed or lagged behind, or the
								 * largest lag before V; older finish tags
								 * count as this one */
	int32_t		n_members;
	int32_t		n_debtors;
	int32_t		n_let_off;
	DtRateMember *cursor;		/* next member to look at for eviction */
} DtRateGroup;

/*
 * Set up an empty group.  limit: 0..DT_RATE_MAX; granule: bytes, >= 1.
 */
extern void dt_rate_init(DtRateGroup *g, int64_t limit, int64_t granule,
						 int64_t now);

/*
 * Change the fixed limit (0 = none), and the rate, which pressure may lower
 * below it (0 = no rate, only where there is no limit), or raise above it while
 * there is a burst to spend within a budget.  What is owed is in
 * bytes and stays; with rate 0 it is forgiven.  The caller wakes the sleepers
 * afterwards.
 */
extern void dt_rate_set(DtRateGroup *g, int64_t limit, int64_t rate,
						int64_t now);

/*
 * Change the burst: 0..DT_RATE_MAX_BURST_US.  No more than 576 GB can be saved
 * up.  What is saved up beyond the new burst is lost.
 */
extern void dt_rate_set_burst(DtRateGroup *g, int64_t burst_us, int64_t now);

/*
 * budgeted: of what is saved up only the default burst is spent at once.  The caller
 * sets a rate above the limit, as the budget has room for, while
 * dt_rate_saved() is not 0: how many bytes more than that the limit has saved up.
 */
extern void dt_rate_set_budgeted(DtRateGroup *g, bool budgeted, int64_t now);
extern int64_t dt_rate_saved(DtRateGroup *g, int64_t now);

/* Make m, whose memory the caller owns, a member without debt or credit. */
extern void dt_rate_join(DtRateGroup *g, DtRateMember *m, int64_t now);

/*
 * End the membership of m.  What it owes is owed by heir, another member, from
 * now on; with NULL it is forgiven.
 */
extern void dt_rate_leave(DtRateGroup *g, DtRateMember *m, DtRateMember *heir,
						  int64_t now);

/*
 * Pass the n-th part, n > 0, of what one member owes to another one; or so many
 * bytes at least, as far as it owes them.
 */
extern void dt_rate_pass_debt(DtRateGroup *g, DtRateMember *from,
							  DtRateMember *to, int32_t n, int64_t least,
							  int64_t now);

/*
 * Charge m with "bytes" it has used.  Returns for how long it should pause,
 * in us, at most 1 s (call dt_rate_wake() afterwards), or 0 to run on, even if
 * it owes a little.  "jitter" is a random number in [0, 1) that keeps members
 * from waking together; 0 means no jitter.
 */
extern int64_t dt_rate_charge(DtRateGroup *g, DtRateMember *m, int64_t bytes,
							  int64_t now, double jitter);

/*
 * After a pause, or woken: how much longer to pause, in us, at most 1 s, or 0.
 */
extern int64_t dt_rate_wake(DtRateGroup *g, DtRateMember *m, int64_t now);

/*
 * After either has returned a pause: in how many us m will have paid all, other
 * things equal.
 */
extern int64_t dt_rate_left(const DtRateGroup *g, const DtRateMember *m);

/*
 * For mode observe: forgive what m owes.  Returns for how long, in us, it
 * would have paused for that, or 0 if it owes nothing.  Pauses that members
 * would have made at the same time are computed as if they had: these members
 * share the income.
 */
extern int64_t dt_rate_forgive(DtRateGroup *g, DtRateMember *m, int64_t now);

/*
 * To be called several times a second while pressure lowers the rate: when that
 * has been so for DT_RATE_LASTING_US, forgive what pressure alone asks for and
 * what would take too long to pay, so that all debts shrink in proportion.
 * Returns the bytes that were forgiven; the caller wakes the sleepers.
 */
extern int64_t dt_rate_bound_debts(DtRateGroup *g, int64_t now);

/* The rate that has been in force lately, but for falls of a moment. */
static inline int64_t
dt_rate_lately(const DtRateGroup *g)
{
	return g->lower > 0 ? g->lower : g->lasting;
}

/* How many bytes m may use before it should be charged again. */
extern int64_t dt_rate_batch(const DtRateGroup *g, const DtRateMember *m);

/* In how many us the group, whose rate is not 0, earns that many bytes. */
static inline int64_t
dt_rate_time(const DtRateGroup *g, int64_t bytes)
{
	return (int64_t) (bytes * 1000000.0 / g->rate);
}

/* What m owes, and what the whole group owes, in bytes. */
extern int64_t dt_rate_debt(DtRateGroup *g, DtRateMember *m, int64_t now);
extern int64_t dt_rate_group_debt(DtRateGroup *g, int64_t now);

#endif							/* DT_RATE_H */
