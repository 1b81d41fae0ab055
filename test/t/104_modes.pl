# Mode observe, suspended groups, sessions for whose locks others wait, and
# background workers: who pauses, and for how long, to the microsecond, on a clock
# that stands still while statements run.
#
# takes-about: 40 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use PostgreSQL::Test::Utils;
use Test::More;

my $block = 8192;
my $second = 1_000_000;
my $kb = 1000;    # KB/s, so a byte is a microsecond
my $dt = DirtyThrottle::Clock->new('modes', conf => q{
max_worker_processes = 16
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});

$dt->limit(g => 0);
$dt->create_sleep_tables;
$dt->sql(
	q{CREATE TABLE t (id int, pad text) WITH (fillfactor = 10, parallel_workers = 2);
	CREATE TABLE hot (id int PRIMARY KEY, n int) WITH (fillfactor = 50);
	INSERT INTO hot VALUES (1, 0)});

my $s = $dt->session(group => 'g');
my $outsider = $dt->session;

sub insert
{
	my ($rows) = @_;
	return "INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, $rows) k";
}

sub mode
{
	my ($mode) = @_;
	$dt->sql("SELECT alter_resource_group('g', mode => '$mode')");
}

sub us
{
	my ($ms) = @_;
	return sprintf '%.0f', 1000 * $ms;
}

# ------------------------------------------------------------------------ procedures

# An interrupt ends the pause after a transaction of a procedure.  The next one pays
# before it works, also if the process has checked for interrupts before.
subtest 'a procedure whose pause is interrupted' => sub {
	$dt->sql(
		q{CREATE PROCEDURE two() LANGUAGE plpgsql AS $$
			BEGIN
				PERFORM dt_test_interrupt_at_commit();
				} . insert(5) . q{;
				COMMIT;
				-- a second or two, with checks, and with no statement and no
				-- function that a hook would tell of
				FOR i IN 1..40000000 LOOP
				END LOOP;
				} . insert(5) . q{;
			END $$});
	$dt->fresh(g => dirty => $kb);
	$s->send('CALL two()');
	ok(poll_until(sub { ($dt->used('g', 'dirty'))[1] > 3 * $block }, 180),
		'the first one has worked, and has not paid');
	my ($used, $owed) = $dt->used('g', 'dirty');
	# it has a reason for a check, and makes it
	$dt->sql("SELECT set_group_dirty_limit('g', 1.5 * $kb)");
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pays');
	is($dt->group_row('g')->{paused}, 1, 'and is counted');
	is(($dt->used('g', 'dirty'))[0], $used, 'before it goes on');
	cmp_ok($dt->run, '>=', $owed / 1.5, 'all of it');
	$s->wait;
	is($dt->group_row('g')->{paused}, 0, 'as one that pauses, and no more');
};

# An expression that no executor runs does not come before that either.
subtest 'a procedure that goes on with an expression' => sub {
	$dt->sql(
		q{CREATE FUNCTION goes_on() RETURNS text LANGUAGE plpgsql AS $$
			BEGIN
				RETURN set_config('application_name', 'goes on', false);
			END $$;
		CREATE PROCEDURE two_expressions() LANGUAGE plpgsql AS $$
			BEGIN
				PERFORM dt_test_interrupt_at_commit();
				} . insert(5) . q{;
				COMMIT;
				IF goes_on() = '' THEN
					RETURN;
				END IF;
			END $$});
	$dt->fresh(g => dirty => $kb);
	$s->send('CALL two_expressions()');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pays');
	is($dt->sql(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'goes on'}),
		0, 'before it goes on');
	$dt->run;
	is($s->wait->{sqlstate}, undef, 'no error');
	$s->query('RESET application_name');
};

# ------------------------------------------------------------------------ debts left

subtest 'the limit of a group that a session has left in debt is removed' => sub {
	$dt->fresh(g => dirty => $kb);
	$s->query($_) foreach 'BEGIN', insert(5), q{SET dirty_throttle."group" = ''};
	$s->send('COMMIT');
	is($dt->run, 0, 'it pays nothing');
	is($dt->group_row('g')->{members}, 0, 'and is in the group no more');
	cmp_ok(($dt->used('g', 'dirty'))[1], '>', 0, 'which keeps what it owes');
	$dt->limit(g => 0);
	is(($dt->used('g', 'dirty'))[1], 0, 'until it has no limit');
	$dt->limit(g => $kb);
	$s->query(q{SET dirty_throttle."group" = 'g'});
	is($dt->session_row($s)->{dirty_debt}, 0, 'then it owes nothing when it is back');
	$dt->limit(g => 0);
};

