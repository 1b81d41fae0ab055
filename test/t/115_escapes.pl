# Nobody evades a limit: what a role uses that tries to is at most 1.2 times the limit
# in the long run, and what may be owed besides, once: the grace, one step between two
# places where it may pause, and what the group earns in 30 s where sessions are let go.
# To and fro between groups, functions with a SET clause, mates that wait, steps that
# are much larger than a pause, code that runs where no interrupt is served, an
# accomplice who cancels or waits, and a connection for each statement.  On a clock that
# stands still while statements run: who escapes takes no time.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books ();
use DirtyThrottle::Clock;
use List::Util qw(sum);
use Test::More;

my $second = 1_000_000;
my $kb = 100;          # KB/s
my $step = 500_000;    # bytes: 5 s
my $dt = DirtyThrottle::Clock->new('escapes', conf => q{
dirty_throttle.transaction_grace = 50ms
dirty_throttle.max_blocking_time = 100ms
});

$dt->sql(
	q{CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'slow';
	CREATE ROLE outsider LOGIN;
	SELECT alter_resource_group('slow');
	SELECT alter_resource_group('b');
	SELECT grant_group_use('b', 'app');
	GRANT CREATE ON SCHEMA public TO app;
	CREATE TABLE shared (i int);
	ALTER TABLE shared OWNER TO app;
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot VALUES (1, 0);
	CREATE TABLE lines (t text);
	GRANT ALL ON hot, lines TO app, outsider});

# An expression that writes so many bytes of WAL, with a transaction ID or without.
sub emit
{
	my ($bytes, $in_transaction) = @_;
	return sprintf q{pg_logical_emit_message(%s, '', repeat('x', %d))}, $in_transaction ? 'true' : 'false', $bytes // $step;
}

# Another one of so many bytes, which cannot be compressed.
sub content
{
	return sprintf q{(SELECT decode(string_agg(md5(i::text), ''), 'hex') FROM generate_series(1, %d) i)}, $step / 16;
}

# The groups and a new session, which has read what it needs of the catalogs.
sub begin
{
	my ($role, @before) = @_;

	foreach my $group ('slow', 'b')
	{
		$dt->sql("SELECT resume_group('$group')") if defined $dt->group_row($group)->{suspended_since};
		$dt->fresh($group);
	}
	my $s = $dt->session(user => $role);
	$s->query($_) foreach @before, 'SELECT 1';
	$dt->fresh($_ => wal => $kb) foreach 'slow', 'b';
	return $s;
}

# What all of them have used since then, in bytes.
sub used_all { return sum(map { ($dt->used($_, 'wal'))[0] } 'slow', 'b') }

# A test: that is at most 1.2 x the limit of one group, and what is granted besides, in
# bytes; of what was tried, so that it shows something.
sub check_bound
{
	my ($name, $then, $granted, $tried) = @_;
	my $seconds = ($dt->now - $then) / $second;
	my $used = used_all();

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	cmp_ok($used, '<=', 1.2 * 1000 * $kb * $seconds + $granted, sprintf '%s: bytes in %.0f s', $name, $seconds);
	cmp_ok($used, '>=', $tried, "$name: and it has done something");
}

# Statements, one after the other, each as soon as the one before has its answer.
sub run_each
{
	my ($s, @sql) = @_;
	my $errors = 0;

	$dt->running(sub { $errors++ foreach grep { $s->run($_)->{sqlstate} } @sql });
	is($errors, 0, 'no error');
}

# What may be owed, once: a step more than is paid, and the grace.
my $once = 2 * $step + 1000 * $kb * 0.05 + 100_000;

# --------------------------------------------------------------- to and fro between groups

my $n = 20;
my $to_and_fro = 'SELECT join_group(NULL), ' . emit() . q{, join_group('b')};
my $series = 'SELECT join_group(NULL), ' . emit() . ", join_group('b') FROM generate_series(1, $n)";

