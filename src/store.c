/*-------------------------------------------------------------------------
 *
 * store.c
 *		The durable file of group definitions.
 *
 * Format: a header (magic, version, number and size of the entries, the same of
 * the grants), the entries, the grants, a CRC-32C over all that comes before
 * it; integers in the machine's own byte order, like the rest of the data
 * directory.  The file is always replaced as a whole: written under a
 * temporary name, flushed, renamed.
 *
 * Version 1, of release 1.0, had no grants, and only a dirty rate limit in an
 * entry.  It is read, but not written any more.  Every version begins with the
 * magic and its number, and ends with the checksum, so that an older release
 * knows a newer one's file for what it is.
 *
 * What is wrong with the content is damage: the file is put aside, and the
 * server starts without groups.  A file that cannot be read is not damaged.
 * Without its limits nobody would be throttled, and the next change would
 * replace it, so the server does not start until somebody has looked.
 *
 * Callers make sure that there is one writer at a time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "rate.h"
#include "storage/fd.h"
#include "store.h"

#define STORE_MAGIC		0x64747467	/* "dttg" */
#define STORE_VERSION	2
#define STORE_TEMP_FILE	DT_STORE_FILE ".tmp"

typedef struct StoreHeader
{
	uint32		magic;
	uint32		version;
	uint32		n_entries;
	uint32		entry_size;
	uint32		n_grants;		/* from here on since version 2 */
	uint32		grant_size;
} StoreHeader;

#define HEADER_SIZE_1	offsetof(StoreHeader, n_grants)

typedef struct Entry1
{
	char		name[NAMEDATALEN];
	int64		rate;
} Entry1;

/* An upper bound of what can be a file of ours, so that any can be read. */
#define STORE_MAX_SIZE	(64 * 1024 * 1024)

/* How long reading is tried: a server that waits for descriptors gets some. */
#define READ_TRIES		50
#define READ_RETRY_US	100000

/* How many damaged files are kept; another one replaces the last of them. */
#define MAX_DAMAGED		100

/*
 * Is the checksum at the end that of all before it?  Both are returned.
 */
static bool
checksum_fits(const char *image, size_t size, pg_crc32c *stored,
			  pg_crc32c *crc)
{
	INIT_CRC32C(*crc);
	COMP_CRC32C(*crc, image, size - sizeof(*crc));
	FIN_CRC32C(*crc);
	memcpy(stored, image + size - sizeof(*stored), sizeof(*stored));
	return EQ_CRC32C(*crc, *stored);
}

/*
 * What is wrong with this file image?  NULL when it is sound; then *header is
 * complete, whatever its version.
 */
static const char *
find_damage(const char *image, size_t size, StoreHeader *header)
{
	pg_crc32c	crc;
	pg_crc32c	stored;
	size_t		header_size = HEADER_SIZE_1;
	size_t		entry_size = sizeof(Entry1);
	uint64		expected;

	memset(header, 0, sizeof(*header));
	if (size < HEADER_SIZE_1 + sizeof(crc))
		return psprintf("it has %zu bytes, less than the smallest possible file",
						size);
	memcpy(header, image, HEADER_SIZE_1);
	if (header->magic != STORE_MAGIC)
		return psprintf("it begins with %08X instead of %08X",
						header->magic, STORE_MAGIC);
	if (header->version != 1 && header->version != STORE_VERSION)
		return psprintf("its format version is %u, this library reads versions 1 to %u",
						header->version, STORE_VERSION);
	if (header->version > 1)
	{
		header_size = sizeof(*header);
		entry_size = sizeof(DtDefinition);
		if (size < header_size + sizeof(crc))
			return psprintf("it has %zu bytes, less than the smallest possible file",
							size);
		memcpy(header, image, header_size);
		if (header->grant_size != sizeof(DtGrant))
			return psprintf("its grants have %u bytes instead of %zu",
							header->grant_size, sizeof(DtGrant));
	}
	if (header->entry_size != entry_size)
		return psprintf("its entries have %u bytes instead of %zu",
						header->entry_size, entry_size);
	expected = header_size + (uint64) header->n_entries * entry_size +
		(uint64) header->n_grants * sizeof(DtGrant) + sizeof(crc);
	if (size != expected)
		return psprintf("it has %zu bytes, which does not fit its %u entries and %u grants",
						size, header->n_entries, header->n_grants);

	if (!checksum_fits(image, size, &stored, &crc))
		return psprintf("its checksum is %08X, its content has %08X",
						stored, crc);
	return NULL;
}

