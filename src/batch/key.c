/*-------------------------------------------------------------------------
 *
 * key.c
 *		The key along which a table is walked, and positions on the way.
 *
 * A key consists of the first columns of a B-tree index, and the way leads along this
 * index, upwards in all of them.  Only indexes are used whose order is the usual one of
 * the columns' types and collations.  The operators are taken from the operator class,
 * and written with their schemas: whatever search_path is, nobody can put other ones in
 * their place.  Columns are NOT NULL, and of no domain, whose operators could be
 * anybody's.
 *
 * A position is kept as text.  It is written and read with settings of its own,
 * so that each session understands it in the same way.  What is compared is
 * always what has been read from that text; so a text that does not say all
 * moves the end of one batch and the beginning of the next one alike.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "batch/key.h"
#include "catalog/pg_am.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/varlena.h"

#include "compat.h"

/* -------------------------------------------------------- finding an index */

/* Can queries walk along this index?  RelationGetIndexList() leaves out what is dropped. */
static bool
is_usable(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL);
}

/* Are these its first columns?  With n = 0: is it that of the primary key? */
static bool
begins_with(Relation index, const AttrNumber *columns, int n)
{
	if (n == 0)
		return index->rd_index->indisprimary;
	if (n > IndexRelationGetNumberOfKeyAttributes(index))
		return false;
	for (int i = 0; i < n; i++)
		if (index->rd_index->indkey.values[i] != columns[i])
			return false;
	return true;
}

static char *
operator_clause(Oid opno)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(opno));
	Form_pg_operator form;
	char	   *clause;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", opno);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	clause = psprintf("OPERATOR(%s.%s)",
					  quote_identifier(get_namespace_name(form->oprnamespace)),
					  NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return clause;
}

/* Those of each column must be the same, so that rows can be compared. */
static bool
set_operators(DtKey *key, Oid family, Oid type, bool is_first)
{
	for (StrategyNumber i = BTLessStrategyNumber; i <= BTMaxStrategyNumber; i++)
	{
		Oid			opno = get_opfamily_member(family, type, type, i);
		char	   *clause = operator_clause(opno);

		if (is_first)
		{
			key->operators[i] = clause;
			key->comparison = get_opcode(opno);
		}
		else if (strcmp(key->operators[i], clause) != 0)
			return false;
	}
	return true;
}

/* Is this column null in no row?  The constraint of a table need not be that of its heirs. */
static bool
is_never_null(Relation table, AttrNumber attnum)
{
	const char *name = NameStr(TupleDescAttr(RelationGetDescr(table), attnum - 1)->attname);

	/*
	 * they are locked, see dt_job_open_table(); the first one is the table
	 * itself
	 */
	foreach_oid(oid, find_all_inheritors(RelationGetRelid(table), NoLock, NULL))
	{
		Relation	heir = table_open(oid, NoLock);

		/* nobody enforces the constraint of a foreign table */
		bool		not_null = heir->rd_rel->relkind != RELKIND_FOREIGN_TABLE &&
			dt_attribute_not_null(RelationGetDescr(heir), get_attnum(oid, name) - 1);

		table_close(heir, NoLock);
		if (!not_null)
			return false;
	}
	return true;
}

/*
 * False: the index has another order than that of the column's type and collation, or of
 * its other columns.
 */
