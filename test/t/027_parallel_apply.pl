# Logical replication with streaming = parallel: for what the parallel apply workers
# use, their leader pays, after each transaction, with word to the publisher.
#
# takes-about: 40 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = 1000;    # KB/s of WAL
my $rows = 5000;     # of about 600 bytes of WAL each

my $publisher = DirtyThrottle->new(
	'publisher',
	init => [ allows_streaming => 'logical' ],
	conf => 'wal_sender_timeout = 60s
logical_decoding_work_mem = 64kB');
plan skip_all => 'parallel apply is new in 16'
  if $publisher->sql(q{SELECT current_setting('server_version_num')::int < 160000}) eq 't';
my $dt = DirtyThrottle->new(
	'subscriber',
	init => [ allows_streaming => 'logical' ],
	conf => q{
wal_receiver_status_interval = 1s
wal_receiver_timeout = 60s
max_logical_replication_workers = 8
max_parallel_apply_workers_per_subscription = 2
dirty_throttle.apply_group = 'grp_a'
});

# None of what is replicated here is on more than a part of a page.
$_->sql('CREATE TABLE t (id int, filler text)') foreach $publisher, $dt;
$publisher->sql('CREATE PUBLICATION pub FOR TABLE t');
$dt->limit(grp_a => 0);
$dt->sql(sprintf q{CREATE SUBSCRIPTION sub CONNECTION '%s'
	PUBLICATION pub WITH (copy_data = false, streaming = parallel)},
	$publisher->node->connstr . ' dbname=postgres');

my $sent = 0;

sub insert
{
	my ($session, $n) = @_;

	$session->query("INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, $n) i");
	$sent += $n;
}

# Wait until all of it is there; what is owed then, in KB.
sub arrive
{
	my ($name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok(poll_until(sub { $dt->sql('SELECT count(*) FROM t') == $sent }), "$name: it arrives");
	return $dt->group_row('grp_a')->{wal_debt};
}

sub leader { return $dt->sql('SELECT pid FROM pg_stat_subscription WHERE leader_pid IS NULL') }

# What was used since the limit is in force, in KB.
sub limit_wal
{
	my ($kb) = @_;

	$dt->sql(q{SELECT set_group_wal_limit('grp_a', 0)});
	$dt->sql("SELECT set_group_wal_limit('grp_a', $kb), dirty_throttle_reset('grp_a')");
}

sub used { return $dt->group_row('grp_a')->{wal_bytes} / 1000 }

my @sessions = map { $publisher->session } 1 .. 2;
insert($sessions[0], $rows);
arrive('the first');
cmp_ok($dt->sql('SELECT count(*) FROM pg_stat_subscription WHERE leader_pid IS NOT NULL'),
	'>=', 1, 'it was applied by a parallel worker');
my $leader = leader();

# ----------------------------------------------------------------------- its rate

# Each is paid for before the next one comes.
my $n = 5;
limit_wal($limit);
insert($sessions[0], $rows) foreach 1 .. $n;
my $owed = arrive('one after the other');
cmp_ok(used(), '>=', 0.4 * $rows * $n, 'one after the other: what the workers write is charged');
cmp_ok($owed, '<=', 1.5 * used() / $n, 'one after the other: no more than the last is owed');

# Two workers at the same time: one reads on while the leader pauses for the other.
limit_wal($limit);
$_->query('BEGIN') foreach @sessions;
foreach (1 .. 10)
{
	insert($_, $rows / 5) foreach @sessions;
}
$_->query('COMMIT') foreach @sessions;
$owed = arrive('two at the same time');
cmp_ok($owed, '<=', 0.8 * used(), 'two at the same time: no more than the last is owed');

# A transaction that is rolled back holds nobody, but is owed.
limit_wal($limit);
$sessions[0]->query('BEGIN');
insert($sessions[0], $rows);
$sessions[0]->query('ROLLBACK');
$sent -= $rows;
insert($sessions[0], $rows);
arrive('after a ROLLBACK');

# ------------------------------------------------------------------ for a long time

limit_wal(20);
insert($sessions[0], $rows);
insert($sessions[0], 1);
ok(poll_until(sub { $dt->group_row('grp_a')->{paused} == 1 }), 'a very low limit: it pauses');
is($dt->sql('SELECT pid FROM dirty_throttle_sessions WHERE paused_since IS NOT NULL'),
	$leader, 'the leader does');
my $pauses = $dt->group_row('grp_a')->{pauses};
foreach my $nth ('first', 'second')
{
	my $reply_time = q{SELECT reply_time FROM pg_stat_replication WHERE application_name = 'sub'};
	my $reply = $publisher->sql($reply_time);

	ok(poll_until(sub { $publisher->sql($reply_time) ne $reply }),
		"the publisher hears from it for the $nth time");
}
is($dt->group_row('grp_a')->{pauses}, $pauses, 'in one pause');
is($dt->sql('SELECT count(*) FROM t'), $sent - 1, 'what follows waits');
$dt->sql(q{SELECT set_group_wal_limit('grp_a', 0)});
arrive('without a limit');
is(leader(), $leader, 'by the same worker as from the beginning');

# A pause ends with it.
limit_wal(20);
insert($sessions[0], $rows);
ok(poll_until(sub { $dt->group_row('grp_a')->{paused} == 1 }), 'it pauses');
$dt->sql("SELECT pg_terminate_backend($leader, 180000)");
is($dt->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $leader"), 0, 'it ends at once');
$dt->sql(q{SELECT set_group_wal_limit('grp_a', 0)});
arrive('by the next one');

my $digest = 'SELECT count(*), sum(id), sum(length(filler)) FROM t';
is($dt->sql($digest), $publisher->sql($digest), 'what arrives is what was sent');
is( () = slurp_file($publisher->node->logfile) =~ /due to replication timeout/g,
	0, 'timeouts on the publisher');
is( () = slurp_file($dt->node->logfile) =~ /worker due to timeout/g,
	0, 'timeouts on the subscriber');
$dt->sql('DROP SUBSCRIPTION sub');
$publisher->stop;
$dt->finish;
