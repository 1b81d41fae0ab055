/*-------------------------------------------------------------------------
 *
 * key.c
 *		The key along which a table is walked, and positions on the way.
 *
 * A key consists of the first columns of a B-tree index, and the way leads along
 * this index, so that its first column ascends.  Its operator classes and collations say what comes
 * first.  So the operators are taken from there, and written with their schemas:
 * whatever search_path is, nobody can put other ones in their place.  That also
 * makes the planner use this index, or another one with the same order.  Columns
 * are NOT NULL, and of no domain, whose operators could be anybody's.
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
#include "access/nbtree.h"
#include "access/table.h"
#include "batch/key.h"
#include "catalog/pg_am.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_opclass.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_opfamily.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "parser/parse_coerce.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "compat.h"

/* -------------------------------------------------------- finding an index */

/* Can queries walk along this index? */
static bool
is_usable(Relation index)
{
	return index->rd_rel->relam == BTREE_AM_OID &&
		index->rd_index->indisvalid && index->rd_index->indisready &&
		index->rd_index->indislive &&
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
quote_name_of(Oid schema, const char *name)
{
	return quote_qualified_identifier(get_namespace_name(schema), name);
}

static char *
collate_clause(Oid collation)
{
	HeapTuple	tuple;
	Form_pg_collation form;
	char	   *clause;

	if (!OidIsValid(collation))
		return "";
	tuple = SearchSysCache1(COLLOID, ObjectIdGetDatum(collation));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for collation %u", collation);
	form = (Form_pg_collation) GETSTRUCT(tuple);
	clause = psprintf(" COLLATE %s", quote_name_of(form->collnamespace,
												   NameStr(form->collname)));
	ReleaseSysCache(tuple);
	return clause;
}

/*
 * What is kept of an operator class, to recognize it.  The integers have one
 * order, so that a column may become a bigint in the middle.
 */
static char *
operator_class_name(Oid operator_class, Oid family)
{
	HeapTuple	tuple;
	Form_pg_opclass form;
	char	   *name;

	if (family == INTEGER_BTREE_FAM_OID)
		return pstrdup("pg_catalog.integer_ops");
	tuple = SearchSysCache1(CLAOID, ObjectIdGetDatum(operator_class));
	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator class %u",
			 operator_class);
	form = (Form_pg_opclass) GETSTRUCT(tuple);
	name = quote_name_of(form->opcnamespace, NameStr(form->opcname));
	ReleaseSysCache(tuple);
	return name;
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

/* The operators of a column; with "falls" the way leads to smaller values. */
static void
set_operators(DtKeyColumn *column, Oid family, Oid type, bool falls)
{
	static const StrategyNumber strategies[DT_LIES] = {
		[DT_BEFORE] = BTLessStrategyNumber,
		[DT_NOT_AFTER] = BTLessEqualStrategyNumber,
		[DT_EQUAL] = BTEqualStrategyNumber,
		[DT_NOT_BEFORE] = BTGreaterEqualStrategyNumber,
		[DT_AFTER] = BTGreaterStrategyNumber
	};

	for (int lies = 0; lies < DT_LIES; lies++)
	{
		StrategyNumber strategy = strategies[lies];
		Oid			opno;

		if (falls)
			strategy = BTCommuteStrategyNumber(strategy);
		opno = get_opfamily_member(family, type, type, strategy);
		if (!OidIsValid(opno))
			elog(ERROR, "operator family %u has no operator %d for type %u",
				 family, strategy, type);
		column->operators[lies] = operator_clause(opno);
		if (lies == DT_AFTER)
			column->comparison = get_opcode(opno);
	}
}

/*
 * The type of the values that a column is compared with: that of the operator
 * class, unless this is for several types.
 */
static void
set_type(DtKeyColumn *column, Oid column_type, Oid class_type)
{
	Oid			output;
	Oid			input;
	bool		is_varlena;

	column->own_type = column_type;
	column->type = get_typtype(class_type) == TYPTYPE_PSEUDO ? column_type :
		class_type;
	getTypeOutputInfo(column->type, &output, &is_varlena);
	fmgr_info(output, &column->output);
	getTypeInputInfo(column->type, &input, &column->input_param);
	fmgr_info(input, &column->input);
}

static bool
has_not_null(Oid table, const char *name)
{
	Relation	relation = table_open(table, NoLock);
	bool		result = relation->rd_rel->relkind != RELKIND_FOREIGN_TABLE &&
		dt_attribute_not_null(RelationGetDescr(relation),
							  get_attnum(table, name) - 1);

	table_close(relation, NoLock);
	return result;
}

/*
 * Is this column null in no row?  Not all that inherit from a table need have its
 * constraint, and nobody enforces that of a foreign partition.  They are locked;
 * see dt_job_open_table().
 */
static bool
is_never_null(Relation table, AttrNumber attnum)
{
	const char *name = NameStr(TupleDescAttr(RelationGetDescr(table), attnum - 1)->attname);

	/* the table itself is the first of them */
	foreach_oid(oid, find_all_inheritors(RelationGetRelid(table), NoLock, NULL))
	{
		if (!has_not_null(oid, name))
			return false;
	}
	return true;
}

static void
describe_column(DtKey *key, Relation table, Relation index, int i, bool back,
				StringInfo columns, StringInfo ordering)
{
	DtKeyColumn *column = &key->column[i];
	AttrNumber	attnum = index->rd_index->indkey.values[i];
	Form_pg_attribute attribute =
		TupleDescAttr(RelationGetDescr(table), attnum - 1);
	Datum		classes = SysCacheGetAttrNotNull(INDEXRELID,
												 index->rd_indextuple,
												 Anum_pg_index_indclass);
	int16		flags = index->rd_indoption[i];
	bool		falls = ((flags & INDOPTION_DESC) != 0) != back;
	const char *separator = i > 0 ? ", " : "";

	column->attnum = attnum;
	column->name = pstrdup(quote_identifier(NameStr(attribute->attname)));
	column->collation = index->rd_indcollation[i];
	column->collate = collate_clause(column->collation);
	column->nulls_first = ((flags & INDOPTION_NULLS_FIRST) != 0) != back;
	column->falls = falls;
	set_type(column, attribute->atttypid, index->rd_opcintype[i]);
	set_operators(column, index->rd_opfamily[i], index->rd_opcintype[i],
				  falls);

	appendStringInfo(columns, "%s%s", separator, column->name);
	appendStringInfo(ordering, "%s%s%s%s", separator,
					 operator_class_name(((oidvector *) DatumGetPointer(classes))->values[i],
										 index->rd_opfamily[i]),
					 column->collate, falls ? " DESC" : "");
	key->is_uniform = key->is_uniform &&
		strcmp(column->operators[DT_AFTER], key->column[0].operators[DT_AFTER]) == 0 &&
		strcmp(column->operators[DT_NOT_AFTER], key->column[0].operators[DT_NOT_AFTER]) == 0;
}

/*
 * The first n columns of an index as a key; n = 0: all.  What is stored of a job is
 * compared with it, whatever the session's settings are.
 */
static DtKey *
describe(Relation table, Relation index, int n)
{
	DtKey	   *key = palloc0(sizeof(DtKey));
	static const char *const settings[][2] = {{"quote_all_identifiers", "off"}};
	bool		back = (index->rd_indoption[0] & INDOPTION_DESC) != 0;
	StringInfoData columns;
	StringInfoData ordering;
	int			level = dt_key_begin_settings(settings, lengthof(settings));

	initStringInfo(&columns);
	initStringInfo(&ordering);
	key->table = quote_name_of(RelationGetNamespace(table),
							   RelationGetRelationName(table));
	key->index = pstrdup(RelationGetRelationName(index));
	key->is_uniform = true;
	key->is_unique = index->rd_index->indisunique &&
		(n == 0 || n == IndexRelationGetNumberOfKeyAttributes(index));
	key->n = n > 0 ? n : IndexRelationGetNumberOfKeyAttributes(index);
	for (int i = 0; i < key->n; i++)
		describe_column(key, table, index, i, back, &columns, &ordering);
	AtEOXact_GUC(true, level);
	key->columns = columns.data;
	key->ordering = ordering.data;
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

/* A column of a key has a value in each row, and is of no domain. */
static bool
can_be_column(Relation table, AttrNumber attnum)
{
	return attnum > 0 && is_never_null(table, attnum) &&
		get_typtype(TupleDescAttr(RelationGetDescr(table), attnum - 1)->atttypid) != TYPTYPE_DOMAIN;
}

static void
check_column(Relation table, AttrNumber attnum)
{
	const char *name = quote_identifier(NameStr(TupleDescAttr(RelationGetDescr(table),
															  attnum - 1)->attname));

	if (!is_never_null(table, attnum))
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("column %s of table \"%s\" may be null, so some rows may have no key",
						name, RelationGetRelationName(table)),
				 errhint("Use ALTER TABLE %s ALTER %s SET NOT NULL, or choose another \"key\".",
						 quote_identifier(RelationGetRelationName(table)), name)));
	if (!can_be_column(table, attnum))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("column %s of table \"%s\" is of a domain, along which batches cannot go",
						name, RelationGetRelationName(table)),
				 errhint("Choose another \"key\".")));
}

