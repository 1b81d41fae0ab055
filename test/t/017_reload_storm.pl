# dirty_throttle.enabled goes off and on while members work: nobody is stuck,
# nobody is lost, and every block is counted.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use List::Util qw(sum);
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 20000;
my $dt = DirtyThrottle::Life->new('reload',
	conf => 'dirty_throttle.max_commit_pause = 1h');

$dt->limit(grp => $limit);
my @s;
foreach my $n (1 .. 4)
{
	my $s = $dt->session;
	$dt->table("t$n");
	$s->query(insert_sql("t$n", 1));
	$s->query(q{SET dirty_throttle."group" = 'grp'});
	push @s, $s;
}
my %before =
  map { split /\|/ }
  split /\n/,
  $dt->sql('SELECT pid, blocks_dirtied FROM dirty_throttle_sessions');
$dt->sql('SELECT dirty_throttle_reset()');

sub counts
{
	return $dt->sql(q{SELECT (SELECT sum(blocks_dirtied) FROM dirty_throttle_groups),
		                     (SELECT sum(blocks_dirtied) FROM dirty_throttle_sessions)});
}

# Small transactions, which pause after their end, and big ones, which pause
# in flight.
my @work;
foreach my $n (1 .. 4)
{
	$work[ $n - 1 ] = 'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) '
	  . insert_sql("t$n", $n % 2 ? 30 : 400);
}
my $sum = 0;
my @running = (0) x 4;
my $errors = 0;
my $statements = 0;

sub collect
{
	my ($r) = @_;
	my ($plan, $planning) = split /"Planning": \{/, $r->{out};

	$errors++, diag $r->{err} if $r->{sqlstate};
	foreach my $part ($plan, $planning)
	{
		$sum += $1 if defined $part && $part =~ /"Shared Dirtied Blocks": (\d+)/;
	}
	$statements++;
}

sub keep_busy
{
	my ($seconds) = @_;
	my $end = time + $seconds;

	while (time < $end)
	{
		foreach my $i (0 .. $#s)
		{
			next if $running[$i] && !$s[$i]->finished;
			collect($s[$i]->wait) if $running[$i];
			$s[$i]->send($work[$i]);
			$running[$i] = 1;
		}
		sleep 0.005;
	}
}

keep_busy(0.5);
foreach my $n (1 .. 20)
{
	my $value = $n % 2 ? 'off' : 'on';
	$dt->sql("ALTER SYSTEM SET dirty_throttle.enabled = $value");
	$dt->sql('SELECT pg_reload_conf()');
	keep_busy(0.1);
}
keep_busy(0.5);

# It is on now.
my $busy = $dt->group_row('grp');
is($busy->{members}, 4, 'four members all the time');
cmp_ok($busy->{pauses}, '>', 0, 'they have paused');

# Switched off, sleepers run on; these would sleep for minutes.
$dt->limit(grp => 1);
ok( poll_until(
		sub {
			keep_busy(0.02);
			$dt->group_row('grp')->{paused} == 4;
		}),
	'all four pause');
$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
$dt->sql('SELECT pg_reload_conf()');
is(scalar(grep { $running[$_] && !$s[$_]->finished($DirtyThrottle::TIMEOUT) } 0 .. $#s),
	0, 'switched off: all end');
foreach my $i (0 .. $#s)
{
	collect($s[$i]->wait) if $running[$i];
}
is($dt->group_row('grp')->{paused}, 0, 'and nobody pauses');
is($errors, 0, "no error in $statements statements");

my %after =
  map { split /\|/ }
  split /\n/,
  $dt->sql('SELECT pid, blocks_dirtied FROM dirty_throttle_sessions');
is(sum(map { $after{$_} - $before{$_} } keys %before),
	$sum, "blocks of the sessions by the view, and by EXPLAIN: $sum");
is($dt->group_row('grp')->{blocks_dirtied}, $sum, 'and of the group');

# Switched on again, the limit holds, whatever has happened before.
$dt->limit(grp => $limit);
$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = on');
$dt->sql('SELECT pg_reload_conf()');
ok( poll_until(sub { $dt->group_row('grp')->{dirty_debt} == 0 }),
	'switched on: what was owed goes')
  or diag explain $dt->group_row('grp');
$dt->check_limit('afterwards', 'grp', sub { $s[0]->query(insert_sql('t1', 1000)) },
	limit => $limit);
$_->quit foreach @s;
is($dt->left_over, '', 'nothing is left');
is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
