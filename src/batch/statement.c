/*-------------------------------------------------------------------------
 *
 * statement.c
 *		The text of a statement with {batch} in it.
 *
 * The server's own scanner finds the places, so a {batch} in a literal, a quoted
 * name or a comment is none.  Only where each token begins is taken from it, and
 * the text at that place: the numbers of tokens differ from release to release.
 *
 * Conditions refer to values as $1, $2 and so on.  So the statement must not
 * have parameters of its own.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "access/sysattr.h"
#include "access/table.h"
#include "batch/statement.h"
#include "catalog/pg_inherits.h"
#include "commands/trigger.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/optimizer.h"
#include "parser/parsetree.h"
#include "parser/scanner.h"
#include "rewrite/rewriteHandler.h"
#include "tcop/utility.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/rls.h"

#include "compat.h"

#define SPACE	" \t\n\r\f\v"

/*
 * The alias in the {batch alias} at p, or an empty string, and where that ends.  NULL: it
 * is something else, about which the server has an error.
 */
static char *
read_place(const char *p, const char **end)
{
	const char *close = strchr(p, '}');
	const char *word = p + 1 + strspn(p + 1, SPACE);
	const char *alias;

	if (close == NULL || pg_strncasecmp(word, "batch", 5) != 0)
		return NULL;
	alias = word + 5 + strspn(word + 5, SPACE);
	if (alias == word + 5 && alias != close)
		return NULL;
	*end = close + 1;
	return pnstrdup(alias, close - alias);
}

/* The statement with the condition for a range. */
static char *
fill(const char *source, const DtKey *key, const DtRange *range)
{
	core_yy_extra_type extra;
	core_yyscan_t scanner = scanner_init(source, &extra, &ScanKeywords, ScanKeywordTokens);
	core_YYSTYPE value;
	YYLTYPE		at;
	StringInfoData buf;
	const char *from = source;

	dt_scan_without_warnings(&extra);	/* they come later */
	initStringInfo(&buf);
	while (core_yylex(&value, &at, scanner) != 0)
	{
		const char *p = source + at;
		const char *end;
		char	   *alias = *p == '{' ? read_place(p, &end) : NULL;

		/* it would get one of our values */
		if (p[0] == '$' && isdigit((unsigned char) p[1]))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_PARAMETER),
					 errmsg("a statement that is run in batches cannot have parameters"),
					 errhint("Write the value into the statement, for example with format() and %%L.")));
		if (alias == NULL)
			continue;
		appendBinaryStringInfo(&buf, from, p - from);
		dt_key_condition(&buf, key, alias, range);
		from = end;
	}
	scanner_finish(scanner);
	if (from == source)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the statement has no {batch}"),
				 errdetail("{batch} does not count inside quotes or comments.")));
	appendStringInfoString(&buf, from);
	return buf.data;
}

/*
 * An error is about the statement, and so is its position, which nobody could count: it
 * is not that of a place in the client's command, and conditions have been put in.
 */
static void
mend_error(void *arg)
{
	const DtKey *key = arg;

	errposition(0);
	internalerrposition(0);
	internalerrquery(NULL);
	if (geterrcode() == ERRCODE_SYNTAX_ERROR)
		errhint("The statement must be an UPDATE, DELETE, INSERT, MERGE or SELECT, with {batch} where the condition for a range of keys belongs, for example: UPDATE orders SET state = lower(state) WHERE {batch} AND state <> lower(state).");
	else if (geterrcode() == ERRCODE_AMBIGUOUS_COLUMN)
		errhint("{batch} stands for a condition on the key columns (%s). Write {batch o} where \"o\" is the alias of the table in the statement.",
				key->columns);
	else if (geterrcode() == ERRCODE_UNDEFINED_TABLE)
		errhint("Write {batch o} where \"o\" is the alias of the table in the statement. If a table was renamed after the batches began, rename it back.");
}

SPIPlanPtr
dt_statement_prepare(const char *source, const DtKey *key, const DtRange *range)
{
	ErrorContextCallback callback = {
		.callback = mend_error,
		.arg = unconstify(DtKey *, key),
		.previous = error_context_stack
	};
	ParamListInfo params = dt_key_params(key, range);
	Oid			types[2 * INDEX_MAX_KEYS];
	SPIPlanPtr	plan;

	for (int i = 0; i < params->numParams; i++)
		types[i] = params->params[i].ptype;
	error_context_stack = &callback;
	plan = SPI_prepare(fill(source, key, range), params->numParams, types);
	error_context_stack = callback.previous;
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

/* What is looked for in all queries of a statement, those of rules and policies included. */
typedef struct Search
{
	const DtKey *key;
	List	   *heirs;			/* the table, and what inherits from it */
	List	   *sources[INDEX_MAX_KEYS];	/* see get_sources() */
	bool		updates;		/* rows of the table */
	bool		deletes;		/* rows of the table */
	bool		row_security;	/* applies */
} Search;

/*
 * The names of the columns that determine this one: itself, and those from which it is
 * generated.
 */
static List *
get_sources(const List *heirs, char *name)
{
	List	   *sources = list_make1(makeString(name));

	foreach_oid(oid, heirs)
	{
		AttrNumber	attnum = get_attnum(oid, name);
		Relation	heir;
		Bitmapset  *used = NULL;

		if (get_attgenerated(oid, attnum) == '\0')
			continue;
		heir = table_open(oid, AccessShareLock);
		pull_varattnos(build_column_default(heir, attnum), 1, &used);
		table_close(heir, NoLock);
		for (int i = bms_next_member(used, -1); i >= 0; i = bms_next_member(used, i))
			sources = list_append_unique(sources,
										 makeString(get_attname(oid, i + FirstLowInvalidHeapAttributeNumber, false)));
	}
	return sources;
}

/* Rows whose key changes may be seen again, or never. */
static void
check_key_stays(const Search *search, Oid target, const List *entries)
{
	foreach_ptr(TargetEntry, entry, entries)
	{
		for (int i = 0; i < search->key->n; i++)
			if (!entry->resjunk &&
				list_member(search->sources[i], makeString(get_attname(target, entry->resno, false))))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("the statement changes column %s, which is part of the key",
								search->key->column[i].name),
						 errdetail("A row that moves ahead would be changed again, and one that moves back might be left out."),
						 errhint("Name the columns of another index as the \"key\".")));
	}
}

