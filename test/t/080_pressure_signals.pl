# The values of signals against the real thing: slot_lag and real slots,
# checkpoint and the WAL after which one is really forced, kernel_dirty and io_pressure
# and files with what the kernel tells.  And where a signal is not to be had: the reason.
#
# takes-about: 18 s

use strict;
use warnings FATAL => 'all';

use Errno qw(EACCES EOPNOTSUPP);
use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use PostgreSQL::Test::Utils;
use Test::More;

my $MB = 1024 * 1024;
my $dt = DirtyThrottle::Pressure->new('signals',
	init => [ allows_streaming => 'logical' ],
	conf => q{
max_wal_size = 96MB
min_wal_size = 64MB
full_page_writes = off
wal_level = logical
});
$dt->sql(q{SELECT alter_resource_group('batch'); CREATE TABLE t (id int, pad text)});

# A signal's value is the same whether a group follows it or not.
sub followed_and_not
{
	my ($signal, $threshold, $code) = @_;

	$code->("$signal, nobody follows it");
	$dt->follow('batch', $signal, defined $threshold ? $threshold : ());
	poll_until(sub { ($dt->signal_now($signal)->{state} // '') eq 'fresh' });
	$code->("$signal, followed");
	$dt->sql("SELECT set_group_pressure('batch', '$signal', NULL)");
}

# ------------------------------------------------------------------------ slot_lag

sub check_slot_lag
{
	my ($what, $slot) = @_;
	my ($value, $real);

	# both grow; asked at nearly the same time
	poll_until(
		sub {
			$value = $dt->signal_now('slot_lag')->{value} // 'NULL';
			$real = $dt->sql("SELECT pg_current_wal_insert_lsn() - coalesce(confirmed_flush_lsn, restart_lsn)
				FROM pg_replication_slots WHERE slot_name = '$slot'");
			return $value ne 'NULL' && abs($value - $real) < 100000;
		});
	between($value, $real - 100000, $real + 100000, "$what: bytes");
}

my $row = $dt->signal_now('slot_lag');
is(($row->{value} // 'NULL') . ': ' . $row->{reason},
	'NULL: There is no replication slot that has been used and is valid.', 'no slot');
$dt->sql("SELECT pg_create_physical_replication_slot('not_yet')");
is($dt->signal_now('slot_lag')->{value},
	undef, 'a slot that was never used does not count');
$dt->sql(q{SELECT pg_create_physical_replication_slot('physical', true)});
$dt->write_wal(5);
followed_and_not('slot_lag', '1GB', sub { check_slot_lag($_[0], 'physical') });

# a logical slot, older than the other one
$dt->sql(q{SELECT pg_create_logical_replication_slot('logical', 'pgoutput');});
$dt->write_wal(5);
$dt->sql(q{SELECT pg_replication_slot_advance('physical', pg_current_wal_flush_lsn())});
$dt->write_wal(1);
followed_and_not('slot_lag', '1GB',
	sub { check_slot_lag("$_[0], logical", 'logical') });

# its consumer has all there is, while a transaction that goes on for long, as of a
# job, has it retain WAL
$dt->sql('CREATE PUBLICATION none');
my $long = $dt->session;
$long->query($_) foreach 'BEGIN', 'SELECT pg_current_xact_id()';
$dt->write_wal(20);
$dt->sql(q{SELECT pg_logical_emit_message(true, 'x', 'flushes what is before')});
$dt->sql(q{SELECT count(*) FROM pg_logical_slot_get_binary_changes('logical', NULL, NULL,
	'proto_version', '1', 'publication_names', 'none')});
my ($retained, $behind) = split /\|/, $dt->sql(
	q{SELECT pg_current_wal_insert_lsn() - restart_lsn, pg_current_wal_insert_lsn() - confirmed_flush_lsn
		FROM pg_replication_slots WHERE slot_name = 'logical'});
cmp_ok($retained, '>', 20e6, 'a transaction goes on: the slot retains WAL');
cmp_ok($behind, '<', 1e6, 'of which its consumer has all');
$dt->sql(q{SELECT pg_replication_slot_advance('physical', pg_current_wal_flush_lsn())});
followed_and_not('slot_lag', '1GB', sub {
	my ($what) = @_;
	my $value;

	ok(poll_until(sub { $value = $dt->signal_now('slot_lag')->{value}; defined $value && $value < 1e6 }),
		"$what: which is what counts") or diag $value;
});
$long->query('ROLLBACK');
$long->quit;

# a consumer that has received it all, but confirms it as flushed once in an hour
my $receiver = IPC::Run::start(
	[
		'pg_recvlogical', '-d', $dt->node->connstr('postgres'), '-S', 'logical', '--start',
		'-f', '/dev/null', '-s', 1, '-F', 3600, '-o', 'proto_version=1', '-o', 'publication_names=none'
	],
	'>', '/dev/null', '2>', '/dev/null');
$dt->write_wal(20);
$dt->sql(q{SELECT pg_logical_emit_message(true, 'x', 'flushes what is before')});
$dt->sql(q{SELECT pg_replication_slot_advance('physical', pg_current_wal_flush_lsn())});
followed_and_not('slot_lag', '1GB', sub {
	my ($what) = @_;
	my $value;

	ok(poll_until(sub { $value = $dt->signal_now('slot_lag')->{value}; defined $value && $value < 1e6 }),
		"$what: what the consumer has received counts") or diag $value;
});
cmp_ok($dt->sql(q{SELECT pg_current_wal_insert_lsn() - confirmed_flush_lsn
	FROM pg_replication_slots WHERE slot_name = 'logical'}), '>', 15e6, 'though it has not confirmed that');
$receiver->signal('TERM');
$receiver->finish;
ok(poll_until(sub { $dt->sql(
	q{SELECT active FROM pg_replication_slots WHERE slot_name = 'logical'}) eq 'f' }), 'it is gone');
check_slot_lag('the consumer is gone', 'logical');
$dt->sql("SELECT pg_drop_replication_slot('logical')");
followed_and_not('slot_lag', '1GB',
	sub { check_slot_lag("$_[0], the logical one is dropped", 'physical') });

# One was far behind, and is dropped: that does not tell how fast the consumer of
# another one is, which has taken nothing so far.
$dt->sql(q{SELECT pg_create_physical_replication_slot('far', true), set_group_wal_limit('batch', 1000)});
$dt->follow('batch', 'slot_lag', '8MB');
$dt->write_wal(40);
ok(poll_until(sub { ($dt->signal_now('slot_lag')->{value} // 0) > 40e6 }), 'a slot is far behind');
like($dt->session->run(q{SELECT set_group_pressure('batch', 'slot_lag', '8MB')})->{err},
	qr/NOTICE: .*signal "slot_lag" is above the threshold of resource group "batch" at present\nDETAIL:  Its value is .*, and its threshold 8\.00 MB\./,
	'a notice tells so, and does not promise the floor');
my $writer = $dt->session(group => 'batch');
$writer->send(q{DO $$ BEGIN LOOP
	INSERT INTO t SELECT 1, repeat('x', 1000) FROM generate_series(1, 100); COMMIT; END LOOP; END $$});
$dt->sql('CHECKPOINT');
$dt->sql(q{SELECT pg_create_physical_replication_slot('near', true)});
$dt->write_wal(7);
$dt->sql(q{SELECT pg_replication_slot_advance('physical', pg_current_wal_flush_lsn())});
ok(poll_until(sub { $dt->group_row('batch')->{effective_wal_limit} == 64 }), 'which leaves the floor');
sleep 3;    # what others have written counts in a mean
$dt->sql(q{SELECT pg_drop_replication_slot('far')});
ok(poll_until(sub { $dt->signal_now('slot_lag')->{value} < 8e6 }), 'it is dropped');
for my $i (1 .. 8)
{
	my $group = $dt->group_row('batch');
	is($group->{effective_wal_limit}, $group->{floor},
		"the limit while nothing is known of the other one, which has room for 1 MB ($i)");
	select undef, undef, undef, 0.1;
}
$dt->sql('SELECT pg_cancel_backend(' . $writer->pid . ')');
$writer->wait;
$writer->quit;
$dt->sql(q{SELECT set_group_pressure('batch', 'slot_lag', NULL), pg_drop_replication_slot('near'),
	set_group_wal_limit('batch', 0)});

# a slot that has lost its WAL does not count, of whatever kind it is
$dt->sql(q{SELECT pg_create_logical_replication_slot('logical', 'pgoutput')});
$dt->set_conf('max_slot_wal_keep_size', '1MB');
$dt->write_wal(40);
$dt->sql('SELECT pg_switch_wal(); CHECKPOINT');
is( $dt->sql(
		"SELECT string_agg(wal_status, ' ') FROM pg_replication_slots WHERE slot_name IN ('physical', 'logical')"),
	'lost lost', 'slots are invalidated');
is($dt->signal_now('slot_lag')->{value}, undef, 'and does not count');
$dt->follow('batch', 'slot_lag', '1GB');
ok(poll_until(sub { ($dt->signal_now('slot_lag')->{state} // '') eq 'absent' }),
	'nor when it is followed');
$dt->sql(q{SELECT set_group_pressure('batch', 'slot_lag', NULL);
	SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots});

# ---------------------------------------------------------------------- checkpoint

# How many checkpoints were forced.
sub forced
{
	return $dt->sql(
		$dt->sql('SHOW server_version_num') < 170000
		? 'SELECT checkpoints_req FROM pg_stat_bgwriter'
		: 'SELECT num_requested FROM pg_stat_checkpointer');
}

$dt->sql('CHECKPOINT');
followed_and_not('checkpoint', undef, sub {
	my ($what) = @_;
	my $before = $dt->signal_now('checkpoint')->{value};

	$dt->write_wal(3);
	my $less;
	poll_until(sub { ($less = $before - $dt->signal_now('checkpoint')->{value}) >= 3e6 });
	between($less, 3e6, 3.4e6, "$what: 3 MB less");
});

# that much WAL it takes
my $left = $dt->signal_now('checkpoint')->{value};
my $forced = forced();
between($left / $MB, 16, 64, 'MB until a checkpoint is forced');
$dt->write_wal(1) while $dt->signal_now('checkpoint')->{value} > 3e6;
is(forced() - $forced, 0, '3 MB are left: none was forced');
$dt->write_wal(1) foreach 1 .. 4;
ok(poll_until(sub { forced() > $forced }), '4 MB more: one is forced');
ok(poll_until(sub { $dt->signal_now('checkpoint')->{value} > 16 * $MB }),
	'then there is room again');

# -------------------------------------------------------------------------- reports

# a group follows one of them
$dt->sql(q{SELECT report_pressure('queue', 0.5), report_pressure('lag', 0.5)});
$dt->sql(q{SELECT set_group_pressure('batch', 'queue', 'on'), set_group_pressure('batch', 'queue', 'on')});
my $err = $dt->session->run(q{SELECT set_group_pressure('batch', 'queue', 'on')})->{err};
unlike($err, qr/no longer/, 'the same report: no notice');
$err = $dt->session->run(q{SELECT set_group_pressure('batch', 'lag', 'on')})->{err};
like($err, qr/NOTICE: .*resource group "batch" no longer follows signal "queue"\nDETAIL:  It follows "lag" instead:/,
	'another one: which was replaced');
is($dt->sql(q{SELECT string_agg(signal, ',') FROM dirty_throttle_pressure WHERE group_name IS NOT NULL}), 'lag', 'the group follows the other one');

# When all names are taken, there is room for those that a group follows, at the
# expense of others.
$dt->sql(q{ALTER ROLE dirty_throttle SET dirty_throttle.groups = E'batch reported=lag\none reported=wanted1\ntwo reported=wanted2'});
is($dt->sql(q{SELECT count(report_pressure('name' || i, 0, '1 day')) FROM generate_series(1, 62) i}),
	62, 'there is room for 64 reports');
is($dt->session->run(q{SELECT report_pressure('name63', 0)})->{sqlstate}, '53400', 'and no more');
$dt->sql(q{SELECT report_pressure('wanted1', 0.25), report_pressure('wanted2', 0.5)});
$dt->sql(q{SELECT report_pressure('wanted1', 0.75)});
is( $dt->sql(q{SELECT string_agg(signal || ' ' || value, ', ' ORDER BY signal)
		FROM dirty_throttle_pressure WHERE group_name IS NOT NULL}),
	'lag 0.5, wanted1 0.75, wanted2 0.5', 'but for those that are followed');
is($dt->sql(q{SELECT count(*) FROM dirty_throttle_pressure WHERE unit = 'thresholds'}),
	64, 'instead of others');
$dt->sql(q{ALTER ROLE dirty_throttle SET dirty_throttle.groups = E'batch'});

# -------------------------------------------------------------- the kernel's files

SKIP:
{
	skip 'this is no Linux', 3
	  if $^O ne 'linux';
	is($dt->signal_now('kernel_dirty')->{state}, undef, 'kernel_dirty: available');
	ok(defined $dt->signal_now('kernel_dirty')->{value}, 'and it has a value');
	$dt->follow('batch', 'kernel_dirty', '1TB');
	like($dt->session->run(q{SELECT set_group_dirty_limit('batch', '64 kB')})->{err},
		qr/NOTICE: .*no signal slows resource group "batch" down below its dirty rate limit\nDETAIL:  Its floor is 64\.0 kB\/s, and the limit 64\.0 kB\/s\./,
		'a limit that is no more than the floor: a notice');
	$dt->sql(q{SELECT set_group_pressure('batch', 'kernel_dirty', NULL), set_group_dirty_limit('batch', 0)});
}

# Now with files that say what we want.
$dt->stop;
my $dir = PostgreSQL::Test::Utils::tempdir();
my $library = compile_library('proc');

SKIP:
{
	skip 'no library for LD_PRELOAD can be compiled here', 1 unless $library;
	local $ENV{LD_PRELOAD} = $library;
	local $ENV{DT_PROC} = $dir;

	write_file("$dir/meminfo",
		"MemTotal: 100 kB\nWritebackTmp: 5 kB\nDirty:   204800 kB\nWriteback: 1024 kB\n");
	write_file("$dir/vmstat",
		"nr_dirty 7\nnr_dirty_background_threshold 25600\n");
	write_file("$dir/io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000000\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=77\n");
	$dt->node->start;
	is($dt->signal_now('kernel_dirty')->{value},
		201 * $MB, 'kernel_dirty: Dirty and Writeback');
	# the kernel begins to write at 25600 pages
	my $pages_mb = int(`getconf PAGESIZE` / 4096 * 100 * 1.048576);
	foreach my $case ([ '160MB', 0 ], [ '140MB', 1 ])
	{
		my ($threshold, $notice) = @$case;
		my $err = $dt->session->run(
			"SELECT set_group_pressure('batch', 'kernel_dirty', '$threshold')")->{err};

		is($err =~ /NOTICE: .*two thirds of the threshold are less than .*\nDETAIL:  The kernel begins at $pages_mb MB,/ ? 1 : 0,
			$notice, "$threshold: a notice: $notice");
	}
	$dt->sql(q{SELECT set_group_pressure('batch', 'kernel_dirty', NULL)});

	# a share that may be meant as one of 1
	foreach my $case ([ '0.3', 1 ], [ '0.3%', 0 ], [ '1', 0 ])
	{
		my ($threshold, $notice) = @$case;
		my $err = $dt->session->run(
			"SELECT set_group_pressure('batch', 'io_pressure', '$threshold')")->{err};

		is($err =~ /NOTICE: .*threshold "0\.3" means 0\.3 percent\nHINT:  Write '30%' if that is what you meant\./ ? 1 : 0,
			$notice, "io_pressure, $threshold: a notice: $notice");
	}

	# they wait all the time, but did not before, which is part of the mean; 105 tests
	# what comes of how much they do
	$dt->follow('batch', 'io_pressure', '90%');
	my $total = 1e6;
	ok( poll_until(
			sub {
				$total += 1e9;
				write_file("$dir/io", "some avg10=0 avg60=0 avg300=0 total=$total\n");
				return ($dt->signal('io_pressure')->{value} // 0) > 99;
			}),
		'io_pressure: nearly 100 percent');
	$dt->sql(q{SELECT set_group_pressure('batch', 'io_pressure', NULL)});

	# what is not there, or not allowed
	foreach my $case (
		[ 'kernel_dirty', '500MB', 'meminfo', EACCES, '/proc/meminfo', 'Permission denied' ],
		[ 'io_pressure', '20%', 'io', EOPNOTSUPP, '/proc/pressure/io', 'Operation not supported' ])
	{
		my ($signal, $threshold, $name, $errno, $path, $message) = @$case;
		my $reason = qq{File "$path" cannot be read: $message.};

		write_file("$dir/$name.errno", $errno);
		my $session = $dt->session;
		my $result = $session->run("SELECT set_group_pressure('batch', '$signal', '$threshold')");

		SKIP:
		{
			skip 'this machine has the file in the cgroup', 2
			  if $name eq 'io' && !defined $result->{sqlstate};
			is($result->{sqlstate}, '0A000', "$name cannot be read: $signal, $threshold");
			like($result->{err}, qr/DETAIL:  \Q$reason\E/, 'with the reason');
		}
		$row = $dt->signal_now($signal);
		is($row->{reason}, $reason, 'which the view has, too')
		  if $name eq 'meminfo';
		is($row->{state}, 'unavailable', 'it is not available') if $name eq 'meminfo';
		unlink "$dir/$name.errno";
		$session->quit;
	}
	write_file("$dir/meminfo", "Dirty: 5 kB\n");
	like($dt->session->run(q{SELECT set_group_pressure('batch', 'kernel_dirty', '500MB')})->{err},
		qr/DETAIL:  File "\/proc\/meminfo" has no number "Writeback"\./,
		'a file of another kind');
	$dt->stop;
}

# ------------------------------------------------------ where nothing can replicate

$dt->node->append_conf('postgresql.conf',
	"wal_level = minimal\nmax_wal_senders = 0\nmax_replication_slots = 0\n"
	  . ($dt->node->pg_version->major < 19 ? '' : "max_repack_replication_slots = 0\n"));
$dt->node->start;
my $session = $dt->session;
foreach my $case (
	[ "'replica_lag', '2s'", 'No standby can connect, since max_wal_senders is 0.' ],
	[
		"'slot_lag', '2GB'",
		'There cannot be a replication slot, since max_replication_slots is 0.'
	])
{
	my ($arguments, $reason) = @$case;
	my $result = $session->run("SELECT set_group_pressure('batch', $arguments)");

	is($result->{sqlstate}, '0A000', "not to be had: $arguments");
	like($result->{err}, qr/DETAIL:  \Q$reason\E/, 'with the reason');
}
is( $dt->sql(q{SELECT string_agg(signal || ' ' || coalesce(state, 'can be followed'), ', ') FROM dirty_throttle_pressure
		WHERE signal ~ '_lag|check'}),
	'replica_lag unavailable, slot_lag unavailable, archive_lag unavailable, checkpoint can be followed',
	'the view tells which signals there are');

is($dt->crashes, '', 'no crash');
$dt->finish;
