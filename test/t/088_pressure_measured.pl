# Signals with the real thing: archive_lag after a crash and on another timeline,
# disk_free and the file system there is.  117 has what follows from each signal.
#
# expect-in-log: archive command failed with exit code|archiving write-ahead log file .* failed too many times
# takes-about: 15 s

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

sub value
{
	my ($signal) = @_;
	return $dt->signal($signal)->{value} // -1;
}

# ---------------------------------------------------------------------- disk_free

# others use the disk, too
$dt->follow('batch', 'disk_free', '1MB');
ok(poll_until(sub { abs(value('disk_free') - `df --output=avail -B1 @{[ $dt->node->data_dir ]} | tail -1`) < 1e9 }),
	'disk_free: about what df says');
$dt->follow('batch', 'disk_free', '100%');
my $size = `df --output=size -B1 @{[ $dt->node->data_dir ]} | tail -1` + 0;
ok(poll_until(sub { ($dt->signal('disk_free')->{threshold_value} // 0) == $size }, 180), 'all of the file system, in bytes');
$dt->sql(q{SELECT set_group_pressure('batch', 'disk_free', NULL)});

# ------------------------------------------------------- archive_lag after a crash

# which leaves no statistics of what was archived
unlink "$tmp/works";
$dt->write_wal(12);
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
$dt->write_wal(12);
$dt->follow('batch', 'archive_lag', '100MB');
ok(poll_until(sub { value('archive_lag') >= 10 * $MB }, 180), 'nothing of it has been archived');

is($dt->crashes, '', 'no crash');
$dt->finish;
