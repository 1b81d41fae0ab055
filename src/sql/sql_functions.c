/*-------------------------------------------------------------------------
 *
 * sql_functions.c
 *		SQL functions that change something: arguments and privileges.
 *
 * None of the functions is STRICT, so that a NULL is an error instead of being
 * ignored.  Who may call a function is decided by GRANT; see the extension
 * script.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "backend/account.h"
#include "backend/interrupt.h"
#include "backend/session.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "engine/law.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pressure/signals.h"
#include "registry/load.h"
#include "registry/grant.h"
#include "registry/group.h"
#include "registry/member.h"
#include "sql/group_info.h"
#include "registry/threshold.h"
#include "sql/sql.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/float.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(set_group_dirty_limit);
PG_FUNCTION_INFO_V1(create_resource_group);
PG_FUNCTION_INFO_V1(reset_group_dirty_limit);
PG_FUNCTION_INFO_V1(rename_resource_group);
PG_FUNCTION_INFO_V1(drop_resource_group);
PG_FUNCTION_INFO_V1(dirty_throttle_reset);
PG_FUNCTION_INFO_V1(set_group_wal_limit);
PG_FUNCTION_INFO_V1(reset_group_wal_limit);
PG_FUNCTION_INFO_V1(set_group_burst);
PG_FUNCTION_INFO_V1(set_group_mode);
PG_FUNCTION_INFO_V1(set_group_pressure);
PG_FUNCTION_INFO_V1(reset_group_pressure);
PG_FUNCTION_INFO_V1(set_group_floor);
PG_FUNCTION_INFO_V1(suspend_group);
PG_FUNCTION_INFO_V1(resume_group);
PG_FUNCTION_INFO_V1(set_session_group);
PG_FUNCTION_INFO_V1(grant_group_use);
PG_FUNCTION_INFO_V1(revoke_group_use);
PG_FUNCTION_INFO_V1(join_group);
PG_FUNCTION_INFO_V1(leave_joined_group);

void
dt_sql_need_library(void)
{
	if (!dt_shmem_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("dirty_throttle must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"dirty_throttle\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
	dt_load();
}

/*
 * ERROR with this message if an argument is NULL.
 */
static void
check_not_null(FunctionCallInfo fcinfo, int arg, const char *message)
{
	if (PG_ARGISNULL(arg))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg_internal("%s", _(message))));
}

/* The messages about an argument that names a group. */
typedef struct
{
	const char *null;
	const char *empty;
	const char *too_long;		/* %s: the name */
} NameMessages;

static const NameMessages group_name = {
	gettext_noop("group name must not be null"),
	gettext_noop("group name must not be empty"),
	gettext_noop("group name \"%s\" is too long")
};
static const NameMessages old_group_name = {
	gettext_noop("old group name must not be null"),
	gettext_noop("old group name must not be empty"),
	gettext_noop("old group name \"%s\" is too long")
};
static const NameMessages new_group_name = {
	gettext_noop("new group name must not be null"),
	gettext_noop("new group name must not be empty"),
	gettext_noop("new group name \"%s\" is too long")
};

/*
 * An argument that names a group.
 */
static char *
get_name(FunctionCallInfo fcinfo, int arg, const NameMessages *messages)
{
	char	   *name;

	check_not_null(fcinfo, arg, messages->null);
	name = text_to_cstring(PG_GETARG_TEXT_PP(arg));
	if (name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg_internal("%s", _(messages->empty))));
	if (strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(messages->too_long, name),
				 errdetail("The name has %zu bytes, but the names of resource groups are limited to %d bytes.",
						   strlen(name), NAMEDATALEN - 1)));
	return name;
}

/*
 * The first argument of most functions, which need the library.
 */
static char *
get_group(FunctionCallInfo fcinfo)
{
	dt_sql_need_library();
	return get_name(fcinfo, 0, &group_name);
}

/* The range of an argument that is a number, and the messages about it. */
typedef struct
{
	int64		min;
	int64		max;
	const char *null;
	const char *out_of_range;	/* %s: the number */
	const char *range;			/* %lld, %lld: min and max */
} NumberRange;

static const NumberRange dirty_limit = {
	0, DT_RATE_MAX / 1000,
	gettext_noop("dirty rate limit must not be null"),
	gettext_noop("dirty rate limit %s is out of range"),
	gettext_noop("The valid range is from %lld to %lld KB/s (1 KB = 1000 bytes); 0 means no limit.")
};
static const NumberRange wal_limit = {
	0, DT_RATE_MAX / 1000,
	gettext_noop("WAL rate limit must not be null"),
	gettext_noop("WAL rate limit %s is out of range"),
	gettext_noop("The valid range is from %lld to %lld KB/s (1 KB = 1000 bytes); 0 means no limit.")
};
static const NumberRange burst = {
	0, DT_RATE_MAX_BURST_US / 1000,
	gettext_noop("burst must not be null"),
	gettext_noop("burst %s is out of range"),
	gettext_noop("The valid range is from %lld to %lld milliseconds of the group's limits.")
};
static const NumberRange group_floor = {
	1, DT_RATE_MAX / 1000,
	gettext_noop("floor must not be null"),
	gettext_noop("floor %s is out of range"),
	gettext_noop("The valid range is from %lld to %lld KB/s (1 KB = 1000 bytes).")
};

