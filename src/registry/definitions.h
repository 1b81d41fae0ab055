/*-------------------------------------------------------------------------
 *
 * definitions.h
 *		Reading and changing the definitions of groups, in a transaction.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEFINITIONS_H
#define DT_DEFINITIONS_H

#include "nodes/pg_list.h"
#include "registry/definition.h"
#include "utils/guc.h"

/* All that the text has of a group. */
typedef struct DtEntry
{
	DtDefinition definition;	/* comes first */
	List	   *grants;			/* names of roles */
	List	   *unknown;		/* words of a later release */
	bool		has_slot;		/* for load.c */
} DtEntry;

/*
 * The entries of a text (NULL counts as an empty one), palloc'd.  When
 * something is wrong with it, *problem is a sentence that says what; else
 * NULL.
 */
extern List *dt_definitions_parse(const char *string, const char **problem);

/* The entries as an array, palloc'd and sorted, and what to sort them by. */
extern DtEntry **dt_definitions_sort(List *entries,
									 int (*compare) (const void *, const void *));
extern int	dt_compare_ids(const void *a, const void *b);
extern int	dt_compare_names(const void *a, const void *b);

/*
 * All entries as they are for this transaction, palloc'd.  When the row cannot
 * be understood: ERROR, or none.
 */
extern List *dt_definitions_read(bool fail);
extern DtEntry *dt_definitions_find(List *entries, const char *name);

/*
 * Change them, in this transaction: begin, edit, write.  The first of these is
 * for who does something else before: ERROR where a transaction cannot write.
 */
extern void dt_definitions_need_writable(void);
extern List *dt_definitions_begin_change(void);
extern void dt_definitions_write(List *entries);

/* Check hook of dirty_throttle.groups. */
extern bool dt_check_definitions(char **newval, void **extra,
								 GucSource source);

#endif							/* DT_DEFINITIONS_H */
