/*-------------------------------------------------------------------------
 *
 * syntax_hint.h
 *		What to type instead of dirty_throttle.group.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_SYNTAX_HINT_H
#define DT_SYNTAX_HINT_H

#include "utils/elog.h"

/* To be called for each message by emit_log_hook. */
extern void dt_syntax_hint_add(ErrorData *error);

#endif							/* DT_SYNTAX_HINT_H */
