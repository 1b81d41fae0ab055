/*-------------------------------------------------------------------------
 *
 * random.h
 *		Pseudo-random numbers for the unit tests, which a seed repeats.
 *
 *-------------------------------------------------------------------------
 */
#ifndef RANDOM_H
#define RANDOM_H

#include <stdint.h>

static uint64_t rng_state;

static inline void
seed_rng(uint64_t seed)
{
	rng_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static inline uint64_t
rng(void)
{
	rng_state ^= rng_state >> 12;
	rng_state ^= rng_state << 25;
	rng_state ^= rng_state >> 27;
	return rng_state * UINT64_C(0x2545F4914F6CDD1D);
}

/* 0 <= x < 1 */
static inline double
rng_double(void)
{
	return (double) (rng() >> 11) / 9007199254740992.0;
}

/* low .. high */
static inline int64_t
rng_range(int64_t low, int64_t high)
{
	return low + (int64_t) (rng() % (uint64_t) (high - low + 1));
}

/* 0 .. 2^bits, all orders of magnitude alike */
static inline int64_t
rng_log(int bits)
{
	int64_t		order = rng_range(0, bits);

	return (int64_t) (rng() >> 1 >> (63 - order));
}

#endif							/* RANDOM_H */
