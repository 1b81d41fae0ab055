/*-------------------------------------------------------------------------
 *
 * reports.c
 *		Signals that are reported by whoever knows them.
 *
 * A report is in shared memory only.  Its value counts until it is as old as
 * whoever reported it said, then for as long as that of any stale signal.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "pressure/reports.h"
#include "pressure/signals.h"

static bool
counts(const DtReport *report, int64 now)
{
	return report->name[0] != '\0' &&
		now - report->at <= report->ttl_us + DT_STALE_COUNTS_US;
}

/*
 * Take a report in.  One that no longer counts makes room; false: there is
 * none.
 */
bool
dt_report(const DtReport *report)
{
	DtReport   *reports = dt_shared->sampled.reports;
	DtReport   *place = NULL;

	dt_spin_lock(&dt_shared->sampled.lock);
	for (int i = 0; i < DT_REPORTS; i++)
	{
		if (strcmp(reports[i].name, report->name) == 0)
		{
			place = &reports[i];
			break;
		}
		if (place == NULL && !counts(&reports[i], report->at))
			place = &reports[i];
	}
	if (place != NULL)
		*place = *report;
	dt_spin_unlock(&dt_shared->sampled.lock);
	return place != NULL;
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

DtSignalState
dt_report_state(const DtReport *report, int64 now)
{
	return !counts(report, now) ? DT_SIGNAL_ABSENT :
		now - report->at > report->ttl_us ? DT_SIGNAL_STALE : DT_SIGNAL_FRESH;
}

/* The highest that counts. */
DtLook
dt_look_reported(DtFound *found)
{
	DtReport	reports[DT_REPORTS];
	int			n = dt_reports(reports);
	bool		any = false;

	for (int i = 0; i < n; i++)
	{
		if (!counts(&reports[i], found->at))
			continue;
		found->value = Max(found->value, reports[i].value);
		any = true;
	}
	return any ? DT_LOOK_MEASURED :
		dt_no_look(found, DT_LOOK_NOTHING, _("There is no report that counts."));
}
