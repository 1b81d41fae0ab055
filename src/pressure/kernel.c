/*-------------------------------------------------------------------------
 *
 * kernel.c
 *		Signals kernel_dirty and io_pressure, from files of the Linux kernel.
 *
 * Writes go to the kernel's page cache, which writes them to the disk later.
 * /proc/meminfo has how much of it is dirty or being written; /proc/vmstat has
 * from how much on it writes, which the kernel works out from
 * vm.dirty_background_ratio or vm.dirty_background_bytes and the memory there
 * is.
 *
 * /proc/pressure/io counts the time in which some process waits for I/O
 * (pressure stall information).  Where only the cgroup's own is to be had,
 * that is read.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <unistd.h>

#include "pressure/signals.h"

#define MEMINFO		"/proc/meminfo"
#define VMSTAT		"/proc/vmstat"
#define PRESSURE	"/proc/pressure/io"
#define CGROUP		"/proc/self/cgroup"

/*
 * Read a file into a buffer, as a string.  False: errno says why.  The
 * kernel makes these files up in memory, so this does not wait for a disk.
 */
static bool
read_file(const char *path, char *buffer, size_t size)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC, 0);
	size_t		length = 0;
	ssize_t		n = -1;
	int			save_errno;

	if (fd < 0)
		return false;
	while (length < size - 1 &&
		   (n = read(fd, buffer + length, size - 1 - length)) > 0)
		length += n;
	save_errno = errno;
	close(fd);
	errno = save_errno;
	buffer[length] = '\0';
	return n >= 0;
}

/* The same, with the reason when it fails. */
static bool
read_or_explain(const char *path, char *buffer, size_t size, DtFound *found)
{
	if (read_file(path, buffer, size))
		return true;
	(void) dt_no_look(found, DT_LOOK_FAILED,
					  _("File \"%s\" cannot be read: %m."), path);
	return false;
}

/* The number after a word, which is all that is before it on its line. */
static bool
find_number(const char *path, const char *content, const char *word,
			int64 *number, DtFound *found)
{
	size_t		length = strlen(word);
	const char *line;

	for (line = content; line != NULL; line = strchr(line, '\n'))
	{
		line += (*line == '\n');
		if (strncmp(line, word, length) == 0 &&
			(line[length] == ' ' || line[length] == ':') &&
			sscanf(line + length + 1, INT64_FORMAT, number) == 1)
			return true;
	}
	(void) dt_no_look(found, DT_LOOK_FAILED,
					  _("File \"%s\" has no number \"%s\"."), path, word);
	return false;
}

/* Bytes that the kernel has to write to disks. */
DtLook
dt_look_kernel_dirty(DtFound *found)
{
	char		content[8192];
	int64		dirty;
	int64		writeback;

	if (!read_or_explain(MEMINFO, content, sizeof(content), found) ||
		!find_number(MEMINFO, content, "Dirty", &dirty, found) ||
		!find_number(MEMINFO, content, "Writeback", &writeback, found))
		return DT_LOOK_FAILED;
	found->value = (dirty + writeback) * 1024;
	return DT_LOOK_MEASURED;
}

/* From how many bytes on the kernel writes them, if they are not old yet. */
DtLook
dt_look_kernel_background(DtFound *found)
{
	char		content[16384];
	int64		pages;

	if (!read_or_explain(VMSTAT, content, sizeof(content), found) ||
		!find_number(VMSTAT, content, "nr_dirty_background_threshold", &pages,
					 found))
		return DT_LOOK_FAILED;
	found->value = pages * sysconf(_SC_PAGESIZE);
	return DT_LOOK_MEASURED;
}

/*
 * The path of the cgroup's file, of version 2 of cgroups; false: there is
 * none.
 */
static bool
find_cgroup_file(char *path, size_t size)
{
	static const char *const roots[] = {
		"/sys/fs/cgroup", "/sys/fs/cgroup/unified"
	};
	char		content[4096];
	char	   *line;

	if (!read_file(CGROUP, content, sizeof(content)))
		return false;
	line = strstr(content, "0::/");
	if (line == NULL)
		return false;
	line += strlen("0::");
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, "/") == 0)
		line[0] = '\0';
	for (int i = 0; i < lengthof(roots); i++)
	{
		snprintf(path, size, "%s%s/io.pressure", roots[i], line);
		if (access(path, R_OK) == 0)
			return true;
	}
	return false;
}

/* For how much of the time some process waits for I/O, in 1e-6. */
DtLook
dt_look_io_pressure(DtFound *found)
{
	static DtStall stall;
	int64		counter;
	char		content[512];
	char		path[MAXPGPATH];
	const char *total;

	strlcpy(path, PRESSURE, sizeof(path));
	if (!read_or_explain(path, content, sizeof(content), found) &&
		!(find_cgroup_file(path, sizeof(path)) &&
		  read_or_explain(path, content, sizeof(content), found)))
		return DT_LOOK_FAILED;
	found->reason[0] = '\0';
	/* the first line is "some", in which the last word is the counter */
	total = strstr(content, "total=");
	if (strncmp(content, "some ", 5) != 0 || total == NULL ||
		sscanf(total, "total=" INT64_FORMAT, &counter) != 1)
		return dt_no_look(found, DT_LOOK_FAILED,
						  _("File \"%s\" has no number \"%s\"."), path,
						  "some ... total");
	found->value = dt_stall_sample(&stall, counter, found->at);
	if (stall.watched_us == 0)
		found->at = 0;			/* one look at a counter tells nothing */
	return DT_LOOK_MEASURED;
}
