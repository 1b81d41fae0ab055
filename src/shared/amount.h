/*-------------------------------------------------------------------------
 *
 * amount.h
 *		Amounts of bytes, times and shares, as users write and see them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_AMOUNT_H
#define DT_AMOUNT_H

#include "engine/signal.h"

extern const char *dt_amount_hint(DtUnit unit);
extern bool dt_amount_read(DtUnit unit, const char *value,
						   double default_factor, double *amount);
extern char *dt_amount_text(DtUnit unit, int64 amount);
extern char *dt_amount_about(DtUnit unit, int64 amount);

#endif							/* DT_AMOUNT_H */
