/*-------------------------------------------------------------------------
 *
 * readings.h
 *		Readings of signals that a test makes up.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_TEST_READINGS_H
#define DT_TEST_READINGS_H

#include "engine/pressure.h"
#include "storage/spin.h"

/* What a look at a signal finds. */
typedef enum DtTestLook
{
	DT_TEST_REAL,				/* what there is */
	DT_TEST_MEASURED,
	DT_TEST_NOTHING,
	DT_TEST_FAILED
} DtTestLook;

typedef struct DtTestReading
{
	DtTestLook	look;
	int64		value;			/* when it was set */
	int64		other;			/* see dt_test_reading() */
	int64		set_at;
	int64		used;			/* what had entered the queue then, bytes */
} DtTestReading;

/* In shared memory, zeroed at first; the last one is the kernel's limit. */
typedef struct DtTestReadings
{
	slock_t		lock;
	DtTestReading of[DT_SIGNALS + 1];
} DtTestReadings;

#define DT_TEST_KERNEL_LIMIT	DT_SIGNALS

extern DtTestReadings *dt_test_readings(void);

#endif							/* DT_TEST_READINGS_H */
