# Signals that limit dirtying.  dirty_buffers: the part of shared_buffers that is
# dirty stays near the threshold, whoever writes, and the group goes on when a
# checkpoint has written them.  io_pressure, with a file that says what we want:
# slower above the threshold, faster below, and free in the end.
#
# takes-about: 45 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $tmp = PostgreSQL::Test::Utils::tempdir();
my $library = compile_library("$FindBin::RealBin/../fault/proc.c", "$tmp/proc.so");

# ------------------------------------------------------------------- dirty_buffers

my $dt = DirtyThrottle::Pressure->new('dirty', conf => 'shared_buffers = 512MB');
$dt->sql(q{SELECT create_resource_group('batch'), create_resource_group('free'),
	set_group_floor('batch', 100);
	CREATE TABLE other (id int, pad text)});
$dt->follow('batch', 'dirty_buffers', '30%');
ok($dt->wait_group('batch', sub { ($_[0]->{pressure_signal} // '') eq 'dirty_buffers' }),
	'the signal has a value');
is($dt->group_row('batch')->{effective_dirty_limit}, 0, 'nothing is dirty: no limit');

# so fast that it takes some seconds to the threshold
$dt->sql(q{SELECT set_group_dirty_limit('batch', 25000)});
$dt->start_job('batch');
my $start = time;
my $most = 0;
my $row = $dt->wait_group('batch', sub {
		my $value = $dt->signal('dirty_buffers')->{value};

		$most = $value if $value > $most;
		return $_[0]->{effective_dirty_limit} == 100;
	}, 60);
is($row->{effective_dirty_limit}, 100,
	'nobody writes the buffers: the group comes down to its floor');
between($most, 20, 45, '% of shared_buffers that are dirty at most');
$dt->sql(q{SELECT reset_group_dirty_limit('batch')});
is($row->{effective_wal_limit}, 0, 'only dirtying is limited');
is($dt->group_row('free')->{effective_dirty_limit}, 0, 'and only this group');
my $ms = elapsed_ms(sub {
	$dt->sql(q{INSERT INTO other SELECT i, repeat('x', 900) FROM generate_series(1, 8000) i});
});
cmp_ok($ms, '<', 3000, "8 MB of others take $ms ms");

my $blocks = $dt->group_row('batch')->{blocks_dirtied};
sleep 2;
between(($dt->group_row('batch')->{blocks_dirtied} - $blocks) * $dt->block_kb / 2,
	50, 150, 'KB/s at the floor of 100');

# the reason for which a member pauses, in the view and in the log
ok( $dt->node->poll_query_until('postgres',
		q{SELECT 'dirty_buffers' IN (SELECT paused_by FROM dirty_throttle_sessions
			WHERE group_name = 'batch')}),
	'a member pauses by dirty_buffers');
my $log_from = -s $dt->node->logfile;
$dt->sql(q{SET dirty_throttle.log_min_pause = '1ms';
	SET dirty_throttle."group" = 'batch';
	INSERT INTO other SELECT i, repeat('x', 900) FROM generate_series(1, 40) i});
my $log = PostgreSQL::Test::Utils::slurp_file($dt->node->logfile, $log_from);
like($log, qr/Causes: (dirty [\d.]+ ms, )?dirty_buffers [\d.]+ ms\. /,
	'and so says the log');

$dt->sql('CHECKPOINT');
$start = time;
ok( $dt->wait_group('batch',
		sub { $_[0]->{effective_dirty_limit} == 0 || $_[0]->{effective_dirty_limit} > 3000 },
		20),
	'after a checkpoint it goes on');
note sprintf 'after %.1f s', time - $start;
$dt->stop_jobs;
$dt->stop;

# --------------------------------------------------------------------- io_pressure

SKIP:
{
	skip 'no library for LD_PRELOAD can be compiled here', 4 unless $library;
	local $ENV{LD_PRELOAD} = $library;
	local $ENV{DT_PROC} = $tmp;
	my $total = 1e6;
	my $last = time;
	my $part;

	# the counter of the kernel, as if they waited for that part of the time
	my $tick = sub {
		my $now = time;

		$total += 1e6 * $part * ($now - $last);
		$last = $now;
		write_file("$tmp/io",
			sprintf("some avg10=0 avg60=0 avg300=0 total=%d\n", $total));
	};
	my $wait = sub {
		my ($code, $seconds) = @_;
		my $end = time + $seconds;
		my $row;

		while (time < $end)
		{
			$tick->();
			$row = $dt->group_row('batch');
			last if $code->($row);
			sleep 0.03;
		}
		return $row;
	};
	$part = 0;
	$tick->();
	$dt->node->start;
	$dt->sql(q{SELECT reset_group_pressure('batch', 'dirty_buffers')});
	$dt->follow('batch', 'io_pressure', '20%');
	$dt->start_job('batch');
	$row = $wait->(sub { 0 }, 3);
	is($row->{effective_dirty_limit}, 0, 'nobody waits for I/O: no limit');
	my $free = $row->{dirty_rate};

	$part = 0.5;
	$row = $wait->(sub { $_[0]->{effective_dirty_limit} > 0 && $_[0]->{effective_dirty_limit} < $free / 4 }, 20);
	between($row->{effective_dirty_limit}, 100, $free / 4,
		'half of the time: it is slowed down, KB/s');
	my $slow = $row->{effective_dirty_limit};

	# both windows, of 2 and of 10 s, come down first
	$part = 0;
	$row = $wait->(sub { $_[0]->{effective_dirty_limit} > 1.5 * $slow }, 25);
	cmp_ok($row->{effective_dirty_limit},
		'>', 1.5 * $slow, 'nobody waits any more: it gets faster again');
	$tick->();
	$dt->stop_jobs;
	$dt->stop;
}

is($dt->crashes, '', 'no crash');
done_testing();
