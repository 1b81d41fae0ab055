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

extern int	dt_reason_signal(const DtGroup *g, bool *at_floor);
extern char *dt_reason_text(const DtGroup *g, DtSignal signal, bool at_floor);

#endif							/* DT_REASON_H */
