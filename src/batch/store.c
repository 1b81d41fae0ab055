/*-------------------------------------------------------------------------
 *
 * store.c
 *		What is stored of jobs that are run in batches.
 *
 * There is a row for each job.  Its position changes in the transaction of each
 * batch, so the server makes it durable, replicates it, and rolls it back with
 * the batch.
 *
 * The rows are in a materialized view, which is written here as the server
 * writes its catalogs.  To the server it is a table in all that matters here,
 * pg_upgrade included.  But no publication has it, not even one FOR ALL TABLES,
 * so subscribers that do not know it go on; nobody can change it by SQL, row
 * security, rules and triggers do not concern it; and pg_dump, whoever runs it,
 * leaves it alone.  Its query returns what it contains, so that REFRESH
 * MATERIALIZED VIEW changes nothing, unless it is told WITH NO DATA.
 *
 * Nobody has privileges on it, and none are needed here.  Callers see to it that
 * a user gets only what is his.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "batch/store.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"

#define STORE		"dirty_throttle_stored_batches"
#define STORE_KEY	"dirty_throttle_stored_batches_key"

/* So much is kept of a message, bytes. */
#define LONGEST_ERROR	4096

/* The columns, as function dirty_throttle_stored_batches() has them. */
enum
{
	COLUMN_OWNER = 1,
	COLUMN_NAME,
	COLUMN_TABLE,
	COLUMN_STATEMENT,
	COLUMN_NAMES_TABLE,
	COLUMN_COLUMNS,
	COLUMN_ORDERING,
	COLUMN_DESCENDING,
	COLUMN_START,
	COLUMN_FINISH,
	COLUMN_POSITION,
	COLUMN_UNTIL,
	COLUMN_SIZE,
	COLUMN_KEYS,
	COLUMN_EXPECTED,
	COLUMN_ROWS,
	COLUMN_BATCHES,
	COLUMN_RETRIES,
	COLUMN_ELAPSED,
	COLUMN_PAUSED,
	COLUMN_RATE,
	COLUMN_STARTED,
	COLUMN_UPDATED,
	COLUMN_FINISHED,
	COLUMN_FAILED,
	COLUMN_ERROR,
	COLUMNS = COLUMN_ERROR
};

typedef struct Values
{
	Datum		value[COLUMNS];
	bool		isnull[COLUMNS];
} Values;

static Oid
find_relation(Oid routine, const char *name)
{
	Oid			oid = get_relname_relid(name, get_func_namespace(routine));

	if (!OidIsValid(oid))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" of extension dirty_throttle does not exist",
						name),
				 errhint("If the extension was dropped, create it, and call run_in_batches() to begin anew.")));
	return oid;
}

Relation
dt_store_open(Oid routine, LOCKMODE lockmode)
{
	Relation	store;

	/* the extension may be dropped while we wait for the lock */
	do
		store = try_table_open(find_relation(routine, STORE), lockmode);
	while (store == NULL);
	if (RelationGetNumberOfAttributes(store) != COLUMNS)
		elog(ERROR, "relation \"%s\" has %d columns, but the library has %d",
			 STORE, RelationGetNumberOfAttributes(store), COLUMNS);
	/* it is written as a catalog is */
	if (store->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("materialized view \"%s\" has another access method than heap",
						STORE),
				 errhint("Use ALTER MATERIALIZED VIEW %s SET ACCESS METHOD heap.",
						 quote_qualified_identifier(get_namespace_name(RelationGetNamespace(store)),
													STORE))));
	return store;
}

/* ------------------------------------------------------------ one row */

static void
set(Values *row, int column, Datum value, bool isnull)
{
	row->value[column - 1] = value;
	row->isnull[column - 1] = isnull;
}

static void
set_text(Values *row, int column, const char *value)
{
	set(row, column, value ? CStringGetTextDatum(value) : (Datum) 0,
		value == NULL);
}

static void
set_array(Values *row, int column, ArrayType *value)
{
	set(row, column, PointerGetDatum(value), value == NULL);
}

static void
set_int(Values *row, int column, int64 value)
{
	set(row, column, Int64GetDatum(value), false);
}

static void
set_time(Values *row, int column, TimestampTz value)
{
	set(row, column, TimestampTzGetDatum(value), value == 0);
}

