# Leaving a group is an exit: who leaves owes nothing, and who joins in the same role
# takes over the part of one who has left.  In the long run each group gets its limit
# all the same, however often its members leave and join, and nothing is lost.  To the
# byte, on a clock that stands still while statements run.
#
# expect-in-log: WARNING:  resource group "passing" does not exist
#
# takes-about: 17 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use DirtyThrottle::Life;
use List::Util qw(sum);
use Test::More;

my $kb = 1000;    # KB/s, so a byte is a microsecond
my $second = 1_000_000;
my $dt = DirtyThrottle::Clock->new('leaving', conf => 'max_connections = 60');

$dt->limit($_ => 0) foreach 'g', 'h';
$dt->table('t');
my $work = insert_sql('t', 10);
$dt->sql(qq{CREATE ROLE pool SUPERUSER LOGIN;
	CREATE FUNCTION in_g() RETURNS void LANGUAGE sql
		SET dirty_throttle."group" = 'g' AS \$\$$work\$\$;
	CREATE FUNCTION many_in_g(n int) RETURNS void LANGUAGE plpgsql AS
		'BEGIN FOR i IN 1..n LOOP PERFORM in_g(); END LOOP; END';
	CREATE FUNCTION fails_in_g() RETURNS void LANGUAGE plpgsql AS
		'BEGIN PERFORM in_g(); PERFORM 1 / 0; EXCEPTION WHEN division_by_zero THEN NULL; END'});

my %set = map { $_ => qq{SET dirty_throttle."group" = '$_'} } 'g', 'h';
my %local = map { $_ => qq{SET LOCAL dirty_throttle."group" = '$_'} } 'g', 'h';
my $asyncpg = 'SELECT pg_advisory_unlock_all()\; CLOSE ALL\; UNLISTEN *\; RESET ALL;';