/* The columns of some index that could be named as the key, or NULL. */
static char *
find_example(Relation table)
{
	char	   *example = NULL;

	foreach_oid(oid, RelationGetIndexList(table))
	{
		Relation	index = index_open(oid, AccessShareLock);
		bool		fits = is_usable(index) && example == NULL;

		for (int i = 0; i < IndexRelationGetNumberOfKeyAttributes(index); i++)
			fits = fits && can_be_column(table, index->rd_index->indkey.values[i]);
		if (fits)
			example = describe(table, index, 0)->columns;
		index_close(index, AccessShareLock);
	}
	return example;
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
	const char *example;

	if (ordering != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no index any more with the order in which it has been walked",
						name),
				 errdetail("The columns are %s, and their operator classes and collations %s.",
						   columns, ordering),
				 errhint("Create such an index with %s, or begin anew: use forget_batches().",
						 create_index(table))));
	if (columns != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("table \"%s\" has no valid B-tree index that begins with the key columns and has no WHERE clause",
						name),
				 errhint("Use %s ON %s (%s).", create_index(table),
						 quote_identifier(name), columns)));
	example = find_example(table);
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 OidIsValid(table->rd_pkindex) ?
			 errmsg("the primary key of table \"%s\" is no valid B-tree index", name) :
			 errmsg("table \"%s\" has no primary key", name),
			 example != NULL ?
			 errhint("Name the columns of a B-tree index, here for example key => %s.",
					 quote_literal_cstr(example)) :
			 errhint("Create a B-tree index of NOT NULL columns with %s, and name them as the \"key\".",
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
			if (ordering != NULL && strcmp(key->ordering, ordering) != 0)
				key = NULL;
		}
		index_close(index, AccessShareLock);
	}
	if (key == NULL)
		report_missing(table, columns, ordering);
	for (int i = 0; i < key->n; i++)
		check_column(table, key->column[i].attnum);
	return key;
}

