/*-------------------------------------------------------------------------
 *
 * store.c
 *		What is stored of jobs that are run in batches.
 *
 * There are two rows for each job: what it is, and how far it has come.  The second one
 * changes in the transaction of each batch, so the server makes it durable,
 * replicates it, and rolls it back with the batch.
 *
 * The rows are in materialized views, which are written here as the server
 * writes its catalogs.  To the server they are tables in all that matters here,
 * pg_upgrade included.  But no publication has them, not even one FOR ALL TABLES,
 * so subscribers that do not know them go on; nobody can change them by SQL, row
 * security, rules and triggers do not concern them; and pg_dump, whoever runs it,
 * leaves them alone.  Their queries return what they contain, so that REFRESH
 * MATERIALIZED VIEW changes nothing; WITH NO DATA is refused.
 *
 * Nobody has privileges on them, and none are needed here.  Callers see to it that
 * a user gets only what that user may see.
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
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "mb/pg_wchar.h"
#include "storage/bufmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"

#define JOBS			"dirty_throttle_stored_batches"
#define JOBS_ID			"dirty_throttle_stored_batches_id"
#define JOBS_KEY		"dirty_throttle_stored_batches_key"
#define PROGRESS		"dirty_throttle_stored_progress"
#define PROGRESS_ID		"dirty_throttle_stored_progress_id"

/* At most this many bytes of a message are kept. */
#define LONGEST_ERROR	4096

typedef enum Kind
{
	KIND_OID,
	KIND_NAME,
	KIND_TEXT,
	KIND_ERROR,					/* the same, perhaps cut */
	KIND_ARRAY,
	KIND_INT,
	KIND_BOOL,
	KIND_FLOAT,
	KIND_TIME
} Kind;

typedef struct Column
{
	Kind		kind;
	int			offset;			/* in DtJob */
} Column;

#define COLUMN(kind, member)	{kind, offsetof(DtJob, member)}

/* The columns, in the order of the relations. */
static const Column jobs_columns[] = {
	COLUMN(KIND_OID, id), COLUMN(KIND_OID, owner), COLUMN(KIND_NAME, name),
	COLUMN(KIND_OID, login), COLUMN(KIND_OID, table), COLUMN(KIND_TEXT, statement),
	COLUMN(KIND_TEXT, columns), COLUMN(KIND_TEXT, ordering),
	COLUMN(KIND_ARRAY, start), COLUMN(KIND_ARRAY, finish),
	COLUMN(KIND_ARRAY, settings), COLUMN(KIND_INT, group_id),
	COLUMN(KIND_BOOL, row_security), COLUMN(KIND_INT, batch_us),
	COLUMN(KIND_INT, max_rows), COLUMN(KIND_INT, run_us)
};

static const Column progress_columns[] = {
	COLUMN(KIND_OID, id), COLUMN(KIND_ARRAY, position), COLUMN(KIND_ARRAY, until),
	COLUMN(KIND_INT, size), COLUMN(KIND_INT, keys), COLUMN(KIND_INT, expected),
	COLUMN(KIND_INT, rows), COLUMN(KIND_INT, batches), COLUMN(KIND_INT, retries),
	COLUMN(KIND_INT, elapsed_us), COLUMN(KIND_INT, paused_us),
	COLUMN(KIND_FLOAT, rate), COLUMN(KIND_TIME, updated),
	COLUMN(KIND_TIME, finished),
	COLUMN(KIND_TEXT, outcome), COLUMN(KIND_ERROR, error),
	COLUMN(KIND_TEXT, sqlstate), COLUMN(KIND_ERROR, detail),
	COLUMN(KIND_ERROR, hint)
};

#define MOST_COLUMNS	lengthof(progress_columns)

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

Oid
dt_store_oid(Oid routine)
{
	return get_relname_relid(JOBS, get_func_namespace(routine));
}

static Relation
open_one(Oid oid, const char *name, int columns, LOCKMODE lockmode)
{
	Relation	relation = OidIsValid(oid) ? try_table_open(oid, lockmode) : NULL;

	if (relation == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation \"%s\" of extension dirty_throttle does not exist any more", name),
				 errhint("If the extension was dropped, create it, and start the batches to begin anew.")));
	/* it is written as a catalog is */
	if (RelationGetNumberOfAttributes(relation) != columns ||
		relation->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("materialized view \"%s\" has not the columns or not the access method that the library expects", name),
				 errhint("Use ALTER MATERIALIZED VIEW ... SET ACCESS METHOD heap, or create the extension anew.")));
	return relation;
}

DtStore
dt_store_open(Oid jobs, LOCKMODE lockmode)
{
	DtStore		store;

	store.jobs = open_one(jobs, JOBS, lengthof(jobs_columns), lockmode);
	store.progress = open_one(get_relname_relid(PROGRESS, RelationGetNamespace(store.jobs)),
							  PROGRESS, lengthof(progress_columns), lockmode);
	return store;
}

void
dt_store_close(DtStore *store, LOCKMODE lockmode)
{
	table_close(store->progress, lockmode);
	table_close(store->jobs, lockmode);
}

/* ------------------------------------------------------------ rows */

