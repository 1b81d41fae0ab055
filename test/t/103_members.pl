# A hundred members share a limit evenly, whatever their statements look like;
# who joins, leaves, ends or is moved takes nothing from the others; and what
# somebody owes is paid.  To the byte, on a clock that stands still while
# statements run.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use List::Util qw(max min sum);
use Test::More;

my $n = 100;
my $block = 8192;
my $dt = DirtyThrottle::Clock->new(
	'members',
	conf => q{
dirty_throttle.transaction_grace = 0
max_connections = 120
});

$dt->limit($_ => 0) foreach 'g', 'h';
$dt->sql('CREATE ROLE leaver SUPERUSER LOGIN');
$dt->sql(
	q{CREATE TABLE batch (id int, pad text) WITH (fillfactor = 10);
	CREATE PROCEDURE batches(n int) LANGUAGE plpgsql AS $$
		BEGIN FOR i IN 1..n LOOP
			ALTER TABLE batch ALTER id TYPE bigint;
			COMMIT;
			ALTER TABLE batch ALTER id TYPE int;
			COMMIT;
		END LOOP; END $$});
$dt->sql(q{INSERT INTO batch SELECT i, repeat('x', 900) FROM generate_series(1, 100) i});
$dt->sql("CREATE TABLE t$_ (id int, pad text) WITH (fillfactor = 10)") foreach 0 .. $n - 1;

my @s = map { $dt->session(group => 'g') } 1 .. $n;

sub insert
{
	my ($i, $rows) = @_;
	return "INSERT INTO t$i SELECT k, repeat('x', 900) FROM generate_series(1, $rows) k";
}

# What each of these sessions has used and been paid for since it joined, in
# bytes.
sub each_of
{
	my (@sessions) = @_;
	my %row = map { /^(\d+)\|(.*)/ ? ($1 => $2) : () } split /\n/,
	  $dt->sql('SELECT pid, blocks_dirtied, round(1000 * dirty_debt) FROM dirty_throttle_sessions()');

	return map {
		my ($blocks, $owed) = split /\|/, $row{ $_->pid };
		{ used => $blocks * $block, owed => $owed, paid => $blocks * $block - $owed }
	} @sessions;
}

# What each has been paid for meanwhile.
sub paid
{
	my ($code, @sessions) = @_;
	my @before = each_of(@sessions);

	$code->();
	my @after = each_of(@sessions);
	return map { $after[$_]{paid} - $before[$_]{paid} } 0 .. $#sessions;
}

sub check_even
{
	my ($name, $expected, $most, @paid) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok( max(@paid) - $expected <= $most && $expected - min(@paid) <= $most,
		sprintf('%s: %d .. %d, expected %d', $name, min(@paid), max(@paid), $expected));
}

sub end_all
{
	my (@sessions) = @_;

	$dt->limit($_ => 0) foreach 'g', 'h';
	$dt->settle;
	$_->wait foreach @sessions;
}

subtest 'one of a hundred members works' => sub {
	$dt->fresh(g => dirty => 1000);
	my $row = $dt->group_row('g');
	is($row->{members}, $n, 'members');
	$s[0]->send(insert(0, 300));
	$dt->run;
	$dt->check_books('g', 'dirty', 'it has all of the limit');
};