/* ----------------------------------------------------------- parts of SQL */

static void
append_column(StringInfo buf, const DtKey *key, int i, const char *alias)
{
	const DtKeyColumn *column = &key->column[i];

	if (alias != NULL)
		appendStringInfo(buf, "%s.", alias);
	appendStringInfo(buf, "%s%s", column->name, column->collate);
}

static void
append_columns(StringInfo buf, const DtKey *key, int n, const char *alias)
{
	for (int i = 0; i < n; i++)
	{
		if (i > 0)
			appendStringInfoString(buf, ", ");
		append_column(buf, key, i, alias);
	}
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
	{
		const DtKeyColumn *column = &key->column[i];

		appendStringInfoString(buf, i > 0 ? ", " : " ORDER BY ");
		append_column(buf, key, i, alias);
		appendStringInfo(buf, " USING %s NULLS %s",
						 column->operators[back ? DT_AFTER : DT_BEFORE],
						 column->nulls_first != back ? "FIRST" : "LAST");
	}
}

/* Rows can be compared as such, or there is one column. */
static void
append_comparison(StringInfo buf, const DtKey *key, const char *alias,
				  int n, DtLies lies, int param)
{
	if (n > 1)
	{
		appendStringInfoString(buf, "ROW(");
		append_columns(buf, key, n, alias);
		appendStringInfo(buf, ") %s ROW(", key->column[0].operators[lies]);
		for (int i = 0; i < n; i++)
			appendStringInfo(buf, "%s$%d", i > 0 ? ", " : "", param + i);
		appendStringInfoChar(buf, ')');
		return;
	}
	append_column(buf, key, 0, alias);
	appendStringInfo(buf, " %s $%d", key->column[0].operators[lies], param);
}

