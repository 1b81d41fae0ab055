# Signal replica_lag, with a real standby whose replay is paused and goes on:
# members go as fast as they like while the standby keeps up, are slowed down to
# their floor while it stands still, and recover.  Others are left alone.  A
# standby that has gone is no pressure.
#
# takes-about: 40 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $dt = DirtyThrottle::Pressure->new('primary',
	init => [ allows_streaming => 1 ]);
my $mark = $dt->log_mark;
my @all = qw(batch limited observed ignoring);

$dt->sql("SELECT alter_resource_group('$_')") foreach @all, 'follows_nothing';
$dt->follow($_, 'replica_lag', '2s') foreach qw(batch limited observed);
$dt->follow('ignoring', 'replica_lag', '2s', 1);
$dt->sql(
	q{SELECT set_group_wal_limit('limited', 50000), alter_resource_group('limited', floor => 200),
	         alter_resource_group('observed', mode => 'observe')});

# The limit in force, and what decides it.
sub limit_of
{
	my ($group) = @_;
	return $dt->group_row($group)->{effective_wal_limit};
}

# --------------------------------------------------------------------- no standby

my $row;
ok( poll_until(
		sub { ($dt->signal('replica_lag')->{reason} // '') eq 'No standby is streaming.' }),
	'without a standby the view says so');
$row = $dt->signal('replica_lag');
is(join(' ', map { $_ // 'NULL' } @$row{qw(threshold_value value state)}),
	'2000 NULL absent', 'the signal is available and absent');
is($dt->sql(q{SELECT count(*) FROM dirty_throttle_pressure WHERE signal = 'replica_lag' AND group_name IS NOT NULL}),
	4, 'for each group');
poll_until(sub { $dt->log_lines($mark, 'LOG:  signal "replica_lag" slows no group down') });
is($dt->log_lines($mark, 'LOG:  signal "replica_lag" slows no group down'),
	1, 'one line in the log');

# a client that only receives WAL replays nothing
$dt->node->backup('standby');
mkdir $dt->node->data_dir . '/../received' or die;
my $receiver = fork;
if ($receiver == 0)
{
	open STDOUT, '>', '/dev/null';
	open STDERR, '>', '/dev/null';
	exec 'pg_receivewal', '-D', $dt->node->data_dir . '/../received', '-d',
	  $dt->node->connstr('postgres');
	exit 1;
}
ok( poll_until(
		sub { $dt->sql(q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'}) }
	),
	'pg_receivewal is streaming');
sleep 0.5;
is($dt->signal('replica_lag')->{state}, 'absent', 'which is no standby');
kill 'TERM', $receiver;
waitpid $receiver, 0;

# ------------------------------------------------------- a standby that keeps up

my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($dt->node, 'standby', has_streaming => 1);
$node->start;
my $standby = DirtyThrottle::Life->over($node);
ok( poll_until(sub { $dt->signal('replica_lag')->{state} eq 'fresh' }),
	'a standby is streaming: the signal has a value');
ok(poll_until(sub { $dt->signal('replica_lag')->{value} < 1000 }),
	'idle: the standby is not behind');
is($dt->log_lines($mark, 'LOG:  signal "replica_lag" is measured again'),
	1, 'one line in the log');
is(join(' ', map { limit_of($_) } @all), '0 50000 0 0',
	'the limits in force are the fixed ones');
is($dt->worst('batch')->{signal}, 'replica_lag', 'what presses');
is($dt->worst('follows_nothing')->{pressure}, undef, 'a group that follows nothing');

# One that ignores as many as there are.
like($dt->session->run(q{SELECT set_group_pressure('few', 'replica_lag', '2s', ignore => 1)})->{err},
	qr/NOTICE: .*signal "replica_lag" slows no group down at present\nDETAIL:  The 1 standby that is streaming is ignored\./,
	'the only one is ignored: a notice');
$dt->sql(q{SELECT drop_resource_group('few')});

my %job = map { $_ => $dt->start_job($_) } qw(batch limited observed ignoring);
sleep 2;

# ---------------------------------------------------------- it replays nothing

$standby->sql('SELECT pg_wal_replay_pause()');

$row = $dt->wait_group('batch',
	sub { $_[0]->{effective_wal_limit} > 0 && ($dt->worst('batch')->{pressure} // 0) > 1 });
cmp_ok($row->{effective_wal_limit}, '>', 0, 'the standby stops: there is a limit');
ok($dt->wait_group('limited', sub { $_[0]->{effective_wal_limit} == 200 }),
	'a group with a limit comes down to its floor');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 64 }),
	'one without a limit, too');
$row = $dt->group_row('batch');
ok( poll_until(
		sub { $dt->group_row('batch')->{pressure_reason} =~ /^A standby makes no progress with its replay\. The group is at its floor\.$/ }),
	'the reason: how long it would take to drain is not told of what does not');
my $worst = $dt->worst('batch');
cmp_ok($worst->{pressure}, '>', 1, "the view shows the pressure, $worst->{pressure}");
is($worst->{signal}, 'replica_lag', 'and by what');
is($row->{effective_dirty_limit}, 0, 'only WAL is limited');
ok( poll_until(sub { $dt->signal('replica_lag')->{value} > 3000 }),
	'the view shows how far the standby is behind');
is(limit_of('ignoring'), 0, 'who ignores one standby is not limited');
is($dt->worst('ignoring')->{pressure}, undef, 'and under no pressure');

# at the floor they still go on
$dt->check_limit('a group whose floor is 200', 'limited', sub { sleep 1.5 },
	wal => 1);
my $ignoring = $dt->group_row('ignoring');
ok(poll_until(sub { $dt->group_row('ignoring')->{wal_bytes} > $ignoring->{wal_bytes} }),
	'the group that ignores it goes on');
is($ignoring->{pauses}, 0, 'and has never paused');

# a lower fixed limit, and another floor, count at once
$dt->sql("SELECT set_group_wal_limit('limited', 20)");
is(limit_of('limited'), 20, 'a limit below the floor stays in force');
$dt->sql("SELECT set_group_wal_limit('limited', 50000)");
ok(poll_until(sub { limit_of('limited') == 200 }), 'a high one is lowered by pressure');
$dt->sql("SELECT alter_resource_group('limited', floor => 400)");
ok(poll_until(sub { limit_of('limited') == 400 }), 'and so is it to a new floor');

# observed: all is computed, and nobody is slowed down
$row = $dt->group_row('observed');
cmp_ok($row->{effective_wal_limit}, '<', 1000,
	"mode observe: a limit is computed, $row->{effective_wal_limit}");
my $observed = $dt->group_row('observed');
ok( poll_until(
		sub {
			$row = $dt->group_row('observed');
			$row->{observed_pauses} > $observed->{observed_pauses};
		}),
	'pauses are counted');
is($row->{pauses}, 0, 'and none is made');

ok( poll_until(
		sub { $dt->log_lines($mark, 'LOG:  resource group "batch" is slowed down to its floor') }),
	'the log says who is at the floor');

# --------------------------------------------------------------- it goes on

# who follows no signal any more is free at once
$dt->sql("SELECT set_group_pressure('limited', 'replica_lag', NULL)");
is(limit_of('limited'), 50000, 'the signal is removed: the fixed limit');
is($dt->worst('limited')->{pressure}, undef, 'and no pressure');
$dt->follow('limited', 'replica_lag', '2s');

# leave the standby to those who follow the signal
$dt->cancel_ms($job{$_}) foreach qw(observed ignoring);
$standby->sql('SELECT pg_wal_replay_resume()');
ok($dt->wait_group('batch',
		sub { $_[0]->{effective_wal_limit} == 0 || $_[0]->{effective_wal_limit} > 5000 }),
	'the standby goes on: a high limit, or none');
ok( poll_until(sub { limit_of('limited') > 5000 }),
	'with a fixed limit, too');
is( $dt->log_lines($mark, 'resource group "batch" is slowed down to its floor'),
	1, 'the log has said it once');
is($dt->log_lines($mark, 'resource group "observed" is slowed down'), 0, 'and not of who is only observed');

# ------------------------------------------------- it stops, and then it goes away

$standby->sql('SELECT pg_wal_replay_pause()');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 64 }),
	'at the floor again');
$mark = $dt->log_mark;
$standby->disconnect;
$node->stop('immediate');
ok( poll_until(sub { limit_of('batch') == 0 && limit_of('limited') == 50000 }),
	'a standby that is gone is no pressure');
is($dt->log_lines($mark, 'LOG:  signal "replica_lag" slows no group down'),
	1, 'one line in the log');
is($dt->worst('batch')->{pressure}, undef, 'nor is any shown');

$dt->stop_jobs;
is($dt->crashes, '', 'no crash');
$dt->finish;
