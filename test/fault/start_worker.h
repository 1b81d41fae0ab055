/*
 * Starting a background worker of the library that this is compiled into.
 */
#ifndef START_WORKER_H
#define START_WORKER_H

#include <dlfcn.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"

/*
 * "function" is its main function, "name" the name of that.  The caller has filled
 * in bgw_main_arg and bgw_extra, if need be.
 */
static BackgroundWorkerHandle *
start_worker(BackgroundWorker *worker, const char *type,
			 bgworker_main_type function, const char *name)
{
	BackgroundWorkerHandle *handle;
	Dl_info		library;

	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	worker->bgw_notify_pid = MyProcPid;
	strlcpy(worker->bgw_name, type, sizeof(worker->bgw_name));
	strlcpy(worker->bgw_type, type, sizeof(worker->bgw_type));
	strlcpy(worker->bgw_function_name, name, sizeof(worker->bgw_function_name));
	dladdr(function, &library);
	strlcpy(worker->bgw_library_name, library.dli_fname,
			sizeof(worker->bgw_library_name));
	if (!RegisterDynamicBackgroundWorker(worker, &handle))
		elog(ERROR, "the worker was not started");
	return handle;
}

#endif							/* START_WORKER_H */