# ------------------------------------------------------------------- before a transaction

# It holds no snapshot of the catalog, which an earlier command has left.
subtest 'a command that has no snapshot' => sub {
	$dt->sql('CREATE TABLE emptied (i int)');
	$dt->fresh('g');
	$dt->sql(q{SELECT suspend_group('g')});
	$s->send('SELECT count(*) FROM pg_class\; TRUNCATE emptied');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it stops');
	is($dt->sql('SELECT backend_xmin FROM pg_stat_activity WHERE pid = ' . $s->pid), '', 'and holds no rows back');
	$dt->sql(q{SELECT resume_group('g')});
	$dt->settle;
	is($s->wait->{sqlstate}, undef, 'it goes on');
};

# ----------------------------------------------------------------------- at a check

# Whatever the command holds there, it holds for 200 ms, or for 50 times the CPU time
# of a check, or for as long as it takes to pay what the command has used since the
# last charge: that is all that it owes, here, some seconds.
subtest 'a long pause at a check' => sub {
	my $rate = 1;    # KB/s, or bytes in a ms

	$dt->sql(
		q{CREATE TABLE big (id int, pad text) WITH (fillfactor = 10);
		INSERT INTO big SELECT k, repeat('x', 800) FROM generate_series(1, 20000) k;
		CHECKPOINT});
	$dt->set_conf('dirty_throttle.transaction_grace', '1ms');
	$dt->fresh(g => dirty => $rate);
	$s->send('ALTER TABLE big ALTER id TYPE bigint');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	my ($used, $owed) = $dt->used('g', 'dirty');
	cmp_ok($owed, '>', 3 * $block, 'for some seconds');
	my $since = $owed;    # was used since the last charge

	foreach my $pause (1, 2)
	{
		# on a busy machine a check may come before anything was used: 200 ms more
		my $most = int($since / $rate / 200) + 10;
		my $slices = 0;

		while ($slices <= $most && ($dt->used('g', 'dirty'))[0] == $used)
		{
			$dt->advance(200_000);
			$slices++;
			is($dt->state($s), 'sleeps', "pause $pause: it pauses on ($slices)");
		}
		cmp_ok($slices, '<=', $most, "pause $pause: no longer than what it has used takes, or 200 ms");
		my $before = $used;
		($used) = $dt->used('g', 'dirty');
		$since = $used - $before;
		cmp_ok($since, '>', 0, "pause $pause: and has gone on");
	}
	$dt->cancel_ms($s);
	$s->wait;
	$dt->set_conf('dirty_throttle.transaction_grace', '1d');
	$dt->sql('DROP TABLE big');
	$dt->limit(g => 0);
};

# ------------------------------------------------------------------------ observe

subtest 'observe' => sub {
	mode('observe');
	foreach my $case ([ dirty => 1000 ], [ wal => 100 ])
	{
		my ($what, $limit) = @$case;

		$dt->fresh(g => $what => $limit);
		foreach my $rows (100, 70, 5)
		{
			my ($used) = $dt->used('g', $what);
			my $row = $dt->group_row('g');
			my $credit = $rows == 100 ? new_credit($limit) : 0;

			$s->send(insert($rows));
			is($dt->run, 0, "$what, $rows rows: nobody pauses");
			my $now = $dt->group_row('g');
			my $bytes = ($dt->used('g', $what))[0] - $used - $credit;

			is(us($now->{observed_pause_time} - $row->{observed_pause_time}),
				int($bytes * 1000 / $limit) + 1,
				"$what, $rows rows: so long it would have paused");
			is($now->{observed_pauses} - $row->{observed_pauses}, 1, "$what, $rows rows: once");
		}
		my $row = $dt->group_row('g');
		is("$row->{pauses} $row->{paused_time} $row->{dirty_debt} $row->{wal_debt}",
			'0 0 0 0', "$what: no pause and no debt");
	}

	# whatever the command is, and however often it is charged
	foreach my $kind (
		[ 'COPY', "COPY t (id) FROM PROGRAM 'seq 1 20000'" ],
		[ 'VACUUM', 'VACUUM t' ],
		[ 'CREATE INDEX', 'CREATE INDEX ON t (id)' ],
		[ 'ALTER TABLE', 'ALTER TABLE t ALTER id TYPE bigint' ],
		[ 'many transactions', join(';', (insert(20)) x 10) ])
	{
		my ($name, $sql) = @$kind;

		$dt->sql('CHECKPOINT');
		$dt->fresh(g => dirty => $kb);
		$s->send($sql);
		is($dt->run, 0, "$name: nobody pauses");
		my $row = $dt->group_row('g');
		my ($used) = $dt->used('g', 'dirty');
		cmp_ok($used, '>', 30 * $block, "$name: it has done something");
		ok(abs(us($row->{observed_pause_time}) - ($used - 20_000)) <= $row->{observed_pauses},
			"$name: so long it would have paused");
	}
	$dt->sql('TRUNCATE t');

	# enforced, it pauses as long
	mode('enforce');
	$dt->fresh(g => dirty => $kb);
	$s->send(insert(70));
	my $us = $dt->run;
	my ($used) = $dt->used('g', 'dirty');
	is($us, lone_pause_us($used - 20_000, $kb), 'enforced again: it pauses for that');
	my $row = $dt->group_row('g');
	is("$row->{observed_pauses} $row->{observed_pause_time}", '0 0', 'which is no observed pause');
};