# In both groups it may be in debt, and it earns in both at the same time.
subtest 'to and fro' => sub {
	my $s = begin('app', q{SELECT join_group('b')});
	my $then = $dt->now;

	run_each($s, ($to_and_fro) x $n);
	check_bound('a statement each', $then, 2 * $once, $n * $step);
	$s->quit;

	$s = begin('app', q{SELECT join_group('b')});
	$then = $dt->now;
	run_each($s, map { ('BEGIN', $to_and_fro, 'COMMIT') } 1 .. $n);
	check_bound('a block each', $then, 2 * $once, $n * $step);
	$s->quit;

	$s = begin('app', q{SELECT join_group('b')});
	$then = $dt->now;
	run_each($s, $series);
	check_bound('one SELECT over a series', $then, 2 * $once, $n * $step);
	$s->quit;

	$s = begin('app', q{SELECT join_group('b')});
	$then = $dt->now;
	run_each($s, 'BEGIN', $series, 'ROLLBACK', 'BEGIN', $series, 'ROLLBACK');
	check_bound('that is rolled back, twice', $then, 2 * $once, $n * $step);
	$s->quit;
};

# Each of them does one step at most before it waits.
subtest 'to and fro while the group is suspended' => sub {
	foreach my $sql ($to_and_fro, $series =~ s/join_group\(NULL\)/$&, 1/r)
	{
		my $s = begin('app', q{SELECT join_group('b')});
		my $then = $dt->now;
		my $calls = 0;

		$dt->sql(q{SELECT suspend_group('slow')});
		foreach (1 .. $n)
		{
			$s->send($sql);
			$dt->settle;
			# what slips may owe in the group that is not suspended, too
			$dt->advance(60 * $second) if !$s->finished;
			last if !$s->finished;
			$s->wait;
			$calls++;
		}
		cmp_ok($calls, '<', $n, 'in the end it waits');
		cmp_ok(($dt->used('slow', 'wal'))[0], '<=', ($sql eq $to_and_fro ? 3 : $n + 1) * $step, 'and has used little there');
		$dt->sql(q{SELECT resume_group('slow')});
		$dt->running(sub { $s->wait }) if $calls < $n;
		$s->quit;
	}
};

# ------------------------------------------------------------ a function with a SET clause

$dt->sql(q{CREATE FUNCTION put(bytea) RETURNS oid LANGUAGE plpgsql SECURITY DEFINER
	SET dirty_throttle."group" = 'b' AS 'BEGIN RETURN lo_from_bytea(0, $1); END'});
my $content = "(SELECT " . content() . " AS d OFFSET 0) x";

subtest 'a function with a SET clause' => sub {
	foreach my $case (
		[ 'called for each row', "SELECT put(d) FROM $content, generate_series(1, $n)" ],
		[ 'in a block', 'BEGIN', ("SELECT put(d) FROM $content") x $n, 'COMMIT' ],
		[ 'a statement each', ("SELECT put(d) FROM $content") x $n ],
		[ 'in a block that is rolled back', map { ('BEGIN', "SELECT put(d) FROM $content", 'ROLLBACK') } 1 .. $n ])
	{
		my ($name, @sql) = @$case;
		my $s = begin('outsider');
		my $then = $dt->now;

		run_each($s, @sql);
		# large objects are WAL and a little more
		check_bound($name, $then, 1.2 * $once, $n * $step);
		$s->quit;
	}
};

# ---------------------------------------------------------------- a mate that waits

