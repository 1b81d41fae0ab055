/*-------------------------------------------------------------------------
 *
 * follow.c
 *		A standby's definitions follow those of its primary.
 *
 * On a standby one background worker asks the server that WAL is received from
 * for its parameter dirty_throttle.definitions, all definitions as one line of
 * text, and takes them over when they are newer.  That server may be a
 * standby, too.  Each question is a connection of its own, so it takes one of
 * that server's max_wal_senders for a moment only.
 *
 * When it asks: a primary announces each change in the WAL (change.c), and the
 * worker looks for that every TICK_MS.  Then, and when an answer was new, it
 * asks again after FIRST_MS and, as long as nothing is new, after times that
 * double up to LAST_MS: for changes that were not announced (replay is paused
 * or delayed), and because a server in between may need a moment.
 *
 * The worker belongs to no database and holds no lock, snapshot or transaction
 * while it waits, which it does on its latch.  So nobody ever waits for it:
 * not the replay, nor a promotion or shutdown, but for what libpq itself does
 * without returning: it resolves names, and the other side can make it compute
 * for as long as it likes.  When a call takes longer than CALL_MS, the process
 * exits in the middle of it.  It also exits when recovery has ended.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "follow/follow.h"
#include "follow/line.h"
#include "follow/question.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "registry/adopt.h"
#include "registry/change.h"
#include "registry/standby.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"

#define TICK_MS			500		/* for announcements, and the end of recovery */
#define FIRST_MS		500
#define LAST_MS			30000
#define FIRST_TIMES		2		/* with FIRST_MS, before it doubles */
#define QUESTION_MS		15000	/* no question takes longer */
#define CALL_MS			15000	/* nor does a call of libpq */
#define RESTART_S		5		/* after an unexpected error */
#define LOG_AGAIN_MS	600000	/* an answer that is not taken over */

#define WORKER_NAME		"dirty_throttle follower"

/* What came of a question. */
typedef enum Outcome
{
	OUTCOME_NEW,				/* the answer was taken over */
	OUTCOME_SAME,				/* there was nothing new */
	OUTCOME_FAILED,				/* the answer was bad, or was not taken over */
	OUTCOME_UNREACHABLE,		/* there was no connection */
	OUTCOME_NONE				/* it does not matter any more */
} Outcome;

/* What this process knows. */
static volatile bool announced = false;
static const DtLibpq *libpq = NULL;
static DtQuestion *question = NULL;
static char *asked_with = NULL; /* connection string, in TopMemoryContext */
static int64 last_question = 0; /* us, of dt_now_us() */
static int	interval_ms = 0;	/* from then to the next one */
static int	same_answers = 0;	/* in a row */

/* The answer that was taken over last: length (0: none), checksum, stamp. */
static size_t last_size = 0;
static pg_crc32c last_crc;
static DtStamp last_stamp;

static uint32 wait_event = PG_WAIT_EXTENSION;
static TimeoutId call_timeout;

/* The last trouble that was logged. */
static Outcome logged_outcome = OUTCOME_SAME;
static char logged_error[DT_ERROR_SIZE];
static int64 logged_at = 0;		/* us */

static uint32
checksum(const char *data, size_t size)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, size);
	FIN_CRC32C(crc);
	return crc;
}

const char *
dt_show_definitions(void)
{
	DtDefinitions d;
	char	   *line;

	if (!dt_shmem_available())
		return "";
	dt_definitions_copy(&d);
	line = palloc(dt_line_bound(&d));
	(void) dt_line_write(line, &d, GetSystemIdentifier(), checksum);
	pfree(d.groups);
	pfree(d.grants);
	return line;
}

/* ------------------------------------------------------- what others can see */

static void
note_success(void)
{
	DtFollowing *f = &dt_shared->following;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	f->last_success = GetCurrentTimestamp();
	f->failing_since = 0;
	LWLockRelease(dt_shared->registry_lock);
}

