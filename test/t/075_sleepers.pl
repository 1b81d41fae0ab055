# Many sessions asleep in flight.  What one of them holds is to be had, and a
# shutdown of any kind does not wait for them.
#
# DT_SLEEPERS: how many, 60 by default.  If it is set, what they use is measured, and
# what the one that looks uses when that many outsiders wait for each other.
#
# takes-about: 4 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(time);

my $n = $ENV{DT_SLEEPERS} // 60;
my $timeout = 180;

my $dt = DirtyThrottle::Life->new('sleepers',
	conf => 'max_connections = ' . 4 * $n . "\nautovacuum = off");
$dt->limit(grp => 0);
$dt->sql("CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	CREATE TABLE hot (id int PRIMARY KEY, n int);
	INSERT INTO hot SELECT i, 0 FROM generate_series(1, $n) i");

sub paused
{
	return $dt->group_row('grp')->{paused};
}

# That many sessions, each with a row of its own.
sub sleepers
{
	$dt->limit(grp => 0);
	my @s = map { $dt->session(group => 'grp') } 1 .. $n;

	$dt->limit(grp => 1);
	foreach my $i (1 .. $n)
	{
		$s[ $i - 1 ]->send("BEGIN; UPDATE hot SET n = n + 1 WHERE id = $i;
			INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 20) i;
			COMMIT");
	}
	ok(poll_until(sub { paused() == $n }, $timeout), 'all are asleep');
	return @s;
}

# The CPU time that processes have used, in s, and how often they have slept.
sub used
{
	my ($ns, $switches) = (0, 0);

	foreach my $s (@_)
	{
		open my $file, '<', '/proc/' . $s->pid . '/schedstat' or return (0, 0);
		$ns += (split / /, <$file>)[0];
		open $file, '<', '/proc/' . $s->pid . '/status' or return (0, 0);
		$switches += /^voluntary_ctxt_switches:\s*(\d+)/ ? $1 : 0 while <$file>;
	}
	return ($ns / 1e9, $switches);
}

sub measure
{
	my ($name, @of) = @_;

	return unless $ENV{DT_SLEEPERS} && -d '/proc/self';
	my ($start, $cpu, $switches) = (time, used(@of));
	sleep 20;
	my ($cpu_then, $switches_then) = used(@of);
	my $s = time - $start;
	diag sprintf '%s: %.2f %% of a processor, %.2f voluntary switches each second',
	  $name, 100 * ($cpu_then - $cpu) / $s, ($switches_then - $switches) / $s / @of;
	return;
}

my @s = sleepers();
measure("$n sleepers", @s);
my $outsider = $dt->session;
$outsider->send("UPDATE hot SET n = n + 1 WHERE id = $n");
ok($outsider->finished($timeout), 'a row of one of them is to be had');
is($outsider->wait->{sqlstate}, undef, 'without an error');
ok(poll_until(sub { paused() == $n }, $timeout), 'all the others are asleep');

if ($ENV{DT_SLEEPERS})
{
	$dt->limit(grp => 0);
	$_->wait foreach @s;
	my $looker = $dt->session(group => 'grp');
	my @waiting = map { $dt->session } 1 .. $n;

	$waiting[0]->query('BEGIN; UPDATE hot SET n = n + 1 WHERE id = 1');
	foreach my $i (1 .. $n - 1)
	{
		$waiting[$i]->query('BEGIN; UPDATE hot SET n = n + 1 WHERE id = ' . ($i + 1));
		$waiting[$i]->send("UPDATE hot SET n = n + 1 WHERE id = $i");
	}
	$dt->limit(grp => 1);
	$looker->send("BEGIN; INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 40) i");
	ok($dt->wait_paused($looker, 'in flight', $timeout), 'one sleeps');
	measure("one sleeper, beside $n that wait for each other", $looker);
	$dt->limit(grp => 0);
	$_->quit foreach reverse @waiting;
	$looker->wait;
	$looker->quit;
	@s = sleepers();
}

foreach my $mode ('fast', 'immediate')
{
	@s = sleepers() if $mode ne 'fast';
	$dt->stop($mode);
	pass("$mode shutdown");
	$_->hang_up foreach @s;
	$dt->node->start;
}
$dt->finish;
