/*-------------------------------------------------------------------------
 *
 * session.c
 *		Which resource group this backend is in.
 *
 * That is what dirty_throttle.group says, or for processes that have no
 * settings of their own what the parameter made for them says; a parallel
 * worker is in its leader's.  Until it is set or reset again the parameter does
 * not count for a session that set_session_group() has moved.  A wish that
 * cannot be fulfilled yet, because there is no such group or no shared memory,
 * is looked at again when a statement begins.
 *
 * Who leaves a group by the parameter takes his debt along; see debt.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "account.h"
#include "guc.h"
#include "interrupt.h"
#include "live.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"

#include "compat.h"

bool		dt_session_wants_group = false;

/* What is not attached yet seems to have a group, so that it gets attached. */
static DtGroup no_group;
static DtMember unattached = {.group = &no_group};
static DtMember never_attached;

DtMember   *dt_session_slot = &unattached;

/* What dirty_throttle.group says. */
static char wanted_name[NAMEDATALEN];
static DtWantedGroup no_extra;
static DtWantedGroup *wanted = &no_extra;	/* GUC's, beside the name */
static uint64 looked_up_version = 0;	/* registry when it was missing */

/* Changes wait for a pause to end. */
static bool changes_held = false;
static bool wanted_changed = false; /* and not yet acted upon */
static bool change_waits = false;	/* it was tried, but too much is owed */

const char *
dt_session_background_group(void)
{
	if (MyBackendType == B_AUTOVAC_WORKER)
		return dt_autovacuum_group;
	if (IsLogicalWorker())
		return dt_apply_group;
	return NULL;
}

bool
dt_session_may_join(void)
{
	return MyBackendType == B_BACKEND ||
		(MyBackendType == B_BG_WORKER && OidIsValid(MyDatabaseId) &&
		 !IsParallelWorker() && !IsLogicalWorker());
}

void
dt_session_warn_unknown_group(const char *name)
{
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist, this session is not throttled",
					name),
			 errhint("Create it with set_group_dirty_limit(), or correct the setting dirty_throttle.\"group\" of this role, database or server.")));
}

/*
 * on_shmem_exit and not before_shmem_exit: the last abort comes in between,
 * and what it dirties is ours, too.
 */
static void
leave_at_exit(int code, Datum arg)
{
	dt_live_stop();
	dt_member_mine()->pauses_at_checks = false;
	LWLockReleaseAll();			/* a worker may end while it holds ours */
	if (IsParallelWorker())
		dt_account_end_worker_run();	/* it has failed */
	else
	{
		dt_member_unpublish(dt_session_slot);
		dt_account_close();
	}
	dt_account_attach(NULL);
}

/*
 * A parallel worker that ends well leaves word of what it has charged, before
 * its leader adds up.
 */
static void
worker_event(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PARALLEL_COMMIT)
		dt_account_publish_worker();
}

/* log_min_messages may have changed. */
static void
note_interrupts(void)
{
	DtMember   *mine = dt_member_mine();
	bool		works = dt_interrupt_works();

	if (mine->pauses_at_checks != works)
		mine->pauses_at_checks = works;
}

void
dt_session_attach(void)
{
	if (dt_session_slot != &unattached || !dt_group_available() ||
		MyProc == NULL)
		return;
	if (!IsParallelWorker() && !dt_session_may_join() &&
		dt_session_background_group() == NULL)
	{
		dt_session_slot = &never_attached;
		return;
	}
	dt_session_slot = dt_member_of(MyProc);	/* a worker's, else our own */
	if (IsParallelWorker())
		RegisterXactCallback(worker_event, NULL);
	on_shmem_exit(leave_at_exit, (Datum) 0);
	if (dt_session_may_join())
		dt_member_publish(dt_session_slot);
	dt_account_attach(dt_session_slot);
	dt_interrupt_listen(&dt_member_mine()->asked);
	note_interrupts();
}

bool
dt_session_has_joined(void)
{
	return wanted->joined;
}

bool
dt_session_was_moved(void)
{
	return dt_session_slot->moved;
}

/*
 * Make the membership what dirty_throttle.group says.  Does not fail.
 */