# Each of the fifteen tries twice what the group earns in 30 s.
subtest 'one mate that waits for fifteen' => sub {
	my $message = 20_000;
	my $times = 2 * 30 * $kb * 1000 / $message;
	my $first = begin('app');
	my @mates = ($first, map { $dt->session(user => 'app') } 2 .. 15);
	my $waits = $dt->session(user => 'app');

	$_->query('BEGIN; SELECT count(*) FROM shared') foreach @mates;
	$waits->query('SELECT 1');
	$dt->fresh(slow => wal => $kb);
	$waits->send('BEGIN; LOCK TABLE shared');
	$dt->settle;
	my $then = $dt->now;
	$_->send("DO \$\$ BEGIN FOR i IN 1 .. $times LOOP PERFORM " . emit($message) . '; END LOOP; END $$') foreach @mates;
	$dt->advance($second / 10) foreach 1 .. 50;
	my $seconds = ($dt->now - $then) / $second;
	my $used = used_all();
	cmp_ok($used, '<=', 1.2 * 1000 * $kb * $seconds + 30 * 1000 * $kb + 16 * (2 * $message + 1000 * $kb * 0.05),
		sprintf 'together they may owe what the group earns in 30 s: bytes in %.0f s', $seconds);
	cmp_ok($dt->sql(q{SELECT count(*) FROM dirty_throttle_blocking() WHERE waiting_pid = } . $waits->pid),
		'>=', 1, 'and it still waits for them');
	$dt->terminate_ms($_) foreach @mates;
	$dt->run;
	$waits->wait;
	$waits->quit;
};

# ----------------------------------------------------- steps that are longer than a pause