# All work, one is behind by what is saved up at the start, and each has been
# paid the same at any time.
my $kb = 10_000;
foreach my $jitter ([ 0, 0 ], [ 0.5, 0 ], [ 0, 0.618 ])
{
	subtest "all work, jitter @$jitter" => sub {
		$dt->sql(sprintf 'SELECT dt_test_set_jitter(%f, %f)', @$jitter);
		$dt->fresh(g => dirty => $kb);
		my @start = each_of(@s);
		foreach my $i (0 .. $n - 1)
		{
			$s[$i]->send(insert($i, 80));
			$dt->settle;
		}
		foreach my $seconds (0.5, 0.7, 1)
		{
			$dt->advance(1e6 * $seconds);
			my @now = each_of(@s);
			my ($first, @paid) = map { $now[$_]{paid} - $start[$_]{paid} } 0 .. $n - 1;
			my $mean = 1000 * $kb * ($dt->now - $dt->{fresh}{g}{at}) / 1e6 / $n;

			is(scalar(grep { $dt->state($_) ne 'sleeps' } @s), 0, "after $seconds s: all pause");
			check_even("after $seconds s: each is paid", $mean, 1, @paid);
			check_even("after $seconds s: the first has had what was saved up",
				$mean + new_credit($kb), 1, $first);
			cmp_ok(max(map { $_->{owed} } @now), '<=',
				($seconds < 0.6 ? $kb * min_pause_us(1) : $kb * min_pause_us($n) / $n) / 1000
				  + 2 * threshold($kb, $n) + $block,
				"after $seconds s: nobody owes much");
			$dt->check_books('g', 'dirty', "after $seconds s", members => $n);
		}
		end_all(@s);
	};
}
$dt->sql('SELECT dt_test_set_jitter(0, 0)');

subtest 'one pays for a lot after each of its commits' => sub {
	$dt->fresh(g => dirty => $kb);
	my @start = each_of(@s[ 0 .. 9 ]);
	$s[0]->send('CALL batches(20)');
	$dt->settle;
	$s[$_]->send(insert($_, 500)) foreach 1 .. 9;
	$dt->advance(3_000_000);
	my @now = each_of(@s[ 0 .. 9 ]);
	my ($first, @paid) = map { $now[$_]{paid} - $start[$_]{paid} } 0 .. 9;
	check_even('each is paid', $kb * 3000 / 10, 1, @paid);
	check_even('that one has had what was saved up', $kb * 3000 / 10 + new_credit($kb), 1, $first);
	$dt->check_books('g', 'dirty', 'all of them', members => $n);
	end_all(@s[ 0 .. 9 ]);
};

subtest 'members begin and end to work' => sub {
	my $second = 1_000_000;
	my $rate = 2_000_000;    # bytes/s

	$dt->fresh(g => dirty => $rate / 1000);
	$s[0]->send(insert(0, 3000));
	$dt->advance($second);
	check_even('alone', 2 * $rate, 1, paid(sub { $dt->advance(2 * $second) }, $s[0]));

	# three that have used nothing meanwhile may use a little in advance, which
	# all repay first
	my $lag = $DirtyThrottle::Books::LAG * $rate;
	my @before = each_of(@s[ 0 .. 3 ]);
	foreach (1 .. 3)
	{
		$s[$_]->send(insert($_, 2000));
		$dt->settle;
	}
	my @now = each_of(@s[ 0 .. 3 ]);
	check_even('what is used in advance', $lag, 3,
		sum(map { $now[$_]{paid} - $before[$_]{paid} } 0 .. 3));
	check_even('one of four', (2 * $rate - $lag) / 4, 3,
		paid(sub { $dt->advance(2 * $second) }, @s[ 0 .. 3 ]));

	# two are cancelled, and pay on after that: they are not among those who pause
	$dt->cancel_ms($_) foreach @s[ 2, 3 ];
	my @owed = map { $_->{owed} } each_of(@s[ 2, 3 ]);
	my @paid = paid(sub { $dt->advance(5 * $second) }, @s[ 0 .. 3 ]);
	check_even('who was cancelled has paid the rest', 0, 1,
		map { $paid[ $_ + 2 ] - $owed[$_] } 0, 1);
	check_even('the two others have had all else', (5 * $rate - sum(@owed)) / 2, 3,
		@paid[ 0, 1 ]);

	# one joins, one leaves
	my $other = $dt->session(user => 'leaver');    # who does not take that over
	my ($left) = map { $_->{owed} } each_of($s[1]);
	$dt->sql('SELECT set_session_group(' . $s[1]->pid . ", '')");
	ok($s[1]->finished(180), 'who is taken out goes on');
	$other->query(q{SET dirty_throttle."group" = 'g'});
	$other->send(insert(5, 2000));
	$dt->settle;
	@paid = paid(sub { $dt->advance(2 * $second) }, $s[0], $other);
	check_even('two have what is left after his debt', (2 * $rate - $left) / 2, 3, @paid);
	$dt->check_books('g', 'dirty', 'all of them', members => $n);
	end_all(@s[ 0, 1 ], $other);
	$other->quit;
	$dt->sql('SELECT set_session_group(' . $s[1]->pid . ", 'g')");
};

