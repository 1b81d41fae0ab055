/*-------------------------------------------------------------------------
 *
 * kind.c
 *		The kind of a statement: control, reading or writing.
 *
 * Failover tools, poolers and monitoring ask a server how it is, with a
 * time-out, and decide by whether there is an answer.  A throttle must have no
 * part in that, so a statement whose kind reads begins at once.  The kind is what
 * the statement says of itself; what functions in it do is found out when they
 * have done it (phase.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/defrem.h"
#include "commands/prepare.h"
#include "session/kind.h"

#include "compat.h"

/*
 * A statement that EXECUTE names.  The first of its queries may be what a rule adds.
 * Without them, which were invalidated and could not be analyzed again, only the
 * command is known; for one that does not exist there will be an error.  What is not
 * SELECT is not looked at: a message of the protocol can prepare any command, also the
 * EXECUTE of itself.
 */
static DtEvent
kind_of_prepared(const char *name)
{
	PreparedStatement *statement = FetchPreparedStatement(name, false);

	if (statement == NULL)
		return DT_READS;
	if (statement->plansource->commandTag != CMDTAG_SELECT)
		return DT_WRITES;
	return statement->plansource->query_list == NIL ? DT_READS :
		dt_kind_of_query(linitial_node(Query, statement->plansource->query_list));
}

static bool
is_analyze(const ExplainStmt *command)
{
	bool		result = false;
	ListCell   *lc;

	foreach(lc, command->options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (strcmp(option->defname, "analyze") == 0)
			result = defGetBoolean(option);
	}
	return result;
}

/* The query of COPY has not been analyzed; the executor asks for its plan, too. */
static DtEvent
kind_of_copy(const CopyStmt *command)
{
	return command->is_from ||
		(command->query != NULL && !IsA(command->query, SelectStmt)) ?
		DT_WRITES : DT_READS;
}

/* Another library may have replaced the analysis of a command. */
static DtEvent
kind_of_node(Node *query)
{
	return IsA(query, Query) ? dt_kind_of_query((Query *) query) : DT_WRITES;
}

DtEvent
dt_kind_of_command(Node *command)
{
	switch (nodeTag(command))
	{
		case T_TransactionStmt:
		case T_VariableSetStmt:
		case T_VariableShowStmt:
		case T_DiscardStmt:
		case T_ListenStmt:
		case T_UnlistenStmt:
		case T_PrepareStmt:
		case T_DeallocateStmt:
		case T_ClosePortalStmt:
		case T_LoadStmt:
		case T_CheckPointStmt:	/* has the checkpointer work */
		case T_AlterSystemStmt: /* writes a file */
			return DT_NO_EVENT;

		case T_FetchStmt:
			DT_READING_COMMANDS_19
				return DT_READS;
		case T_LockStmt:
			return ((LockStmt *) command)->mode == AccessShareLock ?
				DT_READS : DT_WRITES;

		case T_CopyStmt:
			return kind_of_copy((CopyStmt *) command);
		case T_DeclareCursorStmt:
			return kind_of_node(((DeclareCursorStmt *) command)->query);
		case T_ExecuteStmt:
			return kind_of_prepared(((ExecuteStmt *) command)->name);
		case T_ExplainStmt:
			return is_analyze((ExplainStmt *) command) ?
				kind_of_node(((ExplainStmt *) command)->query) : DT_READS;
		default:
			return DT_WRITES;
	}
}

DtEvent
dt_kind_of_query(const Query *query)
{
	if (query->commandType == CMD_UTILITY)
		return dt_kind_of_command(query->utilityStmt);
	return query->commandType == CMD_SELECT && query->rowMarks == NIL &&
		!query->hasModifyingCTE ? DT_READS : DT_WRITES;
}
