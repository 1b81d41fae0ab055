/*-------------------------------------------------------------------------
 *
 * reads.c
 *		What surely only reads.
 *
 * Failover tools, poolers and monitoring ask a server how it is, with a
 * time-out, and decide by whether there is an answer.  A throttle must have no
 * part in that.  So what surely only reads is not stopped before it begins,
 * and nothing is paid after a transaction that has done no more than that.
 * This file knows what that is; pay.c acts on it.
 *
 * It errs on the safe side: what it does not know may write.  A function of a
 * user may, whatever it is declared as.  Of the server's own functions those may
 * not that are declared immutable or stable, but for a few, and those volatile
 * ones that are listed here.  They are known by their OIDs, so nobody can put
 * another one in their place.
 *
 * Functions that are not seen in a query (in a view, in a policy, in a prepared
 * statement) are seen when the executor prepares to call them: each then comes
 * to the hook for function calls, which asks here, too.  So do those that one
 * of the server's functions calls, as table_to_xml() does with any view.
 *
 * To read may also dirty a page, by a hint bit for example.  That is charged
 * like everything else; see charge_and_pause_at() in pay.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "commands/defrem.h"
#include "commands/prepare.h"
#include "nodes/nodeFuncs.h"
#include "session/reads.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"

uint8		dt_reads_known[FirstNormalObjectId / 4];

/* Stable ones that write WAL, with the transaction ID that they assign. */
static const Oid writes_though_stable[] = {
	F_PG_CURRENT_XACT_ID,
	F_TXID_CURRENT
};

/*
 * Volatile ones that do not write shared buffers or WAL.  Those that take a
 * lock are not here, as the session would keep it in the next pause; those that
 * release one are.  Large objects are here, as pg_dump reads them while it has
 * locked all tables: their lock on the table that stores them is not stronger
 * than that of a session that writes.
 */
