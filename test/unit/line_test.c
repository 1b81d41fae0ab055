/*-------------------------------------------------------------------------
 *
 * line_test.c
 *		Unit tests of the line of text that definitions travel in.
 *
 *-------------------------------------------------------------------------
 */
#include "line_check.h"
#include "tap.h"

#define SYSTEM	UINT64CONST(18446744073709551615)

/* Written and read again: is it the same? */
static bool
survives(DtDefinitions *d, uint64 system)
{
	char	   *line = malloc(dt_line_bound(d));
	size_t		size = dt_line_write(line, d, system, sum);
	bool		result = line[size] == '\0' && strlen(line) == size &&
		size < dt_line_bound(d);
	DtLineReader reader;
	DtDefinitions back;
	size_t		i;

	for (i = 0; i < size; i++)
		if (line[i] < ' ' || line[i] > '~')
			result = false;
	if (!read_line(&reader, line, size, sum, &back))
	{
		printf("# %s\n# %s\n", reader.problem, line);
		result = false;
	}
	else if (reader.system_identifier != system || reader.ignored != 0 ||
			 !same(d, &back))
		result = false;
	release(&back);
	free(line);
	return result;
}

static void
name(DtDefinition *d, const char *value)
{
	memset(d->name, 0, NAMEDATALEN);
	memcpy(d->name, value, strlen(value));
}

static void
test_round_trip(void)
{
	DtDefinitions d;
	int			i;

	allocate(&d, 0, 0);
	ok(survives(&d, 0), "nothing at all");
	d.stamp.timeline = UINT32_MAX;
	d.stamp.change = DT_CHANGE_MAX;
	d.stamp.complete = 1;
	ok(survives(&d, SYSTEM), "nothing, with the highest numbers");
	release(&d);

	/* the names must be sorted */
	allocate(&d, 4, 3);
	name(&d.groups[0], "a b=c checksum=00000000");
	name(&d.groups[1], "group=x%41\"'\\");
	name(&d.groups[2], "\303\234ber");
	for (i = 0; i < NAMEDATALEN - 1; i++)
		d.groups[3].name[i] = (char) (193 + i);
	for (i = 0; i < 4; i++)
	{
		d.groups[i].id = i + 1;
		d.groups[i].rate[DT_DIRTY] = i == 0 ? INT64_MAX : -i;
		d.groups[i].rate[DT_WAL] = 1000 * i;
		d.groups[i].burst_us = i == 1 ? 20000 : i;
		d.groups[i].observe = i % 2;
		d.groups[i].floor = i == 2 ? 64000 : 0;
		d.groups[i].threshold[DT_REPLICA_LAG].value = i;
		d.groups[i].threshold[DT_REPLICA_LAG].unit = 2;
		d.groups[i].threshold[DT_REPLICA_LAG].ignore = INT32_MAX;
		d.groups[i].threshold[DT_IO_PRESSURE].value = 7;
		d.groups[i].threshold[DT_IO_PRESSURE].unit = INT32_MIN;
	}
	memcpy(d.grants[0].group_name, d.groups[1].name, NAMEDATALEN);
	d.grants[0].role = 1;
	memcpy(d.grants[1].group_name, d.groups[1].name, NAMEDATALEN);
	d.grants[1].role = UINT32_MAX;
	memcpy(d.grants[2].group_name, d.groups[3].name, NAMEDATALEN);
	d.grants[2].role = 16384;
	ok(survives(&d, 1), "names of any bytes, all numbers, grants");
	release(&d);
}

