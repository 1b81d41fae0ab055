/*-------------------------------------------------------------------------
 *
 * role_debt.h
 *		What those who have left a group still owe there, by role.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ROLE_DEBT_H
#define DT_ROLE_DEBT_H

#include "shared/shmem.h"

/*
 * What only reads may use at most this much within a minute before it pauses in flight, in
 * bytes of one resource.  To set hint bits in the pages that a health check
 * reads takes less.
 */
#define DT_READING_FREE		(64 * (int64) BLCKSZ)

/* Is the group suspended as it was when a session has slipped?  0: none has. */
static inline bool
dt_slips_suspension(const DtGroup *g, TimestampTz slipped_in)
{
	return slipped_in != 0 && slipped_in == g->suspended_since;
}

static inline void
dt_reading_add(DtReading *reading, int64 bytes, int64 wal, int64 now)
{
	if (now - reading->since > 60 * USECS_PER_SEC)
	{
		reading->since = now;
		reading->bytes = reading->wal = 0;
	}
	reading->bytes += bytes;
	reading->wal += wal;
}

/*
 * A member leaves, and one joins, which takes over what it is to know of how that was
 * used, too: it slips if a part was used without having passed the gate, or in the
 * suspension that goes on.
 */
extern void dt_role_debt_leave(DtGroup *g, DtMember *member, int64 now);
extern void dt_role_debt_take_over(DtGroup *g, DtMember *member, int64 now);

/*
 * Is no account free, so that those of all groups that have repaid should be ended?
 * It is not said again within a second.  The caller holds no group's lock.
 */
extern bool dt_role_debt_is_short(int64 now);
extern void dt_role_debt_end_repaid(DtGroup *g, int64 now);
extern void dt_role_debt_forget_all(DtGroup *g, int64 now);

#endif							/* DT_ROLE_DEBT_H */
