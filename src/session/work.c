/*-------------------------------------------------------------------------
 *
 * work.c
 *		For work that is cut into transactions: all that src/batch knows of the
 *		throttle.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "session/account.h"
#include "session/activity.h"
#include "session/pay.h"
#include "session/session.h"
#include "session/work.h"
#include "utils/guc.h"

#include "compat.h"

int64
dt_work_group(char name[NAMEDATALEN])
{
	int64		now;
	DtGroup    *g;
	int64		id;

	(void) dt_session_begin_statement();
	g = dt_account_lock(&now);
	if (g == NULL)
		return 0;
	id = g->definition.id;
	strlcpy(name, g->definition.name, NAMEDATALEN);
	dt_group_unlock(g);
	return id;
}

/* As the reset value, too: the statement's RESET ALL does not lead out of it. */
static void
set_group(const char *name)
{
	(void) set_config_option("dirty_throttle.group", name, PGC_SUSET, PGC_S_OVERRIDE,
							 GUC_ACTION_SET, true, ERROR, false);
	(void) dt_session_begin_statement();
}

bool
dt_work_find_group(int64 group_id, char name[NAMEDATALEN])
{
	name[0] = '\0';
	if (group_id == 0)
		return false;
	dt_load();
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups; i++)
		if (dt_groups[i].id != 0 && dt_groups[i].definition.id == group_id)
			strlcpy(name, dt_groups[i].definition.name, NAMEDATALEN);
	LWLockRelease(dt_shared->registry_lock);
	return name[0] != '\0';
}

bool
dt_work_join(int64 group_id)
{
	char		name[NAMEDATALEN];

	if (!dt_work_find_group(group_id, name) && group_id != 0)
		return false;
	set_group(name);
	return true;
}

void
dt_work_leave(void)
{
	set_group("");
	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	dt_account_leave();
	LWLockRelease(dt_shared->registry_lock);
}

void
dt_work_pay_before(void)
{
	(void) dt_session_begin_statement();
	dt_pay_begin(DT_WRITES, false);
}

void
dt_work_commit_and_wait(void)
{
	PG_TRY();
	{
		dt_activity_waits = true;
		SPI_commit();
	}
	PG_FINALLY();
	{
		dt_activity_waits = false;
	}
	PG_END_TRY();
	dt_phase_note(DT_READS);
}

int64
dt_work_without_pause(DtResource resource)
{
	return dt_account_without_pause(resource);
}

int64
dt_work_used(DtResource resource)
{
	return dt_account_counter(resource);
}

int64
dt_work_paused_us(void)
{
	return dt_account_paused_us();
}

bool
dt_work_is_pausing(void)
{
	return dt_member_mine()->pause.group != NULL;
}

bool
dt_work_is_suspended(int pid)
{
	bool		is_suspended = false;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_members; i++)
	{
		DtGroup    *g = dt_members[i].group;

		if (g != NULL && dt_members[i].pid == pid)
			is_suspended = g->suspended_since != 0;
	}
	LWLockRelease(dt_shared->registry_lock);
	return is_suspended;
}
