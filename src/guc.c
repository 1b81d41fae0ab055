/*-------------------------------------------------------------------------
 *
 * guc.c
 *		Configuration parameters: definitions, check, assign and show hooks.
 *
 * dirty_throttle.group carries, besides the name, the id of the group that
 * the name meant when it was set (the "extra"), so that a rename or a
 * rollback to an older value finds the same group again.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "group.h"
#include "guc.h"
#include "miscadmin.h"
#include "session.h"
#include "utils/guc.h"

#include "compat.h"

bool		dt_enabled = true;
int			dt_transaction_grace_ms = 50;
int			dt_max_commit_pause_ms = 30000;
int			dt_max_groups = 64;
int			dt_max_blocking_time_ms = 100;
bool		dt_interrupt_pauses = true;
char	   *dt_autovacuum_group = "";
char	   *dt_apply_group = "";

static char *group_name = NULL;
static bool joining = false;	/* join_group() sets it */

static bool
name_fits(const char *name)
{
	size_t		len = strlen(name);

	if (len >= NAMEDATALEN)
		GUC_check_errdetail("The name of a resource group has at most %d bytes, this one has %zu.",
							NAMEDATALEN - 1, len);
	return len < NAMEDATALEN;
}

/*
 * The group of a kind of background process; looked up when one needs it.
 */
static bool
check_background_group(char **newval, void **extra, GucSource source)
{
	return name_fits(*newval);
}

/*
 * Nobody may be refused a login, or a parallel query, because a group has
 * gone; and where there is no shared memory (postmaster, early start) nothing
 * can be looked up.  The session looks up again at its next statement.
 */
static bool
can_look_up(void)
{
	return dt_group_available() && MyProc != NULL && !IsParallelWorker();
}

static bool
check_group(char **newval, void **extra, GucSource source)
{
	bool		fail = (source >= PGC_S_INTERACTIVE && source != PGC_S_TEST);
	bool		warned = false;
	uint64		id = 0;
	DtWantedGroup *wanted;

	if ((source <= PGC_S_ARGV || source >= PGC_S_INTERACTIVE) &&
		!name_fits(*newval))
		return false;

	if (**newval != '\0' && can_look_up())
	{
		id = dt_group_lookup(*newval);
		if (id == 0 && fail)
		{
			GUC_check_errcode(ERRCODE_UNDEFINED_OBJECT);
			GUC_check_errmsg("resource group \"%s\" does not exist", *newval);
			GUC_check_errhint("The view dirty_throttle_groups lists the resource groups, set_group_dirty_limit() creates one.");
			return false;
		}
		/* not at a reload of the configuration, which is no transaction */
		if (id == 0 && IsTransactionState())
		{
			if (source == PGC_S_TEST || source == PGC_S_FILE)
				ereport(NOTICE,
						(errcode(ERRCODE_UNDEFINED_OBJECT),
						 errmsg("resource group \"%s\" does not exist",
								*newval)));
			else if (dt_session_may_join())
			{
				dt_session_warn_unknown_group(*newval);
				warned = true;
			}
		}
	}

	wanted = guc_malloc(LOG, sizeof(DtWantedGroup));
	if (wanted == NULL)
		return false;
	wanted->id = id;
	wanted->warned = warned;
	wanted->joined = joining;
	wanted->configured = (source <= PGC_S_FILE);
	wanted->set_now = fail;
	*extra = wanted;
	return true;
}

static void
assign_group(const char *newval, void *extra)
{
	dt_session_want_group(newval, (DtWantedGroup *) extra);
}

/*
 * Set dirty_throttle.group for this session, or reset it when name is NULL, by
 * a right that is not the user's but the caller's to check.
 */
static void
set_group(const char *name)
{
	(void) set_config_option("dirty_throttle.group", name, PGC_SUSET,
							 PGC_S_SESSION, GUC_ACTION_SET, true, 0, false);
}

void
dt_guc_join_group(const char *name)
{
	joining = true;
	PG_TRY();
	{
		set_group(name);
	}
	PG_FINALLY();
	{
		joining = false;
	}
	PG_END_TRY();
}

void
dt_guc_reset_group(void)
{
	set_group(NULL);
}

/*
 * What is in force: the present name of the group this session is in, or
 * nothing when there is no such group (any more).
 */