static void
apply_wanted_group(void)
{
	uint64		id = wanted->id;

	wanted_changed = false;
	dt_session_attach();
	looked_up_version = dt_group_registry_version();
	if (id == 0 && wanted_name[0] != '\0')
		id = dt_group_lookup(wanted_name);

	dt_member_lock();
	dt_session_slot->moved = false;
	change_waits = false;
	if (id == 0 || id != dt_member_group_id(dt_session_slot))
	{
		if (!dt_account_leave())
			change_waits = true;
		else if (wanted_name[0] != '\0' &&
				 dt_member_join(dt_session_slot, &id, wanted_name))
		{
			/* from now on the value means this group, also when renamed */
			wanted->id = id;
			wanted->warned = false;
		}
	}
	dt_member_unlock();
	(void) dt_account_is_open();	/* what is used from now on is charged */
}

/*
 * Assign hooks must not fail, and also run when a transaction ends; then what
 * it still owes is paid to the group in which it was dirtied.
 */
void
dt_session_want_group(const char *name, DtWantedGroup *extra)
{
	bool		usable = strlen(name) < NAMEDATALEN;
	bool		stay;

	if (dt_session_background_group() != NULL)
		return;

	/*
	 * An assignment ends a move.  But anybody may take back his own
	 * join_group(), say by DISCARD ALL, and not by that the move that came
	 * after it, which only SET can; and each reload of the configuration is
	 * an assignment, of a new extra, where RESET brings back the old one.
	 */
	stay = dt_session_slot->moved && extra != NULL &&
		(extra->joined ||
		 (wanted->joined ? !extra->set_now :
		  wanted->configured && extra->configured && extra != wanted));
	if (extra)
		extra->set_now = false;

	strlcpy(wanted_name, usable ? name : "", NAMEDATALEN);
	wanted = extra ? extra : &no_extra;
	looked_up_version = 0;
	dt_session_wants_group = (wanted_name[0] != '\0');
	if (stay)
		return;

	if (InitializingParallelWorker)
	{
		/* it may be about to build an index, without any statement */
		dt_session_attach();
		dt_account_begin_worker();
		if (dt_account_is_open())
			dt_live_start(false);
	}

	wanted_changed = true;
	if (!dt_group_available() || MyProc == NULL || !dt_session_may_join())
		return;
	dt_member_settle(dt_session_slot);
	if (!changes_held)
		apply_wanted_group();
}

void
dt_session_hold_changes(void)
{
	changes_held = true;
}

void
dt_session_release_changes(void)
{
	changes_held = false;
	/* it may have been moved since: who acts last wins */
	if (wanted_changed && !dt_session_slot->moved)
		apply_wanted_group();
	wanted_changed = false;
}

bool
dt_session_change_waits(void)
{
	return change_waits;
}

void
dt_session_begin_statement(void)
{
	if (!dt_group_available() || changes_held)
		return;
	dt_session_attach();
	if (change_waits && !dt_session_slot->moved)
		apply_wanted_group();

	/* Set where there was no shared memory yet, or missing up to now. */
	if (wanted_name[0] != '\0' && dt_session_may_join() &&
		!dt_session_slot->moved && !dt_account_is_open() &&
		(!wanted->warned ||
		 looked_up_version != dt_group_registry_version()))
	{
		apply_wanted_group();
		if (!dt_account_is_open() && !wanted->warned)
		{
			wanted->warned = true;
			dt_session_warn_unknown_group(wanted_name);
		}
	}

	/* What comes now is subject to the limit as it is now. */
	if (dt_account_is_open())
	{
		note_interrupts();
		dt_account_follow_limit();
	}
}

void
dt_session_follow_background_group(void)
{
	const char *name = dt_session_background_group();

	if (name == NULL || !dt_group_available() || changes_held)
		return;
	if (strcmp(name, wanted_name) != 0 ||
		(!dt_account_is_open() && name[0] != '\0' &&
		 looked_up_version != dt_group_registry_version()))
	{
		strlcpy(wanted_name, name, NAMEDATALEN);
		wanted = &no_extra;
		wanted->id = 0;
		apply_wanted_group();
	}
}
