/*-------------------------------------------------------------------------
 *
 * reports.h
 *		Signals that are reported by whoever knows them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_REPORTS_H
#define DT_REPORTS_H

#include "shared/shmem.h"

extern bool dt_report(const DtReport *report);
extern int	dt_reports(DtReport *reports);
extern DtSignalState dt_report_state(const DtReport *report, int64 now);

#endif							/* DT_REPORTS_H */
