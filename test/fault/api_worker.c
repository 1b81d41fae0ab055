/*-------------------------------------------------------------------------
 *
 * api_worker.c
 *		A background worker that writes by the server's C API, and runs no
 *		statement; for test/t/063_operators.pl and 111_api_worker.pl, which
 *		compile it.
 *
 *	launch_api(dbname, rolename, how, rows, transactions)
 *		Starts a worker that writes so many rows into the table "written" (or
 *		pages of it), in so many transactions, with a check for interrupts
 *		before each; its process ID, when it is known to the server.  An empty
 *		rolename: it names nobody.
 *
 *		how: "heap"; "read", the heap, but first a query that only reads;
 *		"index", the heap and all indexes; "generic", pages by generic WAL;
 *		"custom", as many bytes of WAL by a resource manager of its own, which
 *		takes that the library is preloaded; "copy", as COPY reads them;
 *		"undone", the heap, but first a query of which the server is told is
 *		undone; "wait": nothing, until it is told to end; "again", the heap, so many rows
 *		each 10 ms, until then.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "access/generic_xlog.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog_internal.h"
#include "access/xloginsert.h"
#include "catalog/indexing.h"
#include "catalog/namespace.h"
#include "commands/copy.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "parser/parse_relation.h"
#include "postmaster/bgworker.h"
#include "start_worker.h"
#include "storage/bufmgr.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(launch_api);

extern PGDLLEXPORT void api_worker_main(Datum main_arg);
void		_PG_init(void);

/* What the worker gets, in bgw_extra. */
typedef struct Work
{
	char		dbname[32];
	char		rolename[32];
	char		how[16];
	int			rows;
	int			transactions;
} Work;

/* Of CPU time, at least. */
#define ROW_TAKES_NS	40000

static char pad[800];			/* a row has a page of its own */
static int	rows_to_copy;

/*
 * A process that writes without a statement is charged at ticks of its CPU time.
 * The kernel makes one in some milliseconds, and none in a run that begins and
 * ends between two of its own.  A fast machine would have written all pages within
 * a few of them.  So each takes its time.
 */
static void
work_for_a_row(void)
{
	struct timespec start;
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
	do
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	while ((now.tv_sec - start.tv_sec) * 1000000000L +
		   now.tv_nsec - start.tv_nsec < ROW_TAKES_NS);
}

static HeapTuple
make_row(Relation relation, int id)
{
	Datum		values[2] = {Int32GetDatum(id), CStringGetTextDatum(pad)};
	bool		nulls[2] = {false, false};

	return heap_form_tuple(RelationGetDescr(relation), values, nulls);
}

static void
write_rows(Relation relation, int rows, bool indexes)
{
	for (int i = 0; i < rows; i++)
	{
		HeapTuple	row;

		CHECK_FOR_INTERRUPTS();
		work_for_a_row();
		row = make_row(relation, i);
		if (indexes)
			CatalogTupleInsert(relation, row);
		else
			simple_heap_insert(relation, row);
		heap_freetuple(row);
	}
}

/* The table has as many pages, and nobody cares what is on them. */
static void
write_pages(Relation relation, int pages)
{
	static BlockNumber next = 0;

	for (int i = 0; i < pages; i++)
	{
		Buffer		buffer;
		GenericXLogState *state;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		work_for_a_row();
		buffer = ReadBuffer(relation, next++);
		LockBuffer(buffer, BUFFER_LOCK_EXCLUSIVE);
		state = GenericXLogStart(relation);
		page = GenericXLogRegisterBuffer(state, buffer, GENERIC_XLOG_FULL_IMAGE);
		PageInit(page, BLCKSZ, 0);
		GenericXLogFinish(state);
		UnlockReleaseBuffer(buffer);
	}
}

/* As for that many pages, of a kind that the server's code does not write. */
static void
write_records(int records)
{
	static char record[BLCKSZ];

	for (int i = 0; i < records; i++)
	{
		CHECK_FOR_INTERRUPTS();
		work_for_a_row();
		XLogBeginInsert();
		XLogRegisterData(record, sizeof(record));
		(void) XLogInsert(RM_EXPERIMENTAL_ID, 0);
	}
}

static int
next_line(void *buffer, int minread, int maxread)
{
	char		line[1000];
	int			length;

	if (rows_to_copy <= 0)
		return 0;
	work_for_a_row();
	length = snprintf(line, sizeof(line), "%d\t%s\n", rows_to_copy--, pad);
	Assert(length <= maxread);
	memcpy(buffer, line, length);
	return length;
}

