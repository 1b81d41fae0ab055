/*-------------------------------------------------------------------------
 *
 * session.c
 *		The resource group of this process.
 *
 * A session is in the group that dirty_throttle.group names.  The check hook
 * of that parameter looks the group up, and the assign hook makes the session
 * a member.  If that is not possible at that time (the group does not exist,
 * there is no shared memory yet, a pause is under way), it is tried again when
 * a statement begins.
 *
 * There are three exceptions.  A parallel worker shares its leader's slot.
 * Autovacuum and logical replication workers are in the group of a parameter
 * made for them.  And a session that was moved by set_session_group() stays
 * where it is, whatever value dirty_throttle.group gets, until that function
 * ends the move; from its next statement on the parameter counts again.
 *
 * A session that leaves a group, in whatever way, leaves there what it owes, and
 * one that joins takes over what its role has left there; see role_debt.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/at_end.h"
#include "session/check.h"
#include "session/pay.h"
#include "session/session.h"
#include "session/sigterm.h"
#include "session/tick.h"
#include "session/workers.h"
#include "shared/definitions.h"
#include "shared/group.h"
#include "shared/member.h"
#include "storage/ipc.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/snapmgr.h"
#include "waiters/waiters.h"

#include "compat.h"

/*
 * The meaning of a value of dirty_throttle.group.  GUC keeps it beside the
 * value (as its "extra"), so that a rename of the group, or a rollback to an
 * older value, leads to the same group again.
 */
typedef struct WantedGroup
{
	uint64		id;				/* 0: to be looked up by name when needed */
	bool		warned;			/* the user knows that it is missing */
	bool		by_join_group;	/* set by join_group() */
	bool		by_default;		/* of the database, of all roles or of the
								 * server, not of this role or session */
} WantedGroup;

int			dt_session_state = DT_UNATTACHED;

/* The extra of a value that has none. */
static WantedGroup no_extra;

static struct
{
	/*
	 * the value of dirty_throttle.group or of the background group's
	 * parameter
	 */
	char		wanted_name[NAMEDATALEN];
	WantedGroup *wanted;		/* the extra of the present value */
	uint64		changes_seen;	/* dt_registry_changes() at the last try; 0:
								 * there was none for this value */

	/* does its role operate the server?  As of when that was asked first. */
	bool		is_operator;
	bool		is_operator_known;
}			my = {.wanted = &no_extra};

/* A transaction has ended, and is still to be charged to its group. */
static inline bool
changes_are_held(void)
{
	return dt_xact.phase == DT_ENDED;
}

/* Is this a kind of process for which dirty_throttle.group counts? */
static bool
may_join(void)
{
	return dt_process() == DT_SESSION || dt_process() == DT_JOB;
}

/*
 * As whom this process has logged in.  A background worker that has named
 * nobody has the rights of the bootstrap superuser.
 */
static Oid
authenticated_role(void)
{
	return OidIsValid(MyProc->roleId) ? MyProc->roleId : BOOTSTRAP_SUPERUSERID;
}

/*
 * Who operates the server is in a group by name only: by a setting of the role,
 * a SET, join_group() or a move.  A failover tool or a monitoring agent must not
 * become a member because somebody has put a whole database into a group.  That
 * is found out where catalogs can be read.
 */
static void
find_out_whether_operator(void)
{
	Oid			role = MyProc->roleId;	/* a worker may have named nobody */

	if (my.is_operator_known || !IsTransactionState())
		return;
	my.is_operator = OidIsValid(role) &&
		(has_rolreplication(role) || is_member_of_role(role, ROLE_PG_MONITOR));
	my.is_operator_known = true;
}

/* May the session be in the group that its parameter names? */
static bool
may_be_in_wanted_group(void)
{
	return !my.wanted->by_default ||
		(my.is_operator_known && !my.is_operator);
}

static void
warn_unknown_group(const char *name)
{
	ereport(WARNING,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 errmsg("resource group \"%s\" does not exist", name),
			 errdetail("This session is not throttled."),
			 errhint("%s", dt_group_advice(name, _("Create the group with set_group_dirty_limit(), or correct the setting of dirty_throttle.\"group\" for the role, database or server.")))));
}

