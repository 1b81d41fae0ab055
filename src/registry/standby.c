/*-------------------------------------------------------------------------
 *
 * standby.c
 *		A standby that follows its primary has no definitions of its own.
 *
 * It is a standby when it was started with standby.signal, until its promotion
 * ends the recovery.  A server that only recovers to some point in time keeps
 * what it was restored with.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xlogrecovery.h"
#include "registry/shmem.h"
#include "registry/standby.h"

char	   *dt_primary_conninfo = "";

/*
 * The postmaster publishes the value, as it does with dirty_throttle.enabled,
 * so that it changes for all processes at once: a change that was made here
 * after it was switched off must not be undone by a process that still follows.
 */
void
dt_assign_follow_primary(bool newval, void *extra)
{
	if (!IsUnderPostmaster && dt_shmem_available())
		pg_atomic_write_u32(&dt_shared->follows, newval);
}

const char *
dt_standby_conninfo(void)
{
	if (dt_primary_conninfo != NULL && dt_primary_conninfo[0] != '\0')
		return dt_primary_conninfo;
	if (PrimaryConnInfo != NULL && PrimaryConnInfo[0] != '\0')
		return PrimaryConnInfo;
	return NULL;
}

bool
dt_standby_follows(void)
{
	return dt_shared->is_standby &&
		pg_atomic_read_u32(&dt_shared->follows) != 0 &&
		dt_standby_conninfo() != NULL && RecoveryInProgress();
}

void
dt_standby_refuse_change(void)
{
	char		host[DT_HOST_SIZE];
	char		port[DT_PORT_SIZE];

	if (!dt_standby_follows())
		return;
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	strlcpy(host, dt_shared->following.host, sizeof(host));
	strlcpy(port, dt_shared->following.port, sizeof(port));
	LWLockRelease(dt_shared->registry_lock);
	ereport(ERROR,
			(errcode(ERRCODE_READ_ONLY_SQL_TRANSACTION),
			 errmsg("cannot change resource groups on a standby that follows its primary"),
			 host[0] != '\0' ?
			 errhint("Change them on the primary: this server follows host \"%s\", port %s. To give this server resource groups of its own, use ALTER SYSTEM SET dirty_throttle.follow_primary = off; SELECT pg_reload_conf();",
					 host, port) :
			 errhint("Change them on the primary. To give this server resource groups of its own, use ALTER SYSTEM SET dirty_throttle.follow_primary = off; SELECT pg_reload_conf();")));
}
