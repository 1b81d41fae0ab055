/*-------------------------------------------------------------------------
 *
 * notices.h
 *		What whoever sets a threshold should know at once.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_NOTICES_H
#define DT_NOTICES_H

#include "pressure/signals.h"
#include "shared/text.h"

extern void dt_notice_floor(const DtDefinition *d);
extern void dt_notice_others(List *entries, const DtDefinition *d,
							 DtSignal signal);
extern void dt_notice_sampler(void);
extern void dt_notice_pressure(List *entries, const DtDefinition *d,
							   DtSignal signal, DtLook look,
							   const DtFound *found);

#endif							/* DT_NOTICES_H */
