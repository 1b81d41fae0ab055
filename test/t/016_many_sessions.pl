# 200 sessions in 50 groups at once: every group runs at its rate, every
# session gets its share, and not a block is lost.  Then 48 in one group.
#
# takes-about: 40 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use List::Util qw(max min sum);
use Test::More;
use Time::HiRes qw(sleep);

my $groups = 50;
my $per_group = 4;
my $blocks = 200;      # of each session
my $seconds = 10;      # that this takes at the limit
my $dt = DirtyThrottle::Life->new('many', conf => 'max_connections = 250');
my $kb = $dt->block_kb;
my $limit = sprintf '%.0f', $per_group * $blocks * $kb / $seconds;
my @names = map { "grp_$_" } 1 .. $groups;

# What each member has dirtied so far, by its process ID.
sub session_blocks
{
	return map { split /\|/ } split /\n/,
	  $dt->sql('SELECT pid, blocks_dirtied FROM dirty_throttle_sessions');
}

$dt->sql("SELECT set_group_dirty_limit('$_', $limit)") foreach @names;
my @s;
foreach my $group (@names)
{
	foreach my $n (1 .. $per_group)
	{
		my $table = "t_${group}_$n";
		my $s = $dt->session;

		# Whatever the first statement of a session dirties comes before it
		# joins, so that what EXPLAIN shows is all there is.
		$dt->table($table);
		$s->query(insert_sql($table, 1));
		$s->query(qq{SET dirty_throttle."group" = '$group'});
		push @s, { session => $s, group => $group, table => $table };
	}
}
is( $dt->sql(
		"SELECT count(*) FROM dirty_throttle_groups WHERE active_processes = $per_group"),
	$groups, 'all groups have their members');
is( $dt->sql(
		"SELECT count(*) FROM dirty_throttle_groups WHERE abs(per_process_dirty_rate_limit - ${limit}::float8 / $per_group) < 0.001"),
	$groups, 'and each its share of the limit');

