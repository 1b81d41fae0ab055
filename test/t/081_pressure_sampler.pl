# The sampler, the worker by which limits follow pressure: it sleeps while there is
# no group, comes back when it has ended, is not there on a standby
# until that is promoted, and ends when the server does.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $linux = $^O eq 'linux';
my $signals =
  q{SELECT set_group_pressure('batch', s, t)
	FROM (VALUES ('replica_lag', '2s'), ('slot_lag', '1GB'), ('checkpoint', NULL),
		('dirty_buffers', '50%'), ('kernel_dirty', '1TB'), ('io_pressure', '90%')) v(s, t)
		 JOIN dirty_throttle_pressure p ON p.signal = v.s AND state IS NULL};

# How often a process has gone to sleep.
sub sleeps
{
	my ($pid) = @_;
	return slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m
	  ? $1
	  : die "no context switches";
}

my $dt = DirtyThrottle::Pressure->new('sampler',
	init => [ allows_streaming => 1 ]);

$dt->sql("SELECT create_resource_group('batch')");
ok($dt->sampler, 'the sampler runs');
my $first = $dt->sampler;

# --------------------------------------------------------------------- a standby

$dt->node->backup('standby');
my $standby_node = PostgreSQL::Test::Cluster->new('standby');
$standby_node->init_from_backup($dt->node, 'standby', has_streaming => 1);
$standby_node->start;
my $standby = DirtyThrottle::Pressure->over($standby_node);

is($standby->sampler, undef, 'there is none on a standby');
$dt->sql(q{SELECT set_group_pressure('batch', 'dirty_buffers', '1%'), set_group_floor('batch', 5)});
ok(poll_until(sub { defined $standby->signal('dirty_buffers')->{group_name} }, 180),
	'a threshold comes there');
my $row = $standby->signal('dirty_buffers');
is($row->{reason}, 'Signals are not measured during recovery.',
	'the view says so');
is(join(' ', map { $row->{$_} // 'NULL' } qw(group_name value state)),
	'batch NULL absent', 'and the signal is absent');
$standby->sql('SELECT pg_promote()');
ok(poll_until(sub { $standby->sampler }), 'it is there after the promotion');
ok( poll_until(sub { $standby->signal('dirty_buffers')->{state} eq 'fresh' }),
	'and samples what was set before');
$dt->sql(q{SELECT reset_group_pressure('batch', 'dirty_buffers'), set_group_floor('batch', 64)});
$standby->stop('fast');

# --------------------------------------------------------------- sleeping, waking

SKIP:
{
	skip 'this is no Linux', 3 unless $linux;

	$dt->sql(q{SELECT drop_resource_group('batch')});
	my $before;
	ok( poll_until(
			sub {
				$before = sleeps($first);
				sleep 1;
				return sleeps($first) == $before;
			}),
		'no group: no wakeup in a second');
	is($dt->sql('SELECT count(state) + count(value) FROM dirty_throttle_pressure'),
		0, 'and nothing is known');
	$dt->sql(q{SELECT create_resource_group('batch', 5)});
	ok(poll_until(sub { sleeps($first) > $before }), 'a new one wakes it');
}
# what nobody follows is measured all the same, every 10 s
ok( poll_until(sub { defined $dt->signal('wal_rate')->{value} }),
	'two looks: all that can be measured is known');
is(join(' ', map { $_ // 'NULL' } @{ $dt->signal('wal_rate') }{qw(state threshold threshold_value pressure group_name)}),
	'NULL NULL NULL NULL NULL', 'though nobody follows it');
my $seen = $dt->signal('disk_free')->{measured_at};
ok(poll_until(sub { $dt->signal('disk_free')->{measured_at} ne $seen }), 'again and again');
$dt->sql($signals);
ok( poll_until(
		sub {
			$dt->sql(
				q{SELECT bool_and(state = 'fresh' OR signal ~ '_lag$')
				  FROM dirty_throttle_pressure WHERE group_name IS NOT NULL}) eq 't';
		}),
	'all signals that there are have values');
is($dt->sampler, $first, 'it is still the first one');

# --------------------------------------------------------------------- comes back

my $mark = $dt->log_mark;
kill 'TERM', $first;
ok(poll_until(sub { ($dt->sampler // $first) != $first }),
	'it is started again after a SIGTERM');
is($dt->log_lines($mark, 'was terminated by signal'), 0, 'without a crash');
ok( poll_until(sub { $dt->signal('dirty_buffers')->{state} eq 'fresh' }),
	'and samples');
$dt->sql(q{SELECT reset_group_pressure('batch', signal) FROM dirty_throttle_pressure WHERE group_name IS NOT NULL});
is($dt->sql("SELECT count(*) FROM dirty_throttle_pressure WHERE group_name IS NOT NULL"),
	0, 'nobody follows a signal any more');
SKIP:
{
	skip 'this is no Linux', 1 unless $linux;
	my $pid = $dt->sampler;
	ok( poll_until(
			sub {
				my $before = sleeps($pid);
				sleep 1;
				return sleeps($pid) == $before;
			}),
		'and it sleeps');
}
$dt->stop('fast');

# ------------------------------------------------------------- without the worker

$dt->node->append_conf('postgresql.conf', "max_worker_processes = 0\n");
$dt->node->start;
is($dt->sampler, undef, 'max_worker_processes = 0: there is none');
like(
	$dt->session->run(
		q{SELECT set_group_pressure('batch', 'dirty_buffers', '1%')})->{err},
	qr/NOTICE: .*signals are not measured at present\nDETAIL:  The background worker .* is not running\.\nHINT:  If max_worker_processes is too small/,
	'a threshold can be set, with a notice');
$row = $dt->signal('dirty_buffers');
is($row->{state}, 'absent', 'a signal is absent');
is($row->{reason}, 'The background worker "dirty_throttle pressure" is not running.',
	'and the view says why');
is($dt->group_row('batch')->{effective_dirty_limit}, 5,
	'a group has its limit');
$dt->stop;

is($dt->crashes, '', 'no crash');
done_testing();