/*
 * The definitions of a sound file image.
 */
static void
unpack(const char *image, const StoreHeader *header, DtDefinitions *d)
{
	int			i;

	d->n_groups = header->n_entries;
	d->n_grants = header->n_grants;
	d->groups = palloc0(Max(d->n_groups, 1) * sizeof(DtDefinition));
	d->grants = palloc0(Max(d->n_grants, 1) * sizeof(DtGrant));
	if (header->version == 1)
	{
		for (i = 0; i < d->n_groups; i++)
		{
			Entry1		entry;

			memcpy(&entry, image + HEADER_SIZE_1 + i * sizeof(entry),
				   sizeof(entry));
			memcpy(d->groups[i].name, entry.name, NAMEDATALEN);
			d->groups[i].rate[DT_DIRTY] = entry.rate;
			d->groups[i].burst_us = DT_RATE_DEFAULT_BURST_US;
		}
		return;
	}
	image += sizeof(*header);
	memcpy(d->groups, image, d->n_groups * sizeof(DtDefinition));
	image += d->n_groups * sizeof(DtDefinition);
	memcpy(d->grants, image, d->n_grants * sizeof(DtGrant));
}

static bool
is_name(const char *name)
{
	return name[0] != '\0' && name[NAMEDATALEN - 1] == '\0';
}

static int
find_group(const DtDefinitions *d, const char *name)
{
	int			i;

	for (i = 0; i < d->n_groups; i++)
		if (strcmp(d->groups[i].name, name) == 0)
			return i;
	return -1;
}

/*
 * Are these definitions that we could have written?  A checksum says that the
 * bytes are as they were, not that they were right.
 */
static const char *
find_nonsense(const DtDefinitions *definitions)
{
	int			i;
	int			r;

	for (i = 0; i < definitions->n_groups; i++)
	{
		const DtDefinition *d = &definitions->groups[i];

		if (!is_name(d->name))
			return psprintf("entry %d has no valid name", i + 1);
		for (r = 0; r < DT_RESOURCES; r++)
			if (d->rate[r] < 0 || d->rate[r] > DT_RATE_MAX)
				return psprintf("entry %d has a rate of " INT64_FORMAT " bytes/s",
								i + 1, d->rate[r]);
		if (d->burst_us < 0 || d->burst_us > DT_RATE_MAX_BURST_US)
			return psprintf("entry %d has a burst of " INT64_FORMAT " us",
							i + 1, d->burst_us);
		if (d->observe != 0 && d->observe != 1)
			return psprintf("entry %d has mode " INT64_FORMAT,
							i + 1, d->observe);
		if (find_group(definitions, d->name) < i)
			return psprintf("entries %d and %d have the same name",
							find_group(definitions, d->name) + 1, i + 1);
	}
	for (i = 0; i < definitions->n_grants; i++)
	{
		const DtGrant *grant = &definitions->grants[i];

		if (!is_name(grant->group_name) ||
			find_group(definitions, grant->group_name) < 0 ||
			!OidIsValid(grant->role))
			return psprintf("grant %d has no valid group or role", i + 1);
	}
	return NULL;
}

/*
 * The hint of an error that keeps the server from starting.
 */
