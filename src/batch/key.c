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
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "commands/defrem.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/regproc.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "compat.h"

/* -------------------------------------------------------- finding an index */

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
	List	   *names;
	List	   *types;

	format_operator_parts(opno, &names, &types, false);
	return psprintf("OPERATOR(%s.%s)", quote_identifier(linitial(names)),
					(char *) lsecond(names));
}

/* Those of each column must be the same, so that rows can be compared. */
static bool
set_operators(DtKey *key, Oid family, Oid type, bool is_first)
{
	for (StrategyNumber i = BTLessStrategyNumber; i <= BTMaxStrategyNumber; i++)
	{
		char	   *clause = operator_clause(get_opfamily_member(family, type, type, i));

		if (is_first)
			key->operators[i] = clause;
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
describe_column(DtKey *key, Relation table, Relation index, int i)
{
	DtKeyColumn *column = &key->column[i];
	Form_pg_attribute attribute =
		TupleDescAttr(RelationGetDescr(table), index->rd_index->indkey.values[i] - 1);
	int16		flags = index->rd_indoption[i];
	TypeCacheEntry *type = lookup_type_cache(attribute->atttypid, TYPECACHE_BTREE_OPFAMILY);

	column->attnum = attribute->attnum;
	column->name = pstrdup(quote_identifier(NameStr(attribute->attname)));
	column->type = attribute->atttypid;
	column->collation = attribute->attcollation;
	return type->btree_opf == index->rd_opfamily[i] &&
		column->collation == index->rd_indcollation[i] &&
		flags == index->rd_indoption[0] &&
		(flags == 0 || flags == (INDOPTION_DESC | INDOPTION_NULLS_FIRST)) &&
		set_operators(key, type->btree_opf, type->btree_opintype, i == 0);
}

/* The types and collations of its columns. */
static char *
get_ordering(const DtKey *key)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < key->n; i++)
	{
		const DtKeyColumn *column = &key->column[i];

		/*
		 * the integers have one order, so that a column may become a bigint
		 * in the middle
		 */
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "",
						 get_opclass_family(GetDefaultOpClass(column->type, BTREE_AM_OID)) == INTEGER_BTREE_FAM_OID ?
						 "integer" : format_type_be_qualified(column->type));
		if (OidIsValid(column->collation))
			appendStringInfo(&buf, " COLLATE %s",
							 quote_identifier(get_collation_name(column->collation)));
	}
	return buf.data;
}

