/*-------------------------------------------------------------------------
 *
 * live.h
 *		Charging while a command runs.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LIVE_H
#define DT_LIVE_H

/* From now on, charge this member ten times a second; until stopped. */
extern void dt_live_start(void);
extern void dt_live_stop(void);

#endif							/* DT_LIVE_H */
