/*-------------------------------------------------------------------------
 *
 * ending_worker.c
 *		Background workers that are told to end; for test/t/034_told_to_end.pl,
 *		which compiles it.
 *
 *	launch_ending(kind, role, sql)	starts a worker that connects as this role,
 *					and runs this, a transaction each, until it gets SIGTERM, and
 *					once more: its process ID
 *	told()			sends SIGTERM to the worker that calls it, the first time; true
 *
 * The kind says what it does with SIGTERM:
 *
 *	core		leaves that to the core's handler
 *	die			has the one that ordinary sessions have
 *	flag		has one that sets a variable and the latch, as most examples do
 *	info		the same by sigaction(), with flags and a mask
 *	late		the same as "flag", but only when it is connected; and it has a Port
 *				without a client, as pglogical's workers do
 *	chained		puts one before that which it finds when it is connected
 *	restored	does the same, and puts the old one back when it is told to end
 *				for the first time, for the second one
 *	ignored		ignores it, and runs its SQL twice
 *
 * All but the first two say in the log how often their handlers were called.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "start_worker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/wait_event.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(launch_ending);
PG_FUNCTION_INFO_V1(told);

extern PGDLLEXPORT void ending_worker_main(Datum main_arg);

/* What the worker gets, in bgw_extra. */
typedef struct Work
{
	char		kind[10];
	char		role[18];
	char		sql[100];
} Work;

static volatile sig_atomic_t got_sigterm = 0;
static volatile sig_atomic_t got_chained = 0;
static volatile sig_atomic_t info_is_right = 0;
static struct sigaction found;	/* by kind "chained" */

static void
flag(SIGNAL_ARGS)
{
	int			save_errno = errno;

	got_sigterm++;
	SetLatch(MyLatch);
	errno = save_errno;
}

/* Is all as it was asked for? */
static void
flag_with_info(int signo, siginfo_t *info, void *context)
{
	sigset_t	mask;

	sigprocmask(SIG_BLOCK, NULL, &mask);
	info_is_right = signo == SIGTERM && info->si_code == SI_USER &&
		info->si_pid > 0 && context != NULL && sigismember(&mask, SIGURG);
	got_sigterm++;
	SetLatch(MyLatch);
}

static void
chained(int signo, siginfo_t *info, void *context)
{
	got_chained++;
	if (found.sa_flags & SA_SIGINFO)
		found.sa_sigaction(signo, info, context);
	else
		found.sa_handler(signo);
}

/* Before it connects, and afterwards. */
static void
set_handler(const char *kind)
{
	struct sigaction info = {
		.sa_sigaction = flag_with_info,.sa_flags = SA_RESTART | SA_SIGINFO
	};

	sigemptyset(&info.sa_mask);
	sigaddset(&info.sa_mask, SIGURG);
	if (strcmp(kind, "die") == 0)
		pqsignal(SIGTERM, die);
	else if (strcmp(kind, "info") == 0)
		sigaction(SIGTERM, &info, NULL);
	else if (strcmp(kind, "ignored") == 0)
		signal(SIGTERM, SIG_IGN);
	else if (strcmp(kind, "core") != 0 && strcmp(kind, "late") != 0)
		pqsignal(SIGTERM, flag);
}

static void
change_handler(const char *kind)
{
	struct sigaction action = {
		.sa_sigaction = chained,.sa_flags = SA_RESTART | SA_SIGINFO
	};

	sigemptyset(&action.sa_mask);
	if (strcmp(kind, "late") == 0)
		pqsignal(SIGTERM, flag);
	if (strcmp(kind, "chained") == 0 || strcmp(kind, "restored") == 0)
		sigaction(SIGTERM, &action, &found);
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
ending_worker_main(Datum main_arg)
{
	Work	   *work = (Work *) MyBgworkerEntry->bgw_extra;
	bool		ignores = strcmp(work->kind, "ignored") == 0;

	set_handler(work->kind);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection("postgres", work->role, 0);
	if (strcmp(work->kind, "late") == 0)
		MyProcPort = calloc(1, 8192);
	change_handler(work->kind);
	do
		run(work->sql);
	while (!ignores && !got_sigterm);
	if (got_chained && strcmp(work->kind, "restored") == 0)
	{
		sigaction(SIGTERM, &found, NULL);
		kill(MyProcPid, SIGTERM);
	}
	/* such as to tidy up */
	run(work->sql);
	elog(LOG, "worker \"%s\": %d calls, %d by another handler%s", work->kind,
		 (int) got_sigterm, (int) got_chained,
		 info_is_right ? ", with all information" : "");
	proc_exit(0);
}

Datum
launch_ending(PG_FUNCTION_ARGS)
{
	BackgroundWorker worker = {0};
	Work	   *work = (Work *) worker.bgw_extra;
	BackgroundWorkerHandle *handle;
	pid_t		pid = 0;

	StaticAssertStmt(sizeof(Work) <= BGW_EXTRALEN, "it has to fit");
	strlcpy(work->kind, text_to_cstring(PG_GETARG_TEXT_PP(0)), sizeof(work->kind));
	strlcpy(work->role, text_to_cstring(PG_GETARG_TEXT_PP(1)), sizeof(work->role));
	if (strlcpy(work->sql, text_to_cstring(PG_GETARG_TEXT_PP(2)),
				sizeof(work->sql)) >= sizeof(work->sql))
		elog(ERROR, "that is too long");
	handle = start_worker(&worker, "ending worker", ending_worker_main, "ending_worker_main");
	if (WaitForBackgroundWorkerStartup(handle, &pid) != BGWH_STARTED)
		elog(ERROR, "the worker was not started");
	PG_RETURN_INT32(pid);
}

Datum
told(PG_FUNCTION_ARGS)
{
	static bool is_told = false;

	if (!is_told)
		kill(MyProcPid, SIGTERM);
	is_told = true;
	PG_RETURN_BOOL(true);
}
