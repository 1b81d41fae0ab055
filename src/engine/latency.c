/*-------------------------------------------------------------------------
 *
 * latency.c
 *		What is known of how long commits of others take.
 *
 * What is looked at is p90, the time that nine of ten commits take at most.  The
 * tail is what users feel, and it says more about a job in the same time than the
 * mean, which a single stall moves for seconds, or the median, which hardly changes.
 * A window has WINDOW_ENOUGH commits, or as many as there are in WINDOW_US; when these
 * are fewer than DT_LATENCY_ENOUGH, there is nobody to protect.
 *
 * The base is p90 without those who are limited: the mean of the middle half of the last
 * samples, as single ones are noise.  They come from windows in which those who are
 * limited use next to nothing, and from probes: all rest for a moment.  If a session does
 * not rest, as a transaction for which others wait must not, nothing is learned.  Probes cost
 * PROBE_PERCENT of what those who are limited achieve at best.  Two samples in a row
 * that are off by a third to the same side replace the others.  A job makes no commit
 * faster, so several windows in a row that are far below the base are samples, too.
 *
 * What a change of the rates does is seen after a while, so around a probe commits do
 * not count for SETTLE_US.  Commits that do not end, as when a synchronous standby is
 * gone, mean nothing: the window stays open.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/latency.h"

#include "engine/arith.h"

#define MS_US			INT64_C(1000)
#define SECOND_US		INT64_C(1000000)

/* More than can be, so that nothing overflows. */
#define COUNT_MAX		(INT64_C(1) << 40)

/* Sessions. */
#define SESSION_PART	8		/* one counts for this part at most */
#define FEW_SESSIONS	3		/* so many, and the slowest can be left out */

/* Windows. */
#define WINDOW_ENOUGH	200		/* commits, twenty of which are the tail */
#define WINDOW_US		(5 * SECOND_US) /* the longest one */
#define IDLE_US			(2 * SECOND_US) /* one at rest lasts so long, as the
										 * disk still works off */
#define GAP_US			(3 * SECOND_US) /* between two readings: nobody looked */

/* Rest. */
#define REST_MOST		INT64_C(128000) /* bytes/s: two default floors, ... */
#define REST_PART		64		/* ... or this part of what it was, is rest */

/* Samples. */
#define OFF_ENOUGH		2		/* that many that are off are no accident, ... */
#define LOW_ENOUGH		5		/* ... nor so many windows that are low: 2 and
								 * 10 fail in latency_sim */

/* Probes. */
#define SETTLE_US		(600 * MS_US)	/* until all rest, or work again */
#define PROBE_US		(400 * MS_US)	/* it measures for so long, or, with
										 * few commits, ... */
#define PROBE_MOST_US	(1800 * MS_US)	/* ... for up to so long, until there
										 * are enough for a window */
#define PROBE_EVERY_US	(15 * SECOND_US)	/* at full use */
#define PROBE_LEAST_US	(3 * SECOND_US) /* when little is used, after one that
										 * is off, or there are fewer samples
										 * than */
#define PROBE_FEW		3
#define PROBE_PERCENT	3		/* of what is achieved is what they may cost */
#define BUDGET_US		(4 * SECOND_US) /* saved up for a few */
#define PEAK_US			(30 * SECOND_US)	/* in which the best is forgotten */

/* --------------------------------------------------------------- sessions */

static int64_t
count_of(const DtSessionCommits *s)
{
	int64_t		n = 0;

	for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		n += s->n[b];
	return n;
}

/* How slow a session's n commits are, on a scale of logarithms. */
static double
slowness(const DtSessionCommits *s, int64_t n)
{
	int64_t		sum = 0;

	for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		sum += s->n[b] * b;
	return (double) sum / (double) n;
}

/*
 * The commits of n sessions together.  When there are a few, neither the slowest nor
 * the fastest counts at all: so no single session can make them look slow, or fast.
 * Of each of the others, where these are eight, at most so many count as are an
 * eighth with those of the rest; where they are fewer, an eighth of all.
 */
