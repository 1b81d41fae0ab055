/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *		What the fuzzers of the engine make of their input, and where they get
 *		one from without libFuzzer.
 *
 *-------------------------------------------------------------------------
 */
#ifndef FUZZ_H
#define FUZZ_H

#include <stddef.h>
#include <stdint.h>

typedef struct Input
{
	const uint8_t *data;
	size_t		size;
} Input;

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t
next_byte(Input *in)
{
	if (in->size == 0)
		return 0;
	in->size--;
	return *in->data++;
}

/*
 * A number of any magnitude from three bytes: 0 .. 255 shifted by up to 55
 * bits, give or take the third; sometimes a limit of the type.
 */
static int64_t
next_number(Input *in)
{
	uint64_t	mantissa = next_byte(in);
	unsigned int shift = next_byte(in);
	int64_t		offset = (int8_t) next_byte(in);

	if (shift >= 0xF0)
		return shift & 1 ? INT64_MIN : INT64_MAX;
	return (int64_t) (mantissa << (shift % 56)) + offset;
}

/* The state of random_byte(), which must not be 0, from any number. */
static inline uint64_t
random_state(uint64_t seed)
{
	return seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static inline uint8_t
random_byte(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return (uint8_t) (*state * UINT64_C(0x2545F4914F6CDD1D) >> 56);
}

#endif							/* FUZZ_H */
