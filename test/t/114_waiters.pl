# Who waits for a member that pauses, on a clock that stands still while
# statements run: for each kind of waiting, and in each state of the member, the
# one who waits gets what he wants 0.1 s after he has begun to, and a look or two
# later.  Who looks for all who pause, and what happens when that one is gone.
# And what a member gets that somebody waits for all the time.
#
# takes-about: 35 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use Test::More;

my $timeout = $ENV{DT_WAITERS_TIMEOUT} // 180;
my $second = 1_000_000;
my $kb = 1000;              # KB/s, so a byte is a microsecond
my $bound = 100_000;        # us, the default of max_blocking_time
my $at_most = 200_000;      # us: so long somebody waits, at most
my $dt = DirtyThrottle::Clock->new('waiters',
	init => [ allows_streaming => 'logical' ],
	conf => q{
max_connections = 60
dirty_throttle.max_blocking_time = 100ms
deadlock_timeout = 1h
});

$dt->limit(g => 0);
$dt->limit(other => 0);
$dt->sql(
	q{CREATE TABLE t (id int, pad text) WITH (fillfactor = 10);
	CREATE TABLE big (id int, pad text) WITH (fillfactor = 10);
	INSERT INTO big SELECT k, repeat('x', 800) FROM generate_series(1, 500) k;
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot SELECT i, 0 FROM generate_series(0, 20) i;
	CREATE TABLE elsewhere AS SELECT 1 AS id;
	CREATE TABLE pinned AS SELECT i AS id FROM generate_series(1, 10) i;
	CREATE ROLE job LOGIN SUPERUSER;
	VACUUM});

sub insert
{
	my ($rows) = @_;
	return "INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, $rows) k";
}

sub update
{
	my ($id) = @_;
	return "UPDATE hot SET n = n + 1 WHERE id = $id";
}

my $s = $dt->session(group => 'g', user => 'job');
my @more = map { $dt->session(group => 'g') } 1 .. 8;
my $mate = $dt->session(group => 'g');
my $outsider = $dt->session;

# In flight from the first row on, or only after and before transactions.
sub grace
{
	my ($grace) = @_;
	$dt->set_conf('dirty_throttle.transaction_grace', $grace, $s, @more, $mate);
}

