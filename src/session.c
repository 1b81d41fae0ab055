/*-------------------------------------------------------------------------
 *
 * session.c
 *		Which resource group this backend is in.
 *
 * That is what dirty_throttle.group says, or for processes that have no
 * settings of their own what the parameter made for them says; a parallel
 * worker is in its leader's.  A wish that cannot be fulfilled yet, because
 * there is no such group or no shared memory, is looked at again when a
 * statement begins.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "account.h"
#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "session.h"
#include "storage/ipc.h"

#include "compat.h"

bool		dt_session_active = false;

/* What dirty_throttle.group says. */
static char wanted_name[NAMEDATALEN];
static DtWantedGroup no_extra;
static DtWantedGroup *wanted = &no_extra;	/* GUC's, beside the name */
static uint64 looked_up_version = 0;	/* registry when it was missing */

static uint64 group_id = 0;		/* the group we are in */
static bool exit_registered = false;

/* Changes wait for a pause to end. */
static bool changes_held = false;
static bool wanted_changed = false; /* and not yet acted upon */

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
	dt_account_close();
}

static void
join_group(uint64 id, const char *name)
{
	DtMember   *member = dt_group_my_member();
	DtGroup    *group;

	if (!exit_registered)
	{
		on_shmem_exit(leave_at_exit, (Datum) 0);
		exit_registered = true;
	}
	group = dt_group_join(member, &id, name);
	if (group == NULL)
		return;
	dt_account_open(member, group);
	group_id = id;

	/* from now on the value means this group, also when it is renamed */
	wanted->id = id;
	wanted->warned = false;
}

/*
 * Make the membership what dirty_throttle.group says.  Does not fail.
 */
static void
apply_wanted_group(void)
{
	uint64		id = wanted->id;

	wanted_changed = false;
	looked_up_version = dt_group_registry_version();
	if (id == 0 && wanted_name[0] != '\0')
		id = dt_group_lookup(wanted_name);
	if (dt_account_is_open() && id != 0 && id == group_id)
		return;					/* as it is */
	dt_account_close();
	if (wanted_name[0] != '\0')
		join_group(id, wanted_name);
	dt_session_active = dt_account_is_open() || wanted_name[0] != '\0';
}

/*
 * Assign hooks must not fail, and also run when a transaction ends; then what
 * it still owes is paid to the group in which it was dirtied.
 */
void
dt_session_want_group(const char *name, DtWantedGroup *extra)
{
	bool		usable = strlen(name) < NAMEDATALEN;

	if (dt_session_background_group() != NULL)
		return;
	strlcpy(wanted_name, usable ? name : "", NAMEDATALEN);
	wanted = extra ? extra : &no_extra;
	looked_up_version = 0;
	wanted_changed = true;
	dt_session_active = dt_account_is_open() || wanted_name[0] != '\0';

	if (dt_group_available() && MyProc != NULL && dt_session_may_join() &&
		!changes_held)
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
	if (wanted_changed)
		apply_wanted_group();
}

/*
 * A parallel worker: what its leader is in, it is in.
 */
static void
join_leader(void)
{
	DtMember   *member = dt_group_leader_member();
	DtGroup    *group = member->group;

	if (group != NULL)
		dt_account_open(member, group);
}

void
dt_session_begin_statement(void)
{
	if (!dt_group_available() || changes_held)
		return;
	if (IsParallelWorker())
	{
		if (!dt_account_is_open())
			join_leader();
		return;
	}

	/* Set where there was no shared memory yet, or missing up to now. */
	if (!dt_account_is_open() && wanted_name[0] != '\0' &&
		dt_session_may_join() &&
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
		dt_account_follow_limit();
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
	dt_session_active = dt_account_is_open();
}
