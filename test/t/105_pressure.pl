# Limits that follow signals, with readings that the test makes up: each signal
# and each law, floors, sharing between groups, staleness, and debts that are
# forgiven.  On a clock that stands still while statements run, so minutes pass
# in no time.  The laws by themselves are tested in test/unit.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use List::Util qw(max);
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: LOG:  could not measure signal

my $second = 1_000_000;
my $cycle = 200_000;
my $MB = 1_000_000;
my $dt = DirtyThrottle::Clock->new('pressure', conf => 'dirty_throttle.transaction_grace = 0');

$dt->sql(
	q{SELECT alter_resource_group('b', floor => 100), alter_resource_group('c', floor => 100);
	CREATE TABLE t (id int, pad text) WITH (fillfactor = 10);
	CREATE TABLE compact (id int, pad text);
	CREATE PROCEDURE job(what text) LANGUAGE plpgsql AS $$
		BEGIN LOOP
			IF what = 'wal' THEN
				INSERT INTO compact SELECT k, repeat('x', 900) FROM generate_series(1, 200) k;
			ELSE
				INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, 20) k;
			END IF;
			COMMIT;
		END LOOP; END $$});

sub follow
{
	my ($group, @arguments) = @_;
	$dt->sql('SELECT set_group_pressure(' . join(', ', map { "'$_'" } $group, @arguments) . ')');
}

sub unfollow
{
	$dt->sql(q{SELECT set_group_pressure(group_name, signal, NULL) FROM dirty_throttle_pressure WHERE group_name IS NOT NULL});
	$dt->advance($cycle);
}

