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
 * entry.  It is read, but not written any more.
 *
 * Callers make sure that there is one writer at a time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, image, size - sizeof(crc));
	FIN_CRC32C(crc);
	memcpy(&stored, image + size - sizeof(crc), sizeof(stored));
	if (!EQ_CRC32C(crc, stored))
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
 * Read the whole file into palloc'd memory.  NULL and size 0 when there is
 * none; NULL and the reason in *damage when it cannot be read.
 */
static char *
slurp(size_t *size, const char **damage)
{
	struct stat st;
	FILE	   *file;
	char	   *image;

	*size = 0;
	file = AllocateFile(DT_STORE_FILE, PG_BINARY_R);
	if (file == NULL)
	{
		if (errno != ENOENT)
			*damage = psprintf("it cannot be opened: %s", strerror(errno));
		return NULL;
	}
	if (fstat(fileno(file), &st) != 0 || !S_ISREG(st.st_mode) ||
		st.st_size > STORE_MAX_SIZE)
	{
		*damage = "it is not a file of a plausible size";
		FreeFile(file);
		return NULL;
	}
	image = palloc(st.st_size + 1);
	*size = fread(image, 1, st.st_size, file);
	if (ferror(file))
		*damage = psprintf("it cannot be read: %s", strerror(errno));
	FreeFile(file);
	return image;
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

	if (image != NULL && damage == NULL)
		damage = find_damage(image, size, &header);
	if (damage == NULL)
	{
		unpack(image, &header, definitions);
		damage = find_nonsense(definitions);
	}
	if (damage == NULL)
		return;
	memset(definitions, 0, sizeof(*definitions));

	/* Not an ERROR, which would keep the server from starting. */
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("file \"%s\" is damaged, no resource group is defined",
					DT_STORE_FILE),
			 errdetail("The file is not usable: %s.", damage),
			 errhint("It is kept as \"%s\". Define the groups again, or put a good copy in its place and restart the server.",
					 DT_STORE_DAMAGED_FILE)));

	/*
	 * durable_rename() opens the file first, which may be what is wrong with
	 * it.  Then at least have it out of the way; nothing is lost if that does
	 * not survive a crash.
	 */
	if (durable_rename(DT_STORE_FILE, DT_STORE_DAMAGED_FILE, DEBUG1) != 0 &&
		rename(DT_STORE_FILE, DT_STORE_DAMAGED_FILE) != 0)
		ereport(WARNING,
				(errcode_for_file_access(),
				 errmsg("could not rename file \"%s\" to \"%s\": %m",
						DT_STORE_FILE, DT_STORE_DAMAGED_FILE)));
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