/* All that a server can have: fits into what is read at most. */
static void
test_largest(void)
{
	DtDefinitions d;
	int			i;
	int			j;

	allocate(&d, DT_LINE_MAX_GROUPS, DT_LINE_MAX_GRANTS);
	for (i = 0; i < d.n_groups; i++)
	{
		memset(d.groups[i].name, 0xFF, NAMEDATALEN - 1);
		d.groups[i].name[0] = (char) (128 + i / 100);
		d.groups[i].name[1] = (char) (128 + i % 100);
		d.groups[i].id = DT_CHANGE_MAX;
		d.groups[i].rate[DT_DIRTY] = d.groups[i].rate[DT_WAL] =
			d.groups[i].floor = INT64CONST(16777216000);
		d.groups[i].burst_us = INT64CONST(3600000000);
		d.groups[i].observe = 1;
		for (j = 0; j < DT_SIGNALS; j++)
		{
			d.groups[i].threshold[j].value = INT64CONST(1024) << 40;
			d.groups[i].threshold[j].unit = 4;
		}
		d.groups[i].threshold[DT_REPLICA_LAG].ignore = INT32_MAX;
	}
	for (i = 0; i < d.n_grants; i++)
	{
		memcpy(d.grants[i].group_name, d.groups[i / 16].name, NAMEDATALEN);
		d.grants[i].role = UINT32_MAX - i;
	}
	{
		char	   *line = malloc(dt_line_bound(&d));
		size_t		size = dt_line_write(line, &d, SYSTEM, sum);

		ok(size <= DT_LINE_MAX_SIZE, "the largest line has %zu bytes", size);
		free(line);
	}
	ok(survives(&d, SYSTEM), "and is read");
	release(&d);
}

/*
 * A line with its checksum, after "dirty_throttle ": the problem, or what was
 * read.
 */
static const char *
result(const char *words)
{
	static char answer[400];
	char		line[2000];
	DtLineReader reader;
	DtDefinitions d;
	int			size = snprintf(line, sizeof(line), "dirty_throttle %s", words);

	size += snprintf(line + size, sizeof(line) - size, " checksum=%08X",
					 sum(line, size));
	if (read_line(&reader, line, size, sum, &d))
		snprintf(answer, sizeof(answer),
				 "system %" PRIu64 " timeline %u change %" PRId64 " complete %u, %d groups, %d grants, first %s %" PRIu64 " %" PRId64 " %" PRId64 ", ignored %d",
				 reader.system_identifier, d.stamp.timeline, d.stamp.change,
				 d.stamp.complete, d.n_groups, d.n_grants,
				 d.n_groups > 0 ? d.groups[0].name : "",
				 d.n_groups > 0 ? d.groups[0].id : 0,
				 d.n_groups > 0 ? d.groups[0].rate[DT_DIRTY] : 0,
				 d.n_groups > 0 ? d.groups[0].burst_us : 0, reader.ignored);
	else
		snprintf(answer, sizeof(answer), "%s", reader.problem);
	release(&d);
	return answer;
}

static void
check(const char *words, const char *expected)
{
	const char *got = result(words);

	if (!ok(strcmp(got, expected) == 0, "%.60s", words))
		printf("# expected: %s\n# got:      %s\n", expected, got);
}

#define FIRST	"system=1 timeline=2 change=3 complete=1 "
#define OUT_OF_RANGE "a number in its first part is out of range or there twice"
#define GROUP_OUT_OF_RANGE "a number of a group is out of range or there twice"

