/*-------------------------------------------------------------------------
 *
 * reports.c
 *		Signals that are reported by whoever knows them.
 *
 * Reports are in shared memory only, in a fixed number of places.  A value
 * counts until it is as old as whoever reported it said, then for as long as
 * that of any stale signal.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pressure/signals.h"

/* Somebody else may have reported it since "now". */
static bool
counts(const DtReport *report, int64 now)
{
	return report->name[0] != '\0' &&
		dt_signal_state(report->at, report->ttl_us,
						Max(now, report->at)) != DT_SIGNAL_ABSENT;
}

/*
 * Take a report in, instead of that of the same name, of one that no longer
 * counts, or of the one with the other name.
 */
static bool
place(const DtReport *report, const char *other)
{
	DtReport   *reports = dt_shared->sampled.reports;
	DtReport   *to = NULL;

	dt_spin_lock(&dt_shared->sampled.lock);
	for (int i = 0; i < DT_REPORTS; i++)
	{
		if (strcmp(reports[i].name, report->name) == 0)
		{
			to = &reports[i];
			break;
		}
		if (to == NULL && (!counts(&reports[i], report->at) ||
						   strcmp(reports[i].name, other) == 0))
			to = &reports[i];
	}
	if (to != NULL)
		*to = *report;
	dt_spin_unlock(&dt_shared->sampled.lock);
	return to != NULL;
}

/* Does a group follow what is reported under this name? */
static bool
is_followed(const char *name)
{
	bool		found = false;

	LWLockAcquire(dt_shared->registry_lock, LW_SHARED);
	for (int i = 0; i < dt_shared->n_groups && !found; i++)
		found = dt_groups[i].id != 0 &&
			strcmp(dt_groups[i].definition.reported, name) == 0;
	LWLockRelease(dt_shared->registry_lock);
	return found;
}

/*
 * Take a report in.  When all places are taken, one that a group follows gets
 * that of one that none follows.  False: there is no room.
 */
bool
dt_report(const DtReport *report)
{
	DtReport	reports[DT_REPORTS];
	int			n;

	if (place(report, ""))
		return true;
	n = is_followed(report->name) ? dt_reports(reports) : 0;
	while (--n >= 0)
		if (!is_followed(reports[n].name) && place(report, reports[n].name))
			return true;
	return false;
}

/* Copies of all there are, also of those that do not count any more. */
int
dt_reports(DtReport *reports)
{
	int			n = 0;

	dt_spin_lock(&dt_shared->sampled.lock);
	for (int i = 0; i < DT_REPORTS; i++)
		if (dt_shared->sampled.reports[i].name[0] != '\0')
			reports[n++] = dt_shared->sampled.reports[i];
	dt_spin_unlock(&dt_shared->sampled.lock);
	return n;
}

/* Look at what is reported under this name. */
DtLook
dt_look_report(const char *name, DtFound *found)
{
	DtReport	reports[DT_REPORTS];

	for (int i = dt_reports(reports) - 1; i >= 0; i--)
		if (strcmp(reports[i].name, name) == 0)
			return counts(&reports[i], found->at) ? DT_LOOK_MEASURED :
				dt_no_look(found, DT_LOOK_NOTHING,
						   _("Its last report is too old to count."));
	return dt_no_look(found, DT_LOOK_NOTHING, _("There is no report of it."));
}