/* The first n columns of an index as a key, or NULL; n = 0: all. */
static DtKey *
describe(Relation table, Relation index, int n)
{
	DtKey	   *key = palloc0(sizeof(DtKey));
	int			all = IndexRelationGetNumberOfKeyAttributes(index);
	StringInfoData columns;

	key->table = quote_qualified_identifier(get_namespace_name(RelationGetNamespace(table)),
											RelationGetRelationName(table));
	key->n = n > 0 ? n : all;
	key->is_unique = index->rd_index->indisunique && key->n == all;
	for (int i = 0; i < key->n; i++)
		if (!describe_column(key, table, index, i))
			return NULL;
	initStringInfo(&columns);
	dt_key_columns(&columns, key, key->n, "");
	key->columns = columns.data;
	key->ordering = get_ordering(key);
	return key;
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

static void
report_missing(Relation table, const char *columns, const char *ordering)
{
	const char *name = RelationGetRelationName(table);

	/* the server refuses CONCURRENTLY for partitioned tables */
	const char *create = table->rd_rel->relkind == RELKIND_PARTITIONED_TABLE ?
		"CREATE INDEX" : "CREATE INDEX CONCURRENTLY";

	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 ordering != NULL ?
			 errmsg("table \"%s\" no longer has an index in the order that the batch job follows",
					name) :
			 columns != NULL ?
			 errmsg("table \"%s\" has no valid B-tree index that begins with the key columns in their usual order and has no WHERE clause",
					name) :
			 OidIsValid(table->rd_pkindex) ?
			 errmsg("the primary key of table \"%s\" is not a valid B-tree index", name) :
			 errmsg("table \"%s\" has no primary key", name),
			 ordering == NULL ? 0 :
			 errdetail("The columns are %s; their types and collations are %s.",
					   columns, ordering),
			 ordering != NULL ?
			 errhint("Create such an index with %s, or use forget_batches() and start the job again.", create) :
			 columns != NULL ?
			 errhint("Use %s ON %s (%s).", create, quote_identifier(name), columns) :
			 errhint("Name the NOT NULL columns of a B-tree index, for example key => 'created, id'. If there is none, use %s.",
					 create)));
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

		/* it is not partial, and not one that was not completed */
		if (key == NULL && index->rd_rel->relam == BTREE_AM_OID && index->rd_index->indisvalid &&
			heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) &&
			begins_with(index, attnums, n))
			key = describe(table, index, n);
		if (key != NULL && ordering != NULL && strcmp(key->ordering, ordering) != 0)
			key = NULL;
		index_close(index, AccessShareLock);
	}
	if (key == NULL)
		report_missing(table, columns, ordering);
	for (int i = 0; i < key->n; i++)
	{
		const char *name = RelationGetRelationName(table);
		const char *column = key->column[i].name;

		if (!is_never_null(table, key->column[i].attnum))
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("column %s of table \"%s\" may be null, so some rows may have no key",
							column, name),
					 errhint("Use ALTER TABLE %s ALTER %s SET NOT NULL, or choose another \"key\".",
							 quote_identifier(name), column)));
		if (get_typtype(key->column[i].type) == TYPTYPE_DOMAIN)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("column %s of table \"%s\" has a domain as its type, so it cannot be in the key of a batch job",
							column, name),
					 errhint("Choose another \"key\".")));
	}
	return key;
}

/* ----------------------------------------------------------- parts of SQL */

void
dt_key_columns(StringInfo buf, const DtKey *key, int n, const char *alias)
{
	for (int i = 0; i < n; i++)
		appendStringInfo(buf, "%s%s%s%s", i > 0 ? ", " : "", alias,
						 *alias ? "." : "", key->column[i].name);
}

/* The first n columns, compared with as many parameters. */
static void
append_comparison(StringInfo buf, const DtKey *key, const char *alias, int n,
				  StrategyNumber operator, int param)
{
	if (n == 0)
		return;
	appendStringInfoString(buf, " AND ROW(");
	dt_key_columns(buf, key, n, alias);
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
	append_comparison(buf, key, alias, range->low.n, range->low_inclusive ?
					  BTGreaterEqualStrategyNumber : BTGreaterStrategyNumber, 1);
	append_comparison(buf, key, alias, range->high.n, BTLessEqualStrategyNumber,
					  range->low.n + 1);
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
	Oid			type = key->column[0].type;
	DtBound		bound = {.n = OidIsValid(value->type)};
	ErrorContextCallback callback = {
		.callback = hint_at_type,
		.arg = unconstify(DtKey *, key),
		.previous = error_context_stack
	};

	if (bound.n == 0)
		return bound;
	error_context_stack = &callback;
	if (IsBinaryCoercible(value->type, type))
		bound.values[0] = value->value;
	else
		/* a literal, or another type, is read from its text */
		bound.values[0] = read_value(type, value->type == UNKNOWNOID ?
									 DatumGetCString(value->value) :
									 write_value(value->type, value->value));
	error_context_stack = callback.previous;
	return bound;
}

bool
dt_key_is_after(const DtKey *key, const DtBound *a, const DtBound *b)
{
	TypeCacheEntry *type = lookup_type_cache(key->column[0].type, TYPECACHE_CMP_PROC_FINFO);

	return DatumGetInt32(FunctionCall2Coll(&type->cmp_proc_finfo, key->column[0].collation,
										   a->values[0], b->values[0])) > 0;
}
