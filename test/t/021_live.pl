# Where commands cannot pause (interrupt_pauses = off): they are charged while
# they run, so that the views show it and other members make room at once, and
# paid for after the transaction, when no lock is held.
#
# takes-about: 30 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 500;     # KB/s: less than any of them dirties, however slow

my $dt = DirtyThrottle->new(
	'live', conf => q{
dirty_throttle.interrupt_pauses = off
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
		FROM generate_series(1, 200000) i;
	VACUUM ANALYZE t});

# What a member has been charged with, whether it pauses, and whether it is in
# a transaction.
sub look
{
	my ($pid) = @_;
	my ($charged, $paused, $in_xact) = split /\|/,
	  $dt->sql("SELECT s.blocks_dirtied, s.paused_since IS NOT NULL,
			a.xact_start IS NOT NULL
		FROM dirty_throttle_sessions s JOIN pg_stat_activity a USING (pid)
		WHERE pid = $pid");
	return ($charged, $paused eq 't', $in_xact eq 't');
}

# Run the statement and look on.  Until it pauses, the charges that are seen
# from outside must keep up with it.  Then it pays, while somebody else locks
# what it has locked.  Options:
#	lock         SQL that takes such a lock
#	least_steps  so many charges are to be seen
#	in_flight    it is a function in a query, which pays before its next row
sub check_live
{
	my ($name, $sql, %opt) = @_;
	my ($lock, $least_steps) = @opt{qw(lock least_steps)};
	my $in_flight = $opt{in_flight} // 0;

	$dt->sql('CHECKPOINT');
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
	my ($first) = look($s->pid);
	my ($last, $steps, $seen_live) = ($first, 0, 0);
	my $start = time;
	my ($paused, $in_xact);

	$s->send($sql);
	while (!$paused && !$s->finished)
	{
		(my $charged, $paused, $in_xact) = look($s->pid);
		if (!$paused && $charged > $last)
		{
			$steps++;
			$last = $charged;
			$seen_live = $charged - $first;
		}
		sleep 0.01;
	}
	# the two views are not looked at at the same instant
	(undef, undef, $in_xact) = look($s->pid) if $paused;
	my $run_ms = (time - $start) * 1000;

	ok($paused, "$name: pauses");
	is($in_xact ? 1 : 0, $in_flight,
		"$name: " . ($in_flight ? 'in flight' : 'after the transaction'));
	between(elapsed_ms(sub { $outsider->query("BEGIN; $lock; COMMIT") }),
		0, 300, "$name: no lock is held then: ms")
	  if $lock;

	# All of it is on the books by now, and is paid for at the rate; which is
	# not waited for when it would take long.
	my ($charged) = look($s->pid);
	my $blocks = $charged - $first;
	my $ms = $blocks * $dt->block_kb / $limit * 1000;
	my $debt_ms = $dt->session_row($s)->{debt_kb} / $limit * 1000;
	between($debt_ms + (time - $start) * 1000,
		$ms * 0.9 - 100, $ms * 1.1 + 100, "$name: when all will be paid: ms");
	$dt->limit(grp_a => 0) if $debt_ms > 3000;
	my $result = $s->wait;
	is($result->{sqlstate}, undef, "$name: no error");
	between((time - $start) * 1000, 0.85 * $ms, 1.15 * $ms, "$name: ms")
	  if $debt_ms <= 3000;

	# What comes after the last look is seen only at the end.
	diag(sprintf '%s: ran %.0f ms, %d blocks, %d of them seen live in %d steps',
		$name, $run_ms, $blocks, $seen_live, $steps);
	if ($run_ms >= 400)
	{
		cmp_ok($steps, '>=', $least_steps // int($run_ms / 250),
			"$name: charges seen while it runs");
		ok($seen_live > $blocks * (1 - 250 / $run_ms) / 2,
			"$name: much of it is charged while it runs")
		  unless defined $least_steps;
	}
	return $run_ms;
}

sub create_index
{
	my ($name, $definition, $least_steps) = @_;
	my $run_ms = check_live($name, "CREATE INDEX i ON t USING $definition",
		lock => 'LOCK TABLE t IN ACCESS EXCLUSIVE MODE',
		least_steps => $least_steps);

	$dt->sql('DROP INDEX i');
	return $run_ms;
}

ok(create_index('GIN', 'gin (a)') >= 400, 'the build of a GIN index takes long');
create_index('GiST', 'gist (b)');
create_index('SP-GiST', 'spgist (p)');
create_index('hash', 'hash (filler)', 1);    # which sorts before it writes
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
	INSERT INTO fresh SELECT i, repeat('x', 800) FROM generate_series(1, 6000) i});
check_live('BRIN', 'CREATE INDEX b ON fresh USING brin (id)',
	lock => 'LOCK TABLE fresh IN ACCESS EXCLUSIVE MODE');