foreach my $what ('dirty', 'wal')
{
	foreach my $kind (sort keys %DirtyThrottle::KINDS)
	{
		mode('enforce');
		$dt->fresh(g => $what => 1);
		$s->send($DirtyThrottle::KINDS{$kind}[1]);
		$dt->settle;
		is($dt->state($s), 'sleeps', "$what, $kind: it pauses");
		my $then = $dt->now;
		mode('observe');
		$dt->settle;
		ok($s->finished, "$what, $kind: observe: it goes on") or $dt->cancel_ms($s);
		is($dt->now, $then, "$what, $kind: in no time");
		is($s->wait->{sqlstate}, undef, "$what, $kind: without an error");
		is($dt->group_row('g')->{paused}, 0, "$what, $kind: nobody pauses");
	}
}

subtest 'the mode changes while a statement runs' => sub {
	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
	mode('observe');
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . insert(100));
	mode('enforce');
	is($dt->group_row('g')->{dirty_debt}, 0, 'what was used in mode observe is not owed');
	my ($used) = $dt->used('g', 'dirty');
	my $then = $dt->now;
	$s->send(insert(500));
	$dt->advance(3 * $second);
	is($dt->state($s), 'sleeps', 'enforced: it pauses');
	my ($now, $owed) = $dt->used('g', 'dirty');
	is($now - $owed, $used + 20_000 + 3 * $second, 'at the limit');
	mode('observe');
	$dt->settle;
	ok($s->finished, 'observed: it runs to its end') or $dt->cancel_ms($s);
	$s->query('COMMIT');
	mode('enforce');
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);
};

# ------------------------------------------------------------------------ suspend

sub suspend
{
	$dt->sql(q{SELECT suspend_group('g')});
}

# It goes on when the group is resumed, in no time.
sub check_resume
{
	my ($name) = @_;
	my $then = $dt->now;

	$dt->sql(q{SELECT resume_group('g')});
	$dt->settle;
	ok($s->finished, "$name: resumed: it goes on") or $dt->cancel_ms($s);
	is($dt->now, $then, "$name: in no time");
	is($s->wait->{sqlstate}, undef, "$name: without an error");
	is($dt->group_row('g')->{paused}, 0, "$name: nobody pauses");
}

# The transaction IDs and, of the tables, the locks that the session has.
sub locks
{
	my ($type) = @_;
	return $dt->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $s->pid .
		" AND locktype = '$type' AND mode <> 'AccessShareLock'");
}

