# Signals with the real thing: archive_lag with an archiver that works and one
# that fails, disk_free and the file system there is, flush_lag and standbys that
# are named, a reported signal whose reporter dies, and wal_rate with two groups.
#
# expect-in-log: archive command failed with exit code|archiving write-ahead log file .* failed too many times
# takes-about: 90 s

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
my $MB = 1_000_000;
my $segment = 1024 * 1024;
my $dt = DirtyThrottle::Pressure->new('measured',
	init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ],
	conf => qq{
archive_mode = on
archive_command = 'test -e $tmp/works'
wal_keep_size = 1GB
max_wal_size = 10GB
});
write_file("$tmp/works", '');
chmod 0755, $tmp;

# So much WAL, in segments that can be archived.
sub write_wal
{
	my ($mb) = @_;
	$dt->sql("SELECT count(pg_logical_emit_message(false, 'x', repeat('x', 100000)))
		FROM generate_series(1, $mb * 10)");
}

sub value
{
	my ($signal) = @_;
	return $dt->signal($signal)->{value} // -1;
}

# -------------------------------------------------------------------- archive_lag

$dt->sql(q{SELECT set_group_wal_limit('batch', 10000), set_group_floor('batch', 100)});
$dt->follow('batch', 'archive_lag', '8MB');
$dt->start_job('batch');
write_wal(3);
ok(poll_until(sub { value('archive_lag') == 0 || value("archive_lag") == $segment }, 180),
	'what is written is archived');
unlink "$tmp/works";
write_wal(12);
ok(poll_until(sub { value('archive_lag') >= 10 * $MB }, 180),
	'nothing is archived: what waits');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 100 }, 180),
	'the group comes down to its floor');
like($dt->group_row('batch')->{pressure_reason}, qr/wait to be archived/, 'by this signal');
cmp_ok($dt->worst('batch')->{pressure}, '>', 1, 'which is above its threshold');
write_file("$tmp/works", '');
$dt->sql('SELECT pg_switch_wal()');
ok(poll_until(sub { value("archive_lag") <= $segment }, 180), 'archived again: nothing waits');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 10000 }, 180),
	'and the group is as fast as its limit');
$dt->sql(q{SELECT reset_group_pressure('batch', 'archive_lag')});

# ---------------------------------------------------------------------- disk_free

# others use the disk, too
ok(poll_until(sub { abs(value('disk_free') - `df --output=avail -B1 @{[ $dt->node->data_dir ]} | tail -1`) < 1e9 }),
	'disk_free: about what df says');
$dt->follow('batch', 'disk_free', '100%');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 100 }, 180),
	'all of the disk should be free: the group is at its floor');
like($dt->group_row('batch')->{pressure_reason}, qr/free of the file system of pg_wal/, 'by this signal');
is($dt->signal('disk_free')->{threshold_value}, `df --output=size -B1 @{[ $dt->node->data_dir ]} | tail -1` + 0, 'all of it, in bytes');
is("@{ $dt->signal('disk_free') }{qw(threshold unit)}", '100% bytes', 'as it was set, and the unit');
$dt->follow('batch', 'disk_free', '1MB');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 10000 }, 180),
	'1 MB should be: it is free');
$dt->sql(q{SELECT reset_group_pressure('batch', 'disk_free')});

# ----------------------------------------------------------------------- reported

$dt->sql(q{SELECT report_pressure('elsewhere', 3, '200 ms')});
$dt->follow('batch', 'elsewhere');
my $reporter = $dt->session;
$reporter->send(q{DO $$ BEGIN LOOP
	PERFORM report_pressure('elsewhere', 3, '1 s'), pg_sleep(0.1); END LOOP; END $$});
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 100 }, 180),
	'a reported signal: the group comes down to its floor');
like($dt->group_row('batch')->{pressure_reason}, qr/"elsewhere" is 3\S* times its threshold/, 'by this signal');
is($dt->worst('batch')->{pressure}, 3, 'and its pressure');
is($dt->signal('elsewhere')->{state}, 'fresh', 'which is fresh');
my $mark = $dt->log_mark;
$dt->sql(q{SELECT report_pressure('another', 0.1, '10 min')});
$dt->sql('SELECT pg_terminate_backend(' . $reporter->pid . ')');
my $then = time;
ok(poll_until(sub { $dt->signal('elsewhere')->{state} eq 'stale' }, 180), 'nobody reports any more: stale');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 10000 }, 180), 'in the end the group is free');
cmp_ok(time - $then, '>', 29, 'not before it has been stale for 30 s');
is($dt->signal('elsewhere')->{state}, 'absent', 'and the signal is absent');
like($dt->session->run(q{SELECT set_group_pressure('batch', 'elsewhere')})->{err},
	qr/NOTICE: .*signal "elsewhere" slows nobody down at present\nDETAIL:  Its last report is too old to count/,
	'a notice tells who follows it now, though another one is reported');
