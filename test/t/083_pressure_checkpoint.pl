# Signal checkpoint, with real checkpoints: a job that would force one after the
# other does not force any when it follows the signal, and uses what there is
# room for.  Two servers side by side: on one the job follows it.
#
# takes-about: 40 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Pressure;
use Test::More;
use Time::HiRes qw(sleep time);

my $MB = 1024 * 1024;
my @conf = (
	init => [ extra => ['--wal-segsize=1'] ],
	conf => q{
max_wal_size = 100MB
min_wal_size = 50MB
checkpoint_timeout = 30s
checkpoint_completion_target = 0.9
checkpoint_warning = 0
log_checkpoints = on
});

# Checkpoints that were forced, and those that came by time.
sub checkpoints
{
	my ($dt) = @_;
	return split /\|/,
	  $dt->sql(
		$dt->sql('SHOW server_version_num') < 170000
		? 'SELECT checkpoints_req, checkpoints_timed FROM pg_stat_bgwriter'
		: 'SELECT num_requested, num_timed FROM pg_stat_checkpointer');
}

my $free = DirtyThrottle::Pressure->new('free', @conf);
my $dt = DirtyThrottle::Pressure->new('follows', @conf);
my %before;

foreach ($free, $dt)
{
	my $dt = $_;
	my ($requested) = checkpoints($dt);

	$dt->sql(q{SELECT create_resource_group('batch'); CREATE TABLE oltp (id int); CHECKPOINT});
	# the checkpointer counts it a little later
	poll_until(sub { (checkpoints($dt))[0] > $requested });
	$before{$dt} = [ checkpoints($dt) ];
}
$dt->follow('batch', 'checkpoint');

# ------------------------------------------------------------------- without it

$free->start_job('batch');
ok( poll_until(sub { (checkpoints($free))[0] >= $before{$free}[0] + 2 }, 60),
	'a job that does not follow the signal forces checkpoints');
$free->stop_jobs;
$free->stop('immediate');

# ---------------------------------------------------------------------- with it

my $room = $dt->signal('checkpoint')->{value};
between($room / $MB, 40, 53, 'MB that there is room for');
my $start = time;
my $least = $room;
my $end;

$dt->start_job('batch');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} > 0 }, 5),
	'a limit is in force');

# others write as well, who are in no group: 150 kB in a burst each second
while (time - $start < 45 && !$end)
{
	$dt->sql(q{INSERT INTO oltp SELECT generate_series(1, 2500)});
	sleep 0.5;
	my $left = $dt->signal('checkpoint')->{value};

	# room again: a checkpoint has begun
	if ($left > $least + 10 * $MB) { $end = time }
	else { $least = $left }
}
my ($forced, $timed) = checkpoints($dt);

ok($end, 'a checkpoint has begun');
between(($end // time) - $start, 20, 40, 'seconds until then');
is($forced - $before{$dt}[0], 0, 'none was forced');
between($least / $room, 0, 0.25, 'part of the room that was left over');

# its rate in the next seconds, with the room of another checkpoint
my $row = $dt->group_row('batch');
between($row->{effective_wal_limit}, 700, 2500, 'KB/s that are left to the job');
is($row->{pressure_signal}, 'checkpoint', 'by what it is limited');
between($row->{pressure}, 0.6, 1.3, 'and its pressure');
my $kb = $dt->wal_kb('batch', 5);
between($kb / $dt->group_row('batch')->{effective_wal_limit},
	0.85, 1.15, 'which it uses');
is((checkpoints($dt))[0] - $before{$dt}[0], 0, 'still none was forced');
is($dt->log_lines(0, 'checkpoint starting: wal'), 0, 'as the log says');

# nobody else is slowed down
$dt->sql('SELECT set_group_floor($$batch$$, 100)');
my $ms = elapsed_ms(sub {
	$dt->session->query('INSERT INTO oltp SELECT generate_series(1, 20000)');
});
cmp_ok($ms, '<', 2000, "1.2 MB of others' WAL takes $ms ms");

$dt->stop_jobs;
is($dt->crashes, '', 'no crash');
$dt->finish;