# The row of a signal: of that of several groups the one with the highest pressure.
sub signal
{
	my ($signal) = @_;
	return $dt->_row("SELECT * FROM dirty_throttle_pressure WHERE signal = '$signal'
		ORDER BY pressure DESC NULLS LAST");
}

# What is in force, bytes/s; 0: no limit.
sub in_force
{
	my ($group, $what) = @_;
	return sprintf '%.0f', 1000 * $dt->group_row($group)->{"effective_${what}_limit"};
}

# Why the group is as slow as it is.
sub reason
{
	my ($group) = @_;
	return $dt->group_row($group)->{pressure_reason};
}

# Nothing is used, so that what others write is forgotten.
sub rest
{
	$dt->advance(30 * $second);
}

my %thresholds = (
	replica_lag => '2s', slot_lag => '30MB', archive_lag => '30MB', checkpoint => 'on',
	kernel_dirty => '30MB', io_pressure => '20%');

# So much WAL may be written in so many s, in force.  A change by less than a 64th
# is not made, so there is a large one before it.
sub budget
{
	my ($mb, $seconds) = @_;

	foreach my $reading ([ 0, 0 ], [ $mb, $seconds ])
	{
		$dt->reading(checkpoint => 'measured', map { $_ * 1_000_000 } @$reading);
		$dt->advance($cycle);
	}
}

# ------------------------------------------------------------------------- budget

subtest 'checkpoint: what is left is spread over the time that is left' => sub {
	$dt->reading(checkpoint => 'measured', 98 * $MB, 96 * $second);
	follow('b', 'checkpoint', 'on');
	rest();
	is(in_force('b', 'wal'), $MB, 'the limit of a group alone');
	is(in_force('b', 'dirty'), 0, 'for WAL only');
	is(in_force('c', 'wal'), 0, 'and for nobody else');
	is(signal('checkpoint')->{value}, 98 * $MB, 'the value in the view');
	is(signal('checkpoint')->{threshold_value}, undef, 'which has no threshold');
	is(signal('checkpoint')->{threshold}, 'on', 'but is followed');
	is(reason('b'),
		'A checkpoint is forced after another 98.0 MB of WAL, which has to last until the next timed checkpoint.',
		'the reason');
	is(reason('c'), undef, 'and none for somebody else');
	foreach my $case ([ 10, 8, 1 ], [ 49, 96, 0.5 ], [ 0, 5, 0.1 ], [ 33, 31, 1 ])
	{
		my ($mb, $left, $rate) = @$case;

		$dt->reading(checkpoint => 'measured', $mb * $MB, $left * $second);
		$dt->advance($cycle);
		is(in_force('b', 'wal'), $rate * $MB, "$mb MB in $left s: $rate MB/s");
	}
	$dt->sql(q{SELECT set_group_wal_limit('b', 700)});
	$dt->advance($cycle);
	is(in_force('b', 'wal'), 700_000, 'a fixed limit that is lower counts');
	is(reason('b'), undef, 'and there is nothing to say of pressure');
	$dt->sql(q{SELECT set_group_wal_limit('b', 0)});

	# c shares it, and uses nothing
	follow('c', 'checkpoint', 'on');
	$dt->reading(checkpoint => 'measured', 98 * $MB, 96 * $second);
	rest();
	is(in_force('b', 'wal') . ' ' . in_force('c', 'wal'), '1000000 1000000',
		'two groups that are idle: each may have all of it');
	$dt->sql(q{SELECT alter_resource_group('c', mode => 'observe')});
	rest();
	is(in_force('b', 'wal'), $MB, 'one in mode observe takes nothing');
	$dt->sql(q{SELECT alter_resource_group('c', mode => 'enforce'), set_group_pressure('c', 'checkpoint', NULL)});

	# others use some of it
	$dt->sql('SELECT dt_test_others(250000, 0)');
	rest();
	budget(98, 96);
	# what they write is a mean, whose last bytes never come
	cmp_ok(abs(in_force('b', 'wal') - 750_000), '<=', 5, 'what others write is theirs');
	$dt->sql('SELECT dt_test_others(0, 0)');
	rest();
	budget(98, 96);

	# what a member uses
	my $s = $dt->session(group => 'b');
	$s->send(q{CALL job('wal')});
	$dt->settle;
	my ($used, $owed) = $dt->used('b', 'wal');
	$dt->advance(2 * $second);
	my ($now, $owes) = $dt->used('b', 'wal');
	my $rate = in_force('b', 'wal');
	cmp_ok(abs($rate - $MB), '<=', 5, 'a member writes: the limit stays');
	is($now - $owes, $used - $owed + 2 * $rate, 'and is what it gets, to the byte');
	is($dt->session_row($s)->{paused_by}, 'checkpoint', 'the reason for its pauses');
	$dt->reading(checkpoint => 'measured', 490 * $MB, 96 * $second);
	$dt->advance($cycle);
	($used, $owed) = $dt->used('b', 'wal');
	$dt->advance($second / 5);
	($now, $owes) = $dt->used('b', 'wal');
	$rate = in_force('b', 'wal');
	cmp_ok(abs($rate - 5 * $MB), '<=', 5, 'five times as much is left');
	cmp_ok(abs($now - $owes - $used + $owed - $rate / 5), '<=', 1, 'it is woken, and gets that');
	$dt->cancel_ms($s);
	unfollow();
	is(in_force('b', 'wal'), 0, 'the signal is not followed any more: there is no limit');
	$s->quit;
};

# So much fits in a day that it is nothing.
subtest 'checkpoint: others alone force it, or the job' => sub {
	$dt->set_conf('checkpoint_timeout', '1d');
	$dt->sql(q{SELECT set_group_wal_limit('b', 1000)});
	$dt->reading(checkpoint => 'measured', 98 * $MB, 96 * $second);
	follow('b', 'checkpoint', 'on');
	my $s = $dt->session(group => 'b');
	my $state = sub {
		my ($others, $seconds) = @_;

		$dt->sql("SELECT dt_test_others($others, 0)") if $others;
		$dt->advance($seconds * $second);
		return signal('checkpoint')->{state} eq 'out of reach' ? 'true' : 'false';
	};

	$s->send(q{CALL job('wal')});
	$dt->settle;
	is($state->(200_000, 9), 'false', 'others write more than fits: not at once');
	my $log = -s $dt->node->logfile;
	is($state->(0, 4), 'true', 'after 10 s');
	# of what the group writes, a sixteenth may seem to be that of others
	my $others = 200 - 1000 / 16;
	my ($told) = signal('checkpoint')->{reason} =~ qr{^Others write (\d+) KB/s};
	cmp_ok(abs($told - $others), '<=', 3, "others write at least $others KB/s, says the view: $told");
	my ($hint) = slurp_file($dt->node->logfile, $log) =~ /HINT:  Increase max_wal_size to more than (\d+) MB/;
	# with the floor of the group, in a day; the next checkpoint begins before that is full
	my $size = ($others + 100) * 1000 * 86400 * (1 + $dt->sql('SHOW checkpoint_completion_target')) / 1024 / 1024;
	cmp_ok(abs($hint / $size - 1), '<', 0.1, "and the log, of a moment before: $hint MB");
	is(in_force('b', 'wal'), $MB, 'the group is as fast as its own limit');
	is($state->(40_000, 50), 'true', 'what may be the group: it stays so');
	is($state->(0, 15), 'false', 'for a minute');
	is($state->(200_000, 13), 'true', 'others again');
	is($state->(1, 110), 'true', 'nobody else, as a minute ago: not for another one');
	is($state->(1, 13), 'false', 'but for two');
	$dt->sql('SELECT dt_test_others(0, 0), pg_cancel_backend(' . $s->pid . ')');
	$s->wait;
	$s->quit;
	$dt->set_conf('checkpoint_timeout', '5min');
	$dt->sql(q{SELECT set_group_wal_limit('b', 0)});
	unfollow();
	rest();
};

subtest 'a checkpoint that comes nearer is not forced, and what is left is used' => sub {
	my $s = $dt->session(group => 'b');
	my $log = -s $dt->node->logfile;

	$dt->sql('SELECT dt_test_others(50000, 0)');
	$dt->reading(checkpoint => 'nearer', 98 * $MB, 96 * $second);
	follow('b', 'checkpoint', 'on');
	$dt->fresh(b => wal => 10_000);
	$s->query(q{SET dirty_throttle.log_min_pause = '1ms'});
	$s->send(q{CALL job('wal')});
	foreach my $i (1 .. 12)
	{
		$dt->advance(8 * $second);
		my $left = signal('checkpoint')->{value} / $MB;
		cmp_ok($left, '>', 0, sprintf '%d s: %.1f MB are left', 8 * $i, $left);
	}
	cmp_ok(signal('checkpoint')->{value}, '<', 5 * $MB, 'hardly anything is left over');
	$dt->cancel_ms($s);
	unfollow();
	like(slurp_file($dt->node->logfile, $log), qr/Causes: .*checkpoint [\d.]+ ms/,
		'the reason for its pauses in the log');
	$dt->sql('SELECT dt_test_others(0, 0)');
	$s->quit;
	$dt->fresh('b');
};

subtest 'when a checkpoint began is not forgotten while nobody follows' => sub {
	$dt->reading(checkpoint => 'real');
	$dt->sql('CHECKPOINT');
	$dt->advance(200 * $second);
	follow('b', 'checkpoint', 'on');
	$dt->advance($cycle);
	my $left = signal('checkpoint')->{value};
	cmp_ok(in_force('b', 'wal'), '>', 2 * $left / 300, 'a third of the time is left');
	cmp_ok(in_force('b', 'wal'), '<', 6 * $left / 300, 'and no less');
	unfollow();
};

# ------------------------------------------------------------ a budget of each second

subtest 'wal_rate: others first, the rest by weight' => sub {
	my $free = int(1000000 / 60);
	my $all = 1000000 - $free;

	$dt->reading(wal_rate => 'measured');
	follow($_, 'wal_rate', '1MB') foreach qw(b c);
	$dt->sql(q{SELECT alter_resource_group('c', weight => 3)});
	rest();
	# a change by less than a 64th is not made
	cmp_ok(abs(in_force($_, 'wal') - $all), '<=', $all / 64, "both are idle: $_ may have it all, less a sixtieth")
	  foreach qw(b c);
	$dt->sql('SELECT dt_test_others(250000, 0)');
	rest();
	cmp_ok(abs(in_force('b', 'wal') - $all + 250_000), '<=', $all / 64, 'others come first');
	$dt->sql('SELECT dt_test_others(2000000, 0)');
	$dt->advance(2 * $cycle);
	is(in_force('b', 'wal'), 100_000, 'others exceed it: the floor, at once');
	like(reason('b'),
		qr{^The server writes [\d.]+ [kM]B/s of WAL, and 1\.00 MB/s are allowed\. The group is at its floor\.$},
		'the reason');
	$dt->sql('SELECT dt_test_others(0, 0)');
	rest();

	my @s = map { $dt->session(group => $_) } qw(b c);
	$_->send(q{CALL job('wal')}) foreach @s;
	$dt->advance(10 * $second);
	my @before = map { [ $dt->used($_, 'wal') ] } qw(b c);
	$dt->advance(20 * $second);
	my @now = map { [ $dt->used($_, 'wal') ] } qw(b c);
	my ($b, $c) = map { ($now[$_][0] - $now[$_][1] - $before[$_][0] + $before[$_][1]) / 20 } 0, 1;
	cmp_ok(abs($c / $b / 3 - 1), '<', 0.05, sprintf 'three to one: %.0f and %.0f bytes/s', $b, $c);
	cmp_ok(abs(($b + $c) / $all - 1), '<', 0.05, 'all of it is used, and no more');
	is($dt->session_row($s[0])->{paused_by}, 'wal_rate', 'the reason for pauses');
	$dt->cancel_ms($_) foreach @s;
	$_->quit foreach @s;
	unfollow();
	$dt->sql(q{SELECT alter_resource_group('c', weight => 1)});
	$dt->reading(wal_rate => 'real');
	$dt->fresh($_) foreach qw(b c);
};

subtest 'disk_free: ever nearer to the threshold' => sub {
	$dt->reading(disk_free => 'measured', 2 * 60 * $MB, 1000 * $MB);
	follow('b', 'disk_free', '6%');
	my $s = $dt->session(group => 'b');
	$dt->fresh(b => wal => 10_000);
	$s->send(q{CALL job('wal')});
	$dt->advance(5 * $second);
	is(in_force('b', 'wal'), 10 * $MB, 'twice the threshold is free: no limit but the fixed one');
	foreach my $case ([ 90, 1 ], [ 75, 0.5 ], [ 60, 0.1 ], [ 10, 0.1 ])
	{
		my ($mb, $rate) = @$case;

		$dt->reading(disk_free => 'measured', $mb * $MB, 1000 * $MB);
		$dt->advance(20 * $second);
		cmp_ok(abs(in_force('b', 'wal') / $rate / $MB - 1), '<', 0.02, "$mb MB are free: $rate MB/s");
		is(reason('b'), "$mb.0 MB of the file system of pg_wal are free, and 60.0 MB must stay free; the rest has to last for 30 s."
			  . ($rate == 0.1 ? ' The group is at its floor.' : ''), 'the reason');
		is(signal('disk_free')->{threshold_value}, 60 * $MB, 'the threshold in bytes, though it is a percentage');
	}
	unfollow();
	$dt->limit(b => 0);
	$dt->sql(q{SELECT set_group_wal_limit('b', 0)});
	$dt->cancel_ms($s);
	$s->quit;
	$dt->reading(disk_free => 'real');
	$dt->fresh('b');
};

# ---------------------------------------------------------------------- forgiveness

# b owes some 10 MB of WAL, with a rate of 10 MB/s that is its fixed limit or comes
# from pressure, when the rate falls to its floor.  Returns what it has used and
# owes, and when the rate has fallen.
sub fall
{
	my ($s) = @_;

	budget(980, 96);
	# what others have written until then is a mean
	cmp_ok(abs(in_force('b', 'wal') - 10 * $MB), '<=', 10, '10 MB/s');
	$dt->sql(q{SELECT dirty_throttle_reset('b')});
	$s->send(q{INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, 10000) k});
	$dt->settle;
	my ($used, $owed) = $dt->used('b', 'wal');
	cmp_ok($owed, '>', 8 * $MB, "it owes $owed bytes");
	my $then = $dt->now;
	$dt->reading(checkpoint => 'measured', 0, 0);
	$dt->advance($cycle);
	is(in_force('b', 'wal'), 100_000, 'the limit falls to the floor');
	my $since = $dt->sql(q{SELECT dt_test_read_at('checkpoint')});
	return ($used, $owed - ($since - $then) * 10, $since);
}