static void
warn_without_instance(void)
{
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("this session shares the limits of resource group \"%s\" with others",
					my.wanted_name),
			 errdetail("There is no room for one more instance of the group: there are dirty_throttle.max_groups = %d groups and instances.",
					   dt_shared->max_groups),
			 errhint("Increase dirty_throttle.max_groups and restart the server.")));
}

/*
 * This is an on_shmem_exit callback.  A before_shmem_exit one would be called
 * before the last transaction is aborted, but what the abort dirties must be
 * charged, too.
 */
static void
leave_at_exit(int code, Datum arg)
{
	dt_defer_termination();		/* for good: it ends anyway */
	dt_member_mine()->can_be_asked = false;
	/* it may end while it sleeps */
	dt_member_end_pause(dt_account.slot, &dt_member_mine()->pause);
	LWLockReleaseAll();			/* SIGTERM may end a worker that holds one */
	dt_waiters_detach();
	if (IsParallelWorker())
		dt_pay_catch_up();
	else
	{
		dt_member_publish(dt_account.slot, 0);
		dt_account_leave();
	}
	dt_account.slot = &dt_no_slot;
}

void
dt_session_attach(void)
{
	DtMember   *mine;

	if ((dt_session_state & DT_UNATTACHED) == 0 || !dt_shmem_available() ||
		MyProc == NULL)
		return;
	dt_session_state &= ~DT_UNATTACHED;
	if (dt_process() == DT_NO_MEMBER)
		return;
	dt_account.slot = dt_member_of(MyProc);
	mine = dt_member_mine();
	if (!IsParallelWorker())
	{
		memset(&dt_account.slot->xact, 0, sizeof(dt_account.slot->xact));
		pg_atomic_write_u32(&dt_account.slot->n_pausing, 0);
		dt_account.slot->told_to_end = false;
		dt_account_leave_workers_out(); /* those of the process before it */
		dt_account.slot->role = may_join() ? authenticated_role() : InvalidOid;
	}
	dt_waiters_attach(may_join());
	on_shmem_exit(leave_at_exit, (Datum) 0);
	if (may_join())
	{
		dt_activity_note_login();
		dt_member_publish(dt_account.slot, MyProcPid);
	}
	else if (IsParallelWorker())
		RegisterXactCallback(dt_worker_event, NULL);
	dt_pay_start();
	dt_check_listen(&mine->asked, &mine->can_be_asked);
}

bool
dt_session_follow(void)
{
	bool		was_member = dt_account.group != NULL;
	bool		is_member = dt_account_follow();

	if (is_member && !was_member)
	{
		dt_at_end_need(true);
		/* what the transaction that has just ended was does not count */
		if (IsTransactionState() && (FirstSnapshotSet || IsTransactionBlock()) &&
			!dt_activity_is_login() && !IsParallelWorker())
			dt_phase_join_midway(ActivePortal != NULL,
								 TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
								 dt_waiters_has_more_than_read_locks());
		dt_sigterm_watch();
		if (!dt_process_is_servers_own())
			dt_tick_start();
	}
	return is_member;
}

bool
dt_session_has_joined(void)
{
	return my.wanted->by_join_group;
}

/*
 * The slot of the group that is wanted: the group's own, or the instance that is
 * for this session, which may have to begin.  The caller has the registry lock; it
 * is exclusive afterwards if one has begun.
 */
static DtGroup *
find_wanted_slot(void)
{
	DtGroup    *own;
	DtGroup    *g;

	for (LWLockMode mode = LW_SHARED;; mode = LW_EXCLUSIVE)
	{
		own = dt_group_find_id(my.wanted->id);
		if (own == NULL)
			own = dt_group_find(my.wanted_name);
		g = own != NULL ? dt_group_slot(own, dt_account.slot) : NULL;
		if (own == NULL || g != NULL)
			return g;
		if (mode == LW_EXCLUSIVE)
			return dt_group_slot_for(own, dt_account.slot);
		LWLockRelease(dt_shared->registry_lock);
		LWLockAcquire(dt_shared->registry_lock, LW_EXCLUSIVE);
	}
}

