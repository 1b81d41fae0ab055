/*-------------------------------------------------------------------------
 *
 * unmask.c
 *		Time between the decision to unblock signals and the system call; for
 *		test/t/032_worker_termination.pl, which compiles it and starts a server
 *		with it in LD_PRELOAD.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define DELAYS 20				/* then there are no more */

extern int	fault_delay_unmask_ms;
int			fault_delay_unmask_ms = 0;	/* set by worker.c; 0 = no delay */

int
sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	static int	(*real) (int, const sigset_t *, sigset_t *);
	static int	delays = DELAYS;
	struct timespec left = {0, fault_delay_unmask_ms * 1000000L};

	if (!real)
		*(void **) &real = dlsym(RTLD_NEXT, "sigprocmask");
	if (left.tv_nsec > 0 && set && how != SIG_BLOCK &&
		sigismember(set, SIGTERM) == (how == SIG_UNBLOCK) && delays-- > 0)
	{
		(void) !write(STDERR_FILENO, "fault: delayed\n", 15);
		while (nanosleep(&left, &left) != 0)
			;
	}
	return real(how, set, old);
}