/*
 * The same column by column, for n > 1.  The first line is what an index can be
 * searched for.  "lies" is DT_AFTER, DT_NOT_BEFORE or DT_NOT_AFTER.
 */
static void
append_nested(StringInfo buf, const DtKey *key, const char *alias,
			  int n, DtLies lies, int param)
{
	DtLies		bound = lies == DT_NOT_AFTER ? DT_NOT_AFTER : DT_NOT_BEFORE;
	DtLies		beyond = lies == DT_NOT_AFTER ? DT_BEFORE : DT_AFTER;

	append_comparison(buf, key, alias, 1, bound, param);
	for (int i = 0; i < n; i++)
	{
		const DtKeyColumn *column = &key->column[i];
		bool		last = (i == n - 1);

		appendStringInfoString(buf, " AND (");
		append_column(buf, key, i, alias);
		appendStringInfo(buf, " %s $%d",
						 column->operators[last ? lies : beyond], param + i);
		if (last)
			break;
		appendStringInfoString(buf, " OR ");
		append_column(buf, key, i, alias);
		appendStringInfo(buf, " %s $%d", column->operators[DT_EQUAL],
						 param + i);
	}
	for (int i = 0; i < n; i++)
		appendStringInfoChar(buf, ')');
}

static void
append_bound(StringInfo buf, const DtKey *key, const char *alias,
			 const DtBound *bound, DtLies lies, int param)
{
	if (bound->n == 1 || key->is_uniform)
		append_comparison(buf, key, alias, bound->n, lies, param);
	else
		append_nested(buf, key, alias, bound->n, lies, param);
}