# 20 MB are 200 s here; a step takes long enough for a timer.  Two may have begun before
# the first pause.
subtest 'large steps at checks' => sub {
	my $large = 20_000_000;
	my $s = begin('app', 'DO $$ BEGIN END $$');
	my $then = $dt->now;

	$s->send("DO \$\$ DECLARE x boolean; v text := repeat('x', $large);
		BEGIN FOR i IN 1 .. 12 LOOP x := pg_logical_emit_message(false, '', v) IS NULL; END LOOP; END \$\$");
	$dt->settle;
	$dt->advance(10 * $second) foreach 1 .. 16;
	my $seconds = ($dt->now - $then) / $second;
	my $used = used_all();
	cmp_ok($used, '<=', 1.2 * 1000 * $kb * $seconds + 2 * $large + 100_000, sprintf 'bytes in %.0f s', $seconds);
	cmp_ok($used, '>=', $large, 'and it has done something');
	is($dt->state($s), 'sleeps', 'it pauses');
	$dt->terminate_ms($s);
};

# --------------------------------------------------------- where no interrupt is served

# Called by GiST, with a page of the index locked.  Until it is loud it does nothing.
$dt->sql(
	q{CREATE FUNCTION diff(float8, float8) RETURNS float8 LANGUAGE plpgsql IMMUTABLE AS $$
		DECLARE n int := current_setting('escape.times', true)::int;
		BEGIN
			IF n > 0 THEN
				PERFORM set_config('escape.times', '0', false);
				FOR i IN 1 .. n LOOP
					PERFORM } . emit() . q{;
					IF current_setting('escape.waits') = 'on' THEN
						PERFORM pg_advisory_lock(7), pg_advisory_unlock(7);
					END IF;
				END LOOP;
			END IF;
			RETURN $1 - $2;
		END $$;
	CREATE TYPE span AS RANGE (subtype = float8, subtype_diff = diff);
	CREATE TABLE spans (s span);
	CREATE INDEX ON spans USING gist (s);
	INSERT INTO spans SELECT span(i, i + 10) FROM generate_series(1, 2000) i;
	-- outside of all pages, so that each has to be extended
	CREATE SEQUENCE far START 100000 INCREMENT 100000;
	GRANT ALL ON spans, far TO app});

my $extend = q{INSERT INTO spans SELECT span(n, n + 1) FROM nextval('far') n};

subtest 'code that runs with interrupts held' => sub {
	my $s = begin('app', q{SET escape.times = 0; SET escape.waits = on}, $extend);
	my $holder = $dt->session;

	# less than some seconds: it is seen
	$holder->query('SELECT pg_advisory_lock(7)');
	$dt->fresh(slow => wal => 10 * $kb);
	$s->query('SET escape.times = 1');
	$s->send($extend);
	$dt->settle;
	is($dt->state($s), 'waits', 'it waits with a page locked');
	cmp_ok(($dt->used('slow', 'wal'))[0], '>=', $step, 'what it has written is charged meanwhile');
	$holder->query('SELECT pg_advisory_unlock(7)');
	$dt->run;
	is($s->wait->{sqlstate}, undef, 'it goes on') or diag $s->{result}{err};

	# more: it is refused
	$dt->fresh(slow => wal => $kb);
	$s->query('SET escape.waits = off; SET escape.times = 100');
	$s->send($extend);
	$dt->settle;
	$dt->run;
	like($s->wait->{sqlstate} // 'none', qr/^5[345]/, 'it is refused in the end') or diag $s->{result}{err};
	cmp_ok(($dt->used('slow', 'wal'))[0], '<=', 30 * 1000 * $kb + 2 * $step, 'when it owes some seconds');
	cmp_ok(($dt->used('slow', 'wal'))[0], '>=', $step, 'and not at once');

	# again and again
	my $then = $dt->now;
	$dt->fresh(slow => wal => $kb);
	$dt->running(sub { $s->run($_) foreach ('SET escape.times = 100', $extend) x 5 });
	check_bound('again and again', $then, 30 * 1000 * $kb + $once, 5 * $step);
	$s->quit;
};

# ------------------------------------------------------------------------ an accomplice

# It ends each pause: by a cancel, which the procedure catches where it can, and after
# which it is called again; or by an interrupt without a reason.
$dt->sql(
	q{CREATE PROCEDURE catches(n int) LANGUAGE plpgsql AS $$
		DECLARE x boolean;
		BEGIN
			FOR i IN 1 .. n LOOP
				BEGIN
					x := } . emit() . q{ IS NULL;
				EXCEPTION WHEN query_canceled THEN
					NULL;
				END;
				COMMIT;
			END LOOP;
		END $$;
	CREATE PROCEDURE is_interrupted(n int) LANGUAGE plpgsql AS $$
		DECLARE x boolean;
		BEGIN
			FOR i IN 1 .. n LOOP
				x := dt_test_interrupt_at_commit() IS NULL;
				x := } . emit() . q{ IS NULL;
				COMMIT;
			END LOOP;
		END $$});

subtest 'a procedure whose pauses are canceled' => sub {
	my $s = begin('app', 'CALL catches(0)');
	my $then = $dt->now;
	my $cancels = 0;

	while ($cancels < 2 * $n && used_all() < 20 * $once)
	{
		$s->send('CALL catches(1000)');
		$dt->settle;
		while (!$s->finished && $cancels < 2 * $n && used_all() < 20 * $once)
		{
			my $before = $dt->session_row($s);
			my ($used) = $dt->used('slow', 'wal');

			$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
			$cancels++;
			poll_until(
				sub {
					my $row = $dt->session_row($s);
					return $s->finished || $row->{pauses} != $before->{pauses} ||
					  ($row->{paused_since} // '') ne ($before->{paused_since} // '') ||
					  ($dt->used('slow', 'wal'))[0] > $used;
				});
			$dt->settle;
		}
		last if !$s->finished;
		$s->wait;
	}
	check_bound("$cancels cancels", $then, $once, $step);
	cmp_ok($cancels, '>=', $n, 'they were made');
	$dt->terminate_ms($s);
};

subtest 'a procedure whose pauses are interrupted' => sub {
	my $s = begin('app', 'CALL is_interrupted(0)');
	my $then = $dt->now;

	run_each($s, "CALL is_interrupted($n)");
	check_bound('interrupts', $then, $once, $n * $step);
	$s->quit;
};

# It waits for the row each time, so that nothing is paid while it is locked.
foreach my $case (
	[ 'BEGIN, UPDATE, ROLLBACK', 'UPDATE hot SET n = n + 1', "INSERT INTO lines SELECT repeat('x', 900) FROM generate_series(1, 500)" ],
	[ 'a function that does it', 'SELECT update_hot()', 'SELECT ' . emit() ])
{
	my ($name, $lock, $write) = @$case;

	subtest "an accomplice who waits for the row: $name" => sub {
		$dt->sql(
			q{CREATE OR REPLACE FUNCTION update_hot() RETURNS int LANGUAGE sql AS
				'UPDATE hot SET n = n + 1; SELECT 1'});
		my $s = begin('app', "BEGIN; $lock; $write; ROLLBACK");
		my $accomplice = $dt->session(user => 'outsider');
		my $then = $dt->now;

		$dt->running(
			sub {
				foreach (1 .. $n)
				{
					$s->query("BEGIN; $lock");
					$accomplice->send('BEGIN; UPDATE hot SET n = n + 1; ROLLBACK');
					poll_until(
						sub {
							$dt->sql(q{SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = } .
								  $accomplice->pid) eq 't';
						}) or die 'the accomplice does not wait';
					$s->query($write);
					$s->query('ROLLBACK');
					$accomplice->wait;
				}
			});
		check_bound($name, $then, $once, $n * 400_000);
		$_->quit foreach $s, $accomplice;
	};
}

# ------------------------------------------------------------ without a sign of writing

# No message is longer than a record that a reader writes.
$dt->sql(
	q{CREATE FUNCTION small(n int) RETURNS int LANGUAGE plpgsql AS $$
		DECLARE x boolean; BEGIN
			FOR i IN 1 .. n LOOP x := } . emit(1200) . q{ IS NULL; END LOOP;
			RETURN n; END $$});
my $small = 'SELECT small(300)';
my $small_fails = 'SELECT 1 / (small(300) - 300)';

foreach my $case ([ 'small messages', $small, undef ], [ 'small messages, and an error', $small_fails, '22012' ])
{
	my ($name, $sql, $sqlstate) = @$case;

	subtest $name => sub {
		my $s = begin('app', 'SELECT small(0)');
		my $then = $dt->now;

		$dt->running(sub { is($s->run($sql)->{sqlstate}, $sqlstate, $name) foreach 1 .. $n });
		check_bound($name, $then, $once, $n * 300 * 1200);
		$s->quit;
	};
}

# --------------------------------------------------------------- a connection for each

# Each array has so many elements that its elements write a step.
$dt->sql(
	q{CREATE FUNCTION checks(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS
		$$ DECLARE x boolean; BEGIN
			x := } . emit(10_000) . q{ IS NULL;
			RETURN true; END $$;
	CREATE DOMAIN dom AS int CHECK (checks(VALUE))});

foreach my $case (
	[ 'large objects', 'SELECT lo_from_bytea(0, ' . content() . ')' ],
	[ 'an array of a domain whose CHECK writes', 'SELECT cardinality(array_fill(1, ARRAY[' . $step / 10_000 . '])::dom[])' ],
	[ 'messages', 'SELECT ' . emit() ],
	[ 'small messages', $small ],
	[ 'small messages, and an error', $small_fails ])
{
	my ($name, $sql) = @$case;

	subtest "a connection for each: $name" => sub {
		$dt->fresh('slow');
		my $first = $dt->session(user => 'app');
		$first->run($sql);
		$first->quit;
		poll_until(sub { $dt->group_row('slow')->{members} == 0 }, 180);
		$dt->fresh(slow => wal => $kb);
		my $then = $dt->now;

		foreach my $i (1 .. 30)
		{
			my $s = $dt->session(user => 'app');

			$s->send($sql);
			$dt->settle;
			$dt->terminate_ms($s);
			poll_until(sub { $dt->group_row('slow')->{members} == 0 }, 180);
			$dt->advance($second / 10);
		}
		# as soon as the group is not ahead by that any more, a health check is answered
		check_bound($name, $then, $once, $step);
		my $owed = ($dt->used('slow', 'wal'))[1];
		my $check = $dt->session(user => 'app');
		$check->send('SELECT pg_is_in_recovery()');
		$dt->settle;
		ok(($owed <= $DirtyThrottle::Books::LAG * 1000 * $kb) == !!$check->finished, "$name: so a health check is answered, or not")
		  or diag "owed: $owed";
		$dt->run;
		$check->wait;
		$check->quit;
		$check = $dt->session(user => 'app');
		$check->send('SELECT pg_is_in_recovery()');
		$dt->settle;
		ok($check->finished, "$name: when that is paid, it is");
		$dt->run;
		$check->quit;
	};
}

$dt->finish;
