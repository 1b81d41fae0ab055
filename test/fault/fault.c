/*-------------------------------------------------------------------------
 *
 * fault.c
 *		Kills a process at a certain system call; for test/t/031_kill_change.pl,
 *		which compiles it and starts a server with it in LD_PRELOAD.
 *
 * $DT_FAULT names a file with one line, "PID NUMBER".  While it is there, that
 * process counts its calls of the functions below, and gets SIGKILL instead of
 * the one with that number (from 1).  These are what it does to be heard of by
 * anybody: files, sockets and other processes.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* The function that this library stands before, as real(). */
#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) \
		real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name); \
	count()

static void
count(void)
{
	static long counted = 0;
	const char *control = getenv("DT_FAULT");
	FILE	   *file = control ? fopen(control, "r") : NULL;
	long		pid;
	long		number;

	if (!file)
		return;
	if (fscanf(file, "%ld %ld", &pid, &number) == 2 && pid == getpid() &&
		++counted == number)
		raise(SIGKILL);
	fclose(file);
}

ssize_t
pwrite(int fd, const void *buffer, size_t size, off_t offset)
{
	REAL(pwrite);
	return real(fd, buffer, size, offset);
}

ssize_t
pwrite64(int fd, const void *buffer, size_t size, off64_t offset)
{
	REAL(pwrite64);
	return real(fd, buffer, size, offset);
}

ssize_t
pread64(int fd, void *buffer, size_t size, off64_t offset)
{
	REAL(pread64);
	return real(fd, buffer, size, offset);
}

ssize_t
pread(int fd, void *buffer, size_t size, off_t offset)
{
	REAL(pread);
	return real(fd, buffer, size, offset);
}

int
fsync(int fd)
{
	REAL(fsync);
	return real(fd);
}

int
fdatasync(int fd)
{
	REAL(fdatasync);
	return real(fd);
}

ssize_t
send(int fd, const void *buffer, size_t size, int flags)
{
	REAL(send);
	return real(fd, buffer, size, flags);
}

ssize_t
recv(int fd, void *buffer, size_t size, int flags)
{
	REAL(recv);
	return real(fd, buffer, size, flags);
}

int
kill(pid_t pid, int signal)
{
	REAL(kill);
	return real(pid, signal);
}
