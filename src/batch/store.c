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
 * security, rules and triggers do not concern them; and pg_dump, as whichever user,
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
#include "access/htup_details.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "batch/store.h"
#include "catalog/indexing.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "common/hashfn.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"

#include "compat.h"

#define JOBS			"dirty_throttle_stored_batches"
#define JOBS_ID			"dirty_throttle_stored_batches_id"
#define JOBS_KEY		"dirty_throttle_stored_batches_key"
#define PROGRESS		"dirty_throttle_stored_progress"
#define PROGRESS_ID		"dirty_throttle_stored_progress_id"

/* At most this many bytes of a message are kept. */
#define LONGEST_ERROR	4096

/* The columns, in the order of the relations: where they are in DtJob. */
static const size_t jobs_columns[] = {
	offsetof(DtJob, id), offsetof(DtJob, owner), offsetof(DtJob, name),
	offsetof(DtJob, table), offsetof(DtJob, statement), offsetof(DtJob, columns),
	offsetof(DtJob, ordering), offsetof(DtJob, start), offsetof(DtJob, finish),
	offsetof(DtJob, settings), offsetof(DtJob, group_id), offsetof(DtJob, row_security),
	offsetof(DtJob, batch_us), offsetof(DtJob, max_rows), offsetof(DtJob, run_us)
};

static const size_t progress_columns[] = {
	offsetof(DtJob, id), offsetof(DtJob, position), offsetof(DtJob, until),
	offsetof(DtJob, keys), offsetof(DtJob, expected),
	offsetof(DtJob, rows), offsetof(DtJob, batches), offsetof(DtJob, retries),
	offsetof(DtJob, elapsed_us), offsetof(DtJob, paused_us), offsetof(DtJob, rate),
	offsetof(DtJob, updated), offsetof(DtJob, finished), offsetof(DtJob, outcome),
	offsetof(DtJob, error), offsetof(DtJob, sqlstate), offsetof(DtJob, detail),
	offsetof(DtJob, hint)
};

#define MOST_COLUMNS	lengthof(progress_columns)

static ProcessUtility_hook_type prev_ProcessUtility;

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
				 errmsg("relation \"%s\" of extension dirty_throttle no longer exists", name),
				 errhint("If the extension was dropped, create it, and start the batches from the beginning.")));
	/* it is written as a catalog is */
	if (RelationGetNumberOfAttributes(relation) != columns ||
		relation->rd_rel->relam != HEAP_TABLE_AM_OID)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("materialized view \"%s\" does not have the columns or the access method that the library expects", name),
				 errhint("Use ALTER MATERIALIZED VIEW ... SET ACCESS METHOD heap, or drop the extension and create it again.")));
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

/* Is it a number or the like, and not a pointer to something?  On 32 bits that, too. */
static bool
is_number(Form_pg_attribute attribute)
{
	return attribute->attlen > 0 && attribute->attlen <= sizeof(int64);
}

/* A text in C is one of SQL there, and a pointer that is NULL is NULL. */
static HeapTuple
form(Relation relation, const size_t *columns, const DtJob *job)
{
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];

	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), i);
		const char *field = (const char *) job + columns[i];
		const char *string = is_number(attribute) ? field : *(char *const *) field;
		int			most = columns[i] < offsetof(DtJob, error) ? INT_MAX : LONGEST_ERROR;

		nulls[i] = string == NULL;
		if (is_number(attribute))
			values[i] = fetch_att(field, attribute->attbyval, attribute->attlen);
		else if (attribute->atttypid != TEXTOID || nulls[i])
			values[i] = PointerGetDatum(string);
		else
			values[i] = PointerGetDatum(cstring_to_text_with_len(string, pg_mbcliplen(string, strlen(string), most)));
	}
	return heap_form_tuple(RelationGetDescr(relation), values, nulls);
}

static void
deform(Relation relation, const size_t *columns, HeapTuple tuple, DtJob *job)
{
	Datum		values[MOST_COLUMNS];
	bool		nulls[MOST_COLUMNS];

	heap_deform_tuple(tuple, RelationGetDescr(relation), values, nulls);
	for (int i = 0; i < RelationGetNumberOfAttributes(relation); i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(RelationGetDescr(relation), i);
		char	   *field = (char *) job + columns[i];

		if (nulls[i])
			continue;			/* all was zero */
		if (attribute->attbyval)
			store_att_byval(field, values[i], attribute->attlen);
		else if (is_number(attribute))
			memcpy(field, DatumGetPointer(values[i]), attribute->attlen);
		else if (attribute->atttypid == TEXTOID)
			*(char **) field = TextDatumGetCString(values[i]);
		else
			*(Pointer *) field = attribute->attlen < 0 ? (Pointer) DatumGetArrayTypePCopy(values[i]) :
				DatumGetPointer(datumCopy(values[i], false, attribute->attlen));
	}
}

/* ------------------------------------------------------------ the relations */

/* The row that an index finds, copied, or NULL. */
static HeapTuple
find(Relation relation, const char *index_name, int n, ScanKey key)
{
	Oid			index = get_relname_relid(index_name, RelationGetNamespace(relation));
	SysScanDesc scan = systable_beginscan(relation, index, OidIsValid(index), NULL, n, key);
	HeapTuple	tuple = systable_getnext(scan);

	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	return tuple;
}

