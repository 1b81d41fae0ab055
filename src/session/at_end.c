/*-------------------------------------------------------------------------
 *
 * at_end.c
 *		The callback at the end of a transaction, while it is needed.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "session/activity.h"
#include "session/at_end.h"
#include "session/phase.h"

bool		dt_at_end_needed = true;

static ResourceReleaseCallback at_end;

void
dt_at_end_toggle(void)
{
	if (dt_at_end_needed &&
		(dt_process() != DT_SESSION || dt_xact.phase != DT_OUT))
		return;
	dt_at_end_needed = !dt_at_end_needed;
	if (dt_at_end_needed)
		RegisterResourceReleaseCallback(at_end, NULL);
	else
		UnregisterResourceReleaseCallback(at_end, NULL);
}

void
dt_at_end_init(ResourceReleaseCallback callback)
{
	at_end = callback;
	RegisterResourceReleaseCallback(at_end, NULL);
}
