/*-------------------------------------------------------------------------
 *
 * statement.h
 *		Where statements begin and end.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STATEMENT_H
#define DT_STATEMENT_H

#include "tcop/utility.h"

extern void dt_statement_init(void);

/* What every ProcessUtility hook ends with: the next one, or the core's. */
extern void dt_process_utility(ProcessUtility_hook_type next,
							   PlannedStmt *pstmt, const char *queryString,
							   bool readOnlyTree,
							   ProcessUtilityContext context,
							   ParamListInfo params,
							   QueryEnvironment *queryEnv,
							   DestReceiver *dest, QueryCompletion *qc);

#endif							/* DT_STATEMENT_H */
