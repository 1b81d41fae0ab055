/*-------------------------------------------------------------------------
 *
 * latency.c
 *		What is known of how long commits of others take.
 *
 * What one reads is mostly weather: the mean of a fifth of a second varies by
 * a third while nothing changes, and by more in a gust.  So commits are looked
 * at in windows of at least DT_LATENCY_ENOUGH; when there are fewer within
 * WINDOW_US, there is nobody to protect.
 *
 * The base is how long a commit takes without those who are limited.  A third
 * of the last samples are less: a single one is noisy, and some are too high, as
 * the disk has not worked off yet what was written before.  What the samples
 * differ by is added, in proportion to how little so many can be relied on: only
 * what exceeds that is noticed.
 *
 * Samples come from windows in which those who are limited use next to nothing,
 * and from probes: they rest, until commits no longer take less and less time.
 * If somebody does not rest, as a transaction for which others wait must not,
 * nothing is learned.  Probes cost PROBE_PERCENT of what those who are limited
 * achieve at best.  Two samples in a row far above the others replace these.  A
 * job makes no commit faster, so when commits take far less time than the base
 * beside it, the base is less.
 *
 * Commits that do not end, as when a synchronous standby is gone, tell nothing:
 * the window stays open, and hung_us tells the law.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/latency.h"

#include "engine/arith.h"

#define MS_US			INT64_C(1000)
#define SECOND_US		INT64_C(1000000)

/* More than can be, so that nothing overflows. */
#define COUNT_MAX		(INT64_C(1) << 40)
#define MEAN_MAX_NS		(1000000 * SECOND_US)

/*
 * In latency_sim half or twice of each of these fails, or both, but of SESSION_PART
 * and FEW_SESSIONS, which are about sessions that it has not, REST_MOST, REST_PART,
 * CARRY_US and GAP_US.
 */

/* Windows. */
#define SESSION_PART	8		/* one session counts for this part at most */
#define FEW_SESSIONS	3		/* so many, and the slowest can be left out */
#define WINDOW_US		(5 * SECOND_US) /* the longest one */
#define RECENT			5		/* what is shown is a mean of about so many */
#define BATCH			5		/* so many windows resemble each other */
#define NOISE_PART		16		/* noise is a mean of about so many batches */
#define GAP_US			(3 * SECOND_US) /* between two readings: nobody looked */

/* Samples. */
#define IDLE_US			(2 * SECOND_US) /* a window at rest lasts so long, as
										 * the disk still works off */
#define REST_MOST		INT64_C(128000) /* bytes/s: two default floors, ... */
#define REST_PART		64		/* ... or this part of what it was, is rest */
#define LOW_WINDOWS		5		/* that many are no accident */

/* Probes. */
#define SETTLE_US		(400 * MS_US)	/* until all rest */
#define PROBE_ENOUGH	100		/* commits, for a mean within a tenth; ... */
#define PROBE_US		(1200 * MS_US)	/* ... after that fewer have to do */
#define CARRY_US		(60 * SECOND_US)	/* they count in the next one */
#define PROBE_EVERY_US	(15 * SECOND_US)	/* at full use */
#define PROBE_OFTEN_US	(5 * SECOND_US) /* until half of the samples are there */
#define PROBE_LEAST_US	(4 * SECOND_US) /* at least, when little is used */
#define PROBE_PERCENT	3		/* of what is achieved is what they may cost */
#define BUDGET_US		(4 * SECOND_US) /* saved up for two or three, ... */
#define RESERVE_US		(2 * SECOND_US) /* ... one of which is for answers */
#define PEAK_US			(30 * SECOND_US)	/* in which the best is forgotten */

static const DtCommits none = {0, 0};

static int64_t
mean_ns(DtCommits c)
{
	return clamp64(muldiv64(c.us, 1000, max64(c.n, 1)), 1, MEAN_MAX_NS);
}

/*
 * The commits of n sessions together.  When there are a few, neither the slowest nor
 * the fastest counts at all: so no single session can make them look slow, or fast.
 * Of each of the others, where these are eight, at most so many count as are an
 * eighth with those of the rest; where they are fewer, an eighth of all.
 */
