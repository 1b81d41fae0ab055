# Tests of the clock that only tests move, and of what all tests on it lean on.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: FATAL:  this build of dirty_throttle is for tests

my $dt = DirtyThrottle::Clock->new('clock');

$dt->sql('CREATE TABLE t (id int, pad text) WITH (fillfactor = 10)');
$dt->limit(g => 1000);

my $s = $dt->session(group => 'g');

subtest 'the clock stands still until it is moved' => sub {
	my $start = $dt->now;

	$s->send("INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 100) i");
	$dt->settle;
	is($dt->state($s), 'sleeps', 'a member pauses');
	is($dt->now, $start, 'no time has passed');

	my $owed = $dt->session_row($s)->{blocks_dirtied} * 8192 - 20_000;
	my $pause = lone_pause_us($owed, 1000);

	$dt->advance($pause - 1);
	is($dt->state($s), 'sleeps', 'it pauses to the last microsecond');
	$dt->advance(1);
	is($dt->state($s), 'idle', 'and no longer');
	ok($s->finished, 'its client knows');
	is($dt->session_row($s)->{paused_time} * 1000, $pause, 'the view tells');
	is($dt->now, $start + $pause, 'the clock was moved by that');
};

subtest 'it is moved until nobody pauses' => sub {
	my $before = $dt->session_row($s)->{blocks_dirtied};

	$s->send("INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 100) i");
	my $us = $dt->run;
	my $blocks = $dt->session_row($s)->{blocks_dirtied} - $before;

	is($us, lone_pause_us($blocks * 8192, 1000), 'by what was owed');
};

subtest 'a server without the parameter does not start with this library' => sub {
	my $node = $dt->node;

	$dt->stop;
	$node->append_conf('postgresql.conf', 'dirty_throttle.test_clock = off');
	is($node->start(fail_ok => 1), 0, 'it does not start');
	like(
		slurp_file($node->logfile),
		qr/FATAL:  this build of dirty_throttle is for tests.*\n.*HINT:  Install/,
		'and says why');
};

done_testing();