static void
test_reading(void)
{
	char		name_max[100];
	char		words[300];

	check("1.0 " FIRST "groups=0 grants=0",
		  "system 1 timeline 2 change 3 complete 1, 0 groups, 0 grants, first  0 0 0, ignored 0");
	check("1.0 " FIRST "groups=1 grants=1 group=a id=5 dirty_rate=7 grant=9",
		  "system 1 timeline 2 change 3 complete 1, 1 groups, 1 grants, first a 5 7 20000, ignored 0");
	check("1.0 grants=0 groups=1 complete=0 change=0 timeline=0 system=0 group=%20%FF%41 burst=0",
		  "system 0 timeline 0 change 0 complete 0, 1 groups, 0 grants, first  \xFF" "A 0 0 0, ignored 0");

	/* a newer release */
	check("1.7 " FIRST "groups=1 grants=0 mood=good group=a id=5 ceiling=9 dirty_rate=7",
		  "system 1 timeline 2 change 3 complete 1, 1 groups, 0 grants, first a 5 7 20000, ignored 2");
	check("2.0 anything goes here",
		  "its format version is 2.0, and this release of dirty_throttle reads 1.x");
	check("2147483647.2147483647 ",
		  "its format version is 2147483647.2147483647, and this release of dirty_throttle reads 1.x");
	check("1 " FIRST "groups=0 grants=0", "it has no format version");
	check("1.0.0 " FIRST "groups=0 grants=0", "it has no format version");
	check("01.0 " FIRST "groups=0 grants=0", "it has no format version");
	check("1. " FIRST "groups=0 grants=0", "it has no format version");
	check("4294967297.0 " FIRST "groups=0 grants=0", "it has no format version");
	check(".", "it has no format version");

	/* the first part */
	check("1.0 system=1 timeline=2 change=3 groups=0 grants=0",
		  "its first part is not complete");
	check("1.0 group=a " FIRST "groups=1 grants=0",
		  "its first part is not complete");
	check("1.0 system=1 " FIRST "groups=0 grants=0", OUT_OF_RANGE);
	check("1.0 system=18446744073709551616 timeline=2 change=3 complete=1 groups=0 grants=0",
		  OUT_OF_RANGE);
	check("1.0 system=1 timeline=4294967296 change=3 complete=1 groups=0 grants=0",
		  OUT_OF_RANGE);
	check("1.0 system=1 timeline=2 change=-1 complete=1 groups=0 grants=0",
		  OUT_OF_RANGE);
	check("1.0 system=1 timeline=2 change=4611686018427387904 complete=1 groups=0 grants=0",
		  OUT_OF_RANGE);
	check("1.0 system=1 timeline=2 change=3 complete=2 groups=0 grants=0",
		  OUT_OF_RANGE);
	/* so many nines are 1, modulo 2 to the power of 64 */
	check("1.0 system=1 timeline=2 change=3 complete=99999999999999999999999999999 groups=0 grants=0",
		  OUT_OF_RANGE);
	check("1.0 " FIRST "groups=10001 grants=0", OUT_OF_RANGE);
	check("1.0 " FIRST "groups=0 grants=160001", OUT_OF_RANGE);
	check("1.0 " FIRST "groups=00 grants=0", OUT_OF_RANGE);
	check("1.0 " FIRST "groups=+0 grants=0", OUT_OF_RANGE);
	check("1.0 " FIRST "groups=0x grants=0", OUT_OF_RANGE);
	check("1.0  " FIRST "groups=0 grants=0", "its first part is malformed");
	check("1.0 " FIRST "groups=0 grants=0 ", "its first part is malformed");
	check("1.0 " FIRST "groups=0 grants", "its first part is malformed");
	check("1.0 " FIRST "groups=0 grants=", "its first part is malformed");
	check("1.0 " FIRST "groups=0 Grants=0", "its first part is malformed");
	check("1.0 " FIRST "groups=0 grants=\xC3\xA4", "its first part is malformed");
	check("1.0 " FIRST "groups=0 grants=0\n", "its first part is malformed");

	/* groups and grants */
	check("1.0 " FIRST "groups=1 grants=0",
		  "it has fewer groups or grants than it says");
	check("1.0 " FIRST "groups=1 grants=1 group=a",
		  "it has fewer groups or grants than it says");
	check("1.0 " FIRST "groups=1 grants=1 grant=1",
		  "it has fewer groups or grants than it says");
	check("1.0 " FIRST "groups=0 grants=0 group=a",
		  "it has more groups than it says");
	check("1.0 " FIRST "groups=1 grants=0 group=a group=b",
		  "it has more groups than it says");
	check("1.0 " FIRST "groups=1 grants=0 group=a grant=1",
		  "it has more grants than it says");
	check("1.0 " FIRST "groups=1 grants=1 group=a grant=4294967296",
		  "a grant is malformed");
	check("1.0 " FIRST "groups=1 grants=1 group=a grant=etl",
		  "a grant is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=a id=1 id=2", GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a dirty_rate=9223372036854775808",
		  GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a dirty_rate=-9223372036854775807",
		  "system 1 timeline 2 change 3 complete 1, 1 groups, 0 grants, first a 0 -9223372036854775807 20000, ignored 0");
	check("1.0 " FIRST "groups=1 grants=0 group=a dirty_rate=--1", GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a dirty_rate=-", GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a dirty_rate=1e9", GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a replica_lag_ignore=2147483648",
		  GROUP_OUT_OF_RANGE);
	check("1.0 " FIRST "groups=1 grants=0 group=a id", "it is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=a\tid=1",
		  "its first part is malformed");
	check("1.0 " FIRST "groups=2 grants=0 group=a group=b\tid=1", "it is malformed");

	/* names */
	check("1.0 " FIRST "groups=1 grants=0 group=%", "a name of a group is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=a%4", "a name of a group is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=%4g", "a name of a group is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=%ff", "a name of a group is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=a%00b", "a name of a group is malformed");
	check("1.0 " FIRST "groups=1 grants=0 group=a/b", "a name of a group is malformed");
	memset(name_max, 'n', sizeof(name_max));
	name_max[NAMEDATALEN - 1] = '\0';
	snprintf(words, sizeof(words), "1.0 " FIRST "groups=1 grants=0 group=%s", name_max);
	ok(strstr(result(words), name_max) != NULL, "the longest name");
	name_max[NAMEDATALEN - 1] = 'n';
	name_max[NAMEDATALEN] = '\0';
	snprintf(words, sizeof(words), "1.0 " FIRST "groups=1 grants=0 group=%s", name_max);
	ok(strcmp(result(words), "a name of a group is malformed") == 0,
	   "a longer name");
}