static void
note_failure(const char *message)
{
	DtFollowing *f = &dt_shared->following;
	char	   *p;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (f->failing_since == 0)
		f->failing_since = GetCurrentTimestamp();
	strlcpy(f->error, message, sizeof(f->error));
	/* a translated message is in no encoding that the view could know */
	for (p = f->error; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	LWLockRelease(dt_shared->registry_lock);
}

static void
note_question(void)
{
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	dt_shared->following.questions++;
	LWLockRelease(dt_shared->registry_lock);
}

/* Whom "question" asks; of several hosts, the one that is being tried. */
static void
note_peer(void)
{
	DtFollowing *f = &dt_shared->following;
	char		host[DT_HOST_SIZE];
	char		port[DT_PORT_SIZE];

	libpq->peer(question, host, sizeof(host), port, sizeof(port));
	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	strlcpy(f->host, host, sizeof(f->host));
	strlcpy(f->port, port, sizeof(f->port));
	LWLockRelease(dt_shared->registry_lock);
}

/*
 * Also for a process that exits.  What was wrong stays until a question is
 * answered well: it may be why the last process has ended.
 */
static void
note_pid(int pid)
{
	DtFollowing *f = &dt_shared->following;

	LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	if (pid != 0)
	{
		f->host[0] = f->port[0] = '\0';
		f->questions = 0;
		f->last_success = 0;
	}
	f->pid = pid;
	LWLockRelease(dt_shared->registry_lock);
}

void
dt_follow_info(DtFollowInfo *info)
{
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	info->following = dt_shared->following;
	LWLockRelease(dt_shared->registry_lock);
	info->stamp = dt_definitions_stamp();

	if (!dt_shared->is_standby || !RecoveryInProgress())
		info->status = "not a standby";
	else if (pg_atomic_read_u32(&dt_shared->follows) == 0)
		info->status = "off";
	else if (dt_standby_conninfo() == NULL)
		info->status = "no connection string";
	else if (info->following.pid == 0)
		info->status = "no process";
	else if (info->following.failing_since != 0)
		info->status = "failing";
	else if (info->following.last_success == 0)
		info->status = "starting";
	else
		info->status = "following";
}

/*
 * Log trouble when it begins or is another one; an answer that is not taken
 * over every ten minutes, too.  A server that is not there is logged once,
 * whatever the reason: the WAL receiver goes on about it.
 */
static void
log_trouble(Outcome outcome, const char *message, const char *hint)
{
	int64		now = dt_now_us();

	if (outcome == OUTCOME_UNREACHABLE ? logged_outcome == outcome :
		strcmp(message, logged_error) == 0 &&
		now - logged_at < LOG_AGAIN_MS * INT64CONST(1000))
		return;
	logged_outcome = outcome;
	logged_at = now;
	strlcpy(logged_error, message, sizeof(logged_error));
	ereport(LOG,
			(errmsg("resource groups do not follow the primary: %s", message),
			 errdetail("The last definitions that have come from it stay in effect."),
			 hint ? errhint("%s", hint) : 0));
}

static Outcome
trouble(Outcome outcome, const char *message, const char *hint)
{
	note_failure(message);
	log_trouble(outcome, message, hint);
	return outcome;
}

static void
no_trouble(void)
{
	note_success();
	if (logged_outcome != OUTCOME_SAME)
		ereport(LOG,
				(errmsg("resource groups follow the primary again")));
	logged_outcome = OUTCOME_SAME;
	logged_error[0] = '\0';
}

/* ------------------------------------------------------------- one question */

/*
 * Run "code" in a transaction.  An ERROR, say that a file cannot be written, or
 * a conflict with recovery, must not end this process, which would only be
 * started again: its message is returned, palloc'd; NULL when there was none.
 */
static char *
catch_error(void (*code) (void *), void *arg)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *volatile message = NULL;

	StartTransactionCommand();
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		code(arg);
		CommitTransactionCommand();
		MemoryContextSwitchTo(context);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		message = CopyErrorData()->message;
		FlushErrorState();
		AbortCurrentTransaction();	/* releases the locks */
		MemoryContextSwitchTo(context);
	}
	PG_END_TRY();
	return message;
}

