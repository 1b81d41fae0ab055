# run_in_batches() when the server is killed, or the CALL cancelled or its session
# terminated, again and again, at any moment: at the end each row was changed once. A
# standby that is promoted in the middle goes on.
#
# takes-about: 60 s
#
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# expect-in-log: WARNING: .*(batches ".*" are not throttled|terminating connection because of crash)

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Batches;
use DirtyThrottle::Life;
use DirtyThrottle::Standby;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep);

my $KILLS = $ENV{DT_KILLS} // 50;
my $dt = DirtyThrottle::Batches->new('batches_crash', conf => "restart_after_crash = on\n");
my $node = $dt->node;
my $rows = 20000;
my $runs = 1;    # of the whole job, each of which changes each row

sub call
{
	return $dt->call('job', 't', max_rows => 10, notice_every => '1 h', @_);
}

# The condition that a session runs the job, or has already finished it.
sub begun
{
	my ($pid, $before) = @_;
	return "pid = $pid OR finished_at IS DISTINCT FROM "
	  . ($before && defined $before->{finished_at} ? "'$before->{finished_at}'" : 'NULL');
}

$dt->counted(t => $rows);
my (%died, $resumed);
foreach my $kill (1 .. $KILLS)
{
	my $s = $dt->session;
	my $pid = $s->pid;
	my $before = $dt->job('job');

	if ($before && $before->{state} eq 'finished')
	{
		$s->send(call(restart => 'true'));
		$runs++;
	}
	else
	{
		$s->send(call());
		$resumed++ if $before;
	}
	# some die before the first batch, and some after many
	$dt->wait_job('job', begun($pid, $before)) if $kill % 3;
	sleep rand 0.15 if $kill % 3 == 2;
	if ($kill % 2)
	{
		my $mark = $dt->log_mark;

		kill 'KILL', $pid;
		$died{backend}++;
		poll_until(sub { $dt->log_since($mark) =~ /ready to accept connections/ })
		  or die 'the server does not recover';
		$dt->disconnect;
	}
	else
	{
		my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');
		my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

		$node->kill9;
		poll_until(sub { !grep { !gone($_) } $postmaster, @pids });
		$dt->bury($postmaster);
		$dt->disconnect;
		$node->start;
		$died{server}++;
	}
	$s->quit;

	# nothing says that it runs, and what is counted is what has been changed
	my $job = $dt->job('job') or next;
	my ($state, $changed) = @$job{qw(state rows)};
	my $all = $dt->sql('SELECT sum(n) FROM t');
	if (($state ne 'paused' && $state ne 'finished') || defined $job->{pid} || $changed != $all - ($runs - 1) * $rows)
	{
		# the restart itself may not have been committed
		next if $state eq 'finished' && $all == ($runs - 1) * $rows && --$runs;
		fail("kill $kill: $state, $changed rows, $all in all, run $runs");
		last;
	}
}
my $s = $dt->session;
$s->query(call()) if $dt->job('job')->{state} ne 'finished';
is($dt->counts('t'), "$runs:$rows", "after $KILLS kills each row was changed once in each of $runs runs");
cmp_ok($resumed, '>', $KILLS / 2, 'it went on in the middle');
is(join(' ', map { "$_ $died{$_}" } sort keys %died), 'backend ' . int(($KILLS + 1) / 2) . ' server ' . int($KILLS / 2), 'kills');
$s->quit;
$dt->stop;

# ------------------------------------------- cancelled or terminated, at any moment

$node->start;
$dt->counted(c => $rows);
$runs = 1;
my %ended;
foreach my $i (1 .. 2 * $KILLS)
{
	my $how = $i % 2 ? 'pg_cancel_backend' : 'pg_terminate_backend';
	my $before = $dt->job('any');

	$s = $dt->session;
	my $pid = $s->pid;
	my $restart = $before && $before->{state} eq 'finished';
	$s->send($dt->call('any', 'c', max_rows => 10, notice_every => '1 h', $restart ? (restart => 'true') : ()));
	$dt->wait_job('any', begun($pid, $before)) if $i % 3;
	sleep rand 0.1 if $i % 3 == 2;
	$dt->sql("SELECT $how($pid)");
	my $r = $s->wait;
	$s->quit;
	poll_until(sub { !$dt->sql('SELECT count(*) FROM dirty_throttle_batches WHERE pid IS NOT NULL') })
	  or die 'it still runs';
	$runs++ if $restart && ($dt->job('any')->{state} ne 'finished' || $dt->sql('SELECT sum(n) FROM c') > $runs * $rows);
	$ended{ $r->{sqlstate} // 'finished' }++;
	my $job = $dt->job('any') or next;
	my $all = $dt->sql('SELECT sum(n) FROM c');
	next if $job->{rows} == $all - ($runs - 1) * $rows && $job->{state} =~ /^(paused|finished)$/;
	fail("$how $i: $job->{state}, $job->{rows} rows, $all in all, run $runs");
	last;
}
note join ', ', map { "$_: $ended{$_}" } sort keys %ended;
$s = $dt->session;
$s->query($dt->call('any', 'c', max_rows => 10)) if $dt->job('any')->{state} ne 'finished';
is($dt->counts('c'), "$runs:$rows", 'each row was changed once in each run');
cmp_ok(($ended{57014} // 0), '>', $KILLS / 4, 'cancelled in the middle');
cmp_ok(($ended{'57P01'} // 0), '>', $KILLS / 4, 'terminated in the middle');
$s->quit;
$dt->stop;

# ------------------------------------------------------------------ a standby

my $primary = DirtyThrottle::Standby->primary('primary');
$primary->sql(qq{CREATE TABLE t (id bigint PRIMARY KEY, n int NOT NULL DEFAULT 0);
	INSERT INTO t SELECT i FROM generate_series(1, $rows) i});
my $standby = $primary->standby('standby');
my $job = $dt->call('job', 't', max_rows => 10);
$s = $primary->session;
$s->send($job);
ok(poll_until(sub { $standby->sql(q{SELECT count(*) FROM dirty_throttle_batches WHERE rows > 500}) }), 'the standby has the job');
is($standby->sql(q{SELECT state IS NULL AND pid IS NULL FROM dirty_throttle_batches}), 't', 'it does not know what runs');
my $on_standby = $standby->session;
my $r = $on_standby->run($job);
is($r->{sqlstate}, '25006', 'a CALL on the standby: the error');
like($r->{err}, qr/cannot run batches during recovery\n.*HINT: .*primary/s, 'what it says');
is($on_standby->run(q{SELECT forget_batches('job')})->{sqlstate}, '25006', 'nor is it forgotten there');
is($on_standby->run(q{SELECT stop_batches('job')})->{sqlstate}, '25006', 'nor stopped');
$primary->node->kill9;
$standby->node->promote;
ok(poll_until(sub { $standby->sql('SELECT NOT pg_is_in_recovery()') eq 't' }), 'it is promoted');
my $done = $standby->sql(q{SELECT rows FROM dirty_throttle_batches});
is($standby->sql('SELECT sum(n) FROM t'), $done, "it has $done rows, and knows that");
$r = $on_standby->run($job);
is($r->{out}, ($rows - $done) . '|t', 'the same CALL goes on there');
is(DirtyThrottle::Batches::counts($standby, 't'), "1:$rows", 'each row once');
$_->quit foreach $s, $on_standby;
$standby->stop;
done_testing();