/*
 * The second argument of some.
 */
static float8
get_number(FunctionCallInfo fcinfo, const NumberRange *range)
{
	float8		value;

	check_not_null(fcinfo, 1, range->null);
	value = PG_GETARG_FLOAT8(1);
	if (isnan(value) || value < range->min || value > range->max)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg(range->out_of_range, float8out_internal(value)),
				 errdetail(range->range, (long long) range->min,
						   (long long) range->max)));
	return value;
}

/*
 * Set a limit to the second argument, in KB/s; "range" is that of the limit, NULL: no limit.
 * A tiny rate does not become 0, which means no limit.
 */
static Datum
set_limit(FunctionCallInfo fcinfo, DtProperty limit, const NumberRange *range,
		  DtDefine how)
{
	char	   *name = get_group(fcinfo);
	float8		kb = range == NULL ? 0 : get_number(fcinfo, range);
	int64		rate = kb > 0 ? Max((int64) rint(kb * 1000), 1) : 0;

	if (dt_group_define(name, limit, rate, how) && how != DT_CREATE)
		ereport(NOTICE,
				(errmsg("resource group \"%s\" created", name)));
	PG_RETURN_VOID();
}

Datum
set_group_dirty_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, DT_DIRTY_LIMIT, &dirty_limit, DT_CREATE_OR_ALTER);
}

Datum
set_group_wal_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, DT_WAL_LIMIT, &wal_limit, DT_CREATE_OR_ALTER);
}

Datum
create_resource_group(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, DT_DIRTY_LIMIT, &dirty_limit, DT_CREATE);
}

Datum
reset_group_dirty_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, DT_DIRTY_LIMIT, NULL, DT_ALTER);
}

Datum
reset_group_wal_limit(PG_FUNCTION_ARGS)
{
	return set_limit(fcinfo, DT_WAL_LIMIT, NULL, DT_ALTER);
}

Datum
set_group_burst(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	float8		ms = get_number(fcinfo, &burst);

	dt_group_define(name, DT_BURST, (int64) rint(ms * 1000), DT_ALTER);
	PG_RETURN_VOID();
}

Datum
set_group_mode(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	char	   *mode;

	check_not_null(fcinfo, 1, gettext_noop("mode must not be null"));
	mode = text_to_cstring(PG_GETARG_TEXT_PP(1));
	if (strcmp(mode, "enforce") != 0 && strcmp(mode, "observe") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized mode \"%s\"", mode),
				 errhint("Valid modes are \"enforce\" and \"observe\".")));
	dt_group_define(name, DT_OBSERVE, strcmp(mode, "observe") == 0, DT_ALTER);
	PG_RETURN_VOID();
}

/*
 * The second argument, which names a signal.
 */
static DtSignal
get_signal(FunctionCallInfo fcinfo)
{
	check_not_null(fcinfo, 1, gettext_noop("signal must not be null"));
	return dt_signal_of_name(text_to_cstring(PG_GETARG_TEXT_PP(1)));
}

/*
 * Dirty memory below what the kernel waits for is not written until it is old,
 * so a group that is kept there, at two thirds of its threshold, waits for
 * that.
 */
static void
notice_kernel_waits(const DtThreshold *t)
{
	char		reason[DT_REASON_SIZE];
	int64		threshold = t->value;
	int64		limit;
	int64		background;

	if (dt_look_kernel_background(&background, reason) != DT_LOOK_MEASURED)
		return;
	if (t->unit == DT_UNIT_SHARE)
	{
		if (dt_look_kernel_limit(&limit, reason) != DT_LOOK_MEASURED)
			return;
		threshold = (int64) (limit * (threshold / 1e6));
	}
	if (threshold / 3 * 2 < background)
		ereport(NOTICE,
				(errmsg("two thirds of the threshold are less than the dirty memory at which the kernel begins to write"),
				 errdetail("The kernel begins at " INT64_FORMAT " MB, as vm.dirty_background_bytes or vm.dirty_background_ratio says. What is less is only written when it is old, and the group is slowed down for that long.",
						   background >> 20),
				 errhint("Set a higher threshold, or a lower vm.dirty_background_bytes.")));
}

/*
 * When others alone force checkpoints, a group that follows the signal is at
 * its floor for good.
 */
