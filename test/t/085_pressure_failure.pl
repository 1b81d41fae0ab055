# What fails does not leave a group stuck: a standby from which nothing is heard
# any more, a slot that is dropped, a file that cannot be read, a sampler that
# stands still, or is ended or killed again and again, a clock that is set.  The
# group is never below its floor, the log has one line, and the view tells.  When
# the last fresh value is too old to count is tested on a virtual clock.
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# takes-about: 20 s

use strict;
use warnings FATAL => 'all';

use Errno qw(EACCES);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $tmp = PostgreSQL::Test::Utils::tempdir();
my $library = compile_library('proc');

plan skip_all => 'no library for LD_PRELOAD can be compiled here' unless $library;

my @conf = (conf => "shared_buffers = 32MB\nrestart_after_crash = on\n"
	  . "log_line_prefix = '%m [%p] '\n");

# A server whose kernel says what a file says: at first that 1 GB is dirty.  Its
# group comes down to its floor.
sub pressed_server
{
	my ($name) = @_;

	mkdir "$tmp/$name";
	local $ENV{LD_PRELOAD} = $library;
	local $ENV{DT_PROC} = "$tmp/$name";
	dirty_mb($name, 1000);
	my $dt = DirtyThrottle::Pressure->new($name, @conf);
	$dt->sql(q{SELECT set_group_dirty_limit('batch', 10000), alter_resource_group('batch', floor => 100)});
	$dt->follow('batch', 'kernel_dirty', '100MB');
	return $dt;
}

sub dirty_mb
{
	my ($name, $mb) = @_;
	write_file("$tmp/$name/meminfo",
		'Dirty: ' . $mb * 1024 . " kB\nWriteback: 0 kB\n");
}

sub limit_of
{
	my ($dt) = @_;
	return $dt->group_row('batch')->{effective_dirty_limit};
}

# ------------------------------------------------------ servers under pressure

my $primary = DirtyThrottle::Pressure->new('primary',
	init => [ allows_streaming => 1 ], @conf, );
$primary->node->append_conf('postgresql.conf', 'wal_sender_timeout = 10min');
$primary->node->reload;
$primary->sql(
	q{SELECT set_group_wal_limit('batch', 10000), set_group_wal_limit('slot', 10000),
		alter_resource_group('batch', floor => 100);
	SELECT pg_create_physical_replication_slot('retains', true)});
$primary->follow('batch', 'replica_lag', '1s');
$primary->follow('slot', 'slot_lag', '20MB');
$primary->node->backup('standby');
my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($primary->node, 'standby', has_streaming => 1);
$node->start;
my $standby = DirtyThrottle::Pressure->over($node);
poll_until(sub { $primary->signal('replica_lag')->{state} eq 'fresh' });
$primary->start_job($_) foreach qw(batch slot);
sleep 1;
$standby->sql('SELECT pg_wal_replay_pause()');

my %dt = map { $_ => pressed_server($_) } qw(unreadable stopped ended);
foreach (sort keys %dt)
{
	my $dt = $dt{$_};

	# who writes at this rate, in one statement and with pauses
	$dt->start_job('batch');
	ok($dt->wait_group('batch', sub { $_[0]->{effective_dirty_limit} == 100 }),
		"$_: at the floor");
}
ok($primary->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 100 }),
	'the standby stands still: at the floor');
