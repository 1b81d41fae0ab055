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

#include "engine/control.h"

/* The reason why a signal is unavailable has fewer bytes than this. */
#define DT_REASON_SIZE	200

#define DT_WEIGHT_MAX			1000000 /* in thousandths */
#define DT_ALLOWANCE_MAX		INT64CONST(1000000000000)	/* bytes */

/* The first signals are about standbys, of which some may be named. */
#define DT_STANDBY_SIGNALS	(DT_FLUSH_LAG + 1)
#define DT_STANDBYS_SIZE	128

/* At what value of a signal a group is under pressure. */
typedef struct DtThreshold
{
	int64		value;
	int64		unit;			/* a DtUnit */
	int64		ignore;			/* so many of the worst standbys do not count */
} DtThreshold;

/* For whom the limits of a group hold, each for itself. */
typedef enum DtScope
{
	DT_SCOPE_GROUP,				/* all of its members together */
	DT_SCOPE_ROLE,				/* those that have logged in as one role */
	DT_SCOPE_DATABASE			/* those in one database */
} DtScope;

typedef struct DtDefinition
{
	int64		id;				/* by which a renamed group is known; 0: none */
	char		name[NAMEDATALEN];	/* zero-padded */
	int64		rate[DT_RESOURCES]; /* limits, bytes/s; 0 = no limit */
	int64		burst_us;
	int64		observe;		/* 1: mode observe; 0: mode enforce */
	int64		scope;			/* a DtScope */
	int64		floor;			/* no rate is less than this by pressure,
								 * bytes/s */
	int64		weight;			/* of its share of what signals leave, in
								 * thousandths */
	int64		allowance;		/* this many bytes of each transaction, of
								 * each resource, are not owed */
	DtThreshold threshold[DT_SIGNALS];
	char		standbys[DT_STANDBY_SIGNALS][DT_STANDBYS_SIZE]; /* zero-padded lists of
																 * those that count;
																 * empty: all */
	char		reported[NAMEDATALEN];	/* DT_REPORTED: its name, zero-padded */
} DtDefinition;

/* Does the group follow this signal, or any? */
static inline bool
dt_definition_follows(const DtDefinition *d, DtSignal signal)
{
	return d->threshold[signal].unit != DT_UNIT_UNUSED;
}

/* The name of a signal that it follows. */
static inline const char *
dt_definition_signal_name(const DtDefinition *d, DtSignal signal)
{
	return signal == DT_REPORTED ? d->reported : dt_signals[signal].name;
}

static inline bool
dt_definition_follows_any(const DtDefinition *d)
{
	for (int s = 0; s < DT_SIGNALS; s++)
		if (dt_definition_follows(d, s))
			return true;
	return false;
}

/*
 * Is this the group of that definition, which may be new, or renamed since?  Without
 * an ID its text was written by hand.
 */
static inline bool
dt_definition_is_of(const DtDefinition *d, const DtDefinition *in_force)
{
	return d->id != 0 && in_force->id != 0 ? d->id == in_force->id :
		strcmp(d->name, in_force->name) == 0;
}

#endif							/* DT_DEFINITION_H */
