# What the members of a group use is what its limits allow, to the byte and the
# microsecond, whatever kind of statement it is and wherever it pays; and limits
# that change.  On a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: WARNING:  resource group "g" does not exist

my $dt = DirtyThrottle::Clock->new(
	'rate',
	conf => q{
max_worker_processes = 8
wal_log_hints = on
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
max_parallel_workers_per_gather = 2
});
my $blocks = 200;
my $tenth = $blocks / 10;
my $block = 8192;

$dt->limit(g => 0);
$dt->create_sleep_tables;
my $s = $dt->session(group => 'g');

sub rows
{
	my ($n) = @_;
	return "SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

sub create_table
{
	my ($name) = @_;
	$dt->sql("DROP TABLE IF EXISTS $name;
		CREATE TABLE $name (id int, filler text) WITH (fillfactor = 10, parallel_workers = 2)");
}

# Rows whose hint bits are still to be set, in buffers that are clean; and rows
# to which all has been done.
my $empty = sub { create_table('t') };
my $fresh = sub {
	create_table('t');
	$dt->sql('INSERT INTO t ' . rows($blocks) . '; CHECKPOINT');
};
my $old = sub {
	create_table('t');
	$dt->sql('INSERT INTO t ' . rows($blocks));
	$dt->sql('VACUUM ANALYZE t');
	$dt->sql('CHECKPOINT');
};

my $file = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($file, join('', map { "$_\t" . 'x' x 800 . "\n" } 1 .. $blocks));
$dt->sql(
	q{CREATE TABLE log (id int, filler text) WITH (fillfactor = 10);
	CREATE FUNCTION load(n int) RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN FOR i IN 1..n LOOP
			INSERT INTO t VALUES (i, repeat('x', 800)); END LOOP; END $$;
	CREATE FUNCTION write_log() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO log VALUES (NEW.id, NEW.filler);
			RETURN NULL; END $$;
	CREATE PROCEDURE commits(n int) LANGUAGE plpgsql AS
		$$ BEGIN FOR i IN 1..n LOOP
			INSERT INTO t VALUES (i, repeat('x', 800)); COMMIT; END LOOP; END $$;
	CREATE TABLE part (id int, filler text) PARTITION BY HASH (id);
	CREATE TABLE part0 PARTITION OF part
		FOR VALUES WITH (MODULUS 2, REMAINDER 0) WITH (fillfactor = 10);
	CREATE TABLE part1 PARTITION OF part
		FOR VALUES WITH (MODULUS 2, REMAINDER 1) WITH (fillfactor = 10)});

# name, what to prepare, statements, blocks that they dirty at least.  What is owed
# after an abort, a prepared transaction or what only reads, is paid before the next
# statement that writes.
my @kinds = (
	[ 'INSERT', $empty, 'INSERT INTO t ' . rows($blocks) ],
	[ 'single INSERTs in a DO block', $empty,
		"DO \$\$ BEGIN FOR i IN 1..$blocks LOOP
			INSERT INTO t VALUES (i, repeat('x', 800)); END LOOP; END \$\$" ],
	[ 'a plpgsql function', $empty, "SELECT load($blocks)" ],
	[ 'a prepared statement', $empty,
		"PREPARE p (int) AS INSERT INTO t
			SELECT i, repeat('x', 800) FROM generate_series(1, \$1) i;\n"
		  . "EXECUTE p ($tenth);\n" x 10 . 'DEALLOCATE p' ],
	[ 'many small transactions', $empty,
		join(";\n", ('INSERT INTO t ' . rows(10)) x $tenth) ],
	[ 'a procedure that commits', $empty, "CALL commits($blocks)" ],
	[ 'a transaction that is rolled back', $empty,
		'BEGIN; INSERT INTO t ' . rows($blocks) . '; ROLLBACK; ' . $MAY_WRITE ],
	[ 'a prepared transaction', $empty,
		'BEGIN; INSERT INTO t ' . rows($blocks)
		  . "; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'; $MAY_WRITE" ],
	[ 'subtransactions', $empty,
		'BEGIN; SAVEPOINT a; INSERT INTO t ' . rows($blocks / 2)
		  . '; ROLLBACK TO a; INSERT INTO t ' . rows($blocks / 2) . '; COMMIT' ],
	[ 'a trigger',
		sub {
			create_table('t');
			$dt->sql('TRUNCATE log; CREATE TRIGGER write_log AFTER INSERT ON t
				FOR EACH ROW EXECUTE FUNCTION write_log()');
		},
		'INSERT INTO t ' . rows($blocks / 2) ],
	[ 'CREATE TABLE AS', sub { $dt->sql('DROP TABLE IF EXISTS c') },
		'CREATE TABLE c (id, filler) WITH (fillfactor = 10) AS ' . rows($blocks) ],
	[ 'REFRESH MATERIALIZED VIEW',
		sub {
			$dt->sql('DROP MATERIALIZED VIEW IF EXISTS m;
				CREATE MATERIALIZED VIEW m WITH (fillfactor = 10) AS '
				  . rows($blocks) . ' WITH NO DATA');
		},
		'REFRESH MATERIALIZED VIEW m' ],
	[ 'COPY FROM STDIN', $empty, "COPY t FROM STDIN;\n" . slurp_file($file) . "\\.\n" ],
	[ 'COPY FROM a file', $empty, "COPY t FROM '$file'" ],
	[ 'COPY FROM into partitions', sub { $dt->sql('TRUNCATE part') }, "COPY part FROM '$file'" ],
	[ 'hint bits', $fresh, 'SET max_parallel_workers_per_gather = 0;
		SELECT count(*) FROM t; RESET max_parallel_workers_per_gather; ' . $MAY_WRITE ],
	[ 'hint bits in a parallel scan', $fresh, "SELECT count(*) FROM t; $MAY_WRITE" ],
	[ 'hint bits in a cursor loop', $fresh,
		"BEGIN;\nDECLARE cur CURSOR FOR SELECT id FROM t;\n"
		  . "FETCH $tenth FROM cur;\n" x 10 . "COMMIT; $MAY_WRITE" ],
	[ 'hint bits in a scan that rejects every row', $fresh,
		"SELECT count(*) FROM t WHERE id < 0; $MAY_WRITE" ],
	[ 'DELETE of nothing', $fresh, 'DELETE FROM t WHERE id < 0' ],
	[ 'VACUUM', $fresh, 'VACUUM t' ],
	[ 'CREATE INDEX', $fresh, 'CREATE INDEX ON t (id)' ],
	[ 'ALTER TABLE', $old, 'ALTER TABLE t ALTER id TYPE bigint' ],
	[ 'UPDATE', $old, 'UPDATE t SET id = id + 1' ],
	[ 'DELETE', $old, 'DELETE FROM t' ],
	[ 'MERGE', $old,
		'MERGE INTO t USING (' . rows($blocks) . ') AS s (id, filler)
			ON t.id = s.id AND s.id % 2 = 0
			WHEN MATCHED THEN UPDATE SET filler = s.filler
			WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.filler)' ]);

# Run it, as a member with these limits: how long it has paused, in us.
sub measure
{
	my ($name, $kind, %kb) = @_;
	my (undef, $prepare, $sql) = @$kind;

	$prepare->();
	$dt->fresh(g => %kb);
	my $before = $dt->session_row($s);
	$s->send($sql);
	my $us = $dt->run;
	my $result = $s->wait;
	my $row = $dt->session_row($s);

	is($result->{sqlstate}, undef, "$name: no error") or diag $result->{err};
	is(sprintf('%.0f', 1000 * ($row->{paused_time} - $before->{paused_time})),
		$us, "$name: the view tells for how long it has paused");
	return $us;
}

sub check_kinds
{
	my ($where, $what, $kb) = @_;

	foreach my $kind (@kinds)
	{
		my $name = "$where, $what $kb: $kind->[0]";

		measure($name, $kind, $what => $kb);
		my ($used, $owed) = $dt->used('g', $what);
		cmp_ok($used, '>=', $blocks * ($what eq 'wal' ? 50 : $block),
			"$name: it has done a lot");
		cmp_ok($owed, '<', $kb * 10, "$name: what is owed is not worth a pause");
		$dt->check_books('g', $what, $name);
	}
}

check_kinds('after the transaction', dirty => 2000);
check_kinds('after the transaction', wal => 300);

# Who owes for both limits pays at the same time, not for one after the other.
foreach my $kb ([ 2000, 300 ], [ 2000, 100 ])
{
	my %kb = (dirty => $kb->[0], wal => $kb->[1]);

	foreach my $kind (@kinds[ 0, 8, 13 ])
	{
		my $name = "both limits, @$kb: $kind->[0]";
		my $us = measure($name, $kind, %kb);
		my %pause = map {
			$_ => lone_pause_us(($dt->used('g', $_))[0] - new_credit($kb{$_}), $kb{$_})
		} keys %kb;
		my ($slower) = sort { $pause{$b} <=> $pause{$a} } keys %pause;

		is($us, $pause{$slower}, "$name: it pauses as long as for the $slower limit");
	}
}

# That is also what it says in the second of the slices that a pause consists of,
# in which it could pay what it owes for one of them.
$kinds[0][1]->();
$dt->fresh(g => dirty => 1000, wal => 20);
$s->send($kinds[0][2]);
$dt->settle;
$dt->advance(1_200_000);
my $row = $dt->session_row($s);
ok($row->{dirty_debt} > 0 && $row->{wal_debt} / 20 > $row->{dirty_debt} / 1000,
	'both limits: something is owed for both, and more WAL');
is($row->{paused_by}, 'wal', 'both limits: it pauses for the WAL');
$dt->run;
$s->wait;

$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
check_kinds('in flight', dirty => 2000);
check_kinds('in flight', wal => 300);

# When processes of a session pause at the same time, that counts once, and all of
# it: also if the one that began later ends first.
$fresh->();
$dt->fresh('g');
$dt->sql(
	q{CREATE FUNCTION takes_time(int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
		$$ BEGIN PERFORM pg_sleep(0.001); RETURN true; END $$});
my $workers = 'FROM pg_stat_activity WHERE leader_pid = ' . $s->pid;
my $postmaster = (split /\n/, slurp_file($dt->node->data_dir . '/postmaster.pid'))[0];
my $paused_before;
my $paused = sub {
	return sprintf '%.0f', 1000 * ($dt->session_row($s)->{paused_time} - $paused_before);
};

$s->query('BEGIN; INSERT INTO log VALUES (1)');
$dt->fresh(g => dirty => 100);
$paused_before = $dt->session_row($s)->{paused_time};
kill STOP => $postmaster;
$s->send('SELECT count(*) FROM t WHERE takes_time(id)');
$dt->advance(100_000);
kill CONT => $postmaster;
is($paused->(), 100_000, 'several processes: the leader has paused, and has no workers yet');
poll_until(
	sub {
		$dt->sql("SELECT count(*) = 2 AND bool_and(dt_test_state(pid) = 'sleeps') $workers") eq 't';
	}) or die 'its workers do not pause';
$dt->advance(50_000);    # no slice of the leader's pause is over
is($paused->(), 150_000, 'several processes: all pause');
$dt->sql("SELECT pg_terminate_backend(min(pid)) $workers");
poll_until(sub { $dt->sql("SELECT count(*) $workers") < 2 }) or die 'a worker does not end';
is($paused->(), 150_000, 'several processes: one that began later has ended');
my $us = $dt->run;
is($s->wait->{sqlstate}, '57P01', 'several processes: by an error, in the end');
is($paused->(), 150_000 + $us, 'several processes: that was all');
$s->query('ROLLBACK');
$dt->advance(100_000);
measure('none pauses any more', $kinds[0], dirty => 2000);
$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);

$dt->finish;
