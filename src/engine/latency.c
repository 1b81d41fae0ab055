/*-------------------------------------------------------------------------
 *
 * latency.c
 *		How long commits of others take, and the law by which a limit follows
 *		that.
 *
 * What one reads is mostly weather: the mean of a fifth of a second varies by
 * a third while nothing changes, and by more in a gust.  There is a knee: up to
 * some rate the others do not notice anything, and a little above it they
 * suffer.  A law that believes each reading ends far below the knee.  So this
 * one wants evidence, and asks whether slowing down helps.
 *
 * Windows.  One has at least ENOUGH commits; when there are fewer within
 * WINDOW_US, there is nobody to protect.  Its mean is compared with the
 * threshold as (mean - threshold) / max(mean, threshold), which is as much
 * above as below for noise of the same factor.  These add up to the evidence,
 * which is never negative.  When it is enough the rate goes down, by as much as
 * the windows were above on average, a tenth to a half.  That takes two windows
 * when commits take several times as long, and many when it is hardly too long.
 *
 * How much is enough depends on the noise.  Evidence is a random walk that
 * drifts towards 0 while all is well; how far it gets by chance grows with the
 * variance of its steps.  Successive windows resemble each other, so the
 * variance is that of means of BATCH of them, judged by how much one differs
 * from the one before.
 *
 * Up.  Who begins while others commit begins slowly.  Without evidence the rate
 * rises by half in a second up to three quarters of the rate at which commits
 * last took too long, and doubles as long as none is known.  From there on it
 * rises slowly, and the faster the longer nothing happens.
 *
 * The base is how long a commit takes without those who are limited.  A third
 * of the last samples are less: a single one is noisy, and some are too high, as
 * the disk has not worked off yet what was written before.  What the samples
 * differ by is added, in proportion to how little so many can be relied on: only
 * what exceeds that is noticed.  Samples come from times in which those who are
 * limited use nothing, and from probes: they rest, until commits no longer take
 * less and less time.  If somebody does not rest, as a transaction for which
 * others wait must not, nothing is learned.  Probes cost PROBE_PERCENT of what
 * those who are limited achieve at best.  Two samples in a row far above the
 * others replace these.  A job makes no commit faster, so when commits take
 * far less time than the base beside it, the base is less.
 *
 * Doubt.  When the rate has been halved and commits take as long as before,
 * it goes no further down but asks: a probe tells whether commits stay below
 * the threshold if those who are limited rest.  If they do not, and do not a
 * while later either, it is somebody else's doing: the base is what was found,
 * and the rate what it was before.  For the same reason a threshold below the
 * base counts as a fifth above it.
 *
 * Commits that do not end, as when a synchronous standby is gone, tell nothing:
 * meanwhile the rate stays.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/arith.h"
#include "engine/latency.h"

#define MS_US			INT64_C(1000)
#define SECOND_US		INT64_C(1000000)

/* More than can be, so that nothing overflows. */
#define COUNT_MAX		(INT64_C(1) << 40)
#define MEAN_MAX_NS		(1000000 * SECOND_US)

/* Windows. */
#define ENOUGH			16
#define WINDOW_US		(5 * SECOND_US)
#define BATCH			5
#define NOISE_FACTOR	40
#define EVIDENT_MIN		1500
#define EVIDENT_MAX		15000

/* Samples. */
#define IDLE_US			(2 * SECOND_US)
#define REST_MOST		INT64_C(128000) /* bytes/s: next to nothing, ... */
#define REST_PART		64		/* ... as is this part of what it was */
#define LOW_WINDOWS		5

/* Probes. */
#define SETTLE_US		(400 * MS_US)
#define PROBE_ENOUGH	100
#define PROBE_US		(1200 * MS_US)
#define CARRY_US		(60 * SECOND_US)	/* to the next one */
#define ASK_AGAIN_US	(3 * SECOND_US)
#define ASK_LATEST_US	(30 * SECOND_US)
#define PROBE_EVERY_US	(15 * SECOND_US)
#define PROBE_OFTEN_US	(5 * SECOND_US)
#define PROBE_LEAST_US	(4 * SECOND_US)
#define PROBE_PERCENT	3
#define BUDGET_US		(4 * SECOND_US)
#define RESERVE_US		(2 * SECOND_US) /* of it, for questions */
#define PEAK_US			(30 * SECOND_US)

