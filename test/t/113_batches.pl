# run_in_batches() on a clock that stands still while statements run: batches keep
# the limit of their group without a pause in flight; when they will have finished
# is known; how long they wait until they try again; and transactions that pauses
# have made long are logged.
#
# takes-about: 20 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Batches;
use DirtyThrottle::Clock;
use PostgreSQL::Test::Utils;
use Test::More;

my $second = 1_000_000;
my $kb = 2000;
my $dt = DirtyThrottle::Clock->new('batches', conf => q{
dirty_throttle.transaction_grace = 50ms
log_min_messages = log
});
$dt->limit($_ => 0) foreach 'g', 'free';
my $s = $dt->session(group => 'g');
my $free = $dt->session(group => 'free');
my $other = $dt->session;

sub job
{
	return DirtyThrottle::Batches::job($dt, @_);
}

sub call
{
	return DirtyThrottle::Batches::call($dt, @_);
}

# ----------------------------------------------- the limit, and when it is done

# Each row has a block of its own, and all are clean.
my $rows = 4000;
$dt->sql(qq{CREATE TABLE t (id int PRIMARY KEY, n int DEFAULT 0, filler text) WITH (fillfactor = 10);
	INSERT INTO t SELECT i, 0, repeat('x', 800) FROM generate_series(1, $rows) i;
	VACUUM ANALYZE t; CHECKPOINT});
$dt->fresh(g => (dirty => $kb));
$s->query('SET dirty_throttle.log_min_pause = 0');
my $mark = $dt->log_mark;
my @samples;
my $us = $dt->running(sub {
	$s->send(call('limited', 't'));
	until ($s->finished(0.02))
	{
		push @samples, $dt->sql(
			q{SELECT rows_seen, (rows_expected - rows_seen) / rate, elapsed_time
			  FROM dirty_throttle_batches() WHERE state = 'running' AND rate > 0});
	}
});
my $r = $s->wait;
is($r->{out}, "$rows|t", 'a job under a limit: to the end');
$dt->check_books('g', 'dirty', 'a job under a limit');
cmp_ok($us / $second, '>', $rows * $DirtyThrottle::Clock::BLOCK / ($kb * 1000) * 0.98, 'it takes as long as the limit says, s');
# of the worker: the session that has started the job pays for what it has stored
my $log = $dt->log_since($mark);
my ($worker) = $log =~ /\[(\d+)\][^\n]* LOG:  batch job "limited" has finished/;
my @logged = $log =~ /\[$worker\][^\n]*Transaction: [\d.]+ ms, of which ([\d.]+) ms paused/g;
cmp_ok(scalar @logged, '>', 100, 'transactions that have paused');
is(scalar(grep { $_ > 0 } @logged), 0, 'none of them in flight');
is($dt->group_row('g')->{releases}, 0, 'nobody had to wait');

# From a tenth of it on, what is left is known within a fifth.
my $job = job('limited');
my $total = $job->{elapsed_time} / 1000;
cmp_ok(abs($total - $us / $second), '<', 1, "it knows for how long it has run: $total s");
my ($known, @wrong) = (0);
foreach my $sample (@samples)
{
	my ($seen, $left, $elapsed) = split /\|/, $sample;

	next if !defined $left || $seen < $rows / 10;
	$known++;
	my $truth = $total - $elapsed / 1000;
	push @wrong, "at $seen rows: $left s instead of $truth"
	  if abs($left - $truth) > 0.2 * $truth + 0.2;
}
is_deeply(\@wrong, [], 'how long it will take');
cmp_ok($known, '>', 0, "that was looked at $known times");
cmp_ok(abs($job->{paused_time} / 1000 - $total), '<', 1, 'nearly all of it was pauses');

