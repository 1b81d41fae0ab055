/*-------------------------------------------------------------------------
 *
 * adopt.h
 *		Taking over the definitions of the primary.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ADOPT_H
#define DT_ADOPT_H

#include "registry/store.h"

typedef enum DtAdoption
{
	DT_ADOPTED,					/* they are in effect, and were not before */
	DT_ADOPTED_BEFORE,			/* they were in effect already */
	DT_NOT_ADOPTED_OLDER,		/* those of this server are newer */
	DT_NOT_ADOPTED				/* this server does not follow (any more) */
} DtAdoption;

/*
 * Replace the definitions by these, which must be valid, as far as they fit:
 * the groups that were created last may not, nor their grants.  *left_out is
 * how many groups and grants did not.  ERROR when the file cannot be written.
 * Edits d.
 */
extern DtAdoption dt_adopt(DtDefinitions *d, int *left_out);

#endif							/* DT_ADOPT_H */
