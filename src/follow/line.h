/*-------------------------------------------------------------------------
 *
 * line.h
 *		All definitions as one line of text, for another server.
 *
 * Of PostgreSQL this needs a few types only, so that a plain C program can
 * drive it; see line.c for the format.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LINE_H
#define DT_LINE_H

#include "registry/store.h"

/*
 * The version of the format.  A release that adds a key increases the second
 * number, one that changes what something means the first.
 */
#ifndef DT_LINE_MAJOR
#define DT_LINE_MAJOR		1
#endif
#define DT_LINE_MINOR		0

/* No server has more than this: 10000 is the highest value of max_groups. */
#define DT_LINE_MAX_GROUPS	10000
#define DT_LINE_MAX_GRANTS	160000
#define DT_LINE_MAX_SIZE	(16 * 1024 * 1024)	/* bytes */

typedef uint32 (*DtChecksum) (const char *data, size_t size);

/*
 * Write definitions, which must be sorted as dt_definitions_copy() does; with
 * a zero at the end.  The result is the length without it.  dt_line_bound() is
 * how much room that may need.
 */
extern size_t dt_line_bound(const DtDefinitions *d);
extern size_t dt_line_write(char *line, const DtDefinitions *d,
							uint64 system_identifier, DtChecksum checksum);

/* A line that is being read. */
typedef struct DtLineReader
{
	const char *next;			/* what has not been read yet */
	const char *end;

	uint64		system_identifier;
	DtStamp		stamp;
	int			n_groups;
	int			n_grants;
	int			ignored;		/* keys that this release does not know */
	char		problem[160];	/* ASCII, without anything that was read but
								 * numbers */
} DtLineReader;

/*
 * Read a line that may be anything at all.  dt_line_open() checks the version
 * and the checksum, and reads the first part.  Then dt_line_read() fills in
 * the rest of *d, whose stamp and whose zeroed arrays with the room that the
 * first part asks for the caller has provided.  Both return false, with
 * "problem", when something is wrong.  That values are in range is left to
 * dt_definitions_find_invalid().
 */
extern bool dt_line_open(DtLineReader *reader, const char *line, size_t size,
						 DtChecksum checksum);
extern bool dt_line_read(DtLineReader *reader, DtDefinitions *d);

#endif							/* DT_LINE_H */
