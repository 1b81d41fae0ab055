/*-------------------------------------------------------------------------
 *
 * text_fuzz.c
 *		Fuzzer for the reader of the text that defines groups.
 *
 * The input is a text.  Whatever it is, reading it must end without an error
 * of a sanitizer; what it says is wrong is printable; and what has been read
 * is written as a text that is read again as the same.  With libFuzzer:
 *
 *	clang -DDT_LIBFUZZER -fsanitize=fuzzer,address,undefined -Isrc \
 *		-Itest/unit test/unit/text_fuzz.c src/registry/text.c
 *
 * Without, main() changes good texts at random: text_fuzz [SEED [COUNT]].
 * A failure aborts, so that any fuzzer and sanitizer sees it.
 *
 *-------------------------------------------------------------------------
 */
#include "text_check.h"

extern int	LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
fail(const char *problem)
{
	printf("not ok 1 - %s\n1..1\n", problem);
	fflush(stdout);
	abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* a copy of exactly this size, so that a sanitizer sees more */
	char	   *string = malloc(size + 1);
	char	   *once;
	char	   *twice;
	DtTextReader reader;
	const char *p;

	memcpy(string, data, size);
	string[size] = '\0';
	once = rewrite(&reader, string);
	if (once != NULL)
	{
		twice = rewrite(&reader, once);
		if (twice == NULL || strcmp(once, twice) != 0)
			fail("it is not the same again");
		free(twice);
		free(once);
	}
	else
		for (p = reader.problem; *p != '\0'; p++)
			if (*p < ' ' || *p > '~')
				fail("the problem is not printable");
	free(string);
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
	" id=", " dirty=", " wal=", " burst=", " mode=observe", " mode=enforce",
	" floor=", " grant=", " replica_lag=", " replica_lag_ignore=",
	" slot_lag=", " checkpoint=on", " dirty_buffers=", " kernel_dirty=",
	" io_pressure=", " new_key=", "us", "ms", "s", "min", "h", "d", "B", "kB",
	"MB", "GB", "TB", "%", ".", "\"", "\"\"", "\n", " ", "=", "0", "1", "12",
	"100", "9223372036854775807", "9223372036854775808", "-", "a", "A", "_",
	"\t", "\377", "\001"
};

/* A good text, then changed, so that much of it is still understood. */
static size_t
make_text(char *string, size_t room)
{
	int			groups = rng() % 4;
	int			changes = rng() % 8;
	size_t		size = 0;
	int			i;

	string[0] = '\0';
	for (i = 0; i < groups; i++)
		size += snprintf(string + size, room - size,
						 "g%d id=%d dirty=%d.%d wal=%d burst=%d replica_lag=%ds kernel_dirty=%d%% grant=r%d grant=\"R %d\" new=\"x y\"\n",
						 i, i + 1, (int) (rng() % 100000), (int) (rng() % 1000),
						 (int) (rng() % 100000), (int) (rng() % 1000),
						 1 + (int) (rng() % 1000), 1 + (int) (rng() % 100),
						 (int) (rng() % 10), (int) (rng() % 10));
	while (changes-- > 0)
	{
		const char *word = words[rng() % lengthof(words)];
		size_t		at = rng() % (size + 1);
		size_t		cut = rng() % 3 == 0 ? rng() % (size - at + 1) : rng() % 4;

		if (at + cut > size)
			cut = size - at;
		if (rng() % 4 == 0 && at < size)
			string[at] = (char) rng();
		else if (size - cut + strlen(word) < room)
		{
			memmove(string + at + strlen(word), string + at + cut,
					size - at - cut);
			memcpy(string + at, word, strlen(word));
			size += strlen(word) - cut;
		}
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
		char		string[4000];

		LLVMFuzzerTestOneInput((uint8_t *) string,
							   make_text(string, sizeof(string)));
	}
	printf("ok 1 - %d texts from seed %llu\n1..1\n", count,
		   (unsigned long long) seed);
	return 0;
}

#endif
