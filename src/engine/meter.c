/*-------------------------------------------------------------------------
 *
 * meter.c
 *		How fast something was used over the last seconds.
 *
 * Time is cut into buckets of half a second; a ring keeps the newest ones.
 * The rate is what the ring holds divided by the time it covers, so a steady
 * use is shown exactly and a change has fully arrived after 5.5 seconds.
 *
 *-------------------------------------------------------------------------
 */
#include "engine/meter.h"

#include <string.h>

/* Make the bucket of time "now" the newest one, and empty those in between. */
static void
advance_ring(DtMeter *m, int64_t now)
{
	int64_t		bucket = now / DT_METER_BUCKET_US;

	if (bucket - m->newest >= DT_METER_BUCKETS)
	{
		memset(m->bytes, 0, sizeof(m->bytes));
		m->newest = bucket;
	}
	while (m->newest < bucket)
		m->bytes[++m->newest % DT_METER_BUCKETS] = 0;
}

void
dt_meter_reset(DtMeter *m, int64_t now)
{
	memset(m, 0, sizeof(*m));
	m->started = now;
	m->newest = now / DT_METER_BUCKET_US;
}

void
dt_meter_add(DtMeter *m, int64_t bytes, int64_t now)
{
	advance_ring(m, now);
	m->bytes[m->newest % DT_METER_BUCKETS] += bytes;
}

double
dt_meter_rate(DtMeter *m, int64_t now)
{
	int64_t		from;
	double		sum = 0;

	advance_ring(m, now);
	from = (m->newest - (DT_METER_BUCKETS - 1)) * DT_METER_BUCKET_US;
	if (from < m->started)
		from = m->started;
	if (now <= from)
		return 0;
	for (int i = 0; i < DT_METER_BUCKETS; i++)
		sum += m->bytes[i];

	/* a single early charge is not a rate: count at least one bucket's time */
	if (now - from < DT_METER_BUCKET_US)
		return sum * 1e6 / DT_METER_BUCKET_US;
	return sum * 1e6 / (now - from);
}
