# The timers that request checks for interrupts: their signals go to the process's
# own thread, whatever others there are; and where only one of the two can be
# created, that one is deleted again, and the core's timer does.  And a tick between
# two transactions of a command is not the last one.
#
# takes-about: 8 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this kernel does not list timers' unless -e '/proc/self/timers';

my $library = compile_library('timers', flags => '-pthread');
plan skip_all => 'no library can be compiled here' unless $library;

my $fail = PostgreSQL::Test::Utils::tempdir_short() . '/fail';
local $ENV{DT_FAIL_TIMER} = $fail;
local $ENV{LD_PRELOAD} = $library;
my $dt = DirtyThrottle::Life->new('timers', conf => q{
dirty_throttle.transaction_grace = 10ms
});
delete $ENV{LD_PRELOAD};
$dt->sql(qq{SELECT set_group_dirty_limit('g', 2000);
	CREATE FUNCTION signals_beside(int) RETURNS int LANGUAGE c AS '$library';
	CREATE FUNCTION work_at_commits(int) RETURNS void LANGUAGE c AS '$library';
	CREATE TABLE t AS SELECT i FROM generate_series(1, 50000) AS i});

# What the kernel says of the timers of that process, a line for each.
sub timers_of
{
	my ($pid) = @_;
	my $text = slurp_file("/proc/$pid/timers");

	return grep { /^notify:/ } split /\n/, $text;
}

# A statement that returns no rows, at least 1.8 MB: it can pause in flight only at checks.
sub in_flight
{
	my ($s) = @_;

	$s->query('UPDATE t SET i = i + 1');
	return $dt->group_row('g')->{pauses};
}

subtest 'both' => sub {
	$dt->sql(q{SELECT dirty_throttle_reset('g')});
	my $s = $dt->session(group => 'g');
	$s->query('SELECT count(*) FROM t');
	my $pid = $s->pid;
	is_deeply([ timers_of($pid) ], [ ("notify: signal/tid.$pid") x 2 ],
		'a member has two, for its only thread');
	is($s->query('SELECT signals_beside(200)'), 0,
		'beside another thread, all of their signals come to the first');
	cmp_ok(in_flight($s), '>', 1, 'a command pauses more than once');
	$s->quit;
};

subtest 'one cannot be created' => sub {
	$dt->sql(q{SELECT dirty_throttle_reset('g')});
	append_to_file($fail, '');
	my $s = $dt->session(group => 'g');
	$s->query('SELECT count(*) FROM t');
	is_deeply([ timers_of($s->pid) ], [], 'the other one does not stay');
	cmp_ok(in_flight($s), '>', 1, 'a command pauses more than once all the same');
	$s->quit;
	unlink $fail;
};

# What such a command uses in some ms is too little for the other timer: the kernel
# looks at that every few ms only.
subtest 'between the transactions of a command' => sub {
	my $s = $dt->session(group => 'g');

	$s->query('SELECT work_at_commits(400)');
	foreach my $i (1 .. 5)
	{
		$dt->sql(q{SELECT set_group_dirty_limit('g', 0);
			DROP TABLE IF EXISTS v;
			CREATE TABLE v (i int, filler text) WITH (fillfactor = 10);
			INSERT INTO v SELECT i, repeat('x', 800) FROM generate_series(1, 1600) i;
			DELETE FROM v WHERE i % 2 = 0;
			CHECKPOINT;
			SELECT set_group_dirty_limit('g', 20)});
		$s->send('VACUUM v');
		ok($dt->wait_paused($s, 'in flight'), "VACUUM $i pauses in flight");
		$dt->sql(q{SELECT set_group_dirty_limit('g', 0)});
		$s->wait;
	}
	$s->quit;
};

$dt->finish;
