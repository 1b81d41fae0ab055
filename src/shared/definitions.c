/*-------------------------------------------------------------------------
 *
 * definitions.c
 *		Reading and changing the definitions of groups, in the catalog.
 *
 * The definitions are the setting of a parameter for a role that nobody logs
 * in as, in the shared catalog pg_db_role_setting.  So the server itself
 * stores them, makes them durable, replicates them, and puts them into every
 * kind of backup and upgrade.  The form of the text is in text.c.
 *
 * Every change locks the row, reads it, edits a list of entries, and writes a
 * new version of the row, all in the transaction of the caller.  What follows
 * from that is in load.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "commands/user.h"
#include "compat.h"
#include "miscadmin.h"
#include "parser/parse_node.h"
#include "shared/definitions.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* --------------------------------------------------------- the parameter */

#define USE_FUNCTIONS \
	"Use functions such as set_group_dirty_limit() to define resource groups."

/* Check hook of dirty_throttle.groups. */
bool
dt_check_definitions(char **newval, void **extra, GucSource source)
{
	const char *problem;

	if (**newval == '\0')
		return true;
	if (source == PGC_S_SESSION)
	{
		GUC_check_errcode(ERRCODE_CANT_CHANGE_RUNTIME_PARAM);
		GUC_check_errmsg("parameter \"%s\" cannot be set in a session",
						 DT_DEFINITIONS_PARAMETER);
		GUC_check_errhint("%s", _(USE_FUNCTIONS));
		return false;
	}
	(void) dt_text_read(*newval, &problem);
	if (problem != NULL)
	{
		GUC_check_errdetail("%s", problem);
		GUC_check_errhint("%s", _(USE_FUNCTIONS));
	}
	return problem == NULL;
}

/* ------------------------------------------------------- reading the row */

/*
 * The role whose setting the definitions are, or InvalidOid.  A transaction
 * that has committed puts its definitions in force before it tells the caches
 * of others, so what these have is not used.
 */
Oid
dt_definitions_role(void)
{
	SysCacheInvalidate(AUTHNAME, GetSysCacheHashValue1(AUTHNAME,
													   CStringGetDatum(DT_DEFINITIONS_ROLE)));
	InvalidateCatalogSnapshot();
	return get_role_oid(DT_DEFINITIONS_ROLE, true);
}

/* The value of our parameter among the settings of a role, or NULL. */
static char *
find_setting(HeapTuple tuple, Relation rel)
{
	size_t		prefix = strlen(DT_DEFINITIONS_PARAMETER "=");
	bool		isnull;
	Datum		settings = heap_getattr(tuple,
										Anum_pg_db_role_setting_setconfig,
										RelationGetDescr(rel), &isnull);
	Datum	   *elements;
	int			n = 0;

	if (!isnull)
		deconstruct_array(DatumGetArrayTypeP(settings), TEXTOID, -1, false,
						  TYPALIGN_INT, &elements, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		char	   *setting = TextDatumGetCString(elements[i]);

		if (pg_strncasecmp(setting, DT_DEFINITIONS_PARAMETER "=", prefix) == 0)
			return setting + prefix;
	}
	return NULL;
}

/*
 * Read the text, palloc'd, and the version of the row; NULL and a zeroed version
 * if there is none.  Returns false, and leaves *string, when *version is still the
 * version of the row.
 */
static bool
read_row(Snapshot visible, DtRowVersion *version, char **string)
{
	DtRowVersion known = *version;
	Oid			role = dt_definitions_role();
	bool		is_same;
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
	ScanKeyData key[2];
	HeapTuple	tuple;

	memset(version, 0, sizeof(*version));
	rel = table_open(DbRoleSettingRelationId, AccessShareLock);
	ScanKeyInit(&key[0], Anum_pg_db_role_setting_setdatabase,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(InvalidOid));
	ScanKeyInit(&key[1], Anum_pg_db_role_setting_setrole,
				BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(role));

	/*
	 * a long text is stored out of line: that can be read with a snapshot
	 * only
	 */
	snapshot = RegisterSnapshot(GetCatalogSnapshot(DbRoleSettingRelationId));
	scan = systable_beginscan(rel, DbRoleSettingDatidRolidIndexId, true,
							  visible ? visible : snapshot, 2, key);
	tuple = OidIsValid(role) ? systable_getnext(scan) : NULL;
	if (HeapTupleIsValid(tuple))
	{
		version->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
		version->tid = tuple->t_self;
	}
	is_same = version->xmin == known.xmin &&
		memcmp(&version->tid, &known.tid, sizeof(ItemPointerData)) == 0;
	if (!is_same)
		*string = HeapTupleIsValid(tuple) ? find_setting(tuple, rel) : NULL;
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return !is_same;
}

/*
 * The row as the last transactions that have committed, and this one, have left
 * it; see read_row().
 */
bool
dt_definitions_read_row(DtRowVersion *version, char **string)
{
	return read_row(NULL, version, string);
}

/* Does the command that runs change the text? */
bool
dt_definitions_changed(void)
{
	DtRowVersion before = {0};
	DtRowVersion after = {0};
	char	   *old = NULL;
	char	   *new = NULL;

	(void) read_row(NULL, &before, &old);
	(void) read_row(SnapshotSelf, &after, &new);
	return strcmp(old ? old : "", new ? new : "") != 0;
}

