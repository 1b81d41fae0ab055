/*-------------------------------------------------------------------------
 *
 * walk.c
 *		Looking ahead on the way along a key.
 *
 * The queries run as the user, so row security hides what it hides.
 *
 * They read the first rows of a range in the order of an index, and the planner
 * is made to do just that.  Without statistics, or where the rows of an index lie
 * all over the table, it would rather read and sort all that is left, for each
 * batch.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "batch/walk.h"
#include "executor/spi.h"
#include "utils/guc.h"

#include "compat.h"

/* The name of the table in these queries. */
#define ALIAS	"batch"

/* The rows of a range, with these columns. */
static void
append_query(StringInfo buf, const DtKey *key, int columns, const DtRange *range)
{
	appendStringInfoString(buf, "SELECT ");
	dt_key_columns(buf, key, columns, ALIAS);
	appendStringInfo(buf, " FROM %s AS " ALIAS " WHERE ", key->table);
	dt_key_condition(buf, key, ALIAS, range);
}

/*
 * Run a query on the range, and return the number of its rows.  It sees what the active
 * snapshot does, but for EXPLAIN, which SPI does not run so.  Before 18 a sort that the
 * planner must not use seems so expensive to it that it would have the query compiled.
 */
static int64
run_query(const char *query, const DtKey *key, const DtRange *range, bool explains)
{
	static const char *const settings[][2] = {
		{"enable_bitmapscan", "off"},
		{"enable_seqscan", "off"},
		{"enable_sort", "off"},
		{"jit", "off"}
	};
	SPIExecuteOptions options = {.params = dt_key_params(key, range),.read_only = !explains};
	int			level = dt_key_begin_settings(settings, lengthof(settings));
	int			result = SPI_execute_extended(query, &options);

	AtEOXact_GUC(true, level);
	if (result < 0 || SPI_tuptable == NULL)
		elog(ERROR, "SPI_execute_extended failed: %s",
			 SPI_result_code_string(result));
	return SPI_processed;
}

/* A value of its first row. */
static Datum
get_value(int column)
{
	bool		isnull;
	Datum		value = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc,
									  column, &isnull);

	if (isnull)
		elog(ERROR, "a column of the key is null");
	return value;
}

/* How many rows have the same key as this one, from an end?  *position: where it is. */
static int64
find(const DtKey *key, const DtRange *range, bool back, int64 before, ArrayType **position)
{
	StringInfoData query;
	DtBound		bound = {.n = key->n};
	int64		n;

	initStringInfo(&query);
	append_query(&query, key, key->n, range);
	for (int i = 0; i < key->n; i++)
		appendStringInfo(&query, "%s" ALIAS ".%s USING %s", i > 0 ? ", " : " ORDER BY ", key->column[i].name,
						 key->operators[back ? BTGreaterStrategyNumber : BTLessStrategyNumber]);
	appendStringInfo(&query, " OFFSET " INT64_FORMAT " ROWS FETCH FIRST 1 ROWS WITH TIES", before);
	n = run_query(query.data, key, range, false);
	for (int i = 0; i < key->n && n > 0; i++)
		bound.values[i] = get_value(i + 1);
	*position = n > 0 ? dt_key_to_text(key, &bound) : NULL;
	return n;
}

int64
dt_walk_ahead(const DtKey *key, const DtRange *range, int64 wanted,
			  ArrayType **last)
{
	/* the last of those that are wanted, and what is equal to it */
	int64		n = find(key, range, false, wanted - 1, last);

	return n > 0 ? wanted - 1 + n : dt_walk_count(key, range, wanted);
}

ArrayType *
dt_walk_to_end(const DtKey *key, const DtRange *range)
{
	ArrayType  *last;

	(void) find(key, range, true, 0, &last);
	return last;
}

double
dt_walk_expect(const DtKey *key, const DtRange *range)
{
	StringInfoData query;
	const char *costs;
	double		rows = 0;

	initStringInfo(&query);
	appendStringInfoString(&query, "EXPLAIN ");
	append_query(&query, key, key->n, range);
	(void) run_query(query.data, key, range, true);
	costs = strstr(SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1), "  (cost=");
	if (costs == NULL || sscanf(costs, "  (cost=%*f..%*f rows=%lf", &rows) != 1)
		return 0;
	return rows;
}

int64
dt_walk_count(const DtKey *key, const DtRange *range, int64 most)
{
	StringInfoData query;

	initStringInfo(&query);
	appendStringInfoString(&query, "SELECT pg_catalog.count(*) FROM (");
	append_query(&query, key, 0, range);
	appendStringInfo(&query, " FETCH FIRST " INT64_FORMAT " ROWS ONLY) AS rows", most);
	(void) run_query(query.data, key, range, false);
	return DatumGetInt64(get_value(1));
}