$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s[0]);

subtest 'who ends in debt leaves it to the group' => sub {
	my @leaver = (user => 'leaver', group => 'h');
	my $leaver = $dt->session(@leaver);

	$dt->fresh(h => dirty => 1000);
	$leaver->send(insert(0, 500));
	$dt->settle;
	$dt->advance(500_000);
	my ($used, $owed) = $dt->used('h', 'dirty');
	is($owed, $used - 20_000 - 500_000, 'a member owes');
	$dt->terminate_ms($leaver);
	poll_until(sub { $dt->group_row('h')->{members} == 0 }, 180);
	is(($dt->used('h', 'dirty'))[1], $owed, 'it has ended: the group owes that');
	$dt->advance(1_000_000);
	$owed -= 1_000_000;
	is(($dt->used('h', 'dirty'))[1], $owed, 'which its limit repays');

	# a member gets half of the limit meanwhile, and pays nothing for others
	my $member = $dt->session(group => 'h');
	$member->send(insert(1, 60));
	my $us = $dt->run;
	my $mine = $dt->session_row($member)->{blocks_dirtied} * $block;
	is($us, 2 * $mine, 'a member of another role gets half of the limit');
	$owed -= $mine;
	is(($dt->used('h', 'dirty'))[1], $owed, 'the debt the other half');

	# who comes next in that role waits for it
	my $next = $dt->session(user => 'leaver');
	$next->send(qq{SET dirty_throttle."group" = 'h'; $MAY_WRITE});
	is($dt->run, $owed, 'the next session of the role waits for all of it');
	is(($dt->used('h', 'dirty'))[1], 0, 'until it is repaid');
	$next->quit;
	$member->send(insert(1, 60));
	$dt->run;
	$dt->check_books('h', 'dirty', 'nothing is lost');

	# one comes, and leaves a little: how much
	my $leave_a_little = sub {
		$dt->fresh(h => dirty => 1000);
		my $leaver = $dt->session(@leaver);
		$leaver->query('SET dirty_throttle.max_commit_pause = 0');
		$leaver->query(insert(0, 5));
		$leaver->quit;
		poll_until(sub { $dt->group_row('h')->{members} == 1 }, 180);
		return ($dt->used('h', 'dirty'))[1];
	};

	# meanwhile it was not behind with what it may use, however short that was
	$owed = $leave_a_little->();
	$next = $dt->session(@leaver);
	$next->send($MAY_WRITE);
	is($dt->run, $owed, 'the next session of the role waits for a little');
	$used = ($dt->used('h', 'dirty'))[0];
	$next->send(insert(3, 2));
	is($dt->run, ($dt->used('h', 'dirty'))[0] - $used, 'and pays for all that it uses');
	$next->quit;

	# what is too little to wait for is repaid while the next one is in its
	# transaction, whose own debt is no more for that
	$dt->advance($leave_a_little->() - 9_000);
	$next = $dt->session(@leaver);
	$next->query("BEGIN; $MAY_WRITE");
	$dt->advance(30_000);
	$next->query(insert(3, 4));
	$dt->check_books('h', 'dirty', 'what is repaid is not owed any more', members => 2);
	$next->query('ROLLBACK');
	$next->quit;

	# many of them take no more
	$dt->fresh(h => dirty => 1000);
	my @leavers = map { $dt->session(@leaver) } 1 .. 10;
	foreach my $leaver (@leavers)
	{
		$leaver->query('SET dirty_throttle.max_commit_pause = 0');
		$leaver->query(insert(2, 60));
	}
	$_->quit foreach @leavers;
	poll_until(sub { $dt->group_row('h')->{members} == 1 }, 180);
	($used, $owed) = $dt->used('h', 'dirty');
	is($owed, $used - 20_000, 'ten have left what they owe');
	my $before = $dt->session_row($member)->{blocks_dirtied};
	$member->send(insert(1, 60));
	$us = $dt->run;
	$mine = ($dt->session_row($member)->{blocks_dirtied} - $before) * $block;
	is($us, 2 * $mine, 'a member gets half of the limit all the same');
	$member->quit;
};