DtCommits
dt_latency_commits(const DtSessionCommits *sessions, int n)
{
	DtCommits	all = {0};
	int			slowest = -1;
	int			fastest = -1;
	double		highest = 0;
	double		lowest = 0;
	int			count = 0;
	int64_t		left_out;

	for (int i = 0; i < n; i++)
	{
		int64_t		commits = count_of(&sessions[i]);
		double		how_slow;

		if (commits == 0)
			continue;
		how_slow = slowness(&sessions[i], commits);
		count++;
		all.n += commits;
		if (slowest < 0 || how_slow > highest)
		{
			slowest = i;
			highest = how_slow;
		}
		if (fastest < 0 || how_slow <= lowest)
		{
			fastest = i;
			lowest = how_slow;
		}
	}
	if (count < FEW_SESSIONS)
		slowest = fastest = -1;
	else
		count -= 2;
	left_out = slowest < 0 ? 0 :
		count_of(&sessions[slowest]) + count_of(&sessions[fastest]);
	for (int i = 0; i < n; i++)
	{
		int64_t		commits = count_of(&sessions[i]);
		int64_t		most = count < SESSION_PART ? all.n / SESSION_PART :
			(all.n - left_out - commits) / (SESSION_PART - 1);
		int64_t		weight = commits > most && most >= 1 ? most : commits;

		if (commits == 0 || i == slowest || i == fastest)
			continue;
		weight = 1000000 * weight / commits;
		for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
			all.weight[b] += sessions[i].n[b] * weight / 1000;
	}
	return all;
}

/* The time at which a bucket begins, us. */
static int64_t
begin_of(int bucket)
{
	int64_t		octave = INT64_C(1) << DT_LATENCY_BITS;

	return (octave + bucket % octave) <<
		((bucket >> DT_LATENCY_BITS) + DT_LATENCY_FIRST - DT_LATENCY_BITS);
}

/* How long nine of ten commits take at most, us: as if a bucket were even. */
int64_t
dt_latency_p90(const DtCommits *commits)
{
	int64_t		all = 0;
	int64_t		above = 0;

	for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		all += commits->weight[b];
	for (int b = DT_LATENCY_BUCKETS - 1; b >= 0; b--)
	{
		int64_t		begin = b == 0 ? 0 : begin_of(b);

		above += commits->weight[b];
		if (above > all / 10)
			return max64(begin + muldiv64(begin_of(b + 1) - begin,
										  above - all / 10, commits->weight[b]),
						 1);
	}
	return 1;
}

static void
add_commits(DtCommits *sum, const DtCommits *c)
{
	sum->n = min64(sum->n + c->n, COUNT_MAX);
	for (int b = 0; b < DT_LATENCY_BUCKETS; b++)
		sum->weight[b] = min64(sum->weight[b] + c->weight[b], COUNT_MAX);
}

/* ------------------------------------------------------------------- base */

/* How long nine of ten commits take without those who are limited, us; 0: not known. */
int64_t
dt_latency_base(const DtLatency *l)
{
	int64_t		sorted[DT_LATENCY_SAMPLES];
	int			left_out = (l->n_samples + 1) / 4;
	int64_t		sum = 0;

	for (int i = 0; i < l->n_samples; i++)
	{
		int64_t		sample = l->sample[(l->next_sample + DT_LATENCY_SAMPLES - 1 - i) %
									   DT_LATENCY_SAMPLES];
		int			j;

		for (j = i; j > 0 && sorted[j - 1] > sample; j--)
			sorted[j] = sorted[j - 1];
		sorted[j] = sample;
	}
	for (int i = left_out; i < l->n_samples - left_out; i++)
		sum += sorted[i];
	return sum / max64(l->n_samples - 2 * left_out, 1);
}

/* A sample that was taken at rest. */
static void
take_sample(DtLatency *l, int64_t p90)
{
	int64_t		base = dt_latency_base(l);

	if (base > 0 && p90 > base + base / 3)
		l->n_off = l->n_off > 0 ? l->n_off + 1 : 1;
	else if (p90 < base - base / 4)
		l->n_off = l->n_off < 0 ? l->n_off - 1 : -1;
	else
		l->n_off = 0;
	l->sampled_at = l->read_at;
	l->sample[l->next_sample] = p90;
	l->next_sample = (l->next_sample + 1) % DT_LATENCY_SAMPLES;
	l->n_samples = l->n_off >= OFF_ENOUGH || l->n_off <= -OFF_ENOUGH ? OFF_ENOUGH :
		min64(l->n_samples + 1, DT_LATENCY_SAMPLES);
}

/* ---------------------------------------------------------------- windows */

/* Open a window, this much later. */
static void
open_window(DtLatency *l, int64_t later)
{
	l->opened_at = l->read_at;
	l->settle_us = later;
	l->counted = 0;
	l->all_rest = true;
}

static void
close_window(DtLatency *l, const DtCommits *commits)
{
	l->n = commits->n;
	l->window_us = l->read_at - l->opened_at;
	l->is_new = true;
	l->p90 = l->n < DT_LATENCY_ENOUGH ? 0 : dt_latency_p90(commits);
	l->n_low = l->p90 > 0 && l->p90 < dt_latency_base(l) / 3 * 2 ? l->n_low + 1 : 0;
	if (l->p90 > 0 && (l->all_rest || l->n_low >= LOW_ENOUGH))
		take_sample(l, l->p90);
	open_window(l, 0);
}

/* ----------------------------------------------------------------- probes */

