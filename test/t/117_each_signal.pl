# Each signal that a server has by itself, on a real server with a real standby,
# slot, archive and disk, and with what the kernel really tells: the group that
# follows it is slowed down, its member pauses for it, the view tells why, and without
# the signal it is as fast as before.  Nothing of it is made up.
#
# expect-in-log: archive command failed with exit code|archiving write-ahead log file .* failed too many times
# takes-about: 30 s

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
my $dt = DirtyThrottle::Pressure->new('each',
	init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ],
	conf => qq{
fsync = on
shared_buffers = 64MB
archive_mode = on
archive_command = 'test -e $tmp/works'
wal_keep_size = 1GB
wal_sender_timeout = 10min
max_wal_size = 32MB
autovacuum = off
});
write_file("$tmp/works", '');
chmod 0755, $tmp;
$dt->sql(q{SELECT set_group_wal_limit('batch', 10000), set_group_dirty_limit('batch', 10000),
	alter_resource_group('batch', floor => 100)});
$dt->node->backup('standby');
my $node = PostgreSQL::Test::Cluster->new('standby');
$node->init_from_backup($dt->node, 'standby', has_streaming => 1);
$node->start;
my $standby = DirtyThrottle::Pressure->over($node);
$dt->start_job('batch');

# What a member of the group pauses for.
sub paused_by
{
	return $dt->sql(q{SELECT string_agg(DISTINCT paused_by, ',') FROM dirty_throttle_sessions
		WHERE group_name = 'batch' AND paused_by IS NOT NULL});
}