/*
 * Make the membership what dirty_throttle.group says, unless the session was
 * moved.  Returns whether it is a member then.  Does not fail.
 */
static bool
apply_wanted_group(void)
{
	DtGroup    *g = NULL;
	bool		shares = false;

	dt_session_attach();
	my.changes_seen = dt_registry_changes();

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	if (my.wanted_name[0] != '\0' && may_be_in_wanted_group() &&
		!dt_account.slot->moved)
		g = find_wanted_slot();
	if (!dt_account.slot->moved &&
		(g == NULL || dt_account.slot->group != g))
	{
		dt_pay_leave();
		if (g != NULL)
		{
			dt_member_join(dt_account.slot, g);
			/* from now on the value means this group, even if it is renamed */
			my.wanted->id = g->of;
			my.wanted->warned = false;
			shares = g->of == g->id &&
				OidIsValid(dt_group_key(g, dt_account.slot));
		}
	}
	LWLockRelease(dt_shared->registry_lock);
	if (shares && IsTransactionState())
		warn_without_instance();
	/* from now on what is used is charged */
	return dt_session_follow();
}

static bool
name_fits(const char *name)
{
	size_t		len = strlen(name);

	if (len >= NAMEDATALEN)
		GUC_check_errdetail("The name has %zu bytes, but the names of resource groups are limited to %d bytes.",
							len, NAMEDATALEN - 1);
	return len < NAMEDATALEN;
}

/*
 * Check hook of the groups of background processes.  Such a group need not
 * exist yet.
 */
bool
dt_check_background_group(char **newval, void **extra, GucSource source)
{
	return name_fits(*newval);
}

/*
 * A parallel worker must accept the value of its leader, even if the group has
 * been dropped since.  Without shared memory (in the postmaster, or early in
 * the start of a process) nothing can be looked up.
 */
static bool
can_look_up(void)
{
	return dt_shmem_available() && MyProc != NULL && !IsParallelWorker();
}

/*
 * Check hook of dirty_throttle.group.  Only a SET may fail because there is no
 * such group; a login must not.
 */
bool
dt_check_group(char **newval, void **extra, GucSource source)
{
	bool		fail = (source >= PGC_S_INTERACTIVE && source != PGC_S_TEST);
	bool		by_default = source < PGC_S_USER;
	bool		warned = false;
	uint64		id = 0;
	WantedGroup *new;

	if ((source <= PGC_S_ARGV || source >= PGC_S_INTERACTIVE) &&
		!name_fits(*newval))
		return false;

	if (**newval != '\0' && can_look_up())
	{
		if (by_default)
			find_out_whether_operator();
		/* at a login nothing has done so yet */
		if (source != PGC_S_FILE)
			dt_load();
		id = dt_group_lookup_id(*newval);
		if (id == 0 && fail)
		{
			GUC_check_errcode(ERRCODE_UNDEFINED_OBJECT);
			GUC_check_errmsg("resource group \"%s\" does not exist", *newval);
			GUC_check_errhint("%s", dt_definitions_locked ?
							  _("Resource groups that this transaction has created or renamed are in force when it has committed.") :
							  dt_group_advice(*newval, _("The view dirty_throttle_groups lists the resource groups. Use set_group_dirty_limit() to create one.")));
			return false;
		}
		/* a reload of the configuration is not in a transaction: no notice */
		if (id == 0 && IsTransactionState())
		{
			if (source == PGC_S_TEST || source == PGC_S_FILE)
				ereport(NOTICE,
						(errcode(ERRCODE_UNDEFINED_OBJECT),
						 errmsg("resource group \"%s\" does not exist",
								*newval),
						 errdetail("Nothing is throttled by this setting."),
						 errhint("%s", dt_group_advice(*newval, _("Create the group with set_group_dirty_limit(), or correct the name.")))));
			else if (may_join() && !(by_default && my.is_operator))
			{
				warn_unknown_group(*newval);
				warned = true;
			}
		}
	}

	new = guc_malloc(LOG, sizeof(WantedGroup));
	if (new == NULL)
		return false;
	new->id = id;
	new->warned = warned;
	new->by_join_group = false;
	new->by_default = by_default;
	*extra = new;
	return true;
}