void
dt_key_condition(StringInfo buf, const DtKey *key, const char *alias,
				 const DtRange *range)
{
	appendStringInfoChar(buf, '(');
	if (range->low.n > 0)
		append_bound(buf, key, alias, &range->low,
					 range->low_inclusive ? DT_NOT_BEFORE : DT_AFTER, 1);
	if (range->low.n > 0 && range->high.n > 0)
		appendStringInfoString(buf, " AND ");
	if (range->high.n > 0)
		append_bound(buf, key, alias, &range->high, DT_NOT_AFTER,
					 range->low.n + 1);
	if (range->low.n == 0 && range->high.n == 0)
		appendStringInfoString(buf, "true");
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

ArrayType *
dt_key_to_text(const DtKey *key, const DtBound *bound)
{
	Datum		texts[INDEX_MAX_KEYS];
	int			level;

	if (bound->n == 0)
		return NULL;
	level = begin_transmission();
	for (int i = 0; i < bound->n; i++)
	{
		char	   *value =
			OutputFunctionCall((FmgrInfo *) &key->column[i].output,
							   bound->values[i]);

		texts[i] = CStringGetTextDatum(value);
	}
	AtEOXact_GUC(true, level);
	return construct_array(texts, bound->n, TEXTOID, -1, false, TYPALIGN_INT);
}

static Datum
read_value(const DtKeyColumn *column, char *value)
{
	return InputFunctionCall((FmgrInfo *) &column->input, value,
							 column->input_param, -1);
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
		bound.values[i] = read_value(&key->column[i],
									 TextDatumGetCString(elements[i]));
	AtEOXact_GUC(true, level);
	return bound;
}

static void
hint_at_type(void *arg)
{
	const DtKey *key = arg;

	if (key->n == 1)
		errhint("\"start\" and \"finish\" are values of column %s.",
				key->column[0].name);
	else
		errhint("\"start\" and \"finish\" are values of column %s, or of more columns of the key, as ROW(...): %s.",
				key->column[0].name, key->columns);
}

/* A literal, or another type, is read from its text. */
static Datum
convert(const DtKeyColumn *column, Oid type, Datum value)
{
	Oid			function;
	Oid			param;
	bool		is_varlena;
	char	   *literal;

	if (IsBinaryCoercible(type, column->type))
		return value;
	if (type == UNKNOWNOID)
		literal = DatumGetCString(value);
	else
	{
		getTypeOutputInfo(type, &function, &is_varlena);
		literal = OidOutputFunctionCall(function, value);
	}
	getTypeInputInfo(column->own_type, &function, &param);
	return OidInputFunctionCall(function, literal, param, -1);
}

/* The fields of a row are values of the first columns. */
static DtBound
convert_row(const DtKey *key, HeapTupleHeader row)
{
	DtBound		bound = {0};
	TupleDesc	desc = lookup_rowtype_tupdesc(HeapTupleHeaderGetTypeId(row),
											  HeapTupleHeaderGetTypMod(row));

	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute field = TupleDescAttr(desc, i);
		bool		is_null;
		Datum		value;

		if (field->attisdropped)
			continue;
		value = GetAttributeByNum(row, i + 1, &is_null);
		if (bound.n >= key->n || is_null)
			ereport(ERROR,
					(errcode(is_null ? ERRCODE_NULL_VALUE_NOT_ALLOWED :
							 ERRCODE_INVALID_PARAMETER_VALUE),
					 is_null ?
					 errmsg("a value in \"start\" or \"finish\" is null") :
					 errmsg("\"start\" or \"finish\" has more values than the key has columns")));
		bound.values[bound.n] = convert(&key->column[bound.n], field->atttypid,
										value);
		bound.n++;
	}
	if (bound.n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("\"start\" or \"finish\" has no values")));
	ReleaseTupleDesc(desc);
	return bound;
}

DtBound
dt_key_from_user(const DtKey *key, const DtUserValue *value)
{
	DtBound		bound = {0};
	ErrorContextCallback callback = {
		.callback = hint_at_type,
		.arg = unconstify(DtKey *, key),
		.previous = error_context_stack
	};

	if (!OidIsValid(value->type))
		return bound;
	error_context_stack = &callback;
	if (type_is_rowtype(value->type) && !type_is_rowtype(key->column[0].own_type))
		bound = convert_row(key, DatumGetHeapTupleHeader(value->value));
	else
	{
		bound.n = 1;
		bound.values[0] = convert(&key->column[0], value->type, value->value);
	}
	error_context_stack = callback.previous;
	return bound;
}

/* Does value i of a come after that of b? */
static bool
value_is_after(const DtKey *key, int i, const DtBound *a, const DtBound *b)
{
	return DatumGetBool(OidFunctionCall2Coll(key->column[i].comparison,
											 key->column[i].collation,
											 a->values[i], b->values[i]));
}

bool
dt_key_is_after(const DtKey *key, const DtBound *a, const DtBound *b)
{
	for (int i = 0; i < Min(a->n, b->n); i++)
	{
		if (value_is_after(key, i, a, b))
			return true;
		if (value_is_after(key, i, b, a))
			return false;
	}
	return false;
}