check_live('ALTER TABLE', 'ALTER TABLE t ALTER id TYPE numeric(20,2)',
	lock => 'LOCK TABLE t IN ACCESS EXCLUSIVE MODE');

# large objects
my $file = PostgreSQL::Test::Utils::tempdir() . '/large';
open my $random, '<:raw', '/dev/urandom' or die $!;
read $random, my $data, 48_000_000;
close $random;
append_to_file($file, $data);
check_live('lo_import', "SELECT lo_import('$file')", in_flight => 1);
check_live('lo_from_bytea',
	"SELECT lo_from_bytea(0, pg_read_binary_file('$file'))",
	in_flight => 1);

# A database is copied block by block; before that it is waited for.
$dt->sql('CREATE DATABASE source');
{
	my $in_source = $dt->session(dbname => 'source');
	$in_source->query("CREATE TABLE big AS
		SELECT i, repeat('x', 1000) FROM generate_series(1, 120000) i");
	$in_source->quit;
	poll_until(
		sub {
			$dt->sql("SELECT count(*) FROM pg_stat_activity
				WHERE datname = 'source'") == 0;
		});
	check_live('CREATE DATABASE',
		'CREATE DATABASE copy TEMPLATE source STRATEGY wal_log');
	between(
		elapsed_ms(sub { $outsider->query('DROP DATABASE copy') }),
		0, 5000, 'DROP DATABASE: ms');
}

# a long function in C
$dt->sql('CREATE INDEX pending ON t USING gin (a) WITH (fastupdate = on);
	ALTER INDEX pending SET (gin_pending_list_limit = 2097151);
	INSERT INTO t SELECT * FROM t LIMIT 60000');
check_live('a C function', "SELECT gin_clean_pending_list('pending')",
	in_flight => 1);

# A row-by-row command is paced and hardly owes anything at the end.
$dt->limit(grp_a => 0);
$dt->limit(grp_a => $limit);
$s->send('REFRESH MATERIALIZED VIEW m')
  if $dt->sql("CREATE MATERIALIZED VIEW m AS SELECT * FROM t WITH NO DATA;
	SELECT 1");
ok($dt->wait_paused($s, 'in flight'), 'REFRESH MATERIALIZED VIEW is paced');
$dt->limit(grp_a => 0);
$s->wait;

# Timers that the user may set do not shorten the pause after a transaction,
# or it would be the way out of the throttle.
foreach my $setting ('client_connection_check_interval = 50',
	'statement_timeout = 10000', 'idle_session_timeout = 400')
{
	my ($name) = split / /, $setting;

	$dt->sql("DROP TABLE IF EXISTS r;
		CREATE TABLE r (id int, filler text) WITH (fillfactor = 10);
		INSERT INTO r SELECT i, repeat('x', 800) FROM generate_series(1, 250) i;
		CHECKPOINT");
	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => 8 * $limit);
	# at once, or the session is idle for longer than it may be
	my $r = $dt->measure($s,
		"SET $setting;\nALTER TABLE r ALTER id TYPE bigint;\nRESET $name");
	between(100 * $r->{kb_per_s} / (8 * $limit), 85, 115, "$name: % of the limit");
}

# ------------------------------------------------------- others make room

# One member inserts row by row; it has the whole rate until another one
# builds an index.
$dt->sql('CREATE TABLE rows (id int, filler text) WITH (fillfactor = 10)');
$dt->sql('DROP INDEX pending');
my $writer = $dt->session(group => 'grp_a');
$dt->limit(grp_a => $limit);
$writer->send("INSERT INTO rows SELECT i, repeat('x', 800)
	FROM generate_series(1, 1000000) i");
sleep 0.5;

sub writer_kb_per_s
{
	my ($seconds) = @_;
	my ($before) = look($writer->pid);
	my $start = time;
	sleep $seconds;
	my ($after) = look($writer->pid);
	return ($after - $before) * $dt->block_kb / (time - $start);
}

my $alone = writer_kb_per_s(1);
between(100 * $alone / $limit, 80, 120, 'a member alone: % of the limit');
$s->send('CREATE INDEX i ON t USING gin (a)');
sleep 0.3;
my $beside = writer_kb_per_s(1);
ok(!$s->finished, 'another member builds an index, or pays for it');
between(100 * $beside / $limit,
	30, 65, 'its rate beside that: % of the limit');
$dt->limit(grp_a => 0);
$dt->cancel_ms($writer);
$s->wait;

# Idle, a member has no timer: it sleeps all the time.
my $idle = sub {
	my ($switches) = slurp_file('/proc/' . $s->pid . '/status') =~
	  /^voluntary_ctxt_switches:\s*(\d+)/m;
	return $switches;
};
SKIP:
{
	skip 'no /proc', 1 unless -r '/proc/' . $s->pid . '/status';
	my $before = $idle->();
	sleep 1;
	between($idle->() - $before, 0, 2, 'wake-ups of an idle member in 1 s');
}

$dt->finish;