static bool
describe_column(DtKey *key, Relation table, Relation index, int i,
				StringInfo columns, StringInfo ordering)
{
	DtKeyColumn *column = &key->column[i];
	AttrNumber	attnum = index->rd_index->indkey.values[i];
	Form_pg_attribute attribute =
		TupleDescAttr(RelationGetDescr(table), attnum - 1);
	int16		flags = index->rd_indoption[i];
	const char *separator = i > 0 ? ", " : "";
	Oid			family;
	Oid			type;

	if (!get_opclass_opfamily_and_input_type(GetDefaultOpClass(attribute->atttypid, BTREE_AM_OID),
											 &family, &type) ||
		family != index->rd_opfamily[i] ||
		attribute->attcollation != index->rd_indcollation[i] ||
		flags != index->rd_indoption[0] ||
		(flags != 0 && flags != (INDOPTION_DESC | INDOPTION_NULLS_FIRST)) ||
		!set_operators(key, family, type, i == 0))
		return false;
	column->attnum = attnum;
	column->name = pstrdup(quote_identifier(NameStr(attribute->attname)));
	column->own_type = attribute->atttypid;
	column->type = get_typtype(type) == TYPTYPE_PSEUDO ? attribute->atttypid : type;
	appendStringInfo(columns, "%s%s", separator, column->name);

	/*
	 * the integers have one order, so that a column may become a bigint in
	 * the middle
	 */
	appendStringInfo(ordering, "%s%s", separator,
					 family == INTEGER_BTREE_FAM_OID ? "integer" : format_type_be_qualified(column->type));
	if (OidIsValid(attribute->attcollation))
		appendStringInfo(ordering, " COLLATE %s",
						 quote_identifier(get_collation_name(attribute->attcollation)));
	return true;
}

/*
 * The first n columns of an index as a key, or NULL; n = 0: all.  What is stored of a job
 * is compared with it, whatever the session's settings are.
 */
static DtKey *
describe(Relation table, Relation index, int n)
{
	DtKey	   *key = palloc0(sizeof(DtKey));
	static const char *const settings[][2] = {{"quote_all_identifiers", "off"}};
	bool		all = n == 0 || n == IndexRelationGetNumberOfKeyAttributes(index);
	bool		fits = true;
	StringInfoData columns;
	StringInfoData ordering;
	int			level = dt_key_begin_settings(settings, lengthof(settings));

	initStringInfo(&columns);
	initStringInfo(&ordering);
	key->table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
											RelationGetRelationName(table));
	key->index = pstrdup(RelationGetRelationName(index));
	key->is_unique = index->rd_index->indisunique && all;
	key->n = all ? IndexRelationGetNumberOfKeyAttributes(index) : n;
	for (int i = 0; i < key->n && fits; i++)
		fits = describe_column(key, table, index, i, &columns, &ordering);
	AtEOXact_GUC(true, level);
	key->collation = index->rd_indcollation[0];
	key->columns = columns.data;
	key->ordering = ordering.data;
	return fits ? key : NULL;
}

/* The columns with these names; returns how many. */
static int
parse_columns(Relation table, const char *list, AttrNumber *columns)
{
	List	   *names;
	int			n = 0;

	if (!SplitIdentifierString(pstrdup(list), ',', &names) || names == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid list of key columns: \"%s\"", list),
				 errhint("Write names of columns, separated by commas, for example key => 'created, id'.")));
	foreach_ptr(char, name, names)
	{
		AttrNumber	attnum = get_attnum(RelationGetRelid(table), name);

		if (attnum <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_COLUMN),
					 errmsg("column \"%s\" of table \"%s\" does not exist",
							name, RelationGetRelationName(table)),
					 errhint("\"key\" names the first columns of a B-tree index of the table.")));
		if (n < INDEX_MAX_KEYS)
			columns[n++] = attnum;
	}
	return n;
}

/* A column of a key has a value in each row, and is of no domain. */
static void
check_column(Relation table, const DtKeyColumn *column)
{
	const char *name = RelationGetRelationName(table);

	if (!is_never_null(table, column->attnum))
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("column %s of table \"%s\" may be null, so some rows may have no key",
						column->name, name),
				 errhint("Use ALTER TABLE %s ALTER %s SET NOT NULL, or choose another \"key\".",
						 quote_identifier(name), column->name)));
	if (get_typtype(column->own_type) == TYPTYPE_DOMAIN)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %s of table \"%s\" is of a domain, along which batches cannot go",
						column->name, name),
				 errhint("Choose another \"key\".")));
}

/* The server refuses CONCURRENTLY for partitioned tables. */
static const char *
create_index(Relation table)
{
	return table->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
		"CREATE INDEX" : "CREATE INDEX CONCURRENTLY";
}