/* A value as a datum; a pointer that is NULL, and no time, as NULL. */
static Datum
get_value(const DtJob *job, const Column *column, bool *isnull)
{
	const void *field = (const char *) job + column->offset;
	char	   *string;

	*isnull = false;
	switch (column->kind)
	{
		case KIND_OID:
			return ObjectIdGetDatum(*(const Oid *) field);
		case KIND_INT:
			return Int64GetDatum(*(const int64 *) field);
		case KIND_BOOL:
			return BoolGetDatum(*(const bool *) field);
		case KIND_FLOAT:
			return Float8GetDatum(*(const double *) field);
		case KIND_TIME:
			*isnull = *(const TimestampTz *) field == 0;
			return TimestampTzGetDatum(*(const TimestampTz *) field);
		default:
			break;
	}
	string = *(char *const *) field;
	*isnull = string == NULL;
	if (*isnull || column->kind == KIND_ARRAY)
		return PointerGetDatum(string);
	if (column->kind == KIND_NAME)
	{
		Name		name = palloc(sizeof(NameData));

		namestrcpy(name, string);
		return NameGetDatum(name);
	}
	return PointerGetDatum(cstring_to_text_with_len(string, column->kind == KIND_ERROR ?
													pg_mbcliplen(string, strlen(string), LONGEST_ERROR) :
													(int) strlen(string)));
}

static void
set_value(DtJob *job, const Column *column, Datum value, bool isnull)
{
	void	   *field = (char *) job + column->offset;

	if (isnull)
		return;					/* all was zero */
	switch (column->kind)
	{
		case KIND_OID:
			*(Oid *) field = DatumGetObjectId(value);
			break;
		case KIND_INT:
			*(int64 *) field = DatumGetInt64(value);
			break;
		case KIND_BOOL:
			*(bool *) field = DatumGetBool(value);
			break;
		case KIND_FLOAT:
			*(double *) field = DatumGetFloat8(value);
			break;
		case KIND_TIME:
			*(TimestampTz *) field = DatumGetTimestampTz(value);
			break;
		case KIND_ARRAY:
			*(ArrayType **) field = DatumGetArrayTypePCopy(value);
			break;
		case KIND_NAME:
			*(char **) field = pstrdup(NameStr(*DatumGetName(value)));
			break;
		default:
			*(char **) field = TextDatumGetCString(value);
	}
}

static HeapTuple
form(Relation relation, const Column *columns, const DtJob *job)
{
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];

	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
		values[i] = get_value(job, &columns[i], &nulls[i]);
	return heap_form_tuple(RelationGetDescr(relation), values, nulls);
}

static void
deform(Relation relation, const Column *columns, HeapTuple tuple, DtJob *job)
{
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];

	heap_deform_tuple(tuple, RelationGetDescr(relation), values, nulls);
	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
		set_value(job, &columns[i], values[i], nulls[i]);
}

/* ------------------------------------------------------------ the relations */

static SysScanDesc
begin_scan(Relation relation, const char *index_name, int n, ScanKey key)
{
	Oid			index = get_relname_relid(index_name, RelationGetNamespace(relation));

	return systable_beginscan(relation, index, OidIsValid(index), NULL, n, key);
}

/* The row with this ID, copied, or NULL. */
static HeapTuple
find_id(Relation relation, const char *index_name, Oid id)
{
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(id));
	scan = begin_scan(relation, index_name, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* The job of a row, with its progress, or NULL. */
static DtJob *
job_of(const DtStore *store, HeapTuple tuple)
{
	DtJob	   *job = palloc0(sizeof(DtJob));
	HeapTuple	progress;

	deform(store->jobs, jobs_columns, tuple, job);
	job->tid = tuple->t_self;
	progress = find_id(store->progress, PROGRESS_ID, job->id);
	if (progress == NULL)
		return NULL;			/* it was forgotten just now */
	deform(store->progress, progress_columns, progress, job);
	job->progress_tid = progress->t_self;
	return job;
}

DtJob *
dt_store_find(const DtStore *store, Oid owner, const char *name)
{
	ScanKeyData key[2];
	NameData	name_buffer;
	SysScanDesc scan;
	HeapTuple	tuple;
	DtJob	   *job;

	namestrcpy(&name_buffer, name);
	ScanKeyInit(&key[0], 2, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	ScanKeyInit(&key[1], 3, BTEqualStrategyNumber, F_NAMEEQ, NameGetDatum(&name_buffer));
	scan = begin_scan(store->jobs, JOBS_KEY, 2, key);
	tuple = systable_getnext(scan);
	job = HeapTupleIsValid(tuple) ? job_of(store, tuple) : NULL;
	systable_endscan(scan);
	return job;
}

DtJob *
dt_store_get(const DtStore *store, Oid id)
{
	HeapTuple	tuple = find_id(store->jobs, JOBS_ID, id);

	return tuple ? job_of(store, tuple) : NULL;
}

DtJob *
dt_store_lock(const DtStore *store, Oid owner, const char *name)
{
	DtJob	   *job = dt_store_find(store, owner, name);
	TupleTableSlot *slot;
	TM_FailureData failure;
	TM_Result	result;

	if (job == NULL)
		return NULL;
	slot = table_slot_create(store->jobs, NULL);
	PushActiveSnapshot(GetLatestSnapshot());
	result = table_tuple_lock(store->jobs, &job->tid, GetActiveSnapshot(), slot,
							  GetCurrentCommandId(false), LockTupleExclusive,
							  LockWaitBlock,
							  TUPLE_LOCK_FLAG_FIND_LAST_VERSION, &failure);
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	if (result != TM_Ok && result != TM_Deleted)
		elog(ERROR, "could not lock a row of \"%s\": %d", JOBS, result);
	return dt_store_find(store, owner, name);
}

void
dt_store_each(const DtStore *store, void (*act) (const DtJob *job, void *arg), void *arg)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "stored job",
												  ALLOCSET_DEFAULT_SIZES);
	SysScanDesc scan = systable_beginscan(store->jobs, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		MemoryContext old = MemoryContextSwitchTo(context);
		DtJob	   *job = job_of(store, tuple);

		if (job != NULL)
			act(job, arg);
		MemoryContextSwitchTo(old);
		MemoryContextReset(context);
	}
	systable_endscan(scan);
	MemoryContextDelete(context);
}