static int
hint_to_start(const char *remedy)
{
	return errhint("%s To start without resource groups, move the file away: mv \"%s/%s\" \"%s/%s.away\".",
				   remedy, DataDir, DT_STORE_FILE, DataDir, DT_STORE_FILE);
}

/*
 * Who goes back to an older release has a file that is sound, but that only
 * the newer one can read.
 */
static void
refuse_newer(const char *image, size_t size)
{
	StoreHeader header;
	pg_crc32c	stored;
	pg_crc32c	crc;

	if (size < HEADER_SIZE_1 + sizeof(crc))
		return;
	memcpy(&header, image, HEADER_SIZE_1);
	if (header.magic == STORE_MAGIC && header.version > STORE_VERSION &&
		checksum_fits(image, size, &stored, &crc))
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" was written by a newer release of dirty_throttle",
						DT_STORE_FILE),
				 errdetail("Its format version is %u, this library reads versions 1 to %u.",
						   header.version, STORE_VERSION),
				 hint_to_start("Install that release again.")));
}

/*
 * Read the whole file into palloc'd memory; NULL when there is none, or when
 * *damage says what is there instead.  False, with errno, when it cannot be
 * read.  It is looked at before it is opened: opening a pipe would hang.
 */
static bool
try_slurp(char **image, size_t *size, const char **damage)
{
	struct stat st;
	ssize_t		n = 0;
	int			save_errno;
	int			fd;

	*image = NULL;
	*size = 0;
	if (stat(DT_STORE_FILE, &st) != 0)
	{
		/* a symbolic link to nowhere is not the same as nothing */
		return errno == ENOENT &&
			lstat(DT_STORE_FILE, &st) != 0 && errno == ENOENT;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > STORE_MAX_SIZE)
	{
		/* no waiting and no permission makes that a file of ours */
		*damage = "it is not a file of a plausible size";
		return true;
	}
	fd = OpenTransientFile(DT_STORE_FILE, O_RDONLY | PG_BINARY);
	if (fd < 0)
		return false;
	*image = palloc(st.st_size + 1);
	while (*size < st.st_size &&
		   (n = read(fd, *image + *size, st.st_size - *size)) > 0)
		*size += n;
	save_errno = errno;
	CloseTransientFile(fd);
	errno = save_errno;
	return n >= 0;
}

/*
 * The same, but it does not return when the file cannot be read.  What may
 * pass by itself is waited for, a few seconds; that covers a crash restart,
 * when others may hold all file descriptors of the machine still.
 */
static char *
slurp(size_t *size, const char **damage)
{
	char	   *image;
	int			tries;

	for (tries = 1; !try_slurp(&image, size, damage); tries++)
	{
		bool		may_pass = errno == EMFILE || errno == ENFILE ||
			errno == ENOMEM || errno == EINTR || errno == EAGAIN ||
			errno == EIO;

		if (!may_pass || tries == READ_TRIES)
			ereport(FATAL,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", DT_STORE_FILE),
					 errdetail("It defines the resource groups, whose sessions would not be throttled without it."),
					 hint_to_start(psprintf("Remove the cause (lack of permission: chmod u+rw \"%s/%s\") and start the server again.",
											DataDir, DT_STORE_FILE))));
		if (tries == 1)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\", trying again for %d seconds: %m",
							DT_STORE_FILE, READ_TRIES * (READ_RETRY_US / 1000) / 1000)));
		pg_usleep(READ_RETRY_US);
	}
	return image;
}

/*
 * Put a damaged file aside, under a name that is not in use, and report it.
 * That need not survive a crash: the file would be found and put aside again,
 * and new definitions are flushed together with the directory.
 */
