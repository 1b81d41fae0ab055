/*-------------------------------------------------------------------------
 *
 * text.h
 *		The definitions of all groups as text.
 *
 * Of PostgreSQL this needs a few types only, so that a plain C program can
 * drive it; see text.c for the form.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEXT_H
#define DT_TEXT_H

#include "registry/definition.h"

/* Room for a name, for a threshold, and for what is written of a group. */
#define DT_TEXT_NAME_SIZE		(2 * NAMEDATALEN + 2)
#define DT_TEXT_THRESHOLD_SIZE	32
#define DT_TEXT_GROUP_SIZE		1024

/* Of a group that has just been created; without limits. */
extern void dt_definition_init(DtDefinition *d, const char *name);

/* Does the threshold of this signal have that unit?  Is it in range? */
extern bool dt_signal_has_unit(DtSignal signal, DtUnit unit);
extern bool dt_threshold_in_range(const DtThreshold *t);

/*
 * Write a threshold with a zero at its end, a name without one (the result is
 * where it ends), and a group: its name and properties, in a line that is open
 * for more words.
 */
extern void dt_text_write_threshold(char *to, const DtThreshold *t);
extern char *dt_text_write_name(char *to, const char *name);
extern void dt_text_write_group(char *to, const DtDefinition *d);

/* A text that is being read. */
typedef struct DtTextReader
{
	const char *next;			/* what has not been read yet */
	int			line;			/* from 1 */
	uint64		seen;			/* properties of this group */
	char		problem[120];	/* empty: none yet.  ASCII, without anything
								 * that was read but keys */
} DtTextReader;

typedef enum DtTextWord
{
	DT_TEXT_END,				/* of the line */
	DT_TEXT_GRANT,				/* name has the role */
	DT_TEXT_UNKNOWN,			/* to this release: size bytes at start */
	DT_TEXT_BAD					/* see problem */
} DtTextWord;

/* Found by dt_text_next_word(). */
typedef struct DtTextFound
{
	char		name[NAMEDATALEN];	/* zero-padded */
	const char *start;
	size_t		size;
} DtTextFound;

/*
 * Read a text that may be anything at all.  dt_text_next_group() returns false
 * at the end, and with a problem.  After it dt_text_next_word() fills in the
 * rest of *d, and returns at each word that is more than that.
 */
extern void dt_text_open(DtTextReader *reader, const char *string);
extern bool dt_text_next_group(DtTextReader *reader, DtDefinition *d);
extern DtTextWord dt_text_next_word(DtTextReader *reader, DtDefinition *d,
									DtTextFound *found);

#endif							/* DT_TEXT_H */
