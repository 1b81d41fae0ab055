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

#include "batch/statement.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "parser/parsetree.h"
#include "parser/scanner.h"
#include "parser/scansup.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"

#include "compat.h"

#define PLACE	"batch"

/* Reads the tokens of a text. */
typedef struct Reader
{
	const char *source;
	core_yyscan_t scanner;
	core_yy_extra_type extra;
	core_YYSTYPE value;
	YYLTYPE		at;				/* offset of the present token */
	bool		ended;
} Reader;

static void
next_token(Reader *reader)
{
	reader->ended = core_yylex(&reader->value, &reader->at,
							   reader->scanner) == 0;
}

static inline const char *
token(const Reader *reader)
{
	return reader->ended ? "" : reader->source + reader->at;
}

/* Is the token this word, in whatever letters? */
static bool
is_word(const Reader *reader, const char *word)
{
	size_t		len = strlen(word);
	const char *p = token(reader);

	return pg_strncasecmp(p, word, len) == 0 &&
		!isalnum((unsigned char) p[len]) && p[len] != '_' && p[len] != '$' &&
		!IS_HIGHBIT_SET(p[len]);
}

/* Is it a name, or a key word?  Then its value has been set. */
static bool
is_name(const Reader *reader)
{
	unsigned char c = *token(reader);

	return c == '"' || c == '_' || isalpha(c) || IS_HIGHBIT_SET(c);
}

/*
 * An error is about the statement, and so is its position, which nobody could count: it
 * is not that of a place in the client's command, and conditions have been put in.
 */
static void
forget_position(void *arg)
{
	errposition(0);
	internalerrposition(0);
	internalerrquery(NULL);
}

static void
report_malformed(const Reader *reader, int from)
{
	ereport(ERROR,
			(errcode(ERRCODE_SYNTAX_ERROR),
			 errmsg("malformed place for the condition in the statement, at \"%s\"",
					pnstrdup(reader->source + from,
							 pg_mbcliplen(reader->source + from, strlen(reader->source + from), 30))),
			 errhint("Write {batch}, or {batch o} where \"o\" is the alias of the table in the statement.")));
}

/* The token is an opening brace. */
static DtPlace *
read_place(Reader *reader)
{
	DtPlace    *place = palloc0(sizeof(DtPlace));

	place->from = reader->at;
	next_token(reader);
	if (!is_word(reader, PLACE))
		report_malformed(reader, place->from);
	next_token(reader);
	/* the scanner has not decoded U&"..." yet */
	if (is_name(reader) && strncasecmp(token(reader), "u&\"", 3) != 0)
	{
		place->alias = quote_identifier(reader->value.str);
		next_token(reader);
	}
	if (*token(reader) != '}')
		report_malformed(reader, place->from);
	place->to = reader->at + 1;
	return place;
}

/* A parameter of the statement's own would get one of our values. */
static void
check_no_parameter(Reader *reader)
{
	const char *p = token(reader);

	if (p[0] == '$' && isdigit((unsigned char) p[1]))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_PARAMETER),
				 errmsg("a statement that is run in batches cannot have parameters"),
				 errhint("Write the value into the statement, for example with format() and %%L.")));
}

static List *
find_places(Reader *reader)
{
	List	   *places = NIL;

	for (next_token(reader); !reader->ended; next_token(reader))
	{
		if (*token(reader) == '{')
			places = lappend(places, read_place(reader));
		else
			check_no_parameter(reader);
	}
	return places;
}

DtStatement *
dt_statement_parse(const char *source)
{
	DtStatement *statement = palloc(sizeof(DtStatement));
	Reader		reader = {.source = source};
	ErrorContextCallback callback = {
		.callback = forget_position,
		.previous = error_context_stack
	};

	reader.scanner = scanner_init(source, &reader.extra, &ScanKeywords,
								  ScanKeywordTokens);
	dt_scan_without_warnings(&reader.extra);	/* they come later */
	error_context_stack = &callback;
	statement->source = source;
	statement->places = find_places(&reader);
	error_context_stack = callback.previous;
	scanner_finish(reader.scanner);
	if (statement->places == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the statement has no {batch}"),
				 errdetail("In quotes and comments it does not count."),
				 errhint("Write {batch} where the condition for a range of keys belongs, for example: UPDATE orders SET state = lower(state) WHERE {batch} AND state <> lower(state).")));
	return statement;
}

static char *
fill(const DtStatement *statement, const DtKey *key,
	 const DtRange *range)
{
	StringInfoData buf;
	int			from = 0;

	initStringInfo(&buf);
	foreach_ptr(DtPlace, place, statement->places)
	{
		appendBinaryStringInfo(&buf, statement->source + from,
							   place->from - from);
		dt_key_condition(&buf, key, place->alias, range);
		from = place->to;
	}
	appendStringInfoString(&buf, statement->source + from);
	return buf.data;
}