sub owed
{
	my ($group) = @_;
	return ($dt->used($group // 'g', 'dirty'))[1];
}

sub debt_of
{
	my ($session) = @_;
	return sprintf '%.0f', 1000 * $dt->session_row($session)->{dirty_debt};
}

# A session that leaves a debt in g, of so many rows, and is in no group then.
sub leave_debt
{
	my ($s, $rows) = @_;

	$s->query($_) foreach 'BEGIN', $local{g}, insert_sql('t', $rows), 'ROLLBACK';
}

# The same of several sessions of a role at once: none takes over what another one
# has left.
sub leave_debts
{
	my ($rows, @sessions) = @_;

	foreach my $s (@sessions)
	{
		$s->query($_) foreach 'BEGIN', $local{g};
	}
	$_->query(insert_sql('t', $rows)) foreach @sessions;
	$_->query('ROLLBACK') foreach @sessions;
}

# ------------------------------------------------------------------ the long run

# What a client sends, again and again, over a connection that has one client after
# the other: each time a client who is in no group follows.
my @patterns = (
	[ 'SET and RESET' => $set{g}, $work, 'RESET dirty_throttle."group"' ],
	[ 'SET LOCAL' => 'BEGIN', $local{g}, $work, 'COMMIT' ],
	[ 'SET LOCAL, rolled back' => 'BEGIN', $local{g}, $work, 'ROLLBACK' ],
	[ 'SET LOCAL, in one message' => "BEGIN\\; $local{g}\\; $work\\; COMMIT" ],
	[ 'a SET clause' => 'SELECT in_g()' ],
	[ 'a SET clause, in a loop' => 'SELECT many_in_g(5)' ],
	[ 'a SET clause, in a block' => 'BEGIN', 'SELECT in_g()', $work, 'SELECT in_g()', 'COMMIT' ],
	[ 'an error in a subtransaction' => 'SELECT fails_in_g()' ],
	[ 'DISCARD ALL' => $set{g}, $work, 'DISCARD ALL' ],
	[ 'RESET ALL' => $set{g}, $work, 'RESET ALL' ],
	[ 'asyncpg' => $set{g}, $work, $asyncpg ],
	[ 'join_group()' => q{SELECT join_group('g')}, $work, 'SELECT join_group(NULL)' ],
	[ 'a new connection' => undef ]);

# Who is a member in between takes nothing from the group either.
foreach my $pattern (@patterns)
{
	my ($name, @sql) = @$pattern;
	my $connection = $dt->session(user => 'pool');
	my ($waits, $n) = (0, 12);

	$dt->fresh(g => dirty => $kb);
	my $us = $dt->running(
		sub {
			foreach my $i (1 .. $n)
			{
				# a low one, as poolers want it
				$connection->query('SET dirty_throttle.max_commit_pause = '
					  . ($i % 2 ? '0' : "'1d'"));
				if (defined $sql[0])
				{
					$connection->query($_) foreach @sql;
				}
				else
				{
					my $s = $dt->session(user => 'pool', group => 'g');
					$s->query($work);
					$dt->terminate_ms($s);
				}
				my $start = $dt->now;
				$connection->query($MAY_WRITE);
				$connection->query('SELECT 1');
				$waits += $dt->now - $start;
			}
		});
	my ($used, $owed) = $dt->used('g', 'dirty');
	is($waits, 0, "$name: the next client never waits");
	cmp_ok($used, '>=', $n * 9 * 8192, "$name: they have worked");
	cmp_ok($owed, '<=', 60 * 8192, "$name: and owe a round at most");
	$dt->check_books('g', 'dirty', $name, members => 2);
	$connection->quit;
}

# Between two groups: each gets its limit.  Who joins the second one has locks, and pays
# there in flight, but for the grace.
foreach my $case (
	[ 'to and fro', "$set{g}", $work, "$set{h}", $work ],
	[ 'to and fro in a block', 'BEGIN', $local{g}, $work, $local{h}, $work, 'COMMIT' ],
	[ 'to and fro, rolled back', 'BEGIN', $local{g}, $work, $local{h}, $work, 'ROLLBACK' ])
{
	my ($name, @sql) = @$case;
	my $s = $dt->session(user => 'pool');

	$dt->fresh(g => dirty => $kb);
	$dt->fresh(h => dirty => $kb / 2);
	$s->query(q{SET dirty_throttle.transaction_grace = '50ms'});
	my $start = $dt->now;
	$dt->running(sub { $s->query($_) foreach (@sql) x 12 });
	my $seconds = ($dt->now - $start) / $second;
	foreach my $group ('g', 'h')
	{
		my ($used, $owed) = $dt->used($group, 'dirty');
		my $rate = $group eq 'g' ? $kb : $kb / 2;

		cmp_ok($used - $owed, '<=', $rate * 1000 * $seconds + new_credit($rate) + 1,
			"$name: $group: at its limit");
		cmp_ok($owed, '<=', 40 * 8192, "$name: $group: and little is owed");
	}
	$s->quit;
}

# --------------------------------------------------------------- twenty that have left

subtest 'twenty connections of a pool' => sub {
	my @pool = map { $dt->session(user => 'pool') } 1 .. 20;

	$dt->fresh(g => dirty => $kb);
	leave_debts(10, @pool);
	my ($used, $owed) = $dt->used('g', 'dirty');
	is($owed, $used - new_credit($kb), 'all twenty owe');
	is($dt->group_row('g')->{members}, 0, 'and are in the group no more');

	# each takes over one part, and the sum stays
	my @parts;
	foreach my $i (1 .. 20)
	{
		my $s = $pool[ $i - 1 ];

		$s->query($_) foreach 'BEGIN', $local{g};
		push @parts, debt_of($s);
		cmp_ok(abs($parts[-1] - $owed / 20), '<=', 2, "the ${i}th takes over one part of twenty");
	}
	cmp_ok(abs(sum(@parts) - $owed), '<=', 40, 'together all');
	cmp_ok(abs(owed() - $owed), '<=', 20, 'the group is owed no more and no less');
	my $late = $dt->session(user => 'pool', group => 'g');
	is(debt_of($late), 0, 'for one more nothing is left');
	$late->quit;

	# who leaves again, leaves his part
	$_->query('ROLLBACK') foreach @pool;
	cmp_ok(abs(owed() - $owed), '<=', 20, 'when they have left again, too');
	my $one = $dt->session(user => 'pool', group => 'g');
	cmp_ok(abs(debt_of($one) - $owed / 20), '<=', 2, 'one that joins takes one part');
	$one->send($MAY_WRITE);
	my $us = $dt->run;
	# beside the account of the others it gets half of the limit
	cmp_ok(abs($us - 2 * $owed / 20), '<=', 4, 'and pays for that, beside what the others owe');
	cmp_ok(abs(owed() - ($owed - $us)), '<=', 20, 'and what that has earned is repaid');
	$dt->check_books('g', 'dirty', 'twenty', members => 21);
	$_->quit foreach $one, @pool;
};

subtest 'roles apart' => sub {
	my @s = map { $dt->sql("CREATE ROLE r$_ SUPERUSER LOGIN"); $dt->session(user => "r$_") } 1 .. 5;

	$dt->fresh(g => dirty => $kb);
	my @left;
	foreach my $i (1 .. 5)
	{
		my $before = owed();
		leave_debt($s[ $i - 1 ], 10 * $i);
		push @left, owed() - $before;
	}
	foreach my $i (reverse 1 .. 5)
	{
		$s[ $i - 1 ]->query($set{g});
		cmp_ok(abs(debt_of($s[ $i - 1 ]) - $left[ $i - 1 ]), '<=', 2, "r$i: its own");
	}
	$dt->limit(g => 0);
	$_->quit foreach @s;
};

# --------------------------------------------------- what ends the accounts of roles

subtest 'what forgives' => sub {
	foreach my $case (
		[ 'no limit', q{SELECT set_group_dirty_limit('g', 0)}, 0 ],
		[ 'mode observe', q{SELECT alter_resource_group('g', mode => 'observe')}, 0 ],
		[ 'a rename', q{SELECT rename_resource_group('g', 'g2')}, 1, q{SELECT rename_resource_group('g2', 'g')} ],
		[ 'another limit', q{SELECT set_group_dirty_limit('g', 2000)}, 1 ],
		[ 'a suspension', q{SELECT suspend_group('g')}, 1, q{SELECT resume_group('g')} ],
		[ 'its end', q{SELECT drop_resource_group('g')}, 0, q{SELECT set_group_dirty_limit('g', 1000)} ])
	{
		my ($name, $sql, $stays, $back) = @$case;
		my $s = $dt->session(user => 'pool');

		$dt->fresh(g => dirty => $kb);
		leave_debt($s, 10);
		my $owed = owed();
		cmp_ok($owed, '>', 50_000, "$name: owed before");
		$dt->sql($sql);
		$dt->sql($back) if $back;
		is(owed(), $stays ? $owed : 0, "$name: owed after");
		$s->query($set{g});
		is(debt_of($s), $stays ? $owed : 0, "$name: taken over");
		$s->query('RESET ALL');
		$dt->sql(q{SELECT alter_resource_group('g', mode => 'enforce')});
		$s->quit;
	}
};

# There are fewer accounts than groups are dropped here with one in use.
subtest 'accounts come back' => sub {
	my $n = 1500;
	my $s = $dt->session(user => 'pool');

	$s->query(
		q{CREATE PROCEDURE drop_many(n int) LANGUAGE plpgsql AS $$
		BEGIN
			FOR i IN 1..n LOOP
				PERFORM set_group_wal_limit('passing', 1);
				COMMIT;
				PERFORM set_config('dirty_throttle.group', 'passing', false);
				PERFORM pg_logical_emit_message(false, 'x', repeat('x', 10000));
				PERFORM set_config('dirty_throttle.group', '', false);
				PERFORM drop_resource_group('passing');
				COMMIT;
			END LOOP;
		END $$});
	$s->query("CALL drop_many($n)");
	$dt->fresh(g => dirty => $kb);
	leave_debt($s, 10);
	my $owed = owed();
	$s->query($set{g});
	is(debt_of($s), $owed, "after $n groups that were dropped a role is still known");
	$s->query('RESET ALL');
	$s->quit;
};

# ------------------------------------------------------------ transaction_grace of a role

# One whose transactions must not pause while they run pays after them.
subtest 'the grace of a role' => sub {
	$dt->sql(q{ALTER SYSTEM SET dirty_throttle.transaction_grace = 0;
		ALTER ROLE pool SET dirty_throttle.transaction_grace = '1d'});
	$dt->sql('SELECT pg_reload_conf()');
	ok(poll_until(sub { $dt->sql('SHOW dirty_throttle.transaction_grace') eq '0' }), 'the server has none');
	my $node = $dt->session(user => 'pool', group => 'g');
	my $other = $dt->session(group => 'g');

	$dt->fresh(g => dirty => $kb);
	$node->query('BEGIN');
	$node->send(insert_sql('t', 50));
	is($dt->run, 0, 'the role does not pause in flight');
	$node->wait;
	my $owed = owed();
	$node->send('COMMIT');
	is($dt->run, $owed, 'and pays all after its transaction');
	$node->wait;
	$other->query('BEGIN');
	$other->send(insert_sql('t', 50));
	cmp_ok($dt->run, '>', 40 * 8192, 'another one does');
	$other->query('ROLLBACK');
	$_->quit foreach $node, $other;
	$dt->sql('ALTER SYSTEM RESET dirty_throttle.transaction_grace; ALTER ROLE pool RESET ALL');
	$dt->sql('SELECT pg_reload_conf()');
};

# --------------------------------------------------------- what is due, and where it goes

# See the table of DtDueState in src/session/account.h.
subtest 'what is due' => sub {
	my $s = $dt->session(user => 'pool', group => 'g');
	my $owe = sub {
		$dt->fresh(g => dirty => $kb);
		$s->query('SET dirty_throttle.max_commit_pause = 0');
		$s->query($_) foreach 'BEGIN', insert_sql('t', 10), 'ROLLBACK';
		return owed();
	};
	my $pauses = sub {
		my ($name, $sql) = @_;
		$s->send($sql);
		$dt->settle;
		is($dt->state($s), 'sleeps', "$name: it pauses");
		is($dt->session_row($s)->{paused_by}, 'dirty', "$name: for its debt");
	};

	# a cancel, as often as anybody likes
	my $owed = $owe->();
	foreach my $i (1 .. 3)
	{
		$pauses->("cancel $i", $MAY_WRITE);
		$dt->cancel_ms($s);
	}
	is(owed(), $owed, 'canceled: it owes all');
	$pauses->('after that', $MAY_WRITE);
	is($dt->run, $owed, 'and pays it');
	$s->wait;
	$s->send($MAY_WRITE);
	is($dt->run, 0, 'once');
	$s->wait;

	# an error, a cancel that a function has caught, in the subtransaction of it
	$dt->sql(q{CREATE FUNCTION caught() RETURNS text LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN
				EXECUTE 'INSERT INTO t SELECT 1';
			EXCEPTION WHEN query_canceled THEN
				NULL;
			END;
			EXECUTE 'INSERT INTO t SELECT 2';
			RETURN 'done';
		END $$});
	$owed = $owe->();
	$pauses->('caught', q{DO 'BEGIN PERFORM caught(); END'});
	# the cancel comes a moment later, and until then it still sleeps
	my $since = $dt->session_row($s)->{paused_since};
	$dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')');
	ok( poll_until(
			sub { $s->finished || ($dt->session_row($s)->{paused_since} // '') ne $since }),
		'it is cancelled');
	$dt->settle;
	if (!$s->finished)
	{
		is($dt->state($s), 'sleeps', 'it pauses again');
		is($dt->run, $owed, 'and pays all');
	}
	$s->wait;
	$s->send($MAY_WRITE);
	$dt->run;
	$s->wait;
	is(owed(), 0, 'in the end all is paid');

	# moved while it sleeps: to no group, and to another one
	foreach my $to ('', 'h')
	{
		$dt->fresh(h => dirty => $kb);
		$owed = $owe->();
		$pauses->("moved to '$to'", $MAY_WRITE);
		my $then = $dt->now;
		$dt->sql('SELECT set_session_group(' . $s->pid . ", '$to')");
		$dt->settle;
		ok($s->finished, "moved to '$to': it goes on");
		is($dt->now, $then, "moved to '$to': at once");
		$s->wait;
		is(owed(), $owed, "moved to '$to': g keeps what is owed");
		is($dt->group_row('g')->{paused}, 0, "moved to '$to': nobody pauses");
		$s->send($MAY_WRITE);
		is($dt->run, 0, "moved to '$to': nor later");
		$s->wait;
		$dt->sql('SELECT set_session_group(' . $s->pid . ', NULL)');
		$pauses->("back from '$to'", $MAY_WRITE);
		is($dt->run, $owed, "back from '$to': it pays");
		$s->wait;
	}

	# moved to where its role owes something, while it sleeps
	$dt->fresh(h => dirty => $kb);
	my $other = $dt->session(user => 'pool');
	$other->query($_) foreach 'BEGIN', $local{h}, insert_sql('t', 20), 'ROLLBACK';
	my $in_h = owed('h');
	$owed = $owe->();
	$pauses->('to a debt', $MAY_WRITE);
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'h')});
	is($dt->run, $in_h, 'moved to where its role owes: it pays that before it goes on');
	$s->wait;
	is(owed('h'), 0, 'all of it');
	$other->quit;
	$dt->sql('SELECT set_session_group(' . $s->pid . ', NULL)');

	# moved out of a group while it was idle, and within its next transaction to where
	# its role owes something: it was no member in between
	my $debtor = $dt->session(user => 'pool');
	my $moved = $dt->session(user => 'pool');
	$dt->sql('SELECT set_session_group(' . $moved->pid . q{, 'h')});
	$moved->query('SELECT 1');
	$dt->sql('SELECT set_session_group(' . $moved->pid . ', NULL)');
	$moved->query($_) foreach 'BEGIN', insert_sql('t', 1);
	$dt->fresh(h => dirty => $kb);
	$debtor->query($_) foreach 'BEGIN', $local{h}, insert_sql('t', 20), 'ROLLBACK';
	$dt->sql('SELECT set_session_group(' . $moved->pid . q{, 'h')});
	$moved->send(insert_sql('t', 1));
	$dt->settle;
	ok($moved->finished, 'within a transaction, moved to a debt: it goes on');
	$dt->run unless $moved->finished;
	$moved->wait;
	$moved->query('ROLLBACK');
	$_->quit foreach $moved, $debtor;
	$dt->limit(h => 0);

	# the group is dropped while it sleeps
	$dt->limit(passing => 1000);
	$s->query($_) foreach q{SET dirty_throttle.max_commit_pause = 0}, 'RESET ALL', 'BEGIN',
	  q{SET dirty_throttle."group" = 'passing'}, 'COMMIT', 'BEGIN', insert_sql('t', 10), 'ROLLBACK';
	$pauses->('dropped', $MAY_WRITE);
	$dt->sql(q{SELECT drop_resource_group('passing', force => true)});
	$dt->settle;
	ok($s->finished, 'dropped: it goes on') or $dt->cancel_ms($s);
	$s->wait;
	$s->send($MAY_WRITE);
	is($dt->run, 0, 'dropped: nor does it pause later');
	$s->wait;
	$s->quit;
};

$dt->finish;
