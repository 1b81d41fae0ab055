/*-------------------------------------------------------------------------
 *
 * threshold.h
 *		Signals and thresholds, as users write and see them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_THRESHOLD_H
#define DT_THRESHOLD_H

#include "registry/definition.h"

/* The signal of that name; ERROR when it is none. */
extern DtSignal dt_signal_of_name(const char *name);

/* The unit of its values, in which engine/pressure.h has them. */
extern DtUnit dt_signal_unit(DtSignal signal);

/*
 * A threshold as users write it: a number with a unit; NULL for a signal that
 * has none.  ERROR when it does not fit the signal.  dt_threshold_text() is
 * the reverse: palloc'd, or NULL.
 */
extern DtThreshold dt_threshold_parse(DtSignal signal, const char *value,
									  int32 ignore);
extern char *dt_threshold_text(const DtThreshold *threshold);

#endif							/* DT_THRESHOLD_H */
