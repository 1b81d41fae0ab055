# Signal checkpoint: a notice of what it comes to when it is set, and beside others
# that alone force checkpoints a line in the log and a state in the view; but not
# beside what the group itself writes.  105 has for how long.  On a clock that stands
# still while statements run.

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Clock;
use Test::More;

my $second = 1_000_000;

# There is room for about 33 MB of WAL, 0.4 KB/s until a checkpoint comes by
# time.
my $dt = DirtyThrottle::Clock->new(
	'reach',
	init => [ extra => ['--wal-segsize=1'] ],
	conf => q{
max_wal_size = 64MB
min_wal_size = 10MB
checkpoint_timeout = 1d
checkpoint_completion_target = 0.9
checkpoint_warning = 0
autovacuum = off
});

sub follow
{
	return $dt->session->run(q{SELECT set_group_pressure('batch', 'checkpoint', 'on')})->{err};
}

sub signal
{
	return $dt->_row(q{SELECT * FROM dirty_throttle_pressure WHERE signal = 'checkpoint'});
}

# How many lines of the log, from there on, match.
sub lines
{
	my ($mark, $pattern) = @_;
	return scalar grep { /$pattern/ } split /\n/, $dt->log_since($mark);
}

# ----------------------------------------------------------------- what it says

$dt->sql(q{SELECT alter_resource_group('batch', floor => '1000 kB')});
my $err = follow();
like($err, qr/NOTICE: .*all sessions together can write 0 KB\/s of WAL without forcing a checkpoint/,
	'the notice says what there is room for');
like($err, qr/DETAIL: .* max_wal_size = 64 MB and checkpoint_timeout = 86400 s\./,
	'and what that follows from');
like($err, qr/HINT:  Twice as much fits with a max_wal_size of \d+ MB\./,
	'and what to do');

# what it says is so
$dt->set_conf('max_wal_size', '200000MB');
my ($rate, $double) = follow() =~ /can write (\d+) KB.*max_wal_size of (\d+) MB/s;
cmp_ok($rate, '>', 0, "the notice follows max_wal_size: KB/s");
$dt->set_conf('max_wal_size', "${double}MB");
($err) = follow() =~ /can write (\d+) KB/;
cmp_ok(abs($err - 2 * $rate - 1), '<=', 1, "twice as much with $double MB: $rate and $err KB/s");
$dt->set_conf('max_wal_size', '64MB');

# -------------------------------------------------------------- the group alone

# What the group writes is not that of others, neither are the headers of its pages,
# of which it is not charged, and which are more than fits.  After 10 s others are
# believed to be the reason.
$dt->reading(checkpoint => 'measured', 33e6, 80_000 * $second);
$dt->sql('SELECT dt_test_others(3000, 0)');
my $job = $dt->session(group => 'batch');
$job->send(
	q{DO $$ BEGIN
		LOOP
			PERFORM pg_logical_emit_message(false, 'x', repeat('x', 50000));
			COMMIT;
		END LOOP;
	END $$});
$dt->advance($second);
my $before = $dt->group_row('batch')->{wal_bytes};
my %states = map { $dt->advance($second / 2); signal()->{state} => 1 } 1 .. 40;
cmp_ok($dt->group_row('batch')->{wal_bytes} - $before, '>', 15e6, 'only the group writes, for 20 s');
is(join(' ', keys %states), 'fresh', 'it alone is not out of reach of the signal');
$dt->cancel_ms($job);
$job->quit;

# ------------------------------------------------------------------- and others

my $mark = $dt->log_mark;
$dt->sql('SELECT dt_test_others(500000, 0)');
$dt->advance(15 * $second);
my $row = signal();
is($row->{state}, 'out of reach', 'the view of signals tells of others');
like($row->{reason}, qr{^Others write \d+ KB/s of WAL, and no more than 0 KB/s fit},
	'and says why');
ok(!$dt->group_row('batch')->{effective_wal_limit}, 'the group is free');
is(lines($mark, 'LOG:  signal "checkpoint" slows no group down, as others alone force checkpoints'),
	1, 'one line in the log');
is(lines($mark, 'slowed down to its floor by signal'), 0, 'and no other one');
$dt->sql('SELECT dt_test_others(0, 0)');
$dt->advance(200 * $second);
is(signal()->{state}, 'fresh', 'when the others have stopped it ends');

$dt->finish;
