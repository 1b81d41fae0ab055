/*
 * Cost of a charge: N processes that charge one account, or one each.
 *
 * The rate engine itself (src/engine/rate.c) in shared memory, with a spinlock
 * that waits as PostgreSQL's does: it spins some 100 times, then sleeps.  As in
 * a session, a charge reads the clock, takes the lock and calls the engine; the
 * pause it asks for is not made.  Between two charges a process works for a
 * given time, without the lock.
 *
 * Usage: charge PROCESSES GROUPS WORK_NS SECONDS
 * prints: charges of all processes; CPU time of all of them, in ns, work
 * included; then of a charge's duration by the clock, one reading of the clock
 * included, the median, the 99th percentile and the mean, in ns; and what one
 * reading of the clock takes.
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/rate.h"

#define MAX_PROCESSES	1024

/* Durations are counted in bins; the last one has all that are longer. */
#define BIN_NS			2
#define BINS			50000

typedef struct Group
{
	_Alignas(128) atomic_flag lock;
	DtRateGroup rate;
} Group;

typedef struct Process
{
	_Alignas(128) DtRateMember member;
	int64_t		charges;
	int64_t		cpu_ns;
	int64_t		total_ns;
	uint32_t	bins[BINS];
} Process;

typedef struct Shared
{
	atomic_int	ready;
	atomic_int	stop;
	Group		groups[MAX_PROCESSES];
	Process		processes[MAX_PROCESSES];
} Shared;

static int64_t
clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void
acquire(Group *g)
{
	struct timespec nap = {0, 1000000};
	int			spins = 0;

	while (atomic_flag_test_and_set_explicit(&g->lock, memory_order_acquire))
	{
#if defined(__x86_64__) || defined(__i386__)
		__builtin_ia32_pause();
#endif
		if (++spins >= 100)
		{
			nanosleep(&nap, NULL);
			spins = 0;
		}
	}
}

static void
release(Group *g)
{
	atomic_flag_clear_explicit(&g->lock, memory_order_release);
}

static volatile uint64_t sink;

static void
work(int64_t turns)
{
	uint64_t	x = sink;

	while (turns-- > 0)
		x = x * UINT64_C(6364136223846793005) + 1;
	sink = x;
}

static void
process(Shared *s, Process *p, Group *g, int64_t turns)
{
	int64_t		start;
	double		jitter = 0.5;

	atomic_fetch_add(&s->ready, 1);
	while (atomic_load(&s->stop) < 0)
		usleep(100);
	start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	while (atomic_load_explicit(&s->stop, memory_order_relaxed) == 0)
	{
		int64_t		now = clock_ns(CLOCK_MONOTONIC);
		int64_t		ns;

		acquire(g);
		dt_rate_charge(&g->rate, &p->member, 8192, now / 1000, jitter);
		dt_rate_batch(&g->rate, &p->member);
		release(g);
		ns = clock_ns(CLOCK_MONOTONIC) - now;
		p->charges++;
		p->total_ns += ns;
		p->bins[ns / BIN_NS < BINS ? ns / BIN_NS : BINS - 1]++;
		work(turns);
	}
	p->cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;
	_exit(0);
}

/* The duration that a part of all charges does not exceed. */
static int64_t
percentile(const Shared *s, int n, double part, int64_t charges)
{
	int64_t		seen = 0;
	int			bin;
	int			i;

	for (bin = 0; bin < BINS - 1; bin++)
	{
		for (i = 0; i < n; i++)
			seen += s->processes[i].bins[bin];
		if (seen >= part * charges)
			break;
	}
	return (int64_t) bin * BIN_NS;
}

int
main(int argc, char **argv)
{
	int			n = argc > 1 ? atoi(argv[1]) : 0;
	int			n_groups = argc > 2 ? atoi(argv[2]) : 0;
	double		work_ns = argc > 3 ? atof(argv[3]) : 0;
	double		seconds = argc > 4 ? atof(argv[4]) : 0;
	int64_t		now = clock_ns(CLOCK_MONOTONIC) / 1000;
	int64_t		charges = 0;
	int64_t		cpu_ns = 0;
	int64_t		total_ns = 0;
	int64_t		start;
	int64_t		turns;
	double		clock_cost;
	double		turn_ns;
	Shared	   *s;
	int			i;

	if (n < 1 || n > MAX_PROCESSES || n_groups < 1 || n_groups > n)
	{
		fprintf(stderr, "usage: charge PROCESSES GROUPS WORK_NS SECONDS\n");
		return 2;
	}
	s = mmap(NULL, sizeof(Shared), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED)
		return 1;

	start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	work(20000000);
	turn_ns = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 2e7;
	turns = (int64_t) (work_ns / turn_ns);
	start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	for (i = 0; i < 1000000; i++)
		sink += clock_ns(CLOCK_MONOTONIC);
	clock_cost = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start) / 1e6;

	for (i = 0; i < n_groups; i++)
	{
		atomic_flag_clear(&s->groups[i].lock);
		dt_rate_init(&s->groups[i].rate, DT_RATE_MAX / n_groups, 8192, now);
	}
	atomic_store(&s->stop, -1);
	for (i = 0; i < n; i++)
		dt_rate_join(&s->groups[i % n_groups].rate, &s->processes[i].member, now);
	for (i = 0; i < n; i++)
	{
		pid_t		pid = fork();

		if (pid < 0)
		{
			atomic_store(&s->stop, 1);
			return 1;
		}
		if (pid == 0)
			process(s, &s->processes[i], &s->groups[i % n_groups], turns);
	}
	while (atomic_load(&s->ready) < n)
		usleep(1000);
	atomic_store(&s->stop, 0);
	usleep((useconds_t) (seconds * 1e6));
	atomic_store(&s->stop, 1);
	while (wait(NULL) > 0)
		;
	for (i = 0; i < n; i++)
	{
		charges += s->processes[i].charges;
		cpu_ns += s->processes[i].cpu_ns;
		total_ns += s->processes[i].total_ns;
	}
	if (charges == 0)
		return 1;
	printf("%lld %lld %lld %lld %.1f %.1f\n", (long long) charges,
		   (long long) cpu_ns, (long long) percentile(s, n, 0.5, charges),
		   (long long) percentile(s, n, 0.99, charges),
		   (double) total_ns / charges, clock_cost);
	return 0;
}