static void
copy_rows(Relation relation, int rows)
{
	ParseState *pstate = make_parsestate(NULL);
	CopyFromState copy;

	rows_to_copy = rows;
	(void) addRangeTableEntryForRelation(pstate, relation, RowExclusiveLock,
										 NULL, false, false);
	copy = BeginCopyFrom(pstate, relation, NULL, NULL, false, next_line, NIL, NIL);
	(void) CopyFrom(copy);
	EndCopyFrom(copy);
}

static void
read_something(void)
{
	if (SPI_connect() != SPI_OK_CONNECT ||
		SPI_execute("SELECT 1", false, 0) != SPI_OK_SELECT ||
		SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI failed");
}

static void
undo_something(void)
{
	static const char query[] = "INSERT INTO written VALUES (0)";
	ResourceOwner owner = CurrentResourceOwner;

	debug_query_string = query;
	BeginInternalSubTransaction(NULL);
	if (SPI_connect() != SPI_OK_CONNECT ||
		SPI_execute(query, false, 0) != SPI_OK_INSERT ||
		SPI_finish() != SPI_OK_FINISH)
		elog(ERROR, "SPI failed");
	RollbackAndReleaseCurrentSubTransaction();
	CurrentResourceOwner = owner;
	debug_query_string = NULL;
}

static void
do_transaction(const char *how, int rows)
{
	Relation	relation;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (strcmp(how, "read") == 0)
		read_something();
	if (strcmp(how, "undone") == 0)
		undo_something();
	relation = table_open(RelnameGetRelid("written"), RowExclusiveLock);
	if (strcmp(how, "generic") == 0)
		write_pages(relation, rows);
	else if (strcmp(how, "custom") == 0)
		write_records(rows);
	else if (strcmp(how, "copy") == 0)
		copy_rows(relation, rows);
	else
		write_rows(relation, rows, strcmp(how, "index") == 0);
	table_close(relation, NoLock);
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
wait_for_the_end(void)
{
	StartTransactionCommand();
	CommitTransactionCommand();
	for (;;)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_EXIT_ON_PM_DEATH, 0,
						 PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
}

static void
write_again_and_again(int rows)
{
	for (;;)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 10, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		do_transaction("heap", rows);
	}
}

void
api_worker_main(Datum main_arg)
{
	Work	   *work = (Work *) MyBgworkerEntry->bgw_extra;

	memset(pad, 'x', sizeof(pad) - 1);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(work->dbname,
										 work->rolename[0] ? work->rolename : NULL, 0);
	if (strcmp(work->how, "wait") == 0)
		wait_for_the_end();
	if (strcmp(work->how, "again") == 0)
		write_again_and_again(work->rows);
	for (int i = 0; i < work->transactions; i++)
		do_transaction(work->how, work->rows / work->transactions);
	proc_exit(0);
}

Datum
launch_api(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};
	Work	   *work = (Work *) worker.bgw_extra;
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	strlcpy(work->dbname, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof(work->dbname));
	strlcpy(work->rolename, text_to_cstring(PG_GETARG_TEXT_PP(1)), sizeof(work->rolename));
	strlcpy(work->how, text_to_cstring(PG_GETARG_TEXT_PP(2)), sizeof(work->how));
	work->rows = PG_GETARG_INT32(3);
	work->transactions = PG_GETARG_INT32(4);
	handle = start_worker(&worker, "api_worker", api_worker_main, "api_worker_main");
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "could not start a background worker");

	/* who does not find it afterwards is to know that it has ended */
	while (BackendPidGetProc(pid) == NULL &&
		   GetBackgroundWorkerPid(handle, &pid) == BGWH_STARTED)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 1, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
	}
	PG_RETURN_INT32(pid);
}

static void
redo_nothing(XLogReaderState *record)
{
}

static void
describe_nothing(StringInfo buf, XLogReaderState *record)
{
}

static const char *
identify(uint8 info)
{
	return "RECORD";
}

static RmgrData custom = {
	.rm_name = "api_worker",
	.rm_redo = redo_nothing,
	.rm_desc = describe_nothing,
	.rm_identify = identify
};

void
_PG_init(void)
{
	if (process_shared_preload_libraries_in_progress)
		RegisterCustomRmgr(RM_EXPERIMENTAL_ID, &custom);
}
