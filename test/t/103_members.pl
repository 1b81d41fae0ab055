# A hundred members share a limit evenly, whatever their statements look like;
# who joins, leaves, ends or is moved takes nothing from the others; and what
# somebody owes is paid.  To the byte, on a clock that stands still while
# statements run.

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
	my $other = $dt->session;
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

# How long the session pauses in all for what it does in groups g and h, and how
# long it would in each.
sub check_hopper
{
	my ($name, $s, $kb_g, $kb_h, @sql) = @_;
	my $us = 0;

	$dt->fresh(g => dirty => $kb_g);
	$dt->fresh(h => dirty => $kb_h);
	foreach my $sql (@sql, $MAY_WRITE)
	{
		$s->send($sql);
		$us += $dt->run;
		is($s->wait->{sqlstate}, undef, "$name: no error");
	}
	my ($g) = $dt->used('g', 'dirty');
	my ($h) = $dt->used('h', 'dirty');
	my $pays_g = lone_pause_us(max($g - new_credit($kb_g), 0), $kb_g);
	my $pays_h = lone_pause_us(max($h - new_credit($kb_h), 0), $kb_h);

	cmp_ok(min(map { ($_->[0] && $_->[1]) || 1e9 } [ $g, 1 ], [ $h, 1 ]), '>', 0, "$name: it has done something");
	cmp_ok($us, '>=', max($pays_g, $pays_h) - 2, "$name: it pays what it owes to each group");
	cmp_ok($us, '<=', $pays_g + $pays_h + 2, "$name: and no more");
	$s->send($MAY_WRITE);
	is($dt->run, 0, "$name: then it is free");
	is($_, 0, "$name: and nothing is owed") foreach map { ($dt->used($_, 'dirty'))[1] } 'g', 'h';
	return ($us, $pays_g, $pays_h);
}

subtest 'who leaves by his own will pays what he owes' => sub {
	my $s = $dt->session;
	my @set = map { qq{SET dirty_throttle."group" = '$_'} } 'g', 'h';
	my $reset = 'RESET dirty_throttle."group"';
	my $work = insert(0, 60);
	my ($us, $g, $h);

	$s->query('SET dirty_throttle.max_commit_pause = 0');
	($us, $g) = check_hopper('to no group', $s, 1000, 1000, "$set[0]; $work; $reset");
	ok(abs($us - $g) <= 2, 'to no group: to the microsecond');
	($us, $g, $h) = check_hopper('to another group', $s, 1000, 700,
		"BEGIN; $set[0]; $work; $set[1]; $work; $reset; COMMIT");
	ok(abs($us - max($g, $h)) <= 2, 'to another group: at the same time, to the microsecond');
	($us, $g, $h) = check_hopper('to a faster one', $s, 700, 1000,
		"BEGIN; $set[0]; $work; $set[1]; $work; $reset; COMMIT");
	ok(abs($us - max($g, $h)) <= 2, 'to a faster one: the one that takes longest counts');
	check_hopper('again and again', $s, 1000, 700,
		"BEGIN; " . "$set[0]; $work; $set[1]; $work;" x 10 . " $reset; COMMIT");
	check_hopper('rolled back', $s, 1000, 700,
		"BEGIN; SAVEPOINT a; $set[0]; $work; ROLLBACK TO a; $set[1]; $work; ROLLBACK");
	check_hopper('SET LOCAL', $s, 1000, 700,
		"BEGIN; " . $set[0] =~ s/SET/SET LOCAL/r . "; $work; COMMIT");
	check_hopper('DISCARD ALL', $s, 1000, 700, "$set[0]; $work", 'DISCARD ALL');

	# nor is he behind when he is back before it is repaid
	$dt->fresh(g => dirty => 1000);
	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$s->query($set[0]);
	$s->query(insert(0, 5));
	$s->query("$reset; $set[0]");
	my $back = ($dt->used('g', 'dirty'))[1];
	$s->send($MAY_WRITE);
	is($dt->run, $back, 'who is back in the group waits there');
	my $before = ($dt->used('g', 'dirty'))[0];
	$s->query(q{SET dirty_throttle.max_commit_pause = '1h'});
	$s->send(insert(0, 2));
	is($dt->run, ($dt->used('g', 'dirty'))[0] - $before, 'and pays for all that he uses');

	# who owes to one group and joins another one, where his role owes for
	# longer, waits for both; if he leaves that again, only for the first
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
		$hopper->query("$set[0]; " . insert(0, 20));
		$hopper->query($set[1]);
		$hopper->query($reset) unless $stays;
		my ($in_g, $in_h) = map { ($dt->used($_, 'dirty'))[1] } 'g', 'h';
		cmp_ok($in_h, '>', $in_g + 100_000, 'to one where his role owes more');
		$hopper->send($MAY_WRITE);
		is($dt->run, $stays ? $in_h : $in_g, $stays ? 'he waits for both' : 'and back');
		$hopper->quit;
	}

	# meanwhile the others get their share
	$s->query('SET dirty_throttle.max_commit_pause = 0');
	$dt->fresh(g => dirty => 1000);
	$s->query("$set[0]; " . insert(0, 200) . "; $reset");
	my ($used, $owed) = $dt->used('g', 'dirty');
	my $member = $dt->session(user => 'leaver', group => 'g');
	$member->send(insert(1, 60));
	$us = $dt->run;
	is($us, 2 * $block * $dt->session_row($member)->{blocks_dirtied},
		'a member of another role gets half of the limit beside one who has left');
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
