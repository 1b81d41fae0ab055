/*-------------------------------------------------------------------------
 *
 * protect.h
 *		What protect_from() chooses for a group on this server.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_PROTECT_H
#define DT_PROTECT_H

#include "nodes/pg_list.h"
#include "shared/definition.h"

extern List *dt_protect_choose(DtDefinition *d);
extern void dt_protect_tell(List *choices, List *entries,
							const DtDefinition *d);

#endif							/* DT_PROTECT_H */
