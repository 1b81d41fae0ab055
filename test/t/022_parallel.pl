# Parallel query: what the workers dirty is charged once, to the block, to
# their leader's account; they pause, too; and however such a query ends,
# nothing is left that would make what comes after it free, or charged twice.
#
# expect-in-log: WARNING:  resource group "grp_a" does not exist
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $limit = 20000;    # KB/s
my $blocks = 800;     # a third of a second's worth

my $dt = DirtyThrottle->new(
	'parallel', conf => q{
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
min_parallel_index_scan_size = 0
});
my $version = $dt->sql("SELECT current_setting('server_version_num')");
$dt->limit(grp_a => $limit);
my $s = $dt->session(group => 'grp_a');

# Rows that nobody has looked at, one a page, in buffers that are clean.  A
# worker that sets hint bits in the catalogs while it starts is charged for it,
# and EXPLAIN does not know of it: nothing is left to be set there.
sub create_fresh_rows
{
	my ($name, $n) = @_;

	$dt->sql("DROP TABLE IF EXISTS $name;
		CREATE TABLE $name (id int, filler text)
			WITH (fillfactor = 10, parallel_workers = 4);
		VACUUM pg_class, pg_attribute, pg_type, pg_depend, pg_index;
		INSERT INTO $name
			SELECT i, repeat('x', 800) FROM generate_series(1, $n) i;
		CHECKPOINT");
}

sub set_limit
{
	my ($kb) = @_;

	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $kb);
}

sub charged
{
	return $dt->session_row($s)->{blocks_dirtied};
}