sub forgiven
{
	return 1000 * $dt->group_row('b')->{debt_forgiven};
}

$dt->set_conf('dirty_throttle.transaction_grace', '1d');
$dt->reading(checkpoint => 'measured', 980 * $MB, 96 * $second);
follow('b', 'checkpoint', 'on');

subtest 'a debt of a higher rate is bounded to 30 s of one that lasts' => sub {
	my $s = $dt->session(group => 'b');

	rest();
	my ($used, $owed, $since) = fall($s);
	$dt->advance($since + 5 * $second - 1 - $dt->now);
	is(forgiven(), 0, 'nothing is forgiven for less than 5 s');
	$dt->advance($cycle);
	my $bounded = $dt->sql(q{SELECT dt_test_read_at('checkpoint')});
	cmp_ok(abs(($dt->used('b', 'wal'))[1] - (3 * $MB - ($dt->now - $bounded) / 10)), '<=', 1,
		'then 30 s of the floor are owed');
	cmp_ok(abs(forgiven() - ($owed - 3 * $MB - ($bounded - $since) / 10)), '<=', 1000,
		'all else is forgiven, but for what was paid until then');
	$dt->advance($bounded + 30 * $second - 1 - $dt->now);
	is($dt->state($s), 'sleeps', '30 s later, less a microsecond, it still pauses');
	$dt->advance(1);
	is($dt->state($s), 'idle', 'then it has paid') or $dt->cancel_ms($s);
	$s->wait;
	$s->quit;
};

