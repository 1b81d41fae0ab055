/*-------------------------------------------------------------------------
 *
 * line_fuzz.c
 *		Fuzzer for the reader of the line that definitions travel in.
 *
 * The input is a line.  Whatever it is, reading it must end without an error
 * of a sanitizer; what it says is wrong is printable; and what has been read
 * is read again as the same when it is written.  With libFuzzer:
 *
 *	clang -DDT_LIBFUZZER -fsanitize=fuzzer,address,undefined -Isrc \
 *		-Itest/unit test/unit/line_fuzz.c src/follow/line.c
 *
 * Without, main() changes good lines at random: line_fuzz [SEED [COUNT]].
 * A failure aborts, so that any fuzzer and sanitizer sees it.
 *
 *-------------------------------------------------------------------------
 */
#include "line_check.h"

#include <stdio.h>

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The fuzzer would never find one that fits. */
static uint32
no_sum(const char *data, size_t size)
{
	return 0;
}

static void
fail(const char *problem)
{
	printf("not ok 1 - %s\n1..1\n", problem);
	fflush(stdout);
	abort();
}

static int
compare_groups(const void *a, const void *b)
{
	return strcmp(((const DtDefinition *) a)->name,
				  ((const DtDefinition *) b)->name);
}

static int
compare_grants(const void *a, const void *b)
{
	return strcmp(((const DtGrant *) a)->group_name,
				  ((const DtGrant *) b)->group_name);
}

static bool
has_twins(const DtDefinitions *d)
{
	int			i;

	for (i = 1; i < d->n_groups; i++)
		if (compare_groups(&d->groups[i - 1], &d->groups[i]) == 0)
			return true;
	return false;
}

/* What was read: can it be written, and read again? */
static void
check_again(DtDefinitions *d)
{
	DtLineReader reader;
	DtDefinitions back;
	char	   *line;
	size_t		size;

	qsort(d->groups, d->n_groups, sizeof(DtDefinition), compare_groups);
	qsort(d->grants, d->n_grants, sizeof(DtGrant), compare_grants);
	if (has_twins(d))
		return;					/* refused later */
	line = malloc(dt_line_bound(d));
	size = dt_line_write(line, d, 1, sum);
	if (size >= dt_line_bound(d))
		fail("longer than its bound");
	if (!read_line(&reader, line, size, sum, &back) || !same(d, &back))
		fail("it is not the same again");
	release(&back);
	free(line);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* a copy of exactly this size, so that a sanitizer sees more */
	char	   *line = malloc(size > 0 ? size : 1);
	DtLineReader reader;
	DtDefinitions d;
	const char *p;

	memcpy(line, data, size);
	if (read_line(&reader, line, size, no_sum, &d))
		check_again(&d);
	else
	{
		if (reader.problem[0] == '\0')
			fail("no problem is told");
		for (p = reader.problem; *p != '\0'; p++)
			if (*p < ' ' || *p > '~')
				fail("the problem is not printable");
	}
	release(&d);
	free(line);
	return 0;
}

#ifndef DT_LIBFUZZER

static uint64_t state;

static uint64_t
rng(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

static const char *const words[] = {
	"dirty_throttle ", "1.0", "1.9", " system=", " timeline=", " change=",
	" complete=1", " groups=", " grants=", " group=", " grant=", " id=",
	" dirty_rate=", " wal_rate=", " burst=", " observe=", " floor=",
	" replica_lag=", " replica_lag_unit=", " replica_lag_ignore=",
	" io_pressure_unit=", " new_key=", " checksum=00000000", "%", "%C3", "%00",
	"0", "1", "2", "9223372036854775807", "9223372036854775808",
	"18446744073709551615", "4294967295", "-", "a", " ", "=", "\n", "\377",
	"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
};

/* A good line, then changed, so that much of it is still understood. */
static size_t
make_line(char *line, size_t room)
{
	int			groups = rng() % 4;
	int			grants = rng() % 4;
	int			changes = rng() % 6;
	size_t		size;
	int			i;

	size = snprintf(line, room,
					"dirty_throttle 1.%d system=%llu timeline=%u change=%llu complete=%d groups=%d grants=%d",
					(int) (rng() % 3), (unsigned long long) rng(),
					(unsigned) rng(), (unsigned long long) (rng() >> 2),
					(int) (rng() % 2), groups, groups > 0 ? grants : 0);
	for (i = 0; i < groups; i++)
	{
		size += snprintf(line + size, room - size,
						 " group=g%d id=%d dirty_rate=%lld burst=%d replica_lag=%d replica_lag_unit=2",
						 i, i + 1, (long long) rng(), (int) rng(),
						 (int) (rng() % 100000));
		while (i == groups - 1 && grants-- > 0)
			size += snprintf(line + size, room - size, " grant=%u",
							 (unsigned) rng());
	}
	size += snprintf(line + size, room - size, " checksum=00000000");
	while (changes-- > 0)
	{
		const char *word = words[rng() % lengthof(words)];
		size_t		at = rng() % size;
		size_t		cut = rng() % 3 == 0 ? rng() % (size - at + 1) : rng() % 4;

		if (at + cut > size)
			cut = size - at;
		if (rng() % 4 == 0)
			line[at] = (char) rng();
		else if (size - cut + strlen(word) < room)
		{
			memmove(line + at + strlen(word), line + at + cut, size - at - cut);
			memcpy(line + at, word, strlen(word));
			size += strlen(word) - cut;
		}
		if (size == 0)
			break;
	}
	return size;
}

int
main(int argc, char **argv)
{
	uint64_t	seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
	int			count = argc > 2 ? atoi(argv[2]) : 100000;
	int			i;

	state = seed * 2654435761u + 1;
	for (i = 0; i < count; i++)
	{
		char		line[4000];

		LLVMFuzzerTestOneInput((uint8_t *) line, make_line(line, sizeof(line)));
	}
	printf("ok 1 - %d lines from seed %llu\n1..1\n", count,
		   (unsigned long long) seed);
	return 0;
}

#endif