static bool
refused(const char *line, size_t size, const char *problem)
{
	DtLineReader reader;
	DtDefinitions d;
	bool		read = read_line(&reader, line, size, sum, &d);

	release(&d);
	if (read || strcmp(reader.problem, problem) != 0)
		printf("# %s\n", read ? "it is read" : reader.problem);
	return !read && strcmp(reader.problem, problem) == 0;
}

static void
test_whole(void)
{
	DtDefinitions d;
	char		line[1000];
	char	   *huge;
	size_t		size;
	size_t		i;
	int			bit;
	int			read = 0;

	ok(refused("", 0, "it is not a line of definitions"), "nothing");
	ok(refused("dirty_throttle ", 15, "it is not a line of definitions"),
	   "only the first word");
	ok(refused("SELECT 1", 8, "it is not a line of definitions"),
	   "something else");
	ok(refused("dirty_throttle 1.0 x", 20, "it has no checksum at its end"),
	   "no checksum");
	ok(refused("dirty_throttle 1.0 checksum=0000000g", 36,
			   "it has no checksum at its end"), "a checksum that is none");
	ok(refused("dirty_throttle 1.0 checksum=00000000", 36,
			   "its checksum does not fit its content"), "another checksum");

	allocate(&d, 1, 1);
	name(&d.groups[0], "batch");
	d.groups[0].id = 814372415120000;
	d.groups[0].rate[DT_DIRTY] = 12288000;
	memcpy(d.grants[0].group_name, d.groups[0].name, NAMEDATALEN);
	d.grants[0].role = 16384;
	size = dt_line_write(line, &d, 7, sum);
	for (i = 0; i < size; i++)
	{
		DtLineReader reader;
		DtDefinitions back;

		read += read_line(&reader, line, i, sum, &back);
		release(&back);
		for (bit = 0; bit < 8; bit++)
		{
			line[i] ^= 1 << bit;
			read += read_line(&reader, line, size, sum, &back);
			release(&back);
			line[i] ^= 1 << bit;
		}
	}
	ok(read == 0, "cut anywhere, or with a flipped bit: %d of %zu are read",
	   read, 9 * size);
	release(&d);

	huge = malloc(DT_LINE_MAX_SIZE + 1);
	memset(huge, ' ', DT_LINE_MAX_SIZE + 1);
	ok(refused(huge, DT_LINE_MAX_SIZE + 1, "it is too long"), "too long");
	ok(refused(huge, DT_LINE_MAX_SIZE, "it is not a line of definitions"),
	   "as long as can be");
	free(huge);
}

int
main(void)
{
	test_round_trip();
	test_largest();
	test_reading();
	test_whole();
	return done_testing();
}