subtest 'suspended' => sub {
	$dt->fresh('g');
	foreach my $case (
		[ 0, $MAY_WRITE ],
		[ 1, insert(50) ],
		[ 1, 'BEGIN; ' . insert(5) . '; COMMIT' ])
	{
		my ($tables, $sql) = @$case;
		my $before = us($dt->session_row($s)->{paused_time});
		my ($used) = $dt->used('g', 'dirty');

		suspend();
		$s->send($sql);
		$dt->settle;
		is($dt->session_row($s)->{paused_by}, 'suspend_group', "$sql: it stops");
		is(locks('transactionid'), 0, "$sql: before it writes");
		is(locks('relation'), $tables, "$sql: with the table that it names, at most");
		is(($dt->used('g', 'dirty'))[0], $used, "$sql: it has done nothing");
		$dt->advance(3600 * $second);
		is($dt->state($s), 'sleeps', "$sql: an hour later it still pauses");
		check_resume($sql);
		is(us($dt->session_row($s)->{paused_time}) - $before, 3600 * $second,
			"$sql: and has paused for an hour");
	}
	is($dt->group_row('g')->{pauses}, 3, 'three pauses');
};

subtest 'suspended in mode observe' => sub {
	mode('observe');
	$dt->fresh(g => dirty => $kb);
	suspend();
	$s->send(insert(70));
	$dt->advance(3 * $second);
	is($dt->state($s), 'sleeps', 'it pauses');
	check_resume('observe');
	is($dt->group_row('g')->{dirty_debt}, 0, 'nothing is owed');
	mode('enforce');
};

# Who is in a transaction runs to its end, whose pause does not take for ever.
subtest 'suspended in a transaction' => sub {
	$dt->fresh('g');
	$s->query('BEGIN; ' . insert(5));
	suspend();
	$s->send(insert(50));
	is($dt->run, 0, 'it goes on');
	$s->wait;
	$s->query(q{SET dirty_throttle.max_commit_pause = '10s'});
	$s->send('COMMIT');
	$dt->settle;
	is($dt->session_row($s)->{paused_by}, 'suspend_group', 'it stops at its end');
	is(locks($_), 0, "with no lock ($_)") foreach 'transactionid', 'relation';
	is($dt->run, 10 * $second, 'for max_commit_pause');
	is($s->wait->{sqlstate}, undef, 'and is told that it has committed');
	$s->send('SELECT 1');
	is($dt->run, 0, 'to read is allowed');
	$s->wait;
	$s->send($MAY_WRITE);
	$dt->settle;
	is($dt->session_row($s)->{paused_by}, 'suspend_group', 'to write is not');
	check_resume('written');
	$s->query('RESET dirty_throttle.max_commit_pause');

	# leaving is
	suspend();
	$s->send(q{SET dirty_throttle."group" = ''});
	is($dt->run, 0, 'nor is to leave');
	$s->wait;
	$s->send($MAY_WRITE);
	is($dt->run, 0, 'outside of the group it may write');
	$s->wait;
	$s->query(q{SET dirty_throttle."group" = 'g'});
	$dt->sql(q{SELECT resume_group('g')});
};

# The transaction is committed, so its client has to hear of that, or it tries again
# and has all twice.  What comes next waits.
subtest 'a COMMIT in a suspended group' => sub {
	$dt->sql('CREATE TABLE once (id int)');
	$s->query(q{SET dirty_throttle.max_commit_pause = '20s'});
	foreach my $how ('a block', 'a statement')
	{
		my $name = $how;

		$dt->fresh('g');
		$dt->sql('TRUNCATE once');
		if ($how eq 'a block')
		{
			$s->query('BEGIN; INSERT INTO once VALUES (1)');
			suspend();
			$s->send('COMMIT');
		}
		else
		{
			# it runs while the group is suspended
			$outsider->query('SELECT pg_advisory_lock(1)');
			$s->send('INSERT INTO once SELECT 1 FROM pg_advisory_xact_lock(1)');
			$dt->settle;
			is($dt->state($s), 'waits', "$name: it runs");
			suspend();
			$outsider->query('SELECT pg_advisory_unlock(1)');
		}
		$dt->advance(20 * $second - 1);
		is($dt->state($s), 'sleeps', "$name: it pauses");
		is($outsider->query('SELECT count(*) FROM once'), 1, "$name: and has committed");
		$dt->advance(1);
		ok($s->finished, "$name: it is answered after max_commit_pause") or $dt->cancel_ms($s);
		is($s->wait->{sqlstate}, undef, "$name: without an error");
		is($dt->group_row('g')->{paused}, 0, "$name: nobody pauses");

		# the next one waits, and who gives up and tries again has it once
		foreach my $try (1, 2)
		{
			$s->send('INSERT INTO once VALUES (2)');
			$dt->settle;
			is($dt->session_row($s)->{paused_by}, 'suspend_group', "$name: the next one stops ($try)");
			$dt->advance(3600 * $second);
			is($dt->state($s), 'sleeps', "$name: for an hour ($try)");
			next if $try == 2;
			$dt->cancel_ms($s);
			is($s->wait->{sqlstate}, '57014', "$name: it gives up");
		}
		is($outsider->query('SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM once'), '1',
			"$name: it has done nothing");
		check_resume($name);
		is($outsider->query('SELECT string_agg(id::text, $$ $$ ORDER BY id) FROM once'), '1 2',
			"$name: and does it once");
	}

	# nobody waits for the transactions of a procedure
	$dt->sql(
		q{TRUNCATE once;
		CREATE PROCEDURE thrice() LANGUAGE plpgsql AS $$
			BEGIN
				FOR i IN 1..3 LOOP
					INSERT INTO once SELECT i FROM pg_advisory_xact_lock(1);
					COMMIT;
				END LOOP;
			END $$});
	$outsider->query('SELECT pg_advisory_lock(1)');
	$s->send('CALL thrice()');
	$dt->settle;
	is($dt->state($s), 'waits', 'a procedure: it runs');
	suspend();
	$outsider->query('SELECT pg_advisory_unlock(1)');
	$dt->advance(3600 * $second);
	is($dt->state($s), 'sleeps', 'a procedure: an hour later it still pauses');
	is($outsider->query('SELECT count(*) FROM once'), 1, 'a procedure: after its first transaction');
	check_resume('a procedure');
	is($outsider->query('SELECT count(*) FROM once'), 3, 'a procedure: then it does the others');
	$s->query('RESET dirty_throttle.max_commit_pause');
	$dt->sql('DROP PROCEDURE thrice; DROP TABLE once');
};

