/*-------------------------------------------------------------------------
 *
 * definition.h
 *		What is defined of a group: its limits, properties and thresholds.
 *
 * All that a definition consists of is in DtDefinition, in the units of the
 * comments there.  It is kept in the definitions file as it is in memory, and
 * zeroed where nothing is set.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_DEFINITION_H
#define DT_DEFINITION_H

#include "engine/pressure.h"
#include "engine/resource.h"

/* Room for the reason why a signal is not to be had. */
#define DT_REASON_SIZE	200

/* The unit of a threshold.  These numbers are in the definitions file. */
typedef enum DtUnit
{
	DT_UNIT_UNUSED = 0,			/* the group does not follow the signal */
	DT_UNIT_NONE = 1,			/* it does, but the signal has no threshold */
	DT_UNIT_US = 2,				/* microseconds */
	DT_UNIT_BYTES = 3,
	DT_UNIT_SHARE = 4			/* 1e-6 of the whole; written in percent */
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
	uint64		id;				/* the same on the standbys; see DtGroup.id */
	char		name[NAMEDATALEN];	/* zero-padded */
	int64		rate[DT_RESOURCES]; /* limits, bytes/s; 0 = no limit */
	int64		burst_us;
	int64		observe;		/* 1: mode observe; 0: mode enforce */
	int64		floor;			/* no rate is less than this by pressure,
								 * bytes/s */
	DtThreshold threshold[DT_SIGNALS];
} DtDefinition;

/* Of a group that has just been created; without limits. */
extern void dt_definition_init(DtDefinition *d, const char *name);

/* What is out of range, for a message, palloc'd; NULL: nothing is. */
extern const char *dt_definition_find_invalid(const DtDefinition *d);

/* Does the group follow this signal, or any? */
static inline bool
dt_definition_follows(const DtDefinition *d, DtSignal signal)
{
	return d->threshold[signal].unit != DT_UNIT_UNUSED;
}

extern bool dt_definition_follows_any(const DtDefinition *d);

/* The name of a signal, and the signal of that name; ERROR when it is none. */
extern const char *dt_signal_name(DtSignal signal);
extern DtSignal dt_signal_of_name(const char *name);

/* The unit of its values, in which engine/pressure.h has them. */
extern DtUnit dt_signal_unit(DtSignal signal);

/*
 * A threshold as users write it: a number with a unit; NULL for a signal that
 * has none.  ERROR when it does not fit the signal.  dt_threshold_text() is
 * the reverse: palloc'd, or NULL.
 */
extern DtThreshold dt_threshold_parse(DtSignal signal, const char *value,
									  int32 ignore);
extern char *dt_threshold_text(const DtThreshold *threshold);

#endif							/* DT_DEFINITION_H */
