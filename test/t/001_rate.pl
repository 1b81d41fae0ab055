# The rate of one session: what a statement dirties, divided by the time that
# the client waits for it, is the limit, whatever kind of statement it is.
#
# takes-about: 35 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 20000;    # KB/s
my $blocks = 2500;    # about a second's worth
my $tenth = $blocks / 10;

my $dt = DirtyThrottle->new('rate');
$dt->limit(grp_a => $limit);
my $s = $dt->session(group => 'grp_a');

# Tables with a row a page.
sub create_table
{
	my ($name) = @_;
	$dt->sql("DROP TABLE IF EXISTS $name;
		CREATE TABLE $name (id int, filler text) WITH (fillfactor = 10)");
}

sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

# Rows that nobody has looked at since they were inserted, so that the first
# who does sets hint bits, in buffers that are clean.
sub create_fresh_rows
{
	my ($name) = @_;
	create_table($name);
	$dt->sql("INSERT INTO $name " . rows($blocks) . "; CHECKPOINT");
}

# The same, but all there is to do to them has been done.
sub create_old_rows
{
	my ($name) = @_;
	create_table($name);
	$dt->sql("INSERT INTO $name " . rows($blocks));
	$dt->sql("VACUUM ANALYZE $name");
	$dt->sql('CHECKPOINT');
}

# Prepare, and measure the statement: at least so many blocks, and not many
# more, in the time that they must take at the limit, or at another one.
sub check_rate
{
	my ($name, $prepare, $sql, $expected, $kb) = @_;
	$expected //= $blocks;
	$kb //= $limit;
	my $r;

	at_limit(
		sub {
			$prepare->();

			# a new limit starts without the credit that an idle group has
			$dt->limit(grp_a => 0);
			$dt->limit(grp_a => $kb);
			$r = $dt->measure($s, $sql);
			return 100 * $r->{kb_per_s} / $kb;
		},
		$name);
	between($r->{blocks}, $expected, 1.3 * $expected, "$name: blocks");
}

# What to prepare
my $empty = sub { create_table('t') };
my $fresh = sub { create_fresh_rows('t') };
my $old = sub { create_old_rows('t') };
my $drop_c = sub { $dt->sql('DROP TABLE IF EXISTS c') };

check_rate('INSERT', $empty, "INSERT INTO t " . rows($blocks));

# What the view has counted is what EXPLAIN counts.
my $before = $dt->session_row($s)->{blocks_dirtied};
my ($explained) =
  $s->query('EXPLAIN (ANALYZE, BUFFERS) INSERT INTO t ' . rows(500)) =~
  /shared.* dirtied=(\d+)/;
my $counted = $dt->session_row($s)->{blocks_dirtied} - $before;
between($explained, 500, 650, 'EXPLAIN (BUFFERS): blocks');
between($counted, $explained, $explained + 20, 'the view: blocks');

check_rate('single INSERTs in a DO block', $empty,
	"DO \$\$ BEGIN FOR i IN 1..$blocks LOOP
		INSERT INTO t VALUES (i, repeat('x', 800)); END LOOP; END \$\$");

$dt->sql("CREATE FUNCTION load(n int) RETURNS void LANGUAGE plpgsql AS
	\$\$ BEGIN FOR i IN 1..n LOOP
		INSERT INTO t VALUES (i, repeat('x', 800)); END LOOP; END \$\$");
check_rate('a plpgsql function', $empty, "SELECT load($blocks)");

check_rate('a prepared statement', $empty,
	"PREPARE p (int) AS INSERT INTO t
		SELECT i, repeat('x', 800) FROM generate_series(1, \$1) i;\n"
	  . "EXECUTE p ($tenth);\n" x 10
	  . 'DEALLOCATE p');

check_rate('many small transactions', $empty,
	join(";\n", ("INSERT INTO t " . rows(10)) x $tenth));

$dt->sql("CREATE FUNCTION write_log() RETURNS trigger LANGUAGE plpgsql AS
	\$\$ BEGIN INSERT INTO log VALUES (NEW.id, NEW.filler);
		RETURN NULL; END \$\$");
check_rate(
	'a trigger',
	sub {
		create_table('t');
		create_table('log');
		$dt->sql('CREATE TRIGGER write_log AFTER INSERT ON t
			FOR EACH ROW EXECUTE FUNCTION write_log()');
	},
	'INSERT INTO t ' . rows($blocks / 2));

check_rate('CREATE TABLE AS', $drop_c,
	'CREATE TABLE c (id, filler) WITH (fillfactor = 10) AS ' . rows($blocks));

check_rate('SELECT INTO', $drop_c,
	"SELECT i, repeat('x', 1900) INTO c
	 FROM generate_series(1, " . 4 * $blocks . ") i");

check_rate(
	'REFRESH MATERIALIZED VIEW',
	sub {
		$dt->sql('DROP MATERIALIZED VIEW IF EXISTS m;
			CREATE MATERIALIZED VIEW m WITH (fillfactor = 10) AS '
			  . rows($blocks) . ' WITH NO DATA');
	},
	'REFRESH MATERIALIZED VIEW m');

# COPY FROM
my $file = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($file,
	join('', map { "$_\t" . 'x' x 800 . "\n" } 1 .. $blocks));

check_rate('COPY FROM STDIN', $empty, "COPY t FROM STDIN;\n" . slurp_file($file) . "\\.\n");

check_rate('COPY FROM a file', $empty, "COPY t FROM '$file'");
is($dt->sql('SELECT count(*) FROM t'), $blocks, 'COPY loads every row');

check_rate('COPY FROM ... WHERE',
	$empty, "COPY t FROM '$file' WHERE id % 5 <> 0",
	$blocks * 4 / 5);
is( $dt->sql('SELECT count(*), count(*) FILTER (WHERE id % 5 = 0) FROM t'),
	$blocks * 4 / 5 . '|0',
	'COPY applies its own WHERE clause');

$dt->sql("CREATE TABLE part (id int, filler text) PARTITION BY HASH (id);
	CREATE TABLE part0 PARTITION OF part
		FOR VALUES WITH (MODULUS 2, REMAINDER 0) WITH (fillfactor = 10);
	CREATE TABLE part1 PARTITION OF part
		FOR VALUES WITH (MODULUS 2, REMAINDER 1) WITH (fillfactor = 10)");
check_rate('COPY FROM into partitions',
	sub { $dt->sql('TRUNCATE part') }, "COPY part FROM '$file'");

# Hint bits
check_rate('hint bits', $fresh, 'SELECT count(*) FROM t');

check_rate('hint bits in a cursor loop', $fresh,
	"BEGIN;\nDECLARE cur CURSOR FOR SELECT id FROM t;\n"
	  . "FETCH $tenth FROM cur;\n" x 10
	  . 'COMMIT');

check_rate('hint bits in a plpgsql cursor loop', $fresh,
	"DO \$\$ DECLARE cur CURSOR FOR SELECT id FROM t;
		n int := 0;
	 BEGIN FOR r IN cur LOOP n := n + 1; END LOOP; END \$\$");

check_rate('hint bits in a scan that rejects every row', $fresh,
	'SELECT count(*) FROM t WHERE id < 0');

check_rate('DELETE of nothing', $fresh, 'DELETE FROM t WHERE id < 0');

my $parallel = sub {
	create_fresh_rows('t');
	$dt->sql('ALTER TABLE t SET (parallel_workers = 2)');
};
$s->query('SET max_parallel_workers_per_gather = 2;
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0');
$parallel->();
like($s->query('EXPLAIN (COSTS OFF) SELECT count(*) FROM t'),
	qr/Workers Planned: 2/, 'a parallel plan');
check_rate('hint bits in a parallel scan', $parallel,
	'SELECT count(*) FROM t');
$s->query('RESET max_parallel_workers_per_gather');

# VACUUM, also at a limit at which its pauses are long
check_rate('VACUUM', $fresh, 'VACUUM t');

check_rate(
	'VACUUM at a low limit',
	sub {
		create_table('t');
		$dt->sql('INSERT INTO t ' . rows(40) . '; CHECKPOINT');
	},
	'VACUUM t', 40, 200);

# There, too, it pays while it runs, not all of it afterwards.  Its first burst,
# until a timer has seen that it dirties a page in a microsecond, is paid first.
create_table('t');
$dt->sql('INSERT INTO t ' . rows(10 * $blocks) . '; CHECKPOINT');
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 40_000);
my $begun = $dt->session_row($s)->{blocks_dirtied};
$s->send('VACUUM t');
foreach my $step ('has begun', 'goes on')
{
	ok( poll_until(
			sub { $dt->session_row($s)->{blocks_dirtied} > $begun }, 5),
		"VACUUM $step");
	sleep 0.3;
	$begun = $dt->session_row($s)->{blocks_dirtied};
}
my $start = time;
sleep 1.5;
my $vacuumed = $dt->session_row($s)->{blocks_dirtied} - $begun;
between(
	100 * $vacuumed * $dt->block_kb / (time - $start) / 40_000,
	60, 140, 'VACUUM while it runs: % of the limit');
$dt->limit(grp_a => 0);
$s->wait;

# Changes of rows that are there
check_rate('UPDATE', $old, 'UPDATE t SET id = id + 1');

check_rate('DELETE', $old, 'DELETE FROM t');

check_rate('MERGE', $old,
	'MERGE INTO t USING (' . rows($blocks) . ') AS s (id, filler)
		ON t.id = s.id AND s.id % 2 = 0
		WHEN MATCHED THEN UPDATE SET filler = s.filler
		WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.filler)');

# Pausing in between changes no result.
is($dt->sql('SELECT count(*), count(DISTINCT id) FROM t'),
	$blocks * 3 / 2 . "|$blocks", 'MERGE merges every row');

# All was paid: no phantoms.
my $row = $dt->group_row('grp_a');
is($row->{active_processes}, 1, 'one member');
is($row->{paused_processes}, 0, 'nobody pauses');
between($row->{debt_kb}, 0, $limit * 0.05, 'debt, KB');

$s->quit;
ok(poll_until(
		sub { $dt->group_row('grp_a')->{active_processes} == 0 }),
	'a session that ends leaves the group');

$dt->finish;