subtest 'but not if the fixed limit asks for it' => sub {
	my $s = $dt->session(group => 'b');

	rest();
	$dt->fresh(b => wal => 2000);
	$dt->reading(checkpoint => 'measured', 0, 0);
	$dt->advance($cycle);
	my $since = $dt->sql(q{SELECT dt_test_read_at('checkpoint')});
	is(in_force('b', 'wal'), 100_000, 'its limit is at the floor');
	foreach my $seconds (30, 5, 100)
	{
		$s->send(q{SELECT } . join(', ', (q{pg_logical_emit_message(false, '', repeat('x', 10000000))}) x 20));
		$dt->settle;
		my ($used, $owed) = $dt->used('b', 'wal');
		cmp_ok($owed, '>=', 190 * $MB, "$owed bytes are owed");
		# falls that are too short, and a longer one
		$dt->advance($seconds * $second);
		budget(2, 0);
		$dt->reading(checkpoint => 'measured', 0, 0);
		$dt->advance($seconds * $second);
		cmp_ok($used - ($dt->used('b', 'wal'))[1], '<=',
			2 * ($dt->now - $since) + 2 * $MB / 10,
			'no more has been used than the fixed limit grants, but for what is owed');
		# until it has paid
		$dt->reading(checkpoint => 'measured', 980 * $MB, 96 * $second);
		$dt->advance($cycle);
		is(in_force('b', 'wal'), 2 * $MB, 'the fixed limit again');
		$dt->run;
		cmp_ok($used, '<=', 2 * ($dt->now - $since) + 2 * $MB / 10, 'paid when its time has come');
		$s->wait;
		$dt->reading(checkpoint => 'measured', 0, 0);
		$dt->advance($cycle);
	}
	cmp_ok(forgiven(), '>', 100 * $MB, 'what pressure asks for beyond that is forgiven');
	$s->quit;
};
unfollow();
$dt->fresh('b');
$dt->set_conf('dirty_throttle.transaction_grace', '0');

