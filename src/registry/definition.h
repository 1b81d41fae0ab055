/*-------------------------------------------------------------------------
 *
 * definition.h
 *		What is defined of a group: its limits, properties and thresholds.
 *
 * All that a definition consists of is in DtDefinition, in the units of the
 * comments there, and zeroed where nothing is set.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEFINITION_H
#define DT_DEFINITION_H

#include "engine/pressure.h"
#include "engine/resource.h"

/* Room for the reason why a signal is not to be had. */
#define DT_REASON_SIZE	200

/* The unit of a threshold. */
typedef enum DtUnit
{
	DT_UNIT_UNUSED,				/* the group does not follow the signal */
	DT_UNIT_NONE,				/* it does, but the signal has no threshold */
	DT_UNIT_US,					/* microseconds */
	DT_UNIT_BYTES,
	DT_UNIT_SHARE				/* 1e-6 of the whole; written in percent */
} DtUnit;

/* At what value of a signal a group is under pressure. */
typedef struct DtThreshold
{
	int64		value;
	int32		unit;			/* a DtUnit */
	int32		ignore;			/* so many of the worst standbys do not count */
} DtThreshold;

typedef struct DtDefinition
{
	int64		id;				/* by which a renamed group is known; 0: none */
	char		name[NAMEDATALEN];	/* zero-padded */
	int64		rate[DT_RESOURCES]; /* limits, bytes/s; 0 = no limit */
	int64		burst_us;
	int64		observe;		/* 1: mode observe; 0: mode enforce */
	int64		floor;			/* no rate is less than this by pressure,
								 * bytes/s */
	DtThreshold threshold[DT_SIGNALS];
} DtDefinition;

/* In text.c. */
extern const char *dt_signal_name(DtSignal signal);

/* Does the group follow this signal, or any? */
static inline bool
dt_definition_follows(const DtDefinition *d, DtSignal signal)
{
	return d->threshold[signal].unit != DT_UNIT_UNUSED;
}

static inline bool
dt_definition_follows_any(const DtDefinition *d)
{
	int			s;

	for (s = 0; s < DT_SIGNALS; s++)
		if (dt_definition_follows(d, (DtSignal) s))
			return true;
	return false;
}

#endif							/* DT_DEFINITION_H */