static void
report_missing(Relation table, const char *columns, const char *ordering)
{
	const char *name = RelationGetRelationName(table);

	if (ordering != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no index any more with the order in which it has been walked",
						name),
				 errdetail("The columns are %s, and their types and collations %s.",
						   columns, ordering),
				 errhint("Create such an index with %s, or begin anew: use forget_batches().",
						 create_index(table))));
	if (columns != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no valid B-tree index that begins with the key columns in their usual order and has no WHERE clause",
						name),
				 errhint("Use %s ON %s (%s).", create_index(table),
						 quote_identifier(name), columns)));
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 OidIsValid(table->rd_pkindex) ?
			 errmsg("the primary key of table \"%s\" is no valid B-tree index", name) :
			 errmsg("table \"%s\" has no primary key", name),
			 errhint("Name the NOT NULL columns of a B-tree index, for example key => 'created, id'. If there is none, use %s.",
					 create_index(table))));
}

DtKey *
dt_key_find(Relation table, const char *columns, const char *ordering)
{
	AttrNumber	attnums[INDEX_MAX_KEYS];
	int			n = 0;
	DtKey	   *key = NULL;

	if (columns != NULL)
		n = parse_columns(table, columns, attnums);
	foreach_oid(oid, RelationGetIndexList(table))
	{
		Relation	index = index_open(oid, AccessShareLock);

		if (key == NULL && is_usable(index) && begins_with(index, attnums, n))
		{
			key = describe(table, index, n);
			if (key != NULL && ordering != NULL && strcmp(key->ordering, ordering) != 0)
				key = NULL;
		}
		index_close(index, AccessShareLock);
	}
	if (key == NULL)
		report_missing(table, columns, ordering);
	for (int i = 0; i < key->n; i++)
		check_column(table, &key->column[i]);
	return key;
}

/* ----------------------------------------------------------- parts of SQL */

static void
append_columns(StringInfo buf, const DtKey *key, int n, const char *alias)
{
	for (int i = 0; i < n; i++)
		appendStringInfo(buf, "%s%s%s%s", i > 0 ? ", " : "", alias ? alias : "",
						 alias ? "." : "", key->column[i].name);
}

void
dt_key_column_list(StringInfo buf, const DtKey *key, const char *alias)
{
	append_columns(buf, key, key->n, alias);
}

void
dt_key_order(StringInfo buf, const DtKey *key, const char *alias, bool back)
{
	for (int i = 0; i < key->n; i++)
		appendStringInfo(buf, "%s%s.%s USING %s", i > 0 ? ", " : " ORDER BY ", alias,
						 key->column[i].name,
						 key->operators[back ? BTGreaterStrategyNumber : BTLessStrategyNumber]);
}

/* The first n columns, compared with as many parameters. */
static void
append_comparison(StringInfo buf, const DtKey *key, const char *alias, int n,
				  StrategyNumber operator, int param)
{
	appendStringInfoString(buf, "ROW(");
	append_columns(buf, key, n, alias);
	appendStringInfo(buf, ") %s ROW(", key->operators[operator]);
	for (int i = 0; i < n; i++)
		appendStringInfo(buf, "%s$%d", i > 0 ? ", " : "", param + i);
	appendStringInfoChar(buf, ')');
}

void
dt_key_condition(StringInfo buf, const DtKey *key, const char *alias,
				 const DtRange *range)
{
	appendStringInfoString(buf, "(true");
	if (range->low.n > 0)
	{
		appendStringInfoString(buf, " AND ");
		append_comparison(buf, key, alias, range->low.n, range->low_inclusive ?
						  BTGreaterEqualStrategyNumber : BTGreaterStrategyNumber, 1);
	}
	if (range->high.n > 0)
	{
		appendStringInfoString(buf, " AND ");
		append_comparison(buf, key, alias, range->high.n, BTLessEqualStrategyNumber,
						  range->low.n + 1);
	}
	appendStringInfoChar(buf, ')');
}

ParamListInfo
dt_key_params(const DtKey *key, const DtRange *range)
{
	ParamListInfo params = makeParamList(range->low.n + range->high.n);

	for (int i = 0; i < params->numParams; i++)
	{
		bool		low = (i < range->low.n);
		int			column = low ? i : i - range->low.n;

		params->params[i] = (ParamExternData)
		{
			.value = (low ? &range->low : &range->high)->values[column],
				.pflags = PARAM_FLAG_CONST,
				.ptype = key->column[column].type
		};
	}
	return params;
}