static const Oid reads_though_volatile[] = {
	/* time and chance */
	F_CLOCK_TIMESTAMP,
	F_GEN_RANDOM_UUID,
	F_PG_SLEEP,
	F_PG_SLEEP_FOR,
	F_PG_SLEEP_UNTIL,
	F_RANDOM_,
	F_SETSEED,
	F_TIMEOFDAY,

	/* large objects, as far as they are read */
	F_LOREAD,
	F_LO_CLOSE,
	F_LO_EXPORT,
	F_LO_GET_OID,
	F_LO_GET_OID_INT8_INT4,
	F_LO_LSEEK,
	F_LO_LSEEK64,
	F_LO_OPEN,
	F_LO_TELL,
	F_LO_TELL64,

	/* the session */
	F_CURRENT_QUERY,
	F_CURRVAL,
	F_LASTVAL,
	F_PG_ADVISORY_UNLOCK_ALL,
	F_PG_ADVISORY_UNLOCK_INT4_INT4,
	F_PG_ADVISORY_UNLOCK_INT8,
	F_PG_ADVISORY_UNLOCK_SHARED_INT4_INT4,
	F_PG_ADVISORY_UNLOCK_SHARED_INT8,
	F_PG_GET_BACKEND_MEMORY_CONTEXTS,
	F_PG_STAT_CLEAR_SNAPSHOT,
	F_PG_STAT_FORCE_NEXT_FLUSH,
	F_PG_STAT_GET_XACT_BLOCKS_FETCHED,
	F_PG_STAT_GET_XACT_BLOCKS_HIT,
	F_PG_STAT_GET_XACT_FUNCTION_CALLS,
	F_PG_STAT_GET_XACT_FUNCTION_SELF_TIME,
	F_PG_STAT_GET_XACT_FUNCTION_TOTAL_TIME,
	F_PG_STAT_GET_XACT_NUMSCANS,
	F_PG_STAT_GET_XACT_TUPLES_DELETED,
	F_PG_STAT_GET_XACT_TUPLES_FETCHED,
	F_PG_STAT_GET_XACT_TUPLES_HOT_UPDATED,
	F_PG_STAT_GET_XACT_TUPLES_INSERTED,
	F_PG_STAT_GET_XACT_TUPLES_RETURNED,
	F_PG_STAT_GET_XACT_TUPLES_UPDATED,
	F_PG_STAT_HAVE_STATS,
	F_SET_CONFIG,

	/* recovery, replication, WAL positions */
	F_PG_CREATE_PHYSICAL_REPLICATION_SLOT,
	F_PG_CURRENT_WAL_FLUSH_LSN,
	F_PG_CURRENT_WAL_INSERT_LSN,
	F_PG_CURRENT_WAL_LSN,
	F_PG_DROP_REPLICATION_SLOT,
	F_PG_GET_WAL_REPLAY_PAUSE_STATE,
	F_PG_IS_IN_RECOVERY,
	F_PG_IS_WAL_REPLAY_PAUSED,
	F_PG_LAST_WAL_RECEIVE_LSN,
	F_PG_LAST_WAL_REPLAY_LSN,
	F_PG_LAST_XACT_REPLAY_TIMESTAMP,
	F_PG_PROMOTE,
	F_PG_REPLICATION_ORIGIN_PROGRESS,
	F_PG_REPLICATION_SLOT_ADVANCE,
	F_PG_SHOW_REPLICATION_ORIGIN_STATUS,
	F_PG_STAT_GET_RECOVERY_PREFETCH,
	F_PG_WAL_REPLAY_PAUSE,
	F_PG_WAL_REPLAY_RESUME,

	/* the server */
	F_PG_BLOCKING_PIDS,
	F_PG_CANCEL_BACKEND,
	F_PG_CONTROL_CHECKPOINT,
	F_PG_CONTROL_INIT,
	F_PG_CONTROL_RECOVERY,
	F_PG_CONTROL_SYSTEM,
	F_PG_CURRENT_LOGFILE_,
	F_PG_CURRENT_LOGFILE_TEXT,
	F_PG_GET_SHMEM_ALLOCATIONS,
	F_PG_GET_WAL_RESOURCE_MANAGERS,
	F_PG_HBA_FILE_RULES,
	F_PG_IDENT_FILE_MAPPINGS,
	F_PG_JIT_AVAILABLE,
	F_PG_LOCK_STATUS,
	F_PG_LOG_BACKEND_MEMORY_CONTEXTS,
	F_PG_NOTIFICATION_QUEUE_USAGE,
	F_PG_PREPARED_XACT,
	F_PG_RELOAD_CONF,
	F_PG_SAFE_SNAPSHOT_BLOCKING_PIDS,
	F_PG_SHOW_ALL_FILE_SETTINGS,
	F_PG_TERMINATE_BACKEND,

	/* files and sizes */
	F_PG_DATABASE_SIZE_NAME,
	F_PG_DATABASE_SIZE_OID,
	F_PG_INDEXES_SIZE,
	F_PG_LS_ARCHIVE_STATUSDIR,
	F_PG_LS_DIR_TEXT,
	F_PG_LS_DIR_TEXT_BOOL_BOOL,
	F_PG_LS_LOGDIR,
	F_PG_LS_LOGICALMAPDIR,
	F_PG_LS_LOGICALSNAPDIR,
	F_PG_LS_REPLSLOTDIR,
	F_PG_LS_TMPDIR_,
	F_PG_LS_TMPDIR_OID,
	F_PG_LS_WALDIR,
	F_PG_READ_BINARY_FILE_TEXT,
	F_PG_READ_BINARY_FILE_TEXT_INT8_INT8,
	F_PG_READ_BINARY_FILE_TEXT_INT8_INT8_BOOL,
	F_PG_READ_FILE_TEXT,
	F_PG_READ_FILE_TEXT_INT8_INT8,
	F_PG_READ_FILE_TEXT_INT8_INT8_BOOL,
	F_PG_RELATION_SIZE_REGCLASS,
	F_PG_RELATION_SIZE_REGCLASS_TEXT,
	F_PG_STAT_FILE_TEXT,
	F_PG_STAT_FILE_TEXT_BOOL,
	F_PG_TABLE_SIZE,
	F_PG_TABLESPACE_SIZE_NAME,
	F_PG_TABLESPACE_SIZE_OID,
	F_PG_TOTAL_RELATION_SIZE,

	/* transactions and catalogs */
	F_PG_COLLATION_ACTUAL_VERSION,
	F_PG_DATABASE_COLLATION_ACTUAL_VERSION,
	F_PG_EXPORT_SNAPSHOT,
	F_PG_GET_MULTIXACT_MEMBERS,
	F_PG_LAST_COMMITTED_XACT,
	F_PG_PARTITION_ANCESTORS,
	F_PG_PARTITION_TREE,
	F_PG_SEQUENCE_LAST_VALUE,
	F_PG_XACT_COMMIT_TIMESTAMP,
	F_PG_XACT_COMMIT_TIMESTAMP_ORIGIN,
	F_PG_XACT_STATUS,
	F_TXID_STATUS,

	/* later than 15, from compat.h, each with its comma */
	DT_READERS_16
	DT_READERS_17
	DT_READERS_18
};

/*
 * Functions in C of other extensions in pg_catalog, where only superusers can
 * create any.  Citus calls this one with the BEGIN of a transaction on another
 * node, and cannot be canceled until it has the answer.
 */
static const char *const reads_of_others[] = {
	"assign_distributed_transaction_id"
};

static bool
is_listed(Oid function, const Oid *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i] == function)
			return true;
	return false;
}

/* Is the library of a function in C this one? */
static bool
is_ours(HeapTuple function)
{
	Datum		library;
	bool		isnull;
	bool		result;
	char	   *path;

	library = SysCacheGetAttr(PROCOID, function, Anum_pg_proc_probin, &isnull);
	if (isnull)
		return false;
	path = TextDatumGetCString(library);
	result = strcmp(last_dir_separator(path) ? last_dir_separator(path) + 1 : path,
					"dirty_throttle") == 0;
	pfree(path);
	return result;
}

/*
 * Is this one of the functions of extensions that are known?  All of this one
 * are: they write little, if anything, and by some of them somebody leaves a
 * group, resumes one, or looks what is going on.
 */
