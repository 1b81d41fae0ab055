# Commands that owe less than the grace: they are charged while they run, so that the
# views show it and other members make room at once, and paid for after the
# transaction, when no lock is held.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 2;     # KB/s: what is owed lasts for minutes

my $dt = DirtyThrottle->new(
	'live', conf => q{
dirty_throttle.transaction_grace = 20d
dirty_throttle.max_commit_pause = 1h
maintenance_work_mem = 1MB
max_parallel_maintenance_workers = 0
});
$dt->limit(grp_a => $limit);
my $s = $dt->session(group => 'grp_a');
my $outsider = $dt->session;

# Rows for the indexes, all seen before.
$dt->sql(
	q{CREATE TABLE t AS SELECT i AS id, md5(i::text) AS filler,
			ARRAY[i, i / 2, i / 3, -i] AS a, box(point(i, i % 1000), point(i, i)) AS b,
			point(i % 1000, i) AS p
		FROM generate_series(1, 20000) i;
	VACUUM ANALYZE t});

# Run the statement: it pauses when it has done its work, all of which it owes
# then, and while somebody else locks what it has locked.  Options:
#	lock       SQL that takes such a lock
#	in_flight  it is a function in a query, which pays before its next row
sub check_live
{
	my ($name, $sql, %opt) = @_;
	my $lock = $opt{lock};

	$dt->sql('CHECKPOINT');
	$dt->limit(grp_a => 0);
	my $start = time;
	$dt->limit(grp_a => $limit);
	$s->query('SELECT 1');    # what is charged first is not owed
	my $before = $dt->session_row($s)->{blocks_dirtied};
	$s->send($sql);
	ok($dt->wait_paused($s, $opt{in_flight} ? 'in flight' : 'after transaction'),
		"$name: pauses " . ($opt{in_flight} ? 'in flight' : 'after the transaction'));
	if ($lock)
	{
		$outsider->query("BEGIN; $lock; COMMIT");
		pass("$name: no lock is held then");
	}

	my $row = $dt->session_row($s);
	my $kb = ($row->{blocks_dirtied} - $before) * $dt->block_kb;
	cmp_ok($kb, '>=', 400, "$name: KB");
	cmp_ok($kb - $row->{dirty_debt}, '<=',
		$limit * (time - $start) + DirtyThrottle::Books::grantable(
			kb => $limit, members => 1, new => 1) / 1000,
		"$name: KB that were paid until then");
	$dt->limit(grp_a => 0);
	is($s->wait->{sqlstate}, undef, "$name: no error");
}

