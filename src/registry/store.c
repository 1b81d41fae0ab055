/*-------------------------------------------------------------------------
 *
 * store.c
 *		The durable file of group definitions.
 *
 * Format: a header (magic, version, number and size of the entries, the same
 * of the grants, the stamp of the definitions, the system identifier), the
 * entries, the grants, a CRC-32C over all that comes before it; integers in the machine's own byte order, like the rest of the
 * data directory.  The file is always replaced as a whole: written under a
 * temporary name, flushed, renamed.
 *
 * Every format begins with the magic and the number of its version, and ends
 * with the checksum, so that an older release can tell the sound file of a
 * newer one from a damaged one.
 *
 * A file with invalid content is renamed, and the server starts without
 * groups.  When the file cannot be read, the server does not start: otherwise
 * nobody would be throttled, and the next change would replace a file that may
 * be sound.
 *
 * Whoever writes holds the change lock, so there is one writer at a time.
 * Whoever reads is alone, at server start.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "engine/rate.h"
#include "miscadmin.h"
#include "port/pg_crc32c.h"
#include "registry/store.h"
#include "storage/fd.h"

#define STORE_MAGIC		0x64747467	/* "dttg" */
#define STORE_VERSION	1
#define STORE_TEMP_FILE	DT_STORE_FILE ".tmp"

typedef struct StoreHeader
{
	uint32		magic;
	uint32		version;
	uint32		n_entries;
	uint32		entry_size;
	uint32		n_grants;
	uint32		grant_size;
	DtStamp		stamp;
	uint64		system_identifier;	/* of the server that has written it */
} StoreHeader;

/* What all versions have in common: magic and version. */
#define PREFIX_SIZE		offsetof(StoreHeader, n_entries)

/* A file that is larger cannot be one of ours. */
#define STORE_MAX_SIZE	(64 * 1024 * 1024)

/* How often and how long to retry when there are no file descriptors. */
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
 * set.
 */
static const char *
find_damage(const char *image, size_t size, StoreHeader *header)
{
	pg_crc32c	crc;
	pg_crc32c	stored;
	uint64		expected;

	if (size < sizeof(*header) + sizeof(crc))
		return psprintf("it has %zu bytes, less than the smallest possible file",
						size);
	memcpy(header, image, sizeof(*header));
	if (header->magic != STORE_MAGIC)
		return psprintf("it begins with %08X instead of %08X",
						header->magic, STORE_MAGIC);
	if (header->version != STORE_VERSION)
		return psprintf("its format version is %u instead of %u",
						header->version, STORE_VERSION);
	if (header->entry_size != sizeof(DtDefinition))
		return psprintf("its groups have %u bytes instead of %zu",
						header->entry_size, sizeof(DtDefinition));
	if (header->grant_size != sizeof(DtGrant))
		return psprintf("its grants have %u bytes instead of %zu",
						header->grant_size, sizeof(DtGrant));
	expected = sizeof(*header) +
		(uint64) header->n_entries * sizeof(DtDefinition) +
		(uint64) header->n_grants * sizeof(DtGrant) + sizeof(crc);
	if (size != expected)
		return psprintf("it has %zu bytes, which does not fit its %u entries and %u grants",
						size, header->n_entries, header->n_grants);

	if (!checksum_fits(image, size, &stored, &crc))
		return psprintf("its stored checksum is %08X, but the computed one is %08X",
						stored, crc);
	return NULL;
}

/*
 * The definitions of a sound file image.
 */
