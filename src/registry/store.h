/*-------------------------------------------------------------------------
 *
 * store.h
 *		The durable file of the definitions: groups and grants.
 *
 * What changes definitions, and what copies them from shared memory, is in
 * change.h.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STORE_H
#define DT_STORE_H

#include "registry/resource.h"

/* Relative to the data directory, where a base backup picks it up. */
#define DT_STORE_FILE			"dirty_throttle.groups"
#define DT_STORE_DAMAGED_FILE	DT_STORE_FILE ".damaged"

/* What is kept of a group. */
typedef struct DtDefinition
{
	char		name[NAMEDATALEN];	/* zero-padded */
	int64		rate[DT_RESOURCES]; /* bytes/s, 0 = no limit */
	int64		burst_us;
	int64		observe;		/* 1: mode observe; 0: mode enforce */
} DtDefinition;

/* A role that may join a group. */
typedef struct DtGrant
{
	char		group_name[NAMEDATALEN];	/* zero-padded */
	Oid			role;
} DtGrant;

typedef struct DtDefinitions
{
	int			n_groups;
	int			n_grants;
	DtDefinition *groups;
	DtGrant    *grants;
} DtDefinitions;

/* The definition of a group, NULL when there is none. */
extern DtDefinition *dt_definitions_find(const DtDefinitions *d,
										 const char *name);

/*
 * Read all definitions into palloc'd memory, at server start.  A damaged file
 * is reported in the server log, renamed to DT_STORE_DAMAGED_FILE (with .1,
 * .2, ... appended when there is one already), and counts as empty.  FATAL
 * when the file cannot be read, or when a newer release has written it.
 */
extern void dt_store_read(DtDefinitions *definitions);

/*
 * Replace the file.  ERROR when that fails; then the old file is unchanged.
 */
extern void dt_store_write(const DtDefinitions *definitions);

#endif							/* DT_STORE_H */
