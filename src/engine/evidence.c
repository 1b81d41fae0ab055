/*-------------------------------------------------------------------------
 *
 * evidence.c
 *		The law by which a limit follows how long commits of others take.
 *
 * There is a knee: up to some rate the others do not notice anything, and a
 * little above it they suffer.  A law that believes each window, which is mostly
 * weather, ends far below the knee.  So this one wants evidence, and asks
 * whether slowing down helps.
 *
 * The mean of a window is compared with the threshold as (mean - threshold) /
 * max(mean, threshold), which is as much above as below for noise of the same
 * factor.  These add up to the evidence, which is never negative.  When it is
 * enough the rate goes down, by as much as the windows were above on average, a
 * tenth to a half.  That takes two windows when commits take several times as
 * long, and many when it is hardly too long.  Half of the evidence is left then, so
 * if it goes on, the next step comes sooner and is larger.
 *
 * How much is enough depends on the noise.  Evidence is a random walk that
 * drifts towards 0 while all is well; how far it gets by chance grows with the
 * variance of its steps.  Successive windows resemble each other, so the
 * variance is that of means of several of them (latency.c), judged by how much
 * one differs from the one before.
 *
 * Up.  Who begins while others commit begins slowly.  Without evidence the rate
 * rises by half in a second up to three quarters of the rate at which commits
 * last took too long, and doubles as long as none is known.  From there on it
 * rises slowly, and the faster the longer nothing happens.
 *
 * Doubt.  When the rate has been halved and commits take as long as before, it
 * goes no further down but asks: a probe tells whether commits stay below the
 * threshold if those who are limited rest.  If they do not, and do not a while
 * later either, it is somebody else's doing: the base is what was found, and the
 * rate what it was before.  For the same reason a threshold below the base
 * counts as a fifth above it.
 *
 * While commits do not end, nothing is known, and the rate stays.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/evidence.h"

#include "engine/arith.h"
#include "engine/law.h"

#define MS_US			INT64_C(1000)
#define SECOND_US		INT64_C(1000000)

/*
 * In latency_sim half or twice of each of these fails, or both, but of EVIDENT_MAX,
 * START_US, START_RATE and UNUSED_US.
 */

/* How much evidence is enough: so many times the variance, within bounds. */
#define NOISE_FACTOR	40
#define EVIDENT_MIN		1500	/* two windows that are far above */
#define EVIDENT_MAX		15000	/* even in a storm a minute is enough */

/* Steps. */
#define DOWN_LEAST		100		/* thousandths; less is not worth a step */
#define DOWN_MOST		500		/* more would throw away what is known */
#define WAIT_US			(600 * MS_US)	/* until a step shows in a window */
#define HANG_US			SECOND_US	/* a commit that takes longer hangs */
#define START_US		SECOND_US	/* after a rest, until a mean is of work */
#define START_RATE		INT64_C(16000000)	/* who begins, bytes/s: one
											 * segment a second */
#define UP_PERCENT		50		/* in a second, below the knee, ... */
#define UP_UNKNOWN		100		/* ... as long as none is known, ... */
#define UP_SLOWLY		4		/* ... and near it, and ... */
#define UP_FASTER		6		/* ... so much more for each second ... */
#define SLOWLY_US		(5 * SECOND_US) /* ... after this, when a step has had
										 * time to show */
#define UNUSED_US		(30 * SECOND_US)	/* not used up for so long: free */

/* Doubt. */
#define ASK_AGAIN_US	(3 * SECOND_US) /* the disk has worked off by then */
#define ASK_LATEST_US	(30 * SECOND_US)	/* later, it is another matter */

/* How long commits of others may take, ns; 0: not known yet. */
int64_t
dt_evidence_threshold(const DtLatency *l, DtAllowed allowed)
{
	int64_t		base = dt_latency_base(l);

	return allowed.share > 0 ?
		base + min64(muldiv64(base, allowed.share, 1000000), INT64_MAX / 2) :
		max64(allowed.ns, base + base / 5);
}

static int64_t
evident(const DtLatency *l)
{
	return clamp64(l->noise * l->noise * NOISE_FACTOR / 1000, EVIDENT_MIN,
				   EVIDENT_MAX);
}

static void
forget_evidence(DtEvidence *e, int64_t remains)
{
	e->evidence = remains;
	e->windows = e->sum = 0;
}

static void
weigh_window(DtEvidence *e, const DtLatency *l, int64_t threshold)
{
	int64_t		over = muldiv64(l->mean - threshold, 1000,
								max64(l->mean, threshold));

	e->evidence = min64(e->evidence, evident(l)) + over;
	e->windows++;
	e->sum += l->mean;
	if (e->evidence <= 0)
	{
		forget_evidence(e, 0);
		e->first = 0;
	}
}

/* Commits take that long since there is evidence. */
static int64_t
evident_mean(const DtEvidence *e)
{
	return e->sum / max64(e->windows, 1);
}

/* Does it take less than before those steps that are to help? */
static bool
has_helped(const DtEvidence *e)
{
	return evident_mean(e) < e->before - e->before / 8;
}

