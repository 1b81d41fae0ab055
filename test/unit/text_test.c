/*-------------------------------------------------------------------------
 *
 * text_test.c
 *		Unit tests of the text that defines groups.
 *
 *-------------------------------------------------------------------------
 */
#include "text_check.h"
#include "tap.h"

/* A text is read, and written so; or it is refused with that problem. */
static void
check(const char *string, const char *expected)
{
	DtTextReader reader;
	char	   *got = rewrite(&reader, string);
	char		name[60];
	char	   *p;

	snprintf(name, sizeof(name), "%s", string);
	while ((p = strchr(name, '\n')) != NULL)
		*p = '|';
	if (!ok(strcmp(got ? got : reader.problem, expected) == 0, "%s", name))
		printf("# expected: %s\n# got:      %s\n", expected,
			   got ? got : reader.problem);
	free(got);
}

static void
same(const char *string)
{
	check(string, string);
}

#define BAD(key) \
	"the value of " key " is malformed, out of range or there twice"
#define NOT_KEY_VALUE	"a word is not key=value"
#define NO_NAME			"a name is missing, or has to be quoted"
#define NO_END			"a quoted name does not end"

static void
test_good(void)
{
	same("");
	same("batch");
	same("batch id=814372415120000 dirty=12288 wal=8000.5 burst=60000 mode=observe floor=512");
	same("a\nb\n_1\n\"A\"\n\"1\"\n\"a b\"\n\"a\"\"b\"\n\"\303\234\"\n\"=\"\n\"a\nb\"");
	check("\n  a  dirty=1 \n\n b \n", "a dirty=1\nb");
	check("\"a\"", "a");

	/* the defaults are not written */
	check("a dirty=0 wal=0 burst=20 mode=enforce floor=64", "a");
	check("a dirty=1.50 burst=020", "a dirty=1.5");
	same("a dirty=0.001 burst=0 floor=0.001");
	same("a dirty=16777216 wal=16777216 burst=3600000 floor=16777216");
	same("a id=4611686018427387903");

	/* thresholds */
	same("a replica_lag=2s replica_lag_ignore=3");
	same("a replica_lag=100ms slot_lag=1MB checkpoint=on dirty_buffers=30% kernel_dirty=500MB io_pressure=0.0001%");
	same("a kernel_dirty=12.5%");
	check("a replica_lag=120s", "a replica_lag=2min");
	check("a replica_lag=100000us", "a replica_lag=100ms");
	same("a replica_lag=1d slot_lag=1024TB dirty_buffers=100%");
	check("a slot_lag=1048577B", "a slot_lag=1048577B");

	/* grants, and what a later release has written */
	same("a grant=etl grant=\"Two \"\"words\"\"\"\nb grant=etl");
	same("a new=1\nb dirty=5 other=\"a b\"\"c\nd\"");
	same("a tomorrow_lag=5x%");
}

static void
test_bad(void)
{
	char		name[NAMEDATALEN + 20];

	check("Batch", NO_NAME);
	check("1a", NO_NAME);
	check("a-b", NO_NAME);
	check("=", NO_NAME);
	check("a\tdirty=1", NO_NAME);
	check("\"\"", "a name is empty");
	check("\"", NO_END);
	check("\"a", NO_END);
	check("\"a\"\"", NO_END);
	check("\"a\"b", NO_NAME);
	check("a grant=", NO_NAME);
	check("a grant=B", NO_NAME);
	check("a grant=\"", NO_END);

	check("a b", NOT_KEY_VALUE);
	check("a b =1", NOT_KEY_VALUE);
	check("a Dirty=1", NOT_KEY_VALUE);
	check("a =1", NOT_KEY_VALUE);
	check("a aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=1",
		  NOT_KEY_VALUE);
	check("a new=", "a value is missing, or does not end");
	check("a new=\"b", "a value is missing, or does not end");
	check("a new=\"b\"c", "a value is missing, or does not end");

	check("a dirty=", BAD("dirty"));
	check("a dirty=-1", BAD("dirty"));
	check("a dirty=1.", BAD("dirty"));
	check("a dirty=.5", BAD("dirty"));
	check("a dirty=1.2.3", BAD("dirty"));
	check("a dirty=1.2345", BAD("dirty"));
	check("a dirty=1e3", BAD("dirty"));
	check("a dirty=16777216.001", BAD("dirty"));
	check("a dirty=9223372036854775807", BAD("dirty"));
	check("a dirty=99999999999999999999999999", BAD("dirty"));
	check("a dirty=1 dirty=1", BAD("dirty"));
	check("a id=0", BAD("id"));
	check("a id=1.0", BAD("id"));
	check("a id=4611686018427387904", BAD("id"));
	check("a id=9223372036854775808", BAD("id"));
	check("a burst=3600001", BAD("burst"));
	check("a mode=off", BAD("mode"));
	check("a mode=observed", BAD("mode"));
	check("a floor=0", BAD("floor"));
	check("a replica_lag=2", BAD("replica_lag"));
	check("a replica_lag=99ms", BAD("replica_lag"));
	check("a replica_lag=2d", BAD("replica_lag"));
	check("a replica_lag=2GB", BAD("replica_lag"));
	check("a replica_lag=30%", BAD("replica_lag"));
	check("a replica_lag=on", BAD("replica_lag"));
	check("a replica_lag=9223372036854775807d", BAD("replica_lag"));
	check("a replica_lag=1.5s", BAD("replica_lag"));
	check("a checkpoint=1s", BAD("checkpoint"));
	check("a checkpoint=", BAD("checkpoint"));
	check("a dirty_buffers=0%", BAD("dirty_buffers"));
	check("a dirty_buffers=100.0001%", BAD("dirty_buffers"));
	check("a dirty_buffers=1.00001%", BAD("dirty_buffers"));
	check("a dirty_buffers=30", BAD("dirty_buffers"));
	check("a io_pressure=20%%", BAD("io_pressure"));
	check("a replica_lag=2s replica_lag_ignore=2147483648",
		  BAD("replica_lag_ignore"));
	check("a replica_lag_ignore=1",
		  "there is replica_lag_ignore without replica_lag");

	memset(name, 'n', sizeof(name));
	name[NAMEDATALEN - 1] = '\0';
	same(name);
	name[NAMEDATALEN - 1] = 'n';
	name[NAMEDATALEN] = '\0';
	check(name, "a name is too long");
}

static void
test_lines(void)
{
	DtTextReader reader;

	free(rewrite(&reader, "a\n\nb dirty=1\n\"c\nd\" new=\"\n\"\n  e dirty=x"));
	ok(reader.line == 7, "the problem is in line %d", reader.line);
}

int
main(void)
{
	test_good();
	test_bad();
	test_lines();
	return done_testing();
}