# --------------------------------------------------------------------------- queues

my $of_30MB = qr/[\d.]+ MB( of WAL wait to be archived| behind|); the aim is two thirds of the 30\.0 MB that are allowed\.$/;
my $of_2s = qr/[\d.]+ s behind with its replay; the aim is two thirds of the 2\.00 s that are allowed\.$/;
my %reasons = (
	slot_lag => qr/^The consumer of a replication slot is $of_30MB/, archive_lag => qr/^$of_30MB/,
	replica_lag => qr/^A standby is $of_2s/,
	kernel_dirty => qr/^The kernel has to write $of_30MB/);

# A queue that drains at 1 MB/s, whatever it is.  The law lets a group that
# would write much more keep it at two thirds of the threshold.
$dt->set_conf('dirty_throttle.transaction_grace', '1d');
foreach my $case (
	[ slot_lag => 'wal' ], [ replica_lag => 'wal' ], [ archive_lag => 'wal' ],
	[ kernel_dirty => 'dirty' ])
{
	my ($signal, $what) = @$case;

	subtest "$signal: a queue that drains" => sub {
		# as the views have it: ms, bytes
		my $threshold = $signal eq 'replica_lag' ? 2000 : 30 * $MB;
		my $at = 2 / 3;
		my $s = $dt->session(group => 'b');

		$dt->reading($signal => 'measured', 0, $MB);
		follow('b', $signal, $thresholds{$signal});
		rest();
		is(in_force('b', $what), 0, 'it is empty: no limit');
		# so fast that the queue grows
		$dt->fresh(b => $what => 10_000);
		$s->send("CALL job('$what')");
		$dt->advance(90 * $second);
		my $of_signal = signal($signal);
		my $value = $of_signal->{value};
		note sprintf '%s: value %s, limit %s', $signal, $value, in_force('b', $what);
		cmp_ok(abs($value / $threshold - $at), '<', 0.1, sprintf 'it is at %.2f of the threshold', $at);
		cmp_ok(abs(in_force('b', $what) / $MB - 1), '<', 0.1, 'the limit is what drains');
		like(reason('b'), $reasons{$signal}, 'and the reason');
		cmp_ok(abs($of_signal->{threshold_value} - $threshold), '<', 1, 'its threshold');
		ok(abs($of_signal->{pressure} - int(1000 * $value / $threshold) / 1000) < 0.0015, 'and its pressure');
		my ($used) = $dt->used('b', $what);
		$dt->advance(40 * $second);
		cmp_ok(abs((($dt->used('b', $what))[0] - $used) / 40 / $MB - 1), '<', 0.05,
			'which is what the group uses');
		unfollow();
		$dt->limit(b => 0);
		$dt->cancel_ms($s);
		$s->quit;
		$dt->reading($signal => 'real');
		$dt->fresh('b');
	};
}