static void
load_libpq(void *arg)
{
	DtLibpqFunction function;

	function = (DtLibpqFunction) load_external_function(DT_LIBPQ_LIBRARY,
														DT_LIBPQ_FUNCTION,
														true, NULL);
	libpq = function();
}

typedef struct Adoption
{
	DtDefinitions *definitions;
	DtAdoption	result;
	int			left_out;
} Adoption;

static void
adopt(void *arg)
{
	Adoption   *a = (Adoption *) arg;

	a->result = dt_adopt(a->definitions, &a->left_out);
}

/*
 * What is wrong with the answer, or NULL; then d and the reader are complete.
 */
static const char *
read_answer(const char *line, size_t size, DtLineReader *reader,
			DtDefinitions *d)
{
	if (!dt_line_open(reader, line, size, checksum))
		return reader->problem;
	if (reader->system_identifier != GetSystemIdentifier())
		return psprintf("it is that of the system with identifier " UINT64_FORMAT ", not of " UINT64_FORMAT,
						reader->system_identifier, GetSystemIdentifier());
	d->stamp = reader->stamp;
	d->groups = palloc0(Max(reader->n_groups, 1) * sizeof(DtDefinition));
	d->grants = palloc0(Max(reader->n_grants, 1) * sizeof(DtGrant));
	if (!dt_line_read(reader, d))
		return reader->problem;
	return dt_definitions_find_invalid(d);
}

static Outcome
take_answer(const char *line, size_t size)
{
	pg_crc32c	crc = checksum(line, size);
	DtStamp		stamp = dt_definitions_stamp();
	DtLineReader reader;
	DtDefinitions d;
	Adoption	adoption = {.definitions = &d};
	const char *problem;

	if (last_size == size && last_crc == crc &&
		dt_stamp_compare(&last_stamp, &stamp) == 0)
	{
		no_trouble();
		return OUTCOME_SAME;
	}
	problem = read_answer(line, size, &reader, &d);
	if (problem != NULL)
		return trouble(OUTCOME_FAILED,
					   psprintf("the answer cannot be used: %s", problem),
					   "Both servers need the same release of dirty_throttle, and the same system identifier.");
	problem = catch_error(adopt, &adoption);
	if (problem != NULL)
		return trouble(OUTCOME_FAILED,
					   psprintf("the answer cannot be stored: %s", problem),
					   NULL);
	switch (adoption.result)
	{
		case DT_NOT_ADOPTED:
			return OUTCOME_NONE;
		case DT_NOT_ADOPTED_OLDER:
			if (reader.stamp.timeline == 0)
				return trouble(OUTCOME_FAILED,
							   "that server is a standby that has definitions of its own",
							   "Set dirty_throttle.primary_conninfo to follow another server, or dirty_throttle.follow_primary to on there.");
			return trouble(OUTCOME_FAILED,
						   "its definitions are older than those of this server",
						   "If the primary has lost its definitions, define them again there: dirty_throttle_ddl() returns those of this server as SQL.");
		case DT_ADOPTED:
		case DT_ADOPTED_BEFORE:
			break;
	}
	if (adoption.left_out > 0)
		(void) trouble(OUTCOME_FAILED,
					   psprintf("%d groups or grants do not fit", adoption.left_out),
					   "Set dirty_throttle.max_groups to that of the primary, and restart this server.");
	else if (reader.ignored > 0)
		(void) trouble(OUTCOME_FAILED,
					   psprintf("%d properties of groups are not known to this release of dirty_throttle",
								reader.ignored),
					   "Install the primary's release on this server.");
	else if (reader.stamp.complete == 0)
		(void) trouble(OUTCOME_FAILED,
					   "that server is a standby for which dirty_throttle.max_groups is too small",
					   NULL);
	else
	{
		last_size = size;
		last_crc = crc;
		last_stamp = d.stamp;
		no_trouble();
	}
	return adoption.result == DT_ADOPTED ? OUTCOME_NEW : OUTCOME_SAME;
}

