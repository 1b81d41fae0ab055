# kill -9 of whoever takes part in following, at random, while definitions
# change: the process that asks, a backend or the postmaster of a standby or of
# the primary.  In the end all have the same, and nothing was lost that had
# arrived.
#
# DT_ROUNDS in the environment is how many rounds; the default is quick.
#
# takes-about: 15 s
# not-timed
# expect-in-log: WARNING:  terminating connection because of crash of another server process
# expect-in-log: was terminated by signal 9: Killed

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $rounds = $ENV{DT_ROUNDS} // 6;
my $primary = DirtyThrottle::Standby->primary('primary', conf => 'restart_after_crash = on');
$primary->limit(batch => 1);
my $standby = $primary->standby('standby');
my $cascade = $standby->standby('cascade');
my %dt = (primary => $primary, standby => $standby, cascade => $cascade);
is($_->wait_status('following'), 'following', 'it follows') foreach $standby, $cascade;

# A statement on a server that may just crash; undef when it did.
sub try_sql
{
	my ($dt, $sql) = @_;
	my $result;

	eval { $result = $dt->sql($sql); 1 } or $dt->disconnect;
	return $result;
}

my $n = 0;

sub change
{
	my $name = 'g' . int rand 8;

	$n++;
	try_sql($primary,
		rand(4) < 1
		? "SELECT drop_resource_group('$name', true, true)"
		: "SELECT set_group_dirty_limit('$name', $n)");
}

sub alive
{
	my ($dt) = @_;
	return poll_until(sub { defined try_sql($dt, 'SELECT 1') }, 60);
}

my @seed = ($ENV{DT_SEED} // time) . '';
srand int $seed[0];
note "seed @seed";
foreach my $round (1 .. $rounds)
{
	my $who = (qw(standby cascade primary))[ $round % 3 ];
	my $dt = $dt{$who};
	my $what = (qw(postmaster backend), $who eq 'primary' ? 'backend' : 'follower')[ int rand 3 ];
	my ($kill, $last);

	change() foreach 1 .. 5;
	$last = $primary->ddl;
	if ($what eq 'postmaster') { $kill = $dt->node->{_pid} }
	elsif ($what eq 'follower')
	{
		poll_until(sub { $kill = $dt->following->{pid} });
	}
	else
	{
		# without the startup process, a server shuts down
		$kill = $dt->sql(
			q{SELECT pid FROM pg_stat_activity WHERE backend_type <> 'startup'
			  ORDER BY random() LIMIT 1});
	}

	# in the middle of it
	change();
	sleep rand 0.6;
	note "round $round: $what of $who";
	if ($what eq 'postmaster')
	{
		my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');

		$dt->disconnect;
		$dt->node->kill9;
		change() if $who ne 'primary';
		ok(poll_until(sub { !grep { !gone($_) } $kill, @pids }, 60),
			"round $round: no process of $who is left");
		# see 010_restart_crash.pl
		poll_until(sub { !kill 0, $kill }, 10)
		  or unlink $dt->node->data_dir . '/postmaster.pid';
		$dt->node->start;
	}
	else
	{
		my $mark = $dt->log_mark;

		kill 'KILL', $kill or die "kill: $!";
		ok( poll_until(
				sub { $dt->log_since($mark) =~ /ready to accept/ }, 60),
			"round $round: $who has recovered");
		$dt->disconnect;
	}
	ok(alive($dt), "round $round: $who is there after kill -9 of its $what");
	change();
	ok(alive($primary), "round $round: the primary is there");
	foreach my $follower ($standby, $cascade)
	{
		ok(alive($follower) && defined $follower->arrival($primary, 60),
			"round $round: " . $follower->node->name . ' has what the primary has')
		  or diag $primary->ddl . "\n" . $follower->ddl;
	}
	last unless Test::More->builder->is_passing;
}

$_->stop foreach $cascade, $standby;
unlike($_->log_since(0), qr/PANIC|TRAP:|signal (?!9\b)\d|is damaged/,
	'nothing bad in the log of ' . $_->node->name)
  foreach $standby, $cascade, $primary;
$primary->stop;
done_testing();