ok(poll_until(sub { $dt->log_lines($mark, 'LOG:  signal "elsewhere" is not reported') == 1 }, 180),
	'which the log says, though another one is reported');
$dt->sql(q{SELECT report_pressure('elsewhere', 0.1, '10 min')});
ok(poll_until(sub { $dt->log_lines($mark, 'LOG:  signal "elsewhere" is reported again') == 1 }, 180),
	'and when it is reported again');
$dt->sql(q{SELECT reset_group_pressure('batch', 'elsewhere')});

# ----------------------------------------------------------------- flush_lag, names

$dt->node->backup('standby');
my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($dt->node, 'standby', has_streaming => 1);
$node->start;
my $standby = DirtyThrottle::Pressure->over($node);
$dt->sql(q{SELECT set_group_pressure('batch', 'flush_lag', '1s', standbys => 'other, Standby');
	SELECT set_group_pressure('alone', 'flush_lag', '1s', standbys => 'other')});
ok(poll_until(sub { ($dt->signal('flush_lag')->{state} // '') eq 'fresh' }, 180), 'flush_lag has a value');
ok($dt->wait_group('batch', sub { defined $dt->worst('batch')->{pressure} }, 180), 'a standby that is named counts');
is($dt->group_row('alone')->{effective_wal_limit}, 0, 'others do not');
ok(poll_until(sub { $dt->log_lines($mark, 'LOG:  signal "flush_lag" has no value for "other"') == 1 }, 180),
	'one that has not come for 30 s is in the log');
is($dt->log_lines($mark, 'LOG:  signal "flush_lag" has no value for "other, Standby"'), 0, 'the others are not');
$dt->sql(q{SELECT reset_group_pressure(group_name, signal) FROM dirty_throttle_pressure WHERE group_name IS NOT NULL});
$dt->stop_jobs;
$standby->stop('fast');

# ----------------------------------------------------------------------- wal_rate

# Two groups, three to one; nobody else writes.
$dt->sql(q{SELECT set_group_pressure('a', 'wal_rate', '2MB'), set_group_pressure('b', 'wal_rate', '2MB'),
	set_group_weight('a', 3)});
$dt->sql(q{SELECT set_group_wal_limit('batch', 0)});
$dt->start_job($_) foreach qw(a b);
ok($dt->wait_group('a', sub { abs($_[0]->{effective_wal_limit} / ($dt->group_row('b')->{effective_wal_limit} || 1) - 3) < 0.3 }, 180),
	'their limits are three to one');
$dt->stop_jobs;

# ------------------------------------------------------- archive_lag after a crash

# which leaves no statistics of what was archived
unlink "$tmp/works";
write_wal(12);
$dt->stop('immediate');
$dt->node->start;
$dt->follow('batch', 'archive_lag', '100MB');
ok(poll_until(sub { $dt->signal('archive_lag')->{state} eq 'fresh' }, 180), 'after a crash: a value');
cmp_ok(value('archive_lag'), '>=', 10 * $MB, 'what waits is not forgotten');

# --------------------------------------------------- and on another timeline

write_file("$tmp/works", '');
$dt->sql('SELECT pg_switch_wal()');
ok(poll_until(sub { value('archive_lag') <= $segment }, 180), 'archived again');
unlink "$tmp/works";
$dt->node->append_conf('postgresql.conf', "restore_command = 'false'");
$dt->stop('fast');
write_file($dt->node->data_dir . '/recovery.signal', '');
$dt->node->start;
ok(poll_until(sub { $dt->sql('SELECT pg_is_in_recovery()') eq 'f' }, 180), 'promoted');
write_wal(12);
$dt->follow('batch', 'archive_lag', '100MB');
ok(poll_until(sub { value('archive_lag') >= 10 * $MB }, 180), 'nothing of it has been archived');

is($dt->crashes, '', 'no crash');
$dt->finish;
