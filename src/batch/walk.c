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
#include "nodes/plannodes.h"
#include "utils/guc.h"
#include "utils/plancache.h"

#include "compat.h"

/* The name of the table in these queries. */
#define ALIAS	"batch"

/*
 * Until AtEOXact_GUC() with the result, the planner sorts if it must.  Before 18 that
 * seems so expensive to it then that it would have the query compiled.
 */
static int
begin_following_index(void)
{
	static const char *const settings[][2] = {
		{"enable_bitmapscan", "off"},
		{"enable_seqscan", "off"},
		{"enable_sort", "off"},
		{"jit", "off"}
	};

	return dt_key_begin_settings(settings, lengthof(settings));
}

/* Run a query on the range.  Returns the number of its rows. */
static int64
run_query(const char *query, const DtKey *key, const DtRange *range)
{
	SPIExecuteOptions options = {
		.params = dt_key_params(key, range),
		.read_only = true
	};
	int			result = SPI_execute_extended(query, &options);

	if (result != SPI_OK_SELECT)
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

/* That row, if there is one, as a position. */
static ArrayType *
get_position(const DtKey *key)
{
	DtBound		bound = {.n = key->n};

	if (SPI_processed == 0)
		return NULL;
	for (int i = 0; i < key->n; i++)
		bound.values[i] = get_value(i + 1);
	return dt_key_to_text(key, &bound);
}

static void
begin_query(StringInfo buf, const DtKey *key, const DtRange *range)
{
	initStringInfo(buf);
	appendStringInfoString(buf, "SELECT ");
	dt_key_column_list(buf, key, ALIAS);
	appendStringInfo(buf, " FROM %s AS " ALIAS " WHERE ", key->table);
	dt_key_condition(buf, key, ALIAS, range);
}

int64
dt_walk_ahead(const DtKey *key, const DtRange *range, int64 wanted,
			  ArrayType **last)
{
	StringInfoData query;
	int			level = begin_following_index();
	int64		n;

	begin_query(&query, key, range);
	dt_key_order(&query, key, ALIAS, false);
	/* the last of those that are wanted, and what is equal to it */
	appendStringInfo(&query, " OFFSET " INT64_FORMAT " ROWS FETCH FIRST 1 ROWS WITH TIES",
					 wanted - 1);
	n = run_query(query.data, key, range);
	*last = get_position(key);
	n = n > 0 ? wanted - 1 + n : dt_walk_count(key, range, wanted);
	AtEOXact_GUC(true, level);
	return n;
}

ArrayType *
dt_walk_to_end(const DtKey *key, const DtRange *range)
{
	StringInfoData query;
	int			level = begin_following_index();

	begin_query(&query, key, range);
	dt_key_order(&query, key, ALIAS, true);
	appendStringInfoString(&query, " FETCH FIRST 1 ROWS ONLY");
	(void) run_query(query.data, key, range);
	AtEOXact_GUC(true, level);
	return get_position(key);
}

int64
dt_walk_expect(const DtKey *key, const DtRange *range)
{
	ParamListInfo params = dt_key_params(key, range);
	StringInfoData query;
	SPIPlanPtr	plan;
	CachedPlan *cached;
	PlannedStmt *planned;
	int64		rows;

	begin_query(&query, key, range);
	plan = dt_key_prepare(query.data, params);
	cached = GetCachedPlan(linitial(SPI_plan_get_plan_sources(plan)), params,
						   NULL, NULL);
	planned = linitial_node(PlannedStmt, cached->stmt_list);
	/* its statistics are for who may read the table */
	dt_check_permissions(planned);
	rows = (int64) Min(planned->planTree->plan_rows, 1e18);
	ReleaseCachedPlan(cached, NULL);
	SPI_freeplan(plan);
	return rows;
}

int64
dt_walk_count(const DtKey *key, const DtRange *range, int64 most)
{
	StringInfoData query;

	initStringInfo(&query);
	appendStringInfo(&query, "SELECT pg_catalog.count(*) FROM (SELECT FROM %s AS " ALIAS " WHERE ", key->table);
	dt_key_condition(&query, key, ALIAS, range);
	appendStringInfo(&query, " FETCH FIRST " INT64_FORMAT " ROWS ONLY) AS rows", most);
	(void) run_query(query.data, key, range);
	return DatumGetInt64(get_value(1));
}
