/*-------------------------------------------------------------------------
 *
 * arith.h
 *		Arithmetic that does not overflow.
 *
 *-------------------------------------------------------------------------
 */
#ifndef DT_ARITH_H
#define DT_ARITH_H

#include <stdint.h>

static inline int64_t
min64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static inline int64_t
max64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* low .. high */
static inline int64_t
clamp64(int64_t a, int64_t low, int64_t high)
{
	return max64(low, min64(a, high));
}

/* A clock value that can be calculated with, and is not 0. */
static inline int64_t
clock64(int64_t now)
{
	return clamp64(now, 1, INT64_MAX / 2);
}

/* a * b / c, for c > 0, or the limit of the type */
static inline int64_t
muldiv64(int64_t a, int64_t b, int64_t c)
{
	double		result = (double) a * (double) b / (double) c;

	if (result >= 9.2e18)
		return INT64_MAX;
	if (result <= -9.2e18)
		return INT64_MIN;
	return (int64_t) result;
}

/* Positions wrap around; only their difference means anything. */
static inline int64_t
add64(int64_t position, int64_t bytes)
{
	return (int64_t) ((uint64_t) position + (uint64_t) bytes);
}

/* How far a counter went, which may have been reset. */
static inline int64_t
advanced(int64_t from, int64_t to)
{
	return max64((int64_t) ((uint64_t) to - (uint64_t) from), 0);
}

/* The mean of rates over a window of time: dt later there is a new one. */
static inline int64_t
mean64(int64_t mean, int64_t rate, int64_t dt, int64_t window)
{
	return dt >= window ? rate : mean + muldiv64(rate - mean, dt, window);
}

#endif							/* DT_ARITH_H */