static void
add_hint(void *arg)
{
	const DtKey *key = arg;

	forget_position(NULL);
	if (geterrcode() == ERRCODE_SYNTAX_ERROR)
		errhint("The statement must be an UPDATE, DELETE, INSERT, MERGE or SELECT, with {batch} where a condition can be.");
	else if (geterrcode() == ERRCODE_AMBIGUOUS_COLUMN)
		errhint("{batch} stands for a condition on the key columns (%s). Write {batch o} where \"o\" is the alias of the table in the statement.",
				key->columns);
	else if (geterrcode() == ERRCODE_UNDEFINED_TABLE)
		errhint("Write {batch o} where \"o\" is the alias of the table in the statement. If a table was renamed since the batches have begun, give it its name again.");
}

SPIPlanPtr
dt_statement_prepare(const DtStatement *statement, const DtKey *key,
					 const DtRange *range)
{
	ErrorContextCallback callback = {
		.callback = add_hint,
		.arg = unconstify(DtKey *, key),
		.previous = error_context_stack
	};
	SPIPlanPtr	plan;

	error_context_stack = &callback;
	plan = dt_key_prepare(fill(statement, key, range), dt_key_params(key, range));
	error_context_stack = callback.previous;
	return plan;
}

static CachedPlanSource *
source_of(SPIPlanPtr plan)
{
	return linitial(SPI_plan_get_plan_sources(plan));
}

static bool
can_be_run(const CachedPlanSource *source)
{
	switch (source->commandTag)
	{
		case CMDTAG_UPDATE:
		case CMDTAG_DELETE:
		case CMDTAG_INSERT:
		case CMDTAG_MERGE:
			return true;
		case CMDTAG_SELECT:
			/* SELECT INTO has become a command */
			return source->query_list != NIL &&
				linitial_node(Query, source->query_list)->commandType != CMD_UTILITY;
		default:
			return false;
	}
}

/* Rows whose key changes may be seen again, or never. */
static void
check_key_stays(const Query *query, const DtKey *key, Oid table)
{
	if (query->commandType != CMD_UPDATE ||
		rt_fetch(query->resultRelation, query->rtable)->relid != table)
		return;
	foreach_ptr(TargetEntry, entry, query->targetList)
	{
		for (int i = 0; i < key->n; i++)
			if (!entry->resjunk && entry->resno == key->column[i].attnum)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("the statement changes column %s, along which the batches go",
								key->column[i].name),
						 errdetail("A row that moves ahead would be changed again, and one that moves back might be left out."),
						 errhint("Name the columns of another index as the \"key\".")));
	}
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
					 errdetail("A background worker runs them, which does not see the temporary tables of this session."),
					 errhint("Use an ordinary table, for example an UNLOGGED one.")));
	}
}

bool
dt_statement_check(SPIPlanPtr plan, const DtKey *key, Oid table)
{
	CachedPlanSource *source = source_of(plan);

	if (list_length(SPI_plan_get_plan_sources(plan)) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("more than one statement cannot be run in batches"),
				 errhint("Use a job for each of them, or a data-modifying WITH clause.")));
	if (!can_be_run(source))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be run in batches",
						source->commandTag == CMDTAG_SELECT ? "SELECT INTO" :
						GetCommandTagName(source->commandTag)),
				 errhint("The statement must be an UPDATE, DELETE, INSERT, MERGE or SELECT.")));
	if (!list_member_oid(source->relationOids, table))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the statement does not name table %s, along whose key the batches go",
						key->table),
				 errdetail("Rows of other tables would be changed again by each batch, or by none."),
				 errhint("Name the table of the statement, or write a condition that joins the two.")));
	check_no_temporary(source);
	foreach_ptr(Query, query, source->query_list)
		check_key_stays(query, key, table);
	return source->dependsOnRLS;
}

void
dt_statement_check_again(SPIPlanPtr plan, Oid table, bool row_security)
{
	const CachedPlanSource *source = source_of(plan);

	if (!list_member_oid(source->relationOids, table))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the statement does not name table \"%s\" any more",
						get_rel_name(table)),
				 errdetail("The table was renamed, or search_path has changed, since the batches have begun."),
				 errhint("To go on, give the table its name again. To begin anew, use forget_batches() before.")));
	if (source->dependsOnRLS != row_security)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 row_security ?
				 errmsg("row security does not apply to the statement any more") :
				 errmsg("row security applies to the statement now"),
				 errdetail("Batches that go on would see other rows than those before."),
				 errhint("To begin anew, use forget_batches() before.")));
}

uint64
dt_statement_run(SPIPlanPtr plan, const DtKey *key, const DtRange *range)
{
	SPIExecuteOptions options = {.params = dt_key_params(key, range)};
	int			result = SPI_execute_plan_extended(plan, &options);

	if (result < 0)
		elog(ERROR, "SPI_execute_plan_extended failed: %s",
			 SPI_result_code_string(result));
	return SPI_processed;
}

void
dt_statement_end_deferred(void)
{
	ConstraintsSetStmt *all = makeNode(ConstraintsSetStmt);

	all->deferred = false;
	AfterTriggerSetState(all);
}

bool
dt_statement_updates(SPIPlanPtr plan)
{
	foreach_ptr(Query, query, source_of(plan)->query_list)
	{
		if (query->canSetTag && query->commandType == CMD_UPDATE)
			return true;
	}
	return false;
}