static void
notice_out_of_reach(const char *name)
{
	DtCheckpointSeen seen = {0};
	DtGroupInfo *groups;
	double		by_groups = 0;
	int64		least = 0;
	int64		left;
	int64		time_left;
	int64		written;
	int64		others;
	int64		budget;
	int			n;
	int			i;

	if (RecoveryInProgress())
		return;
	n = dt_group_info_groups(&groups);
	for (i = 0; i < n; i++)
	{
		if (dt_definition_follows(&groups[i].definition, DT_CHECKPOINT))
			by_groups += groups[i].usage[DT_WAL].rate;
		if (strcmp(groups[i].definition.name, name) == 0)
			least = groups[i].definition.floor;
	}
	written = dt_look_wal_rate();
	others = written - (int64) by_groups;
	dt_look_checkpoint(&seen, dt_now_us(), &left, &time_left);
	budget = dt_law_budget(left, time_left);
	if (others <= 0 || others < budget)
		return;
	ereport(NOTICE,
			(errmsg("resource group \"%s\" will be slowed down to its floor, as others alone force checkpoints",
					name),
			 errdetail("Since the last completed checkpoint began, the server has written " INT64_FORMAT " KB/s of WAL; the groups that follow the signal now write " INT64_FORMAT " KB/s of that. No more than " INT64_FORMAT " KB/s fit until the next checkpoint comes by time.",
					   written / 1000, (int64) by_groups / 1000,
					   budget / 1000),
			 errhint("Increase max_wal_size to more than " INT64_FORMAT " MB.",
					 dt_max_wal_size_for(others + least))));
}

Datum
set_group_pressure(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	DtSignal	signal = get_signal(fcinfo);
	char		reason[DT_REASON_SIZE];
	DtThreshold threshold;

	check_not_null(fcinfo, 3, gettext_noop("argument \"ignore\" must not be null"));
	threshold = dt_threshold_parse(signal, PG_ARGISNULL(2) ? NULL :
								   text_to_cstring(PG_GETARG_TEXT_PP(2)),
								   PG_GETARG_INT32(3));
	if (!dt_signal_is_available(signal, threshold.unit, reason))
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("signal \"%s\" is not available on this server",
						dt_signal_name(signal)),
				 errdetail("%s", reason),
				 errhint("The view dirty_throttle_pressure shows which signals are available.")));
	(void) dt_group_set_threshold(name, signal, &threshold);
	if (signal == DT_KERNEL_DIRTY)
		notice_kernel_waits(&threshold);
	if (signal == DT_CHECKPOINT)
		notice_out_of_reach(name);
	if (!dt_sampler_runs())
		ereport(NOTICE,
				(errmsg("signals are not measured at present"),
				 errdetail("The background worker \"dirty_throttle pressure\" is not running."),
				 errhint("If max_worker_processes is too small for all workers, increase it and restart the server.")));
	PG_RETURN_VOID();
}

Datum
reset_group_pressure(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	DtSignal	signal = get_signal(fcinfo);

	if (!dt_group_set_threshold(name, signal, NULL))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not follow signal \"%s\"",
						name, dt_signal_name(signal))));
	PG_RETURN_VOID();
}

Datum
set_group_floor(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	float8		kb = get_number(fcinfo, &group_floor);

	dt_group_define(name, DT_FLOOR, (int64) rint(kb * 1000), DT_ALTER);
	PG_RETURN_VOID();
}

/*
 * Whoever suspends the group that he is in goes on, or he could not resume it.
 */
Datum
suspend_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	check_not_null(fcinfo, 1, gettext_noop("argument \"hard\" must not be null"));
	(void) dt_group_set_suspended(name, true, PG_GETARG_BOOL(1));
	if (dt_account_lock_and_exempt(dt_group_lookup_id(name)))
		ereport(NOTICE,
				(errmsg("this session is a member of resource group \"%s\", but is not suspended with it",
						name),
				 errhint("To let the other sessions continue, use SELECT resume_group(%s).",
						 quote_literal_cstr(name))));
	PG_RETURN_VOID();
}

Datum
resume_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	if (!dt_group_set_suspended(name, false, false))
		ereport(NOTICE,
				(errmsg("resource group \"%s\" is not suspended", name)));
	PG_RETURN_VOID();
}

Datum
set_session_group(PG_FUNCTION_ARGS)
{
	text	   *name;

	dt_sql_need_library();
	check_not_null(fcinfo, 0, gettext_noop("process ID must not be null"));
	name = PG_ARGISNULL(1) ? NULL : PG_GETARG_TEXT_PP(1);
	dt_member_move(PG_GETARG_INT32(0),
				   name == NULL || VARSIZE_ANY_EXHDR(name) == 0 ? NULL :
				   get_name(fcinfo, 1, &group_name),
				   dt_interrupt_send);
	PG_RETURN_VOID();
}

