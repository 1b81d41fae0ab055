/*-------------------------------------------------------------------------
 *
 * fault.c
 *		System calls on the definitions file that fail, or kill; for
 *		test/perl/DirtyThrottle/Faults.pm, which compiles it and starts a
 *		server with it in LD_PRELOAD.
 *
 * $DT_FAULT names a file with one line, "FIRST LAST ACTION ERRNO".  While it
 * is there, every call on the definitions file, its temporary file, and, after
 * a rename, their directory is appended to $DT_FAULT.trace as a line of
 * LINE_SIZE bytes; the calls number FIRST to LAST of that trace (from 1) meet
 * their fate:
 *
 *	fail	the call is not made (but a file is closed), it returns an error
 *	short	of a write only the first half is made; a read is at the end of file
 *	kill	the process gets SIGKILL before it makes the call
 *	killall	the same for its parent, the postmaster, as well
 *
 * fsync() does nothing for other files, which saves time.
 *
 * The trace is where calls are counted, so that it does not matter which
 * process makes them.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE_SIZE	16
#define MAX_FDS		1024
#define STORE_FILE	"dirty_throttle.groups"

/* The function that this library stands before, as real(). */
#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) \
		real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

/* What of ours a file descriptor is open on: "tmp", "file", "dir" or NULL. */
static const char *ours[MAX_FDS];
static int	renamed = 0;		/* the next directory opened is ours */

/* The same for a name. */
static const char *
target(const char *path)
{
	const char *name = strrchr(path, '/');

	name = name ? name + 1 : path;
	if (strcmp(name, STORE_FILE) == 0)
		return "file";
	if (strcmp(name, STORE_FILE ".tmp") == 0)
		return "tmp";
	if (renamed && strcmp(path, ".") == 0)
		return "dir";
	return NULL;
}

/* stdio opens and writes past the functions below. */
static int
read_control(const char *path, long *first, long *last, char *action,
			 int *error)
{
	FILE	   *file = fopen(path, "r");
	int			n;

	if (!file)
		return 0;
	n = fscanf(file, "%ld %ld %15s %d", first, last, action, error);
	fclose(file);
	return n == 4;
}

/*
 * Note a call; returns what is to be done instead: 0, nothing, or the first
 * letter of the action, with errno set.
 */
static int
fate(const char *call, const char *what)
{
	const char *control = getenv("DT_FAULT");
	int			save_errno = errno;
	char		trace[4096];
	char		action[16];
	FILE	   *file;
	long		first;
	long		last;
	long		number;
	int			error;

	if (!what || !control)
		return 0;
	if (!read_control(control, &first, &last, action, &error))
	{
		errno = save_errno;
		return 0;
	}
	snprintf(trace, sizeof(trace), "%s.trace", control);
	file = fopen(trace, "a");
	if (!file)
		return 0;
	fprintf(file, "%-6s %-8s\n", call, what);
	fflush(file);
	fseek(file, 0, SEEK_END);
	number = ftell(file) / LINE_SIZE;
	fclose(file);

	if (number < first || number > last)
		return 0;
	if (strcmp(action, "killall") == 0)
		kill(getppid(), SIGKILL);
	if (strncmp(action, "kill", 4) == 0)
		kill(getpid(), SIGKILL);
	errno = error;
	return action[0];
}

static int
opened(int fd, const char *what)
{
	if (fd >= 0 && fd < MAX_FDS)
		ours[fd] = what;
	return fd;
}

static const char *
on(int fd)
{
	return fd >= 0 && fd < MAX_FDS ? ours[fd] : NULL;
}

int
open(const char *path, int flags,...)
{
	REAL(open);
	const char *what = target(path);
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (fate("open", what))
		return -1;
	return opened(real(path, flags, mode), what);
}

int
open64(const char *path, int flags,...)
{
	REAL(open64);
	const char *what = target(path);
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (fate("open", what))
		return -1;
	return opened(real(path, flags, mode), what);
}

ssize_t
write(int fd, const void *buffer, size_t size)
{
	REAL(write);

	switch (fate("write", on(fd)))
	{
		case 0:
			return real(fd, buffer, size);
		case 's':
			size = real(fd, buffer, size / 2);
			errno = 0;
			return size;
	}
	return -1;
}

/* The server's other files need not outlive the machine. */
int
fsync(int fd)
{
	REAL(fsync);

	if (!on(fd))
		return 0;
	return fate("fsync", on(fd)) ? -1 : real(fd);
}

int
stat(const char *path, struct stat *buffer)
{
	REAL(stat);

	return fate("stat", target(path)) ? -1 : real(path, buffer);
}

ssize_t
read(int fd, void *buffer, size_t size)
{
	REAL(read);

	switch (fate("read", on(fd)))
	{
		case 0:
			return real(fd, buffer, size);
		case 's':
			return 0;
	}
	return -1;
}

int
close(int fd)
{
	REAL(close);
	int			failed = fate("close", on(fd));
	int			save_errno = errno;
	int			result;

	if (on(fd) && strcmp(on(fd), "dir") == 0)
		renamed = 0;
	opened(fd, NULL);
	result = real(fd);
	if (!failed)
		return result;
	errno = save_errno;
	return -1;
}

int
rename(const char *from, const char *to)
{
	REAL(rename);
	const char *what = target(from);
	int			result;

	if (fate("rename", what))
		return -1;
	result = real(from, to);
	renamed = what != NULL && result == 0;
	return result;
}

int
unlink(const char *path)
{
	REAL(unlink);

	return fate("unlink", target(path)) ? -1 : real(path);
}
