/*-------------------------------------------------------------------------
 *
 * wal.c
 *		Signals archive_lag and disk_free.
 *
 * The archiver tells the statistics which file it has archived last.  Only
 * whole segments can be archived, so what counts is the WAL from the end of
 * that one to the beginning of the segment that is being written.  What waits
 * to be archived is not removed; so if the next segment is not there, most often
 * nothing waits.  But it is not there either when that one was archived on another
 * timeline, or before archive_mode was off for a while; so then the oldest segment
 * that waits counts.  As long as nothing has been archived since the statistics were
 * reset, as by a crash, the oldest one at the first look counts.
 *
 * Free space is that of the file system of pg_wal for those who are not root,
 * as the server is not.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "pressure/signals.h"
#include "storage/fd.h"

/*
 * The beginning of the oldest segment that is marked as ready to be archived;
 * "wal" when there is none.
 */
static XLogRecPtr
oldest_ready(XLogRecPtr wal)
{
	DIR		   *dir = AllocateDir(XLOGDIR "/archive_status");
	struct dirent *entry;

	while ((entry = ReadDirExtended(dir, XLOGDIR "/archive_status", LOG)) != NULL)
	{
		char		name[MAXFNAMELEN];
		TimeLineID	timeline;
		XLogSegNo	segment;
		XLogRecPtr	begin;

		strlcpy(name, entry->d_name, XLOG_FNAME_LEN + 1);
		if (!IsXLogFileName(name) ||
			strcmp(entry->d_name + XLOG_FNAME_LEN, ".ready") != 0)
			continue;
		XLogFromFileName(name, &timeline, &segment, wal_segment_size);
		XLogSegNoOffsetToRecPtr(segment, 0, wal_segment_size, begin);
		wal = Min(wal, begin);
	}
	FreeDir(dir);
	return wal;
}

/* Bytes of WAL that wait to be archived. */
DtLook
dt_look_archive_lag(DtFound *found)
{
	static DtDrain drain;
	static const DtDrain *const one = &drain;
	static XLogRecPtr archived = InvalidXLogRecPtr;
	static char last[MAX_XFN_CHARS + 1];
	XLogRecPtr	wal = GetXLogInsertRecPtr();
	PgStat_ArchiverStats *stats;

	if (!XLogArchivingActive())
		return dt_no_look(found, DT_LOOK_FAILED,
						  _("WAL is not archived, since archive_mode is off."));
	wal -= XLogSegmentOffset(wal, wal_segment_size);
	if (archived == InvalidXLogRecPtr)
		archived = oldest_ready(wal);
	stats = pgstat_fetch_stat_archiver();
	if (IsXLogFileName(stats->last_archived_wal))
	{
		TimeLineID	timeline;
		XLogSegNo	segment;
		char		path[MAXPGPATH];

		XLogFromFileName(stats->last_archived_wal, &timeline, &segment,
						 wal_segment_size);
		XLogFilePath(path, timeline, segment + 1, wal_segment_size);
		XLogSegNoOffsetToRecPtr(segment + 1, 0, wal_segment_size, archived);
		if (access(path, F_OK) != 0)
			archived = oldest_ready(wal);
	}
	else if (strcmp(stats->last_archived_wal, last) != 0)
		archived = oldest_ready(wal);	/* a file of a backup or timeline, and
										 * there may have been segments before */
	strlcpy(last, stats->last_archived_wal, sizeof(last));
	dt_drain_sample(&drain, wal, Min(archived, wal), found->at);
	found->drains = &one;
	found->n = 1;
	found->value = dt_drain_backlog(&drain);
	return DT_LOOK_MEASURED;
}

/* Bytes, with the size of the file system. */
DtLook
dt_look_disk_free(DtFound *found)
{
	struct statvfs fs;

	if (statvfs(XLOGDIR, &fs) != 0)
		return dt_no_look(found, DT_LOOK_FAILED,
						  _("The free space of \"%s\" cannot be read: %m."),
						  XLOGDIR);
	found->value = (int64) fs.f_bavail * fs.f_frsize;
	found->other = (int64) fs.f_blocks * fs.f_frsize;
	return DT_LOOK_MEASURED;
}