subtest 'in debt when the group is suspended' => sub {
	foreach my $case ([ 200_000, 1 ], [ 2 * $second, 0 ])
	{
		my ($us, $still) = @$case;

		$dt->fresh(g => dirty => $kb);
		$s->send(insert(100));
		$dt->settle;
		my ($used, $owed) = $dt->used('g', 'dirty');
		suspend();
		$dt->advance($us);
		$dt->sql(q{SELECT resume_group('g')});
		$dt->settle;
		is($dt->state($s), $still ? 'sleeps' : 'idle', "resumed after $us us: it has paid or not");
		is($dt->run, $still ? $owed - $us : 0, 'it pauses for the rest');
	}
};

# ------------------------------------------------------------------ who waits for it

subtest 'somebody outside the group waits for a lock' => sub {
	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
	foreach my $case ([ 100, 0 ], [ 100, 310 ], [ 40, 0 ], [ 0, 0 ], [ -1, 0 ])
	{
		my ($longest, $later) = @$case;
		my $name = "max_blocking_time $longest, $later ms later";

		$s->query("SET dirty_throttle.max_blocking_time = $longest");
		$dt->fresh(g => dirty => $kb);
		$s->query('BEGIN; UPDATE hot SET n = n + 1');
		$s->send(insert(200) . '; COMMIT');
		$dt->settle;
		is($dt->state($s), 'sleeps', "$name: it pauses in flight");
		$dt->advance(1000 * $later);
		my ($before, $owed) = $dt->used('g', 'dirty');
		$outsider->send('UPDATE hot SET n = n + 1');
		poll_until(sub { $dt->state($outsider) eq 'waits' }, 180);
		if ($longest < 0)
		{
			$dt->advance($second);
			is($dt->state($outsider), 'waits', "$name: somebody waits for it, for ever");
			next;
		}
		if ($longest > 0)
		{
			$dt->advance(1000 * $longest - 1);
			is($dt->state($outsider), 'waits', "$name: somebody waits for it");
		}
		# there is a look each 25 ms
		$dt->advance(25_001);
		ok($outsider->finished(180), "$name: no longer than that");
		$outsider->wait;
		is($dt->session_row($s)->{releases} > 0, 1, "$name: it has gone on");
		my ($used) = $dt->used('g', 'dirty');
		cmp_ok($used - $before, '>', 100 * $block, "$name: to its end");
		$dt->run;
		$dt->check_books('g', 'dirty', "$name: and then it pays all");
	}
	continue
	{
		$dt->run;
		ok($outsider->finished(180), 'it has ended');
		$outsider->wait;
	}
	$s->query('RESET dirty_throttle.max_blocking_time');
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);
};

