/*-------------------------------------------------------------------------
 *
 * text.h
 *		The definitions of all groups as text.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEXT_H
#define DT_TEXT_H

#include "nodes/pg_list.h"
#include "shared/definition.h"

typedef enum DtPropertyKind
{
	DT_INTEGER,
	DT_THOUSANDTHS,				/* written as a decimal fraction */
	DT_WORD,					/* one of a list; the value is its index */
	DT_NAME
} DtPropertyKind;

/* A property of a group, in the text and, some of them, in functions. */
typedef struct DtProperty
{
	const char *key;
	DtPropertyKind kind;
	size_t		offset;			/* in DtDefinition: of an int64, or a name */
	int64		min;
	int64		max;			/* of a name its size, with the zero */
	int64		absent;			/* the value when the key is not there */
	DtUnit		unit;			/* of what a function sets, and ... */
	const char *label;			/* ... what messages call it */
	const char *const *words;	/* DT_WORD: the list */
} DtProperty;

/* All that the text has of a group. */
typedef struct DtEntry
{
	DtDefinition definition;	/* comes first */
	List	   *grants;			/* names of roles, as String nodes */
	List	   *unknown;		/* words of a later release */
	List	   *instances;		/* of DtEntry: those that differ from the
								 * group */
	char		instance[NAMEDATALEN];	/* of one of these: the name of its
										 * role or database, and ... */
	uint64		differs;		/* ... a bit for each property that does */
	bool		is_new;			/* created by setting something of it */
	bool		has_slot;		/* for load.c, as is the next */
	Oid			key;			/* of an instance; invalid: there is no such
								 * role or database */
} DtEntry;

extern const DtProperty *dt_property(const char *key);
extern int64 dt_property_word(const DtProperty *property, const char *word);
extern void dt_property_differs(DtEntry *instance, const DtProperty *property);
extern int	dt_entries_slots(List *entries);
extern DtEntry *dt_instance_find(const DtEntry *group, const char *name);
extern DtDefinition dt_instance_definition(const DtEntry *group,
										   const DtEntry *instance);
extern int64 *dt_property_value(const DtDefinition *d,
								const DtProperty *property);
extern void dt_definition_init(DtDefinition *d, const char *name);
extern DtSignal dt_signal_find(const char *name);
extern bool dt_threshold_read(DtSignal signal, const char *value,
							  DtThreshold *t);
extern char *dt_text_write(List *entries);
extern List *dt_text_read(const char *string, const char **problem);
extern int	dt_compare_ids(const ListCell *a, const ListCell *b);
extern int	dt_compare_names(const ListCell *a, const ListCell *b);

#endif							/* DT_TEXT_H */