/* Steps. */
#define START_US		SECOND_US
#define START_RATE		INT64_C(16000000)
#define HANG_US			SECOND_US
#define WAIT_US			(600 * MS_US)
#define SLOWLY_US		(5 * SECOND_US)
#define UNUSED_US		(30 * SECOND_US)

/*-------------------------------------------------------------------------
 * What is known of the commits
 *-------------------------------------------------------------------------
 */

static int64_t
mean_ns(int64_t sum, int64_t n)
{
	return clamp64(muldiv64(sum, 1000, max64(n, 1)), 1, MEAN_MAX_NS);
}

/* The root of 100 times a small number. */
static int64_t
root_of_100(int n)
{
	int64_t		root = 10;

	while ((root + 1) * (root + 1) <= 100 * n)
		root++;
	return root;
}

int64_t
dt_latency_base(const DtLatency *l)
{
	int64_t		sorted[DT_LATENCY_SAMPLES] = {0};
	int64_t		low;
	int64_t		off;
	int			i;
	int			j;

	if (l->n_samples == 0)
		return 0;
	for (i = 0; i < l->n_samples; i++)
	{
		for (j = i; j > 0 && sorted[j - 1] > l->sample[i]; j--)
			sorted[j] = sorted[j - 1];
		sorted[j] = l->sample[i];
	}
	low = sorted[(l->n_samples - 1) / 3];

	/* as if there had been two more that are off by a quarter */
	off = low / 2;
	for (i = 0; i < l->n_samples; i++)
		off += min64(max64(low - sorted[i], sorted[i] - low), 2 * low);
	off /= l->n_samples + 2;
	return low + 12 * off / root_of_100(l->n_samples);
}

int64_t
dt_latency_threshold(const DtLatency *l, int64_t threshold, int64_t share)
{
	int64_t		base = dt_latency_base(l);

	return share > 0 ?
		base + min64(muldiv64(base, share, 1000000), INT64_MAX / 2) :
		max64(threshold, base + base / 5);
}

static void
add_sample(DtLatency *l, int64_t mean)
{
	l->sample[l->next_sample] = mean;
	l->next_sample = (l->next_sample + 1) % DT_LATENCY_SAMPLES;
	if (l->n_samples < DT_LATENCY_SAMPLES)
		l->n_samples++;
	l->sampled_at = l->read_at;
	l->high = 0;
}

/* Forget the samples but this one. */
static void
set_sample(DtLatency *l, int64_t mean)
{
	l->n_samples = l->next_sample = 0;
	add_sample(l, mean);
}

/* A sample that was taken at rest. */
static void
take_sample(DtLatency *l, int64_t mean)
{
	int64_t		base = dt_latency_base(l);
	int64_t		high = l->high;
	bool		is_high = base > 0 && mean > base + base / 3;

	if (is_high && high > 0)
		set_sample(l, high);
	add_sample(l, mean);
	if (is_high && high == 0)
		l->high = mean;
}

static void
begin_probe(DtLatency *l, int64_t question)
{
	if (l->read_at - l->sampled_at > CARRY_US)
		l->probe_n = l->probe_sum = 0;
	l->probe_us = 1;
	l->probe_failed = false;
	l->probe_cost = l->used;
	l->question = question;
	l->sampled_at = l->read_at; /* when it will have failed, too */
}

/* It is over: forget its commits, and what was heard in between. */
static void
end_probe(DtLatency *l)
{
	l->probe_us = l->probe_n = l->probe_sum = l->probe_mean = 0;
	l->open_n = l->open_sum = 0;
	l->closed_at = l->read_at;
}

static void
answer(DtLatency *l, bool helps)
{
	l->answers++;
	l->helped = helps;
}

/*
 * Commits take that long while those who are limited rest.  That it does not
 * help counts when it is found twice: what was written before may still be on
 * its way to the disk.
 */