subtest 'who is moved leaves his debt there, and goes on' => sub {
	my $s = $dt->session(group => 'g');

	$dt->fresh(g => dirty => 1000);
	$dt->fresh(h => dirty => 1000);
	$s->send(insert(0, 200));
	$dt->settle;
	my ($used, $owed) = $dt->used('g', 'dirty');
	my $then = $dt->now;
	$dt->sql('SELECT set_session_group(' . $s->pid . ", 'h')");
	$dt->settle;
	is($dt->state($s), 'idle', 'it goes on');
	is($dt->now, $then, 'in no time');
	is(($dt->used('g', 'dirty'))[1], $owed, 'its debt is its old group\'s');
	is(($dt->used('h', 'dirty'))[1], 0, 'not its new one\'s');
	$dt->advance($owed);
	is(($dt->used('g', 'dirty'))[1], 0, 'which repays it');
	$s->quit;
};

# What is owed to these groups, in bytes, which is us where the limit is 1000 KB/s.
sub owed
{
	return map { ($dt->used($_, 'dirty'))[1] } @_;
}

sub debt_of
{
	my ($session) = @_;
	return sprintf '%.0f', 1000 * $dt->session_row($session)->{dirty_debt};
}

# How long the session pauses for each of these.
sub run_each
{
	my ($name, $s, @sql) = @_;

	return map {
		$s->send($_);
		my $us = $dt->run;
		is($s->wait->{sqlstate}, undef, "$name: no error");
		$us
	} @sql;
}

my @set = map { qq{SET dirty_throttle."group" = '$_'} } 'g', 'h';
my $reset = 'RESET dirty_throttle."group"';

subtest 'SET and RESET outside of a transaction pay first' => sub {
	my $s = $dt->session;
	$s->query('SET dirty_throttle.max_commit_pause = 0');
	foreach my $leave ($reset, $set[1], q{SET dirty_throttle."group" = ''},
		'SET dirty_throttle."group" TO DEFAULT', q{SET dirty_throttle."GROUP" = ''})
	{
		$dt->fresh($_ => dirty => 1000) foreach 'g', 'h';
		run_each($leave, $s, $set[0], insert(0, 60));
		my ($owed) = owed('g');
		cmp_ok($owed, '>=', 50 * $block, "$leave: it owes");
		is_deeply([ run_each($leave, $s, $leave, $MAY_WRITE) ], [ $owed, 0 ],
			"$leave: it pays all of it, and is free then");
		is_deeply([ owed('g', 'h') ], [ 0, 0 ], "$leave: nothing is owed");
		run_each($leave, $s, q{SET dirty_throttle."group" = ''});
	}
	$s->quit;
};

# The ways to leave a group in debt.  Who does pauses for nothing any more.
my $work = insert(0, 60);
my %ways = (
	'RESET in a block' => [ $set[0], 'BEGIN', $work, $reset, 'COMMIT' ],
	'RESET in one message' => [ $set[0], "$work\\; $reset" ],
	'RESET ALL' => [ $set[0], $work, 'RESET ALL' ],
	'DISCARD ALL' => [ $set[0], $work, 'DISCARD ALL' ],
	'the query of asyncpg' => [ $set[0], $work,
		'SELECT pg_advisory_unlock_all()\; CLOSE ALL\; UNLISTEN *\; RESET ALL;' ],
	'set_config()' => [ $set[0], $work,
		q{SELECT set_config('dirty_throttle.group', '', false)} ],
	'join_group(NULL)' => [ q{SELECT join_group('g')}, $work,
		'SELECT join_group(NULL)' ],
	'SET LOCAL, COMMIT' => [ 'BEGIN', $set[0] =~ s/SET/SET LOCAL/r, $work, 'COMMIT' ],
	'SET LOCAL, ROLLBACK' => [ 'BEGIN', $set[0] =~ s/SET/SET LOCAL/r, $work, 'ROLLBACK' ],
	'ROLLBACK TO a savepoint' => [ 'BEGIN', 'SAVEPOINT a', $set[0], $work, 'ROLLBACK TO a', 'COMMIT' ],
	'a SET clause' => ['SELECT in_g()'],
	'a move' => [ $set[0], $work, q{SELECT set_session_group(pg_backend_pid(), '')} ],
	'an error' => [ "BEGIN; $set[0]; $work; DO 'BEGIN RAISE division_by_zero; END'" ]);
