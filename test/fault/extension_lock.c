/*-------------------------------------------------------------------------
 *
 * extension_lock.c
 *		Somebody who checks for interrupts while he may extend a table; for
 *		test/t/046_blocking.pl, which compiles it.
 *
 *	hold_extension_lock(regclass, blocks)
 *		Locks the table for extension, as if so many shared buffers had been
 *		dirtied under that lock, and checks for interrupts until somebody has
 *		waited for the lock for a while.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "executor/instrument.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/rel.h"

PG_MODULE_MAGIC;
PG_FUNCTION_INFO_V1(hold_extension_lock);

Datum
hold_extension_lock(PG_FUNCTION_ARGS)
{
	Relation	rel = table_open(PG_GETARG_OID(0), RowExclusiveLock);
	int			checks = 0;		/* while somebody waits */

	LockRelationForExtension(rel, ExclusiveLock);
	pgBufferUsage.shared_blks_dirtied += PG_GETARG_INT32(1);
	while (checks < 50)
	{
		CHECK_FOR_INTERRUPTS();
		pg_usleep(1000L);
		if (RelationExtensionLockWaiterCount(rel) > 1)	/* who holds it, too */
			checks++;
	}
	UnlockRelationForExtension(rel, ExclusiveLock);
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}