static void
exit_at_once(int code, Datum arg)
{
	_exit(code);
}

/*
 * A call of libpq does not return.  This is called in a signal handler; the
 * process holds nothing then.  What other libraries do at exit() is left out,
 * as the signal may have come in the middle of malloc().
 */
static void
give_up_call(void)
{
	on_proc_exit(exit_at_once, (Datum) 0);
	note_failure("libpq did not return");
	/* not translated: that would call malloc(), too */
	ereport(FATAL,
			(errcode(ERRCODE_CONNECTION_FAILURE),
			 errmsg_internal("resource groups do not follow the primary: libpq did not return within %d s",
							 CALL_MS / 1000)));
}

/* Around each call of libpq that does more than to return what is there. */
static void
begin_call(void)
{
	enable_timeout_after(call_timeout, CALL_MS);
}

static void
end_call(void)
{
	disable_timeout(call_timeout, false);
}

/* Before this process exits, or forgets its question. */
static void
end_question(void)
{
	begin_call();
	if (question != NULL)
		libpq->end(question);
	end_call();
	question = NULL;
}

static void
serve_interrupts(void)
{
	if (ShutdownRequestPending)
	{
		end_question();
		proc_exit(1);			/* so that it is started again, if need be */
	}
	CHECK_FOR_INTERRUPTS();
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Does this server still follow the one that was asked? */
static bool
still_asked(void)
{
	const char *conninfo = dt_standby_conninfo();

	return dt_standby_follows() && conninfo != NULL && asked_with != NULL &&
		strcmp(conninfo, asked_with) == 0;
}

static void
wait_for(int events, pgsocket socket, int64 ms)
{
	events |= WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
	(void) WaitLatchOrSocket(MyLatch, events, socket,
							 (long) Max(Min(ms, TICK_MS), 0), wait_event);
	ResetLatch(MyLatch);
	serve_interrupts();
}

/*
 * Wait for the answer to "question".
 */
static Outcome
await_answer(void)
{
	int64		deadline = dt_now_us() + QUESTION_MS * INT64CONST(1000);
	DtQuestionState state;
	char		message[DT_ERROR_SIZE];
	bool		connected;
	char	   *line;
	size_t		size;

	for (;;)
	{
		int64		ms;

		begin_call();
		state = libpq->advance(question);
		end_call();
		if (state == DT_QUESTION_ANSWERED || state == DT_QUESTION_FAILED)
			break;
		ms = (deadline - dt_now_us()) / 1000;
		if (ms <= 0)
			break;
		wait_for(state == DT_QUESTION_READ ? WL_SOCKET_READABLE : WL_SOCKET_WRITEABLE,
				 libpq->socket(question), ms);
		if (!still_asked())
			return OUTCOME_NONE;
	}
	note_peer();
	if (state == DT_QUESTION_ANSWERED)
	{
		line = libpq->answer(question, &size);
		end_question();			/* the other side's slot is free again */
		return take_answer(line, size);
	}
	libpq->error(question, message, sizeof(message), &connected);
	return trouble(connected ? OUTCOME_FAILED : OUTCOME_UNREACHABLE,
				   state == DT_QUESTION_FAILED ? message :
				   psprintf("no answer within %d s", QUESTION_MS / 1000),
				   NULL);
}

static Outcome
ask(void)
{
	char	   *problem;
	Outcome		outcome;

	if (libpq == NULL && (problem = catch_error(load_libpq, NULL)) != NULL)
		return trouble(OUTCOME_UNREACHABLE, problem,
					   "The library dirty_throttle_libpq, which is a part of dirty_throttle, needs libpq.");
	begin_call();
	question = libpq->begin(asked_with, "dirty_throttle.definitions",
							DT_LINE_MAX_SIZE);
	end_call();
	note_peer();
	note_question();
	outcome = await_answer();
	end_question();
	return outcome;
}

/* ----------------------------------------------------------------- the worker */

/*
 * Relcache callback; InvalidOid means that messages may have been lost.
 */
static void
note_invalidation(Datum arg, Oid relid)
{
	if (relid == DT_ANNOUNCED_RELATION || !OidIsValid(relid))
		announced = true;
}

/* The start of a transaction receives invalidations. */
static void
do_nothing(void *arg)
{
}

/*
 * When to ask next, after a question.
 */
static void
schedule(Outcome outcome)
{
	if (outcome == OUTCOME_NEW || outcome == OUTCOME_NONE)
		same_answers = 0;
	else
		same_answers++;
	interval_ms = same_answers <= FIRST_TIMES ? FIRST_MS :
		Min(2 * interval_ms, LAST_MS);
	last_question = dt_now_us();
}

/*
 * Ask when it is time to.  Returns how long there is nothing to do, ms.
 */
static int64
follow(void)
{
	const char *conninfo = dt_standby_conninfo();
	int64		ms;

	if (!dt_standby_follows() || conninfo == NULL)
	{
		if (asked_with != NULL)
			pfree(asked_with);
		asked_with = NULL;
		return TICK_MS;
	}
	(void) catch_error(do_nothing, NULL);
	if (!still_asked())
	{
		char	   *copy = MemoryContextStrdup(TopMemoryContext, conninfo);

		if (asked_with != NULL)
			pfree(asked_with);
		asked_with = copy;
		interval_ms = 0;
		announced = true;
	}
	if (announced)
	{
		announced = false;
		same_answers = 0;
		interval_ms = Min(interval_ms, FIRST_MS);
	}
	ms = interval_ms - (dt_now_us() - last_question) / 1000;
	if (ms > 0)
		return ms;
	schedule(ask());
	return 0;
}

static void
note_exit(int code, Datum arg)
{
	LWLockReleaseAll();
	note_pid(0);
}

void
dt_follow_main(Datum arg)
{
	MemoryContext context;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGINT, PG_SIG_IGN);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	if (!dt_shmem_available())
		proc_exit(0);			/* another file was preloaded */

	/* of no database, but so that it receives invalidations */
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	CacheRegisterRelcacheCallback(note_invalidation, (Datum) 0);
	wait_event = WaitEventExtensionNew("DirtyThrottleFollow");
	call_timeout = RegisterTimeout(USER_TIMEOUT, give_up_call);
	context = AllocSetContextCreate(TopMemoryContext, WORKER_NAME,
									ALLOCSET_DEFAULT_SIZES);
	note_pid(MyProcPid);
	before_shmem_exit(note_exit, (Datum) 0);

	/* the resolver of names is the one thing that may block */
	setenv("RES_OPTIONS", "timeout:2 attempts:1", 0);

	while (RecoveryInProgress())
	{
		int64		ms;

		MemoryContextSwitchTo(context);
		ms = follow();
		MemoryContextReset(context);
		wait_for(0, PGINVALID_SOCKET, ms);
	}
	proc_exit(0);
}

/*
 * A server becomes a standby only when it is started.
 */
void
dt_follow_register(void)
{
	BackgroundWorker worker;

	if (access(STANDBY_SIGNAL_FILE, F_OK) != 0)
		return;
	memset(&worker, 0, sizeof(worker));
	strlcpy(worker.bgw_name, WORKER_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_type, WORKER_NAME, BGW_MAXLEN);
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS |
		BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_ConsistentState;
	worker.bgw_restart_time = RESTART_S;
	strlcpy(worker.bgw_library_name, "dirty_throttle",
			sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "dt_follow_main", BGW_MAXLEN);
	RegisterBackgroundWorker(&worker);
}
