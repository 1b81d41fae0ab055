/*-------------------------------------------------------------------------
 *
 * reason.h
 *		Why pressure makes a group as slow as it is.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_REASON_H
#define DT_REASON_H

#include "shared/shmem.h"

extern char *dt_reason_text(const DtGroup *g);

#endif							/* DT_REASON_H */