/* A query does this with rows of a table, which may be ours by another name. */
static void
find_change(Search *search, Oid target, CmdType command, const List *entries)
{
	bool		is_ours = list_member_oid(search->heirs, target);

	if (!is_ours)
	{
		foreach_oid(oid, find_all_inheritors(target, NoLock, NULL))
			is_ours = is_ours || list_member_oid(search->heirs, oid);
	}
	if (is_ours && command == CMD_UPDATE)
		check_key_stays(search, target, entries);
	search->updates = search->updates || (is_ours && command == CMD_UPDATE);
	search->deletes = search->deletes || (is_ours && command == CMD_DELETE);
}

static bool
search_node(Node *node, void *arg)
{
	Search	   *search = arg;
	Query	   *query = (Query *) node;

	if (node == NULL)
		return false;
	if (!IsA(node, Query))
		return expression_tree_walker(node, search_node, arg);
	if (query->resultRelation > 0)
	{
		Oid			target = rt_fetch(query->resultRelation, query->rtable)->relid;

		find_change(search, target, query->commandType, query->targetList);
		foreach_ptr(MergeAction, action, query->mergeActionList)
			find_change(search, target, action->commandType, action->targetList);
		if (query->onConflict != NULL && query->onConflict->action == ONCONFLICT_UPDATE)
			find_change(search, target, CMD_UPDATE, query->onConflict->onConflictSet);
	}
	/* query->hasRowSecurity is set where it might apply to another role, too */
	foreach_ptr(RangeTblEntry, entry, query->rtable)
	{
		if (entry->rtekind == RTE_RELATION &&
			check_enable_rls(entry->relid, dt_check_as_user(query, entry), true) == RLS_ENABLED)
			search->row_security = true;
	}
	return query_tree_walker(query, search_node, arg, 0);
}

/* Nobody else sees a temporary table, neither does the worker. */
static void
check_no_temporary(const CachedPlanSource *source)
{
	foreach_oid(oid, source->relationOids)
	{
		if (get_rel_persistence(oid) == RELPERSISTENCE_TEMP)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("temporary table \"%s\" cannot be used in batches", get_rel_name(oid)),
					 errdetail("A background worker runs the statement, and does not see the temporary tables of this session."),
					 errhint("Use an ordinary table, for example an UNLOGGED one.")));
	}
}

DtStatement
dt_statement_check(SPIPlanPtr plan, const DtKey *key, Oid table)
{
	const CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	Query	   *first = source->query_list ? linitial_node(Query, source->query_list) : NULL;
	Search		search = {.key = key};

	if (list_length(SPI_plan_get_plan_sources(plan)) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("more than one statement cannot be run in batches"),
				 errhint("Use a job for each of them, or a data-modifying WITH clause.")));
	if (first != NULL && first->commandType == CMD_UTILITY)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be run in batches", CreateCommandName((Node *) first)),
				 errhint("The statement must be an UPDATE, DELETE, INSERT, MERGE or SELECT.")));
	if (!list_member_oid(source->relationOids, table))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the statement does not name table %s, whose key defines the batches",
						key->table),
				 errdetail("Rows of other tables would be changed again by each batch, or by none."),
				 errhint("Name the table of the statement, or write a condition that joins the two. If it named this one earlier, the table was renamed or search_path has changed.")));
	check_no_temporary(source);
	search.heirs = find_all_inheritors(table, NoLock, NULL);
	for (int i = 0; i < key->n; i++)
		search.sources[i] = get_sources(search.heirs, get_attname(table, key->column[i].attnum, false));

	/*
	 * where a batch ends is found in the table itself, though the statement
	 * may name a view
	 */
	search.row_security = check_enable_rls(table, InvalidOid, true) == RLS_ENABLED;
	(void) search_node((Node *) source->query_list, &search);
	return (DtStatement)
	{
		.row_security = search.row_security,
			.only_updates = search.updates && !search.deletes
	};
}

void
dt_statement_run(SPIPlanPtr plan, const DtKey *key, const DtRange *range)
{
	SPIExecuteOptions options = {.params = dt_key_params(key, range)};
	int			result = SPI_execute_plan_extended(plan, &options);
	ConstraintsSetStmt *all = makeNode(ConstraintsSetStmt);

	if (result < 0)
		elog(ERROR, "SPI_execute_plan_extended failed: %s",
			 SPI_result_code_string(result));

	/*
	 * triggers that are deferred would run in the COMMIT that follows, in
	 * which nothing pauses or counts as part of a batch
	 */
	all->deferred = false;
	AfterTriggerSetState(all);
}
