/*-------------------------------------------------------------------------
 *
 * work.h
 *		For work that is cut into transactions: all that src/batch knows of the
 *		throttle.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_WORK_H
#define DT_WORK_H

#include "engine/resource.h"

/*
 * The ID and name of the group of this process; 0: it is in none.  The ID is that of the
 * definition, which a restart, a failover or another scope does not change.
 */
extern int64 dt_work_group(char name[NAMEDATALEN]);

/* The name of a group; false: there is none of that ID. */
extern bool dt_work_find_group(int64 group_id, char name[NAMEDATALEN]);

/*
 * Join a group, whoever may, or with 0 none.  False: there is no such group.  In a
 * transaction.
 */
extern bool dt_work_join(int64 group_id);

/* Leave it, whoever has put this process there, and pay nothing. */
extern void dt_work_leave(void);

/*
 * In a transaction that holds nothing yet: pay what is owed.  ERROR by a cancel.
 */
extern void dt_work_pay_before(void);

/*
 * Commit in a procedure that goes on with nothing but waiting for another process.  It
 * does not pause, or it could not report: what it owes is paid later, before the next
 * statement that writes.
 */
extern void dt_work_commit_and_wait(void);

/*
 * How many bytes of a resource can a transaction use without a pause in flight?  0:
 * as many as it wants.  And how many has this process used?
 */
extern int64 dt_work_without_pause(DtResource resource);
extern int64 dt_work_used(DtResource resource);

/* For how long has this process paused since it has joined its group, us? */
extern int64 dt_work_paused_us(void);

/* Does this process pause just now?  May be called in a signal handler. */
extern bool dt_work_is_pausing(void);

/* Is the group suspended that the process with this ID is in? */
extern bool dt_work_is_suspended(int pid);

#endif							/* DT_WORK_H */
