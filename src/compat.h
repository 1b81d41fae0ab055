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
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 150000
#error "dirty_throttle needs PostgreSQL 15 or newer"
#endif

/*
 * From libpq/libpq.h, which cannot be included: it needs the headers of
 * GSSAPI, which are not installed everywhere with those of the server.
 */
extern bool pq_check_connection(void);

/* 16: check hooks allocate "extra" with guc_malloc, not malloc */
#if PG_VERSION_NUM < 160000
#define guc_malloc(elevel, size)	malloc(size)
#endif

/*
 * 16: a variable tells that VACUUM has come to its failsafe.  In 15 it
 * switches the cost-based delay off.
 */
#if PG_VERSION_NUM < 160000
#define vacuum_cost_delay		VacuumCostDelay
#define DT_FAILSAFE_ENDS_DELAY	true
#define VacuumFailsafeActive \
	((MyProc->statusFlags & PROC_IN_VACUUM) && VacuumCostDelay > 0 && \
	 !VacuumCostActive)
#else
#define DT_FAILSAFE_ENDS_DELAY	false
#endif

/* 16: the lists of the lock manager are dlists */
static inline PROCLOCK *
dt_next_holder(LOCK *lock, PROCLOCK *holder)
{
#if PG_VERSION_NUM < 160000
	return (PROCLOCK *) SHMQueueNext(&lock->procLocks, holder ?
									 &holder->lockLink : &lock->procLocks,
									 offsetof(PROCLOCK, lockLink));
#else
	dlist_node *next = holder ? holder->lockLink.next :
		lock->procLocks.head.next;

	return next == &lock->procLocks.head ? NULL :
		dlist_container(PROCLOCK, lockLink, next);
#endif
}

/* The same for the locks of a process in one partition of the lock table. */
static inline PROCLOCK *
dt_next_lock(PGPROC *proc, int partition, PROCLOCK *held)
{
#if PG_VERSION_NUM < 160000
	SHM_QUEUE  *locks = &proc->myProcLocks[partition];

	return (PROCLOCK *) SHMQueueNext(locks, held ? &held->procLink : locks,
									 offsetof(PROCLOCK, procLink));
#else
	dlist_node *head = &proc->myProcLocks[partition].head;
	dlist_node *next = held ? held->procLink.next : head->next;

	return next == head ? NULL : dlist_container(PROCLOCK, procLink, next);
#endif
}

/*
 * 17: extensions name their wait events.  Processes are known by proc numbers,
 * from 0: MyProcNumber instead of MyProc->pgprocno, a macro for other ones.
 */
#if PG_VERSION_NUM < 170000
#define WaitEventExtensionNew(name) PG_WAIT_EXTENSION
#define INVALID_PROC_NUMBER	InvalidBackendId
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