$dt->sql(qq{CREATE FUNCTION in_g() RETURNS void LANGUAGE sql
	SET dirty_throttle."group" = 'g' AS \$\$$work\$\$});

subtest 'who leaves in debt owes nothing, and owes it again when he is back' => sub {
	foreach my $way (sort keys %ways)
	{
		my $s = $dt->session(user => 'leaver');

		$dt->fresh(g => dirty => 1000);
		$s->query('SET dirty_throttle.max_commit_pause = 0');
		my $start = $dt->now;
		$s->run($_) foreach @{ $ways{$way} };
		$s->run('ROLLBACK') if $way eq 'an error';
		my ($used, $owed) = $dt->used('g', 'dirty');
		is($owed, $used - 20_000, "$way: the group keeps all that it owes");
		cmp_ok($owed, '>=', 50 * $block, "$way: which is a lot");
		is($dt->session_row($s), undef, "$way: it is in no group");
		$s->query($_) foreach 'SET dirty_throttle.max_commit_pause = 0', $MAY_WRITE, insert(1, 5);
		is($dt->now, $start, "$way: and pauses for nothing");
		my $row = $dt->group_row('g');
		is("$row->{members} $row->{paused}", "$n 0", "$way: nobody else does");

		# half of it is repaid meanwhile, and another role has no part in it
		my $half = $block * int($owed / $block / 2);
		$dt->advance($half);
		my $other = $dt->session(group => 'g');
		is($dt->session_row($other)->{dirty_debt}, 0, "$way: another role owes nothing");
		$other->quit;
		$dt->sql('SELECT set_session_group(' . $s->pid . ', NULL)') if $way eq 'a move';
		$s->query($set[0]);
		is(debt_of($s), $owed - $half, "$way: back in the group, it owes the rest");
		is_deeply([ owed('g') ], [ $owed - $half ], "$way: once");
		$s->send($MAY_WRITE);
		$dt->settle;
		is($dt->session_row($s)->{paused_by}, 'dirty', "$way: it pauses for that");
		is($dt->run, $owed - $half, "$way: until it is paid");
		$s->wait;
		is_deeply([ owed('g') ], [0], "$way: nothing is owed");
		$s->quit;
	}
};

# The pause that follows a COMMIT comes before the end of SET LOCAL.
subtest 'SET LOCAL pays at its COMMIT' => sub {
	my $s = $dt->session;

	$dt->fresh(g => dirty => 1000);
	$s->query($_) foreach 'BEGIN', $set[0] =~ s/SET/SET LOCAL/r, $work;
	my ($owed) = owed('g');
	is_deeply([ run_each('SET LOCAL', $s, 'COMMIT', $MAY_WRITE) ], [ $owed, 0 ], 'all of it');
	is($dt->session_row($s), undef, 'and has left then');
	$s->quit;
};

# Who hops to and fro in a transaction does not pay in flight what is less than the
# grace, which is a day here.
subtest 'who hops comes back to all that he has left' => sub {
	my $s = $dt->session(user => 'leaver');

	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$dt->fresh(g => dirty => 1000);
	$dt->fresh(h => dirty => 700);
	$s->query('BEGIN');
	$s->query("$set[0]; $work; $set[1]; $work") foreach 1 .. 10;
	$s->query("$reset; COMMIT");
	my %owed = map { $_ => (owed($_))[0] } 'g', 'h';
	my %used = map { $_ => ($dt->used($_, 'dirty'))[0] } 'g', 'h';
	is($owed{g}, $used{g} - 20_000, 'to g');
	is($owed{h}, $used{h} - 14_000, 'to h');
	is_deeply([ run_each('hopper', $s, $MAY_WRITE, $set[1]) ], [ 0, 0 ], 'he is free');
	my ($us) = run_each('hopper', $s, $MAY_WRITE);
	is($us, lone_pause_us($owed{h}, 700), 'and pays to h when he is back there');
	is_deeply([ owed('g', 'h') ], [ $owed{g} - min($owed{g}, $us), 0 ],
		'while what he has left in g is repaid, too');
	$s->quit;
};