/* The row with this ID, or NULL if that is not an error. */
static HeapTuple
get(Relation relation, const char *index_name, Oid id, bool missing_ok)
{
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, 1, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(id));
	tuple = find(relation, index_name, 1, &key);
	if (tuple == NULL && !missing_ok)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("the stored state of the batch job is gone"),
				 errhint("Start it from the beginning.")));
	return tuple;
}

/* The job of a row, with its progress; NULL: there is no row, or it was forgotten just now. */
static DtJob *
job_of(const DtStore *store, HeapTuple tuple)
{
	DtJob	   *job = palloc0(sizeof(DtJob));
	HeapTuple	progress;

	if (tuple == NULL)
		return NULL;
	deform(store->jobs, jobs_columns, tuple, job);
	progress = get(store->progress, PROGRESS_ID, job->id, true);
	if (progress == NULL)
		return NULL;
	deform(store->progress, progress_columns, progress, job);
	job->progress_tid = progress->t_self;
	return job;
}

DtJob *
dt_store_find(const DtStore *store, Oid owner, const char *name, bool missing_ok)
{
	ScanKeyData key[2];
	DtJob	   *job;

	ScanKeyInit(&key[0], 2, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(owner));
	ScanKeyInit(&key[1], 3, BTEqualStrategyNumber, F_NAMEEQ, CStringGetDatum(name));
	job = job_of(store, find(store->jobs, JOBS_KEY, 2, key));
	if (job == NULL && !missing_ok)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("batch job \"%s\" does not exist", name),
				 errhint("The view dirty_throttle_batches lists all jobs. To create this job, call start_batches() with a table and a statement.")));
	return job;
}

DtJob *
dt_store_get(const DtStore *store, Oid id)
{
	return job_of(store, get(store->jobs, JOBS_ID, id, false));
}

DtJob *
dt_store_read(Oid jobs, Oid id)
{
	DtStore		store = dt_store_open(jobs, AccessShareLock);
	DtJob	   *job;

	/* what is stored out of line is not read without a snapshot */
	PushActiveSnapshot(GetCatalogSnapshot(InvalidOid));
	job = dt_store_get(&store, id);
	PopActiveSnapshot();
	dt_store_close(&store, AccessShareLock);
	InvalidateCatalogSnapshot();
	return job;
}

void
dt_store_lock(const DtStore *store, Oid owner, const char *name)
{
	LockDatabaseObject(RelationGetRelid(store->jobs),
					   hash_bytes((const unsigned char *) name, strlen(name)) + owner, 0,
					   ExclusiveLock);
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
dt_store_put(const DtStore *store, DtJob *job)
{
	if (OidIsValid(job->id))
	{
		HeapTuple	tuple = get(store->jobs, JOBS_ID, job->id, false);

		CatalogTupleUpdate(store->jobs, &tuple->t_self, form(store->jobs, jobs_columns, job));
		dt_store_put_progress(store, job);
		return;
	}
	job->id = GetNewObjectId();
	CatalogTupleInsert(store->jobs, form(store->jobs, jobs_columns, job));
	CatalogTupleInsert(store->progress, form(store->progress, progress_columns, job));
	CommandCounterIncrement();
}

/*
 * Is the present row there?  Where a snapshot is held for long, the way through the
 * index leads past all older versions of it.
 */
static bool
is_at(Relation relation, ItemPointer tid, Oid id)
{
	TupleTableSlot *slot = table_slot_create(relation, NULL);
	bool		isnull;
	bool		result = ItemPointerGetBlockNumber(tid) < RelationGetNumberOfBlocks(relation) &&
		table_tuple_fetch_row_version(relation, tid, SnapshotSelf, slot) &&
		DatumGetObjectId(slot_getattr(slot, 1, &isnull)) == id;

	ExecDropSingleTupleTableSlot(slot);
	return result;
}

void
dt_store_put_progress(const DtStore *store, DtJob *job)
{
	HeapTuple	tuple = form(store->progress, progress_columns, job);

	if (!is_at(store->progress, &job->progress_tid, job->id))
		job->progress_tid = get(store->progress, PROGRESS_ID, job->id, false)->t_self;
	CatalogTupleUpdate(store->progress, &job->progress_tid, tuple);
	job->progress_tid = tuple->t_self;
	CommandCounterIncrement();
}

void
dt_store_delete(const DtStore *store, DtJob *job)
{
	CatalogTupleDelete(store->jobs, &get(store->jobs, JOBS_ID, job->id, false)->t_self);
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

/*
 * From 17 on, a role that maintains a database may refresh what it does not own.  No
 * other materialized view has a name like these.
 */
static void
refuse_no_data(PlannedStmt *pstmt, const char *queryString, bool readOnlyTree,
			   ProcessUtilityContext context, ParamListInfo params,
			   QueryEnvironment *queryEnv, DestReceiver *dest,
			   QueryCompletion *qc)
{
	RefreshMatViewStmt *refresh = (RefreshMatViewStmt *) pstmt->utilityStmt;

	if (IsA(refresh, RefreshMatViewStmt) && refresh->skipData &&
		(strcmp(refresh->relation->relname, JOBS) == 0 ||
		 strcmp(refresh->relation->relname, PROGRESS) == 0))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("materialized view \"%s\" cannot be refreshed WITH NO DATA",
						refresh->relation->relname),
				 errdetail("That would forget the batch jobs of all roles."),
				 errhint("Use SELECT forget_batches(...) for a job.")));
	(prev_ProcessUtility ? prev_ProcessUtility : standard_ProcessUtility)
		(pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc);
}

void
dt_store_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = refuse_no_data;
}