static void
unpack(const char *image, const StoreHeader *header, DtDefinitions *d)
{
	d->stamp = header->stamp;
	/* as timelines of another server mean nothing here */
	if (header->system_identifier != GetSystemIdentifier())
		d->stamp.timeline = 0;
	d->n_groups = header->n_entries;
	d->n_grants = header->n_grants;
	d->groups = palloc0(Max(d->n_groups, 1) * sizeof(DtDefinition));
	d->grants = palloc0(Max(d->n_grants, 1) * sizeof(DtGrant));
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

DtDefinition *
dt_definitions_find(const DtDefinitions *d, const char *name)
{
	int			i;

	for (i = 0; i < d->n_groups; i++)
		if (strcmp(d->groups[i].name, name) == 0)
			return &d->groups[i];
	return NULL;
}

static int
compare_names(const void *a, const void *b)
{
	return strcmp((*(DtDefinition *const *) a)->name,
				  (*(DtDefinition *const *) b)->name);
}

static int
compare_ids(const void *a, const void *b)
{
	uint64		id_a = (*(DtDefinition *const *) a)->id;
	uint64		id_b = (*(DtDefinition *const *) b)->id;

	return (id_a > id_b) - (id_a < id_b);
}

static int
compare_grants(const void *a, const void *b)
{
	const DtGrant *grant_a = *(DtGrant *const *) a;
	const DtGrant *grant_b = *(DtGrant *const *) b;
	int			result = strcmp(grant_a->group_name, grant_b->group_name);

	return result != 0 ? result :
		(grant_a->role > grant_b->role) - (grant_a->role < grant_b->role);
}

/* Pointers to the elements of an array, sorted. */
static void **
sort_pointers(void *array, int n, size_t size,
			  int (*compare) (const void *, const void *))
{
	void	  **sorted = palloc(Max(n, 1) * sizeof(void *));
	int			i;

	for (i = 0; i < n; i++)
		sorted[i] = (char *) array + i * size;
	qsort(sorted, n, sizeof(void *), compare);
	return sorted;
}

static int
find_twins(void **sorted, int n, int (*compare) (const void *, const void *))
{
	int			i;

	for (i = 1; i < n; i++)
		if (compare(&sorted[i - 1], &sorted[i]) == 0)
			return i;
	return 0;
}

static const char *
twins(const DtDefinitions *d, void **sorted, int i, const char *what)
{
	int			a = (DtDefinition *) sorted[i - 1] - d->groups + 1;
	int			b = (DtDefinition *) sorted[i] - d->groups + 1;

	return psprintf("groups %d and %d have the same %s", Min(a, b), Max(a, b),
					what);
}

/*
 * The checksum only says that the bytes are those that were written.
 */
const char *
dt_definitions_find_invalid(const DtDefinitions *d)
{
	void	  **by_id;
	void	  **by_name;
	void	  **grants;
	int			i;

	if (d->stamp.change < 0)
		return psprintf("its change has the number " INT64_FORMAT,
						d->stamp.change);
	for (i = 0; i < d->n_groups; i++)
	{
		const DtDefinition *definition = &d->groups[i];
		const char *wrong;

		if (!is_name(definition->name))
			return psprintf("group %d has no valid name", i + 1);
		if (definition->id == 0)
			return psprintf("group %d has no ID", i + 1);
		/* else a later change would give it to another group, too */
		if (definition->id > (uint64) d->stamp.change)
			return psprintf("group %d has the ID of a later change", i + 1);
		wrong = dt_definition_find_invalid(definition);
		if (wrong != NULL)
			return psprintf("group %d has %s", i + 1, wrong);
	}
	by_name = sort_pointers(d->groups, d->n_groups, sizeof(DtDefinition),
							compare_names);
	if ((i = find_twins(by_name, d->n_groups, compare_names)) > 0)
		return twins(d, by_name, i, "name");
	by_id = sort_pointers(d->groups, d->n_groups, sizeof(DtDefinition),
						  compare_ids);
	if ((i = find_twins(by_id, d->n_groups, compare_ids)) > 0)
		return twins(d, by_id, i, "ID");

	for (i = 0; i < d->n_grants; i++)
	{
		const DtGrant *grant = &d->grants[i];
		DtDefinition key;
		DtDefinition *pkey = &key;

		memcpy(key.name, grant->group_name, NAMEDATALEN);
		if (!is_name(key.name) || !OidIsValid(grant->role) ||
			bsearch(&pkey, by_name, d->n_groups, sizeof(void *),
					compare_names) == NULL)
			return psprintf("grant %d has no valid group or role", i + 1);
	}
	grants = sort_pointers(d->grants, d->n_grants, sizeof(DtGrant),
						   compare_grants);
	if (find_twins(grants, d->n_grants, compare_grants) > 0)
		return pstrdup("there is a grant twice");
	pfree(by_name);
	pfree(by_id);
	pfree(grants);
	return NULL;
}

int
dt_stamp_compare(const DtStamp *a, const DtStamp *b)
{
	if (a->timeline != b->timeline)
		return a->timeline > b->timeline ? 1 : -1;
	if (a->change != b->change)
		return a->change > b->change ? 1 : -1;
	return (int) a->complete - (int) b->complete;
}

/*
 * FATAL when the file is a sound one of a newer release, as after a downgrade.
 * It must not be put aside as damaged.
 */
static void
refuse_newer(const char *image, size_t size)
{
	StoreHeader header;
	pg_crc32c	stored;
	pg_crc32c	crc;

	/* another version's header may be longer or shorter than this one's */
	if (size < PREFIX_SIZE + sizeof(crc))
		return;
	memcpy(&header, image, PREFIX_SIZE);
	if (header.magic == STORE_MAGIC && header.version > STORE_VERSION &&
		checksum_fits(image, size, &stored, &crc))
		ereport(FATAL,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("file \"%s\" was written by a newer release of dirty_throttle",
						DT_STORE_FILE),
				 errdetail("Its format version is %u, and the newest that this library reads is %u.",
						   header.version, STORE_VERSION),
				 errhint("Install that release again. To start without resource groups, move the file away: mv \"%s/%s\" \"%s/%s.away\".",
						 DataDir, DT_STORE_FILE, DataDir, DT_STORE_FILE)));
}