static const char *
show_group(void)
{
	static char name[NAMEDATALEN];

	if (!dt_group_available() || MyProc == NULL ||
		!(dt_session_may_join() || IsParallelWorker()))
		return group_name;
	return dt_member_group_name(dt_member_of(MyProc), name) ? name : "";
}

/*
 * Of all processes the postmaster reads the configuration first, before it
 * tells the others to, so it is the one to publish the switch.
 */
static void
assign_enabled(bool newval, void *extra)
{
	if (!IsUnderPostmaster && dt_group_available())
		dt_group_publish_enabled(newval);
}

void
dt_guc_init(void)
{
	DefineCustomStringVariable("dirty_throttle.group",
							   "Resource group of this session.",
							   "All sessions of a group together dirty shared buffers at the group's rate. Empty: not throttled. Set it per role or database to throttle a workload; grant SET on it to let a role choose for itself. In SQL the name is written dirty_throttle.\"group\".",
							   &group_name,
							   "",
							   PGC_SUSET,
							   GUC_NOT_IN_SAMPLE,
							   check_group,
							   assign_group,
							   show_group);

	DefineCustomStringVariable("dirty_throttle.autovacuum_group",
							   "Resource group of the autovacuum workers.",
							   "Empty: they are not throttled, whatever dirty_throttle.group says for their database. A vacuum to prevent wraparound never is.",
							   &dt_autovacuum_group,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_background_group,
							   NULL,
							   NULL);

	DefineCustomStringVariable("dirty_throttle.apply_group",
							   "Resource group of the logical replication workers of subscriptions.",
							   "Empty: they are not throttled. Otherwise they pause after the transactions that they apply, and send feedback to the publisher while they do.",
							   &dt_apply_group,
							   "",
							   PGC_SIGHUP,
							   0,
							   check_background_group,
							   NULL,
							   NULL);

	DefineCustomBoolVariable("dirty_throttle.enabled",
							 "Throttles the members of resource groups.",
							 "Turn it off to let everybody run at once, for example in an emergency; what is dirtied is still counted.",
							 &dt_enabled,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL,
							 assign_enabled,
							 NULL);

	DefineCustomIntVariable("dirty_throttle.transaction_grace",
							"How much a transaction may owe, in time at its group's rate, before it pauses while it runs.",
							"A transaction that stays below pays after its end, when it holds no lock. Raise it when short transactions hold hot locks; lower it for a smoother rate.",
							&dt_transaction_grace_ms,
							50,
							0, INT_MAX,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("dirty_throttle.max_commit_pause",
							"The longest pause after a transaction.",
							"What is owed beyond it is paid before the next transaction begins. Lower it when clients time out while they wait for the end of a command; 0 means to answer at once, for sessions whose clients hold locks elsewhere while they wait, as coordinators of distributed transactions do.",
							&dt_max_commit_pause_ms,
							30000,
							0, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomIntVariable("dirty_throttle.max_blocking_time",
							"How long a member that pauses may make sessions outside its group wait for its locks.",
							"Once somebody has waited that long, the member goes on without pausing while it runs, for as long as anybody outside waits, and pays after its transaction. 0 means never to pause while anybody outside waits, -1 means no bound.",
							&dt_max_blocking_time_ms,
							100,
							-1, INT_MAX,
							PGC_SUSET,
							GUC_UNIT_MS,
							NULL,
							NULL,
							NULL);

	DefineCustomBoolVariable("dirty_throttle.interrupt_pauses",
							 "Lets commands pause in the middle, where they check for interrupts.",
							 "Off: index builds, rewrites, VACUUM, COPY and whatever else does not hand over rows run at full speed and pay after their transactions.",
							 &dt_interrupt_pauses,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL,
							 NULL,
							 NULL);

	DefineCustomIntVariable("dirty_throttle.max_groups",
							"How many resource groups there can be.",
							NULL,
							&dt_max_groups,
							64,
							1, 10000,
							PGC_POSTMASTER,
							0,
							NULL,
							NULL,
							NULL);

	/*
	 * What has a source is restored in each parallel worker, and assigned: so
	 * we are told of those that run no part of a plan, too.
	 */
	SetConfigOption("dirty_throttle.group", "", PGC_POSTMASTER,
					PGC_S_DYNAMIC_DEFAULT);

	MarkGUCPrefixReserved("dirty_throttle");
}