# All start at once, in their INSERT: that waits for a lock that is let go then.
my $gate = $dt->session;
$gate->query('SELECT pg_advisory_lock(1)');
$dt->sql('SELECT dirty_throttle_reset()');
my %before = session_blocks();
foreach my $s (@s)
{
	$s->{session}->send('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) '
		  . insert_sql($s->{table}, $blocks) . ", pg_advisory_lock_shared(1);
		SELECT 'end', extract(epoch FROM clock_timestamp())");
}
poll_until(
	sub {
		$dt->sql(
			q{SELECT count(*) FROM pg_locks
			  WHERE locktype = 'advisory' AND NOT granted}) == @s;
	});
my $start = $gate->query('SELECT extract(epoch FROM clock_timestamp());
	SELECT pg_advisory_unlock(1)') =~ s/\n.*//sr;

# In the middle: does everybody make the same progress?  On a busy machine it
# takes a while until all have begun.
sleep 0.2 * $seconds;
my %begin = session_blocks();
sleep 0.5 * $seconds;
my %end = session_blocks();
my $shown = $dt->sql(
	'SELECT min(dirty_rate), max(dirty_rate), sum(paused_processes) FROM dirty_throttle_groups');

my $errors = 0;
foreach my $s (@s)
{
	my $r = $s->{session}->wait;

	$errors++, diag $r->{err} if $r->{err};
	($s->{end}) = $r->{out} =~ /^end\|([\d.]+)$/m;
	# of the plan (the root is the first, it includes the others) and of
	# planning
	my ($plan, $planning) = split /"Planning": \{/, $r->{out};
	$s->{dirtied} = 0;
	foreach my $part ($plan, $planning)
	{
		$s->{dirtied} += $1
		  if defined $part && $part =~ /"Shared Dirtied Blocks": (\d+)/;
	}
}
is($errors, 0, 'no session has had an error');
cmp_ok(scalar(grep { $_->{dirtied} < $blocks } @s),
	'==', 0, 'each has dirtied its blocks');

# The views, to the block
my %session_blocks = session_blocks();
$session_blocks{$_} -= $before{$_} foreach keys %session_blocks;
my %group_blocks =
  map { split /\|/ }
  split /\n/, $dt->sql('SELECT group_name, blocks_dirtied FROM dirty_throttle_groups');
my $sum = sum map { $_->{dirtied} } @s;
is(sum(values %session_blocks),
	$sum, "blocks of the sessions by the view, and by EXPLAIN: $sum");
is(sum(values %group_blocks), $sum, 'blocks of the groups by the view: the same');
is( scalar(grep { $session_blocks{ $_->{session}->pid } != $_->{dirtied} } @s),
	0, 'for each session');

# The rates
my (@rate, @share, @middle_share);
foreach my $group (@names)
{
	my @members = grep { $_->{group} eq $group } @s;
	my $wall = max(map { $_->{end} } @members) - $start;
	my $total = sum map { $_->{dirtied} } @members;

	push @rate, $total * $kb / $wall / $limit * 100;
	$errors++ if $group_blocks{$group} != $total;
	push @share, map {
		$_->{dirtied} / ($_->{end} - $start) / ($total / $wall) * $per_group * 100
	} @members;
	my @middle = map { $end{$_} - $begin{$_} } map { $_->{session}->pid } @members;
	my $mean = sum(@middle) / $per_group;
	push @middle_share, map { $_ / $mean * 100 } @middle;
}
is($errors, 0, 'blocks of each group are the sum of its sessions');
note sprintf 'limit of each group: %d KB/s', $limit;
note sprintf 'rate of the groups, %% of the limit: min %.2f median %.2f max %.2f',
  min(@rate), median(@rate), max(@rate);
note sprintf 'all groups together, %% of the limits: %.2f',
  $sum * $kb
  / (max(map { $_->{end} } @s) - $start)
  / ($limit * $groups) * 100;
note sprintf 'sessions, %% of their share: min %.2f max %.2f', min(@share), max(@share);
note sprintf 'in the middle, %% of the mean of their group: min %.2f max %.2f',
  min(@middle_share), max(@middle_share);
note "then, dirty_rate min and max, paused processes: $shown";
between(min(@rate), 85, 115, 'slowest group, % of its limit');
between(max(@rate), 85, 115, 'fastest group, % of its limit');
between(min(@share), 85, 115, 'slowest session, % of its share');
between(max(@share), 85, 115, 'fastest session, % of its share');
between(min(@middle_share), 85, 115, 'slowest session in the middle, %');
between(max(@middle_share), 85, 115, 'fastest session in the middle, %');

# Many that run a command, at a limit at which each may use a block every few
# seconds: what they do between two checks for interrupts is more than a pause
# of the usual length pays for.
my @crowd = map { $_->{session} } @s[ 0 .. 47 ];
$dt->sql("SELECT set_group_dirty_limit('crowd', 100)");
foreach my $n (0 .. $#crowd)
{
	# a row takes some time, lest what one does in a go is much in 6 s
	$dt->sql("CREATE TABLE crowd_$n (row text CHECK (length(repeat(md5(row), 500)) > 0))");
	$crowd[$n]->query(q{SET dirty_throttle."group" = 'crowd'});
	$crowd[$n]->send("COPY crowd_$n FROM PROGRAM
		'yes @{[ 'x' x 500 ]} | head -n 100000'");
}
my $blocks_of = q{SELECT extract(epoch FROM clock_timestamp()), blocks_dirtied,
	paused_processes FROM dirty_throttle_groups WHERE group_name = 'crowd'};
poll_until(sub { (split /\|/, $dt->sql($blocks_of))[2] > 0.9 * @crowd });
sleep 4;
my ($from, $blocks_from) = split /\|/, $dt->sql($blocks_of);
sleep 6;
my ($to, $blocks_to) = split /\|/, $dt->sql($blocks_of);
between(($blocks_to - $blocks_from) * $kb / ($to - $from),
	0, 110, @crowd . ' sessions that copy at 100 KB/s: KB/s');
$dt->sql("SELECT pg_cancel_backend(@{[ $_->pid ]})") foreach @crowd;
is(scalar(grep { $_->wait->{sqlstate} ne '57014' } @crowd), 0, 'all are canceled');
$dt->sql("SELECT reset_group_dirty_limit('crowd')");    # forgive the rest

$_->{session}->quit foreach @s;
$gate->quit;
is($dt->left_over, '', 'nothing is left when they have gone');
is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
