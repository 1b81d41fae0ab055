# Members of a group share its limit evenly, whatever their statements look
# like; members that do nothing cost the others nothing.
#
# takes-about: 15 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use List::Util qw(min sum);
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 10000;    # KB/s

my $dt = DirtyThrottle->new('sharing');
$dt->limit(grp_a => $limit);
$dt->limit(grp_b => $limit);

# Statements that run until they are cancelled: at the limit, most of a
# minute.
sub long_insert
{
	my ($table) = @_;
	$dt->sql("CREATE TABLE $table (id int, filler text)
		WITH (fillfactor = 10)");
	return "INSERT INTO $table
		SELECT generate_series(1, 60000), repeat('x', 800)";
}

# What each session has dirtied over so many seconds, or while the code runs:
# rates in percent of the limit.  All of a group together can be too slow because
# the machine is, so that is tried again.
sub shares
{
	my ($while, @sessions) = @_;
	my @shares;

	foreach (1 .. 3)
	{
		my %sum = (grp_a => 100, grp_b => 100);

		@shares = sample($while, @sessions);
		foreach my $group (map { $_->{group} } @sessions)
		{
			$sum{$group} = sum(map { $sessions[$_]{group} eq $group ? $shares[$_] : () }
				  0 .. $#shares);
		}
		last if min(values %sum) >= 85;
		note 'only ', join(' + ', map { sprintf '%.1f %%', $_ } @shares);
	}
	return @shares;
}

sub sample
{
	my ($while, @sessions) = @_;
	my $blocks = sub {
		my %row = map { split /\|/, $_, 2 } split /\n/,
		  $dt->sql('SELECT pid, blocks_dirtied FROM dirty_throttle_sessions');
		return (time, map { $row{ $_->pid } } @sessions);
	};
	my ($start, @before) = $blocks->();

	ref $while ? $while->() : sleep $while;
	my ($end, @after) = $blocks->();
	return map {
		($after[$_] - $before[$_]) * $dt->block_kb
		  / ($end - $start) / $limit * 100
	} 0 .. $#sessions;
}

# A member of one of the two groups.
sub member
{
	my ($group) = @_;
	my $s = $dt->session(group => $group);

	$s->{group} = $group;
	return $s;
}

my @s = map { member('grp_a') } 1 .. 3;
my ($first, $second, $third) = @s;

# A third group, looked at later: members that wait long for their turns do
# not all wake at the same time, though they begin together: 24 of them, each with
# a block a second.
my $herd = 24;
my @herd = map { $dt->session } 1 .. $herd;

$dt->limit(herd => $herd * $dt->block_kb);
foreach my $n (0 .. $#herd)
{
	my $insert = long_insert("herd$n");
	$herd[$n]->query(q{SET dirty_throttle."group" = 'herd'});
	$herd[$n]->{insert} = $insert;
}
$_->send($_->{insert}) foreach @herd;
my $herd_since = time;

# One runs, two are members and idle.
$first->send(long_insert('t1'));
ok($dt->wait_paused($first, 'in flight'), 'a member pauses');
sleep 0.2;
my ($alone) = shares(1.5, $first);
between($alone, 85, 115, 'one of three members runs: % of the limit');
my $row = $dt->group_row('grp_a');
is($row->{active_processes}, 3, 'three members');
between($row->{per_process_dirty_rate_limit}, $limit / 3 - 1, $limit / 3 + 1,
	'their share');

# Two run.
$second->send(long_insert('t2'));
$dt->wait_paused($second, 'in flight');
sleep 0.2;
my @two = shares(2, $first, $second);
between($two[0], 42, 58, 'the first of two: % of the limit');
between($two[1], 42, 58, 'the second of two: % of the limit');
between(sum(@two), 85, 115, 'both: % of the limit');

my @charged;

# Look at the herd all the time, for 5 s.
sub watch_herd
{
	my $end = time + 5;

	@charged = ();
	while (time < $end)
	{
		push @charged,
		  [ time, $dt->sql("SELECT blocks_dirtied FROM dirty_throttle_groups
			WHERE group_name = 'herd'") ];
		sleep 0.005;
	}
}

# A third one comes, that dirties in large batches: it pays for hundreds of
# blocks after each commit, the others for a few at a time in flight.
$dt->sql('CREATE TABLE t3 (id int, filler text) WITH (fillfactor = 10)');
$dt->sql('CREATE PROCEDURE batches() LANGUAGE plpgsql AS $$
	BEGIN
		LOOP
			ALTER TABLE t3 ALTER id TYPE bigint;
			COMMIT;
			ALTER TABLE t3 ALTER id TYPE int;
			COMMIT;
		END LOOP;
	END $$');
$dt->sql("INSERT INTO t3
	SELECT i, repeat('x', 800) FROM generate_series(1, 200) i");
$third->query('SET log_min_messages = fatal');    # as in pays_after()
$third->send('CALL batches()');
ok($dt->wait_paused($third, 'after transaction'), 'it pays after a commit');

# Another group has its own limit.
my $other = member('grp_b');
$other->send(long_insert('t4'));
$dt->wait_paused($other, 'in flight');

# All of them, and the herd, at the same time.
poll_until(sub { time >= $herd_since + 5 });
sleep 0.5;
my @three = shares(\&watch_herd, @s, $other);
my $outside = pop @three;
between($three[$_], 25, 42,
	'member ' . ($_ + 1) . ' of three: % of the limit')
  foreach 0 .. 2;
between(sum(@three), 85, 115, 'all three: % of the limit');

# The view's own rate says the same.
between(100 * $dt->group_row('grp_a')->{dirty_rate} / $limit,
	85, 115, 'dirty_rate: % of the limit');

between($outside, 85, 115, 'a member of another group: % of its limit');

# The most blocks of the herd in 100 ms.
my $most;
foreach my $i (0 .. $#charged)
{
	my $j = $i;

	$j++ while $j < $#charged && $charged[ $j + 1 ][0] <= $charged[$i][0] + 0.1;
	my $blocks = $charged[$j][1] - $charged[$i][1];
	$most = $blocks if !defined $most || $blocks > $most;
}
between($charged[-1][1] - $charged[0][1],
	0.8 * 5 * $herd, 1.2 * 5 * $herd, 'a herd: blocks in 5 s');
between($most, 1, 0.6 * $herd, 'a herd: the most blocks in 100 ms');
$dt->limit(herd => 0);
$dt->cancel_ms($_) foreach @herd;
$_->quit foreach @herd;

# What is left by those that go is not lost by those that stay.
$dt->cancel_ms($_) foreach $second, $third, $other;
$_->quit foreach $second, $third, $other;
sleep 0.5;
my ($left) = shares(1.5, $first);
between($left, 85, 115, 'the others gone: % of the limit');
is($dt->group_row('grp_a')->{active_processes}, 1, 'one member is left');

$dt->cancel_ms($first);
$dt->finish;