# What EXPLAIN says of a statement: blocks dirtied while it was executed and
# planned, and workers launched.
sub explained
{
	my ($session, $sql) = @_;
	my $result =
	  $session->run("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) $sql");

	die "$sql: $result->{err}" if defined $result->{sqlstate};
	my @dirtied = $result->{out} =~ /"Shared Dirtied Blocks": (\d+)/g;
	my ($planning) =
	  $result->{out} =~ /"Planning": \{[^}]*"Shared Dirtied Blocks": (\d+)/;
	my ($launched) = $result->{out} =~ /"Workers Launched": (\d+)/;
	return {
		blocks => $dirtied[0] + ($planning // 0),
		launched => $launched // 0,
	};
}

# What a statement dirties is charged, to the block, and at the limit if there is
# to be one.  The first to look at other tables has had its look.
sub check_charge
{
	my ($name, $sql, $expected, $limit) = @_;

	explained($s, $sql =~ s/\bfresh\b/warm/gr);
	my ($before, $explained);
	my $code = sub {
		$before = charged();
		$explained = explained($s, $sql);
	};
	$limit
	  ? $dt->check_limit($name, 'grp_a', $code, limit => $limit)
	  : $code->();
	my $charged = charged() - $before;

	ok($explained->{launched} > 0, "$name: workers");
	is($charged, $explained->{blocks}, "$name: blocks charged");
	between($charged, $expected->[0], $expected->[1], "$name: blocks");
}

# Nothing is free: a statement without workers is charged to the block.
sub check_books
{
	my ($name) = @_;

	create_fresh_rows('after', 50);
	$s->query('SET max_parallel_workers_per_gather = 0');
	explained($s, 'SELECT count(*) FROM warm');
	my $before = charged();
	my $explained = explained($s, 'SELECT count(*) FROM after');
	my $charged = charged() - $before;
	between($explained->{blocks}, 50, 60, "$name: the next statement: blocks");
	is($charged, $explained->{blocks},
		"$name: the next statement: blocks charged");
	$s->query('SET max_parallel_workers_per_gather = 3');
}

create_fresh_rows('warm', 100);
$s->query('SET max_parallel_workers_per_gather = 3');

# ------------------------------------------------------- charged once, paced

foreach my $leader ('on', 'off')
{
	$s->query("SET parallel_leader_participation = $leader");
	create_fresh_rows('fresh', $blocks);
	check_charge("leader participation $leader",
		'SELECT count(*) FROM fresh', [ $blocks, $blocks + 30 ], $limit);
}

# what the transaction uses after them is not theirs
{
	create_fresh_rows('fresh', $blocks);
	create_fresh_rows('after', 50);
	$s->query('SET parallel_leader_participation = off');
	explained($s, 'SELECT count(*) FROM warm');
	my $before = charged();
	$s->query('BEGIN');
	my $explained = explained($s, 'SELECT count(*) FROM fresh');
	my $used = $explained->{blocks};
	ok($explained->{launched} > 0, 'in one transaction: workers');
	$s->query('SET LOCAL max_parallel_workers_per_gather = 0');
	$used += explained($s, 'SELECT count(*) FROM after')->{blocks};
	$s->query('COMMIT');
	cmp_ok($used, '>=', $blocks + 50, 'in one transaction: blocks');
	is(charged() - $before, $used, 'in one transaction: blocks charged');
}
$s->query('RESET parallel_leader_participation');

# filters that reject every row
create_fresh_rows('fresh', $blocks);
check_charge('rows rejected', "SELECT count(*) FROM fresh WHERE filler = ''",
	[ $blocks, $blocks + 30 ], $limit);

# many rescans of a Gather
create_fresh_rows('fresh', 500);
$s->query('SET enable_material = off; SET enable_hashjoin = off;
	SET enable_mergejoin = off; SET enable_memoize = off');
check_charge('rescans',
	'SELECT * FROM (SELECT count(id) FROM fresh WHERE id > 10) c
		RIGHT JOIN (VALUES (1), (2), (3)) v ON true', [ 500, 530 ]);
check_books('rescans');
$s->query('RESET enable_material; RESET enable_hashjoin;
	RESET enable_mergejoin; RESET enable_memoize');

# CREATE TABLE AS and SELECT INTO: workers read, the leader writes
create_fresh_rows('fresh', 500);
$s->query('DROP TABLE IF EXISTS made');
my $before = charged();
my $explained =
  explained($s, 'CREATE TABLE made AS SELECT id FROM fresh WHERE id > 0');
ok($explained->{launched} > 0, 'CREATE TABLE AS: workers');
between(charged() - $before, 500, 700, 'CREATE TABLE AS: blocks');
check_books('CREATE TABLE AS');

# what workers dirty in functions
$dt->sql('CREATE FUNCTION look(name text) RETURNS int PARALLEL SAFE STABLE
	LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN
		EXECUTE format($q$SELECT count(*) FROM %I$q$, name) INTO n;
		RETURN n; END $$');
create_fresh_rows('fresh', 400);
check_charge('functions in workers',
	"SELECT count(look('fresh')) FROM warm WHERE id <= 8", [ 400, 430 ]);
check_books('functions in workers');

# ------------------------------------------------------------ LIMIT, cursors

create_fresh_rows('fresh', 1500);
explained($s, 'SELECT id FROM warm WHERE id > 0 LIMIT 10');
$before = charged();
$explained = explained($s, 'SELECT id FROM fresh WHERE id > 0 LIMIT 10');
ok($explained->{launched} > 0, 'LIMIT: workers');
is(charged() - $before, $explained->{blocks}, 'LIMIT: blocks charged');
check_books('LIMIT');

# a portal that is closed before its end runs without workers; one with a
# plan that has them must be charged all the same
create_fresh_rows('fresh', 300);
$before = charged();
$s->run("BEGIN;\nDECLARE c CURSOR FOR SELECT id FROM fresh;\n"
	  . "FETCH 10 FROM c;\nFETCH 10 FROM c;\nCLOSE c;\nCOMMIT");
between(charged() - $before, 20, 80, 'a cursor: blocks charged');
check_books('a cursor');

# --------------------------------------------------------- errors and cancels

$dt->sql('CREATE FUNCTION fail_at(i int, at int) RETURNS int PARALLEL SAFE
	IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
		IF i = at THEN RAISE EXCEPTION $m$at %$m$, at; END IF;
		RETURN i; END $$');

foreach my $participation ('on', 'off')
{
	my $name = "an error, leader participation $participation";

	$s->query("SET parallel_leader_participation = $participation");
	create_fresh_rows('fresh', 500);
	$before = charged();
	is( $s->run('SELECT count(fail_at(id, 400)) FROM fresh')->{sqlstate},
		'P0001', "$name fails");
	between(charged() - $before, 200, 530, "$name: blocks");
	check_books($name);

	# caught, in a function; what comes after it in there
	$name .= ', caught';
	create_fresh_rows('fresh', 500);
	create_fresh_rows('after', 300);
	$before = charged();
	$s->query(
		'DO $$ DECLARE n int; BEGIN
			BEGIN
				SELECT count(fail_at(id, 450)) INTO n FROM fresh;
			EXCEPTION WHEN raise_exception THEN
			END;
			PERFORM count(*) FROM after;
		END $$');
	between(charged() - $before, 500, 850, "$name: blocks");
	check_books($name);
}
$s->query('RESET parallel_leader_participation');

# A worker that has ended before the leader fails.
create_fresh_rows('fresh', 500);
$s->run('SELECT fail_at(count(*)::int, 500) FROM fresh');
check_books('an error of the leader');

# Errors that the leader catches while workers run.  Before 17 it cannot.
SKIP:
{
	skip 'no subtransactions in parallel mode', 4 if $version < 170000;

	$dt->sql('CREATE FUNCTION catches(i int) RETURNS int PARALLEL RESTRICTED
		LANGUAGE plpgsql AS $$ BEGIN
			BEGIN
				RAISE EXCEPTION $m$no$m$;
			EXCEPTION WHEN raise_exception THEN
			END;
			RETURN i; END $$');
	$s->query('SET parallel_leader_participation = off');
	create_fresh_rows('fresh', 1000);
	check_charge('errors caught by the leader',
		'SELECT catches(id) FROM fresh WHERE id > 0', [ 1000, 1030 ]);
	check_books('errors caught by the leader');
	$s->query('RESET parallel_leader_participation');
}

sub workers_pause
{
	return poll_until(
		sub {
			$dt->sql(
				"SELECT count(*) FROM pg_stat_activity
				 WHERE backend_type = 'parallel worker'
				   AND wait_event IN ('DirtyThrottle', 'Extension')") > 0;
		});
}

# Cancelled while it pauses for minutes: leader and workers go.
foreach my $participation ('on', 'off')
{
	my $name = "cancelled, leader participation $participation";

	$s->query("SET parallel_leader_participation = $participation");
	create_fresh_rows('fresh', 5 * $blocks);
	set_limit(10);
	# long enough for all of them to notice
	$s->send('SELECT count(*) FROM fresh WHERE length(repeat(md5(id::text), 2000)) > 0');
	ok( poll_until(
			sub {
				defined $dt->session_row($s)->{paused_since};
			}),
		"$name: it pauses, and its row shows that");
	ok(workers_pause(), "$name: workers pause");
	is($dt->group_row('grp_a')->{paused},
		1, "$name: it counts as one that pauses");
	is($dt->group_row('grp_a')->{members}, 1, "$name: and one member");
	$dt->cancel_ms($s);
	is($dt->group_row('grp_a')->{paused},
		0, "$name: nobody pauses any more");
	$dt->limit(grp_a => 0);
	check_books($name);
}
$s->query('RESET parallel_leader_participation');

create_fresh_rows('fresh', $blocks);
set_limit(10);
$s->query('SET statement_timeout = 400');
my $result = $s->run('SELECT count(*) FROM fresh');
is($result->{sqlstate}, '57014', 'statement_timeout');
cmp_ok($result->{ms}, '>=', 400, 'statement_timeout: ms');
$dt->limit(grp_a => 0);
$s->query('RESET statement_timeout');
check_books('statement_timeout');

# A terminated leader: its workers go, the account is in order.
create_fresh_rows('fresh', $blocks);
set_limit(10);
my $s2 = $dt->session(group => 'grp_a');
$s2->query('SET max_parallel_workers_per_gather = 3');
$s2->send('SELECT count(*) FROM fresh');
poll_until(sub { $dt->session_row($s2)->{blocks_dirtied} > 0 });
$dt->terminate_ms($s2);
ok( poll_until(
		sub {
			my $row = $dt->group_row('grp_a');
			$row->{members} == 1 && $row->{paused} == 0
			  && $dt->sql("SELECT count(*) FROM pg_stat_activity
				WHERE backend_type = 'parallel worker'") == 0;
		}),
	'a terminated leader leaves nobody behind');
$dt->limit(grp_a => 0);
check_books('a terminated leader');

# -------------------------------------------------------- changes on the way

foreach my $change (
	[ 'a raised limit', sub { $dt->limit(grp_a => 400000) } ],
	[ 'a removed limit', sub { $dt->limit(grp_a => 0) } ],
	[ 'a renamed group', sub {
			$dt->sql("SELECT rename_resource_group('grp_a', 'grp_b')");
			$dt->sql("SELECT rename_resource_group('grp_b', 'grp_a')");
			$dt->limit(grp_a => 400000);
	} ],
	[ 'a dropped group', sub {
			$dt->sql("SELECT drop_resource_group('grp_a', force => true)");
	} ])
{
	my ($name, $code) = @$change;

	create_fresh_rows('fresh', $blocks);
	set_limit(10);
	my $before = charged();
	$s->send('SELECT count(*) FROM fresh');
	ok(poll_until(sub { charged() > $before }), "$name: a query of minutes is under way");
	$code->();
	is($s->wait->{out}, $blocks, "$name wakes leader and workers: the result");
}
$dt->limit(grp_a => 0);
$s->query(q{SET dirty_throttle."group" = 'grp_a'});
check_books('changes');

# --------------------------------------------------------- everything at once

# Every plan in a worker: nothing but the results must be the same.
my $force =
  $version >= 160000 ? 'debug_parallel_query' : 'force_parallel_mode';
$dt->limit(grp_a => 50000);
$s->query("SET $force = on");
create_fresh_rows('fresh', 300);
$before = charged();
is($s->query('SELECT count(*), sum(id) FROM fresh'),
	'300|45150', "$force: a result");
between(charged() - $before, 300, 340, "$force: blocks");
is( $s->query(
		'SELECT count(*) FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid'),
	$dt->sql(
		'SELECT count(*) FROM pg_class c JOIN pg_attribute a ON attrelid = c.oid'),
	"$force: another one");
is($s->run('SELECT fail_at(7, id) FROM fresh')->{sqlstate},
	'P0001', "$force: an error");
$s->query("RESET $force");
check_books($force);

# btree builds have workers of their own, without executor
create_fresh_rows('fresh', 500);
$s->query('SET max_parallel_maintenance_workers = 3');
$before = charged();
$s->query('CREATE INDEX ON fresh (id)');
between(charged() - $before, 500, 560, 'a parallel CREATE INDEX: blocks');
check_books('a parallel CREATE INDEX');

# These and those of VACUUM pause while they work, too, and also when the session
# was moved.  Each works for long enough to notice.
create_fresh_rows('fresh', 5 * $blocks);
$dt->sql(
	'CREATE TABLE indexed (a int, b int, c int) WITH (autovacuum_enabled = off);
	INSERT INTO indexed SELECT i, i, i FROM generate_series(1, 200000) i;
	CREATE INDEX ON indexed (a);
	CREATE INDEX ON indexed (b);
	CREATE INDEX ON indexed (c);
	DELETE FROM indexed WHERE a % 2 = 0;
	CHECKPOINT');
my $create_index = 'CREATE INDEX ON fresh (md5(repeat(id::text, 2000)))';
my $moved = $dt->session;
$moved->query('SET max_parallel_maintenance_workers = 3');
$dt->sql('SELECT set_session_group(' . $moved->pid . ", 'grp_a')");
foreach my $case (
	[ $s, $create_index ],
	[ $s, 'VACUUM (PARALLEL 2) indexed' ],
	[ $moved, $create_index ])
{
	my ($session, $command) = @$case;
	my $name = $command . ($session == $moved ? ', moved' : '');

	set_limit(4000);		# VACUUM comes to the indexes in two seconds
	$session->send($command);
	ok(workers_pause(), "$name: workers pause");
	$dt->cancel_ms($session);
	$dt->limit(grp_a => 0);
	check_books($name);
}
$moved->quit;

$s->quit;
ok(poll_until(
		sub { $dt->group_row('grp_a')->{members} == 0 }),
	'nobody is left in the group');

# A parallel query ends well, and then its (sub)transaction fails before the
# leader has charged anything: its workers' blocks are in its counter already,
# and must not be charged again.  If it fails itself, after that, they are.
$dt->limit(grp_a => 0);
$s = $dt->session(group => 'grp_a');
$s->query('SET max_parallel_workers_per_gather = 4;
	SET parallel_leader_participation = off');
my $count = "count(*) FROM once WHERE filler <> 'y'";
foreach my $case (
	[ 'a caught error after it', "DO \$\$ BEGIN PERFORM $count; PERFORM 1/0;
		EXCEPTION WHEN division_by_zero THEN END \$\$", 402 ],
	[ 'ROLLBACK TO', "BEGIN; SAVEPOINT a; SELECT $count; ROLLBACK TO a; COMMIT", 402 ],
	[ 'an error above its Gather', "SELECT 1/(count(*) - 400) FROM once
		WHERE filler <> 'y'", 804 ],
	[ 'the same in a subtransaction', "BEGIN; SAVEPOINT a;
		SELECT 1/(count(*) - 400) FROM once WHERE filler <> 'y';
		ROLLBACK TO a; COMMIT", 804 ])
{
	my ($name, $sql, $most) = @$case;

	create_fresh_rows('once', 400);
	$s->query('EXPLAIN SELECT * FROM once');
	my $before = charged();
	$s->run($sql);
	between(charged() - $before, 400, $most, "$name: blocks charged");
}

$dt->finish;