void
dt_store_insert(const DtStore *store, const DtJob *job)
{
	CatalogTupleInsert(store->jobs, form(store->jobs, jobs_columns, job));
	CatalogTupleInsert(store->progress, form(store->progress, progress_columns, job));
	CommandCounterIncrement();
}

void
dt_store_update(const DtStore *store, DtJob *job)
{
	CatalogTupleUpdate(store->jobs, &job->tid, form(store->jobs, jobs_columns, job));
	dt_store_update_progress(store, job);
}

/*
 * Is the present row there?  Where a snapshot is held for long, the way through the
 * index leads past all older versions of it.
 */
static bool
is_at(Relation relation, ItemPointer tid, Oid id)
{
	TupleTableSlot *slot;
	bool		isnull;
	bool		result;

	if (ItemPointerGetBlockNumber(tid) >= RelationGetNumberOfBlocks(relation))
		return false;
	slot = table_slot_create(relation, NULL);
	PushActiveSnapshot(GetLatestSnapshot());
	result = table_tuple_fetch_row_version(relation, tid, GetActiveSnapshot(), slot) &&
		DatumGetObjectId(slot_getattr(slot, 1, &isnull)) == id;
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	return result;
}

void
dt_store_update_progress(const DtStore *store, DtJob *job)
{
	HeapTuple	tuple;

	if (!is_at(store->progress, &job->progress_tid, job->id))
	{
		HeapTuple	old = find_id(store->progress, PROGRESS_ID, job->id);

		if (old == NULL)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("what is stored of batches \"%s\" is gone", job->name),
					 errhint("Start them again to begin anew.")));
		job->progress_tid = old->t_self;
	}
	tuple = form(store->progress, progress_columns, job);
	CatalogTupleUpdate(store->progress, &job->progress_tid, tuple);
	job->progress_tid = tuple->t_self;
	CommandCounterIncrement();
}

void
dt_store_delete(const DtStore *store, DtJob *job)
{
	CatalogTupleDelete(store->jobs, &job->tid);
	CatalogTupleDelete(store->progress, &job->progress_tid);
	CommandCounterIncrement();
}

void
dt_store_copy(Oid routine, Tuplestorestate *to)
{
	Relation	relation = table_open(get_relname_relid(get_func_name(routine),
														get_func_namespace(routine)),
									  AccessShareLock);
	SysScanDesc scan = systable_beginscan(relation, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;

	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
		tuplestore_puttuple(to, tuple);
	systable_endscan(scan);
	table_close(relation, AccessShareLock);
}

/* ------------------------------------------------------------ REFRESH */

/* Is it one of ours?  No user has the privilege to have another one of that name there. */
static bool
is_stored(const RangeVar *name)
{
	Oid			oid;

	if (strcmp(name->relname, JOBS) != 0 && strcmp(name->relname, PROGRESS) != 0)
		return false;
	oid = RangeVarGetRelid(name, NoLock, true);
	return OidIsValid(oid) &&
		OidIsValid(get_relname_relid(JOBS_ID, get_rel_namespace(oid)));
}

/* From 17 on, a role that maintains a database may refresh what it does not own. */
static void
refuse_no_data(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			   ProcessUtilityContext context, ParamListInfo params,
			   QueryEnvironment *queryEnv, DestReceiver *dest,
			   QueryCompletion *qc)
{
	if (IsA(pstmt->utilityStmt, RefreshMatViewStmt))
	{
		RefreshMatViewStmt *refresh = castNode(RefreshMatViewStmt, pstmt->utilityStmt);

		if (refresh->skipData && is_stored(refresh->relation))
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("materialized view \"%s\" cannot be refreshed WITH NO DATA",
							refresh->relation->relname),
					 errdetail("That would forget the batch jobs of all roles."),
					 errhint("Use SELECT forget_batches(...) for a job.")));
	}
	(prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

void
dt_store_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = refuse_no_data;
}
