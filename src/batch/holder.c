/*-------------------------------------------------------------------------
 *
 * holder.c
 *		Who holds the lock for which a batch has waited too long?
 *
 * When the error is reported the process does not wait any more, so the lock is noted
 * when lock_timeout expires, and its holder is looked up in the transaction that follows.
 * For a row the process waits for the end of a transaction, and it holds a lock that says
 * that it is the next one to get that row: this lock says which row it is.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/tableam.h"
#include "batch/holder.h"
#include "catalog/pg_inherits.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/sinvaladt.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/snapmgr.h"
#include "utils/varlena.h"

#include "compat.h"

/* The lock, noted in a signal handler, and the row for which it was wanted. */
typedef struct Wanted
{
	LOCKTAG		tag;
	volatile LOCKMODE mode;		/* NoLock: nothing is noted */
	Oid			table;			/* of the row; invalid: it was none */
	ItemPointerData row;
} Wanted;

static Wanted wanted;

void
dt_holder_forget(void)
{
	wanted.mode = NoLock;
	wanted.table = InvalidOid;
}

void
dt_holder_note_lock(void)
{
	LOCK	   *lock = MyProc->waitLock;

	if (lock == NULL)
		return;
	wanted.tag = lock->tag;
	wanted.mode = MyProc->waitLockMode;
}

void
dt_holder_note_row(void)
{
	LockData   *locks;

	wanted.table = InvalidOid;
	if (wanted.mode == NoLock || (wanted.tag.locktag_type != LOCKTAG_TRANSACTION &&
								  wanted.tag.locktag_type != LOCKTAG_TUPLE))
		return;
	locks = GetLockStatusData();
	for (int i = 0; i < locks->nelements; i++)
	{
		const LOCKTAG *tag = &locks->locks[i].locktag;

		if (locks->locks[i].pid != MyProcPid || tag->locktag_type != LOCKTAG_TUPLE)
			continue;
		wanted.table = tag->locktag_field2;
		ItemPointerSet(&wanted.row, tag->locktag_field3, tag->locktag_field4);
	}
}

/* The values of these columns of a row, separated by commas. */
static char *
describe_key(TupleTableSlot *slot, TupleDesc desc, List *columns)
{
	HeapTuple	tuple = ExecCopySlotHeapTuple(slot);
	StringInfoData buf;

	initStringInfo(&buf);
	foreach_ptr(char, name, columns)
	{
		int			n = SPI_fnumber(desc, name);
		char	   *value = n > 0 ? SPI_getvalue(tuple, desc, n) : NULL;

		appendStringInfo(&buf, "%s%s", buf.len > 0 ? "," : "", value != NULL ? value : "");
	}
	return buf.data;
}

/*
 * The key of the row, "5,7", or NULL if the job's table has it no more.  Waits for
 * no lock.
 */
static char *
key_of_row(const DtJob *job)
{
	char	   *key = NULL;
	List	   *names;
	Relation	table;
	TupleTableSlot *slot;

	if (!list_member_oid(find_all_inheritors(job->table, NoLock, NULL), wanted.table) ||
		!ConditionalLockRelationOid(wanted.table, AccessShareLock) ||
		(table = try_relation_open(wanted.table, NoLock)) == NULL)
		return NULL;
	slot = table_slot_create(table, NULL);
	PushActiveSnapshot(GetLatestSnapshot());
	if (ItemPointerGetBlockNumber(&wanted.row) < RelationGetNumberOfBlocks(table) &&
		table_tuple_fetch_row_version(table, &wanted.row, GetActiveSnapshot(), slot) &&
		SplitIdentifierString(pstrdup(job->columns), ',', &names))
		key = describe_key(slot, RelationGetDescr(table), names);
	PopActiveSnapshot();
	ExecDropSingleTupleTableSlot(slot);
	relation_close(table, NoLock);
	return key;
}

static const char *
describe_lock(const DtJob *job)
{
	const char *name = wanted.tag.locktag_type == LOCKTAG_RELATION ?
		get_rel_name(wanted.tag.locktag_field2) : NULL;
	const char *key = OidIsValid(wanted.table) ? key_of_row(job) : NULL;

	return name != NULL ? psprintf(_("table \"%s\""), name) :
		key != NULL ? psprintf(_("the row with key {%s}"), key) :
		wanted.tag.locktag_type == LOCKTAG_TUPLE ||
		wanted.tag.locktag_type == LOCKTAG_TRANSACTION ? _("a row") : _("the lock");
}

char *
dt_holder_describe(const DtJob *job)
{
	VirtualTransactionId *holders;
	PGPROC	   *proc;
	const char *what;
	const char *role;
	int			pid;
	int			n;

	if (wanted.mode == NoLock)
		return NULL;
	holders = GetLockConflicts(&wanted.tag, wanted.mode, &n);
	proc = n > 0 ? dt_proc_of(holders[0]) : NULL;
	pid = proc != NULL ? proc->pid : 0;
	role = pid != 0 && OidIsValid(proc->roleId) ?
		GetUserNameFromId(proc->roleId, true) : NULL;
	what = describe_lock(job);
	dt_holder_forget();
	if (n > 0 && VirtualTransactionIdIsRecoveredPreparedXact(holders[0]))
		return psprintf(_("A prepared transaction holds %s."), what);
	if (pid == 0)
		return NULL;			/* none does any more */
	return role != NULL ?
		psprintf(_("Process %d (role \"%s\") holds %s."), pid, role, what) :
		psprintf(_("Process %d holds %s."), pid, what);
}