/*
 * Assign hook of dirty_throttle.group.  It must not fail.  When it undoes a
 * SET LOCAL at the end of a transaction, the group changes only after the
 * pause that follows: what the transaction owes is owed to the group it ran
 * in.
 */
void
dt_assign_group(const char *name, void *newextra)
{
	WantedGroup *extra = newextra;
	bool		usable = strlen(name) < NAMEDATALEN;

	if (dt_process_is_servers_own())
		return;

	strlcpy(my.wanted_name, usable ? name : "", NAMEDATALEN);
	my.wanted = extra ? extra : &no_extra;
	my.changes_seen = 0;
	if (my.wanted_name[0] != '\0' && !(my.wanted->by_default && my.is_operator))
		dt_session_state |= DT_WANTS_GROUP;
	else
		dt_session_state &= ~DT_WANTS_GROUP;

	if (!dt_shmem_available() || MyProc == NULL || !may_join())
		return;
	if (!changes_are_held())
		(void) apply_wanted_group();
}

void
dt_session_set_parameter(const char *name)
{
	(void) set_config_option("dirty_throttle.group", name, PGC_SUSET,
							 PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
	if (name != NULL && !dt_process_is_servers_own())
		my.wanted->by_join_group = true;
}

/*
 * Show hook of dirty_throttle.group: the present name of the group that the
 * session is in; empty when it is in none, whatever the parameter was set to.
 */
const char *
dt_show_group(void)
{
	static char name[NAMEDATALEN];
	DtGroup    *g;

	if (!dt_shmem_available() || MyProc == NULL ||
		!(may_join() || IsParallelWorker()))
		return dt_parameters.group;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	g = dt_member_of(MyProc)->group;
	strlcpy(name, g != NULL ? g->definition.name : "", NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return name;
}

void
dt_session_allow_changes(void)
{
	if (my.changes_seen == 0)
		(void) apply_wanted_group();
}

bool
dt_session_begin_statement_slow(void)
{
	bool		is_member;

	if (changes_are_held() || !dt_shmem_available())
		return dt_account_follow();
	dt_session_attach();
	is_member = dt_session_follow();

	/*
	 * The group did not exist, or the value was set before shared memory did,
	 * or where it was not known who the session is.
	 */
	if (my.wanted->by_default && may_join())
	{
		find_out_whether_operator();
		if (my.is_operator)
			dt_session_state &= ~DT_WANTS_GROUP;
	}
	if (!is_member && my.wanted_name[0] != '\0' && may_join() &&
		may_be_in_wanted_group() && !dt_account.slot->moved &&
		(!my.wanted->warned || my.changes_seen != dt_registry_changes()))
	{
		is_member = apply_wanted_group();
		if (!is_member && !my.wanted->warned && !dt_account.slot->moved)
		{
			my.wanted->warned = true;
			warn_unknown_group(my.wanted_name);
		}
	}
	/* the statement is subject to the limit that is set now */
	if (is_member)
		dt_pay_catch_up();
	return is_member;
}

void
dt_session_follow_background_group(void)
{
	const char *name = dt_process() == DT_AUTOVACUUM ?
		dt_parameters.autovacuum_group : dt_parameters.apply_group;

	if (!dt_shmem_available())
		return;
	if (strcmp(name, my.wanted_name) != 0 ||
		(!dt_account_follow() && name[0] != '\0' &&
		 my.changes_seen != dt_registry_changes()))
	{
		strlcpy(my.wanted_name, name, NAMEDATALEN);
		my.wanted = &no_extra;
		my.wanted->id = 0;
		(void) apply_wanted_group();
	}
}
