/*-------------------------------------------------------------------------
 *
 * timers.c
 *		Timers that cannot be created, and another thread for their signals;
 *		for test/t/062_timers.pl, which compiles it and starts a server with it
 *		in LD_PRELOAD.
 *
 * While the file that $DT_FAIL_TIMER names is there, each second timer_create()
 * of a process fails.
 *
 *	signals_beside(ms)	works for so long, with all signals blocked, beside a
 *						thread that has none blocked: how many SIGWINCH have come
 *						to that thread; or -1, if none have come to anybody
 *	work_at_commits(us)	from now on each commit of this process takes so long
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "access/xact.h"
#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(signals_beside);
PG_FUNCTION_INFO_V1(work_at_commits);

static struct sigaction replaced;
static volatile sig_atomic_t seen_here,
			seen_there;
static volatile bool done;

int
timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
	static int	(*real) (clockid_t, struct sigevent *, timer_t *) = NULL;
	static int	calls;
	const char *path = getenv("DT_FAIL_TIMER");

	if (real == NULL)
		real = (int (*) (clockid_t, struct sigevent *, timer_t *))
			dlsym(RTLD_NEXT, "timer_create");
	if (++calls % 2 == 0 && path != NULL && access(path, F_OK) == 0)
	{
		errno = EAGAIN;
		return -1;
	}
	return real(clock, event, timer);
}

static void
count(int signo, siginfo_t *info, void *context)
{
	if (syscall(SYS_gettid) == getpid())
		seen_here++;
	else
		seen_there++;
	if (replaced.sa_flags & SA_SIGINFO)
		replaced.sa_sigaction(signo, info, context);
}

static void *
wait_for_signals(void *arg)
{
	sigset_t	none;

	sigemptyset(&none);
	pthread_sigmask(SIG_SETMASK, &none, NULL);
	while (!done)
		usleep(1000);
	return NULL;
}

static int64
cpu_time_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return now.tv_sec * INT64CONST(1000000) + now.tv_nsec / 1000;
}

static void
work(int64 us)
{
	int64		end = cpu_time_us() + us;

	while (cpu_time_us() < end)
		;
}

Datum
signals_beside(PG_FUNCTION_ARGS)
{
	struct sigaction action = {.sa_sigaction = count,.sa_flags = SA_SIGINFO | SA_RESTART};
	pthread_t	thread;
	sigset_t	all,
				mask;

	sigfillset(&all);
	sigfillset(&action.sa_mask);
	sigaction(SIGWINCH, &action, &replaced);
	sigprocmask(SIG_SETMASK, &all, &mask);
	pthread_create(&thread, NULL, wait_for_signals, NULL);
	work(PG_GETARG_INT32(0) * INT64CONST(1000));
	sigprocmask(SIG_SETMASK, &mask, NULL);
	sigaction(SIGWINCH, &replaced, NULL);
	done = true;
	pthread_join(thread, NULL);
	PG_RETURN_INT32(seen_here + seen_there > 0 ? seen_there : -1);
}

/* The core is in no transaction already when it calls that. */
static void
work_at_commit(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT)
		work((int64) (intptr_t) arg);
}

Datum
work_at_commits(PG_FUNCTION_ARGS)
{
	RegisterXactCallback(work_at_commit, (void *) (intptr_t) PG_GETARG_INT32(0));
	PG_RETURN_VOID();
}
