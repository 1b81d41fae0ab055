/*-------------------------------------------------------------------------
 *
 * text_check.h
 *		What the unit test and the fuzzer of text.c share.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEXT_CHECK_H
#define DT_TEXT_CHECK_H

#include "postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registry/text.h"

/*
 * Read a text, and write what was read, into malloc'd memory.  NULL, with a problem in the reader, when it cannot be read.
 */
static char *
rewrite(DtTextReader *reader, const char *string)
{
	char	   *result = malloc((strlen(string) + 2) * DT_TEXT_GROUP_SIZE);
	char	   *to = result;
	DtDefinition d;
	DtTextFound found;

	*to = '\0';
	dt_text_open(reader, string);
	while (dt_text_next_group(reader, &d))
	{
		char	   *words = calloc(1, 3 * strlen(string) + 100);
		char	   *end = words;
		DtTextWord	word;

		while ((word = dt_text_next_word(reader, &d, &found)) > DT_TEXT_END &&
			   word != DT_TEXT_BAD)
		{
			if (word == DT_TEXT_GRANT)
			{
				end += sprintf(end, " grant=");
				end = dt_text_write_name(end, found.name);
			}
			else
				end += sprintf(end, " %.*s", (int) found.size, found.start);
		}
		if (word == DT_TEXT_END)
		{
			if (to != result)
				*to++ = '\n';
			dt_text_write_group(to, &d);
			to += strlen(to);
			to += sprintf(to, "%.*s", (int) (end - words), words);
		}
		free(words);
		if (word == DT_TEXT_BAD)
			break;
	}
	if (reader->problem[0] == '\0')
		return result;
	free(result);
	return NULL;
}

#endif							/* DT_TEXT_CHECK_H */
