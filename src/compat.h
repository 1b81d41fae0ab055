/*-------------------------------------------------------------------------
 *
 * compat.h
 *		What differs between PostgreSQL 15, 16, 17 and 18.
 *
 * The code is written for the newest release; older ones are mapped onto it
 * here.  This is the only file that tests PG_VERSION_NUM.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMPAT_H
#define DT_COMPAT_H

#include "executor/executor.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "dirty_throttle needs PostgreSQL 15 or newer"
#endif

/*
 * Its header, libpq/libpq.h, drags in those of GSSAPI, which are not installed
 * with the server's headers everywhere.
 */
extern bool pq_check_connection(void);

/* 16: check hooks allocate "extra" with guc_malloc, not malloc */
#if PG_VERSION_NUM < 160000
#define guc_malloc(elevel, size)	malloc(size)
#endif

/* 16: one object_aclcheck for all catalogs */
#if PG_VERSION_NUM < 160000
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"

static inline AclResult
object_aclcheck(Oid classid, Oid objectid, Oid roleid, AclMode mode)
{
	if (classid == NamespaceRelationId)
		return pg_namespace_aclcheck(objectid, roleid, mode);
	Assert(classid == ProcedureRelationId);
	return pg_proc_aclcheck(objectid, roleid, mode);
}
#endif

/* 16: VACUUM works with copies of the parameters, which are variables, too */
#if PG_VERSION_NUM < 160000
#define vacuum_cost_limit	VacuumCostLimit
#define vacuum_cost_delay	VacuumCostDelay
#define dt_vacuum_cost_changed()	((void) 0)
#else
#define dt_vacuum_cost_changed() \
	(vacuum_cost_limit = VacuumCostLimit, vacuum_cost_delay = VacuumCostDelay)
#endif

/* 17: extensions name their wait events */
#if PG_VERSION_NUM < 170000
#define WaitEventExtensionNew(name) PG_WAIT_EXTENSION
#endif

/* 17: LockHeldByMe has a third argument, "or a stronger one" */
#if PG_VERSION_NUM < 170000
#define LockHeldByMe(tag, mode, orstronger)	LockHeldByMe(tag, mode)
#endif

/* 17: MyProcNumber instead of MyProc->pgprocno, a macro for other processes */
#if PG_VERSION_NUM < 170000
#define MyProcNumber	(MyProc->pgprocno)
#define GetNumberFromPGProc(proc)	((proc)->pgprocno)
#endif

/* 18: ExecutorRun lost its execute_once argument */
#if PG_VERSION_NUM >= 180000
#define EXECUTOR_RUN_PARAMS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define EXECUTOR_RUN_ARGS	queryDesc, direction, count
#else
#define EXECUTOR_RUN_PARAMS \
	QueryDesc *queryDesc, ScanDirection direction, uint64 count, \
	bool execute_once
#define EXECUTOR_RUN_ARGS	queryDesc, direction, count, execute_once
#endif

#endif							/* DT_COMPAT_H */
