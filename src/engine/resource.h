/*-------------------------------------------------------------------------
 *
 * resource.h
 *		The resources that can be limited.
 *
 * For each of them the core has a counter, and each group has a rate engine.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_RESOURCE_H
#define DT_RESOURCE_H

typedef enum DtResource
{
	DT_DIRTY,					/* shared buffers dirtied */
	DT_WAL						/* WAL written */
} DtResource;

#define DT_RESOURCES	2

#endif							/* DT_RESOURCE_H */