# Every 10 s its client is told.
my @notices = grep { /rows per second/ } split /\n/, $r->{err};
is(scalar @notices, int($total / 10), 'notices');
my ($percent, $changed, $seen, $rate, $left) = ($notices[0] // '') =~
  /^NOTICE: .*batch job "limited": (\d+) %, (\d+) of (\d+) rows changed in \d+ batches, (\d+) rows per second, about 0:00:(\d\d) left$/
  or diag $notices[0];
is($percent, int(100 * $seen / $rows), 'a notice: percent');
is($changed, $seen, 'a notice: rows');
cmp_ok(abs($rate - $kb * 1000 / $DirtyThrottle::Clock::BLOCK), '<', 25, "a notice: rows per second: $rate");
cmp_ok(abs($left - ($rows - $seen) / $rate), '<', 1, "a notice: how long it will take: $left s");

# When it becomes slower, that is how long it takes at least.
$dt->sql('UPDATE t SET n = 0; CHECKPOINT');
$dt->fresh(g => (dirty => $kb));
my $is_slow = 0;
$dt->running(sub {
	$s->send(call('slower', 't'));
	until ($s->finished(0.02))
	{
		next if $is_slow || ($dt->sql(q{SELECT rows < 2500 FROM dirty_throttle_batches WHERE name = 'slower'}) || 't') ne 'f';
		$dt->sql(qq{SELECT set_group_dirty_limit('g', $kb / 4)});
		$is_slow = 1;
	}
});
@notices = $s->wait->{err} =~ /rows per second, (about|at least) 0:00:\d\d left$/mg;
is(join(', ', @notices[0, 1]), 'about, at least', 'a job that becomes slower: how long it will take');
$dt->fresh(g => (dirty => $kb));

# It ends when its time is over, after the batch that runs then.
$dt->sql('UPDATE t SET n = 0; CHECKPOINT');
$us = $dt->running(sub { $s->query(call('run_time', 't', run_time => '5 s')) });
$job = job('run_time');
is($job->{state}, 'stopped', 'run_time: the state');
cmp_ok($us / $second, '>=', 5, 'run_time: it is over, s');
cmp_ok($us / $second, '<', 5.2, 'run_time: not long ago, s');
$dt->limit(g => 0);
is($s->query(call('run_time', 't')), ($rows - $job->{rows}) . '|t', 'run_time: it goes on');

# After a checkpoint each row costs a page of WAL: it goes on with few of them, as many
# as its batches had before.
my @cheap = (statement => 'UPDATE t SET n = n + 1 / (id <> 3001)::int WHERE {batch}');
$dt->sql('UPDATE t SET n = 0');
$dt->fresh(g => (wal => 400));
$dt->running(sub { $r = $s->run(call('checkpoint', 't', @cheap)) });
is($r->{sqlstate}, '22012', 'rows that cost little WAL: some are left');
$job = job('checkpoint');
my $size = int($job->{rows} / $job->{batches});
cmp_ok($size, '>', 20, "rows that cost little WAL: a batch has $size of them");
$dt->sql('CHECKPOINT');
$mark = $dt->log_mark;
$dt->running(sub { $s->run(call('checkpoint', 't', @cheap, run_time => '1 s')) });
@logged = $dt->log_since($mark) =~ /paused for [\d.]+ ms in resource group "g"\n.*Transaction: [\d.]+ ms, of which ([\d.]+) ms paused/g;
is(scalar(grep { $_ > 0 } @logged), 0, 'rows that cost much WAL: none of its pauses is in flight');
$dt->limit(g => 0);

# ------------------------------------------------------ who wants rows meanwhile

# Rows all over a table are changed by somebody else while the job runs: he never waits
# for so long that the job would have to go on for him.
$dt->sql(q{CREATE TABLE shared WITH (fillfactor = 10) AS SELECT * FROM t WHERE id <= 2000 ORDER BY id;
	ALTER TABLE shared ADD PRIMARY KEY (id);
	VACUUM ANALYZE shared; CHECKPOINT});
$dt->fresh(g => (dirty => $kb));
$s->query(q{SET dirty_throttle.max_blocking_time = '100ms'});
my $changed_by_others = 0;
$dt->running(sub {
	$s->send(call('beside', 'shared'));
	until ($s->finished(0.01))
	{
		# all over the table: a batch that has few rows to dirty is larger, and so is the next
		$other->query('UPDATE shared SET filler = filler WHERE id % 200 = '
			  . $changed_by_others++ * 77 % 200);
	}
});
is($s->wait->{sqlstate}, undef, 'a job beside others that change rows of its table');
cmp_ok($changed_by_others, '>', 1, "which they did $changed_by_others times");
is($dt->group_row('g')->{releases}, 0, 'it never had to go on for them');

# One statement has to, at once and then to its end.
$dt->sql('VACUUM shared; CHECKPOINT');
$dt->fresh(g => (dirty => $kb));
$s->send('UPDATE shared SET n = n');
$dt->advance(2 * $second);
ok(!$s->finished, 'the same as one statement');
$other->send('UPDATE shared SET filler = filler WHERE id = 1');
ok( poll_until(
		sub {
			$dt->sql(q{SELECT count(*) FROM pg_stat_activity
				WHERE wait_event_type = 'Lock' AND pid = } . $other->pid);
		}),
	'somebody wants a row');
$dt->advance(0.2 * $second);
ok($other->finished(180), 'and gets it after 0.2 s');
is($other->wait->{sqlstate}, undef, 'without an error');
cmp_ok($dt->group_row('g')->{releases}, '>', 0, 'it has gone on for him');
$dt->limit(g => 0);
is($s->wait->{sqlstate}, undef, 'to its end');
$s->query('RESET dirty_throttle.max_blocking_time');

# --------------------------------------------------------------- trying again

# Somebody keeps a row, of the last batch; after ten times it is given up.
$other->query('BEGIN; UPDATE t SET n = 5 WHERE id = 2000');
my $start = $dt->now;
$us = $dt->running(sub { $free->run(call('locked', 't', start => 1900, finish => 2000)) });
$r = $free->wait;
is($r->{sqlstate}, '55P03', 'a row that is locked: the error');
like($r->{err}, qr/canceling statement due to lock timeout.*HINT: .*The batch failed 10 times in a row.*SELECT start_batches\('locked'\) continues after the last batch/s, 'what it says');
cmp_ok($us / $second, '>=', 42.6, 'it has waited 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10 and 10 s, after it has come to that row');
cmp_ok($us / $second, '<', 60, 'and not for long before');
$job = job('locked');
is($job->{state}, 'failed', 'the view');
cmp_ok($job->{retries}, '>=', 9, 'the view: how often it was tried again');
$other->query('ROLLBACK');
is($free->query(call('locked', 't', start => 1900, finish => 2000)) =~ /\|t$/, 1, 'later it goes on');
is($dt->sql('SELECT count(*) FROM t WHERE n = 2 AND id BETWEEN 1900 AND 2000'), 101, 'each row once');

# Whoever waits so is stopped at once.
$other->query('BEGIN; UPDATE t SET n = 5 WHERE id = 2000');
$free->send(call('stopped', 't', start => 2000, finish => 2000));
my $stopped = DirtyThrottle::Batches::worker($dt, 'stopped');
ok(poll_until(sub { $dt->sql("SELECT dt_test_state($stopped)") eq 'sleeps' }), 'it waits before it tries again');
$dt->sql(q{SELECT stop_batches('stopped')});
is($free->wait->{out}, '0|f', 'it is stopped');
$other->query('ROLLBACK');

# The view says so while it waits, and who has the row; or the table, next time.
$other->query(q{SET application_name = 'nightly report'; BEGIN; UPDATE t SET n = 5 WHERE id = 2000});
$free->send(call('held', 't', start => 2000, finish => 2000));
$stopped = DirtyThrottle::Batches::worker($dt, 'held');
foreach my $held ('the row with key {2000}', 'table "t"')
{
	ok(poll_until(sub { $dt->sql("SELECT dt_test_state($stopped)") eq 'sleeps' }), "$held is locked: it waits");
	$job = job('held');
	is("$job->{state}|$job->{retries}", $held =~ /row/ ? 'running|1' : 'running|2', "$held is locked: how often it was tried again");
	is( $job->{error},
		'canceling statement due to lock timeout. Process ' . $other->pid . ' (role "' . $dt->sql('SELECT current_user')
		  . "\") holds $held.",
		"$held is locked: who has it");
	$other->query('LOCK t IN SHARE MODE');
	$dt->advance(0.2 * $second);
}
$dt->sql(q{SELECT stop_batches('held')});
$free->wait;
$other->query('ROLLBACK; RESET application_name');

# Its session is moved while it pauses: what it has paused there counts, and no more.
$dt->sql('CHECKPOINT');
$dt->fresh(g => (dirty => $kb));
$s->send(call('moved', 't'));
my $pid = DirtyThrottle::Batches::worker($dt, 'moved');
$dt->advance(3 * $second);
$dt->sql(qq{SELECT set_session_group($pid, 'free')});
is($s->wait->{out}, "$rows|t", 'moved: to the end');
my $paused = job('moved')->{paused_time};
cmp_ok($paused, '>', 2000, 'moved: what it has paused before, ms');
cmp_ok($paused, '<=', 3000, 'moved: and no more');

# Who is to stop while it pauses before a batch does not run that one.
$dt->sql('CHECKPOINT');
$dt->fresh(g => (dirty => $kb));
$s->send(call('stopped in a pause', 't'));
$pid = DirtyThrottle::Batches::worker($dt, 'stopped in a pause');
$dt->advance(3 * $second);
my $batches = job('stopped in a pause')->{batches};
$dt->sql(q{SELECT stop_batches('stopped in a pause')});
like($s->wait->{out}, qr/^\d+\|f$/, 'stopped in a pause: it ends, while the clock stands still');
cmp_ok(job('stopped in a pause')->{batches}, '<=', $batches + 1, 'stopped in a pause: without another batch, if that had not begun');

# In a suspended group, and with an hour owed: the same.
foreach my $how ('suspended', 'an hour')
{
	$dt->sql('CHECKPOINT');
	$dt->fresh(g => (dirty => $how eq 'suspended' ? $kb : 1));
	$s->send(call($how, 't'));
	# the CALL may have to pay first for what it has stored before
	ok( poll_until(
			sub {
				$dt->advance(1 * $second);
				return (job($how) // {})->{pid};
			}),
		"stop_batches(), $how: the job runs");
	$dt->sql(q{SELECT suspend_group('g')}) if $how eq 'suspended';
	$dt->advance(1 * $second);
	$dt->sql("SELECT stop_batches('$how')");
	ok(poll_until(sub { job($how)->{state} eq 'stopped' }), "stop_batches(), $how: it ends, while the clock stands still");
	ok($s->finished(30), "stop_batches(), $how: so does the CALL");
	$dt->sql(q{SELECT resume_group('g')}) if $how eq 'suspended';
	$dt->limit(g => 0);
	like($s->wait->{out}, qr/^\d+\|f$/, "stop_batches(), $how: what it returns");
}

# In a suspended group a CALL waits before it begins, as all that writes does.
# start_batches(), called by a SELECT, begins the job, and its client hears of that after
# max_commit_pause.
$dt->fresh('g');
$dt->sql(q{SELECT suspend_group('g')});
$s->send(call('called', 't'));
$dt->settle;
is($dt->state($s), 'sleeps', 'a CALL in a suspended group waits');
is(job('called'), undef, 'before it begins');
my $starter = $dt->session(group => 'g');
$starter->query(q{SET dirty_throttle.max_commit_pause = '20s'});
$starter->send(DirtyThrottle::Batches::start_call($dt, 'started', 't'));
ok(poll_until(sub { (job('started') // { state => '' })->{state} eq 'suspended' }), 'start_batches() in a suspended group begins the job');
$dt->settle;
ok(!$starter->finished, 'its client waits');
$dt->advance(20 * $second);
ok($starter->finished(180), 'but no longer than max_commit_pause');
is($starter->wait->{sqlstate}, undef, 'without an error');
$dt->sql(q{SELECT stop_batches('started')});
ok(poll_until(sub { job('started')->{state} eq 'stopped' }), 'the job is stopped while its group is suspended');
is(job('started')->{rows}, 0, 'and has done nothing');
$dt->sql(q{SELECT resume_group('g')});
is($s->wait->{out}, "$rows|t", 'the CALL goes on when the group is resumed');
$starter->quit;
@{ $dt->{sessions} } = grep { $_ != $starter } @{ $dt->{sessions} };

# ------------------------------------------------------ transactions made long

sub long
{
	my ($log) = @_;
	return [ $log =~ /LOG:  a transaction of process \d+ took ([\d.]+) s, of which ([\d.]+) s were pauses in resource group "g"\n.*HINT:  A limit makes a large transaction long;.*start_batches\(\)/g ];
}

# In so many virtual seconds, and with so many more in which its client does nothing
sub transaction
{
	my ($seconds, $idle) = @_;

	$dt->sql('CHECKPOINT');
	$dt->fresh(g => (dirty => 100));
	$mark = $dt->log_mark;
	$s->query('BEGIN');
	$s->send("UPDATE t SET n = n + 1 WHERE id <= $seconds * 100000 / 8192");
	my $ms = $dt->run / 1000;
	$s->wait;
	my $row = $dt->session_row($s);
	is($row->{xact_paused_time}, $ms, "$seconds s: in the view, as long as it has paused");
	$dt->advance($idle * $second) if $idle;
	$dt->running(sub { $s->query('COMMIT') });
	is($dt->session_row($s)->{xact_paused_time}, 0, "$seconds s: it is over");
	return long($dt->log_since($mark));
}

$s->query('SET dirty_throttle.log_min_pause = -1');
my $long = transaction(70, 0);
is(scalar @$long, 2, 'pauses of more than a minute: a message');
cmp_ok($long->[0], '>=', $long->[1], 'pauses of more than a minute: it was longer, s');
cmp_ok($long->[1], '>', 60, 'pauses of more than a minute: s');
is_deeply(transaction(50, 0), [], 'less than a minute: none');
is_deeply(transaction(70, 30), [], 'less than nine tenths of it: none');

# The time of a command that has paused nowhere is not that of the next one.
$dt->fresh('g');
$dt->sql('UPDATE t SET n = n + 1');
$other->query('BEGIN; LOCK t IN SHARE UPDATE EXCLUSIVE MODE');
$s->send('VACUUM t');
ok(poll_until(sub { $dt->state($s) eq 'waits' }), 'a command waits');
$dt->sql("SELECT dt_test_advance(60 * $second)");
$other->query('COMMIT');
is($s->wait->{sqlstate}, undef, 'a command that takes a minute');
is(scalar @{ transaction(70, 0) }, 2, 'the one after it: a message');

# What waits before it has begun keeps nothing.
foreach my $sql ('UPDATE t SET n = n + 1 WHERE id = 1', 'BEGIN; UPDATE t SET n = n + 1 WHERE id = 1; COMMIT')
{
	$dt->fresh('g');
	$mark = $dt->log_mark;
	$dt->sql(q{SELECT suspend_group('g')});
	$s->send($sql);
	$dt->advance(120 * $second);
	is($dt->session_row($s)->{xact_paused_time}, 120_000, "$sql: it waits, which is seen, ms");
	$dt->sql(q{SELECT resume_group('g')});
	$dt->settle;
	is($s->wait->{sqlstate}, undef, "$sql: it is done");
	is_deeply(long($dt->log_since($mark)), [], "$sql: no message of a long transaction");
}

# One that has a snapshot by then keeps dead rows everywhere.
$mark = $dt->log_mark;
$s->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$dt->sql(q{SELECT suspend_group('g')});
$s->send('UPDATE t SET n = n + 1 WHERE id = 1; COMMIT');
$dt->advance(120 * $second);
is($dt->state($s), 'sleeps', 'it has a snapshot, and waits');
$dt->sql(q{SELECT resume_group('g')});
$dt->settle;
is($s->wait->{sqlstate}, undef, 'it has a snapshot, and is done');
is_deeply([ map { $_ >= 119 } @{ long($dt->log_since($mark)) } ], [ 1, 1 ], 'and a message');

# What it pauses later counts alone.
$dt->sql(q{CHECKPOINT; SELECT suspend_group('g')});
$mark = $dt->log_mark;
$s->send('UPDATE t SET n = n + 1');
$dt->advance(120 * $second);
$dt->sql(q{SELECT set_group_dirty_limit('g', 100)});    # which is in force when that is committed
$dt->sql(q{SELECT resume_group('g')});
$us = $dt->run;
$s->wait;
$long = long($dt->log_since($mark));
is(scalar @$long, 2, 'pauses before and in flight: a message');
cmp_ok(abs($_ - $us / $second), '<', 0.2, "pauses before and in flight: of those in flight: $_ s") foreach @$long;
$s->query('SET dirty_throttle.log_min_pause = 0');
$mark = $dt->log_mark;
$dt->sql(q{SELECT set_group_dirty_limit('g', 0), suspend_group('g')});
$s->send('UPDATE t SET n = n + 1 WHERE id = 1');
$dt->advance(120 * $second);
$dt->sql(q{SELECT resume_group('g')});
$dt->settle;
$s->wait;
like($dt->log_since($mark), qr/paused for 120000\.000 ms in resource group "g"\n.*Transaction: \d\.\d+ ms, of which 0\.000 ms paused/, 'log_min_pause tells of it, and that it was before');
$dt->limit(g => 0);

$_->quit foreach $s, $free, $other;
$dt->finish;
