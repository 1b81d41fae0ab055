/*-------------------------------------------------------------------------
 *
 * row.c
 *		The row of the catalog that has the definitions of all groups.
 *
 * The definitions are the setting of a parameter for a role that nobody logs
 * in as, in the shared catalog pg_db_role_setting.  So the server itself stores
 * them, makes them durable, replicates them, and puts them into every kind of
 * backup and upgrade.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_db_role_setting.h"
#include "catalog/pg_type.h"
#include "commands/user.h"
#include "miscadmin.h"
#include "parser/parse_node.h"
#include "registry/row.h"
#include "storage/lmgr.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/relcache.h"
#include "utils/resowner.h"
#include "utils/snapmgr.h"

bool		dt_row_locked = false;

/*
 * The caches may not know yet what a transaction has committed that others have
 * put in force already.  So this looks into the catalog, as it is now.
 */
Oid
dt_row_role(void)
{
	Relation	rel = table_open(AuthIdRelationId, AccessShareLock);
	Oid			role = InvalidOid;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_authid_rolname, BTEqualStrategyNumber, F_NAMEEQ,
				CStringGetDatum(DT_ROW_ROLE));
	InvalidateCatalogSnapshot();
	scan = systable_beginscan(rel, AuthIdRolnameIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		role = ((Form_pg_authid) GETSTRUCT(tuple))->oid;
	systable_endscan(scan);
	table_close(rel, AccessShareLock);
	return role;
}

bool
dt_row_is_readable(void)
{
	return IsTransactionState() && OidIsValid(MyDatabaseId) &&
		criticalRelcachesBuilt && CurrentResourceOwner != NULL &&
		!HistoricSnapshotActive();
}

bool
dt_row_same_version(const DtRowVersion *a, const DtRowVersion *b)
{
	return a->xmin == b->xmin &&
		memcmp(&a->tid, &b->tid, sizeof(ItemPointerData)) == 0;
}

/* The value of our parameter in an array of settings, or NULL. */
static char *
find_setting(ArrayType *settings)
{
	size_t		prefix = strlen(DT_ROW_PARAMETER "=");
	Datum	   *elements;
	int			n;
	int			i;

	deconstruct_array(settings, TEXTOID, -1, false, TYPALIGN_INT, &elements,
					  NULL, &n);
	for (i = 0; i < n; i++)
	{
		text	   *setting = DatumGetTextPP(elements[i]);

		/* others may be there, of any size */
		if (VARSIZE_ANY_EXHDR(setting) >= prefix &&
			pg_strncasecmp(VARDATA_ANY(setting), DT_ROW_PARAMETER "=",
						   prefix) == 0)
			return text_to_cstring(setting) + prefix;
	}
	return NULL;
}

char *
dt_row_read(DtRowVersion *version, const DtRowVersion *known)
{
	Oid			role = dt_row_role();
	char	   *result = NULL;
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
	ScanKeyData key[2];
	HeapTuple	tuple;

	memset(version, 0, sizeof(*version));
	if (!OidIsValid(role))
		return NULL;
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
							  snapshot, 2, key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		version->xmin = HeapTupleHeaderGetRawXmin(tuple->t_data);
		version->tid = tuple->t_self;
		if (known == NULL || !dt_row_same_version(version, known))
		{
			bool		isnull;
			Datum		settings = heap_getattr(tuple,
												Anum_pg_db_role_setting_setconfig,
												RelationGetDescr(rel), &isnull);

			if (!isnull)
				result = find_setting(DatumGetArrayTypeP(settings));
		}
	}
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, AccessShareLock);
	return result;
}

void
dt_row_lock(void)
{
	dt_row_locked = true;
	LockSharedObject(DbRoleSettingRelationId, InvalidOid, 0, ExclusiveLock);
}

static Oid
create_role(void)
{
	CreateRoleStmt *statement = makeNode(CreateRoleStmt);
	Oid			role;

	statement->stmt_type = ROLESTMT_ROLE;
	statement->role = DT_ROW_ROLE;
	role = CreateRole(make_parsestate(NULL), statement);
	CommandCounterIncrement();
	return role;
}

/*
 * An ERROR restores the user when it ends the (sub)transaction.
 */
void
dt_row_write(char *string)
{
	VariableSetStmt *statement = makeNode(VariableSetStmt);
	Oid			role = dt_row_role();
	Oid			user;
	int			context;

	if (!OidIsValid(role) && string[0] == '\0')
		return;
	statement->name = DT_ROW_PARAMETER;
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