# A pause at a check that was cut short goes on at the next one, until all is paid;
# what the transaction owes after that, a new one pays.
subtest 'two pauses at checks of a transaction' => sub {
	my $holder = $dt->session;

	$dt->sql(
		q{CREATE TABLE big (id int, pad text) WITH (fillfactor = 10);
		INSERT INTO big SELECT k, repeat('x', 800) FROM generate_series(1, 5000) k;
		CREATE FUNCTION twice() RETURNS void LANGUAGE plpgsql AS $$
			BEGIN
				ALTER TABLE big ALTER id TYPE bigint;
				PERFORM pg_advisory_lock(1);
				ALTER TABLE big ALTER id TYPE int;
			END $$;
		CHECKPOINT});
	$dt->set_conf('dirty_throttle.transaction_grace', '1ms', $s);
	$s->query('SET dirty_throttle.max_blocking_time = 100');
	$holder->query('SELECT pg_advisory_lock(1)');
	$s->query('BEGIN; UPDATE hot SET n = n + 1');
	$dt->fresh(g => dirty => 10);
	$s->send('SELECT twice()');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	$outsider->send('UPDATE hot SET n = n + 1');
	poll_until(sub { $dt->state($outsider) eq 'waits' }, 180);
	$dt->advance(125_000);
	is($dt->state($s), 'waits', 'while others wait it goes on');
	my $row = $dt->group_row('g');
	is("$row->{pauses} $row->{releases}", '1 1', 'that was one pause');
	$dt->cancel_ms($outsider);
	$outsider->wait;
	my ($used, $owed) = $dt->used('g', 'dirty');
	cmp_ok($owed, '>', 1000 * $block, 'for what it owes');
	$dt->advance($owed * 100);
	is(($dt->used('g', 'dirty'))[1], 0, 'and has paid when it goes on');
	# a statement of its own charges when the limit has changed
	$dt->limit(g => 20);
	$holder->query('SELECT pg_advisory_unlock(1)');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'then it pauses again');
	$dt->advance(100_000);
	is($dt->group_row('g')->{pauses}, 2, 'which is another pause');
	$dt->advance(100_000);
	is($dt->state($s), 'sleeps', 'that goes on at another check');
	is($dt->group_row('g')->{pauses}, 2, 'as one');
	$dt->cancel_ms($s);
	$s->wait;
	$dt->limit(g => 0);
	$s->query('ROLLBACK');
	$holder->quit;
	$s->query('RESET dirty_throttle.max_blocking_time');
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);
	$dt->sql('DROP FUNCTION twice; DROP TABLE big');
};

# -------------------------------------------------------------- background workers

# They pay in flight, and before their next statement, and not after their
# transactions.
subtest 'a background worker' => sub {
	$dt->sql(q{CREATE DATABASE work; ALTER DATABASE work SET dirty_throttle."group" = 'g'});
	my $work = $dt->session(dbname => 'work', options => '-c dirty_throttle.group=');
	$work->query('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10);
		CREATE TABLE done (id int);
		CREATE FUNCTION work() RETURNS void LANGUAGE sql AS $$' . insert(100) . '$$');
	foreach my $grace ('0', '1d')
	{
		$dt->set_conf('dirty_throttle.transaction_grace', $grace, $s);
		$dt->fresh(g => dirty => $kb);
		$work->query('TRUNCATE t, done');
		my $pid = $dt->sql(
			q{SELECT dt_test_worker('work', 'SELECT work(); INSERT INTO done VALUES (1)')});
		poll_until(sub { $dt->sql("SELECT dt_test_state($pid)") eq 'sleeps' }, 180);
		is($dt->sql("SELECT dt_test_state($pid)"), 'sleeps', "grace $grace: it pauses");
		is($work->query('SELECT count(*) FROM t'), $grace eq '0' ? 0 : 100,
			"grace $grace: in flight or before its next statement");
		my $us = $dt->sql("SELECT dt_test_run(100 * $second)");
		poll_until(sub { $dt->sql("SELECT dt_test_state($pid)") eq '' }, 180);
		is($work->query('SELECT count(*) FROM done'), 1, "grace $grace: then it goes on");
		my ($used, $owed) = $dt->used('g', 'dirty');
		ok(abs($used - $us - 20_000 - $owed) <= 1, "grace $grace: when it has paid");
	}
	$work->quit;
};

$dt->finish;