# The group follows the signal, and then, or when something is done or done again,
# is limited by it; until it is undone.
sub slows_down
{
	my ($signal, $threshold, $limit, $do, $undo) = @_;
	my $column = $signal =~ /^(kernel_dirty|io_pressure)$/ ? 'dirty' : 'wal';
	my $row;

	$dt->follow('batch', $signal, $threshold // ());
	# how fast a standby is must be known before it is too slow
	poll_until(sub { ($dt->signal($signal)->{state} // '') eq 'fresh' }, 180)
	  if $signal eq 'replica_lag';
	ok( poll_until(
			sub {
				$do->() if $do;
				$row = $dt->group_row('batch');
				return $row->{"effective_${column}_limit"} <= $limit
				  && ($row->{pressure_reason} // '') ne ''
				  && paused_by() eq $signal;
			},
			180),
		"$signal: the limit is at most $limit KB/s, and a member pauses for that")
	  or diag explain $row, paused_by();
	note $row->{pressure_reason};
	$undo->() if $undo;
	$dt->sql("SELECT set_group_pressure('batch', '$signal', NULL)");
	ok( $dt->wait_group(
			'batch',
			sub {
				$_[0]->{effective_wal_limit} == 10000
				  && $_[0]->{effective_dirty_limit} == 10000;
			},
			180),
		'without it the limits are the fixed ones');
	return;
}

slows_down('replica_lag', '1s', 100,
	sub { $standby->sql('SELECT pg_wal_replay_pause()') },
	sub { $standby->sql('SELECT pg_wal_replay_resume()') });
$dt->sql(q{SELECT pg_create_physical_replication_slot('unused', true)});
slows_down('slot_lag', '1MB', 100, undef, sub { $dt->sql(q{SELECT pg_drop_replication_slot('unused')}) });
unlink "$tmp/works";
slows_down('archive_lag', '2MB', 100, undef, sub { write_file("$tmp/works", '') });
slows_down('disk_free', '100%', 100);

# Who may see the values is as in the server's own views; also where the group is
# slowed down by another signal than the one with the highest pressure.
$dt->sql(q{CREATE ROLE nobody LOGIN; CREATE ROLE stats LOGIN IN ROLE pg_read_all_stats;
	SELECT report_pressure('much', 10, '1 h')});
$dt->follow('batch', 'disk_free', '100%');
$dt->follow('batch', 'much');
ok( $dt->wait_group(
		'batch',
		sub { ($dt->worst('batch')->{signal} // '') eq 'much' && ($_[0]->{pressure_reason} // '') =~ /pg_wal/ },
		180),
	'two signals: the reason is the one that decides');
my %hidden = map { $_ => 1 } qw(replica_lag disk_free kernel_dirty io_pressure);
foreach my $role (qw(nobody stats))
{
	my $s = $dt->session(user => $role);
	my %seen = map { split / / } split /\n/, $s->query(
		q{SELECT signal || ' ' || (value IS NOT NULL) FROM dirty_throttle_pressure WHERE measured_at IS NOT NULL});

	ok($seen{disk_free} && $seen{archive_lag}, "$role: sees that signals are measured") or diag explain \%seen;
	is($seen{$_}, $role eq 'stats' || !$hidden{$_} ? 'true' : 'false', "$role: the value of $_")
	  foreach grep { $_ ne 'commit_latency' } sort keys %seen;
	is($s->query(q{SELECT concat_ws(' ', signal, pressure > 1, threshold, threshold_value > 0)
			FROM dirty_throttle_pressure WHERE group_name = 'batch' ORDER BY signal}),
		$role eq 'stats' ? "disk_free t 100% t\nmuch t on t" : "disk_free 100%\nmuch t on t",
		"$role: the pressure, and the threshold");
	is($s->query(q{SELECT pressure_reason IS NOT NULL FROM dirty_throttle_groups WHERE group_name = 'batch'}),
		$role eq 'stats' ? 't' : 'f', "$role: the reason");
	$s->quit;
}
$dt->sql(q{SELECT set_group_pressure('batch', 'disk_free', NULL), set_group_pressure('batch', 'much', NULL)});

# 32 MB by 1.9, in five minutes
slows_down('checkpoint', undef, 1000);
slows_down('wal_rate', '1MB', 1000);

# Somebody else makes the kernel write.
sub write_much
{
	open my $file, '>', "$tmp/much" or die $!;
	print $file 'x' x 1_000_000 foreach 1 .. 20;
	close $file or die $!;
}

SKIP:
{
	skip 'the kernel does not tell how much it has to write', 3
	  if ($dt->signal_now('kernel_dirty')->{state} // '') eq 'unavailable';
	slows_down('kernel_dirty', '1MB', 5000, \&write_much);
}
SKIP:
{
	skip 'the kernel does not tell for how long processes wait for I/O', 3
	  if ($dt->signal_now('io_pressure')->{state} // '') eq 'unavailable';
	slows_down('io_pressure', '0.001%', 5000, \&write_much);
}
$dt->stop_jobs;

# The last file that was archived may be that of a backup, which comes after its segments.
unlink "$tmp/works";
my $backup = $dt->session;
$backup->query(q{SELECT set_group_pressure('batch', 'archive_lag', '100MB'); SELECT pg_backup_start('b', true)});
$backup->query('SELECT pg_backup_stop(false)');
$backup->quit;
ok(poll_until(sub { ($dt->signal('archive_lag')->{value} // 0) > 0 }), 'a backup: its segments wait to be archived');
write_file("$tmp/works", '');
$dt->node->reload;    # wakes the archiver
ok(poll_until(sub { $dt->sql('SELECT last_archived_wal FROM pg_stat_archiver') =~ /backup$/ }), 'its own file is the last one');
ok(poll_until(sub { $dt->signal('archive_lag')->{value} == 0 }, 30), 'then nothing waits');
$dt->sql(q{SELECT set_group_pressure('batch', 'archive_lag', NULL)});

# A commit of somebody else takes as long as from the writing of its record on: not
# what it does before, as the emptying of many temporary tables, or commits on other
# servers, in whichever order libraries were loaded.
$dt->sql('CREATE TABLE written (id int)');
$dt->set_conf(fsync => 'off');

sub check_commits
{
	my ($what, $outsider, @statements) = @_;
	my ($value, @took);
	my $enough = time + 3;    # for several samples of this

	$dt->follow('batch', 'commit_latency', '10s');
	poll_until(
		sub {
			foreach (1 .. 20)
			{
				$outsider->query($_) foreach 'BEGIN', @statements;
				my $begin = time;
				$outsider->query('COMMIT');
				push @took, 1000 * (time - $begin);
			}
			$value = $dt->signal('commit_latency')->{value};
			return defined $value && time > $enough;
		},
		180);
	# both of nine in ten, as a busy machine makes some of any kind late
	my $nine_tenths = (sort { $a <=> $b } @took)[ 0.9 * @took ];
	cmp_ok($value // 'inf', '<', $nine_tenths / 2,
		sprintf "commit_latency, $what: nine of ten COMMITs take at most %.3g ms, most of it before their record",
		$nine_tenths);
	note "the signal's value is $value ms";
	$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
	$outsider->quit;
}

my $outsider = $dt->session;
$outsider->query("CREATE TEMP TABLE temp$_ (id int) ON COMMIT DELETE ROWS") foreach 1 .. 500;
check_commits('temporary tables', $outsider,
	'INSERT INTO written VALUES (1)', 'INSERT INTO temp1 VALUES (1)');
SKIP:
{
	skip 'no postgres_fdw', 2
	  unless $dt->sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw'});
	my ($host, $port) = ($dt->node->host, $dt->node->port);
	$dt->sql(qq{CREATE EXTENSION postgres_fdw;
		CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (host '$host', port '$port', dbname 'postgres');
		CREATE USER MAPPING FOR CURRENT_USER SERVER itself;
		CREATE FOREIGN TABLE there (id int) SERVER itself OPTIONS (table_name 'remote');
		CREATE TABLE remote (id int);
		CREATE FUNCTION wait_a_little() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON remote
			DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait_a_little()});
	my @statements = ('INSERT INTO written VALUES (1)', 'INSERT INTO there VALUES (1)');

	$outsider = $dt->session;
	$outsider->query('INSERT INTO there VALUES (1)');
	check_commits('a commit elsewhere, its library first', $outsider, @statements);
	$dt->follow('batch', 'commit_latency', '10s');
	$outsider = $dt->session;
	$outsider->query('INSERT INTO written VALUES (1)');
	check_commits('a commit elsewhere, its library last', $outsider, @statements);
}
$standby->stop('fast');
is($dt->crashes, '', 'no crash');
$dt->finish;
