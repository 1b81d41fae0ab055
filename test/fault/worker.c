/*-------------------------------------------------------------------------
 *
 * worker.c
 *		A background worker that gets SIGTERM while it holds a group's lock; for
 *		test/t/032_worker_termination.pl, which compiles it.
 *
 *	launch(sql)		starts a worker that runs this, a transaction each, for ever;
 *					its process ID, NULL if it has ended already
 *	use_block()		in a worker: as if a shared buffer had been dirtied
 *	trap_lock()		the same, and SIGTERM comes when a group is locked next
 *
 * The worker leaves SIGTERM to the core's handler, which ends it at whatever
 * instruction it is; from 19 on, at the next check for interrupts.  When that is in a critical section, or after a commit
 * record, it is a PANIC; so a worker that gets it at random must not write.
 *
 * Who works on an account writes to a member's slot, with the group locked.
 * So the trap makes the slots read-only for this process, and the handler of
 * the SIGSEGV that follows, which finds a group locked, sends the SIGTERM.
 *
 * It knows the layout of the library's shared memory, and none of its symbols.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "access/xact.h"
#include "executor/instrument.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "start_worker.h"
#include "shared/shmem.h"
#include "storage/shmem.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(launch);
PG_FUNCTION_INFO_V1(use_block);
PG_FUNCTION_INFO_V1(trap_lock);

extern PGDLLEXPORT void fault_worker_main(Datum main_arg);

static DtGroup *groups;
static int	n_groups;
static char *members;			/* the slots, and */
static Size members_size;
static char *pages;				/* the pages that they are on */
static Size pages_size;

static void
find_shared_memory(void)
{
	Size		page = sysconf(_SC_PAGESIZE);
	DtShared   *shared;
	bool		found;

	shared = ShmemInitStruct("dirty_throttle", sizeof(DtShared), &found);
	n_groups = shared->max_groups;
	groups = ShmemInitStruct("dirty_throttle groups",
							 n_groups * sizeof(DtGroup), &found);
	members_size = shared->n_members * sizeof(DtMember);
	members = ShmemInitStruct("dirty_throttle members", members_size, &found);
	pages = (char *) TYPEALIGN_DOWN(page, members);
	pages_size = TYPEALIGN(page, members + members_size) - (uintptr_t) pages;
}

/* Is any group locked?  Its name. */
static const char *
locked_group(void)
{
	int			i;

	for (i = 0; i < n_groups; i++)
	{
		if (groups[i].id == 0)
			continue;
		if (TAS(&groups[i].lock))
			return groups[i].definition.name;
		S_UNLOCK(&groups[i].lock);
	}
	return NULL;
}

static void
say(const char *message)
{
	(void) !write(STDERR_FILENO, message, strlen(message));
}

static void
written(int sig, siginfo_t *info, void *context)
{
	char	   *where = info->si_addr;
	const sigset_t *mask = &((ucontext_t *) context)->uc_sigmask;
	const char *name;

	if (where < pages || where >= pages + pages_size)
	{
		signal(SIGSEGV, SIG_DFL);	/* it is a real one */
		return;
	}
	mprotect(pages, pages_size, PROT_READ | PROT_WRITE);
	name = locked_group();
	if (where < members || where >= members + members_size || name == NULL)
		return;					/* the trap is set again in the next round */
	say("fault: SIGTERM while ");
	say(name);
	say(" is locked\n");
	kill(getpid(), SIGTERM);
	/* unless it is blocked, it ends the process here */
	sigprocmask(SIG_SETMASK, mask, NULL);
}

Datum
use_block(PG_FUNCTION_ARGS)
{
	static bool first = true;

	if (first)
		say("fault: counting\n");
	first = false;
	pgBufferUsage.shared_blks_dirtied++;
	PG_RETURN_VOID();
}

Datum
trap_lock(PG_FUNCTION_ARGS)
{
	pgBufferUsage.shared_blks_dirtied++;
	mprotect(pages, pages_size, PROT_READ);
	PG_RETURN_VOID();
}

static void
run(const char *sql)
{
	StartTransactionCommand();
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_execute(sql, false, 0);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

void
fault_worker_main(Datum main_arg)
{
	struct sigaction action = {.sa_sigaction = written,.sa_flags = SA_SIGINFO};

	find_shared_memory();
	sigaddset(&action.sa_mask, SIGALRM);
	sigaction(SIGSEGV, &action, NULL);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(main_arg),
											  InvalidOid, 0);
	while (true)
		run(MyBgworkerEntry->bgw_extra);
}

Datum
launch(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {.bgw_main_arg = ObjectIdGetDatum(MyDatabaseId)};
	BackgroundWorkerHandle *handle;
	pid_t		pid = 0;

	if (strlcpy(worker.bgw_extra, text_to_cstring(PG_GETARG_TEXT_PP(0)),
				BGW_EXTRALEN) >= BGW_EXTRALEN)
		elog(ERROR, "that is too long");
	handle = start_worker(&worker, "fault worker", fault_worker_main, "fault_worker_main");
	switch (WaitForBackgroundWorkerStartup(handle, &pid))
	{
		case BGWH_STARTED:
			PG_RETURN_INT32(pid);
		case BGWH_STOPPED:
			PG_RETURN_NULL();	/* it has been faster than we have */
		default:
			elog(ERROR, "the worker was not started");
	}
}