/*
 * All entries as they are for this transaction, palloc'd.  When the row cannot
 * be understood: ERROR, or none.
 */
List *
dt_definitions_read(bool fail)
{
	DtRowVersion version = {0};
	char	   *string = NULL;
	const char *problem;
	List	   *entries;

	(void) dt_definitions_read_row(&version, &string);
	entries = dt_text_read(string, &problem);
	if (problem != NULL && !fail)
		return NIL;
	if (problem != NULL)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("the definitions of resource groups cannot be read"),
				 errdetail_internal("%s", problem),
				 errhint("A later release of dirty_throttle may have written them. Use ALTER ROLE %s SET \"%s\" to correct them, or RESET to drop all resource groups.",
						 DT_DEFINITIONS_ROLE, DT_DEFINITIONS_PARAMETER)));
	return entries;
}

/* The entry of that name, or NULL. */
DtEntry *
dt_definitions_find(List *entries, const char *name)
{
	foreach_ptr(DtEntry, entry, entries)
	{
		if (strcmp(entry->definition.name, name) == 0)
			return entry;
	}
	return NULL;
}

/* ------------------------------------------------------ changing the row */

/*
 * Has this transaction locked the row, by a lock on the catalog that stands for it?
 * ROLLBACK TO may have released that lock since, and then it has also undone what was
 * changed.
 */
bool		dt_definitions_locked = false;

bool
dt_definitions_still_locked(void)
{
	LOCKTAG		tag;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DbRoleSettingRelationId, InvalidOid, 0);
	return dt_definitions_locked && dt_lock_is_held(&tag, ExclusiveLock);
}

/* Until the end of the transaction nobody else changes the row. */
void
dt_definitions_lock(void)
{
	dt_definitions_locked = true;
	LockSharedObject(DbRoleSettingRelationId, InvalidOid, 0, ExclusiveLock);
}

/*
 * Lock the row, and return what a change starts from.  ERROR where a
 * transaction cannot write.
 */
List *
dt_definitions_begin_change(void)
{
	bool		recovery = RecoveryInProgress();

	if (recovery || XactReadOnly)
		ereport(ERROR,
				(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
				 recovery ?
				 errmsg("cannot change resource groups during recovery") :
				 errmsg("cannot change resource groups in a read-only transaction"),
				 recovery ?
				 errhint("Change them on the primary.") :
				 errhint("Begin the transaction with BEGIN READ WRITE.")));
	dt_definitions_lock();
	return dt_definitions_read(true);
}

/* Is there room for one more group, or instance that differs? */
void
dt_definitions_check_room(List *entries)
{
	if (dt_entries_slots(entries) >= dt_shared->max_groups)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("cannot define more than %d resource groups and instances",
						dt_shared->max_groups),
				 errhint("Drop a resource group with drop_resource_group(), or increase dirty_throttle.max_groups and restart the server.")));
}

/*
 * Begin to change a group, whose name the caller has checked.  Returns its entry
 * in *entries, which dt_definitions_write() then writes; NULL if there is none,
 * with DT_ALTER_IF_EXISTS.  Groups that are not in force, as there is no room for
 * them, count towards max_groups, too.
 */
DtEntry *
dt_definitions_edit(const char *group, DtDefine how, List **entries)
{
	DtEntry    *entry;

	*entries = dt_definitions_begin_change();
	entry = dt_definitions_find(*entries, group);
	if (entry == NULL && how == DT_ALTER)
		dt_group_missing(group);
	if (entry != NULL || how == DT_ALTER_IF_EXISTS)
		return entry;
	dt_definitions_check_room(*entries);
	entry = palloc0(sizeof(DtEntry));
	dt_definition_init(&entry->definition, group);
	entry->is_new = true;
	*entries = lappend(*entries, entry);
	return entry;
}

static Oid
create_role(void)
{
	CreateRoleStmt *statement = makeNode(CreateRoleStmt);
	Oid			role;

	statement->stmt_type = ROLESTMT_ROLE;
	statement->role = DT_DEFINITIONS_ROLE;
	role = CreateRole(make_parsestate(NULL), statement);
	CommandCounterIncrement();
	return role;
}

/*
 * Write the entries, in a row of a role that is created if it does not exist,
 * or without entries remove them from it.  The caller has checked that the
 * user may do that, so it does not matter whether the user may ALTER ROLE.  An
 * ERROR restores the user when it ends the (sub)transaction.
 */
void
dt_definitions_write(List *entries)
{
	char	   *string = dt_text_write(entries);
	VariableSetStmt *statement = makeNode(VariableSetStmt);
	Oid			role = dt_definitions_role();
	Oid			user;
	int			context;

	if (!OidIsValid(role) && string[0] == '\0')
		return;
	statement->name = DT_DEFINITIONS_PARAMETER;
	if (string[0] == '\0')
		statement->kind = VAR_RESET;
	else
	{
		A_Const    *value = makeNode(A_Const);

		value->val.sval.type = T_String;
		value->val.sval.sval = string;
		value->location = -1;
		statement->kind = VAR_SET_VALUE;
		statement->args = list_make1(value);
	}
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   context | SECURITY_LOCAL_USERID_CHANGE);
	if (!OidIsValid(role))
		role = create_role();
	AlterSetting(InvalidOid, role, statement);
	SetUserIdAndSecContext(user, context);
	CommandCounterIncrement();
}
