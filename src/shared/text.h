/*-------------------------------------------------------------------------
 *
 * text.h
 *		The definitions of all groups as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEXT_H
#define DT_TEXT_H

#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "shared/definition.h"

/* All that the text has of a group. */
typedef struct DtEntry
{
	DtDefinition definition;	/* comes first */
	List	   *grants;			/* names of roles, as String nodes */
	List	   *unknown;		/* words of a later release */
	bool		has_slot;		/* for load.c */
} DtEntry;

extern void dt_definition_init(DtDefinition *d, const char *name);
extern void dt_text_append(StringInfo to, const DtEntry *entry);
extern List *dt_text_read(const char *string, const char **problem);

#endif							/* DT_TEXT_H */
