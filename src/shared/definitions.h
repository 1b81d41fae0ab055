/*-------------------------------------------------------------------------
 *
 * definitions.h
 *		Reading and changing the definitions of groups, in the catalog.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEFINITIONS_H
#define DT_DEFINITIONS_H

#include "shared/shmem.h"
#include "shared/text.h"
#include "utils/guc.h"

/* The role whose setting the definitions are, and the parameter. */
#define DT_DEFINITIONS_ROLE			"dirty_throttle"
#define DT_DEFINITIONS_PARAMETER	"dirty_throttle.groups"

extern bool dt_check_definitions(char **newval, void **extra,
								 GucSource source);

/* The row */
extern Oid	dt_definitions_role(void);
extern bool dt_definitions_read_row(DtRowVersion *version, char **string);
extern bool dt_definitions_changed(void);
extern List *dt_definitions_read(bool fail);
extern DtEntry *dt_definitions_find(List *entries, const char *name);

/* Whether a group has to exist already when it is changed. */
typedef enum DtDefine
{
	DT_ALTER,					/* must exist */
	DT_ALTER_IF_EXISTS,
	DT_CREATE_OR_ALTER
} DtDefine;

/* Changes, in this transaction: begin or edit, then write */
extern bool dt_definitions_locked;
extern bool dt_definitions_still_locked(void);
extern void dt_definitions_lock(void);
extern List *dt_definitions_begin_change(void);
extern void dt_definitions_check_room(List *entries);
extern DtEntry *dt_definitions_edit(const char *group, DtDefine how,
									List **entries);
extern void dt_definitions_write(List *entries);

#endif							/* DT_DEFINITIONS_H */