static void
learn_from_probe(DtLatency *l, int64_t mean)
{
	bool		denied = l->question > 0 && mean > l->question;
	int64_t		since = l->read_at - l->denied_at;

	end_probe(l);
	if (denied && l->denied_at != 0 && since <= ASK_LATEST_US)
	{
		l->denied_at = 0;
		answer(l, false);
		set_sample(l, mean);
		return;
	}
	l->denied_at = denied ? l->read_at : 0;
	if (l->question > 0 && !denied)
		answer(l, true);
	take_sample(l, mean);
}

/*
 * Nothing is known after it, since somebody did not rest, or too few have
 * committed.  Without an answer it goes on as if it helped.
 */
static void
give_up_probe(DtLatency *l)
{
	int64_t		n = l->probe_failed ? 0 : l->probe_n;
	int64_t		sum = l->probe_failed ? 0 : l->probe_sum;

	end_probe(l);
	l->probe_n = n;
	l->probe_sum = sum;
	if (l->question > 0)
		answer(l, true);
}

/*
 * Rest until commits, some of which still wait for what was written before, do
 * not take less and less time.
 */
static void
go_on_with_probe(DtLatency *l, const DtLatencyReading *r, int64_t n,
				 int64_t us)
{
	bool		is_long;
	int64_t		mean;

	l->probe_us += l->elapsed;
	l->budget -= max64(muldiv64(l->elapsed, l->probe_cost, l->peak),
					   l->elapsed / 4);
	if (l->probe_us <= SETTLE_US)
		return;
	if (r->used_now > max64(2 * r->rest, REST_MOST) &&
		r->used_now > l->probe_cost / 8)
		l->probe_failed = true;
	is_long = l->probe_us >= PROBE_US;
	l->probe_n += n;
	l->probe_sum += us;
	if (l->probe_failed || l->probe_n < (is_long ? ENOUGH : PROBE_ENOUGH))
	{
		if (l->probe_us >= (l->probe_failed ? 1 : 2) * PROBE_US)
			give_up_probe(l);
		return;
	}
	mean = mean_ns(l->probe_sum, l->probe_n);
	if (l->probe_mean > 0 && mean > l->probe_mean - l->probe_mean / 6)
		learn_from_probe(l, (mean + l->probe_mean) / 2);
	else if (is_long)
		learn_from_probe(l, mean);
	else
	{
		l->probe_mean = mean;
		l->probe_n = l->probe_sum = 0;
	}
}

static void
count_idle(DtLatency *l, int64_t n, int64_t us)
{
	if (!l->rests)
		l->idle_n = l->idle_sum = 0;
	else
	{
		l->idle_n += n;
		l->idle_sum += us;
		if (l->idle_n >= ENOUGH && l->read_at - l->sampled_at >= IDLE_US)
		{
			take_sample(l, mean_ns(l->idle_sum, l->idle_n));
			l->idle_n = l->idle_sum = 0;
		}
	}
}

static void
note_noise(DtLatency *l)
{
	int64_t		mean;

	l->batch_sum += l->mean;
	if (++l->batch_n < BATCH)
		return;
	mean = l->batch_sum / l->batch_n;
	if (l->batch_mean > 0)
	{
		int64_t		difference = muldiv64(max64(mean, l->batch_mean) -
										  min64(mean, l->batch_mean), 1000,
										  max64(mean, l->batch_mean));

		l->noise += (difference - l->noise) / 16;
	}
	l->batch_mean = mean;
	l->batch_n = l->batch_sum = 0;
}

/* So much evidence is needed. */
static int64_t
evident(const DtLatency *l)
{
	return clamp64(l->noise * l->noise * NOISE_FACTOR / 1000, EVIDENT_MIN,
				   EVIDENT_MAX);
}

