/*-------------------------------------------------------------------------
 *
 * proc.c
 *		Files of the kernel that say what a test wants, a wrong clock, and much
 *		shared memory; for test/t/08*.pl, which compile it and start
 *		a server with it in LD_PRELOAD.
 *
 * $DT_PROC names a directory.  While it has a file "io", "meminfo" or "vmstat",
 * that is opened instead of /proc/pressure/io, /proc/meminfo or /proc/vmstat;
 * a file "io.errno" and so on has the number of the error that the open
 * meets instead.  The wall clock is wrong by the number of seconds in a file
 * "clock".
 *
 * With $DT_NORESERVE set, shared memory is not counted by the kernel before it
 * is used, so that a server can have more shared_buffers than the machine has
 * memory.
 *
 *-------------------------------------------------------------------------
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The function that this library stands before, as real(). */
#define REAL(name) \
	static __typeof__(name) *real; \
	if (!real) \
		real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

/*
 * The file to open in place of this one; NULL: none, with errno set.
 */
static const char *
instead_of(const char *path, char *buffer, size_t size)
{
	static const char *const files[] = {
		"/proc/pressure/io", "/proc/meminfo", "/proc/vmstat"
	};
	const char *dir = getenv("DT_PROC");
	FILE	   *file;
	int			i;

	for (i = 0; dir != NULL && i < 3; i++)
	{
		const char *name = strrchr(path, '/');
		int			error;

		if (strcmp(path, files[i]) != 0)
			continue;
		snprintf(buffer, size, "%s%s.errno", dir, name);
		if ((file = fopen(buffer, "r")) != NULL)
		{
			errno = fscanf(file, "%d", &error) == 1 ? error : EIO;
			fclose(file);
			return NULL;
		}
		snprintf(buffer, size, "%s%s", dir, name);
		if ((file = fopen(buffer, "r")) == NULL)
			break;
		fclose(file);
		return buffer;
	}
	return path;
}

int
open(const char *path, int flags,...)
{
	REAL(open);
	char		buffer[4096];
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	path = instead_of(path, buffer, sizeof(buffer));
	return path ? real(path, flags, mode) : -1;
}

int
open64(const char *path, int flags,...)
{
	REAL(open64);
	char		buffer[4096];
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	path = instead_of(path, buffer, sizeof(buffer));
	return path ? real(path, flags, mode) : -1;
}

/*
 * The clock is read in signal handlers, too, so this must not allocate memory.
 */
static long
clock_error(void)
{
	const char *dir = getenv("DT_PROC");
	char		buffer[4096];
	ssize_t		n = -1;
	int			fd;

	if (dir == NULL || strlen(dir) > sizeof(buffer) - 10)
		return 0;
	strcat(strcpy(buffer, dir), "/clock");
	fd = syscall(SYS_openat, AT_FDCWD, buffer, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, buffer, sizeof(buffer) - 1);
	close(fd);
	buffer[n > 0 ? n : 0] = '\0';
	return strtol(buffer, NULL, 10);
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static int	(*real) (struct timeval *, void *);
	int			result;
	int			save_errno;

	if (!real)
		real = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = real(tv, tz);
	save_errno = errno;
	tv->tv_sec += clock_error();
	errno = save_errno;
	return result;
}

time_t
time(time_t *result)
{
	struct timeval tv;

	gettimeofday(&tv, NULL);
	if (result)
		*result = tv.tv_sec;
	return tv.tv_sec;
}

void *
mmap(void *address, size_t length, int protection, int flags, int fd,
	 off_t offset)
{
	REAL(mmap);

	if (getenv("DT_NORESERVE") && (flags & MAP_ANONYMOUS) &&
		!(flags & MAP_HUGETLB))
		flags |= MAP_NORESERVE;
	return real(address, length, protection, flags, fd, offset);
}
