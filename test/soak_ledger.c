/*-------------------------------------------------------------------------
 *
 * soak_ledger.c
 *		The books of test/soak, kept by somebody else.
 *
 * For each value of dirty_throttle.group: how many shared buffers sessions
 * have dirtied, by the core's own counter, while the parameter had that value.
 * A group that exists all the time, and is never renamed, must be charged with
 * exactly that.
 *
 * The parameter's assign hook is wrapped, and on_shmem_exit() is used, so the
 * counter is read where a session joins and leaves, not some catalog lookups
 * before or after; and statements that fail, commits, aborts and exits are
 * counted like all the rest.
 *
 * What parallel workers dirty while they run their part of a plan is kept
 * apart: their leaders' counters include it when all goes well, and not when
 * not.  What they dirty before and after that, say with hint bits in the
 * catalogs, is in no leader's counter, so it is counted here.  Where that
 * begins in a worker that builds an index or vacuums nobody can know, so all
 * is kept apart.
 *
 * To be preloaded, after dirty_throttle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "executor/executor.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "compat.h"

PG_MODULE_MAGIC;

#define MAX_ACCOUNTS	64

typedef struct Account
{
	char		name[NAMEDATALEN];	/* empty: not used yet */
	int64		blocks;
	int64		worker_blocks;
} Account;

typedef struct Ledger
{
	slock_t		lock;
	Account		accounts[MAX_ACCOUNTS];
} Ledger;

static Ledger *ledger = NULL;
static Account *account = NULL; /* where this process writes; NULL: nowhere */
static int64 written = 0;		/* counter value up to which it has */

static shmem_request_hook_type next_shmem_request = NULL;
static shmem_startup_hook_type next_shmem_startup = NULL;
static GucStringAssignHook next_assign = NULL;
static ExecutorRun_hook_type next_ExecutorRun = NULL;

/* Will the leader's counter include what is being dirtied now? */
static bool for_leader = false;

void		_PG_init(void);

PG_FUNCTION_INFO_V1(soak_ledger);

static void
ledger_shmem_request(void)
{
	if (next_shmem_request)
		next_shmem_request();
	RequestAddinShmemSpace(sizeof(Ledger));
}

static void
ledger_shmem_startup(void)
{
	bool		found;

	if (next_shmem_startup)
		next_shmem_startup();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	ledger = ShmemInitStruct("soak_ledger", sizeof(Ledger), &found);
	if (!found)
	{
		memset(ledger, 0, sizeof(Ledger));
		SpinLockInit(&ledger->lock);
	}
	LWLockRelease(AddinShmemInitLock);
}

/* The account of that name, or a new one; under the lock. */
static Account *
find_account(const char *name)
{
	int			i;

	for (i = 0; i < MAX_ACCOUNTS; i++)
	{
		Account    *a = &ledger->accounts[i];

		if (a->name[0] == '\0')
			strlcpy(a->name, name, NAMEDATALEN);
		if (strcmp(a->name, name) == 0)
			return a;
	}
	return NULL;
}

static void
write_down(void)
{
	if (account != NULL)
	{
		SpinLockAcquire(&ledger->lock);
		*(for_leader ? &account->worker_blocks : &account->blocks) +=
			pgBufferUsage.shared_blks_dirtied - written;
		SpinLockRelease(&ledger->lock);
	}
	written = pgBufferUsage.shared_blks_dirtied;
}

static void
write_down_at_exit(int code, Datum arg)
{
	write_down();
	account = NULL;
}

static void
ledger_ExecutorRun(EXECUTOR_RUN_PARAMS)
{
	/* not a query of a function that the worker calls */
	bool		is_part = IsParallelWorker() &&
		queryDesc->sourceText == debug_query_string;

	if (is_part)
	{
		for_leader = false;
		write_down();
		for_leader = true;
	}
	next_ExecutorRun(EXECUTOR_RUN_ARGS);
	if (is_part)
	{
		write_down();
		for_leader = false;
	}
}

static void
assign_group(const char *newval, void *extra)
{
	static bool registered = false;

	if (ledger != NULL && MyProc != NULL &&
		(MyBackendType == B_BACKEND || IsParallelWorker()))
	{
		if (!registered)
			on_shmem_exit(write_down_at_exit, (Datum) 0);
		registered = true;
		write_down();
		for_leader = IsParallelWorker();
		SpinLockAcquire(&ledger->lock);
		account = newval[0] != '\0' ? find_account(newval) : NULL;
		SpinLockRelease(&ledger->lock);
	}
	next_assign(newval, extra);
}

/*
 * soak_ledger(group text, workers bool) returns bigint: what has been written
 * down by sessions, or their parallel workers, that have left the group.
 */
Datum
soak_ledger(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	Account    *a;
	int64		blocks = 0;

	SpinLockAcquire(&ledger->lock);
	a = find_account(name);
	if (a != NULL)
		blocks = PG_GETARG_BOOL(1) ? a->worker_blocks : a->blocks;
	SpinLockRelease(&ledger->lock);
	PG_RETURN_INT64(blocks);
}

void
_PG_init(void)
{
	struct config_generic *option = NULL;

#if PG_VERSION_NUM >= 160000
	option = find_option("dirty_throttle.group", false, false, ERROR);
#else
	int			i;

	for (i = 0; i < GetNumConfigOptions() && option == NULL; i++)
		if (strcmp(get_guc_variables()[i]->name, "dirty_throttle.group") == 0)
			option = get_guc_variables()[i];
	if (option == NULL)
		elog(ERROR, "dirty_throttle is not preloaded before soak_ledger");
#endif
	next_assign = ((struct config_string *) option)->assign_hook;
	((struct config_string *) option)->assign_hook = assign_group;

	next_shmem_request = shmem_request_hook;
	shmem_request_hook = ledger_shmem_request;
	next_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = ledger_shmem_startup;
	next_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = ledger_ExecutorRun;
}
