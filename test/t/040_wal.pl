# The WAL limit: how it is set, and that what is charged is, to the byte, what is
# found in the WAL.  101 and 102 test how long a member pauses for it.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $x = "repeat('x', 800)";

my $dt = DirtyThrottle->new(
	'wal',
	no_start => 1,
	# wal_level minimal would spare much of what is measured here
	init => [ allows_streaming => 1 ],
	conf => q{
shared_preload_libraries = 'dirty_throttle, pg_stat_statements'
pg_stat_statements.track_planning = on
wal_log_hints = on
max_connections = 30
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
chomp(my $libdir = `pg_config --pkglibdir`);
plan skip_all => 'no pg_stat_statements or pg_walinspect'
  unless -f "$libdir/pg_stat_statements.so"
  && -f "$libdir/pg_walinspect.so";

$dt->node->start;
$dt->sql("CREATE EXTENSION $_")
  foreach 'dirty_throttle', 'pg_stat_statements', 'pg_walinspect';
$dt->sql('CREATE ROLE member SUPERUSER LOGIN');

sub wal_limit
{
	my ($group, $kb) = @_;
	$dt->sql("SELECT set_group_wal_limit('$group', $kb)");
}

# A new limit starts without the credit that an idle group has.
sub fresh_limits
{
	my ($group, $dirty_kb, $wal_kb) = @_;

	$dt->limit($group => 0);
	wal_limit($group => 0);
	$dt->limit($group => $dirty_kb) if $dirty_kb;
	wal_limit($group => $wal_kb) if $wal_kb;
}

# ------------------------------------------------------------ bad input

foreach my $case (
	[ "set_group_wal_limit('bad', -1)", '22023' ],
	[ "set_group_wal_limit('bad', 'NaN')", '22023' ],
	[ "set_group_wal_limit('bad', 'Infinity')", '22023' ],
	[ "set_group_wal_limit('bad', 16777216.001)", '22023' ],
	[ "set_group_wal_limit('bad', NULL)", '22004' ],
	[ 'set_group_wal_limit(NULL, 1)', '22004' ],
	[ "set_group_wal_limit('', 1)", '22023' ],
	[ "set_group_wal_limit(repeat('x', 64), 1)", '22023' ],
	[ "reset_group_wal_limit('bad')", '42704' ],
	[ 'reset_group_wal_limit(NULL)', '22004' ],
	[ "reset_group_wal_limit('')", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
}
is($dt->sql('SELECT count(*) FROM dirty_throttle_groups'),
	0, 'none of these has made a group');
like(
	$dt->session->run("SELECT set_group_wal_limit('grp_a', 16777216)")->{err},
	qr/NOTICE:.*"grp_a" created/,
	'the first limit of a group creates it');
{
	my $row = $dt->group_row('grp_a');

	is("$row->{wal_limit} $row->{dirty_limit}",
		'16777216 0', 'with a WAL limit and no other');
	is("$row->{wal_bytes} $row->{wal_debt} $row->{pauses}",
		'0 0 0', 'nothing is written yet');
}
wal_limit(grp_a => 0.001);
is($dt->group_row('grp_a')->{wal_limit}, 0.001, 'a small limit');
$dt->limit(grp_a => 77);
is($dt->group_row('grp_a')->{wal_limit},
	0.001, 'which setting the dirty limit leaves alone');
$dt->sql("SELECT reset_group_wal_limit('grp_a')");
{
	my $row = $dt->group_row('grp_a');

	is("$row->{wal_limit} $row->{dirty_limit}",
		'0 77', 'and the other way round');
}
$dt->sql('BEGIN');
wal_limit(grp_a => 88);
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{wal_limit}, 0, 'ROLLBACK undoes it');
wal_limit(grp_a => 88);
$dt->sql('CREATE ROLE nobody LOGIN');
{
	my $nobody = $dt->session(user => 'nobody');

	is($nobody->run("SELECT $_")->{sqlstate}, '42501', "$_: not for everybody")
	  foreach "set_group_wal_limit('grp_a', 1)",
	  "reset_group_wal_limit('grp_a')";
}
fresh_limits('grp_a');

# ------------------------------------------------------------ what writes WAL

my $s = $dt->session(user => 'member', group => 'grp_a');
$s->query('SET max_parallel_maintenance_workers = 0');

sub create_table
{
	my ($name, $fillfactor) = @_;
	$fillfactor //= 100;
	$dt->sql("DROP TABLE IF EXISTS $name CASCADE; CREATE TABLE $name
		(id int, filler text) WITH (fillfactor = $fillfactor)");
}

sub rows
{
	my ($n) = @_;
	return "SELECT i AS id, $x AS filler FROM generate_series(1, $n) i";
}

# The same few rows again and again: it dirties next to nothing.
$dt->sql("CREATE TABLE hot (id int, filler text) WITH (fillfactor = 40);
	INSERT INTO hot " . rows(8) . ';
	CREATE PROCEDURE churn(n int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..n LOOP
			UPDATE hot SET filler = repeat(chr(97 + i % 26), 800);
			COMMIT;
		END LOOP;
	END $$');

$dt->sql('CREATE TABLE numbers (id int);
	INSERT INTO numbers SELECT generate_series(1, 100000);
	VACUUM (FREEZE) numbers');

# ---------------------------------------------------------------- the books

# Where the session's WAL begins and ends is asked in the session, so that
# nobody else's is in between, but for what the background writer logs of
# running transactions.
sub wal_position
{
	return $s->query('SELECT pg_current_wal_insert_lsn()');
}

# Bytes of all records, and of those that end transactions.
sub wal_records
{
	my ($from, $to) = @_;

	return (0, 0) if $from eq $to;
	# a commit that is flushed, and with it all that is before
	$dt->sql(q{SELECT pg_logical_emit_message(true, 'test', '')});
	return split /\|/, $dt->sql(
		"SELECT coalesce(sum(record_length), 0),
			coalesce(sum(record_length) FILTER (WHERE
				resource_manager = 'Transaction'
				AND record_type IN ('COMMIT', 'ABORT', 'PREPARE')), 0)
		 FROM pg_get_wal_records_info('$from', '$to')
		 WHERE record_type <> 'RUNNING_XACTS'");
}

sub statements_wal
{
	return $dt->sql('SELECT coalesce(sum(wal_bytes), 0)
		FROM pg_stat_statements
		WHERE toplevel AND userid = $$member$$::regrole');
}

# Tables t, empty, and fresh, with rows that nobody has looked at; nothing is
# left to be done to any catalog row.
sub prepare_books
{
	my ($setup) = @_;

	create_table('t', 10);
	create_table('fresh', 10);
	$dt->sql($setup) if $setup;
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql('CHECKPOINT');
	$dt->sql('TRUNCATE fresh; INSERT INTO fresh ' . rows(300));
	$dt->sql('VACUUM (FREEZE) pg_class; SELECT count(*) FROM pg_class');
	$dt->sql('CHECKPOINT');
	$s->query('EXPLAIN SELECT * FROM t, fresh; SELECT 1');
	wal_position();
	$dt->sql('SELECT pg_stat_statements_reset()');
}

# Charged is what is in the WAL; and that is what pg_stat_statements has seen,
# which does not see the ends of transactions unless a command makes them.
# Neither sees that the workers of a parallel CREATE INDEX lock the index, which
# they do before they begin to count.
sub check_books
{
	my ($name, $setup, $sql, $least_kb, $books, $sqlstate) = @_;

	prepare_books($setup);
	my $before = $dt->session_row($s)->{wal_bytes};
	my $from = wal_position();
	my $result = $s->run($sql);
	my $to = wal_position();
	my $charged = $dt->session_row($s)->{wal_bytes} - $before;
	my $seen = statements_wal();
	my ($records, $ends) = wal_records($from, $to);

	is($result->{sqlstate}, $sqlstate, "books, $name: the error");
	my $locks = $books eq 'locks' ? 3 * 42 : 0;
	between($records - $charged,
		0, $locks, "books, $name: bytes of all records that are not charged");
	ok($charged >= 1000 * $least_kb, "books, $name: and these are many");
	if ($books eq 'exact' || $books eq 'locks')
	{
		is($charged - $ends, $seen,
			"books, $name: bytes but for the ends of transactions");
	}
	elsif ($books eq 'some')
	{
		between($charged, $seen, $seen + $ends,
			"books, $name: bytes by pg_stat_statements");
	}
	return $result;
}

check_books('INSERT', '', 'INSERT INTO t ' . rows(300), 250, 'exact');
check_books('UPDATE', 'INSERT INTO t ' . rows(300),
	"UPDATE t SET filler = 'y'", 250, 'exact');
check_books('DELETE', 'INSERT INTO t ' . rows(300), 'DELETE FROM t', 250,
	'exact');
check_books('COPY', '', "COPY t (id) FROM PROGRAM 'seq 1 20000'", 200, 'exact');
check_books('hint bits', '', 'SELECT count(*) FROM fresh', 250, 'exact');
check_books('CREATE TABLE AS', 'DROP TABLE IF EXISTS made',
	'CREATE TABLE made AS SELECT * FROM fresh', 500, 'exact');
check_books('CREATE INDEX', '', 'CREATE INDEX ON numbers (id)', 2000, 'exact');
check_books('VACUUM', '', 'VACUUM fresh', 250, 'some');
check_books('VACUUM FULL', '', 'VACUUM FULL fresh', 250, 'some');
check_books('CREATE INDEX CONCURRENTLY', '',
	'CREATE INDEX CONCURRENTLY ON fresh (id)', 250, 'some');
check_books('a procedure with COMMIT', '', 'CALL churn(20)', 100, 'some');
check_books('ROLLBACK', '', 'BEGIN; INSERT INTO t ' . rows(300) . '; ROLLBACK',
	250, 'exact');
check_books('savepoints', '',
	"BEGIN; SAVEPOINT a; INSERT INTO t " . rows(100) . "; ROLLBACK TO a;
	SAVEPOINT b; INSERT INTO t " . rows(200) . '; COMMIT', 250, 'some');
check_books('PREPARE TRANSACTION', '',
	"BEGIN; INSERT INTO t " . rows(300) . "; PREPARE TRANSACTION 'p';
	COMMIT PREPARED 'p'", 250, 'exact');
check_books('a large object', '', "SELECT lo_from_bytea(0, convert_to(
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 10000) i),
	'UTF8'))", 250, 'exact');
check_books('an error', '',
	"INSERT INTO t SELECT i, repeat('x', 800 + 0 / (i - 300))
		FROM generate_series(1, 400) i", 250, 'none', '22012');
check_books('many transactions', '',
	join(";\n", ('INSERT INTO t ' . rows(3)) x 100), 250, 'exact');

# What parallel workers write is charged, once.
$s->query('SET max_parallel_workers_per_gather = 3;
	SET max_parallel_maintenance_workers = 3');
foreach my $leader ('on', 'off')
{
	$s->query("SET parallel_leader_participation = $leader");
	my $result = check_books(
		"a parallel query, leader participation $leader",
		'ALTER TABLE fresh SET (parallel_workers = 3)',
		'EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT count(*) FROM fresh',
		250, 'exact');
	like($result->{out}, qr/"Workers Launched": [123]/, 'it has workers');
}
check_books('a parallel CREATE INDEX',
	'ALTER TABLE fresh SET (parallel_workers = 3)',
	'CREATE INDEX ON fresh (id)', 250, 'locks');
# nothing is left that would make the next one free
check_books('the next INSERT', '', 'INSERT INTO t ' . rows(300), 250, 'exact');
$s->query('RESET max_parallel_workers_per_gather;
	RESET parallel_leader_participation');

# Many sessions, with limits, and when they have gone.
{
	my $n = 5;

	create_table("t$_", 10) foreach 1 .. $n;
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql('CHECKPOINT');
	my @members = map { $dt->session(user => 'member') } 1 .. $n;
	$members[ $_ - 1 ]->query("SET max_parallel_maintenance_workers = 0;
		EXPLAIN SELECT * FROM t$_") foreach 1 .. $n;
	$s->quit;
	fresh_limits('grp_a', 50000, 2000);
	$_->query(q{SET dirty_throttle."group" = 'grp_a'}) foreach @members;
	$dt->sql("SELECT dirty_throttle_reset('grp_a')");
	{
		my $row = $dt->group_row('grp_a');
		is("$row->{wal_bytes} $row->{pauses}", '0 0', 'a reset: no WAL');
	}
	my $from = $dt->sql('SELECT pg_current_wal_insert_lsn()');
	$members[ $_ - 1 ]->send("INSERT INTO t$_ " . rows(300) . ";
		UPDATE t$_ SET filler = 'z' WHERE id % 3 = 0;
		BEGIN;\nDELETE FROM t$_;\nROLLBACK;
		CREATE INDEX ON t$_ (id);
		VACUUM t$_") foreach 1 .. $n;
	is($_->wait->{sqlstate}, undef, 'one of many: no error') foreach @members;
	my $to = $dt->sql('SELECT pg_current_wal_insert_lsn()');
	my $row = $dt->group_row('grp_a');
	my $by_sessions =
	  $dt->sql('SELECT sum(wal_bytes) FROM dirty_throttle_sessions');

	is($row->{wal_bytes}, $by_sessions, 'many: the group has what they have');
	is($row->{wal_bytes}, (wal_records($from, $to))[0],
		'many: bytes of all records');
	ok($row->{wal_bytes} > $n * 300 * 1000 * 0.8, 'and these are many');
	ok($row->{pauses} > 0, 'and they have paused');
	is($row->{wal_bytes},
		$dt->sql(q{SELECT sum(wal_bytes) FROM dirty_throttle_sessions()}),
		'the function says the same');
	$_->quit foreach @members;
	poll_until(sub { $dt->group_row('grp_a')->{members} == 0 });
	is($dt->group_row('grp_a')->{wal_bytes},
		$by_sessions, 'they are gone, and it has what they had');
}

$dt->finish;