# ---------------------------------------------------------------------------- brake

subtest 'io_pressure: slower above the threshold, faster below, free in the end' => sub {
	my $s = $dt->session(group => 'b');

	$dt->reading(io_pressure => 'measured', 100_000);
	follow('b', 'io_pressure', $thresholds{io_pressure});
	$dt->fresh(b => dirty => 4000);
	$s->send(q{CALL job('dirty')});
	$dt->advance(15 * $second);
	is(in_force('b', 'dirty'), 4 * $MB, 'half of the threshold: no limit but the fixed one');
	is(signal('io_pressure')->{value}, 10, 'the value, in percent');

	# what comes later is a mean; far over the threshold it falls by a tenth a
	# cycle, half in a second
	$dt->reading(io_pressure => 'measured', 1_000_000);
	$dt->advance(12 * $second);
	my $rate = in_force('b', 'dirty');
	my $floor = 100_000;
	foreach (1 .. 12)
	{
		$dt->advance($cycle);
		my $now = in_force('b', 'dirty');
		my $expected = $rate - int($rate / 2) / 5;
		ok(abs($now - ($expected > $floor ? $expected : $floor)) <= 2,
			"falls from $rate to $now");
		$rate = $now;
	}
	$dt->advance(30 * $second);
	is(in_force('b', 'dirty'), $floor, 'down to the floor');
	like(reason('b'),
		qr{^Some process waits for I/O for 100(\.0)? % of the time, and 20\.0 % are allowed\. The group is at its floor\.$},
		'the reason');
	follow('b', 'io_pressure', '15%');
	$dt->advance($cycle);
	is(in_force('b', 'dirty'), $floor, 'with another threshold it goes on from there');
	follow('b', 'io_pressure', $thresholds{io_pressure});

	$dt->reading(io_pressure => 'measured', 0);
	$dt->advance(10 * $second);
	like(reason('b'),
		qr{^Some process waits for I/O for .* % of the time, and 20\.0 % are allowed\. The signal is below its threshold, so the rate rises as far as it is used\.$},
		'the reason while it does');
	$dt->advance(60 * $second);
	cmp_ok(in_force('b', 'dirty'), '>', 2 * $floor, 'then it goes faster again');
	unfollow();
	$dt->limit(b => 0);
	$dt->cancel_ms($s);
	$s->quit;
	$dt->reading(io_pressure => 'real');
	$dt->fresh('b');
};

# ------------------------------------------------------------------------ staleness

# What cannot be read any more counts for 40 s, and is shown as stale from the
# tenth second on; what is not there does not count at all.
foreach my $case (
	[ slot_lag => 'wal' ], [ replica_lag => 'wal' ],
	[ kernel_dirty => 'dirty' ], [ io_pressure => 'dirty' ])
{
	my ($signal, $what) = @$case;

	subtest "$signal: stale" => sub {
		my $s = $dt->session(group => 'b');
		my $press = sub {
			$dt->reading($signal => 'measured',
				$signal eq 'io_pressure' ? 1_000_000 : 100 * $MB, 500_000);
			$dt->fresh(b => $what => 10_000);
			$dt->advance(10 * $second);
		};

		$dt->reading($signal => 'measured', 0);
		follow('b', $signal, $thresholds{$signal});
		$s->send("CALL job('$what')");
		$press->();
		my $rate = in_force('b', $what);
		cmp_ok($rate, '<', 10 * $MB, 'it presses');
		is(signal($signal)->{state}, 'fresh', 'fresh');

		$dt->reading($signal => 'failed');
		my $value = signal($signal)->{value};
		my $read_at = $dt->sql("SELECT dt_test_read_at('$signal')");
		$dt->advance($read_at + 10 * $second - 1 - $dt->now);
		is(signal($signal)->{state}, 'fresh', 'after 10 s less a microsecond: fresh');
		$dt->advance(1);
		is(signal($signal)->{state}, 'stale', 'after 10 s: stale');
		is(signal($signal)->{value}, $value, 'with its last value');
		$dt->advance($read_at + 40 * $second - 1 - $dt->now);
		is(signal($signal)->{state}, 'stale', 'after 40 s less a microsecond: stale');
		cmp_ok(in_force('b', $what), '<', 10 * $MB, 'and still pressing');
		$dt->advance(1);
		is(signal($signal)->{state}, 'unavailable', 'after 40 s: unavailable');
		is(signal($signal)->{value}, undef, 'without a value');
		$dt->advance(2 * $cycle);
		is(in_force('b', $what), 10 * $MB, 'and presses nobody any more');

		$press->();
		cmp_ok(in_force('b', $what), '<', 10 * $MB, 'it presses again');
		if ($signal ne 'io_pressure')
		{
			$dt->reading($signal => 'nothing');
			$dt->advance($cycle);
			is(signal($signal)->{state}, 'absent', 'nothing to measure: absent at once');
			is(signal($signal)->{pressure}, undef, 'and presses nobody');
		}
		unfollow();
		$dt->limit(b => 0);
		$dt->sql(q{SELECT set_group_wal_limit('b', 0)});
		$dt->cancel_ms($s);
		$s->quit;
		$dt->reading($signal => 'real');
	};
}

