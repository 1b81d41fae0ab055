# Signal checkpoint: a notice of what it comes to when it is set, and beside others
# that alone force checkpoints a line in the log and a state in the views.
#
# takes-about: 100 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use DirtyThrottle::Pressure;
use Test::More;
use Time::HiRes qw(sleep time);

# There is room for about 33 MB of WAL, 0.4 KB/s until a checkpoint comes by
# time.
my $dt = DirtyThrottle::Pressure->new(
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
my $follow = q{SELECT set_group_pressure('batch', 'checkpoint')};
my $notice = qr/NOTICE: .*all sessions together can write 0 KB\/s of WAL without forcing a checkpoint/;

sub out_of_reach
{
	my ($group) = @_;

	return $dt->sql("SELECT count(*) > 0 FROM dirty_throttle_pressure
		WHERE group_name = '@{[$group // 'batch']}' AND state = 'out of reach'");
}

$dt->sql(q{SELECT create_resource_group('batch'), set_group_floor('batch', 100)});
my $err = $dt->session->run($follow)->{err};
like($err, $notice, 'the notice says what there is room for');
like($err, qr/DETAIL: .* max_wal_size = 64 MB and checkpoint_timeout = 86400 s\./,
	'and what that follows from');
like($err, qr/HINT:  Twice as much fits with a max_wal_size of \d+ MB\./,
	'and what to do');

# What the group writes is not that of others, neither are the headers of its pages,
# of which it is not charged, and which are more than fits: they come to 3 KB/s.  It
# would take 10 s until others are believed to be the reason.
$dt->sql(q{SELECT set_group_floor('batch', 1000)});
my $job = $dt->session(group => 'batch');
$job->send(
	q{DO $$ BEGIN
		LOOP
			PERFORM pg_logical_emit_message(false, 'x', repeat('x', 50000));
			COMMIT;
		END LOOP;
	END $$});
my ($since, $seen) = (time, '');
ok( poll_until(
		sub {
			sleep 0.2;
			$seen .= out_of_reach();
			return time - $since > 15 && $dt->group_row('batch')->{wal_bytes} > 5e6;
		},
		180),
	'only the group writes, for 15 s');
like($seen, qr/^f*$/, 'it alone is not out of reach of the signal');
$dt->sql('SELECT pg_cancel_backend(' . $job->pid . ')');
$job->wait;
$job->quit;
$dt->sql(q{SELECT set_group_floor('batch', 100)});

# what it says is so
my $size = 200000;
$dt->sql(q{SELECT reset_group_pressure('batch', 'checkpoint')});
$dt->sql("ALTER SYSTEM SET max_wal_size = '${size}MB'");
$dt->sql('SELECT pg_reload_conf()');
my ($rate, $double) = (0, 0);
ok( poll_until(
		sub {
			$err = $dt->session->run($follow)->{err};
			($rate, $double) = $err =~ /can write (\d+) KB.*max_wal_size of (\d+) MB/s;
			$dt->sql(q{SELECT reset_group_pressure('batch', 'checkpoint')});
			return $rate > 0;
		}),
	"the notice follows max_wal_size: $rate KB/s");
$dt->sql("ALTER SYSTEM SET max_wal_size = '${double}MB'");
$dt->sql('SELECT pg_reload_conf()');
ok( poll_until(
		sub {
			$err = $dt->session->run($follow)->{err};
			my ($now) = $err =~ /can write (\d+) KB/;
			$dt->sql(q{SELECT reset_group_pressure('batch', 'checkpoint')});
			return $now >= 2 * $rate && $now <= 2 * $rate + 2;
		}),
	"twice as much with $double MB");
$dt->sql('ALTER SYSTEM RESET max_wal_size');
$dt->sql('SELECT pg_reload_conf()');
$dt->sql($follow);

# another group, that follows something else, too
$dt->sql(q{SELECT create_resource_group('other'), set_group_floor('other', 100),
	set_group_pressure('other', 'checkpoint'),
	set_group_pressure('other', 'wal_rate', '1TB')});

# at most 0.5 MB/s
my $mark = $dt->log_mark;
my $others = $dt->session;
$others->send(
	q{DO $$ BEGIN
		LOOP
			PERFORM pg_logical_emit_message(false, 'x', repeat('x', 50000));
			PERFORM pg_sleep(0.1);
		END LOOP;
	END $$});
ok(poll_until(sub { out_of_reach() eq 't' }, 180), 'the view shows that');
my $row = $dt->signal('checkpoint');
like($row->{reason}, qr{^Others write \d+ KB/s of WAL, and no more than 0 KB/s fit},
	'which says why');
ok($dt->wait_group('batch', sub { $_[0]->{effective_wal_limit} == 0 }, 180), 'the group is free');
is($dt->log_lines($mark,
		'LOG:  signal "checkpoint" slows nobody down, as others alone force checkpoints'),
	1, 'one line in the log');
is($dt->log_lines($mark, 'slowed down to its floor by signal'),
	0, 'and no other one');

# what a group does not follow any more is no concern of its
ok(poll_until(sub { out_of_reach('other') eq 't' }, 180),
	'another group, which follows something else, too');
$dt->sql(q{SELECT reset_group_pressure('other', 'checkpoint')});
my @told = map { sleep 0.1; out_of_reach('other') } 1 .. 20;
is(join('', grep { $_ ne 'f' } @told), '',
	'that follows only something else: it is not told so any more');
is(out_of_reach(), 't', 'the first one is');

$dt->sql('SELECT pg_cancel_backend(' . $others->pid . ')');
$others->wait;
ok(poll_until(sub { out_of_reach() eq 'f' }, 180),
	'when the others have stopped it ends');
is($dt->signal('checkpoint')->{state}, 'fresh', 'and the signal is fresh');

is($dt->crashes, '', 'no crash');
$dt->finish;