/*
 * Begin a probe if it is time for one.  While little is used it costs little.  When
 * the last one was off, or there are few samples, the next one comes soon, and may cost
 * more.
 */
static void
begin_probe(DtLatency *l)
{
	bool		is_urgent = l->n_off == 1 || l->n_off == -1 ||
		l->n_samples < PROBE_FEW;
	int64_t		every = is_urgent ? 0 :
		muldiv64(PROBE_EVERY_US, l->used, l->peak);

	if (!l->is_new || l->p90 == 0 || l->rests || !l->wants_sample ||
		l->budget <= (is_urgent ? -BUDGET_US : 0) ||
		(l->n_samples > 0 &&
		 l->read_at - l->sampled_at < max64(every, PROBE_LEAST_US)))
		return;
	l->probe_us = 1;
	l->probe_cost = l->used;
	l->sampled_at = l->read_at; /* when it will have failed, too */
	open_window(l, SETTLE_US);
}

/* Returns whether a new window begins. */
static bool
go_on_with_probe(DtLatency *l, const DtLatencyReading *r)
{
	bool		failed = r->used_now > max64(2 * r->rest, REST_MOST) &&
		r->used_now > l->probe_cost / 8;
	int64_t		age = r->now - l->opened_at;

	if (!failed &&
		(age < PROBE_US || (age < PROBE_MOST_US &&
							l->rested.n + r->commits.n < WINDOW_ENOUGH)))
		return false;
	if (!failed)
		add_commits(&l->rested, &r->commits);
	if (l->rested.n >= DT_LATENCY_ENOUGH)
	{
		take_sample(l, dt_latency_p90(&l->rested));
		l->rested = (DtCommits)
		{
			0
		};
	}
	l->probe_us = 0;
	open_window(l, SETTLE_US);
	return true;
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
	l->hung_n += min64(n, COUNT_MAX);
	l->hangs = l->hung_n < r->waiting;
	if (!l->hangs)
		l->hung_n = 0;
	l->budget = min64(l->budget + l->elapsed * PROBE_PERCENT / 100, BUDGET_US);
	if (l->probe_us > 0 && l->elapsed <= GAP_US)
	{
		l->probe_us += l->elapsed;
		l->budget -= max64(muldiv64(l->elapsed, l->probe_cost, l->peak),
						   l->elapsed / 4);
	}
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
	if (is_first)
		l->budget = BUDGET_US;
	if (is_first || l->elapsed > GAP_US)
	{
		/*
		 * Nobody has followed, or looked, for a while: what was under way
		 * then was not watched.  Only the samples stay, which others correct.
		 */
		l->probe_us = l->n = l->p90 = 0;
		l->rested = (DtCommits)
		{
			0
		};
		open_window(l, 0);
		begins = true;
	}
	else if (l->settle_us > 0)
	{
		open_window(l, l->settle_us - l->elapsed);
		begins = true;
	}
	else if (l->probe_us > 0)
		begins = go_on_with_probe(l, r);
	else
	{
		int64_t		age = r->now - l->opened_at;

		begins = r->commits.n >= WINDOW_ENOUGH ?
			!l->all_rest || age >= IDLE_US : !l->hangs && age >= WINDOW_US;
		if (begins)
			close_window(l, &r->commits);
		begin_probe(l);
	}
	l->wants_sample = false;
	return begins || (l->probe_us > 0 && l->is_new);
}

/* -------------------------------------------------------------------- law */

/*
 * How long nine of ten commits may take, us: so long, or, unless that is 0, so many
 * millionths longer than without those who are limited; 0: not known yet.  A time that
 * they take anyway counts as a fifth above the base.
 */
int64_t
dt_latency_allowed(const DtLatency *l, int64_t us, int64_t share)
{
	int64_t		base = dt_latency_base(l);

	return share > 0 ? base + min64(muldiv64(base, share, 1000000), INT64_MAX / 2) :
		max64(us, base + base / 5);
}

/*
 * After a reading: how fast may all those go together whom it limits?  0: nobody else
 * commits.  In a probe next to nothing, if what it says is done ("obeyed").  The base is
 * worth a probe where the threshold follows from it, or somebody has been slowed down.
 */
int64_t
dt_latency_law(DtDroop *d, DtLatency *l, int64_t us, int64_t share, bool obeyed)
{
	int64_t		allowed = dt_latency_allowed(l, us, share);

	if (l->p90 == 0)
		d->rate = 0;
	else
		dt_law_droop(d, l->p90, l->is_new ? allowed : 0, l->used, l->window_us);
	if (obeyed && (share > 0 || allowed > us || d->found > 0))
		l->wants_sample = true;
	return l->probe_us > 0 && obeyed ? 1 : d->rate;
}