static void
put_aside(const char *damage)
{
	char	   *name = pstrdup(DT_STORE_DAMAGED_FILE);
	struct stat st;
	bool		kept;
	int			i;

	for (i = 1; i < MAX_DAMAGED &&
		 (lstat(name, &st) == 0 || errno != ENOENT); i++)
		name = psprintf("%s.%d", DT_STORE_DAMAGED_FILE, i);
	kept = rename(DT_STORE_FILE, name) == 0;

	/* Not an ERROR, which would keep the server from starting. */
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is damaged, no resource group is defined",
					DT_STORE_FILE),
			 errdetail("The file is not usable: %s.", damage),
			 kept ?
			 errhint("It is kept as \"%s\". Define the groups again, or put a good copy in its place and restart the server.",
					 name) :
			 errhint("It could not be renamed to \"%s\": %m. Copy it now if you need it: the next change of a resource group replaces it.",
					 name)));
}

void
dt_store_read(DtDefinitions *definitions)
{
	const char *damage = NULL;
	StoreHeader header;
	size_t		size;
	char	   *image;

	memset(definitions, 0, sizeof(*definitions));
	image = slurp(&size, &damage);
	if (image == NULL && damage == NULL)
		return;					/* no group was ever defined */

	if (damage == NULL)
	{
		refuse_newer(image, size);
		damage = find_damage(image, size, &header);
	}
	if (damage == NULL)
	{
		unpack(image, &header, definitions);
		damage = find_nonsense(definitions);
	}
	if (damage != NULL)
	{
		memset(definitions, 0, sizeof(*definitions));
		put_aside(damage);
	}
}

/*
 * Report that the temporary file could not be written, and remove it.
 */
static void
write_failed(int fd, const char *what)
{
	int			save_errno = errno ? errno : ENOSPC;

	if (fd >= 0)
		CloseTransientFile(fd);
	unlink(STORE_TEMP_FILE);
	errno = save_errno;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not %s file \"%s\": %m", what, STORE_TEMP_FILE),
			 errdetail("The resource groups are unchanged.")));
}

void
dt_store_write(const DtDefinitions *d)
{
	StoreHeader header;
	pg_crc32c	crc;
	size_t		groups_size = d->n_groups * sizeof(DtDefinition);
	size_t		grants_size = d->n_grants * sizeof(DtGrant);
	size_t		size = sizeof(header) + groups_size + grants_size +
		sizeof(crc);
	char	   *image = palloc(size);
	int			fd;

	header.magic = STORE_MAGIC;
	header.version = STORE_VERSION;
	header.n_entries = d->n_groups;
	header.entry_size = sizeof(DtDefinition);
	header.n_grants = d->n_grants;
	header.grant_size = sizeof(DtGrant);
	memcpy(image, &header, sizeof(header));
	memcpy(image + sizeof(header), d->groups, groups_size);
	memcpy(image + sizeof(header) + groups_size, d->grants, grants_size);
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, image, size - sizeof(crc));
	FIN_CRC32C(crc);
	memcpy(image + size - sizeof(crc), &crc, sizeof(crc));

	fd = OpenTransientFile(STORE_TEMP_FILE,
						   O_CREAT | O_TRUNC | O_WRONLY | PG_BINARY);
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not create file \"%s\": %m", STORE_TEMP_FILE),
				 errdetail("The resource groups are unchanged.")));
	errno = 0;
	if (write(fd, image, size) != size)
		write_failed(fd, "write");
	if (pg_fsync(fd) != 0)
		write_failed(fd, "fsync");
	if (CloseTransientFile(fd) != 0)
		write_failed(-1, "close");

	/*
	 * When this fails, the temporary file is either still there, and nothing
	 * has changed, or it has been renamed and only the flush failed: then the
	 * new definitions are what the next start reads, and there is no way back
	 * that would not have to flush, too.  durable_rename has said so.
	 */
	if (durable_rename(STORE_TEMP_FILE, DT_STORE_FILE, WARNING) != 0 &&
		(access(STORE_TEMP_FILE, F_OK) == 0 || errno != ENOENT))
	{
		unlink(STORE_TEMP_FILE);
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not replace file \"%s\"", DT_STORE_FILE),
				 errdetail("The resource groups are unchanged.")));
	}
	pfree(image);
}