/*
 * Read the whole file into palloc'd memory; NULL when there is none, or when
 * *damage says what is there instead.  False, with errno, when it cannot be
 * read.  It is looked at before it is opened: opening a pipe would hang.
 */
static bool
try_read_file(char **image, size_t *size, const char **damage)
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
		*damage = S_ISREG(st.st_mode) ? "it is too large" :
			"it is not a regular file";
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
 * The same, but FATAL when the file cannot be read.  Conditions that may pass
 * by themselves are waited for, for a few seconds: in a crash restart the
 * machine may be short of file descriptors.
 */
static char *
read_file(size_t *size, const char **damage)
{
	char	   *image;
	int			tries;

	for (tries = 1; !try_read_file(&image, size, damage); tries++)
	{
		bool		may_pass = errno == EMFILE || errno == ENFILE ||
			errno == ENOMEM || errno == EINTR || errno == EAGAIN ||
			errno == EIO;

		if (!may_pass || tries == READ_TRIES)
			ereport(FATAL,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", DT_STORE_FILE),
					 errdetail("The file defines the resource groups. Without it, their sessions would not be throttled."),
					 errhint("Fix the cause, for example missing permissions with chmod u+rw \"%s/%s\", and start the server again. To start without resource groups, move the file away: mv \"%s/%s\" \"%s/%s.away\".",
							 DataDir, DT_STORE_FILE, DataDir, DT_STORE_FILE,
							 DataDir, DT_STORE_FILE)));
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
 * Rename a damaged file to a name that is not in use, and report it.  The
 * rename is not flushed: after a crash the file would be found and renamed
 * again, and the write of new definitions flushes the directory.
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
			 errmsg("file \"%s\" is damaged", DT_STORE_FILE),
			 errdetail("The file is not usable: %s. No resource groups are defined.",
					   damage),
			 kept ?
			 errhint("The damaged file is kept as \"%s\". Define the groups again, or restore \"%s\" from a good copy and restart the server.",
					 name, DT_STORE_FILE) :
			 errhint("The file could not be renamed to \"%s\": %m. Copy it now if you need it, because the next change of a resource group replaces it.",
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
	image = read_file(&size, &damage);
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
		damage = dt_definitions_find_invalid(definitions);
	}
	if (damage != NULL)
	{
		memset(definitions, 0, sizeof(*definitions));
		put_aside(damage);
	}
}

/*
 * The temporary file could not be written: remove it, and report that with a
 * message that has the file's name and errno.
 */
static void
write_failed(int fd, const char *message)
{
	int			save_errno = errno ? errno : ENOSPC;

	if (fd >= 0)
		CloseTransientFile(fd);
	unlink(STORE_TEMP_FILE);
	errno = save_errno;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg(message, STORE_TEMP_FILE),
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
	header.stamp = d->stamp;
	header.system_identifier = GetSystemIdentifier();
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
		write_failed(-1, "could not create file \"%s\": %m");
	errno = 0;
	if (write(fd, image, size) != size)
		write_failed(fd, "could not write file \"%s\": %m");
	if (pg_fsync(fd) != 0)
		write_failed(fd, "could not fsync file \"%s\": %m");
	if (CloseTransientFile(fd) != 0)
		write_failed(-1, "could not close file \"%s\": %m");

	/*
	 * If this fails and the temporary file still exists, nothing has changed.
	 * If it does not, only the flush of the directory has failed: the next
	 * start will read the new definitions, so they take effect.  In both
	 * cases durable_rename() has reported the problem.
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