ok( $primary->wait_group('slot',
		sub { $_[0]->{effective_wal_limit} < 1000 && ($primary->worst('slot')->{pressure} // 0) > 0.9 }),
	'a slot retains WAL: a low limit');

# --------------------------------------------------------------------- it fails

my %mark = map { $_ => $dt{$_}->log_mark } keys %dt;
$mark{primary} = $primary->log_mark;
my $receiver = $standby->process('walreceiver');
my $sampler = $dt{stopped}->sampler;

kill 'STOP', $receiver;
kill 'STOP', $sampler;
write_file("$tmp/unreadable/meminfo.errno", EACCES);

# the slot is dropped
my $slot_mark = $primary->log_mark;
$primary->sql("SELECT pg_drop_replication_slot('retains')");
ok( $primary->wait_group('slot', sub { $_[0]->{effective_wal_limit} == 10000 }),
	'the slot is dropped: the fixed limit');
poll_until(sub { $primary->log_lines($slot_mark, 'LOG:  signal "slot_lag" slows no group down') });
is($primary->log_lines($slot_mark, 'LOG:  signal "slot_lag" slows no group down'),
	1, 'one line in the log');
is($primary->worst('slot')->{pressure}, undef, 'no pressure is shown');

# a clock that is set does not matter: nothing is measured by it
{
	my $dt = $dt{ended};

	foreach my $seconds (7200, -7200, 0)
	{
		write_file("$tmp/ended/clock", $seconds);
		my $row = $dt->signal('kernel_dirty');
		my $measured = $row->{measured_at};

		poll_until(
			sub { ($row = $dt->signal('kernel_dirty'))->{measured_at} ne $measured });
		is(limit_of($dt) . " $row->{state}",
			'100 fresh', "the clock is wrong by $seconds s");
	}
	unlink "$tmp/ended/clock";
}

# the sampler is ended again and again
{
	my $dt = $dt{ended};
	my @limits;
	my %pids;

	foreach (1 .. 4)
	{
		my $pid;

		poll_until(sub { ($pid = $dt->sampler) && !$pids{$pid} });
		push @limits, limit_of($dt);
		$pids{$pid} = 1;
		kill 'TERM', $pid;
	}
	push @limits, limit_of($dt);
	@limits = sort { $a <=> $b } @limits;
	is(scalar keys %pids, 4, 'the sampler was ended four times');
	is("$limits[0] $limits[-1]", '100 100', 'all the time the group is at its floor');
}

# --------------------------------------------------- 10 s after the failure

sub states
{
	return join ' ', $primary->signal('replica_lag')->{state},
	  map { $dt{$_}->signal('kernel_dirty')->{state} } qw(unreadable stopped);
}

ok(poll_until(sub { states() eq 'stale stale stale' }), 'the values are stale');
is( join(' ', $primary->group_row('batch')->{effective_wal_limit},
		map { limit_of($dt{$_}) } qw(unreadable stopped)),
	'100 100 100', 'and count as they were');
is($dt{unreadable}->signal('kernel_dirty')->{reason},
	'File "/proc/meminfo" cannot be read: Permission denied.',
	'the view says why');
is( $dt{unreadable}->log_lines(
		$mark{unreadable}, 'LOG:  could not measure signal "kernel_dirty"'),
	1, 'so does the log, once');

# ------------------------------------------------ the sampler's server is killed

{
	my $dt = $dt{ended};

	$dt->disconnect;
	foreach my $job (@{ $dt->{jobs} }) { $job->quit }
	$dt->{jobs} = [];
	foreach (1 .. 3)
	{
		my $pid;

		poll_until(sub { $pid = $dt->sampler });
		kill 'KILL', $pid;
		poll_until(sub { ($dt->sampler // $pid) != $pid });
	}
	ok( poll_until(
			sub {
				my $session = eval { $dt->session };
				my $up = $session && $session->alive;

				$session->quit if $session;
				return $up;
			}),
		'the sampler was killed three times: the server is up');
	ok( poll_until(sub { $dt->signal('kernel_dirty')->{state} eq 'fresh' }),
		'and measures the signal');
	$dt->start_job('batch');
	ok($dt->wait_group('batch', sub { $_[0]->{effective_dirty_limit} < 10000 }),
		'the group is limited again');
	dirty_mb('ended', 0);
	ok($dt->wait_group('batch', sub { $_[0]->{effective_dirty_limit} == 10000 }),
		'until there is no pressure any more');
}

# ----------------------------------------------------------------- all goes on

kill 'CONT', $receiver;
kill 'CONT', $sampler;
unlink "$tmp/unreadable/meminfo.errno";
ok( poll_until(sub { states() eq 'fresh fresh fresh' }),
	'all goes on: the values are fresh');
ok($dt{$_}->wait_group('batch', sub { $_[0]->{effective_dirty_limit} == 100 }),
	"$_: and slow the group down")
  foreach qw(unreadable stopped);
is( $dt{unreadable}->log_lines(
		$mark{unreadable}, 'LOG:  signal "kernel_dirty" is measured again'),
	1, 'one line in the log');

$standby->sql('SELECT pg_wal_replay_resume()');
foreach ($primary, @dt{qw(unreadable stopped ended)})
{
	$_->stop_jobs;
	$_->stop;
}
$standby->disconnect;
is($_->crashes, '', 'no crash') foreach $primary, @dt{qw(unreadable stopped)};
done_testing();
