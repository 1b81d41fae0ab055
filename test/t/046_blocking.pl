# Who waits for a lock of a member that pauses: the view
# dirty_throttle_blocking, and dirty_throttle.release_blockers, which bounds
# how long somebody outside its group has to.  What the member did not pay in
# flight then, it pays after the transaction.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 4000;     # KB/s
my $blocks = 2000;    # some four seconds' worth
my $bound = 300;      # ms

my $dt = DirtyThrottle->new('blocking');
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => 0);
$dt->sql('CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot SELECT i, 0 FROM generate_series(1, 5) i;
	CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	CREATE TABLE elsewhere AS SELECT 1 AS id;
	CREATE ROLE watcher LOGIN;
	CREATE ROLE waiter SUPERUSER LOGIN');

my $insert = "INSERT INTO t
	SELECT i, repeat('x', 800) FROM generate_series(1, $blocks) i";
my $update = 'UPDATE hot SET n = n + 1 WHERE id = 1';
my $holder = $dt->session(group => 'grp_a');
my $outsider = $dt->session(user => 'waiter');

sub blocking
{
	my ($columns) = @_;
	return $dt->sql("SELECT $columns FROM dirty_throttle_blocking");
}

# The holder pauses in flight, with locks.
sub hold
{
	my ($sql) = @_;

	$dt->limit(grp_a => 0);
	$dt->limit(grp_a => $limit);
	$holder->send($sql);
	ok($dt->wait_paused($holder, 'in flight'), 'the holder pauses in flight');
}

# Let it go, to its end.
sub let_go
{
	$dt->limit(grp_a => 0);
	my $r = $holder->wait;
	is($r->{sqlstate}, undef, 'the holder has no error') or diag $r->{err};
}

# ------------------------------------------------------------------ the view

is(blocking('count(*)'), 0, 'nobody waits');
hold("BEGIN; $update; SELECT pg_advisory_xact_lock(7); $insert; COMMIT");
$dt->limit(grp_a => 1);    # one long pause
ok($dt->wait_paused($holder, 'in flight'), 'the holder sleeps on');
is(blocking('count(*)'), 0, 'a member that pauses, and nobody waits');

foreach my $case (
	[ 'a row', $update, 'transactionid|ShareLock|' ],
	[ 'a table', 'LOCK t', 'relation|AccessExclusiveLock|t' ],
	[ 'a table, weakly', 'LOCK t IN SHARE MODE', 'relation|ShareLock|t' ],
	[ 'an advisory lock', 'SELECT pg_advisory_xact_lock(7)',
		'advisory|ExclusiveLock|' ],
	[ 'CREATE INDEX CONCURRENTLY', 'CREATE INDEX CONCURRENTLY ON t (id)',
		'virtualxid|ShareLock|' ])
{
	my ($name, $sql, $expected) = @$case;

	$outsider->query('BEGIN') unless $name =~ /INDEX/;
	$outsider->send($sql);
	ok(poll_until(sub { blocking('count(*)') == 1 }, 5), "$name: it is shown");
	is(blocking('locktype, lockmode, relation'), $expected,
		"$name: for what it waits");
	is(blocking('waiting_pid, holder_pid, group_name'),
		$outsider->pid . '|' . $holder->pid . '|grp_a', "$name: who and whom");
	$dt->cancel_ms($outsider);
	$outsider->run('ROLLBACK') unless $name =~ /INDEX/;
	is(blocking('count(*)'), 0, "$name: not any more");
}

$outsider->query("SET application_name = 'the app'");
$outsider->send($update);
poll_until(sub { blocking('count(waiting_since)') == 1 }, 5);
is( blocking('waiting_usename, waiting_datname, waiting_application_name'),
	'waiter|postgres|the app', 'who waits');
my $waited = blocking('waiting_time');
sleep 0.3;
between(blocking('waiting_time') - $waited, 290, 1000, 'for how long, ms more');
is( blocking("waiting_time BETWEEN
		extract(epoch FROM clock_timestamp() - waiting_since) * 1000 - 1000 AND
		extract(epoch FROM clock_timestamp() - waiting_since) * 1000"),
	't', 'since when it waits');
is( blocking("holder_paused_since > now() - interval '1 min'
		AND holder_paused_since <= clock_timestamp()"),
	't', 'since when the holder pauses');

# who waits behind somebody else does not wait for the holder
my $second = $dt->session;
$second->send($update);
ok( poll_until(
		sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 2 },
		5),
	'a second one waits');
is(blocking('waiting_pid'), $outsider->pid,
	'it is the first one that waits for the holder');
$dt->cancel_ms($second);

# another member of the group
my $colleague = $dt->session(group => 'grp_a');
$colleague->send('BEGIN; LOCK t; COMMIT');
ok(poll_until(sub { blocking('count(*)') == 2 }, 5),
	'a member of the same group is shown, too');
$dt->cancel_ms($colleague);

# from another database, and for whom it is not
$dt->sql('CREATE DATABASE other');
my $elsewhere = $dt->session(dbname => 'other');
$elsewhere->query('CREATE EXTENSION dirty_throttle');
$dt->cancel_ms($outsider);
$outsider->send('BEGIN; LOCK t; COMMIT');
poll_until(sub { blocking('count(*)') == 1 }, 5);
is( $elsewhere->query(
		'SELECT waiting_datname, relation FROM dirty_throttle_blocking'),
	'postgres|' . $dt->sql("SELECT 't'::regclass::oid"),
	'in another database: the OID of the table');
$elsewhere->quit;
my $watcher = $dt->session(user => 'watcher');
is($watcher->query('SELECT count(*) FROM dirty_throttle_blocking'),
	0, "others' members are not for everybody to see");
$dt->sql('GRANT pg_read_all_stats TO watcher');
is( $watcher->query('SELECT waiting_usename, waiting_application_name, relation
		FROM dirty_throttle_blocking'),
	'waiter|the app|t', 'but for pg_read_all_stats');
$watcher->quit;
$dt->cancel_ms($outsider);
let_go();

# somebody who does not pause
$second->query("BEGIN; $update");
$outsider->send($update);
ok( poll_until(
		sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 },
		5),
	'somebody waits for a session without a group');
is(blocking('count(*)'), 0, 'that is not shown');
$second->query('ROLLBACK');
$outsider->wait;

# ------------------------------------------------------------- the parameter

is($dt->sql('SHOW dirty_throttle.release_blockers'), '0', 'off by default');
$watcher = $dt->session(user => 'watcher');
is($watcher->run('SET dirty_throttle.release_blockers = 100')->{sqlstate},
	'42501', 'not for everybody to set');
$watcher->quit;
is($outsider->run('SET dirty_throttle.release_blockers = -1')->{sqlstate},
	'22023', 'not negative');
is($outsider->query("SET dirty_throttle.release_blockers = '2s';
		SHOW dirty_throttle.release_blockers"), '2s', 'a time');
$outsider->query('RESET dirty_throttle.release_blockers');

# How long the outsider waits for what the holder has, in ms.  The holder's
# transaction and all that comes after it take the time that they must take.
sub wait_ms
{
	my ($name, $sql, $wanted, $expect_release) = @_;
	my ($ms, $held);

	at_limit(
		sub {
			$dt->sql('TRUNCATE t');
			my $before = $dt->session_row($holder)->{blocks_dirtied};
			my $start = time;
			hold($sql);
			$ms = elapsed_ms(sub { $outsider->query($wanted) });
			if ($expect_release)
			{
				ok($dt->wait_paused($holder, 'after transaction'),
					"$name: then the holder pays after its transaction");
				between($dt->session_row($holder)->{debt_kb},
					0.5 * $blocks * $dt->block_kb,
					1.2 * $blocks * $dt->block_kb, "$name: its debt, KB");
			}
			is($holder->wait->{sqlstate}, undef, "$name: the holder has no error");
			$held = time - $start;
			return 100 * ($dt->session_row($holder)->{blocks_dirtied} - $before)
			  * $dt->block_kb / $held / $limit;
		},
		"$name: the holder, all in all");
	diag(sprintf '%s: an outsider waits for %.0f ms', $name, $ms);
	return $ms;
}

my $transaction = "BEGIN; $update; $insert; COMMIT";
my $outside = wait_ms('without release_blockers', $transaction, $update, 0);
between($outside, 2500, 60000, 'without release_blockers: ms');

$holder->query("SET dirty_throttle.release_blockers = $bound");
foreach my $case (
	[ 'a hot row', $transaction, $update ],
	[ 'a table lock', $transaction, 'BEGIN; LOCK t; COMMIT' ],
	# which waits for whoever may still see rows without an index entry
	[ 'its snapshot', $transaction,
		'CREATE INDEX CONCURRENTLY ON elsewhere (id)' ])
{
	my ($name, $sql, $wanted) = @$case;
	my $ms = wait_ms($name, $sql, $wanted, 1);

	between($ms, $bound - 50, $bound + 1200, "$name: ms");
	ok($ms < $outside / 2, "$name: much shorter than without");
}

# What comes next pauses in flight again.
hold($insert);
$dt->cancel_ms($holder);

# COPY, and the whole server
$holder->query('RESET dirty_throttle.release_blockers');
$dt->limit(grp_a => 0);
$dt->set_conf('dirty_throttle.release_blockers', "${bound}ms", $holder, $outsider);
my $copied = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($copied,
	join('', map { "$_\t" . 'x' x 800 . "\n" } 1 .. $blocks));
between(
	wait_ms('COPY', "COPY t FROM '$copied'", 'BEGIN; LOCK t; COMMIT', 1),
	$bound - 50, $bound + 1200, 'COPY: ms');

# A member of the same group waits as long as it takes.
hold($transaction);
$colleague->send($update);
ok( poll_until(
		sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 },
		5),
	'a member of the same group waits');
ok(!$colleague->finished(4 * $bound / 1000),
	'a member of the same group: it waits on');
ok($dt->wait_paused($holder, 'in flight', 1),
	'a member of the same group: the holder pauses on');
is($dt->sql('SELECT xact_start IS NOT NULL FROM pg_stat_activity WHERE pid = '
		  . $holder->pid), 't', 'a member of the same group: in flight');

# a member of another one does not have to
my $stranger = $dt->session(group => 'grp_b');
between(
	elapsed_ms(sub { $stranger->query('BEGIN; LOCK t; COMMIT') }),
	$bound - 50, $bound + 1200, 'a member of another group: ms');
let_go();
is($colleague->wait->{sqlstate}, undef, 'the member of the same group goes on');
$stranger->quit;

# A wait that is shorter is none of its business.
hold($transaction);
$outsider->query("SET lock_timeout = '100ms'");
foreach (1 .. 5)
{
	is($outsider->run($update)->{sqlstate}, '55P03', 'a shorter wait');
}
$outsider->query('RESET lock_timeout');
ok($dt->wait_paused($holder, 'in flight', 1), 'the holder pauses on in flight');
let_go();

# A group that is paused hard
$dt->limit(grp_a => 0);
$holder->send("BEGIN; $update; INSERT INTO t SELECT i FROM
	(SELECT i, pg_sleep(0.001) FROM generate_series(1, 400) i OFFSET 0) q;
	COMMIT");
sleep 0.1;
$dt->sql("SELECT pause_group('grp_a', true)");
ok($dt->wait_paused($holder, 'in flight'), 'paused hard, with a lock');
my $ms = elapsed_ms(sub { $outsider->query($update) });
between($ms, $bound - 50, $bound + 3000, 'a group that is paused hard: ms');
ok($dt->wait_paused($holder, 'after transaction'),
	'a group that is paused hard: then the holder stops after its transaction');
$dt->sql("SELECT resume_group('grp_a')");
is($holder->wait->{sqlstate}, undef, 'and goes on with the group');

is( $dt->sql("SELECT sum(paused_processes) FROM dirty_throttle_groups"),
	0, 'nobody pauses');
$dt->finish;