static bool
is_known_extension(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc form;
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tuple);
	if (form->prolang == ClanguageId)
	{
		/* what run_in_batches() does may write, and it says so itself */
		result = is_ours(tuple) && form->prokind != PROKIND_PROCEDURE;
		for (int i = 0; i < lengthof(reads_of_others); i++)
			result |= form->pronamespace == PG_CATALOG_NAMESPACE &&
				strcmp(NameStr(form->proname), reads_of_others[i]) == 0;
	}
	ReleaseSysCache(tuple);
	return result;
}

bool
dt_reads_function_slow(Oid function)
{
	uint8	   *known;
	int			shift = function % 4 * 2;
	bool		reads;

	if (!IsTransactionState())
		return false;
	if (function >= FirstNormalObjectId)
		return is_known_extension(function);
	known = &dt_reads_known[function / 4];
	if ((*known >> shift) & DT_FUNCTION_KNOWN)
		return false;
	reads = func_volatile(function) != PROVOLATILE_VOLATILE ?
		!is_listed(function, writes_though_stable, lengthof(writes_though_stable)) :
		is_listed(function, reads_though_volatile, lengthof(reads_though_volatile));
	*known |= (DT_FUNCTION_KNOWN | (reads ? DT_FUNCTION_READS : 0)) << shift;
	return reads;
}

static bool
function_may_write(Oid function, void *context)
{
	return !dt_reads_function(function);
}

/* Does a part of a query that is written out in it write, as far as known? */
static bool
may_write(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		Query	   *query = (Query *) node;

		return query->commandType != CMD_SELECT || query->rowMarks != NIL ||
			query->hasModifyingCTE ||
			query_tree_walker(query, may_write, context, 0);
	}
	return IsA(node, NextValueExpr) ||
		check_functions_in_node(node, function_may_write, context) ||
		expression_tree_walker(node, may_write, context);
}

/*
 * Does this query, which has just been analyzed, only read, as far as can be
 * told from it?  Views and policies are not looked into.
 */
bool
dt_reads_query(Query *query)
{
	return !may_write((Node *) query, NULL);
}

/* The same for one in a command, which another library may not have analyzed. */
static bool
node_reads(Node *query)
{
	return IsA(query, Query) && dt_reads_query((Query *) query);
}

static bool
queries_read(List *queries)
{
	ListCell   *lc;

	foreach(lc, queries)
	{
		if (!node_reads(lfirst(lc)))
			return false;
	}
	return true;
}

/*
 * Without its queries, which were invalidated and could not be analyzed again
 * then, only its kind is known.
 */
static bool
prepared_reads(const char *name)
{
	PreparedStatement *statement = FetchPreparedStatement(name, false);

	if (statement == NULL)
		return true;			/* an error */
	return statement->plansource->commandTag == CMDTAG_SELECT &&
		queries_read(statement->plansource->query_list);
}

static bool
explained_reads(ExplainStmt *command)
{
	bool		runs = false;
	ListCell   *lc;

	foreach(lc, command->options)
	{
		DefElem    *option = lfirst(lc);

		if (strcmp(option->defname, "analyze") == 0)
			runs = defGetBoolean(option);
	}
	return !runs || node_reads(command->query);
}

/*
 * Does this kind of command only read, but for what queries in it may do?
 * These come to the executor, which asks for each of them.  Not for BEGIN, COMMIT
 * and the like, for which the caller need not ask.
 */
bool
dt_reads_command(Node *command)
{
	switch (nodeTag(command))
	{
		case T_VariableSetStmt:
		case T_VariableShowStmt:
		case T_DiscardStmt:
		case T_DeclareCursorStmt:
		case T_FetchStmt:
		case T_ClosePortalStmt:
		case T_PrepareStmt:
		case T_ExecuteStmt:
		case T_DeallocateStmt:
		case T_ExplainStmt:
		case T_ListenStmt:
		case T_UnlistenStmt:
		case T_LoadStmt:
			return true;
		case T_AlterSystemStmt: /* writes a file */
		case T_CheckPointStmt:	/* has the checkpointer work */
			return true;
		case T_CopyStmt:
			return !((CopyStmt *) command)->is_from;
		case T_LockStmt:
			return ((LockStmt *) command)->mode == AccessShareLock;
		default:
			return false;
	}
}

/*
 * Do the queries in such a command, which has been analyzed, only read, as far
 * as can be told from them?  That of COPY has not been analyzed.
 */
bool
dt_reads_queries_of(Node *command)
{
	switch (nodeTag(command))
	{
		case T_DeclareCursorStmt:
			return node_reads(((DeclareCursorStmt *) command)->query);
		case T_ExecuteStmt:
			return prepared_reads(((ExecuteStmt *) command)->name);
		case T_ExplainStmt:
			return explained_reads((ExplainStmt *) command);
		case T_CopyStmt:
			return ((CopyStmt *) command)->query == NULL ||
				IsA(((CopyStmt *) command)->query, SelectStmt);
		default:
			return true;
	}
}
