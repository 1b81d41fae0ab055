/*-------------------------------------------------------------------------
 *
 * threshold.h
 *		Signals and thresholds, as users write and see them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_THRESHOLD_H
#define DT_THRESHOLD_H

#include "compat.h"
#include "shared/definition.h"

extern bool dt_signal_find(const char *name, DtSignal *signal);
pg_noreturn extern void dt_signal_missing(const char *name);
extern bool dt_threshold_read(DtSignal signal, const char *value,
							  DtThreshold *t);
extern DtThreshold dt_threshold_parse(DtSignal signal, const char *value,
									  int32 ignore);
extern char *dt_threshold_text(const DtThreshold *t);

#endif							/* DT_THRESHOLD_H */
