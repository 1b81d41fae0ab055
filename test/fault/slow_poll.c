/*-------------------------------------------------------------------------
 *
 * slow_poll.c
 *		A look at what is there to read takes a while; for
 *		test/t/052_interrupts.pl, which compiles it and starts a server with it
 *		in LD_PRELOAD.
 *
 * While the file that $DT_SLOW_POLL names is there, an epoll_wait() that does
 * not wait sleeps first, for as many milliseconds as that file says, whatever
 * signals arrive.  So the server looks whether its client is still there.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <time.h>

static long
delay_ms(void)
{
	const char *path = getenv("DT_SLOW_POLL");
	FILE	   *file = path ? fopen(path, "r") : NULL;
	long		ms = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%ld", &ms) != 1)
		ms = 0;
	fclose(file);
	return ms;
}

int
epoll_wait(int epfd, struct epoll_event *events, int maxevents, int timeout)
{
	static int	(*real) (int, struct epoll_event *, int, int) = NULL;

	if (real == NULL)
		real = (int (*) (int, struct epoll_event *, int, int))
			dlsym(RTLD_NEXT, "epoll_wait");
	if (timeout == 0)
	{
		struct timespec left = {.tv_nsec = delay_ms() * 1000000};

		while (nanosleep(&left, &left) != 0 && errno == EINTR)
			;
	}
	return real(epfd, events, maxevents, timeout);
}
