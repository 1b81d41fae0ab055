/*-------------------------------------------------------------------------
 *
 * readings.h
 *		Readings of signals that a test makes up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEST_READINGS_H
#define DT_TEST_READINGS_H

#include "engine/control.h"
#include "storage/spin.h"

/* The clock starts here, which is no special value. */
#define DT_TEST_START_US	INT64CONST(1000000000)

/* What a look at a signal finds. */
typedef enum DtTestLook
{
	DT_TEST_REAL,				/* what there is */
	DT_TEST_MEASURED,
	DT_TEST_NEARER,				/* measured, and comes nearer */
	DT_TEST_NOTHING,
	DT_TEST_FAILED
} DtTestLook;

typedef struct DtTestReading
{
	DtTestLook	look;
	int64		value;			/* as of "at" */
	int64		other;			/* see dt_test_reading() */
	int64		at;
	int64		entered;		/* the queue until then, bytes */
} DtTestReading;

/* What all groups together have used of a resource, and others. */
typedef struct DtTestPosition
{
	int64		bytes;
	int64		in_groups;		/* the sum of their counters then */
	int64		others;			/* bytes/s */
	int64		at;
} DtTestPosition;

/* In shared memory, zeroed at first. */
typedef struct DtTestReadings
{
	slock_t		lock;
	DtTestReading of[DT_SIGNALS];
	DtTestPosition position[DT_RESOURCES];
} DtTestReadings;

extern DtTestReadings *dt_test_readings(void);

#endif							/* DT_TEST_READINGS_H */