static void
close_window(DtLatency *l)
{
	int64_t		base = dt_latency_base(l);

	l->n = l->open_n;
	l->is_new = true;
	l->closed_at = l->read_at;
	if (l->n > 0)
		l->mean = mean_ns(l->open_sum, l->open_n);
	if (l->n < ENOUGH)
		l->recent = 0;
	else
		l->recent = l->recent == 0 ? l->mean :
			l->recent + (min64(l->mean, 4 * l->recent) - l->recent) / 5;
	l->open_n = l->open_sum = 0;
	if (l->n >= ENOUGH)
		note_noise(l);
	if (base == 0 || l->n < ENOUGH)
		return;

	l->low_n = l->mean < base / 5 * 3 ? l->low_n + 1 : 0;
	l->low_sum = l->low_n > 0 ? l->low_sum + l->mean : 0;
	if (l->low_n >= LOW_WINDOWS)
	{
		set_sample(l, l->low_sum / l->low_n);
		l->sampled_at -= PROBE_EVERY_US;	/* it is less than that */
	}
}

/*
 * Is it time for a probe because samples are wanted?  While little is used, a
 * probe costs little.
 */
static bool
probe_is_due(const DtLatency *l)
{
	int64_t		every = l->n_samples < DT_LATENCY_SAMPLES / 2 ?
		PROBE_OFTEN_US : PROBE_EVERY_US;

	return l->n_samples == 0 ||
		(l->budget > RESERVE_US && l->read_at - l->sampled_at >=
		 max64(muldiv64(every, l->used, l->peak), PROBE_LEAST_US));
}

/* Is it time to ask, once more if it was denied that it helps? */
static bool
question_is_due(const DtLatency *l)
{
	return l->doubt > 0 &&
		(l->denied_at == 0 || l->read_at - l->denied_at >= ASK_AGAIN_US);
}

void
dt_latency_read(DtLatency *l, const DtLatencyReading *r)
{
	int64_t		n = min64(advanced(l->commits, r->commits), COUNT_MAX);
	int64_t		us = min64(advanced(l->sum, r->us), COUNT_MAX);
	bool		is_first = l->read_at == 0;

	l->elapsed = is_first ? 0 : min64(advanced(l->read_at, r->now), PEAK_US);
	l->commits = r->commits;
	l->sum = r->us;
	l->read_at = r->now;
	l->is_new = false;
	l->used = r->used;
	l->peak -= muldiv64(l->peak, l->elapsed, PEAK_US);
	l->peak = max64(max64(l->peak, r->used), 1);
	l->hung_n += n;
	if (l->hung_n >= r->waiting)
		l->hung_n = l->hung_us = 0;
	else
		l->hung_us += l->elapsed;
	l->rests = r->used <= max64(l->peak / REST_PART, REST_MOST);
	if (l->rests)
		l->rested_at = r->now;
	if (is_first)
	{
		l->closed_at = l->sampled_at = r->now;
		l->budget = BUDGET_US;
		return;
	}
	l->budget = min64(l->budget + l->elapsed * PROBE_PERCENT / 100, BUDGET_US);
	if (l->probe_us > 0)
		go_on_with_probe(l, r, n, us);
	else
	{
		l->open_n += n;
		l->open_sum += us;
		count_idle(l, n, us);
		if (l->open_n >= ENOUGH ||
			(l->hung_us == 0 && r->now - l->closed_at >= WINDOW_US))
			close_window(l);
		if (l->is_new && l->n >= ENOUGH && !l->rests && l->budget > 0)
		{
			if (question_is_due(l))
				begin_probe(l, l->doubt);
			else if (l->doubt == 0 && l->wanted && probe_is_due(l))
				begin_probe(l, 0);
		}
	}
	l->wanted = false;
	l->doubt = 0;
}

/*-------------------------------------------------------------------------
 * The law
 *-------------------------------------------------------------------------
 */

static void
forget_evidence(DtLaw *law, int64_t remains)
{
	law->evidence = remains;
	law->windows = law->sum = 0;
}

static void
weigh_window(DtLaw *law, const DtLatency *l, int64_t threshold)
{
	int64_t		over = muldiv64(l->mean - threshold, 1000,
								max64(l->mean, threshold));

	law->evidence = min64(law->evidence, evident(l)) + over;
	law->windows++;
	law->sum += l->mean;
	if (law->evidence <= 0)
	{
		forget_evidence(law, 0);
		law->first = 0;
	}
}