# ------------------------------------------------------------------------- reports

# What is in force after so many reports at 1.5 of the threshold, so many s apart.
sub after_reports
{
	my ($reports, $seconds) = @_;
	my $s = $dt->session(group => 'b');

	$dt->fresh(b => wal => 1000);
	$dt->sql(q{SELECT report_pressure('credit', 0.95, '1 day')});
	follow('b', 'credit', 'on');
	$s->send(q{CALL job('wal')});
	$dt->advance(15 * $second);
	is(in_force('b', 'wal'), $MB, 'just below the threshold: the fixed limit');
	foreach (1 .. $reports)
	{
		$dt->sql(q{SELECT report_pressure('credit', 1.5, '1 day')});
		$dt->advance($seconds * $second);
	}
	my $rate = in_force('b', 'wal');
	is($dt->session_row($s)->{paused_by}, 'credit', 'the reason for its pauses has the name of the report');
	unfollow();
	$dt->cancel_ms($s);
	$s->quit;
	$dt->fresh('b');
	return $rate;
}

subtest 'a report counts once, however seldom they come' => sub {
	my ($often, $seldom) = map { after_reports(4, $_) } 1, 60;

	# each a quarter less than what was used, which at first is a burst more
	cmp_ok($often, '>', $MB * 0.75**5, "four reports, a second apart: $often");
	cmp_ok($often, '<', $MB * 0.75**3, 'slower by each of them');
	# what was used between two of them differs by less than one of them changes
	cmp_ok(abs($seldom / $often - 1), '<', 0.25, "the same a minute apart: $seldom");
};

# The last value counts until it has been stale for 30 s.
subtest 'nobody reports any more' => sub {
	my $s = $dt->session(group => 'b');

	$dt->fresh(b => wal => 1000);
	$dt->sql(q{SELECT report_pressure('elsewhere', 3, '1 s')});
	follow('b', 'elsewhere', 'on');
	$s->send(q{CALL job('wal')});
	foreach (1 .. 60)
	{
		$dt->sql(q{SELECT report_pressure('elsewhere', 3, '1 s')});
		$dt->advance($cycle);
	}
	is(in_force('b', 'wal'), 100_000, 'down to the floor');
	is(signal('elsewhere')->{state}, 'fresh', 'by what is reported');
	$dt->sql(q{SELECT report_pressure('another', 0.1, '10 min')});
	$dt->advance(2 * $second);
	is(signal('elsewhere')->{state}, 'stale', 'nobody reports any more: stale');
	$dt->advance(28 * $second);
	is(signal('elsewhere')->{state}, 'stale', 'for 30 s');
	cmp_ok(in_force('b', 'wal'), '<', $MB, 'which slows the group down still');
	$dt->advance(2 * $second);
	is(signal('elsewhere')->{state}, 'absent', 'then it is absent');
	is(in_force('b', 'wal'), $MB, 'and the group is free');
	like($dt->session->run(q{SELECT set_group_pressure('b', 'elsewhere', 'on')})->{err},
		qr/NOTICE: .*signal "elsewhere" slows no group down at present\nDETAIL:  Its last report is too old to count/,
		'a notice says so to the role that has a group follow it now, though another one is reported');
	unfollow();
	$dt->cancel_ms($s);
	$s->quit;
	$dt->fresh('b');
};

