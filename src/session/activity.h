/*-------------------------------------------------------------------------
 *
 * activity.h
 *		What kind of process this is, and what it does.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ACTIVITY_H
#define DT_ACTIVITY_H

#include "miscadmin.h"
#include "session/phase.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"

typedef enum DtProcess
{
	DT_SESSION,					/* of a client */
	DT_JOB,						/* a background worker of an extension, with a
								 * database */
	DT_PARALLEL_WORKER,
	DT_AUTOVACUUM,				/* a worker of it */
	DT_APPLY,					/* a logical replication worker */
	DT_NO_MEMBER				/* one that is never in a group */
} DtProcess;

extern DtProcess dt_process_slow(void);

static inline DtProcess
dt_process(void)
{
	return likely(MyBackendType == B_BACKEND) ? DT_SESSION : dt_process_slow();
}

/*
 * Is it one of the server's own workers, of autovacuum or logical replication,
 * whose group a parameter names?
 */
static inline bool
dt_process_is_servers_own(void)
{
	DtProcess	process = dt_process();

	return process == DT_AUTOVACUUM || process == DT_APPLY;
}

/*
 * Does no portal run?  Then what the session still does for the client's
 * message, such as to end a transaction, is all that the client waits for.
 */
static inline bool
dt_activity_client_waits(void)
{
	return ActivePortal == NULL;
}

/*
 * When a transaction ends while a command runs: is it one of several of this
 * command, which may hold session locks in between?  CALL and DO keep none.
 * When the process exits the portal is still there.
 */
static inline bool
dt_activity_command_goes_on(void)
{
	return unlikely(ActivePortal != NULL) && !proc_exit_inprogress &&
		ActivePortal->commandTag != CMDTAG_CALL &&
		ActivePortal->commandTag != CMDTAG_DO;
}

/* Does a CALL or DO run, which may have several transactions? */
static inline bool
dt_activity_runs_procedure(void)
{
	return unlikely(ActivePortal != NULL) &&
		(ActivePortal->commandTag == CMDTAG_CALL ||
		 ActivePortal->commandTag == CMDTAG_DO);
}

/*
 * Does whatever begins now count as a writing statement, also what the client has
 * not sent?  So it is in a background worker, and in a procedure whose pause after
 * its last transaction was cut: no statement may show when they write.
 */
static inline bool
dt_activity_all_counts(void)
{
	return dt_xact.phase == DT_OUT &&
		(dt_process() == DT_JOB || dt_activity_runs_procedure());
}

/*
 * Is this the text of what the client has sent, or a parallel worker's leader,
 * and not of a query of some function?  For an Execute the core copies that of
 * the portal.
 */
static inline bool
dt_activity_is_clients_text(const char *source)
{
	return source != NULL && debug_query_string != NULL &&
		(source == debug_query_string ||
		 (ActivePortal != NULL && source == ActivePortal->sourceText &&
		  strcmp(source, debug_query_string) == 0));
}

/*
 * A session's login ends when its client sends a statement, that of a background worker
 * with its first transaction.  note_login() is to be called before, and end_login()
 * after each transaction.
 */
extern void dt_activity_note_login(void);
extern void dt_activity_end_login(void);
extern bool dt_activity_is_login(void);

/*
 * Does the session wait for the client's next command?  May be called in a
 * signal handler.
 */
extern bool dt_activity_is_idle(void);

/*
 * Is this process in the middle of a transaction's work?  Only at a check for
 * interrupts.
 */
extern bool dt_activity_is_working(void);

/*
 * Does this process run a VACUUM that must not be slowed down, because it
 * prevents a wraparound that is near?
 */
extern bool dt_activity_is_urgent(void);

/* Set while a transaction ends after which the session only waits for a worker. */
extern bool dt_activity_waits;

/*
 * Does the process pause nowhere, whatever it owes?  So it is at its exit, and when it
 * is going to wait.  User code that runs within an urgent VACUUM, to compute the
 * expression of an index, has statements.  So may a trigger have at a login: who cannot
 * connect cannot even read, and takes the server for dead.
 */
extern bool dt_activity_forbids_pauses(void);

#endif							/* DT_ACTIVITY_H */
