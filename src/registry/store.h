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

#include "registry/definition.h"

/* Relative to the data directory, where a base backup picks it up. */
#define DT_STORE_FILE			"dirty_throttle.groups"
#define DT_STORE_DAMAGED_FILE	DT_STORE_FILE ".damaged"

/* A role that may join a group. */
typedef struct DtGrant
{
	char		group_name[NAMEDATALEN];	/* zero-padded */
	Oid			role;
} DtGrant;

/*
 * Which definitions these are: those of a higher timeline are newer, and of
 * the same timeline those of a later change.
 */
typedef struct DtStamp
{
	uint32		timeline;		/* of the primary at the last change; 0: that
								 * was on a standby that did not follow it */
	uint32		complete;		/* 0: some of the primary's did not fit here */
	int64		change;			/* increases with each change; roughly the
								 * time of it, us since 2000 */
} DtStamp;

/*
 * The highest number of a change that another server may have; each server's
 * clock is far from it.  After it there is room for changes of this server.
 */
#define DT_CHANGE_MAX	(PG_INT64_MAX / 2)

typedef struct DtDefinitions
{
	DtStamp		stamp;
	int			n_groups;
	int			n_grants;
	DtDefinition *groups;
	DtGrant    *grants;
} DtDefinitions;

/* The definition of a group, NULL when there is none. */
extern DtDefinition *dt_definitions_find(const DtDefinitions *d,
										 const char *name);

/* Greater, less or equal 0, as a is newer or older than b, or the same. */
extern int	dt_stamp_compare(const DtStamp *a, const DtStamp *b);

/*
 * What is wrong with definitions that come from elsewhere, palloc'd; NULL when
 * nothing is.
 */
extern const char *dt_definitions_find_invalid(const DtDefinitions *d);

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