# Wait until that session waits for another process.
sub ok_waits
{
	my ($session, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( poll_until(
			sub {
				$dt->sql(q{SELECT count(*) FROM pg_stat_activity
					WHERE (wait_event_type IN ('Lock', 'BufferPin', 'Buffer')
							OR wait_event = 'SafeSnapshot')
						AND pid = } . $session->pid);
			}, $timeout),
		"$name: somebody waits");
}

# Somebody wants something, and gets it in time, but not before the bound.
sub check_gets
{
	my ($name, $who, $sql, %opt) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$who->send($sql);
	ok_waits($who, $name);
	$dt->sql('SELECT dt_test_watch(' . $who->pid . ')');
	# what has no start of its own counts from the next look on
	$dt->advance($bound - 1);
	ok(!$who->finished, "$name: he waits on") unless $opt{at_once};
	$dt->advance($at_most - $bound);
	$dt->sql('SELECT dt_test_watch(0)');
	ok($who->finished($timeout), "$name: and gets it");
	is($who->wait->{sqlstate}, undef, "$name: without an error");
}

# Everything comes to its end, and nothing is owed.
sub end
{
	$dt->sql(q{SELECT resume_group('g')})
	  if defined $dt->group_row('g')->{suspended_since};
	$dt->limit(g => 0);
	$dt->settle;
	foreach my $session ($s, @more, $mate, $outsider)
	{
		my $r = $session->wait;
		is($r->{sqlstate}, undef, 'no error') or diag $r->{err};
	}
	# a new wait of the same session is one of its own then
	$dt->advance(2 * $second);
}

# ---------------------------------------------------- in flight, kinds of waiting

my $lock_7 = 'SELECT pg_advisory_xact_lock(7)';
my %work = (
	'between rows' => insert(200),
	'at a check' => 'ALTER TABLE big ALTER id TYPE bigint USING id + 1');

# Each: what the member does before, and what somebody wants.
my @kinds = (
	[ 'a row', update(1), update(1) ],
	[ 'a table', 'LOCK elsewhere IN SHARE MODE', 'INSERT INTO elsewhere VALUES (2)' ],
	[ 'a table, in the queue behind one that wants more',
		'LOCK elsewhere IN ACCESS SHARE MODE', 'SELECT count(*) FROM elsewhere',
		'BEGIN; LOCK elsewhere; ROLLBACK' ],
	[ 'an advisory lock', $lock_7, $lock_7 ],
	[ 'an advisory lock of the session', 'SELECT pg_advisory_lock(8)',
		'SELECT pg_advisory_xact_lock(8)' ],
	[ 'a virtual transaction', 'SELECT count(*) FROM hot',
		'CREATE INDEX CONCURRENTLY elsewhere_i ON elsewhere (id)' ],
	[ 'a new slot', update(1),
		q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')} ],
	[ 'a pin', 'DECLARE c CURSOR FOR SELECT * FROM pinned; FETCH c',
		'VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) pinned' ],
	[ 'a safe snapshot',
		'SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; ' . update(1),
		'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1; COMMIT' ]);

grace('0');
foreach my $state (sort keys %work)
{
	foreach my $kind (@kinds)
	{
		my ($what, $holds, $wants, $between) = @$kind;
		my $name = "$what, of a member that pauses $state";

		subtest $name => sub {
			$dt->sql(q{DROP INDEX IF EXISTS elsewhere_i;
				TRUNCATE pinned;
				INSERT INTO pinned SELECT i FROM generate_series(1, 10) i;
				SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
			$dt->fresh(g => dirty => $kb);
			$s->query("BEGIN; $holds") ;
			$s->send("$work{$state}; COMMIT; SELECT pg_advisory_unlock_all()");
			$dt->settle;
			is($dt->state($s), 'sleeps', 'it pauses');
			if ($between)
			{
				$more[0]->query(q{SET dirty_throttle."group" = ''});
				$more[0]->send($between);
				ok_waits($more[0], $name);
			}
			check_gets($name, $outsider, $wants);
			is($dt->session_row($s)->{releases}, $dt->group_row('g')->{releases},
				'it was let go');
			$dt->run;
			$dt->check_books('g', 'dirty', 'and pays all');
			end();
			$more[0]->query(q{SET dirty_throttle."group" = 'g'}) if $between;
			$s->query(q{RESET dirty_throttle."group"; SET dirty_throttle."group" = 'g'});
		};
	}
}

# The server names nobody for who has committed another serializable transaction.
subtest 'a safe snapshot, after a serializable transaction' => sub {
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN ISOLATION LEVEL SERIALIZABLE; ' . update(1));
	$outsider->query('BEGIN ISOLATION LEVEL SERIALIZABLE; INSERT INTO elsewhere VALUES (9); COMMIT');
	$s->send(insert(200) . '; COMMIT');
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	check_gets('a safe snapshot', $outsider,
		'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1; COMMIT');
	$dt->run;
	end();
};

# Eight members pause in flight that hold this.
sub eight_hold
{
	my ($holds) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$dt->sql('DROP INDEX IF EXISTS elsewhere_i;
		SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots');
	$dt->fresh(g => dirty => $kb);
	foreach my $member (@more)
	{
		$member->query("BEGIN; $holds");
		$member->send(insert(100) . '; COMMIT');
		$dt->settle;
		is($dt->state($member), 'sleeps', 'a member pauses');
	}
}

# Who waits for several in turn waits too long for the first one only.
sub in_turn
{
	my ($holds, $wants, $name) = @_;

	subtest $name => sub {
		eight_hold($holds);
		check_gets($name, $outsider, $wants);
		$dt->run;
		end();
	};
}

in_turn('SELECT FROM hot WHERE id = 20 FOR KEY SHARE',
	'DELETE FROM hot WHERE id = 20', 'a row that eight have locked');
in_turn('SELECT count(*) FROM hot',
	'CREATE INDEX CONCURRENTLY elsewhere_i ON elsewhere (id)',
	'an index, created concurrently beside eight');
in_turn('INSERT INTO elsewhere VALUES (3)',
	q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')},
	'a slot beside eight');

# The look that finds the first one lets all of them go.
foreach my $case (
	[ 'SELECT count(*) FROM hot', 'CREATE INDEX CONCURRENTLY elsewhere_i ON elsewhere (id)' ],
	[ 'INSERT INTO elsewhere VALUES (3)', q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')} ])
{
	my ($holds, $wants) = @$case;

	subtest "all at once: $wants" => sub {
		eight_hold($holds);
		$outsider->send($wants);
		ok_waits($outsider, 'for the first one');
		my $us = 0;
		while ($us < $at_most && $dt->group_row('g')->{releases} == 0)
		{
			$dt->advance(1000);
			$us += 1000;
		}
		$dt->settle;
		is($dt->group_row('g')->{releases}, scalar @more, 'all of them go on');
		$dt->run;
		end();
	};
}

# While he waits for one that does not pause, no member goes on for that.
subtest 'an index, created concurrently beside others, first' => sub {
	my $other = $dt->session;

	$dt->sql('DROP INDEX IF EXISTS elsewhere_i');
	$other->query('BEGIN; INSERT INTO elsewhere VALUES (4)');
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; SELECT count(*) FROM hot');
	$s->send(insert(200) . '; COMMIT');
	$dt->settle;
	$outsider->send('CREATE INDEX CONCURRENTLY elsewhere_i ON elsewhere (id)');
	ok_waits($outsider, 'for another one');
	$dt->advance(50_000);
	$dt->advance(100_000);
	is($dt->group_row('g')->{releases}, 0, 'the member pauses');
	$dt->sql('SELECT dt_test_watch(' . $outsider->pid . ')');
	$other->query('COMMIT');
	$dt->settle;
	$dt->advance(50_000);
	$dt->sql('SELECT dt_test_watch(0)');
	ok($outsider->finished($timeout), 'and does not when it is his turn');
	end();
	$other->quit;
};

# Each has its own bound, and one who must not be let go is not.
subtest 'bounds of members' => sub {
	my %ms = (0 => 1000, 1 => 0, 2 => 300, 3 => -1);

	$dt->fresh(g => dirty => $kb);
	foreach my $i (sort keys %ms)
	{
		$more[$i]->query("SET dirty_throttle.max_blocking_time = $ms{$i};
			BEGIN; " . update(10 + $i));
		$more[$i]->send(insert(100) . '; COMMIT');
		$dt->settle;
	}
	my @waiting = map { $dt->session } sort keys %ms;
	$waiting[$_]->send(update(10 + $_)) foreach sort keys %ms;
	ok_waits($waiting[$_], "member $_") foreach 0, 2, 3;
	my $passed = 0;
	foreach my $i (1, 2, 0)
	{
		if ($ms{$i} > 0)
		{
			$dt->advance(1000 * $ms{$i} - 1 - $passed);
			ok(!$waiting[$i]->finished, "max_blocking_time = $ms{$i}: he waits on");
			$passed = 1000 * $ms{$i} - 1;
		}
		$dt->advance(25_001);
		$passed += 25_001;
		# whose look meets that of somebody else tries again 5 ms later
		foreach (1 .. 2)
		{
			last if $waiting[$i]->finished(1);
			$dt->advance(5000);
			$passed += 5000;
		}
		ok($waiting[$i]->finished($timeout), "max_blocking_time = $ms{$i}: no longer than that");
	}
	ok(!$waiting[3]->finished, 'max_blocking_time = -1: as long as it takes');
	$dt->run;
	ok($waiting[3]->finished($timeout), '... and then he gets it');
	end();
	$more[$_]->query('RESET dirty_throttle.max_blocking_time') foreach sort keys %ms;
	$_->quit foreach @waiting;
};

# Since when it waits is in the future then, on the wall clock.
subtest 'the clock was set back' => sub {
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . update(1));
	$s->send(insert(200) . '; COMMIT');
	$dt->settle;
	$outsider->send(update(1));
	ok_waits($outsider, 'a row');
	$dt->sql('SELECT dt_test_wait_start(' . $outsider->pid . q{, clock_timestamp() + '1 hour')});
	$dt->sql('SELECT dt_test_watch(' . $outsider->pid . ')');
	$dt->advance(60_000);
	$dt->sql('SELECT dt_test_watch(0)');
	ok($outsider->finished($timeout), 'it is not to wait for longer');
	$dt->run;
	end();
};

# Behind members and others that wait for each other.
subtest 'a chain' => sub {
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . update(1));
	$s->send(insert(100) . '; COMMIT');
	$dt->settle;
	$_->query(q{SET dirty_throttle.transaction_grace = '1d'}) foreach @more;
	foreach my $i (0 .. 6)
	{
		# members and sessions of no group in turn
		$more[$i]->query(q{SET dirty_throttle."group" = ''}) if $i % 2;
		$more[$i]->query('BEGIN; ' . update($i + 2));
		$more[$i]->send(update($i + 1) . '; COMMIT');
		ok_waits($more[$i], "link $i");
	}
	check_gets('behind a chain', $outsider, update(8), at_once => 1);
	end();
	$_->query('RESET dirty_throttle.transaction_grace') foreach @more;
	$more[$_]->query(q{SET dirty_throttle."group" = 'g'}) foreach 1, 3, 5;
};

# ------------------------------------------------------------------- who looks

# Three pause in flight for long, and somebody waits for the last one when
# something has happened to the one that looks.
sub who_looks
{
	my ($name, $code) = @_;

	subtest "the looker: $name" => sub {
		my @s = map { $dt->session(group => 'g') } 1 .. 3;

		$dt->fresh(g => dirty => 10);
		foreach my $i (0 .. $#s)
		{
			$s[$i]->query('BEGIN; ' . update($i));
			$s[$i]->send(insert(100) . '; COMMIT');
			$dt->settle;
		}
		$dt->advance(1000);
		my $pid = $dt->sql('SELECT dt_test_looker()');
		my ($gone) = grep { $s[$_]->pid == $pid } 0 .. $#s;
		ok(defined $gone, 'one of them has that role') or return;
		my ($last) = grep { $_ != $gone } reverse 0 .. $#s;

		$code->($s[$gone]);
		$dt->settle;
		my $oldest = 0;
		foreach (1 .. 30)
		{
			$dt->advance(10_000);
			my $age = $dt->sql('SELECT dt_test_age_of_look()');
			$oldest = $age if $age > $oldest;
		}
		# the next one who looks was told so, or has to find out
		my $rarest = $name eq 'stopped' ? 250 : 60;
		cmp_ok($oldest, '<=', $rarest * 1000, "there is a look each $rarest ms");
		isnt($dt->sql("SELECT dt_test_looker()"), 0, 'somebody looks');
		isnt($dt->sql("SELECT dt_test_looker()"), $pid, 'somebody else');
		check_gets('then', $outsider, update($last));
		$dt->sql('SELECT dt_test_stopped(0)');
		kill 'CONT', $pid;
		end();
		$_->finished($timeout) foreach @s;
		$_->quit foreach @s;
	};
}

who_looks('cancelled', sub { $dt->cancel_ms($_[0]) });
who_looks('terminated',
	sub {
		$dt->sql('SELECT pg_terminate_backend(' . $_[0]->pid . ', 180000)');
		$_[0]->wait;
	});
who_looks('moved out of the group',
	sub { $dt->sql('SELECT set_session_group(' . $_[0]->pid . q{, '')}) });
who_looks('stopped',
	sub {
		kill 'STOP', $_[0]->pid;
		$dt->sql('SELECT dt_test_stopped(' . $_[0]->pid . ')');
	});

# Nobody has looked for long, and somebody does so just now: that is no reason to go on.
subtest 'somebody looks just now' => sub {
	my $looks = $dt->session;

	$dt->fresh(g => dirty => $kb);
	$dt->sql(q{SELECT suspend_group('g')});
	$dt->advance(10 * $second);
	$looks->query('SELECT dt_test_hold_look(true)');
	$s->send(insert(1));
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it pauses');
	is($dt->session_row($s)->{released_since}, undef, 'and was not let go');
	$looks->query('SELECT dt_test_hold_look(false)');
	end();
	$looks->quit;
};

# Nobody can look.  So somebody may be waiting, for all that is known.
subtest 'somebody was stopped in a look' => sub {
	my @s = map { $dt->session(group => 'g') } 1 .. 3;
	my $hanging = $dt->session;

	$dt->fresh(g => dirty => 10);
	foreach my $i (0 .. $#s)
	{
		$s[$i]->query('BEGIN; ' . update($i));
		# 0.8 s a row: one of them will owe less than 30 s, the others more
		$s[$i]->send(insert($i == 1 ? 20 : 100) . '; COMMIT');
		$dt->settle;
	}
	$dt->advance(1000);
	my $looker = $dt->sql(q{SELECT dt_test_looker()});

	$hanging->query('SELECT dt_test_hold_look(true)');
	foreach (1 .. 20)
	{
		$dt->advance(50_000);
		is($dt->sql(q{SELECT dt_test_looker()}), $looker, 'nobody takes his role')
		  unless $s[1]->finished;
	}
	$outsider->send(update(1));
	$dt->advance(1_100_000);
	ok($outsider->finished($timeout), 'who waits for one that owes little gets it');
	my $view = $dt->session;
	$view->send('SELECT * FROM dirty_throttle_blocking');
	ok($view->finished($timeout), 'the view waits for no look');
	$view->quit;
	ok(!$_->finished, 'those that owe too much pause on') foreach @s[ 0, 2 ];
	$hanging->query('SELECT dt_test_hold_look(false)');
	check_gets('when there are looks again', $outsider, update(2));
	end();
	$_->finished($timeout) foreach @s;
	$_->quit foreach @s, $hanging;
};

subtest 'the looker has paid' => sub {
	my @s = map { $dt->session(group => 'g') } 1 .. 2;

	$dt->fresh(g => dirty => $kb);
	$s[0]->query('BEGIN');
	$s[0]->send(insert(20));
	$s[1]->query('BEGIN; ' . update(1));
	$s[1]->send(insert(400) . '; COMMIT');
	$dt->settle;
	foreach (1 .. 100)
	{
		last if $s[0]->finished;
		$dt->advance(25_000);
	}
	ok($s[0]->finished, 'it has paid');
	is($dt->sql(q{SELECT dt_test_looker()}), $s[1]->pid, 'the other one looks');
	check_gets('then', $outsider, update(1));
	$s[0]->query('ROLLBACK');
	end();
	$s[1]->wait;
	$_->quit foreach @s;
};

# ------------------------------------------------- after, before and suspended

grace('1d');

# The member pauses after its transaction, or before the next one, and somebody
# wants what it keeps meanwhile.  Each: what comes before, what pauses, and what is
# wanted.
my $session_lock = 'SELECT pg_advisory_lock(7)';
my $unlock = 'SELECT pg_advisory_unlock_all()';
foreach my $case (
	[ 'after: a lock of the session', $session_lock, insert(100) . "; $unlock", $session_lock ],
	[ 'before: a lock of the session', "$session_lock; SET dirty_throttle.max_commit_pause = 0; "
		  . insert(100), "INSERT INTO elsewhere VALUES (1); $unlock", $session_lock ],
	[ 'before: a table that its query names',
		'SET dirty_throttle.max_commit_pause = 0; ' . insert(100),
		'INSERT INTO elsewhere VALUES (1)', 'BEGIN; LOCK elsewhere; COMMIT' ],
	[ 'before: a table that its block has read',
		'SET dirty_throttle.max_commit_pause = 0; ' . insert(100)
		  . '; BEGIN; SELECT count(*) FROM elsewhere',
		'INSERT INTO hot VALUES (30, 0); ROLLBACK', 'BEGIN; LOCK elsewhere; COMMIT' ],
	[ 'before: a snapshot that its block has taken',
		'SET dirty_throttle.max_commit_pause = 0; ' . insert(100)
		  . '; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM hot',
		'INSERT INTO hot VALUES (30, 0); ROLLBACK',
		'CREATE INDEX CONCURRENTLY elsewhere_i ON elsewhere (id)' ],
	[ 'before: what it has prepared',
		'SET dirty_throttle.max_commit_pause = 0; BEGIN; ' . update(1) . '; '
		  . insert(100) . "; PREPARE TRANSACTION 'p'",
		"INSERT INTO elsewhere VALUES (1); COMMIT PREPARED 'p'", update(1) ],
	[ 'after: what it has prepared',
		'BEGIN; ' . update(1) . "; PREPARE TRANSACTION 'p'",
		insert(100) . "; COMMIT PREPARED 'p'", update(1) ])
{
	my ($name, $before, $pauses, $wants) = @$case;

	foreach my $by ('limit', 'suspended')
	{
		subtest "$by: $name" => sub {
			$dt->sql('DROP INDEX IF EXISTS elsewhere_i');
			$dt->fresh(g => dirty => $by eq 'limit' ? $kb : 0);
			$s->query($before);
			$dt->sql('SELECT suspend_group($$g$$)') if $by ne 'limit';
			$s->send($pauses);
			$dt->settle;
			is($dt->state($s), 'sleeps', 'it pauses');
			check_gets($name, $outsider, $wants);
			ok($dt->group_row('g')->{releases} > 0, 'it was let go');
			end();
			is($outsider->query($unlock), '', 'nothing is left');
			$s->query('RESET dirty_throttle.max_commit_pause');
		};
	}
}

# Many transactions, and a lock of the session all the while: who waits for that does
# so once, and not anew at each of them, though another member is the one that looks.
subtest 'a lock of the session over many transactions' => sub {
	$dt->fresh(g => dirty => $kb);
	$more[0]->send(insert(1000));
	$dt->settle;
	is($dt->sql(q{SELECT dt_test_looker()}), $more[0]->pid, 'another member looks');
	$s->query($session_lock);
	$outsider->send($session_lock);
	ok_waits($outsider, 'for the lock');
	$dt->advance($at_most);
	my $us = 0;
	foreach (1 .. 5)
	{
		$s->query('BEGIN; ' . insert(10));
		$dt->advance(40_000);    # the others look more and more seldom
		$s->send('COMMIT');
		$dt->settle;
		while ($us < $second && $dt->state($s) eq 'sleeps')
		{
			$dt->advance(1000);
			$us += 1000;
		}
		is($s->wait->{sqlstate}, undef, 'a transaction');
	}
	cmp_ok($us, '<=', 10_000, 'after the first one it pauses for a moment only');
	$s->query($unlock);
	ok($outsider->finished($timeout), 'he gets it');
	end();
	is($outsider->query($unlock), '', 'nothing is left');
};

# Another session of the group finishes it; and what is not known of, because it was
# prepared before a restart, its role and database tell.  Each: what somebody wants,
# how the transaction begins, and whether there is a restart.
foreach my $case (
	[ 'a row', update(1) ],
	[ 'a new slot', q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')} ],
	[ 'a safe snapshot',
		'BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY DEFERRABLE; SELECT 1; COMMIT',
		'ISOLATION LEVEL SERIALIZABLE' ],
	[ 'a row', update(1), '', 1 ])
{
	my ($what, $wants, $level, $restart) = (@$case, '', 0);

	subtest "$what, prepared by another session" . ($restart ? ' before a restart' : '') => sub {
		my $preparer = $dt->session(group => 'g', user => 'job');

		$preparer->query("BEGIN $level; " . update(1) . "; PREPARE TRANSACTION 'p'");
		$preparer->quit;
		if ($restart)
		{
			$dt->disconnect;
			$dt->node->restart;
			$s = $dt->session(group => 'g', user => 'job');
			@more = map { $dt->session(group => 'g') } 1 .. 8;
			$mate = $dt->session(group => 'g');
			$outsider = $dt->session;
		}
		$dt->fresh(g => dirty => $kb);
		$s->query('SET dirty_throttle.max_commit_pause = 0; ' . insert(100));
		$s->send("INSERT INTO elsewhere VALUES (1); COMMIT PREPARED 'p'");
		$dt->settle;
		is($dt->state($s), 'sleeps', 'it pauses');
		$outsider->send($wants);
		ok_waits($outsider, 'what is prepared');
		is( $dt->sql(
				'SELECT waiting_pid, waits_for, locktype, holder_pid IS NULL, holder_gid,
					group_name, holder_paused_since IS NULL FROM dirty_throttle_blocking'),
			join('|', $outsider->pid, 'lock', 'transactionid', 't', 'p', 'g', 't'),
			'the view shows it')
		  if $what eq 'a row';
		$dt->advance($at_most);
		ok($outsider->finished($timeout), 'he gets it');
		end();
		$s->query('RESET dirty_throttle.max_commit_pause');
		$dt->sql(q{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
	};
}

# The core remembers the ID of what was prepared last, but nobody waits for that.
subtest 'what was prepared, and is finished' => sub {
	my $somebody = $dt->session(group => 'other');

	$s->query('BEGIN; ' . update(1) . "; PREPARE TRANSACTION 'p'");
	$s->query("COMMIT PREPARED 'p'");
	$somebody->query('BEGIN; ' . update(2));
	$dt->fresh(g => dirty => $kb);
	$s->query('SET dirty_throttle.max_commit_pause = 0; ' . insert(500));
	$s->send(insert(1));
	$dt->settle;
	$outsider->send(q{SELECT pg_create_logical_replication_slot('slot', 'pgoutput')});
	ok_waits($outsider, 'somebody else');
	$dt->advance($second);
	is($dt->state($s), 'sleeps', 'no reason to go on');
	$somebody->query('ROLLBACK');
	end();
	$s->query('RESET dirty_throttle.max_commit_pause');
	$dt->sql(q{SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});
	$somebody->quit;
};

# Who owes too much goes on when it has paid for what it has used since the last time,
# also when its limit has become lower.
subtest 'a lower limit' => sub {
	$dt->fresh(g => dirty => 100);
	$s->query(q{SET dirty_throttle.max_commit_pause = 0; SET dirty_throttle.transaction_grace = '1d'});
	$s->query($session_lock);
	$s->query(insert(450));
	$outsider->send($session_lock);
	ok_waits($outsider, 'for the lock');
	foreach my $kb (100, 10)
	{
		$dt->sql("SELECT set_group_dirty_limit('g', $kb)");
		$s->send(insert(1));
		$dt->settle;
		$dt->advance(5 * $second);
		ok($s->finished, "$kb KB/s: it goes on");
		end() unless $s->finished;
		is($s->wait->{sqlstate}, undef, "$kb KB/s: without an error");
	}
	cmp_ok($dt->group_row('g')->{dirty_debt}, '>', 300, 'and owes more than 30 s');
	$s->query($unlock);
	$s->query('RESET dirty_throttle.max_commit_pause; RESET dirty_throttle.transaction_grace');
	end();
	$outsider->query($unlock);
};

# What is owed becomes too much while nobody waits, each time anew: that it was not so
# before is known, whether or not somebody has waited then.
subtest 'a lower limit, in a pause' => sub {
	my $new = $dt->session(group => 'g');

	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $new);
	foreach my $rows (100, 300)
	{
		$dt->fresh(g => dirty => $kb);
		$new->query("$session_lock; INSERT INTO elsewhere VALUES (1)");
		$new->send(insert($rows) . "; $unlock");
		$dt->settle;
		is($dt->state($new), 'sleeps', "$rows rows: it pauses");
		$dt->sql("SELECT set_group_dirty_limit('g', 10)");
		check_gets("$rows rows", $outsider, $session_lock);
		ok($dt->group_row('g')->{releases} > 0, "$rows rows: it was let go");
		end();
		is($new->wait->{sqlstate}, undef, "$rows rows: without an error");
		$outsider->query($unlock);
	}
	$new->quit;
};

# ------------------------------------------------------------- of its own group

# A member that owes nothing counts, too; one that does waits.
subtest 'a member of the group that owes nothing' => sub {
	grace('0');
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . update(1));
	$s->send(insert(200) . '; COMMIT');
	$dt->settle;
	check_gets('it', $mate, update(1));
	end();
};

subtest 'a member of the group that owes' => sub {
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . update(1));
	$s->send(insert(200) . '; COMMIT');
	$more[0]->query(q{SET dirty_throttle.transaction_grace = '1d'; BEGIN;
		ALTER TABLE big ALTER id TYPE int USING id + 1});
	$more[0]->send(update(1));
	ok_waits($more[0], 'it');
	$dt->settle;
	$dt->advance($second);
	ok(!$more[0]->finished, 'it waits on');
	end();
	$more[0]->query('ROLLBACK; RESET dirty_throttle.transaction_grace');
};

# It was moved into the group, and owes nothing there.
subtest 'a member of the group that owes elsewhere' => sub {
	my $moved = $dt->session(group => 'other');

	$moved->query(q{SET dirty_throttle.max_commit_pause = 0; SET dirty_throttle.transaction_grace = '1d'});
	$dt->fresh(other => dirty => 1);
	$moved->query('BEGIN');
	$moved->query(insert(20));
	$dt->fresh(g => dirty => $kb);
	$s->query('BEGIN; ' . update(1));
	$s->send(insert(200) . '; COMMIT');
	$dt->settle;
	$moved->send(update(1));
	ok_waits($moved, 'it');
	cmp_ok($dt->session_row($moved)->{dirty_debt}, '>', 100, 'it owes');
	$dt->sql('SELECT set_session_group(' . $moved->pid . q{, 'g')});
	$dt->advance($at_most);
	ok($moved->finished($timeout), 'it gets it');
	end();
	$moved->query('ROLLBACK');
	$moved->quit;
	$dt->limit(other => 0);
};

# ------------------------------------------------------------------- accomplices

# Somebody waits for ever.  In the long run the member gets what its group earns,
# and never more in advance than 30 s of that, but for a transaction in flight for
# which somebody outside waits.
sub accomplice
{
	my ($name, $who, $keeps, $wants, $work, $times) = @_;

	subtest "an accomplice: $name" => sub {
		my $owed_most = 0;

		$dt->fresh(g => dirty => $kb);
		$s->query($keeps) if $keeps;
		$who->send($wants);
		ok_waits($who, $name);
		$dt->running(
			sub {
				foreach (1 .. $times)
				{
					$s->query($work);
					my ($used, $owed) = $dt->used('g', 'dirty');
					$owed_most = $owed if $owed > $owed_most;
				}
			});
		my ($used, $owed) = $dt->used('g', 'dirty');
		cmp_ok($owed_most, '>', 29 * $kb * 1000, 'it was let go, until it has owed much');
		cmp_ok($owed_most, '<=', 31 * $kb * 1000 + 2e6, 'but no more than 30 s');
		cmp_ok($used, '>', 90 * $kb * 1000, 'it has used three times as much');
		$dt->check_books('g', 'dirty', 'all the time at the limit');
		ok(!$who->finished, 'he waits on');
		$dt->cancel_ms($who);
		$dt->limit(g => 0);
		$s->query(q{SELECT pg_advisory_unlock_all()});
		$dt->sql(q{ROLLBACK PREPARED 'p'})
		  if $dt->sql('SELECT count(*) FROM pg_prepared_xacts') > 0;
	};
}

grace('1d');
foreach my $who ([ 'outside', $outsider ], [ 'in the group', $mate ])
{
	accomplice("$who->[0], for a lock of the session", $who->[1],
		$session_lock, $session_lock, insert(200), 75);
	accomplice("$who->[0], for a prepared row", $who->[1],
		'BEGIN; ' . update(1) . "; PREPARE TRANSACTION 'p'", update(1), insert(200), 75);
}

# For a row of a running transaction: that runs to its end, and then it pays.
foreach my $who ([ 'outside', $outsider ], [ 'in the group', $mate ])
{
	subtest "an accomplice: $who->[0], for a row of each transaction" => sub {
		my $in_flight = 0;

		grace('0');
		$dt->fresh(g => dirty => $kb);
		my $us = $dt->running(
			sub {
				foreach my $i (1 .. 3)
				{
					$s->query('BEGIN; ' . update(1));
					$who->[1]->send(update(1));
					ok_waits($who->[1], "transaction $i");
					$s->query(insert(5000));
					my ($used, $owed) = $dt->used('g', 'dirty');
					$in_flight = $owed if $owed > $in_flight;
					$s->query('COMMIT');
					ok($who->[1]->finished($timeout), "transaction $i: he gets it");
				}
			});
		if ($who->[0] eq 'outside')
		{
			cmp_ok($in_flight, '>', 39 * $kb * 1000, 'each has run to its end');
		}
		else
		{
			cmp_ok($in_flight, '<=', 31 * $kb * 1000, 'none was 30 s ahead');
		}
		$dt->check_books('g', 'dirty', 'at the limit');
		end();
	};
}

$dt->finish;
