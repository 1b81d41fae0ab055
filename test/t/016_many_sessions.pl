# 200 sessions in 50 groups at once: none gets more than its limit, and not a
# block is lost.  103 tests that each gets its share.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Life;
use List::Util qw(max sum);
use Test::More;

my $groups = 50;
my $per_group = 4;
my $blocks = 60;       # of each session
my $seconds = 3;       # that this takes at the limit
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
		"SELECT count(*) FROM dirty_throttle_groups WHERE members = $per_group"),
	$groups, 'all groups have their members');

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

# Each group, and its rate
foreach my $group (@names)
{
	my @members = grep { $_->{group} eq $group } @s;
	my $wall = max(map { $_->{end} } @members) - $start;
	my $total = sum map { $_->{dirtied} } @members;

	$errors++ if $group_blocks{$group} != $total;
	$errors++, diag "$group: $total blocks in $wall s"
	  if $total * $kb * 1000 > $limit * 1000 * $wall +
	  granted(kb => $limit, members => $per_group);
}
is($errors, 0, 'blocks of each group are the sum of its sessions, and not more than its limit');

$_->{session}->quit foreach @s;
$gate->quit;
is($dt->left_over, '', 'nothing is left when they have gone');
is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
