/*-------------------------------------------------------------------------
 *
 * look.h
 *		Look at all who wait, and mark the members that are in their way.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_LOOK_H
#define DT_LOOK_H

extern bool dt_look(void);

/* How long ago was the last look, us? */
extern int64 dt_look_age(void);

#endif							/* DT_LOOK_H */
