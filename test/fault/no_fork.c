/*-------------------------------------------------------------------------
 *
 * no_fork.c
 *		A server that cannot fork, as one that has too many processes; for
 *		test/t/094_batches_worker.pl, which compiles it and starts a server with
 *		it in LD_PRELOAD.
 *
 * While the file is there that $DT_NO_FORK names, fork() fails.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

pid_t
fork(void)
{
	static pid_t (*real) (void);
	const char *control = getenv("DT_NO_FORK");

	if (control && access(control, F_OK) == 0)
	{
		errno = EAGAIN;
		return -1;
	}
	if (!real)
		real = (pid_t (*) (void)) dlsym(RTLD_NEXT, "fork");
	return real();
}
