/*-------------------------------------------------------------------------
 *
 * pace_copy.c
 *		Safe points between two rows of COPY FROM.
 *
 * COPY FROM does not go through the executor, but it evaluates its WHERE
 * clause for every row.  So a member's COPY gets a condition that is always
 * true: a call of our SQL function, which paces.  It is STABLE because COPY
 * inserts row by row when the clause is volatile.
 *
 * The function is the one of the extension in this database.  Where the
 * extension is missing or the role may not call it, the statement stays as it
 * is and is paid for after the transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "account.h"
#include "catalog/dependency.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "pace.h"
#include "session.h"
#include "statement.h"
#include "tcop/utility.h"
#include "utils/catcache.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"

static ProcessUtility_hook_type next_process_utility = NULL;

/*
 * The schema of our function, or NULL when there is none that this role may
 * call.
 */
static char *
pace_function_schema(void)
{
	Oid			extension = get_extension_oid("dirty_throttle", true);
	Oid			schema = InvalidOid;
	CatCList   *candidates;
	int			i;

	if (!OidIsValid(extension))
		return NULL;

	candidates = SearchSysCacheList1(PROCNAMEARGSNSP,
									 CStringGetDatum(DT_PACE_FUNCTION));
	for (i = 0; i < candidates->n_members; i++)
	{
		Form_pg_proc proc = (Form_pg_proc)
			GETSTRUCT(&candidates->members[i]->tuple);

		if (proc->pronargs == 0 &&
			getExtensionOfObject(ProcedureRelationId, proc->oid) == extension &&
			object_aclcheck(ProcedureRelationId, proc->oid, GetUserId(),
							ACL_EXECUTE) == ACLCHECK_OK &&
			object_aclcheck(NamespaceRelationId, proc->pronamespace,
							GetUserId(), ACL_USAGE) == ACLCHECK_OK)
			schema = proc->pronamespace;
	}
	ReleaseSysCacheList(candidates);
	return OidIsValid(schema) ? get_namespace_name(schema) : NULL;
}

/*
 * A copy of this statement that paces, or the statement itself.
 */
static PlannedStmt *
add_pacing(PlannedStmt *pstmt)
{
	char	   *schema = pace_function_schema();
	CopyStmt   *copy;
	Node	   *call;

	if (schema == NULL)
		return pstmt;
	pstmt = copyObject(pstmt);	/* it may be a cached plan's */
	copy = castNode(CopyStmt, pstmt->utilityStmt);
	call = (Node *) makeFuncCall(list_make2(makeString(schema),
											makeString(DT_PACE_FUNCTION)),
								 NIL, COERCE_EXPLICIT_CALL, -1);
	if (copy->whereClause != NULL)
		call = (Node *) makeBoolExpr(AND_EXPR,
									 list_make2(call, copy->whereClause), -1);
	copy->whereClause = call;
	return pstmt;
}

static void
pace_copy_utility(PlannedStmt *pstmt, const char *queryString,
				  bool readOnlyTree, ProcessUtilityContext context,
				  ParamListInfo params, QueryEnvironment *queryEnv,
				  DestReceiver *dest, QueryCompletion *qc)
{
	if (dt_session_active() && IsA(pstmt->utilityStmt, CopyStmt) &&
		((CopyStmt *) pstmt->utilityStmt)->is_from)
	{
		dt_session_begin_statement();
		if (dt_account_is_open())
			pstmt = add_pacing(pstmt);
	}

	dt_process_utility(next_process_utility, pstmt, queryString,
					   readOnlyTree, context, params, queryEnv, dest, qc);
}

void
dt_pace_copy_init(void)
{
	next_process_utility = ProcessUtility_hook;
	ProcessUtility_hook = pace_copy_utility;
}
