# Who waits for a lock of a member that pauses: the view
# dirty_throttle_blocking, and dirty_throttle.max_blocking_time, which bounds
# how long somebody has to, whatever kind of lock it is.  For as long as anybody
# waits, the member goes on without pausing; it is counted; and it pays after its
# transaction.  For others of its group it goes on only until it owes too much.
# All kinds of waiting, to the millisecond, are in 114_waiters.pl.
#
# So a deadlock ends as it does without a limit, for the same session.
#
# The holder's pauses would last for many minutes: who gets its lock within the
# time-out has not waited for them.  How long exactly, see 104_modes.pl.
#
# takes-about: 30 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 10;       # KB/s
my $blocks = 1000;    # 800 s
my $bound = 100;      # ms, the default

my $dt = DirtyThrottle->new(
	'blocking', conf => q{
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
deadlock_timeout = 10min
});
my $version = $dt->sql("SELECT current_setting('server_version_num')");
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => 0);
$dt->sql('CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot SELECT i, 0 FROM generate_series(1, 5) i;
	CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	CREATE TABLE elsewhere AS SELECT 1 AS id;
	CREATE TABLE extended (id int);
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

# How many wait for a lock.
sub waiting
{
	return $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted');
}

# How often a member of the group has gone on for others, as the group says,
# and the holder.
sub releases
{
	return join '|', $dt->group_row('grp_a')->{releases},
	  $dt->session_row($holder)->{releases};
}

# ------------------------------------------------------------------ the view

is(blocking('count(*)'), 0, 'nobody waits');
$holder->query('SET dirty_throttle.max_blocking_time = -1');
hold("BEGIN; $update; SELECT pg_advisory_xact_lock(7); $insert; COMMIT");
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
	ok(poll_until(sub { blocking('count(*)') == 1 }), "$name: it is shown");
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
poll_until(sub { blocking('count(waiting_since)') == 1 });
my $since = blocking('waiting_since');
sleep 0.3;
is(blocking("waiting_since = '$since' AND waiting_since <= clock_timestamp() - interval '290 ms'"),
	't', 'since when it waits');
is( blocking("holder_paused_since > now() - interval '1 hour'
		AND holder_paused_since <= clock_timestamp()"),
	't', 'since when the holder pauses');

# who waits behind somebody else waits for the holder, too
my $second = $dt->session;
$second->send($update);
ok( poll_until(
		sub { $dt->sql('SELECT count(waiting_since) FROM dirty_throttle_blocking') == 2 }),
	'a second one waits');
is( $dt->sql('SELECT waiting_pid FROM dirty_throttle_blocking ORDER BY waiting_since'),
	join("\n", $outsider->pid, $second->pid),
	'both wait for the holder');
$dt->cancel_ms($second);

# another member of the group
my $colleague = $dt->session(group => 'grp_a');
$colleague->send('BEGIN; LOCK t; COMMIT');
ok(poll_until(sub { blocking('count(*)') == 2 }),
	'a member of the same group is shown, too');
$dt->cancel_ms($colleague);

# from another database, and for whom it is not
$dt->sql('CREATE DATABASE other');
my $elsewhere = $dt->session(dbname => 'other');
$elsewhere->query('CREATE EXTENSION dirty_throttle');
$dt->cancel_ms($outsider);
$outsider->send('BEGIN; LOCK t; COMMIT');
poll_until(sub { blocking('count(*)') == 1 });
is($elsewhere->query('SELECT relation FROM dirty_throttle_blocking'),
	$dt->sql("SELECT 't'::regclass::oid"),
	'in another database: the OID of the table');
$elsewhere->quit;
my $watcher = $dt->session(user => 'watcher');
is($watcher->query('SELECT count(*) FROM dirty_throttle_blocking'),
	0, "others' members are not for everybody to see");
$dt->sql('GRANT pg_read_all_stats TO watcher');
is( $watcher->query('SELECT usename, application_name, relation
		FROM dirty_throttle_blocking JOIN pg_stat_activity ON pid = waiting_pid'),
	'waiter|the app|t', 'but for pg_read_all_stats');
$watcher->quit;
$dt->cancel_ms($outsider);
let_go();

# somebody who does not pause
$second->query("BEGIN; $update");
$outsider->send($update);
ok( poll_until(
		sub { $dt->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') == 1 }),
	'somebody waits for a session without a group');
is(blocking('count(*)'), 0, 'that is not shown');
$second->query('ROLLBACK');
$outsider->wait;

# ------------------------------------------------------------- the parameter

is($dt->sql('SHOW dirty_throttle.max_blocking_time'), '100ms', 'the default');
$watcher = $dt->session(user => 'watcher');
is($watcher->run('SET dirty_throttle.max_blocking_time = 100')->{sqlstate},
	'42501', 'not for everybody to set');
$watcher->quit;
is($outsider->run('SET dirty_throttle.max_blocking_time = -2')->{sqlstate},
	'22023', 'not below -1');
is($outsider->query("SET dirty_throttle.max_blocking_time = '2s';
		SHOW dirty_throttle.max_blocking_time"), '2s', 'a time');
$outsider->query('RESET dirty_throttle.max_blocking_time');

# ------------------------------------------------------------- short attempts

# Who tries again and again, for a shorter time each, has waited for all of it.
my $patient = $dt->session(group => 'grp_a');
$patient->query(q{SET dirty_throttle.max_blocking_time = '300ms'});
$dt->limit(grp_a => 0);
$dt->limit(grp_a => $limit);
$patient->send("BEGIN; $update; $insert; COMMIT");
ok($dt->wait_paused($patient, 'in flight'), 'a member pauses in flight');
my $impatient = $dt->session;    # who has not waited before
$impatient->query("SET lock_timeout = '50ms'");
ok(poll_until(sub { !defined $impatient->run($update)->{sqlstate} }),
	'a row is to be had in attempts of 50 ms');
$impatient->quit;
$dt->limit(grp_a => 0);
is($patient->wait->{sqlstate}, undef, 'the member has no error');
$patient->quit;

# ----------------------------------------------------------- all kinds of locks

# A function that waits for a lock in a parallel worker.
$dt->sql('CREATE FUNCTION lock_7() RETURNS void LANGUAGE plpgsql PARALLEL SAFE
	AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); END $$');
my $in_worker = $version < 160000 ? 'force_parallel_mode' : 'debug_parallel_query';

# Rows that nobody has looked at: a worker that does dirties their pages.
sub create_fresh
{
	$dt->sql('DROP TABLE IF EXISTS fresh;
		CREATE TABLE fresh WITH (parallel_workers = 2) AS
			SELECT i AS id FROM generate_series(1, 200000) i');
}
$holder->query('SET max_parallel_workers_per_gather = 2;
	SET parallel_leader_participation = off');

my $locks = "$update; SELECT pg_advisory_xact_lock(7)";
my $transaction = "BEGIN; $locks; $insert; COMMIT";
my $in_parallel = "BEGIN; $locks; SELECT count(*) FROM fresh
	WHERE id < 0; COMMIT";
my $lock_7 = 'SELECT pg_advisory_xact_lock(7)';

# Each: what the holder does, what the outsider wants, and what is done before.
my @cases = (
	[ 'a row', $transaction, $update ],
	[ 'a table', $transaction, 'BEGIN; LOCK t; COMMIT' ],
	# which waits for whoever may still see rows without an index entry
	[ 'a snapshot', $transaction, 'CREATE INDEX CONCURRENTLY ON elsewhere (id)' ],
	[ 'an advisory lock', $transaction, $lock_7 ],
	[ 'an advisory lock, in a worker', $transaction,
		"SET $in_worker = on; SET max_parallel_workers_per_gather = 1;
		SELECT lock_7() FROM elsewhere;
		RESET $in_worker; RESET max_parallel_workers_per_gather" ],
	[ 'a row, of a leader whose workers pause', $in_parallel, $update, \&create_fresh ]);

# How often the processes of the holder have been released.
sub holder_releases
{
	return $dt->session_row($holder)->{releases};
}

# Without a bound: as long as the holder pauses.  What several wait for that are in
# nobody else's way is tried at the same time.
my $released = releases();
foreach my $set (
	[ grep { $_->[1] eq $transaction && $_->[0] !~ /snapshot|worker/ } @cases ],
	map { [$_] } grep { $_->[1] ne $transaction || $_->[0] =~ /snapshot|worker/ } @cases)
{
	my @waiting = map { $dt->session } @$set;

	$set->[0][3]->() if $set->[0][3];
	hold($set->[0][1]);
	$waiting[$_]->send($set->[$_][2]) foreach 0 .. $#$set;
	ok(poll_until(sub { waiting() == @waiting }), 'they wait');
	sleep 0.3;
	ok(!$waiting[$_]->finished, "$set->[$_][0], without a bound: it waits on")
	  foreach 0 .. $#$set;
	is(releases(), $released, 'without a bound nobody is released');
	let_go();
	foreach (0 .. $#$set)
	{
		is($waiting[$_]->wait->{sqlstate}, undef,
			"$set->[$_][0], without a bound: then the outsider gets it");
		$waiting[$_]->quit;
	}
}

foreach my $value ($bound, 0)
{
	$holder->query("SET dirty_throttle.max_blocking_time = $value");
	foreach my $case (@cases)
	{
		my ($name, $sql, $wanted, $before) = @$case;
		my ($in_group, $in_session) = split /\|/, releases();
		my $waiting = $dt->session;

		$name .= ", max_blocking_time = $value";
		$before->() if $before;
		hold($sql);
		my $r = $waiting->run($wanted);
		is($r->{sqlstate}, undef, "$name: the outsider gets it");
		cmp_ok($r->{ms}, '>=', 0.9 * $value, "$name: ms");
		my ($group_now, $session_now) = split /\|/, releases();

		# a busy machine may not run it for so long that it is let go again
		cmp_ok($session_now, '>', $in_session, "$name: it is counted");
		is($group_now - $in_group, $session_now - $in_session, "$name: for the group as well");
		let_go();
		$waiting->quit;
	}
}
$holder->query('RESET dirty_throttle.max_blocking_time');

# --------------------------------------------------------- extension of a table

# Nobody pauses while he extends a table, also not for other members.
SKIP:
{
	my $so = compile_library('extension_lock')
	  or skip 'the function that extends cannot be compiled here', 1;
	$dt->sql("CREATE FUNCTION hold_extension_lock(regclass, int) RETURNS void
		AS '$so' LANGUAGE C STRICT");
	$holder->query('SET dirty_throttle.max_blocking_time = -1');
	my $mate = $dt->session(group => 'grp_a');
	my $released = releases();
	foreach my $other ($mate, $outsider)
	{
		$dt->limit(grp_a => 0);
		$dt->limit(grp_a => $limit);
		$dt->sql('TRUNCATE extended');    # so that whoever inserts extends it
		$holder->send("BEGIN; SELECT hold_extension_lock('extended', $blocks); COMMIT");
		ok( poll_until(
				sub { $dt->sql("SELECT count(*) FROM pg_locks WHERE locktype = 'extend'") > 0 }),
			'the holder extends the table');
		is($other->run('INSERT INTO extended VALUES (1)')->{sqlstate}, undef,
			'somebody inserts into the same table');
		ok($dt->wait_paused($holder), 'the holder pauses when it has extended the table');
		let_go();
	}
	is(releases(), $released, 'nobody was released for that');
	$mate->quit;
	$holder->query('RESET dirty_throttle.max_blocking_time');
}

# ------------------------------------------------------------ what is owed stays

# Who was released pays after his transaction.
$holder->query(q{SET dirty_throttle.max_commit_pause = '1d'});
$dt->check_limit(
	'released',
	'grp_a',
	sub {
		hold($transaction);
		is($outsider->run($update)->{sqlstate}, undef, 'the outsider gets it');
		ok($dt->wait_paused($holder, 'after transaction'),
			'released: it pays after its transaction');
		cmp_ok($dt->session_row($holder)->{dirty_debt},
			'>=', 0.5 * $blocks * $dt->block_kb, 'its debt, KB');
	},
	limit => $limit);
let_go();
$holder->query('RESET dirty_throttle.max_commit_pause');

# ------------------------------------------------ only while somebody waits

# Statements that take long when they do not pause: 20 s, if not minutes.
$dt->sql("CREATE TABLE slow (id int, filler text) WITH (fillfactor = 10);
	INSERT INTO slow SELECT i, repeat('x', 800) FROM generate_series(1, 2000) i");
my $slow_id =
  '0 * length(pg_sleep(0.001)::text || repeat(md5(id::text), 10000)) + id';

foreach my $case (
	[ 'between rows', "INSERT INTO t SELECT i, repeat('x', 800) FROM
		(SELECT i, pg_sleep(0.001) FROM generate_series(1, 200000) i OFFSET 0) q" ],
	[ 'at a check', "ALTER TABLE slow ALTER id TYPE int USING 0 * length(pg_sleep(0.01)::text)" ])
{
	my ($where, $work) = @$case;

	hold("BEGIN; $update; $work; COMMIT");
	foreach my $time ('', ' again')
	{
		my ($in_group, $in_session) = split /\|/, releases();
		my $before = $dt->session_row($holder)->{blocks_dirtied};

		$outsider->send($update);
		ok(poll_until(sub { holder_releases() > $in_session }),
			"$where: somebody waits$time, and it is released");
		# the limit would take half a minute for that
		ok( poll_until(
				sub {
					$dt->session_row($holder)->{blocks_dirtied} >= $before + 40;
				}),
			"$where: it runs at full speed");
		is(releases(), ($in_group + 1) . '|' . ($in_session + 1),
			"$where: it was released, once");
		$dt->cancel_ms($outsider);
		ok($dt->wait_paused($holder, 'in flight'), "$where: then it pauses again");
		my $start = time;
		my $then = $dt->session_row($holder)->{blocks_dirtied};
		sleep 0.3;
		my $kb = ($dt->session_row($holder)->{blocks_dirtied} - $then) * $dt->block_kb;
		cmp_ok($kb, '<=', $limit * (time - $start) + 8 * $dt->block_kb,
			"$where: and is at its limit: KB");
	}
	$dt->cancel_ms($holder);
}

# What comes next pauses in flight again.
hold($insert);
$dt->cancel_ms($holder);

# ------------------------------------------------------------------ whose waits

# For a member of the same group the holder goes on until it owes what its group
# earns in 30 s.
my $released_before = releases();
hold($transaction);
$colleague->send("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 2; $update");
ok(poll_until(sub { waiting() == 1 }), 'a member of the same group waits');
ok(poll_until(sub { releases() ne $released_before }),
	'a member of the same group: the holder is released');
ok(!$colleague->finished(4 * $bound / 1000),
	'a member of the same group: it waits on');
ok($dt->wait_paused($holder, 'in flight'),
	'a member of the same group: the holder pauses on');
cmp_ok($dt->session_row($holder)->{dirty_debt}, '<=', 30 * $limit + 80 * $dt->block_kb,
	'a member of the same group: the holder owes no more than that, KB');
$released_before = releases();

# an outsider who waits for him waits for the holder
$outsider->send('UPDATE hot SET n = n + 1 WHERE id = 2');
$colleague->wait;
$colleague->query('COMMIT');
is($outsider->wait->{sqlstate}, undef,
	'who waits for a member that waits for the holder gets it');
isnt(releases(), $released_before, 'and the holder is released');
let_go();

# a member of another group does not have to
my $stranger = $dt->session(group => 'grp_b');
hold($transaction);
is($stranger->run('BEGIN; LOCK t; COMMIT')->{sqlstate}, undef,
	'a member of another group gets it');
let_go();
$stranger->quit;

# A wait that is shorter is none of its business.
$holder->query(q{SET dirty_throttle.max_blocking_time = '10min'});
hold($transaction);
$released_before = releases();
$outsider->query("SET lock_timeout = '100ms'");
foreach (1 .. 5)
{
	is($outsider->run($update)->{sqlstate}, '55P03', 'a shorter wait');
}
$outsider->query('RESET lock_timeout');
ok($dt->wait_paused($holder, 'in flight'), 'the holder pauses on in flight');
is(releases(), $released_before, 'a shorter wait: no release');
let_go();
$holder->query('RESET dirty_throttle.max_blocking_time');

# --------------------------------------------------------- before a transaction

# A query that pauses before its transaction has locked its table already.  It
# runs when an outsider has waited for that, and what was owed stays owed.
$dt->create_sleep_tables;
$dt->limit(grp_a => 0);
$holder->query('SET dirty_throttle.max_commit_pause = 0');
# less than the group earns in 30 s: who owes more pays that first, see 114
$dt->limit(grp_a => 25);
$holder->query(DirtyThrottle::pays_after(
		'ALTER TABLE rewrite ALTER id TYPE int USING id + 1'));
my $debt = $dt->session_row($holder)->{dirty_debt};
$holder->send('INSERT INTO hot VALUES (6, 0)');
ok($dt->wait_paused($holder, 'in flight'), 'a pause before a transaction');
$released_before = releases();
is($outsider->run('BEGIN; LOCK hot; COMMIT')->{sqlstate}, undef,
	'a table, before the transaction: the outsider gets it');
is($holder->wait->{sqlstate}, undef, 'released before its transaction: no error');
ok(releases() ne $released_before, 'and it is counted');
$holder->send($MAY_WRITE);
ok($dt->wait_paused($holder, 'in flight'), 'then it pauses again');
between($dt->session_row($holder)->{dirty_debt},
	0.5 * $debt, $debt + 2 * $dt->block_kb, 'for what it owes, KB');
let_go();
$holder->query('RESET dirty_throttle.max_commit_pause');

# ------------------------------------------------------------------- deadlocks

# A member and an outsider that want the same two locks, each in the other order.  The
# member pauses at a check under its first lock, for minutes, when somebody begins
# to wait for that; so it goes on and wants its second one.  Nobody looks for a
# deadlock but the one that is to be cancelled: the member, when it waits itself;
# or the outsider, who begins to wait when the member does, which had gone on for a
# third one.
my @kinds = map { "LOCK %s IN $_ MODE" } 'ACCESS SHARE', 'ROW SHARE',
  'ROW EXCLUSIVE', 'SHARE UPDATE EXCLUSIVE', 'SHARE', 'SHARE ROW EXCLUSIVE',
  'EXCLUSIVE', 'ACCESS EXCLUSIVE';
push @kinds, 'UPDATE %s SET id = -id', 'SELECT FROM %s FOR SHARE';
my @pairs = map {
	{ kind => $kinds[$_], member => $dt->session(group => 'grp_a'),
		outsider => $dt->session, third => $dt->session, n => $_ }
} 0 .. $#kinds;

# How many members have paused, and of each pair, how it has ended.
sub verdicts
{
	my ($kb, $who_looks, $bound) = @_;
	my @verdicts;
	my $paused = 0;

	$dt->limit(grp_a => 0);
	foreach my $pair (@pairs)
	{
		my ($first, $second, $work) = map { $_ . $pair->{n} } qw(a b work);
		my $sql = sub { sprintf $pair->{kind}, $_[0] };
		# what conflicts with it
		my $other = sub { $pair->{kind} =~ /^LOCK/
			  ? "LOCK $_[0] IN ACCESS EXCLUSIVE MODE"
			  : "UPDATE $_[0] SET id = id + 1" };

		$dt->sql("DROP TABLE IF EXISTS $first, $second, $work;
			CREATE TABLE $first AS SELECT 1 AS id;
			CREATE TABLE $second AS SELECT 1 AS id;
			CREATE TABLE $work AS
				SELECT i AS id, repeat('x', 2000) AS filler FROM generate_series(1, 150) i");
		foreach my $who (qw(member outsider))
		{
			$pair->{$who}->query(
				'SET deadlock_timeout = ' . ($who eq $who_looks ? "'10ms'" : "'1h'"));
		}
		$pair->{member}->query("SET dirty_throttle.max_blocking_time = $bound;
			BEGIN; " . $sql->($first));
		$pair->{outsider}->query('BEGIN; ' . $other->($second));
		# it lasts for long enough to be charged
		$pair->{rest} = "ALTER TABLE $work ALTER id TYPE int USING $slow_id; "
		  . $sql->($second);
		$pair->{wants} = $other->($first);
	}
	$dt->limit(grp_a => $kb);
	$_->{member}->send($_->{rest}) foreach @pairs;
	foreach my $pair ($kb > 0 ? @pairs : ())
	{
		$paused += $dt->wait_paused($pair->{member}, 'in flight');
	}
	my $begins = $who_looks eq 'member' ? 'outsider' : 'third';
	$_->{$begins}->send($begins eq 'third' ? "BEGIN; $_->{wants}" : $_->{wants})
	  foreach @pairs;
	# who does not go on for others has been let go
	if ($bound < 0)
	{
		sleep 0.3;
		$paused = grep { $dt->wait_paused($_->{member}, 'in flight') } @pairs;
		$dt->limit(grp_a => 0);
	}
	if ($begins eq 'third')
	{
		foreach my $pair (@pairs)
		{
			my $waits = 'FROM pg_locks WHERE NOT granted AND pid IN ('
			  . join(', ', map { $pair->{$_}->pid } qw(member third)) . ')';

			ok(poll_until(sub { $dt->sql("SELECT count(*) $waits") == 2 }),
				"$pair->{kind}: the member wants its second lock");
			$pair->{outsider}->send($pair->{wants});
		}
	}
	foreach my $pair (@pairs)
	{
		# the other one gets the lock
		my %state;

		poll_until(sub { $pair->{$who_looks}->finished });
		foreach my $who ($who_looks, grep { $_ ne $who_looks } qw(member outsider))
		{
			$state{$who} = $pair->{$who}->wait->{sqlstate} // 'lives';
		}
		push @verdicts, "$state{member}, $state{outsider}";
	}
	$dt->limit(grp_a => 0);
	foreach my $pair (@pairs)
	{
		$_->query('ROLLBACK') foreach @$pair{qw(member outsider)};
		next unless $begins eq 'third';
		$pair->{third}->wait;
		$pair->{third}->query('ROLLBACK');
	}
	return ($paused, @verdicts);
}

foreach my $case (
	[ 'member', '40P01, lives', -1, $bound, 0 ],
	[ 'outsider', 'lives, 40P01', $bound, 0 ])
{
	my ($who_looks, $expected, @bounds) = @$case;

	foreach my $value (undef, @bounds)
	{
		my ($paused, @verdicts) =
		  verdicts(defined $value ? 1 : 0, $who_looks, $value // $bound);
		my $name = "the $who_looks looks, "
		  . (defined $value ? "max_blocking_time = $value" : 'no limit');

		is($verdicts[$_], $expected, "$name: $kinds[$_]") foreach 0 .. $#kinds;
		is($paused, scalar @pairs, "$name: all members have paused") if defined $value;
	}
}

# Who comes into the group in the middle of a transaction, and whose role owes
# there, pays in flight: what was locked before counts, and to suspend the group
# does not stop the transaction.
$dt->sql(q{CREATE FUNCTION works() RETURNS void LANGUAGE sql
	SET dirty_throttle."group" = 'grp_a' AS 'UPDATE elsewhere SET id = 2'});
foreach my $rate (1, 1000)
{
	my ($debtor, $newcomer) = ($dt->session(group => 'grp_a'), $dt->session);

	$debtor->query('SET dirty_throttle.max_commit_pause = 0');
	$dt->limit(grp_a => $rate);
	$debtor->query(DirtyThrottle::pays_after(
			'ALTER TABLE rewrite ALTER id TYPE int USING id + 1'));
	$debtor->quit;
	poll_until(sub { !$dt->session_row($debtor) });
	$newcomer->query("BEGIN; UPDATE hot SET n = n + 1 WHERE id = 2; $lock_7");
	if ($rate == 1)
	{
		$newcomer->send('SELECT works(); COMMIT');
		ok($dt->wait_paused($newcomer, 'in flight'), 'in the middle: it pauses for its role');
		is($outsider->run($lock_7)->{sqlstate}, undef,
			'and is released for an advisory lock');
	}
	else
	{
		$dt->sql(q{SELECT suspend_group('grp_a')});
		$newcomer->send('SELECT works()');
		ok($newcomer->finished(180), 'in a suspended group: it goes on');
		$dt->sql(q{SELECT resume_group('grp_a')});
	}
	$dt->limit(grp_a => 0);
	$newcomer->wait;
	$newcomer->quit;
}

is( $dt->sql("SELECT sum(paused) FROM dirty_throttle_groups"),
	0, 'nobody pauses');
$dt->finish;
