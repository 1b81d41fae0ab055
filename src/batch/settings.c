/*-------------------------------------------------------------------------
 *
 * settings.c
 *		The settings with which a job is started, and run.
 *
 * The worker of a job connects as the user of the session that starts it, so it has
 * the settings of the server, the database and that role anyway.  What the session has
 * set itself is stored with the job, as those of a function's SET clause are, custom
 * parameters included.  search_path is stored in any case: the statement depends on it.
 *
 * Values may be secrets.  Nothing shows them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "batch/settings.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc_tables.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

#include "compat.h"

/* Together they have at most this many bytes. */
#define LONGEST		8192

/* What belongs to the session, its client or its transaction. */
static const char *const others[] = {
	"application_name", "client_encoding", "default_transaction_read_only",
	"dirty_throttle.group", "is_superuser", "role", "session_authorization", "transaction_deferrable",
	"transaction_isolation", "transaction_read_only", "transaction_timeout"
};

static bool
is_wanted(const struct config_generic *variable)
{
	if (strcmp(variable->name, "search_path") == 0)
		return true;
	if ((variable->source != PGC_S_CLIENT && variable->source != PGC_S_SESSION) ||
		(variable->context != PGC_USERSET && variable->context != PGC_SUSET))
		return false;
	for (int i = 0; i < lengthof(others); i++)
		if (strcmp(variable->name, others[i]) == 0)
			return false;
	return true;
}

ArrayType *
dt_settings_get(void)
{
	int			n;
	struct config_generic **variables = dt_guc_variables(&n);
	ArrayBuildState *state = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	Size		size = 0;

	for (int i = 0; i < n; i++)
	{
		char	   *setting;

		if (!is_wanted(variables[i]))
			continue;
		setting = psprintf("%s=%s", variables[i]->name,
						   GetConfigOption(variables[i]->name, false, false));
		size += strlen(setting);
		state = accumArrayResult(state, CStringGetTextDatum(setting), false, TEXTOID,
								 CurrentMemoryContext);
	}
	if (size > LONGEST)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("the settings of this session are too long to be stored"),
				 errdetail("They have %zu bytes; %d are allowed.", size, LONGEST),
				 errhint("RESET what the batches do not need.")));
	return DatumGetArrayTypeP(makeArrayResult(state, CurrentMemoryContext));
}

void
dt_settings_set(const char *name, const char *value)
{
	(void) set_config_option(name, value, PGC_SUSET, PGC_S_SESSION,
							 GUC_ACTION_SET, true, ERROR, false);
}

void
dt_settings_apply(ArrayType *settings)
{
	Datum	   *elements;
	int			n;

	deconstruct_array(settings, TEXTOID, -1, false, TYPALIGN_INT, &elements, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *setting = TextDatumGetCString(elements[i]);
		char	   *value = strchr(setting, '=');

		*value++ = '\0';
		(void) set_config_option(setting, value,
								 superuser() ? PGC_SUSET : PGC_USERSET,
								 PGC_S_SESSION, GUC_ACTION_SET, true, ERROR, false);
	}
}

bool
dt_settings_can_log_in(void)
{
	HeapTuple	tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(GetSessionUserId()));
	bool		result = HeapTupleIsValid(tuple) &&
		((Form_pg_authid) GETSTRUCT(tuple))->rolcanlogin;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

static bool
database_allows_connections(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		result = HeapTupleIsValid(tuple) &&
		((Form_pg_database) GETSTRUCT(tuple))->datallowconn;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return result;
}

void
dt_settings_check_connection(void)
{
	if (DT_BGWORKER_ANY_LOGIN == 0 && !dt_settings_can_log_in())
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION),
				 errmsg("role \"%s\" may not log in, so no background worker can run batches for it",
						GetUserNameFromId(GetSessionUserId(), false)),
				 errhint("Start them in a session of a role with LOGIN, and use SET ROLE there.")));
	if (!database_allows_connections())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("database \"%s\" does not allow connections, so no background worker can run batches in it",
						get_database_name(MyDatabaseId)),
				 errhint("Use ALTER DATABASE %s ALLOW_CONNECTIONS true before.",
						 quote_identifier(get_database_name(MyDatabaseId)))));
}

void
dt_settings_check_owner(Oid owner, const char *name)
{
	if (!SearchSysCacheExists1(AUTHOID, ObjectIdGetDatum(owner)))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("the role that has started batches \"%s\" does not exist any more", name),
				 errhint("To begin anew as another role, start them there. A superuser can use forget_batches().")));
}