DtCommits
dt_latency_commits(const DtCommits *sessions, int n)
{
	DtCommits	all = {0, 0};
	int			slowest = -1;
	int			fastest = -1;
	int			count = 0;
	double		counted = 0;
	double		weights = 0;
	double		sum = 0;

	for (int i = 0; i < n; i++)
	{
		if (sessions[i].n <= 0)
			continue;
		count++;
		all.n += min64(sessions[i].n, COUNT_MAX);
		if (slowest < 0 || mean_ns(sessions[i]) > mean_ns(sessions[slowest]))
			slowest = i;
		if (fastest < 0 || mean_ns(sessions[i]) <= mean_ns(sessions[fastest]))
			fastest = i;
	}
	if (count < FEW_SESSIONS)
		slowest = fastest = -1;
	else
		count -= 2;
	for (int i = 0; i < n; i++)
		if (sessions[i].n > 0 && i != slowest && i != fastest)
			counted += (double) min64(sessions[i].n, COUNT_MAX);
	for (int i = 0; i < n; i++)
	{
		double		weight = (double) min64(sessions[i].n, COUNT_MAX);
		double		most = count < SESSION_PART ? (double) all.n / SESSION_PART :
			(counted - weight) / (SESSION_PART - 1);

		if (sessions[i].n <= 0 || i == slowest || i == fastest)
			continue;
		if (weight > most && most >= 1)
			weight = most;
		weights += weight;
		sum += weight * (double) mean_ns(sessions[i]);
	}
	if (weights > 0)
		all.us = (int64_t) (sum / weights * (double) all.n / 1000);
	return all;
}

/* ------------------------------------------------------------------- base */

/* The root of 100 times a small number. */
static int64_t
root_of_100(int n)
{
	int64_t		root = 10;

	while ((root + 1) * (root + 1) <= 100 * n)
		root++;
	return root;
}

/* How long a commit takes without those who are limited, ns; 0: not known. */
int64_t
dt_latency_base(const DtLatency *l)
{
	int64_t		sorted[DT_LATENCY_SAMPLES] = {0};
	int64_t		low;
	int64_t		off;

	if (l->n_samples == 0)
		return 0;
	for (int i = 0; i < l->n_samples; i++)
	{
		int			j;

		for (j = i; j > 0 && sorted[j - 1] > l->sample[i]; j--)
			sorted[j] = sorted[j - 1];
		sorted[j] = l->sample[i];
	}
	low = sorted[(l->n_samples - 1) / 3];

	/* as if there had been two more that are off by a quarter */
	off = low / 2;
	for (int i = 0; i < l->n_samples; i++)
		off += min64(max64(low - sorted[i], sorted[i] - low), 2 * low);
	off /= l->n_samples + 2;
	return low + 12 * off / root_of_100(l->n_samples);
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
	l->carried = none;
}

/* The base is this, ns: forget the samples. */
void
dt_latency_believe(DtLatency *l, int64_t mean)
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
		dt_latency_believe(l, high);
	add_sample(l, mean);
	if (is_high && high == 0)
		l->high = mean;
}

/* Beside those who are limited a window took so long: that may tell, too. */
static void
learn_from_window(DtLatency *l)
{
	int64_t		base = dt_latency_base(l);

	if (l->all_rest)
		take_sample(l, l->mean);
	l->low_n = l->mean < base / 5 * 3 ? l->low_n + 1 : 0;
	l->low_sum = l->low_n > 0 ? l->low_sum + l->mean : 0;
	if (l->low_n >= LOW_WINDOWS)
	{
		dt_latency_believe(l, l->low_sum / l->low_n);
		l->sampled_at -= PROBE_EVERY_US;	/* it is less than that */
	}
}

/* ---------------------------------------------------------------- windows */

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

		l->noise += (difference - l->noise) / NOISE_PART;
	}
	l->batch_mean = mean;
	l->batch_n = l->batch_sum = 0;
}

/* Open a window. */
static void
open_window(DtLatency *l)
{
	l->opened_at = l->read_at;
	l->counted = 0;
	l->all_rest = true;
}

static void
close_window(DtLatency *l, DtCommits commits)
{
	l->n = commits.n;
	l->is_new = true;
	if (l->n < DT_LATENCY_ENOUGH)
		l->recent = 0;
	else
	{
		l->mean = mean_ns(commits);
		l->recent = l->recent == 0 ? l->mean :
			l->recent + (min64(l->mean, 4 * l->recent) - l->recent) / RECENT;
		note_noise(l);
		learn_from_window(l);
	}
	open_window(l);
}

/* ----------------------------------------------------------------- probes */

/*
 * Is it time for a probe because samples are wanted?  While little is used, a
 * probe costs little.
 */
static bool
sample_is_due(const DtLatency *l)
{
	int64_t		every = l->n_samples < DT_LATENCY_SAMPLES / 2 ?
		PROBE_OFTEN_US : PROBE_EVERY_US;

	return l->n_samples == 0 ||
		(l->budget > RESERVE_US && l->read_at - l->sampled_at >=
		 max64(muldiv64(every, l->used, l->peak), PROBE_LEAST_US));
}

static void
begin_probe(DtLatency *l)
{
	if (l->read_at - l->sampled_at > CARRY_US)
		l->carried = none;
	l->probe_us = 1;
	l->probe_failed = false;
	l->probe_cost = l->used;
	l->sampled_at = l->read_at; /* when it will have failed, too */
}

