# A background worker that writes by the server's C API, and runs no statement of
# which a hook would tell, is limited as everybody: it pauses in flight, what it
# still owes then it pays after its transaction, or at the first check of the next
# one, and it stops with its group.  On a clock that stands still while it works.
#
# takes-about: 30 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = compile_library('api_worker');
plan skip_all => 'no library can be compiled here' unless $library;

my $block = 8192;
my $second = 1_000_000;
my $kb = 1000;         # KB/s, so a byte is a microsecond
my $rows = 5000;       # each in a block of its own
my $dt = DirtyThrottle::Clock->new('api_worker', conf => qq{
shared_preload_libraries = 'dirty_throttle, $library'
max_worker_processes = 16
dirty_throttle.transaction_grace = 50ms
});

# In this database everybody is in group g who is no operator.
$dt->sql(
	qq{SELECT alter_resource_group('g');
	CREATE FUNCTION launch_api(text, text, text, int, int) RETURNS int LANGUAGE c AS '$library';
	CREATE ROLE app LOGIN;
	CREATE DATABASE work;
	ALTER DATABASE work SET dirty_throttle."group" = 'g'});
my $work = $dt->session(dbname => 'work');
$work->query(q{CREATE TABLE written (id int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
	CREATE TABLE filled (LIKE written) WITH (fillfactor = 10)});

# A worker that writes so many rows, on an empty table, or one with as many pages.
sub launch
{
	my ($how, $n, $transactions, $role) = @_;

	$work->query('TRUNCATE written');
	$work->query("INSERT INTO written SELECT i, repeat('x', 800) FROM generate_series(1, $n) i")
	  if $how eq 'generic';
	$work->query('DROP INDEX IF EXISTS written_id');
	$work->query('CREATE INDEX written_id ON written (id)') if $how eq 'index';
	$work->query('CHECKPOINT');
	return $dt->sql(sprintf q{SELECT launch_api('work', '%s', '%s', %d, %d)},
		$role // '', $how, $n, $transactions);
}

sub state_of { return $dt->sql("SELECT dt_test_state($_[0])") }

# It sleeps, or has ended.
sub settle_worker
{
	my ($pid) = @_;
	my $state;

	poll_until(sub { $state = state_of($pid); return $state =~ /^(sleeps|waits|)$/ }, 180)
	  or die "worker $pid neither ends nor pauses: $state";
	return $state;
}

# Move the clock until it has ended, an hour at most: by how much, in us.
sub run_worker
{
	my ($pid) = @_;
	my $then = $dt->now;

	while (settle_worker($pid) ne '' && $dt->now - $then < 3600 * $second)
	{
		$dt->sql("SELECT dt_test_run($second)");
	}
	return $dt->now - $then;
}

sub written { return $work->query('SELECT count(*) FROM written') }

# ----------------------------------------------------------------------- its rate

foreach my $case (
	[ 'heap', 1 ], [ 'heap', 200 ], [ 'index', 1 ], [ 'index', 200 ],
	[ 'generic', 1 ], [ 'generic', 200 ], [ 'copy', 1 ], [ 'copy', 200 ])
{
	my ($how, $transactions) = @$case;

	subtest "$how, transactions: $transactions" => sub {
		$dt->fresh('g');
		$work->query('TRUNCATE written');
		$dt->fresh(g => dirty => $kb);
		my $pid = launch($how, $rows, $transactions);
		is(settle_worker($pid), 'sleeps', 'it pauses');
		my ($used, $owed) = $dt->used('g', 'dirty');
		cmp_ok($used, '<', $rows * $block, 'before it has done all');
		is($dt->sql("SELECT paused_by FROM dirty_throttle_sessions() WHERE pid = $pid"),
			'dirty', 'for what it has dirtied');
		cmp_ok(written(), '<', $rows, 'nor can all of it be seen') if $how ne 'generic';
		my $us = run_worker($pid);
		is(state_of($pid), '', 'it comes to its end');
		is(written(), $rows, 'with all of its rows') if $how ne 'generic';
		($used, $owed) = $dt->used('g', 'dirty');
		cmp_ok($used, '>=', $rows * $block, 'all of it was charged');
		cmp_ok($owed, '<=', 64 * $block, 'and paid for, but for what reading may use');
		cmp_ok($us, '>=', $used - $owed - new_credit($kb), 'in the time that takes');
		$dt->check_books('g', 'dirty', "$how, $transactions");
		cmp_ok($dt->group_row('g')->{pauses}, '>', 1, 'in several pauses');
	};
}

# The last are records of a resource manager that the server's code knows nothing of.
foreach my $case ([ 'heap', 1, 100, 800 ], [ 'custom', 1, $kb, $block ], [ 'custom', 200, $kb, $block ])
{
	my ($how, $transactions, $limit, $bytes) = @$case;

	subtest "a limit on WAL: $how, transactions: $transactions" => sub {
		$dt->fresh(g => wal => $limit);
		my $pid = launch($how, $rows, $transactions);
		is(settle_worker($pid), 'sleeps', 'it pauses');
		is($dt->sql("SELECT paused_by FROM dirty_throttle_sessions() WHERE pid = $pid"),
			'wal', 'for the WAL that it has written');
		cmp_ok(($dt->used('g', 'wal'))[0], '<', $rows * $bytes, 'before it has done all');
		my $us = run_worker($pid);
		is(state_of($pid), '', 'it comes to its end');
		my ($used, $owed) = $dt->used('g', 'wal');
		cmp_ok($used, '>', $rows * $bytes, 'all of it was charged');
		cmp_ok($owed, '<=', 64 * $block, 'and paid for, but for what reading may use');
		cmp_ok($us, '>=', ($used - $owed - new_credit($limit)) * 1000 / $limit, 'in the time that takes');
		$dt->check_books('g', 'wal', "a limit on WAL, $how, $transactions");
	};
}

# ------------------------------------------------------------------- what is owed

# With such a grace there is no pause in flight.
subtest 'what is owed after a transaction' => sub {
	$dt->set_conf('dirty_throttle.transaction_grace', '1d');
	$dt->fresh(g => dirty => $kb);
	my $pid = launch('heap', $rows, 2);
	foreach my $n (1, 2)
	{
		is(settle_worker($pid), 'sleeps', "transaction $n: it pauses");
		is(written(), $n * $rows / 2, "transaction $n: after it");
		my ($used, $owed) = $dt->used('g', 'dirty');
		cmp_ok($owed, '>=', $rows / 2 * $block - new_credit($kb), "transaction $n: for all of it");
		$dt->sql("SELECT dt_test_advance($owed - 1)");
		is(settle_worker($pid), 'sleeps', "transaction $n: it pays all");
		$dt->sql('SELECT dt_test_advance(1)');
	}
	is(settle_worker($pid), '', 'then it ends');
	is(($dt->used('g', 'dirty'))[1], 0, 'and owes nothing');

	# one that is terminated in such a pause leaves what it owes to the next one
	$dt->fresh(g => dirty => $kb);
	$pid = launch('heap', $rows, 2);
	is(settle_worker($pid), 'sleeps', 'it pauses');
	$dt->sql("SELECT pg_terminate_backend($pid)");
	ok(poll_until(sub { state_of($pid) eq '' }), 'terminated: it ends');
	my ($used, $owed) = $dt->used('g', 'dirty');
	is($owed, $used - new_credit($kb), 'terminated: it leaves what it owes');
	$pid = launch('heap', $rows, 10);
	is(settle_worker($pid), 'sleeps', 'the next one pauses');
	# one transaction slips if it has a transaction ID before the first tick
	cmp_ok(written(), '<=', $rows / 10, 'in its first transaction, or after it');
	cmp_ok(($dt->used('g', 'dirty'))[0] - $used, '<', 0.2 * $rows * $block,
		'before it has used more');
	run_worker($pid);
	is(written(), $rows, 'and then it works');
	$dt->set_conf('dirty_throttle.transaction_grace', '50ms');
};

# ------------------------------------------------------------------- suspend_group

subtest 'suspended' => sub {
	# before it begins
	$dt->fresh('g');
	$dt->sql("SELECT suspend_group('g')");
	my $pid = launch('heap', $rows, 10);
	is(settle_worker($pid), 'sleeps', 'it stops');
	cmp_ok(written(), '<=', $rows / 10, 'in its first transaction, or after it');
	my ($used) = $dt->used('g', 'dirty');
	cmp_ok($used, '<', 0.2 * $rows * $block, 'before it has used more');
	$dt->sql("SELECT dt_test_advance(3600::bigint * $second)");
	is(settle_worker($pid), 'sleeps', 'an hour later it does so still');
	is(($dt->used('g', 'dirty'))[0], $used, 'and has done nothing');
	$dt->sql(q{SELECT resume_group('g')});
	is(settle_worker($pid), '', 'resumed: it comes to its end');
	is(written(), $rows, 'with all of its rows');

	# in the middle, where it pauses for the limit; of 10 transactions
	$dt->fresh(g => dirty => $kb);
	$pid = launch('heap', $rows, 10);
	is(settle_worker($pid), 'sleeps', 'it pauses');
	$dt->sql("SELECT suspend_group('g')");
	$dt->limit(g => 0);
	is(settle_worker($pid), 'sleeps', 'it stops');
	my $n = written();
	cmp_ok($n, '<', $rows, 'before it has done all');
	is($dt->sql("SELECT paused_by FROM dirty_throttle_sessions() WHERE pid = $pid"),
		'suspend_group', 'for that');
	$dt->sql("SELECT dt_test_advance(3600::bigint * $second)");
	is(settle_worker($pid), 'sleeps', 'for an hour');
	is(written(), $n, 'without any work');
	$dt->sql(q{SELECT resume_group('g')});
	is(settle_worker($pid), '', 'resumed: it comes to its end');
	is(written(), $rows, 'with all of its rows');

	# it writes after a statement that reads
	$dt->fresh('g');
	$dt->sql("SELECT suspend_group('g')");
	$pid = launch('read', $rows, 10);
	is(settle_worker($pid), 'sleeps', 'after a statement that reads: it stops');
	cmp_ok(written(), '<=', $rows / 10, 'in its first transaction, or after it');
	$dt->sql(q{SELECT resume_group('g')});
	is(settle_worker($pid), '', 'resumed: it comes to its end');
	is(written(), $rows, 'with all of its rows');
};

# It has a snapshot of its own, under which it runs a query that it undoes.
subtest 'a snapshot of its own' => sub {
	$dt->fresh('g');
	$dt->sql(q{SELECT suspend_group('g')});
	my $pid = launch('undone', 100, 1);
	is(settle_worker($pid), 'sleeps', 'it stops before the query');
	$dt->sql(q{SELECT resume_group('g')});
	is(settle_worker($pid), '', 'resumed: it comes to its end');
	is(written(), 100, 'with all of its rows');
};

# Cancelled in its pause it ends with an error; terminated, at once.
subtest 'interrupted' => sub {
	foreach my $function ('pg_cancel_backend', 'pg_terminate_backend')
	{
		$dt->fresh(g => dirty => $kb);
		my $pid = launch('heap', $rows, 1);
		is(settle_worker($pid), 'sleeps', "$function: it pauses");
		$dt->sql("SELECT $function($pid)");
		ok(poll_until(sub { state_of($pid) eq '' }), "$function: it ends");
		is(written(), 0, "$function: and its transaction is rolled back");
		is($dt->group_row('g')->{members}, 0, "$function: nobody is left");
	}
};

# It was moved while it waited, so no hook and no check has told of its group: it pauses
# after a transaction, and is terminated there all the same.
subtest 'moved while idle' => sub {
	$dt->fresh('g');
	$dt->sql('CREATE TABLE written (id int, pad text)');
	my $pid = $dt->sql(q{SELECT launch_api('postgres', 'app', 'again', 10, 1)});
	ok(poll_until(sub { $dt->sql('SELECT count(*) FROM written') > 100 }), 'it works');
	$dt->sql(qq{SELECT suspend_group('g'), set_session_group($pid, 'g')});
	is(settle_worker($pid), 'sleeps', 'it stops');
	is($dt->sql("SELECT backend_xid FROM pg_stat_activity WHERE pid = $pid"), '', 'after a transaction');
	$dt->sql("SELECT pg_terminate_backend($pid)");
	ok(poll_until(sub { state_of($pid) eq '' }), 'it ends');
	$dt->sql(q{SELECT resume_group('g')});
};

# It comes into a group that is suspended in the middle of a transaction.
subtest 'moved in a transaction' => sub {
	$dt->fresh('g');
	$dt->sql(q{SELECT alter_resource_group('slow')});
	$dt->fresh(slow => dirty => $kb);
	$dt->sql('TRUNCATE written');
	my $pid = $dt->sql(q{SELECT launch_api('postgres', 'app', 'heap', 20000, 1)});
	my $s = $dt->session;
	ok(poll_until(sub { !defined $s->run(qq{SELECT set_session_group($pid, 'slow')})->{sqlstate} }), 'it is moved');
	$s->quit;
	is(settle_worker($pid), 'sleeps', 'it pauses in flight');
	$dt->sql(qq{SELECT suspend_group('g'), set_session_group($pid, 'g')});
	ok(poll_until(sub { $dt->sql('SELECT count(*) FROM written') == 20000 || state_of($pid) eq '' }), 'it goes on to the end of its transaction') or diag state_of($pid);
	is($dt->sql('SELECT count(*) FROM written'), 20000, 'with all of its rows');
	$dt->sql(q{SELECT resume_group('g')});
	ok(poll_until(sub { state_of($pid) eq '' }), 'and ends');
};

$work->quit;
$dt->finish;
