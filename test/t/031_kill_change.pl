# kill -9 at any place of a change: afterwards there are the old definitions or
# the new ones, never others, and the new ones if the client was told so.
#
# A library in LD_PRELOAD kills the process at one system call after the other,
# from the first to the last of the change: every fifth of them, or with DT_ROUNDS in
# the environment each, and after so many further rounds at any moment.
#
# expect-in-log: WARNING:  terminating connection because of crash of another server process
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# takes-about: 15 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $fault = PostgreSQL::Test::Utils::tempdir_short() . '/fault';
my $library = compile_library('fault');

plan skip_all => 'no LD_PRELOAD' unless $library;
$ENV{DT_FAULT} = $fault;
my $dt;
{
	local $ENV{LD_PRELOAD} = $library;
	$dt = DirtyThrottle::Life->new('kill',
		conf => "shared_buffers = 16MB\nrestart_after_crash = on\nfsync = on");
}
my $random = $ENV{DT_ROUNDS} // 2;
my %found = (old => 0, new => 0);
my $n = 0;
my $us = 20000;    # how long a change takes

$dt->sql(q{CREATE ROLE etl});
$dt->limit(grp_a => 0);
$dt->sql('SELECT set_group_wal_limit(\'grp_a\', 0)');

# All that the change changes, as one text.
sub state_now
{
	return $dt->sql(q{SELECT coalesce(string_agg(concat_ws(',', group_name, coalesce(dirty_limit, 0),
			coalesce(wal_limit, 0), coalesce(cardinality(granted_to), 0)), ' '
			ORDER BY group_name COLLATE "C"), '') FROM dirty_throttle_groups});
}

sub state_after
{
	my ($i) = @_;
	return "grp_a,$i,$i,0" . ($i % 2 ? ' other,0,0,1' : '');
}

# One change, killed at that system call, or after so many microseconds.
# Returns whether it was.
sub round
{
	my ($name, %at) = @_;
	my $old = $n;
	my $new = ++$n;
	my $member = $dt->session(group => 'grp_a');    # to be woken
	my $s = $dt->session;
	my $pid = $s->pid;
	my $mark = $dt->log_mark;

	$s->query('SET client_min_messages = warning; SELECT * FROM dirty_throttle_groups');
	if ($at{call})
	{
		append_to_file("$fault.new", "$pid $at{call}\n");
		rename "$fault.new", $fault or die;
	}
	my $start = time;
	$s->send("BEGIN \\; SELECT set_group_dirty_limit('grp_a', $new), set_group_wal_limit('grp_a', $new) \\; "
		  . ($new % 2
			? q{SELECT alter_resource_group('other'), grant_group_use('other', 'etl')}
			: q{SELECT drop_resource_group('other')})
		  . ' \; COMMIT');
	if (!$at{call})
	{
		sleep $at{us} / 1e6;
		kill 'KILL', $pid;
	}
	my $r = $s->wait;
	unlink $fault;
	my $killed = $r->{err} ne '';
	# it may have been killed when it had answered
	my $is_dead = $killed || !$at{call} || $s->run('SELECT 1')->{err} ne '';

	$_->quit foreach $s, $member;
	if ($is_dead)
	{
		$dt->disconnect;
		poll_until(sub { $dt->log_since($mark) =~ /ready to accept/ }, 180)
		  or die 'no recovery';
	}
	else { $us = (time - $start) * 1e6 }
	my $state = state_now();
	my $is = $state eq state_after($new) ? 'new' : $state eq state_after($old) ? 'old' : 'bad';

	$n = $old if $is eq 'old';
	$found{$is}++ if $killed;
	ok($killed ? $is ne 'bad' : $is eq 'new',
		"$name: " . ($killed ? 'killed' : 'made') . ", $is definitions")
	  or diag "$state, expected " . state_after($new) . ' or ' . state_after($old);
	return $killed;
}

# once without, so that all is as it is
is(round('no kill', call => 1000000), '', 'a change');
# not each round makes as many: the last one is found when several have survived.  All of
# them are tried with DT_ROUNDS.
my $step = $ENV{DT_ROUNDS} ? 1 : 5;
my ($calls, $survived) = (0, 0);
while ($survived < 4 && $calls < 200)
{
	$calls += $survived ? 1 : $step;
	$survived = round("system call $calls", call => $calls) ? 0 : $survived + 1;
}
cmp_ok($calls, '>', 3, "$calls system calls");
# Which pages are read depends on the recovery before, so the last calls may have been
# passed over: from the last one back, with all pages there.
for (my $call = 12; $call > 0 && $found{new} == 0; $call--)
{
	round('no kill', call => 1000000);
	round("system call $call, with all pages there", call => $call);
}
cmp_ok($found{old}, '>', 0, 'old definitions, killed before the end');
cmp_ok($found{new}, '>', 0, 'new definitions, killed before the client knew');
round("moment $_", us => rand(1.2 * $us)) foreach 1 .. $random;
note "after a kill: $found{old} times the old definitions, $found{new} times the new ones";

unlike($dt->log_since(0), qr/PANIC|TRAP:|signal (?!9\b)\d/, 'nothing else in the log');
$dt->disconnect;
$dt->node->stop('fast');
done_testing();
