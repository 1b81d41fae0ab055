/*
 * Records commits of the session that loads this, as the signal commit_latency has them:
 * when each ended, and how long after the writing of its commit record.
 *
 * bench/trace.py builds it, and has the load's sessions load it with
 * session_preload_libraries.  Each writes to a file of its own in the data directory:
 * pairs of 64 bits, us since 2000 and us.
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/timestamp.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

static int64 records[16384][2];
static int	n_records;
static bool is_written;

static void
write_records(int code, Datum arg)
{
	char		path[64];
	FILE	   *file;

	snprintf(path, sizeof(path), "commit_trace.%d", MyProcPid);
	file = fopen(path, "ab");
	if (file != NULL)
	{
		fwrite(records, sizeof(records[0]), n_records, file);
		fclose(file);
	}
	n_records = 0;
}

static void
transaction_event(XactEvent event, void *arg)
{
	TimestampTz now;

	if (event == XACT_EVENT_PRE_COMMIT)
		is_written = XactLastRecEnd != 0 &&
			TransactionIdIsValid(GetTopTransactionIdIfAny());
	if (event != XACT_EVENT_COMMIT || !is_written)
		return;
	now = GetCurrentTimestamp();
	records[n_records][0] = now;
	records[n_records][1] = now - GetCurrentTransactionStopTimestamp();
	if (++n_records == lengthof(records))
		write_records(0, 0);
}

void
_PG_init(void)
{
	RegisterXactCallback(transaction_event, NULL);
	before_shmem_exit(write_records, 0);
}
