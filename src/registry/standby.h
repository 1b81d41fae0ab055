/*-------------------------------------------------------------------------
 *
 * standby.h
 *		A standby that follows its primary has no definitions of its own.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_STANDBY_H
#define DT_STANDBY_H

/* Parameter: whom to ask instead of the server that WAL is received from. */
extern char *dt_primary_conninfo;

/* Assign hook of dirty_throttle.follow_primary. */
extern void dt_assign_follow_primary(bool newval, void *extra);

/* The connection string to ask with, or NULL. */
extern const char *dt_standby_conninfo(void);

/*
 * Is this server a standby, in recovery still, that takes its definitions from
 * another server?
 */
extern bool dt_standby_follows(void);

/* ERROR if it is: the definitions cannot be changed here. */
extern void dt_standby_refuse_change(void);

#endif							/* DT_STANDBY_H */
