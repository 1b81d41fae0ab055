/*-------------------------------------------------------------------------
 *
 * holder.c
 *		Who holds the lock for which a batch has waited in vain?
 *
 * When the error is reported the process does not wait any more, so the lock is noted
 * when lock_timeout expires, and who holds it is looked up after that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "batch/holder.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/backend_status.h"
#include "utils/lsyscache.h"

#include "compat.h"

static LOCKTAG wanted;
static volatile LOCKMODE wanted_mode = NoLock;	/* NoLock: nothing is noted */

void
dt_holder_note(void)
{
	LOCK	   *lock = MyProc->waitLock;

	if (lock == NULL)
		return;
	wanted = lock->tag;
	wanted_mode = MyProc->waitLockMode;
}

void
dt_holder_forget(void)
{
	wanted_mode = NoLock;
}

static const char *
describe_lock(void)
{
	const char *name = wanted.locktag_type == LOCKTAG_RELATION ?
		get_rel_name(wanted.locktag_field2) : NULL;

	return name != NULL ? psprintf(_("table \"%s\""), name) :
		wanted.locktag_type == LOCKTAG_TUPLE ||
		wanted.locktag_type == LOCKTAG_TRANSACTION ? _("a row") : _("the lock");
}

static const char *
application_of(int pid)
{
	for (int i = pgstat_fetch_stat_numbackends(); i > 0; i--)
	{
		LocalPgBackendStatus *local = pgstat_get_local_beentry_by_index(i);

		if (local->backendStatus.st_procpid == pid)
			return local->backendStatus.st_appname;
	}
	return "";
}

char *
dt_holder_describe(void)
{
	VirtualTransactionId *holders;
	PGPROC	   *proc;
	int			n;

	if (wanted_mode == NoLock)
		return NULL;
	holders = GetLockConflicts(&wanted, wanted_mode, &n);
	dt_holder_forget();
	if (n == 0)
		return NULL;
	proc = dt_proc_of(holders[0]);
	if (proc == NULL || proc->pid == 0)
		return psprintf(_("A prepared transaction holds %s."), describe_lock());
	return psprintf(_("Process %d (role \"%s\", application \"%s\") holds %s."), proc->pid,
					OidIsValid(proc->roleId) ? GetUserNameFromId(proc->roleId, true) : "",
					application_of(proc->pid), describe_lock());
}
