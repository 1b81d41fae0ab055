/*-------------------------------------------------------------------------
 *
 * store.c
 *		The durable file of group definitions.
 *
 * Format: a header (magic, version, number and size of the entries), the
 * entries, a CRC-32C over all that comes before it; integers in the machine's
 * own byte order, like the rest of the data directory.  The file is always
 * replaced as a whole: written under a temporary name, flushed, renamed.
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
#define STORE_VERSION	1
#define STORE_TEMP_FILE	DT_STORE_FILE ".tmp"

typedef struct StoreHeader
{
	uint32		magic;
	uint32		version;
	uint32		n_entries;
	uint32		entry_size;
} StoreHeader;

/* An upper bound of what can be a file of ours, so that any can be read. */
#define STORE_MAX_SIZE	(64 * 1024 * 1024)

/*
 * What is wrong with this file image?  NULL when it is sound.
 */
static const char *
find_damage(const char *image, size_t size)
{
	StoreHeader header;
	pg_crc32c	crc;
	pg_crc32c	stored;
	size_t		body;

	if (size < sizeof(header) + sizeof(crc))
		return psprintf("it has %zu bytes, less than the smallest possible file",
						size);
	memcpy(&header, image, sizeof(header));
	if (header.magic != STORE_MAGIC)
		return psprintf("it begins with %08X instead of %08X",
						header.magic, STORE_MAGIC);
	if (header.version != STORE_VERSION)
		return psprintf("its format version is %u, this library reads version %u",
						header.version, STORE_VERSION);
	if (header.entry_size != sizeof(DtDefinition))
		return psprintf("its entries have %u bytes instead of %zu",
						header.entry_size, sizeof(DtDefinition));
	body = size - sizeof(header) - sizeof(crc);
	if (body % sizeof(DtDefinition) != 0 ||
		body / sizeof(DtDefinition) != header.n_entries)
		return psprintf("it has %zu bytes, which does not fit its %u entries",
						size, header.n_entries);

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
 * Are these definitions that we could have written?  A checksum says that the
 * bytes are as they were, not that they were right.
 */
static const char *
find_nonsense(const DtDefinition *definitions, int n)
{
	int			i;
	int			j;

	for (i = 0; i < n; i++)
	{
		const DtDefinition *d = &definitions[i];

		if (d->name[0] == '\0' || d->name[NAMEDATALEN - 1] != '\0')
			return psprintf("entry %d has no valid name", i + 1);
		if (d->rate < 0 || d->rate > DT_RATE_MAX)
			return psprintf("entry %d has a rate of " INT64_FORMAT " bytes/s",
							i + 1, d->rate);
		for (j = 0; j < i; j++)
			if (strcmp(d->name, definitions[j].name) == 0)
				return psprintf("entries %d and %d have the same name",
								j + 1, i + 1);
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

int
dt_store_read(DtDefinition **definitions)
{
	const char *damage = NULL;
	size_t		size;
	char	   *image;
	int			n = 0;

	*definitions = NULL;
	image = slurp(&size, &damage);
	if (image == NULL && damage == NULL)
		return 0;				/* no group was ever defined */

	if (image != NULL && damage == NULL)
	{
		damage = find_damage(image, size);
		if (damage == NULL)
		{
			n = ((StoreHeader *) image)->n_entries;
			*definitions = palloc(Max(n, 1) * sizeof(DtDefinition));
			memcpy(*definitions, image + sizeof(StoreHeader),
				   n * sizeof(DtDefinition));
			damage = find_nonsense(*definitions, n);
		}
	}
	if (damage == NULL)
		return n;

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
	return 0;
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
dt_store_write(const DtDefinition *definitions, int n)
{
	StoreHeader header;
	pg_crc32c	crc;
	size_t		size = sizeof(header) + n * sizeof(DtDefinition) + sizeof(crc);
	char	   *image = palloc(size);
	int			fd;

	header.magic = STORE_MAGIC;
	header.version = STORE_VERSION;
	header.n_entries = n;
	header.entry_size = sizeof(DtDefinition);
	memcpy(image, &header, sizeof(header));
	memcpy(image + sizeof(header), definitions, n * sizeof(DtDefinition));
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
