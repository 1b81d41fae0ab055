/*-------------------------------------------------------------------------
 *
 * line_check.h
 *		What the unit test and the fuzzer of line.c share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LINE_CHECK_H
#define DT_LINE_CHECK_H

#include "postgres.h"

#include <stdlib.h>
#include <string.h>

#include "follow/line.h"

static uint32
sum(const char *data, size_t size)
{
	uint32		hash = 2166136261u;

	while (size-- > 0)
		hash = (hash ^ (unsigned char) *data++) * 16777619u;
	return hash;
}

static void *
zeroed(size_t n, size_t size)
{
	/* exactly as much as is asked for, so that a sanitizer sees more */
	return calloc(n > 0 ? n : 1, size);
}

static void
allocate(DtDefinitions *d, int n_groups, int n_grants)
{
	memset(d, 0, sizeof(*d));
	d->n_groups = n_groups;
	d->n_grants = n_grants;
	d->groups = zeroed(n_groups, sizeof(DtDefinition));
	d->grants = zeroed(n_grants, sizeof(DtGrant));
}

static void
release(DtDefinitions *d)
{
	free(d->groups);
	free(d->grants);
}

/* Read a line as a whole; false: see reader->problem.  Always to be released. */
static bool
read_line(DtLineReader *reader, const char *line, size_t size,
		  DtChecksum checksum, DtDefinitions *d)
{
	memset(d, 0, sizeof(*d));
	if (!dt_line_open(reader, line, size, checksum))
		return false;
	allocate(d, reader->n_groups, reader->n_grants);
	d->stamp = reader->stamp;
	return dt_line_read(reader, d);
}

static bool
same(const DtDefinitions *a, const DtDefinitions *b)
{
	return a->n_groups == b->n_groups && a->n_grants == b->n_grants &&
		a->stamp.timeline == b->stamp.timeline &&
		a->stamp.change == b->stamp.change &&
		a->stamp.complete == b->stamp.complete &&
		memcmp(a->groups, b->groups, a->n_groups * sizeof(DtDefinition)) == 0 &&
		memcmp(a->grants, b->grants, a->n_grants * sizeof(DtGrant)) == 0;
}

#endif							/* DT_LINE_CHECK_H */