SPIPlanPtr
dt_key_prepare(const char *query, ParamListInfo params)
{
	Oid		   *types = palloc(sizeof(Oid) * Max(params->numParams, 1));
	SPIPlanPtr	plan;

	for (int i = 0; i < params->numParams; i++)
		types[i] = params->params[i].ptype;
	plan = SPI_prepare(query, params->numParams, types);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare failed: %s",
			 SPI_result_code_string(SPI_result));
	return plan;
}

/* -------------------------------------------------------------- positions */

int
dt_key_begin_settings(const char *const settings[][2], int n)
{
	int			level = NewGUCNestLevel();

	for (int i = 0; i < n; i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0,
								 false);
	return level;
}

/*
 * Until AtEOXact_GUC() with the result, values are written and read as text
 * in one way only.
 */
static int
begin_transmission(void)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO"},
		{"timezone", "UTC"},
		{"intervalstyle", "postgres"},
		{"extra_float_digits", "3"},
		{"lc_monetary", "C"},
		{"array_nulls", "on"},
		{"bytea_output", "hex"},
		{"search_path", "pg_catalog"}
	};

	return dt_key_begin_settings(settings, lengthof(settings));
}

/* A text as a value of a type. */
static Datum
read_value(Oid type, char *value)
{
	Oid			function;
	Oid			param;

	getTypeInputInfo(type, &function, &param);
	return OidInputFunctionCall(function, value, param, -1);
}

static char *
write_value(Oid type, Datum value)
{
	Oid			function;
	bool		is_varlena;

	getTypeOutputInfo(type, &function, &is_varlena);
	return OidOutputFunctionCall(function, value);
}

ArrayType *
dt_key_to_text(const DtKey *key, const DtBound *bound)
{
	Datum		texts[INDEX_MAX_KEYS];
	int			level;

	if (bound->n == 0)
		return NULL;
	level = begin_transmission();
	for (int i = 0; i < bound->n; i++)
		texts[i] = CStringGetTextDatum(write_value(key->column[i].type, bound->values[i]));
	AtEOXact_GUC(true, level);
	return construct_array(texts, bound->n, TEXTOID, -1, false, TYPALIGN_INT);
}

DtBound
dt_key_from_text(const DtKey *key, ArrayType *texts)
{
	DtBound		bound = {0};
	Datum	   *elements;
	int			level;

	if (texts == NULL)
		return bound;
	deconstruct_array(texts, TEXTOID, -1, false, TYPALIGN_INT, &elements,
					  NULL, &bound.n);
	level = begin_transmission();
	for (int i = 0; i < bound.n; i++)
		bound.values[i] = read_value(key->column[i].type, TextDatumGetCString(elements[i]));
	AtEOXact_GUC(true, level);
	return bound;
}

static void
hint_at_type(void *arg)
{
	errhint("\"start\" and \"finish\" are values of column %s.", ((DtKey *) arg)->column[0].name);
}

DtBound
dt_key_from_user(const DtKey *key, const DtUserValue *value)
{
	const DtKeyColumn *column = &key->column[0];
	DtBound		bound = {0};
	ErrorContextCallback callback = {
		.callback = hint_at_type,
		.arg = unconstify(DtKey *, key),
		.previous = error_context_stack
	};

	if (!OidIsValid(value->type))
		return bound;
	error_context_stack = &callback;
	bound.n = 1;
	if (IsBinaryCoercible(value->type, column->type))
		bound.values[0] = value->value;
	else
		/* a literal, or another type, is read from its text */
		bound.values[0] = read_value(column->own_type, value->type == UNKNOWNOID ?
									 DatumGetCString(value->value) :
									 write_value(value->type, value->value));
	error_context_stack = callback.previous;
	return bound;
}

bool
dt_key_is_after(const DtKey *key, const DtBound *a, const DtBound *b)
{
	return DatumGetBool(OidFunctionCall2Coll(key->comparison, key->collation,
											 a->values[0], b->values[0]));
}