/* Commits take that long since there is evidence. */
static int64_t
evident_mean(const DtLaw *law)
{
	return law->sum / max64(law->windows, 1);
}

/* Does it take less than before those steps that are to help? */
static bool
has_helped(const DtLaw *law)
{
	return evident_mean(law) < law->before - law->before / 8;
}

static void
step_down(DtLaw *law, const DtLatency *l)
{
	int64_t		over = law->evidence / max64(law->windows, 1);

	if (law->rate == 0)
		law->unused_us = 0;
	if (law->rate == 0 || law->rate > l->used + l->used / 4)
		law->rate = max64(l->used, 1);
	law->knee = max64(law->rate, law->knee / 8 * 7);
	if (law->first == 0 || has_helped(law))
	{
		law->first = law->rate;
		law->before = evident_mean(law);
	}
	law->rate = max64(law->rate - muldiv64(law->rate, clamp64(over, 100, 500),
										   1000), 1);
	law->hold_us = WAIT_US;
	law->quiet_us = 0;
	forget_evidence(law, evident(l) / 2);
}

/* May it be that a little more is too much? */
static bool
is_near_knee(const DtLaw *law)
{
	return law->knee > 0 && law->rate >= law->knee / 4 * 3;
}

static void
step_up(DtLaw *law, int64_t used, int64_t dt)
{
	int64_t		percent = law->knee > 0 ? 50 : 100;

	dt = min64(dt, SECOND_US);	/* the sampler may have been late */
	law->quiet_us += dt;
	if (used < law->rate / 2)
	{
		law->unused_us += dt;
		if (law->unused_us >= UNUSED_US)
			law->rate = 0;
		return;
	}
	law->unused_us = 0;
	if (is_near_knee(law))
		percent = 4 + clamp64((law->quiet_us - SLOWLY_US) * 6 / SECOND_US,
							  0, 96);
	law->rate += muldiv64(law->rate, percent * dt, 100 * SECOND_US) + 1;
	law->rate = min64(law->rate, 8 * DT_RATE_MAX);
}

static void
hear_answer(DtLaw *law, const DtLatency *l)
{
	if (law->answers == l->answers)
		return;
	law->answers = l->answers;
	if (!l->helped)
	{
		law->rate = max64(law->rate, law->first);
		forget_evidence(law, 0);
	}
	law->first = 0;
}

int64_t
dt_law_latency(DtLaw *law, DtLatency *l, int64_t threshold,
			   int64_t share, bool obeyed)
{
	threshold = dt_latency_threshold(l, threshold, share);
	hear_answer(law, l);
	if (l->probe_us > 0)
	{
		law->hold_us = WAIT_US;
		law->evidence = min64(law->evidence, evident(l) / 2);
		return obeyed ? 1 : law->rate > 0 ? law->rate : DT_FREE;
	}
	if (obeyed && share > 0 && (law->rate > 0 || threshold == 0))
		l->wanted = true;

	law->hold_us = max64(law->hold_us - l->elapsed, 0);
	if (l->read_at - l->rested_at < START_US)
	{
		forget_evidence(law, 0);
		if (!l->rests && law->rate == 0 && l->n >= ENOUGH && threshold > 0 &&
			obeyed)
		{
			law->rate = max64(START_RATE, law->knee / 2);
			law->unused_us = law->first = 0;
		}
	}
	else if (l->is_new && l->n < ENOUGH)
		forget_evidence(law, 0);
	else if (l->is_new && threshold > 0 && law->hold_us == 0)
		weigh_window(law, l, threshold);

	if (law->hold_us > 0 || l->hung_us >= HANG_US)
		 /* what it did last does not show yet, or nobody knows */ ;
	else if (law->evidence < evident(l) / 3 && law->rate > 0 &&
			 (!is_near_knee(law) || l->recent <= threshold))
		step_up(law, l->used, l->elapsed);
	else if (law->evidence >= evident(l))
	{
		if (law->first == 0 || law->rate > law->first / 2 || has_helped(law))
			step_down(law, l);
		else if (obeyed)
			l->doubt = max64(l->doubt, threshold);
	}
	return law->rate > 0 ? law->rate : DT_FREE;
}
