/*-------------------------------------------------------------------------
 *
 * holder.c
 *		Who holds the lock for which a batch has waited in vain?
 *
 * When the error is reported the process does not wait any more, so the lock is noted
 * when lock_timeout expires, and who holds it is looked up after that.  For a row the
 * process waits for the end of a transaction, and has a lock that says that it is the
 * next one to get that row; which one it is, that lock says.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "batch/holder.h"
#include "catalog/pg_inherits.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/backend_status.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "compat.h"

static LOCKTAG wanted;
static volatile LOCKMODE wanted_mode = NoLock;	/* NoLock: nothing is noted */

/* The row for which it has waited, in this table; 0: it was none. */
static Oid	row_table = InvalidOid;
static ItemPointerData row;

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
dt_holder_note_row(void)
{
	LockData   *locks;

	row_table = InvalidOid;
	if (wanted_mode == NoLock || (wanted.locktag_type != LOCKTAG_TRANSACTION &&
								  wanted.locktag_type != LOCKTAG_TUPLE))
		return;
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LockInstanceData *lock = &locks->locks[i];

		if (lock->pid != MyProcPid || lock->locktag.locktag_type != LOCKTAG_TUPLE)
			continue;
		row_table = lock->locktag.locktag_field2;
		ItemPointerSet(&row, lock->locktag.locktag_field3, lock->locktag.locktag_field4);
	}
}

void
dt_holder_forget(void)
{
	wanted_mode = NoLock;
	row_table = InvalidOid;
}

/* The values of these columns of the row, "5,7", or NULL if it is not there any more. */
static char *
read_row(Relation table, const char *columns)
{
	TupleTableSlot *slot = table_slot_create(table, NULL);
	StringInfoData buf;
	List	   *names = NIL;
	bool		found;

	initStringInfo(&buf);
	PushActiveSnapshot(GetLatestSnapshot());
	found = ItemPointerGetBlockNumber(&row) < RelationGetNumberOfBlocks(table) &&
		table_tuple_fetch_row_version(table, &row, GetActiveSnapshot(), slot) &&
		SplitIdentifierString(pstrdup(columns), ',', &names);
	foreach_ptr(char, name, names)
	{
		AttrNumber	attnum = get_attnum(RelationGetRelid(table), name);
		Datum		value;
		bool		isnull = true;
		Oid			function;
		bool		is_varlena;

		if (found && attnum > 0)
			value = slot_getattr(slot, attnum, &isnull);
		if (isnull)
		{
			found = false;
			break;
		}
		getTypeOutputInfo(get_atttype(RelationGetRelid(table), attnum), &function, &is_varlena);
		appendStringInfo(&buf, "%s%s", buf.len > 0 ? "," : "", OidOutputFunctionCall(function, value));
	}
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	return found ? buf.data : NULL;
}

/* The key of that row, if it is one of the job's table.  Waits for nobody. */
static char *
key_of_row(const DtJob *job)
{
	Relation	table;
	char	   *key;

	if (!list_member_oid(find_all_inheritors(job->table, NoLock, NULL), row_table) ||
		!ConditionalLockRelationOid(row_table, AccessShareLock))
		return NULL;
	table = try_relation_open(row_table, NoLock);
	if (table == NULL)
		return NULL;
	key = read_row(table, job->columns);
	relation_close(table, NoLock);
	return key;
}

static const char *
describe_lock(const DtJob *job)
{
	const char *name = wanted.locktag_type == LOCKTAG_RELATION ?
		get_rel_name(wanted.locktag_field2) : NULL;
	const char *key = OidIsValid(row_table) ? key_of_row(job) : NULL;

	return name != NULL ? psprintf(_("table \"%s\""), name) :
		key != NULL ? psprintf(_("the row with key {%s}"), key) :
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
dt_holder_describe(const DtJob *job)
{
	VirtualTransactionId *holders;
	PGPROC	   *proc;
	const char *what;
	int			n;

	if (wanted_mode == NoLock)
		return NULL;
	holders = GetLockConflicts(&wanted, wanted_mode, &n);
	what = describe_lock(job);
	dt_holder_forget();
	if (n == 0)
		return NULL;
	proc = dt_proc_of(holders[0]);
	if (proc == NULL || proc->pid == 0)
		return psprintf(_("A prepared transaction holds %s."), what);
	return psprintf(_("Process %d (role \"%s\", application \"%s\") holds %s."), proc->pid,
					OidIsValid(proc->roleId) ? GetUserNameFromId(proc->roleId, true) : "",
					application_of(proc->pid), what);
}
