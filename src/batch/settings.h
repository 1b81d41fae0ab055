/*-------------------------------------------------------------------------
 *
 * settings.h
 *		The settings with which a job is started, and run.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SETTINGS_H
#define DT_SETTINGS_H

#include "utils/array.h"

/* What this session has set, as "name=value".  ERROR if that is too long. */
extern ArrayType *dt_settings_get(void);

/* Set one, whoever may.  In a transaction. */
extern void dt_settings_set(const char *name, const char *value);

/* Set that, with the rights of the present role.  In a transaction. */
extern void dt_settings_apply(ArrayType *settings);

/* Has the user of this session LOGIN? */
extern bool dt_settings_can_log_in(void);

/* ERROR if no background worker can connect as the user of this session. */
extern void dt_settings_check_connection(void);

/* ERROR if the role was dropped that has started a job. */
extern void dt_settings_check_owner(Oid owner, const char *name);

#endif							/* DT_SETTINGS_H */