static Values
values_of(const DtJob *job)
{
	Values		row;
	Name		name = palloc(sizeof(NameData));

	namestrcpy(name, job->name);
	set(&row, COLUMN_OWNER, ObjectIdGetDatum(job->owner), false);
	set(&row, COLUMN_NAME, NameGetDatum(name), false);
	set(&row, COLUMN_TABLE, ObjectIdGetDatum(job->table), false);
	set_text(&row, COLUMN_STATEMENT, job->statement);
	set(&row, COLUMN_NAMES_TABLE, BoolGetDatum(job->names_table), false);
	set_text(&row, COLUMN_COLUMNS, job->columns);
	set_text(&row, COLUMN_ORDERING, job->ordering);
	set(&row, COLUMN_DESCENDING, BoolGetDatum(job->descending), false);
	set_array(&row, COLUMN_START, job->start);
	set_array(&row, COLUMN_FINISH, job->finish);
	set_array(&row, COLUMN_POSITION, job->position);
	set_array(&row, COLUMN_UNTIL, job->until);
	set_int(&row, COLUMN_SIZE, job->progress.size);
	set_int(&row, COLUMN_KEYS, job->progress.keys);
	set_int(&row, COLUMN_EXPECTED, job->progress.expected);
	set_int(&row, COLUMN_ROWS, job->progress.rows);
	set_int(&row, COLUMN_BATCHES, job->progress.batches);
	set_int(&row, COLUMN_RETRIES, job->progress.retries);
	set_int(&row, COLUMN_ELAPSED, job->progress.elapsed_us);
	set_int(&row, COLUMN_PAUSED, job->progress.paused_us);
	set(&row, COLUMN_RATE, Float8GetDatum(job->progress.rate), false);
	set_time(&row, COLUMN_STARTED, job->progress.started);
	set_time(&row, COLUMN_UPDATED, job->progress.updated);
	set_time(&row, COLUMN_FINISHED, job->progress.finished);
	set(&row, COLUMN_FAILED, BoolGetDatum(job->progress.failed), false);
	set_text(&row, COLUMN_ERROR, job->error == NULL ? NULL :
			 pnstrdup(job->error, pg_mbcliplen(job->error, strlen(job->error),
											   LONGEST_ERROR)));
	return row;
}

static Datum
get(const Values *row, int column)
{
	return row->value[column - 1];
}

static char *
get_text(const Values *row, int column)
{
	return row->isnull[column - 1] ? NULL :
		TextDatumGetCString(get(row, column));
}

static ArrayType *
get_array(const Values *row, int column)
{
	return row->isnull[column - 1] ? NULL :
		DatumGetArrayTypePCopy(get(row, column));
}

static int64
get_int(const Values *row, int column)
{
	return DatumGetInt64(get(row, column));
}

static TimestampTz
get_time(const Values *row, int column)
{
	return row->isnull[column - 1] ? 0 :
		DatumGetTimestampTz(get(row, column));
}

/* A copy of a row. */
static DtJob *
deform(Relation store, HeapTuple tuple)
{
	DtJob	   *job = palloc0(sizeof(DtJob));
	Values		row;

	heap_deform_tuple(tuple, RelationGetDescr(store), row.value, row.isnull);
	job->owner = DatumGetObjectId(get(&row, COLUMN_OWNER));
	job->name = pstrdup(NameStr(*DatumGetName(get(&row, COLUMN_NAME))));
	job->table = DatumGetObjectId(get(&row, COLUMN_TABLE));
	job->statement = get_text(&row, COLUMN_STATEMENT);
	job->names_table = DatumGetBool(get(&row, COLUMN_NAMES_TABLE));
	job->columns = get_text(&row, COLUMN_COLUMNS);
	job->ordering = get_text(&row, COLUMN_ORDERING);
	job->descending = DatumGetBool(get(&row, COLUMN_DESCENDING));
	job->start = get_array(&row, COLUMN_START);
	job->finish = get_array(&row, COLUMN_FINISH);
	job->position = get_array(&row, COLUMN_POSITION);
	job->until = get_array(&row, COLUMN_UNTIL);
	job->progress.size = get_int(&row, COLUMN_SIZE);
	job->progress.keys = get_int(&row, COLUMN_KEYS);
	job->progress.expected = get_int(&row, COLUMN_EXPECTED);
	job->progress.rows = get_int(&row, COLUMN_ROWS);
	job->progress.batches = get_int(&row, COLUMN_BATCHES);
	job->progress.retries = get_int(&row, COLUMN_RETRIES);
	job->progress.elapsed_us = get_int(&row, COLUMN_ELAPSED);
	job->progress.paused_us = get_int(&row, COLUMN_PAUSED);
	job->progress.rate = DatumGetFloat8(get(&row, COLUMN_RATE));
	job->progress.started = get_time(&row, COLUMN_STARTED);
	job->progress.updated = get_time(&row, COLUMN_UPDATED);
	job->progress.finished = get_time(&row, COLUMN_FINISHED);
	job->progress.failed = DatumGetBool(get(&row, COLUMN_FAILED));
	job->error = get_text(&row, COLUMN_ERROR);
	return job;
}