subtest 'two groups' => sub {
	# he has left a debt in g, and joins h, where his role has left more
	foreach my $stays (1, 0)
	{
		$dt->fresh($_ => dirty => 1000) foreach 'g', 'h';
		my $other = $dt->session(user => 'leaver', group => 'h');
		$other->query('SET dirty_throttle.max_commit_pause = 0');
		$other->query(insert(0, 60));
		$other->quit;
		poll_until(sub { $dt->group_row('h')->{members} == 0 }, 180);
		my $hopper = $dt->session(user => 'leaver');
		$hopper->query('SET dirty_throttle.max_commit_pause = 0');
		$hopper->query("$set[0]\\; " . insert(0, 20) . "\\; $set[1]");
		my ($in_g, $in_h) = owed('g', 'h');
		cmp_ok($in_h, '>', $in_g + 100_000, 'his role owes more to the other one');
		is(debt_of($hopper), $in_h, 'he has taken that over');
		$hopper->query('RESET ALL') unless $stays;
		is_deeply([ owed('g', 'h') ], [ $in_g, $in_h ], 'nothing is lost');
		my ($us) = run_each('two groups', $hopper, $MAY_WRITE);
		is($us, $stays ? $in_h : 0, $stays ? 'he pays that' : 'he is out again, and free');
		is_deeply([ owed('g', 'h') ], $stays ? [ 0, 0 ] : [ $in_g, $in_h ], 'as the books say');
		$hopper->quit;
	}

	# meanwhile the others get their share
	my $s = $dt->session;
	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$dt->fresh(g => dirty => 1000);
	$s->query("$set[0]\\; " . insert(0, 200) . "\\; $reset");
	my $member = $dt->session(user => 'leaver', group => 'g');
	$member->send(insert(1, 60));
	my $us = $dt->run;
	is($us, 2 * $block * $dt->session_row($member)->{blocks_dirtied},
		'a member of another role gets half of the limit beside one who has left');

	# nor is he behind when he is back before it is repaid
	$dt->fresh(g => dirty => 1000);
	$s->query($set[0]);
	$s->query(insert(0, 5));
	$s->query("$reset\\; $set[0]");
	my ($back) = owed('g');
	cmp_ok($back, '>=', 10_000, 'back at once');
	is_deeply([ run_each('back at once', $s, $MAY_WRITE) ], [$back], 'he pays that');
	my ($before) = $dt->used('g', 'dirty');
	$s->query(q{SET dirty_throttle.max_commit_pause = '1h'});
	$s->send(insert(0, 2));
	is($dt->run, ($dt->used('g', 'dirty'))[0] - $before, 'and for all that he uses');
	$_->quit foreach $s, $member;
};

subtest 'a herd does not wake together' => sub {
	my @herd = @s[ 0 .. 23 ];
	my $blocks = sub { return $dt->group_row('g')->{blocks_dirtied} };

	$dt->set_conf('dirty_throttle.transaction_grace', '0', $herd[0]);
	$dt->sql('SELECT dt_test_set_jitter(0, 0.618)');
	$dt->fresh(g => dirty => @herd * $block / 1000);
	$herd[$_]->send(insert($_, 60)) foreach 0 .. $#herd;
	$dt->advance(5_000_000);
	my ($start, $most, $last) = ($blocks->()) x 3;
	foreach (1 .. 50)
	{
		$dt->advance(100_000);
		$most = $blocks->() - $last if $_ == 1 || $blocks->() - $last > $most;
		$last = $blocks->();
	}
	cmp_ok($most, '<', @herd / 2, 'blocks in a tenth of a second');
	$dt->check_books('g', 'dirty', 'the limit', members => $n);
	end_all(@herd);
};

$dt->finish;
