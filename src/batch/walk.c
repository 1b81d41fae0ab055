/*-------------------------------------------------------------------------
 *
 * walk.c
 *		Looking ahead on the way along a key.
 *
 * The queries run as the user, so row security hides what it hides.  Their rows
 * are counted, and only the last one is kept.
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
#include "executor/executor.h"
#include "executor/spi.h"
#include "executor/tuptable.h"
#include "nodes/plannodes.h"
#include "tcop/dest.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"

#include "compat.h"

/* The name of the table in these queries. */
#define ALIAS	"batch"

/* Counts rows, and keeps the last one. */
typedef struct Counter
{
	DestReceiver receiver;
	int64		n;
	int64		keep_from;		/* the number of the first that is kept */
	MemoryContext context;
	TupleTableSlot *last;
} Counter;

static void
start_counting(DestReceiver *self, int operation, TupleDesc typeinfo)
{
	Counter    *counter = (Counter *) self;
	MemoryContext old = MemoryContextSwitchTo(counter->context);

	counter->last = MakeSingleTupleTableSlot(CreateTupleDescCopy(typeinfo),
											 &TTSOpsMinimalTuple);
	MemoryContextSwitchTo(old);
}

static bool
count_row(TupleTableSlot *slot, DestReceiver *self)
{
	Counter    *counter = (Counter *) self;

	if (++counter->n >= counter->keep_from)
		ExecCopySlot(counter->last, slot);
	return true;
}

static void
do_nothing(DestReceiver *self)
{
}

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

/*
 * Run a query on the range.  Returns the number of its rows; *last is set to the
 * last one, as a position, if there are keep_from or more.
 */
static int64
run_query(const char *query, const DtKey *key, const DtRange *range,
		  int64 keep_from, ArrayType **last)
{
	Counter		counter = {
		.receiver = {
			.receiveSlot = count_row,
			.rStartup = start_counting,
			.rShutdown = do_nothing,
			.rDestroy = do_nothing,
			.mydest = DestTuplestore	/* one that nobody asks */
		},
		.keep_from = keep_from,
		.context = CurrentMemoryContext
	};
	SPIExecuteOptions options = {
		.params = dt_key_params(key, range),
		.read_only = true,
		.dest = &counter.receiver
	};
	int			result = SPI_execute_extended(query, &options);

	if (result != SPI_OK_SELECT)
		elog(ERROR, "SPI_execute_extended failed: %s",
			 SPI_result_code_string(result));
	*last = NULL;
	if (counter.n >= keep_from)
	{
		DtBound		bound = {.n = key->n};

		slot_getallattrs(counter.last);
		for (int i = 0; i < key->n; i++)
			if (counter.last->tts_isnull[i])
				elog(ERROR, "column %s of table %s is null",
					 key->column[i].name, key->table);
		memcpy(bound.values, counter.last->tts_values,
			   sizeof(Datum) * key->n);
		*last = dt_key_to_text(key, &bound);
	}
	if (counter.last != NULL)
		ExecDropSingleTupleTableSlot(counter.last);
	return counter.n;
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
	appendStringInfo(&query, " FETCH FIRST " INT64_FORMAT " ROWS WITH TIES",
					 wanted);
	n = run_query(query.data, key, range, wanted, last);
	AtEOXact_GUC(true, level);
	return n;
}

ArrayType *
dt_walk_to_end(const DtKey *key, const DtRange *range)
{
	StringInfoData query;
	int			level = begin_following_index();
	ArrayType  *last;

	begin_query(&query, key, range);
	dt_key_order(&query, key, ALIAS, true);
	appendStringInfoString(&query, " FETCH FIRST 1 ROWS ONLY");
	(void) run_query(query.data, key, range, 1, &last);
	AtEOXact_GUC(true, level);
	return last;
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
dt_walk_count(const DtKey *key, const DtRange *range)
{
	StringInfoData query;
	ArrayType  *last;

	initStringInfo(&query);
	appendStringInfo(&query, "SELECT FROM %s AS " ALIAS " WHERE ", key->table);
	dt_key_condition(&query, key, ALIAS, range);
	return run_query(query.data, key, range, PG_INT64_MAX, &last);
}
