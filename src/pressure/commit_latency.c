/*-------------------------------------------------------------------------
 *
 * commit_latency.c
 *		Signal commit_latency: how long commits of outsiders take.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pressure/signals.h"
#include "shared/commits.h"

DtLook
dt_look_commit_latency(DtFound *found)
{
	dt_commits_sum(&found->value, &found->other, &found->waiting);
	return DT_LOOK_MEASURED;
}
