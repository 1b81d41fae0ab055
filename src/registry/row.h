/*-------------------------------------------------------------------------
 *
 * row.h
 *		The row of the catalog that has the definitions of all groups.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ROW_H
#define DT_ROW_H

#include "storage/itemptr.h"

/* The role whose setting it is, and the parameter that is set. */
#define DT_ROW_ROLE			"dirty_throttle"
#define DT_ROW_PARAMETER	"dirty_throttle.groups"

/* Which version of the row this is; zeroed: there is no row. */
typedef struct DtRowVersion
{
	TransactionId xmin;
	ItemPointerData tid;
} DtRowVersion;

/* The role, or InvalidOid. */
extern Oid	dt_row_role(void);

/* Can the row be read now, in this process? */
extern bool dt_row_is_readable(void);

/*
 * The text as the last transactions that have committed, and this one, have
 * left it, palloc'd, and its version.  NULL: there is none, or it is still of
 * the version "known", which may be NULL.
 */
extern char *dt_row_read(DtRowVersion *version, const DtRowVersion *known);
extern bool dt_row_same_version(const DtRowVersion *a, const DtRowVersion *b);

/* Until the end of the transaction nobody else changes the row. */
extern void dt_row_lock(void);
extern bool dt_row_locked;		/* perhaps; the end of a transaction clears it */

/*
 * Write the text, or with an empty one remove it, whatever privileges the user
 * has: the caller has checked that the user may.  The role is created if it
 * does not exist.
 */
extern void dt_row_write(char *string);

#endif							/* DT_ROW_H */
