/*-------------------------------------------------------------------------
 *
 * worker.c
 *		A background worker that runs statements, each in a transaction.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

/* What the worker gets, in bgw_extra. */
typedef struct Work
{
	char		dbname[32];
	char		sql[BGW_EXTRALEN - 32]; /* separated by semicolons */
} Work;

extern PGDLLEXPORT void dt_test_worker_main(Datum main_arg);

PG_FUNCTION_INFO_V1(dt_test_worker);

void
dt_test_worker_main(Datum main_arg)
{
	Work	   *work = (Work *) MyBgworkerEntry->bgw_extra;
	char	   *rest = work->sql;
	char	   *statement;

	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(work->dbname, NULL, 0);
	while ((statement = strsep(&rest, ";")) != NULL)
	{
		StartTransactionCommand();
		SPI_connect();
		PushActiveSnapshot(GetTransactionSnapshot());
		SPI_execute(statement, false, 0);
		SPI_finish();
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	proc_exit(0);
}

/*
 * dt_test_worker(dbname text, sql text) returns int: starts it, and returns its
 * process ID.
 */
Datum
dt_test_worker(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {
		.bgw_name = "dirty_throttle test",
		.bgw_type = "dirty_throttle test",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "dirty_throttle",
		.bgw_function_name = "dt_test_worker_main",
		.bgw_notify_pid = MyProcPid
	};
	Work	   *work = (Work *) worker.bgw_extra;
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	strlcpy(work->dbname, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof(work->dbname));
	if (strlcpy(work->sql, text_to_cstring(PG_GETARG_TEXT_PP(1)), sizeof(work->sql)) >=
		sizeof(work->sql))
		elog(ERROR, "too many statements");
	if (!RegisterDynamicBackgroundWorker(&worker, &handle) ||
		WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "could not start a background worker");
	PG_RETURN_INT32(pid);
}