/* ------------------------------------------------------------ the table */

static SysScanDesc
begin_scan(Relation store, Oid owner, const char *name, NameData *name_buffer,
		   ScanKeyData key[2])
{
	Oid			index = get_relname_relid(STORE_KEY,
										  RelationGetNamespace(store));

	namestrcpy(name_buffer, name);
	ScanKeyInit(&key[0], COLUMN_OWNER, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(owner));
	ScanKeyInit(&key[1], COLUMN_NAME, BTEqualStrategyNumber, F_NAMEEQ,
				NameGetDatum(name_buffer));
	return systable_beginscan(store, index, OidIsValid(index), NULL, 2, key);
}

DtJob *
dt_store_find(Relation store, Oid owner, const char *name, ItemPointer tid)
{
	ScanKeyData key[2];
	NameData	name_buffer;
	SysScanDesc scan = begin_scan(store, owner, name, &name_buffer, key);
	HeapTuple	tuple = systable_getnext(scan);
	DtJob	   *job = NULL;

	if (HeapTupleIsValid(tuple))
	{
		job = deform(store, tuple);
		if (tid != NULL)
			*tid = tuple->t_self;
	}
	systable_endscan(scan);
	return job;
}

DtJob *
dt_store_lock(Relation store, Oid owner, const char *name, ItemPointer tid)
{
	TupleTableSlot *slot;
	TM_FailureData failure;
	TM_Result	result;

	if (dt_store_find(store, owner, name, tid) == NULL)
		return NULL;
	slot = table_slot_create(store, NULL);
	result = table_tuple_lock(store, tid, GetActiveSnapshot(), slot,
							  GetCurrentCommandId(false), LockTupleExclusive,
							  LockWaitBlock,
							  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	ExecDropSingleTupleTableSlot(slot);
	if (result != TM_Ok && result != TM_Deleted)
		elog(ERROR, "could not lock a row of \"%s\": %d", STORE, result);
	return dt_store_find(store, owner, name, tid);
}

static Oid
owner_of(Relation store, HeapTuple tuple)
{
	bool		isnull;

	return DatumGetObjectId(heap_getattr(tuple, COLUMN_OWNER,
										 RelationGetDescr(store), &isnull));
}

void
dt_store_each(Relation store, bool (*is_wanted) (Oid owner),
			  void (*act) (const DtJob *job, void *arg), void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "stored job",
												  ALLOCSET_DEFAULT_SIZES);
	SysScanDesc scan = systable_beginscan(store, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemoryContext old;

		if (!is_wanted(owner_of(store, tuple)))
			continue;
		old = MemoryContextSwitchTo(context);
		act(deform(store, tuple), arg);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	systable_endscan(scan);
	MemoryContextDelete(context);
}

void
dt_store_copy(Relation store, Tuplestorestate *to)
{
	SysScanDesc scan = systable_beginscan(store, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tuplestore_puttuple(to, tuple);
	systable_endscan(scan);
}

void
dt_store_insert(Relation store, const DtJob *job)
{
	Values		row = values_of(job);

	CatalogTupleInsert(store, heap_form_tuple(RelationGetDescr(store),
											  row.value, row.isnull));
	CommandCounterIncrement();
}

/* A long statement is in the TOAST table, and is not written there each time. */
void
dt_store_update(Relation store, ItemPointer tid, const DtJob *job)
{
	TupleDesc	descriptor = RelationGetDescr(store);
	TupleTableSlot *slot = table_slot_create(store, NULL);
	Values		row = values_of(job);
	bool		replaces[COLUMNS];
	bool		isnull;
	HeapTuple	tuple;

	if (!table_tuple_fetch_row_version(store, tid, SnapshotAny, slot))
		elog(ERROR, "could not find a row of \"%s\"", STORE);
	tuple = ExecFetchSlotHeapTuple(slot, false, NULL);
	memset(replaces, true, sizeof(replaces));
	replaces[COLUMN_STATEMENT - 1] =
		strcmp(TextDatumGetCString(heap_getattr(tuple, COLUMN_STATEMENT,
												descriptor, &isnull)),
			   job->statement) != 0;
	CatalogTupleUpdate(store, tid, heap_modify_tuple(tuple, descriptor,
													 row.value, row.isnull,
													 replaces));
	ExecDropSingleTupleTableSlot(slot);
	CommandCounterIncrement();
}

void
dt_store_delete(Relation store, ItemPointer tid)
{
	CatalogTupleDelete(store, tid);
	CommandCounterIncrement();
}
