/*-------------------------------------------------------------------------
 *
 * signal.c
 *		The table of the signals that limits can follow.
 *
 * src/README.md says what else a new signal needs.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/signal.h"

#define SECOND_US	INT64_C(1000000)
#define MB			INT64_C(1000000)
#define TB			(1000000 * MB)

/* The unit of thresholds, their range, and whether they may be a share. */
#define TIMES		DT_UNIT_US, SECOND_US, 86400 * SECOND_US, false
#define LATENCIES	DT_UNIT_US, SECOND_US / 10000, 10 * SECOND_US, true
#define AMOUNTS		DT_UNIT_BYTES, MB, 1000 * TB, false
#define SHARES		DT_UNIT_SHARE, 1, 1000000, false
#define NONE		DT_UNIT_NONE, 0, 0, false

const DtSignalKind dt_signals[DT_SIGNALS] = {
	[DT_REPLICA_LAG] = {"replica_lag", DT_WAL, DT_LAW_QUEUE, DT_UNIT_US, TIMES,
		"The threshold is a time from 1s to 1d: how far the replay of the slowest standby may be behind.",
	"2s"},
	[DT_SLOT_LAG] = {"slot_lag", DT_WAL, DT_LAW_QUEUE, DT_UNIT_BYTES, AMOUNTS,
		"The threshold is an amount of WAL from 1MB to 1000TB: how far the slowest consumer of a replication slot may be behind.",
	"10GB"},
	[DT_ARCHIVE_LAG] = {"archive_lag", DT_WAL, DT_LAW_QUEUE, DT_UNIT_BYTES, AMOUNTS,
		"The threshold is an amount of WAL from 1MB to 1000TB: how much may wait to be archived.",
	"1GB"},
	[DT_CHECKPOINT] = {"checkpoint", DT_WAL, DT_LAW_BUDGET, DT_UNIT_BYTES, NONE,
		"The limit follows from max_wal_size and checkpoint_timeout.",
	""},
	[DT_WAL_RATE] = {"wal_rate", DT_WAL, DT_LAW_RATE, DT_UNIT_RATE, AMOUNTS,
		"The threshold is an amount of WAL from 1MB to 1000TB: how much the whole server may write in a second.",
	"50MB"},
	[DT_DISK_FREE] = {"disk_free", DT_WAL, DT_LAW_RESERVE, DT_UNIT_BYTES,
		DT_UNIT_BYTES, MB, 1000 * TB, true,
		"The threshold is an amount from 1MB to 1000TB, or a percentage, more than 0 and up to 100: how much of the file system of pg_wal must stay free.",
	"20GB"},
	[DT_KERNEL_DIRTY] = {"kernel_dirty", DT_DIRTY, DT_LAW_LEVEL, DT_UNIT_BYTES, AMOUNTS,
		"The threshold is an amount of memory from 1MB to 1000TB: how much the kernel may still have to write.",
	"500MB"},
	[DT_IO_PRESSURE] = {"io_pressure", DT_DIRTY, DT_LAW_BRAKE, DT_UNIT_SHARE, SHARES,
		"The threshold is a percentage of the time, more than 0 and up to 100: for how much of it some process may wait for I/O.",
	"20%"},
	[DT_COMMIT_LATENCY] = {"commit_latency", DT_WAL, DT_LAW_DROOP, DT_UNIT_US, LATENCIES,
		"The threshold is a time from 0.1ms to 10s, or a percentage from 1 to 1000: how long nine of ten commits of others may take at most, or how much longer than without the groups that follow the signal.",
	"50%"},
	[DT_REPORTED] = {"reported", DT_WAL, DT_LAW_BRAKE, DT_UNIT_NUMBER, NONE,
		"The threshold of a signal that is reported is 1.",
	""}
};
