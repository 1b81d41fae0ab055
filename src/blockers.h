/*-------------------------------------------------------------------------
 *
 * blockers.h
 *		Has somebody waited too long for a member that pauses?
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_BLOCKERS_H
#define DT_BLOCKERS_H

/* After how long to look again, us; forever, when nobody wants to know. */
extern int64 dt_blockers_interval(void);

/*
 * Has a process outside our group waited for dirty_throttle.max_blocking_time,
 * or with "already" for any time, for a heavyweight lock that we hold, or our
 * parallel leader?
 */
extern bool dt_blockers_waiting(bool already);

#endif							/* DT_BLOCKERS_H */