static void
step_down(DtEvidence *e, const DtLatency *l)
{
	int64_t		over = e->evidence / max64(e->windows, 1);

	if (e->rate == 0)
		e->unused_us = 0;
	if (e->rate == 0 || e->rate > l->used + l->used / 4)
		e->rate = max64(l->used, 1);
	/* by an eighth at most: with a quarter latency_sim fails */
	e->knee = max64(e->rate, e->knee / 8 * 7);
	if (e->first == 0 || has_helped(e))
	{
		e->first = e->rate;
		e->before = evident_mean(e);
	}
	e->rate = max64(e->rate - muldiv64(e->rate,
									   clamp64(over, DOWN_LEAST, DOWN_MOST),
									   1000), 1);
	e->hold_us = WAIT_US;
	e->quiet_us = 0;
	forget_evidence(e, evident(l) / 2);
}

/* May it be that a little more is too much? */
static bool
is_near_knee(const DtEvidence *e)
{
	/* from there on UP_PERCENT would pass it within a second */
	return e->knee > 0 && e->rate >= e->knee / 4 * 3;
}

static void
step_up(DtEvidence *e, int64_t used, int64_t dt)
{
	int64_t		percent = e->knee > 0 ? UP_PERCENT : UP_UNKNOWN;

	dt = min64(dt, SECOND_US);	/* the sampler may have been late */
	e->quiet_us += dt;
	if (used < e->rate / 2)
	{
		e->unused_us += dt;
		if (e->unused_us >= UNUSED_US)
			e->rate = 0;
		return;
	}
	e->unused_us = 0;
	if (is_near_knee(e))
		percent = UP_SLOWLY +
			clamp64((e->quiet_us - SLOWLY_US) * UP_FASTER / SECOND_US, 0,
					UP_UNKNOWN - UP_SLOWLY);
	e->rate += muldiv64(e->rate, percent * dt, 100 * SECOND_US) + 1;
	e->rate = min64(e->rate, DT_LAW_MAX);
}

/*
 * A probe is over: does it answer a question?  That it does not help counts when
 * it is found twice, as what was written before may still be on its way to the
 * disk.  A probe that has found nothing counts as if it helped.
 */
static void
hear_answer(DtEvidence *e, DtLatency *l)
{
	int64_t		question = e->question;
	int64_t		since = l->read_at - e->denied_at;
	bool		denied = l->found > question;

	e->question = 0;
	if (e->probes == l->probes)
		return;
	e->probes = l->probes;
	if (question == 0)
		return;					/* another threshold's */
	if (denied && (e->denied_at == 0 || since > ASK_LATEST_US))
	{
		e->denied_at = l->read_at;
		return;
	}
	if (denied)
	{
		dt_latency_believe(l, l->found);
		e->rate = max64(e->rate, e->first);
		forget_evidence(e, 0);
	}
	e->first = e->denied_at = 0;
}

/* It goes no further down before it knows whether that helps. */
static void
ask(DtEvidence *e, DtLatency *l, int64_t threshold)
{
	if (e->denied_at != 0 && l->read_at - e->denied_at < ASK_AGAIN_US)
		return;
	e->question = threshold;
	l->wants_answer = true;
}

/* Who has rested, up to now, begins slowly. */
static void
start(DtEvidence *e, const DtLatency *l)
{
	forget_evidence(e, 0);
	if (l->rests || e->rate > 0 || l->n < DT_LATENCY_ENOUGH)
		return;
	e->rate = max64(START_RATE, e->knee / 2);
	e->unused_us = e->first = 0;
}

static void
change_rate(DtEvidence *e, DtLatency *l, int64_t threshold, bool obeyed)
{
	if (e->hold_us > 0 || l->hung_us >= HANG_US)
		return;					/* the last step does not show yet, or nobody
								 * knows */
	/* a third: with half of that, or twice, latency_sim fails */
	if (e->evidence < evident(l) / 3)
	{
		if (e->rate > 0 && (!is_near_knee(e) || l->recent <= threshold))
			step_up(e, l->used, l->elapsed);
	}
	else if (e->evidence < evident(l))
		 /* it is not clear */ ;
	else if (e->first == 0 || e->rate > e->first / 2 || has_helped(e))
		step_down(e, l);
	else if (obeyed)
		ask(e, l, threshold);
}

/*
 * After a reading: how fast may all those go together whom it limits?  In a
 * probe next to nothing, if what it says is done ("obeyed").
 */
int64_t
dt_law_evidence(DtEvidence *e, DtLatency *l, DtAllowed allowed, bool obeyed)
{
	int64_t		threshold;

	if (l->probe_us > 0)
	{
		e->hold_us = WAIT_US;
		e->evidence = min64(e->evidence, evident(l) / 2);
		return obeyed ? 1 : e->rate;
	}
	hear_answer(e, l);
	threshold = dt_evidence_threshold(l, allowed);
	if (obeyed && (allowed.share > 0 || threshold > allowed.ns))
		l->wants_sample = true; /* the threshold follows from the base */

	e->hold_us = max64(e->hold_us - l->elapsed, 0);
	if (l->read_at - l->rested_at < START_US)
	{
		if (threshold > 0 && obeyed)
			start(e, l);
		else
			forget_evidence(e, 0);
	}
	else if (l->is_new && l->n < DT_LATENCY_ENOUGH)
		forget_evidence(e, 0);
	else if (l->is_new && threshold > 0 && e->hold_us == 0)
		weigh_window(e, l, threshold);
	change_rate(e, l, threshold, obeyed);
	return e->rate;
}