sub create_index
{
	my ($name, $definition) = @_;

	check_live($name, "CREATE INDEX i ON t USING $definition",
		lock => 'LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
	$dt->sql('DROP INDEX i');
}

create_index('GIN', 'gin (a)');
create_index('GiST', 'gist (b)');
create_index('SP-GiST', 'spgist (p)');
create_index('hash', 'hash (filler)');
# several transactions, between which it keeps its locks
check_live('CREATE INDEX CONCURRENTLY',
	'CREATE INDEX CONCURRENTLY g ON t USING gin (a)',
	lock => 'LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
check_live('REINDEX', 'REINDEX TABLE t',
	lock => 'LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
$dt->sql('DROP INDEX g');

# A BRIN index is small; that its build sets hint bits is what counts.
$dt->sql(
	q{CREATE TABLE fresh (id int, filler text) WITH (fillfactor = 10);
	INSERT INTO fresh SELECT i, repeat('x', 800) FROM generate_series(1, 200) i});
check_live('BRIN', 'CREATE INDEX b ON fresh USING brin (id)',
	lock => 'LOCK TABLE fresh IN ACCESS EXCLUSIVE MODE');

# Large objects are written without a check for interrupts.  The first blocks may be of
# the catalogs.
$dt->set_conf('dirty_throttle.transaction_grace', '30s', $s);
my $file = PostgreSQL::Test::Utils::tempdir() . '/large';
srand 1;
append_to_file($file, pack 'N*', map { int rand 2**32 } 1 .. 250000);
check_live('lo_import', "SELECT lo_import('$file')", in_flight => 1);
check_live('lo_from_bytea',
	"SELECT lo_from_bytea(0, pg_read_binary_file('$file'))",
	in_flight => 1);

$dt->set_conf('dirty_throttle.transaction_grace', '20d', $s);

# A database is copied block by block.
check_live('CREATE DATABASE',
	'CREATE DATABASE copy TEMPLATE template0 STRATEGY wal_log');
$outsider->query('DROP DATABASE copy');

# ------------------------------------------- charged while it runs

# It stops at its last row until it is let go on, and most of it is in the books by
# then, without a pause: the other members pay half of what they use for it.
my $blocks = 5000;
$dt->sql("CREATE TABLE w (id int, filler text) WITH (fillfactor = 10);
	INSERT INTO w SELECT i, repeat('x', 800) FROM generate_series(1, $blocks) i;
	CHECKPOINT");
$dt->limit(grp_a => 0);
$dt->limit(grp_a => $limit);
my $before = $dt->session_row($s);
$outsider->query('SELECT pg_advisory_lock(1)');
$s->send("ALTER TABLE w ALTER id TYPE int USING
	CASE WHEN id = $blocks THEN length(pg_advisory_xact_lock(1)::text) ELSE id END");
my $row;
ok( poll_until(
		sub {
			$row = $dt->session_row($s);
			$row->{blocks_dirtied} - $before->{blocks_dirtied} >= 0.5 * $blocks;
		}),
	'a command that still runs is charged');
is($row->{pauses}, $before->{pauses}, 'and has not paused');
cmp_ok($row->{dirty_debt}, '>', 0.4 * $blocks * $dt->block_kb, 'it owes');
$outsider->query('SELECT pg_advisory_unlock(1)');
ok($dt->wait_paused($s, 'after transaction'), 'which it pays after its transaction');
$dt->limit(grp_a => 0);
is($s->wait->{sqlstate}, undef, 'no error');

# A row-by-row command is paced.
$dt->set_conf('dirty_throttle.transaction_grace', '30s', $s);
$dt->limit(grp_a => $limit);
$dt->sql('CREATE MATERIALIZED VIEW m AS SELECT * FROM t WITH NO DATA');
$s->send('REFRESH MATERIALIZED VIEW m');
ok($dt->wait_paused($s, 'in flight'), 'REFRESH MATERIALIZED VIEW is paced');
$dt->limit(grp_a => 0);
$s->wait;
$dt->set_conf('dirty_throttle.transaction_grace', '20d', $s);

# Timers that the user may set do not shorten the pause after a transaction,
# or it would be the way out of the throttle.
foreach my $setting ('client_connection_check_interval = 50',
	'statement_timeout = 100000', 'idle_session_timeout = 400')
{
	my ($name) = split / /, $setting;

	$dt->sql("DROP TABLE IF EXISTS r;
		CREATE TABLE r (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO r SELECT i, repeat('x', 800) FROM generate_series(1, 250) i;
		CHECKPOINT");
	# at once, or the session is idle for longer than it may be
	$dt->check_limit(
		$name, 'grp_a',
		sub {
			$s->query("SET $setting;\nALTER TABLE r ALTER id TYPE bigint;\nRESET $name");
		},
		limit => 4000);
}

# Idle, a member has no timer: it sleeps all the time.
my $wake_ups = sub {
	my ($switches) = slurp_file('/proc/' . $s->pid . '/status') =~
	  /^voluntary_ctxt_switches:\s*(\d+)/m;
	return $switches;
};
SKIP:
{
	skip 'no /proc', 1 unless -r '/proc/' . $s->pid . '/status';
	my $before = $wake_ups->();
	sleep 0.5;
	cmp_ok($wake_ups->() - $before, '<=', 2, 'wake-ups of an idle member');
}

$dt->finish;
