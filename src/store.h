/*-------------------------------------------------------------------------
 *
 * store.h
 *		The durable file of group definitions.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STORE_H
#define DT_STORE_H

/* Relative to the data directory, where a base backup picks it up. */
#define DT_STORE_FILE			"dirty_throttle.groups"
#define DT_STORE_DAMAGED_FILE	DT_STORE_FILE ".damaged"

/* What is kept of a group. */
typedef struct DtDefinition
{
	char		name[NAMEDATALEN];	/* zero-padded */
	int64		rate;			/* bytes/s, 0 = no limit */
} DtDefinition;

/*
 * Read all definitions into palloc'd memory and return their number.  Never
 * fails: a damaged file is reported in the server log, put aside under
 * DT_STORE_DAMAGED_FILE and counts as empty.
 */
extern int	dt_store_read(DtDefinition **definitions);

/*
 * Replace the file.  ERROR when that fails; then the old file stands.
 */
extern void dt_store_write(const DtDefinition *definitions, int n);

#endif							/* DT_STORE_H */