/*
 * The second argument, which names a role.
 */
static Oid
get_role(FunctionCallInfo fcinfo)
{
	check_not_null(fcinfo, 1, gettext_noop("role name must not be null"));
	return get_role_oid(text_to_cstring(PG_GETARG_TEXT_PP(1)), false);
}

Datum
grant_group_use(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	(void) dt_grant_set(name, get_role(fcinfo), true);
	PG_RETURN_VOID();
}

Datum
revoke_group_use(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);
	Oid			role = get_role(fcinfo);

	if (!dt_grant_set(name, role, false))
		ereport(NOTICE,
				(errmsg("role \"%s\" has not been granted the use of resource group \"%s\"",
						GetUserNameFromId(role, false), name)));
	PG_RETURN_VOID();
}

/*
 * ERROR in a session that was moved by set_session_group(): it must not undo
 * that by itself.
 */
static void
check_not_moved(void)
{
	if (dt_session_slot->moved)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot change the resource group of a session that was moved by set_session_group()"),
				 errhint("A role that may call set_session_group() can move the session again, and a role that may set dirty_throttle.\"group\" can end the move with SET.")));
}

Datum
join_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	if (!dt_grant_permits(name, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for resource group \"%s\"", name),
				 errhint("The view dirty_throttle_grants lists which roles may join which groups. A superuser can use SELECT grant_group_use(%s, %s) to allow it.",
						 quote_literal_cstr(name),
						 quote_literal_cstr(GetUserNameFromId(GetUserId(), false)))));
	check_not_moved();
	dt_session_set_parameter(name);
	PG_RETURN_VOID();
}

Datum
leave_joined_group(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	check_not_moved();
	if (!dt_session_has_joined())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("session has not joined a resource group with join_group()")));
	dt_session_set_parameter(NULL);
	PG_RETURN_VOID();
}

/*
 * The settings of roles and databases contain names of groups.  After a group
 * was renamed or dropped, tell how many contain the old name: new sessions
 * would not find the group and run unthrottled.
 */
static void
notice_settings_of(const char *name)
{
	char	   *setting = psprintf("dirty_throttle.group=%s", name);
	Relation	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	SysScanDesc scan = systable_beginscan(rel, InvalidOid, false, NULL, 0,
										  NULL);
	HeapTuple	tuple;
	int			found = 0;

	while ((tuple = systable_getnext(scan)) != NULL)
	{
		bool		isnull;
		Datum		config = heap_getattr(tuple,
										  Anum_pg_db_role_setting_setconfig,
										  RelationGetDescr(rel), &isnull);
		Datum	   *elements;
		int			n;
		int			i;

		if (isnull)
			continue;
		deconstruct_array(DatumGetArrayTypeP(config), TEXTOID, -1, false,
						  TYPALIGN_INT, &elements, NULL, &n);
		for (i = 0; i < n; i++)
			if (strcmp(TextDatumGetCString(elements[i]), setting) == 0)
				found++;
	}
	systable_endscan(scan);
	table_close(rel, AccessShareLock);

	if (found > 0)
		ereport(NOTICE,
				(errmsg_plural("%d setting of a role or database still refers to resource group \"%s\"",
							   "%d settings of roles and databases still refer to resource group \"%s\"",
							   found, found, name),
				 errdetail("New sessions with such a setting will not be throttled."),
				 errhint("Use SELECT * FROM pg_db_role_setting WHERE %s = ANY (setconfig) to list them.",
						 quote_literal_cstr(setting))));
}

Datum
rename_resource_group(PG_FUNCTION_ARGS)
{
	char	   *old_name;
	char	   *new_name;

	dt_sql_need_library();
	old_name = get_name(fcinfo, 0, &old_group_name);
	new_name = get_name(fcinfo, 1, &new_group_name);
	dt_group_rename(old_name, new_name);
	notice_settings_of(old_name);
	PG_RETURN_VOID();
}

Datum
drop_resource_group(PG_FUNCTION_ARGS)
{
	char	   *name = get_group(fcinfo);

	check_not_null(fcinfo, 1, gettext_noop("argument \"if_exists\" must not be null"));
	check_not_null(fcinfo, 2, gettext_noop("argument \"force\" must not be null"));
	if (dt_group_drop(name, PG_GETARG_BOOL(1), PG_GETARG_BOOL(2)))
		notice_settings_of(name);
	else
		ereport(NOTICE,
				(errmsg("resource group \"%s\" does not exist, skipping",
						name)));
	PG_RETURN_VOID();
}

Datum
dirty_throttle_reset(PG_FUNCTION_ARGS)
{
	dt_sql_need_library();
	dt_group_reset_stats(PG_ARGISNULL(0) ? NULL :
						 get_name(fcinfo, 0, &group_name));
	PG_RETURN_VOID();
}
