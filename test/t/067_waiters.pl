# Everybody who can wait for a member that pauses: behind members that wait for
# each other, any number of them, and in any process.  The member owes hours
# here, so whoever gets what he wants has been let through.  An autovacuum
# worker is nobody to go on for; who waits for one is.  And who waits is shown,
# also when the member has gone on for him.
#
# These cannot wait for a member, and are not here: the checkpointer, the
# background writer, the WAL writer, a WAL receiver, the archiver and I/O workers
# take no locks but those that no member holds while it sleeps; who finishes a
# prepared transaction waits for none, as its locks were taken before.  Apply
# workers are background workers like the one below.  For the startup process
# see 072_replay.pl.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# takes-about: 25 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $members = 14;    # more than was ever followed
my $timeout = $ENV{DT_WAITERS_TIMEOUT} // 180;

my $dt = DirtyThrottle::Life->new(
	'waiters',
	init => [ allows_streaming => 'logical' ],
	conf => q{
autovacuum_naptime = 1s
autovacuum_vacuum_cost_delay = 0
autovacuum_multixact_freeze_max_age = 10000
deadlock_timeout = 10min
restart_after_crash = on
max_connections = 100
});
$dt->limit(grp => 0);
$dt->sql("CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot SELECT i, 0 FROM generate_series(0, 20) i;
	CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	CREATE TABLE shared (id int)");

my $insert = "INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 300) i";
my $holder = $dt->session(group => 'grp');
my @member = map { $dt->session(group => 'grp') } 1 .. $members;
my $outsider = $dt->session;
my $before;

sub update
{
	my ($id) = @_;
	return "UPDATE hot SET n = n + 1 WHERE id = $id";
}

sub waiting
{
	return $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted');
}

sub releases
{
	return $dt->group_row('grp')->{releases};
}

# The holder pauses in flight, for hours at 1 KB/s.
sub hold
{
	my ($sql, $kb) = @_;

	$dt->limit(grp => 0);
	$dt->limit(grp => $kb // 1);
	$holder->send("BEGIN; $sql; $insert; COMMIT");
	ok($dt->wait_paused($holder, 'in flight', $timeout), 'the holder pauses in flight');
}

# What the outsider wants it gets.
sub gets
{
	my ($sql, $name) = @_;
	my $before = releases();

	$outsider->send($sql);
	ok($outsider->finished($timeout), "$name: who is outside gets it");
	ok(releases() > $before, "$name: and it is counted");
	$dt->limit(grp => 0);
	$_->wait foreach $outsider, $holder, @member;
	is($dt->sql('SELECT count(*) FROM dirty_throttle_blocking'),
		0, "$name: nobody waits any more");
}

# Members, the first one behind the holder.
sub send_members
{
	my ($sql) = @_;

	foreach my $i (0 .. $#member)
	{
		$member[$i]->send($sql->($i));
		poll_until(sub { waiting() == $i + 1 }, $timeout);
	}
	is(waiting(), $members, 'all members wait');
}

# --------------------------------------------------------------- many members

hold(update(0));
send_members(
	sub { 'BEGIN; ' . update($_[0] + 1) . '; ' . update($_[0]) . '; COMMIT' });
ok($dt->wait_paused($holder, 'in flight', $timeout), 'members that wait: the holder pauses on');
gets(update($members), 'behind a chain of members');

hold(update(0));
send_members(
	sub { 'BEGIN; LOCK shared IN ROW SHARE MODE; ' . update(0) . '; COMMIT' });
gets('BEGIN; LOCK shared; COMMIT', 'behind many members');

# What he wants does not conflict with what the holder has.
hold(update(0));
$member[0]->send('BEGIN; LOCK t; COMMIT');
poll_until(sub { waiting() == 1 }, $timeout);
gets('SELECT count(*) FROM t WHERE false', 'in the queue behind a member');

# It is a parallel worker that pauses, for hint bits that it sets from the 101st
# block on, or before for a block of the catalogs; its leader, which
# dirties nothing, has no lock on the table that the function reads.
$dt->sql(q{CREATE TABLE hints (id int, filler text)
		WITH (fillfactor = 10, parallel_workers = 3);
	INSERT INTO hints SELECT i, repeat('x', 800) FROM generate_series(1, 500) i;
	CREATE FUNCTION reads_shared(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE
		AS $$ BEGIN PERFORM FROM shared; PERFORM pg_sleep(0.02); RETURN $1; END $$});
$holder->query(q{SET enable_seqscan = off;
	SELECT count(*) FROM hints WHERE ctid < '(100,0)';
	RESET enable_seqscan; SELECT reads_shared(0);
	SET max_parallel_workers_per_gather = 3;
	SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
	SET parallel_leader_participation = off;
	EXPLAIN SELECT count(reads_shared(id)) FROM hints});
$dt->sql('CHECKPOINT');
hold('SELECT count(reads_shared(id)) FROM hints', 5);
ok( poll_until(
		sub {
			$dt->sql(q{SELECT count(*) FROM pg_locks WHERE relation = 'shared'::regclass});
		},
		$timeout),
	'a parallel worker has locked what the function reads');
gets('BEGIN; LOCK shared; COMMIT', 'behind a parallel worker');
$holder->query('RESET max_parallel_workers_per_gather;
	RESET parallel_setup_cost; RESET parallel_tuple_cost;
	RESET parallel_leader_participation');

# ------------------------------------------------------------------- the view

# Somebody waits on for a member that goes on for him, at the end of which it
# stays in its transaction.
$dt->sql('SELECT dirty_throttle_reset()');
$holder->query('SET dirty_throttle.max_blocking_time = -1');
hold(update(0));
$member[0]->send('BEGIN; ' . update(1) . '; ' . update(0) . '; COMMIT');
poll_until(sub { waiting() == 1 }, $timeout);
$outsider->send(update(1));
poll_until(sub { waiting() == 2 && $dt->sql('SELECT count(waiting_since) FROM dirty_throttle_blocking') == 2 }, $timeout);
is( $dt->sql('SELECT waiting_pid FROM dirty_throttle_blocking
		WHERE holder_paused_since IS NOT NULL ORDER BY waiting_since'),
	$member[0]->pid . "\n" . $outsider->pid,
	'the view: a member that waits, and who waits behind it');
$dt->cancel_ms($_) foreach $outsider, $member[0], $holder;
$holder->query('RESET dirty_throttle.max_blocking_time');

$dt->limit(grp => 0);
$dt->limit(grp => 1);
$holder->send('BEGIN; ' . update(0) . "; $insert");
ok($dt->wait_paused($holder, 'in flight', $timeout), 'the holder pauses in flight');
$outsider->send(update(0));
ok($holder->finished($timeout), 'somebody waits: it goes on');
is( $dt->sql(
		"SELECT waiting_pid, waiting_since IS NOT NULL, locktype, holder_pid,
			holder_paused_since IS NULL,
			holder_released_since BETWEEN waiting_since AND clock_timestamp(),
			dirty_debt > 300 * 2 AND wal_debt = 0
		FROM dirty_throttle_blocking JOIN dirty_throttle_sessions ON pid = holder_pid"),
	join('|', $outsider->pid, 't', 'transactionid', $holder->pid, ('t') x 3),
	'the view: who waits for a member that was let go');
ok( $dt->sql('SELECT count(*) FROM dirty_throttle_sessions
		WHERE released_since IS NOT NULL AND pid = ' . $holder->pid) == 1,
	'the sessions: since when');
$dt->limit(grp => 0);
$holder->query('COMMIT');
$outsider->wait;
is($dt->session_row($holder)->{released_since}, undef, 'at the end it is over');

# ----------------------------------------------------------------- autovacuum

# An index that a member has locked keeps an autovacuum worker waiting; also one
# against wraparound that there is only by a parameter of the table.
$dt->sql('CREATE TABLE dead AS SELECT 1 AS i;
	CREATE INDEX dead_i ON dead (i);
	ALTER TABLE dead SET (autovacuum_vacuum_threshold = 0,
		autovacuum_vacuum_scale_factor = 0, autovacuum_enabled = on)');
$dt->sql('UPDATE dead SET i = 2');

sub autovacuum_waits
{
	my ($query, $name) = @_;
	my $before = releases();

	hold('ALTER INDEX dead_i SET TABLESPACE pg_default');
	$dt->sql('ALTER SYSTEM SET autovacuum = on');
	$dt->sql('SELECT pg_reload_conf()');
	ok( poll_until(
			sub {
				$dt->sql("SELECT count(*)
					FROM dirty_throttle_blocking, pg_stat_activity
					WHERE pid = waiting_pid AND query LIKE 'autovacuum: $query'
						AND waiting_since < clock_timestamp() - interval '500 ms' AND holder_paused_since IS NOT NULL");
			}, $timeout),
		"$name waits for a member that pauses");
	is(releases(), $before, 'and the member pauses on');
}

autovacuum_waits('VACUUM public.dead', 'an autovacuum worker');
gets('BEGIN; LOCK dead IN SHARE UPDATE EXCLUSIVE MODE; COMMIT',
	'behind an autovacuum worker');
$dt->sql('ALTER SYSTEM RESET autovacuum');
$dt->sql('SELECT pg_reload_conf()');

$dt->sql('ALTER TABLE dead SET (autovacuum_freeze_max_age = 100000);
	VACUUM dead');
$dt->sql('DO $$
	BEGIN
		FOR i IN 1 .. 101000 LOOP
			PERFORM pg_current_xact_id();
			COMMIT;
		END LOOP;
	END $$');
autovacuum_waits(
	'VACUUM public.dead (to prevent wraparound)',
	'one that the table has asked for to prevent a wraparound');
$dt->limit(grp => 0);
$holder->wait;
$dt->sql('ALTER SYSTEM RESET autovacuum');
$dt->sql('SELECT pg_reload_conf()');

# One that the whole server needs counts, here for multixacts: see the
# parameter of this server.
$dt->sql(q{DO $$ BEGIN
		PERFORM FROM hot WHERE id = 20 FOR KEY SHARE;
		FOR i IN 1 .. 11000 LOOP
			BEGIN
				PERFORM FROM hot WHERE id = 20 FOR NO KEY UPDATE;
				RAISE EXCEPTION 'again';
			EXCEPTION WHEN raise_exception THEN
				NULL;
			END;
		END LOOP;
	END $$});
$before = releases();
hold('ALTER INDEX dead_i SET TABLESPACE pg_default');
$dt->sql('ALTER SYSTEM SET autovacuum = on');
$dt->sql('SELECT pg_reload_conf()');
ok(poll_until(sub { releases() > $before }, $timeout),
	'one against wraparound: the member goes on for it');
ok( poll_until(
		sub {
			$dt->sql("SELECT mxid_age(relminmxid) < 10000 FROM pg_class
				WHERE relname = 'dead'") eq 't';
		}, $timeout),
	'... which comes to its end');
$dt->limit(grp => 0);
$holder->wait;
$dt->sql('ALTER SYSTEM RESET autovacuum');
$dt->sql('SELECT pg_reload_conf()');

# ---------------------------------------------------------- kinds of processes

# Each: its backend_type, what makes it wait, and what ends it.
my $library = compile_library('worker');
my $parallel = $dt->sql(q{SELECT name FROM pg_settings
	WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
my $walsender = $dt->session(replication => 'database');
my $worker;

$dt->sql(q{CREATE FUNCTION lock_7() RETURNS void LANGUAGE plpgsql PARALLEL SAFE
	AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); END $$});
$dt->sql("CREATE FUNCTION launch(text) RETURNS int LANGUAGE c AS '$library'")
  if $library;
foreach (
	[ 'client backend', sub { $outsider->send(update(0)) } ],
	[ 'parallel worker',
		sub {
			$outsider->query("SET $parallel = on; SET max_parallel_workers_per_gather = 1");
			$outsider->send('SELECT lock_7() FROM hot WHERE id = 0');
		},
		sub { $outsider->query("RESET $parallel") } ],
	[ 'walsender',
		sub { $walsender->send('CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL pgoutput') },
		sub { $walsender->run('DROP_REPLICATION_SLOT s') } ],
	[ 'fault worker',
		sub {
			$worker = $dt->sql(
				q{SELECT launch('SELECT pg_advisory_xact_lock(7), pg_sleep(3600)')});
		},
		# not in a commit: before 19 it may end at any instruction
		sub {
			poll_until(
				sub {
					$dt->sql("SELECT wait_event = 'PgSleep' FROM pg_stat_activity
						WHERE pid = $worker") eq 't';
				}, $timeout);
			$dt->sql("SELECT pg_terminate_backend($worker, 180000)");
		} ])
{
	my ($type, $start, $end) = @$_;

  SKIP:
	{
		skip "$type: test/fault/worker.c cannot be compiled here", 1
		  if $type eq 'fault worker' && !$library;
		foreach my $bound (-1, 100)
		{
			$before = releases();
			$holder->query("SET dirty_throttle.max_blocking_time = $bound");
			hold(update(0) . '; SELECT pg_advisory_xact_lock(7)');
			$start->();
			if ($bound < 0)
			{
				ok( poll_until(
						sub {
							$dt->sql(
								"SELECT count(*) FROM dirty_throttle_blocking, pg_stat_activity
								WHERE pid = waiting_pid AND backend_type = '$type'");
						}, $timeout),
					"$type: it waits, and is shown");
				is(releases(), $before, "$type: the member pauses on, as it is told");
			}
			else
			{
				ok(poll_until(sub { releases() > $before }, $timeout),
					"$type: the member goes on for it");
				ok(poll_until(sub { waiting() == 0 }, $timeout), "$type: it gets it");
			}
			$dt->limit(grp => 0);
			$_->wait($timeout) foreach $holder, $outsider, $walsender;
			$end->() if $end;
		}
	}
}
$walsender->quit;

# ------------------------------------------------------- prepared transactions

# They hold locks, and no process does.  The member that has prepared one, and
# pauses, is not who is waited for, and may end.
hold(update(2));
$outsider->send(update(0));
$outsider->wait;
my $preparer = $dt->session(group => 'grp');
$preparer->query('BEGIN; ' . update(0) . "; PREPARE TRANSACTION 'p'");
$preparer->send("BEGIN; $insert");
ok($dt->wait_paused($preparer, 'in flight', $timeout), 'who has prepared one pauses');
$before = releases();
$outsider->send(update(0));
ok(poll_until(sub { waiting() == 1 }, $timeout), 'somebody waits for what is prepared');
$member[0]->send('BEGIN; ' . update(3) . '; ' . update(0) . '; COMMIT');
ok(poll_until(sub { waiting() == 2 }, $timeout), 'and a member');
is( $dt->sql('SELECT DISTINCT holder_pid, holder_gid, group_name FROM dirty_throttle_blocking'),
	'|p|grp', 'nobody waits for a member, but for what is prepared');
$dt->sql('SELECT pg_terminate_backend(' . $preparer->pid . ')');
$preparer->wait;
is(releases(), $before, 'nobody was let go for that');
is($dt->sql("COMMIT PREPARED 'p'; SELECT count(*) FROM pg_prepared_xacts"), 0,
	'somebody else finishes it');
ok($outsider->finished($timeout), 'then it is to be had');
$dt->limit(grp => 0);
$_->wait foreach $outsider, $holder, @member;

# When such a member is killed, the server starts anew; what is prepared, and the
# group, are there, and nobody owes anything.
$preparer = $dt->session(group => 'grp');
$preparer->query('BEGIN; ' . update(0) . "; PREPARE TRANSACTION 'p'");
$dt->limit(grp => 1);
$preparer->send("BEGIN; $insert");
ok($dt->wait_paused($preparer, 'in flight', $timeout), 'who has prepared one pauses');
kill 'KILL', $preparer->pid;
ok(poll_until(sub { !eval { $outsider->query('SELECT 1'); 1 } }, $timeout),
	'he is killed: all sessions end');
$dt->disconnect;
ok( poll_until(
		sub {
			eval { $dt->sql("SELECT count(*) FROM pg_prepared_xacts WHERE gid = 'p'") };
		}, $timeout),
	'... and what he has prepared is there');
is($dt->left_over($timeout), '', 'nobody is in the group, nor owes it anything');
$outsider = $dt->session;
$outsider->send(update(0));
ok(poll_until(sub { waiting() == 1 }, $timeout), 'somebody waits for it');
my $member = $dt->session(group => 'grp');
$member->send("BEGIN; $insert");
ok($dt->wait_paused($member, 'in flight', $timeout), 'a member pauses meanwhile');
is( $dt->sql('SELECT count(holder_pid) FROM dirty_throttle_blocking'),
	0, '... and is not who is waited for');
$dt->sql("ROLLBACK PREPARED 'p'");
ok($outsider->finished($timeout), 'it is rolled back: then the row is to be had');
is(releases(), 0, 'nobody was let go for that');
$dt->limit(grp => 0);
$member->wait;

$dt->stop;
done_testing();