subtest 'a restart forgets the report that groups follow' => sub {
	my $lines = sub {
		my ($log, $text) = @_;
		return scalar(() = slurp_file($dt->node->logfile, $log) =~ /LOG:  signal "kafka" $text\n/g);
	};

	$dt->sql(q{SELECT report_pressure('kafka', 0.5, '1 day')});
	follow($_, 'kafka', 'on') foreach qw(b c);
	$dt->advance($second);
	is(signal('kafka')->{state}, 'fresh', 'it is reported');
	my $log = -s $dt->node->logfile;
	$dt->disconnect;
	$dt->node->restart;
	my $row = signal('kafka');
	is(join(' ', map { $row->{$_} // 'NULL' } qw(threshold_value state value pressure measured_at)), '1 absent NULL NULL NULL',
		'a row tells that it is absent');
	is($row->{reason}, 'There is no report of it.', 'and why');
	like($dt->session->run(q{SELECT set_group_pressure('b', 'kafka', 'on')})->{err},
		qr/NOTICE: .*signal "kafka" slows no group down at present\nDETAIL:  There is no report of it\./,
		'a notice tells who follows it now');
	is($dt->sql(q{SELECT string_agg(group_name || ' ' || state, ', ' ORDER BY group_name)
			FROM dirty_throttle_pressure WHERE signal = 'kafka'}),
		'b absent, c absent', 'there is one for each of the groups');
	$dt->settle;
	$dt->advance(29 * $second);
	is($lines->($log, 'is not reported'), 0, 'it may still come: nothing in the log');
	$dt->advance(60 * $second);
	is($lines->($log, 'is not reported'), 1, 'after 30 s one line');
	is($lines->($log, 'is reported again'), 0, 'and nothing else');
	$dt->sql(q{SELECT report_pressure('kafka', 0.5, '1 s')});
	$dt->advance($second);
	is($lines->($log, 'is reported again'), 1, 'it is: one line');
	is(signal('kafka')->{value}, 0.5, 'and a value');
	$dt->advance(40 * $second);
	is($lines->($log, 'is not reported'), 2, 'no more: another line, at once');
	unlike(slurp_file($dt->node->logfile, $log), qr/"reported"/, 'each has the name that it is reported under');
	unfollow();
};

# ---------------------------------------------------------------------- many of them

# Is it so for all groups, in a query?
sub all_groups
{
	my ($condition) = @_;
	return $dt->sql("SELECT count(*) FILTER (WHERE $condition) || ' of ' || count(*)
		FROM dirty_throttle_groups");
}

subtest '64 groups that follow six signals' => sub {
	my @signals = sort keys %thresholds;

	$dt->sql(
		q{SELECT alter_resource_group('f' || i, floor => 100)
			FROM generate_series(1, 62) i;
		SELECT set_group_dirty_limit(group_name, 10000), set_group_wal_limit(group_name, 10000)
			FROM dirty_throttle_groups});
	$dt->reading($_ => 'measured', $_ eq 'checkpoint' ? (98_000 * $MB, 96 * $second) : (0, 100 * $MB))
	  foreach @signals;
	foreach my $signal (@signals)
	{
		$dt->sql("SELECT set_group_pressure(group_name, '$signal', '$thresholds{$signal}') FROM dirty_throttle_groups");
	}
	is($dt->sql('SELECT count(group_name) FROM dirty_throttle_pressure'), 64 * @signals, 'each follows each');
	rest();
	is(all_groups('effective_dirty_limit = 10000 AND effective_wal_limit = 10000'),
		'64 of 64', 'nothing presses: the fixed limits are in force');

	my @s = map { $dt->session(group => $_) } qw(f1 f2 f62);
	$_->send(q{CALL job('wal')}) foreach @s;
	$dt->reading($_ => 'measured', $_ eq 'checkpoint' ? (0, 96 * $second) : (1000 * $MB, $MB))
	  foreach @signals;
	rest();
	is(all_groups('effective_wal_limit = 100'), '64 of 64', 'all press: every group is at its floor');
	is(all_groups('effective_dirty_limit = 100'), '64 of 64', 'for blocks, too');
	is($dt->sql(q{SELECT count(*) FROM dirty_throttle_pressure WHERE state = 'fresh'}),
		64 * @signals, 'the sampler has looked at all of them');
	my @before = map { [ $dt->used('f62', $_) ] } qw(dirty wal);
	$dt->advance(5 * $second);
	my @paid = map { my ($used, $owed) = $dt->used('f62', $_->[2]);
		$used - $owed - $_->[0] + $_->[1] } map { [ @{ $before[$_] }, (qw(dirty wal))[$_] ] } 0, 1;
	is(max(@paid), 500_000, 'and a member gets that, to the byte, of what it needs more of');

	unfollow();
	is(all_groups('effective_dirty_limit = 10000 AND effective_wal_limit = 10000'),
		'64 of 64', 'followed no more');
	$dt->cancel_ms($_) foreach @s;
	$_->quit foreach @s;
	$dt->reading($_ => 'real') foreach @signals;
};

$dt->finish;
