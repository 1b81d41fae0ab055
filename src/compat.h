/*-------------------------------------------------------------------------
 *
 * compat.h
 *		What differs between PostgreSQL 15, 16, 17, 18 and 19.
 *
 * The code is written for the newest release; older ones are mapped onto it
 * here.  This is the only file that tests PG_VERSION_NUM.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_COMPAT_H
#define DT_COMPAT_H

#include "access/transam.h"
#include "executor/executor.h"
#include "parser/parse_relation.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "replication/slot.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/backend_status.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"
#if PG_VERSION_NUM >= 180000
#include "storage/aio.h"
#endif
#include "utils/guc.h"

#if PG_VERSION_NUM < 150000
#error "dirty_throttle needs PostgreSQL 15 or newer"
#endif

/* 17: loops over the elements of a list */
#if PG_VERSION_NUM < 170000
#define dt_foreach(type, pointer, var, list, element) \
	for (type pointer var = 0, pointer var##__once = (type pointer) 1; \
		 var##__once; var##__once = 0) \
		for (ForEachState var##__state = {(list), 0}; \
			 var##__state.i < list_length(var##__state.l) && \
			 (var = element(&var##__state.l->elements[var##__state.i]), true); \
			 var##__state.i++)
#define foreach_ptr(type, var, list)	dt_foreach(type, *, var, list, lfirst)
#define foreach_int(var, list)			dt_foreach(int, , var, list, lfirst_int)
#define foreach_oid(var, list)			dt_foreach(Oid, , var, list, lfirst_oid)
#endif

/*
 * libpq/libpq.h needs the headers of GSSAPI and OpenSSL, which are not installed
 * everywhere with those of the server, only for members of Port that nothing here
 * looks at.
 */
#undef ENABLE_GSS
#undef USE_OPENSSL
#include "libpq/libpq.h"

/* 16: the status of the n-th process has a new name */
#if PG_VERSION_NUM < 160000
#define pgstat_get_local_beentry_by_index(n) \
	pgstat_fetch_stat_local_beentry(n)
#endif

/* 16: an attribute of a row of a catalog that cannot be NULL */
#if PG_VERSION_NUM < 160000
static inline Datum
SysCacheGetAttrNotNull(int cache, HeapTuple tuple, AttrNumber attribute)
{
	bool		isnull;
	Datum		value = SysCacheGetAttr(cache, tuple, attribute, &isnull);

	if (isnull)
		elog(ERROR, "unexpected null value in cached tuple");
	return value;
}
#endif

/* 16: check hooks allocate "extra" with guc_malloc, not malloc */
#if PG_VERSION_NUM < 160000
#define guc_malloc(elevel, size)	malloc(size)
#endif

/*
 * The locks of a process in one partition of the lock table, those who hold a
 * lock, and the queue of those that wait for it, which is read from its end: the
 * first one for NULL, then the next one.  16: these lists are dlists.  19: the
 * member of PGPROC has a new name.
 */
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

static inline PROCLOCK *
dt_next_holder(LOCK *lock, PROCLOCK *held)
{
#if PG_VERSION_NUM < 160000
	SHM_QUEUE  *locks = &lock->procLocks;

	return (PROCLOCK *) SHMQueueNext(locks, held ? &held->lockLink : locks,
									 offsetof(PROCLOCK, lockLink));
#else
	dlist_node *head = &lock->procLocks.head;
	dlist_node *next = held ? held->lockLink.next : head->next;

	return next == head ? NULL : dlist_container(PROCLOCK, lockLink, next);
#endif
}

#if PG_VERSION_NUM < 190000
#define waitLink	links
#endif

static inline PGPROC *
dt_previous_waiter(LOCK *lock, PGPROC *waiter)
{
#if PG_VERSION_NUM < 160000
	SHM_QUEUE  *queue = &lock->waitProcs.links;

	return (PGPROC *) SHMQueuePrev(queue, waiter ? &waiter->waitLink : queue,
								   offsetof(PGPROC, waitLink));
#else
	dlist_node *head = &lock->waitProcs.dlist.head;
	dlist_node *previous = waiter ? waiter->waitLink.prev : head->prev;

	return previous == head ? NULL :
		dlist_container(PGPROC, waitLink, previous);
#endif
}

/*
 * The weak locks that a process has noted in its PGPROC: how many it can note,
 * and which lock modes it has of one, as bits; 0: it is free.  18: there are
 * groups of them, as many as the server is configured for.
 */
#if PG_VERSION_NUM >= 180000
#define dt_n_fast_locks()	FastPathLockSlotsPerBackend()
#define dt_fast_lock_modes(proc, n) \
	(((proc)->fpLockBits[(n) / FP_LOCK_SLOTS_PER_GROUP] >> \
	  (3 * ((n) % FP_LOCK_SLOTS_PER_GROUP))) & 7)
#else
#define dt_n_fast_locks()	FP_LOCK_SLOTS_PER_BACKEND
#define dt_fast_lock_modes(proc, n)	(((proc)->fpLockBits >> (3 * (n))) & 7)
#endif

/* 17: the virtual transaction ID has become a struct */
#if PG_VERSION_NUM < 170000
#define dt_local_xid(proc)	((proc)->lxid)
#else
#define dt_local_xid(proc)	((proc)->vxid.lxid)
#endif

/* 17 and 19: this wait event has new names */
#if PG_VERSION_NUM < 170000
#define WAIT_EVENT_BUFFER_CLEANUP	PG_WAIT_BUFFER_PIN
#elif PG_VERSION_NUM < 190000
#define WAIT_EVENT_BUFFER_CLEANUP	WAIT_EVENT_BUFFER_PIN
#endif

/* 19: slots know the proc number of their process */
#if PG_VERSION_NUM < 190000
#define dt_slot_is_of(slot, proc)	((slot)->active_pid == (proc)->pid)
#else
#define dt_slot_is_of(slot, proc) \
	((slot)->active_proc == GetNumberFromPGProc(proc))
#endif

/*
 * 16: walsenders show whether they decode.  In 15 they do when they stream
 * from a logical slot.
 */
#if PG_VERSION_NUM < 160000
static inline bool
dt_is_decoding(pid_t pid)
{
	bool		result = false;

	LWLockAcquire(ReplicationSlotControlLock, LW_SHARED);
	for (int i = 0; i < max_replication_slots; i++)
	{
		ReplicationSlot *slot = &ReplicationSlotCtl->replication_slots[i];

		if (slot->in_use && slot->active_pid == pid && SlotIsLogical(slot))
			result = true;
	}
	LWLockRelease(ReplicationSlotControlLock);
	return result;
}

#define dt_walsnd_is_logical(walsnd, pid)	dt_is_decoding(pid)
#else
#define dt_walsnd_is_logical(walsnd, pid) \
	((walsnd)->kind == REPLICATION_KIND_LOGICAL)
#endif

/* 19: there are more slots, for REPACK (CONCURRENTLY) */
#if PG_VERSION_NUM >= 190000
#define dt_n_replication_slots() \
	(max_replication_slots + max_repack_replication_slots)
#else
#define dt_n_replication_slots()	max_replication_slots
#endif

/* 16: slots are invalidated for several reasons */
#if PG_VERSION_NUM < 160000
#define dt_slot_is_valid(slot) \
	(XLogRecPtrIsInvalid((slot)->data.invalidated_at) || \
	 !XLogRecPtrIsInvalid((slot)->data.restart_lsn))
#else
#define dt_slot_is_valid(slot)	((slot)->data.invalidated == RS_INVAL_NONE)
#endif

/* 19: slots know the number of the process that uses them, not its ID; 0: none */
#if PG_VERSION_NUM >= 190000
#define dt_slot_user(slot) \
	((slot)->active_proc == INVALID_PROC_NUMBER ? 0 : \
	 GetPGProcByNumber((slot)->active_proc)->pid)
#else
#define dt_slot_user(slot)	((slot)->active_pid)
#endif

/*
 * 16: workers of their own apply large transactions while these arrive.  They
 * know the process ID of the one that receives them, and the memory context in
 * which that treats a message is known.
 */
#if PG_VERSION_NUM < 160000
#define DT_APPLY_LEADER_PID			InvalidPid
#define DT_APPLY_MESSAGE_CONTEXT	((MemoryContext) NULL)
#else
#define DT_APPLY_LEADER_PID			(MyLogicalRepWorker->leader_pid)
#define DT_APPLY_MESSAGE_CONTEXT	ApplyMessageContext
#endif

/* 17: this variable has a new name */
#if PG_VERSION_NUM < 170000
#define TransamVariables	ShmemVariableCache
#endif

/*
 * 17: extensions name their wait events.  Processes are known by proc numbers,
 * from 0: MyProcNumber instead of MyProc->pgprocno, a macro for other ones.
 */
#if PG_VERSION_NUM < 170000
#define WaitEventExtensionNew(name) PG_WAIT_EXTENSION
#define INVALID_PROC_NUMBER	InvalidBackendId
#define MyProcNumber	(MyProc->pgprocno)
#define GetNumberFromPGProc(proc)	((int) ((proc) - ProcGlobal->allProcs))
#define dt_proc_of(vxid)	BackendIdGetProc((vxid).backendId)
#else
#define dt_proc_of(vxid)	ProcNumberGetProc((vxid).procNumber)
#endif

/* 17: random() has arguments, too */
#if PG_VERSION_NUM < 170000
#define F_RANDOM_	F_RANDOM
#endif

/* 19: the planner knows of EXPLAIN */
#if PG_VERSION_NUM >= 190000
#define PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams, ExplainState *es
#define PLANNER_ARGS	parse, query_string, cursorOptions, boundParams, es
#else
#define PLANNER_PARAMS \
	Query *parse, const char *query_string, int cursorOptions, \
	ParamListInfo boundParams
#define PLANNER_ARGS	parse, query_string, cursorOptions, boundParams
#endif

/* 19: WAIT FOR */
#if PG_VERSION_NUM >= 190000
#define DT_READING_COMMANDS_19	case T_WaitStmt:
#else
#define DT_READING_COMMANDS_19
#endif

/* 19: the scanner has no warnings about backslashes any more */
#if PG_VERSION_NUM >= 190000
#define dt_scan_without_warnings(extra)	((void) (extra))
#else
#define dt_scan_without_warnings(extra)	((extra)->escape_string_warning = false)
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

/*
 * 18: a process can have prepared reads that it has not begun.  Who needs the
 * same blocks waits for it.
 */
static inline bool
dt_io_is_staged(void)
{
#if PG_VERSION_NUM >= 180000
	return pgaio_have_staged();
#else
	return false;
#endif
}

/*
 * 17: background workers may connect as roles without LOGIN.  19: and DROP DATABASE
 * and the like end those that say so.
 */
#if PG_VERSION_NUM >= 170000
#define DT_BGWORKER_ANY_LOGIN	BGWORKER_BYPASS_ROLELOGINCHECK
#else
#define DT_BGWORKER_ANY_LOGIN	0
#endif
#if PG_VERSION_NUM >= 190000
#define DT_BGWORKER_INTERRUPTIBLE	BGWORKER_INTERRUPTIBLE
#else
#define DT_BGWORKER_INTERRUPTIBLE	0
#endif

/* 16: the array of all parameters, and their number */
#if PG_VERSION_NUM >= 160000
#define dt_guc_variables(n)		get_guc_variables(n)
#else
#define dt_guc_variables(n)		(*(n) = GetNumConfigOptions(), get_guc_variables())
#endif

/*
 * 16: as whom a query reads a relation is in a list of its own; that of ON CONFLICT is
 * not there
 */
#if PG_VERSION_NUM >= 160000
#define dt_check_as_user(query, entry) \
	((entry)->perminfoindex == 0 ? InvalidOid : \
	 getRTEPermissionInfo((query)->rteperminfos, entry)->checkAsUser)
#else
#define dt_check_as_user(query, entry)	((entry)->checkAsUser)
#endif

/* 18: not every constraint that there is is valid */
#if PG_VERSION_NUM >= 180000
#define dt_attribute_not_null(desc, i) \
	(TupleDescCompactAttr(desc, i)->attnullability == ATTNULLABLE_VALID)
#else
#define dt_attribute_not_null(desc, i)	(TupleDescAttr(desc, i)->attnotnull)
#endif

/* 17: locks that are stronger may count */
#if PG_VERSION_NUM >= 170000
#define dt_lock_is_held(tag, mode)	LockHeldByMe(tag, mode, false)
#else
#define dt_lock_is_held(tag, mode)	LockHeldByMe(tag, mode)
#endif

/* 18: a library has a name and a version */
#ifndef PG_MODULE_MAGIC_EXT
#define PG_MODULE_MAGIC_EXT(...)	PG_MODULE_MAGIC
#endif

/* 19: what post_parse_analyze_hook gets cannot be changed */
#if PG_VERSION_NUM >= 190000
#define DT_JUMBLE_STATE		const JumbleState
#else
#define DT_JUMBLE_STATE		JumbleState
#endif

/* 19: each type of process has a log_min_messages */
#if PG_VERSION_NUM >= 190000
#define DT_LOG_MIN_MESSAGES	log_min_messages[MyBackendType]
#else
#define DT_LOG_MIN_MESSAGES	log_min_messages
#endif

/* 19: the origin of replicated changes is part of a struct */
#if PG_VERSION_NUM >= 190000
#define DT_APPLY_ORIGIN		replorigin_xact_state.origin
#else
#define DT_APPLY_ORIGIN		replorigin_session_origin
#define InvalidReplOriginId	InvalidRepOriginId
#endif

/*
 * 17: transaction_timeout.  Stop its clock, and let it go on.  The first returns
 * how much is left, us; 0: it does not run.
 */
static inline int64
dt_stop_transaction_timeout(void)
{
#if PG_VERSION_NUM >= 170000
	if (get_timeout_active(TRANSACTION_TIMEOUT))
	{
		TimestampTz finish = get_timeout_finish_time(TRANSACTION_TIMEOUT);

		disable_timeout(TRANSACTION_TIMEOUT, true);
		return Max(finish - GetCurrentTimestamp(), 1);
	}
#endif
	return 0;
}

static inline void
dt_start_transaction_timeout(int64 left_us)
{
#if PG_VERSION_NUM >= 170000
	if (left_us > 0)
		enable_timeout_at(TRANSACTION_TIMEOUT, GetCurrentTimestamp() + left_us);
#endif
}

/*
 * 19: there is a flag for each reason why recovery can have a conflict with a
 * process.  In 15 to 18 the one flag is not set for a conflict about a buffer
 * pin, nor for a suspected deadlock.
 */
static inline bool
dt_recovery_conflict_pending(void)
{
#if PG_VERSION_NUM >= 190000
	return pg_atomic_read_u32(&MyProc->pendingRecoveryConflicts) != 0;
#else
	return MyProc->recoveryConflictPending;
#endif
}

/*
 * 18: how much WAL a process has written since it began, in bytes.  False: that is not
 * known.
 */
static inline bool
dt_backend_wal(int pid, int number, int64 *bytes, TimestampTz *began)
{
#if PG_VERSION_NUM >= 180000
	PgBackendStatus *status = pgstat_get_beentry_by_proc_number(number);
	PgStat_Backend *stats = pgstat_fetch_stat_backend_by_pid(pid, NULL);

	if (status == NULL || stats == NULL)
		return false;
	*bytes = (int64) stats->wal_counters.wal_bytes;
	*began = status->st_proc_start_timestamp;
	return true;
#else
	return false;
#endif
}

/*
 * 18: extensions can define options of EXPLAIN.  19: and have to check values
 * that come from a parameter of auto_explain.
 */
#if PG_VERSION_NUM >= 180000
#define DT_HAS_EXPLAIN_OPTIONS
#if PG_VERSION_NUM >= 190000
#define DT_EXPLAIN_HANDLERS(handler, check_parameter)	handler, check_parameter
#else
#define DT_EXPLAIN_HANDLERS(handler, check_parameter)	handler
#endif
#endif

/* 19: what a signal handler is called with, to be passed on */
#if PG_VERSION_NUM >= 190000
#define DT_SIGNAL_PASSED	postgres_signal_arg, pg_siginfo
#else
#define DT_SIGNAL_PASSED	postgres_signal_arg
#endif

#endif							/* DT_COMPAT_H */