/* It is over, and has found that mean, ns, or nothing. */
static void
end_probe(DtLatency *l, int64_t found, DtCommits carried)
{
	l->probe_us = l->probe_mean = 0;
	l->carried = carried;
	l->probes++;
	l->found = found;
	if (found > 0)
		take_sample(l, found);
	open_window(l);
}

static DtCommits
add_commits(DtCommits a, DtCommits b)
{
	DtCommits	sum = {
		.n = min64(a.n, COUNT_MAX) + clamp64(b.n, 0, COUNT_MAX),
		.us = min64(a.us, COUNT_MAX) + clamp64(b.us, 0, COUNT_MAX)
	};

	return sum;
}

/* Returns whether a new window begins. */
static bool
go_on_with_probe(DtLatency *l, const DtLatencyReading *r)
{
	DtCommits	commits = add_commits(l->carried, r->commits);
	bool		is_long;
	int64_t		mean;

	l->probe_us += l->elapsed;
	l->budget -= max64(muldiv64(l->elapsed, l->probe_cost, l->peak),
					   l->elapsed / 4);
	if (l->probe_us <= SETTLE_US)
	{
		open_window(l);
		return true;
	}
	if (r->used_now > max64(2 * r->rest, REST_MOST) &&
		r->used_now > l->probe_cost / 8)
		l->probe_failed = true;
	is_long = l->probe_us >= PROBE_US;
	if (l->probe_failed ||
		commits.n < (is_long ? DT_LATENCY_ENOUGH : PROBE_ENOUGH))
	{
		if (l->probe_us < (l->probe_failed ? 1 : 2) * PROBE_US)
			return false;
		end_probe(l, 0, l->probe_failed ? none : commits);
		return true;
	}
	mean = mean_ns(commits);
	if (l->probe_mean > 0 && mean > l->probe_mean - l->probe_mean / 6)
		end_probe(l, (mean + l->probe_mean) / 2, none);
	else if (is_long)
		end_probe(l, mean, none);
	else
	{
		l->probe_mean = mean;
		l->carried = none;
		open_window(l);
	}
	return true;
}

/* Begin a probe if the laws have asked for one, and it may cost something. */
static void
ask(DtLatency *l)
{
	if (!l->is_new || l->n < DT_LATENCY_ENOUGH || l->rests || l->budget <= 0)
		return;
	if (l->wants_answer || (l->wants_sample && sample_is_due(l)))
		begin_probe(l);
}

/* --------------------------------------------------------------- readings */

/* Those who are limited, and commits that hang. */
static void
note_use(DtLatency *l, const DtLatencyReading *r)
{
	int64_t		n = advanced(l->counted, r->commits.n);

	l->counted = r->commits.n;
	l->used = r->used;
	l->peak -= muldiv64(l->peak, l->elapsed, PEAK_US);
	l->peak = max64(max64(l->peak, r->used), 1);
	l->rests = r->used <= max64(l->peak / REST_PART, REST_MOST);
	l->all_rest &= l->rests;
	if (l->rests)
		l->rested_at = r->now;
	l->hung_n += min64(n, COUNT_MAX);
	if (l->hung_n >= r->waiting)
		l->hung_n = l->hung_us = 0;
	else
		l->hung_us += l->elapsed;
}

/*
 * Nobody has followed, or looked, for a while: what was under way then, a window or
 * a probe, was not watched, and what a probe has cost is not known.  Only the samples
 * stay, which others correct.
 */
static void
begin_anew(DtLatency *l)
{
	l->probe_us = l->probe_mean = 0;
	l->carried = none;
	l->n = l->mean = l->recent = 0;
	l->batch_n = l->batch_sum = l->batch_mean = 0;
	l->low_n = l->low_sum = 0;
	open_window(l);
}

/*
 * Take a reading.  Returns whether a new window begins: the commits of the next
 * reading are those from now on.
 */
bool
dt_latency_read(DtLatency *l, const DtLatencyReading *r)
{
	bool		is_first = l->read_at == 0;
	bool		begins;

	l->elapsed = is_first ? 0 : min64(advanced(l->read_at, r->now), PEAK_US);
	l->read_at = r->now;
	l->is_new = false;
	note_use(l, r);
	l->budget = min64(l->budget + l->elapsed * PROBE_PERCENT / 100, BUDGET_US);
	if (is_first)
	{
		l->sampled_at = r->now;
		l->budget = BUDGET_US;
	}
	if (is_first || l->elapsed > GAP_US)
	{
		begin_anew(l);
		begins = true;
	}
	else if (l->probe_us > 0)
		begins = go_on_with_probe(l, r);
	else
	{
		int64_t		age = r->now - l->opened_at;

		begins = r->commits.n >= DT_LATENCY_ENOUGH ?
			!l->all_rest || age >= IDLE_US :
			l->hung_us == 0 && age >= WINDOW_US;
		if (begins)
			close_window(l, r->commits);
		ask(l);
	}
	l->wants_sample = l->wants_answer = false;
	return begins;
}
