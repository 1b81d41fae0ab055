# Batch jobs when the server, the worker or the waiting client is killed, or the worker
# or the client terminated, again and again, at any moment: at the end each row was
# changed once. A standby that is promoted in the middle goes on. DT_KILLS: how many of
# each, 50 for instance.
#
# takes-about: 18 s
#
# expect-in-log: WARNING:  PID [0-9]+ is not a PostgreSQL (server|backend) process
# expect-in-log: \(PID [0-9]+\) was terminated by signal 9
# expect-in-log: WARNING: .*terminating connection because of crash

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

my $KILLS = $ENV{DT_KILLS} || 8;
my $dt = DirtyThrottle::Batches->new('batches_crash', conf => "restart_after_crash = on\n");
my $node = $dt->node;
my $rows = 20000;
my $runs = 1;    # of the whole job, each of which changes each row

sub call
{
	return $dt->call('job', 't', max_rows => 10, restart => 'true', @_);
}

sub recovers
{
	my ($mark) = @_;

	poll_until(sub { $dt->log_since($mark) =~ /ready to accept connections/ })
	  or die 'the server does not recover';
	$dt->disconnect;
}

# What is killed, each time in another moment of the job.
my %ways = (
	server => sub {
		my @pids = split /\n/, $dt->sql('SELECT pid FROM pg_stat_activity');
		my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;

		$node->kill9;
		poll_until(sub { !grep { !gone($_) } $postmaster, @pids });
		$dt->bury($postmaster);
		$dt->disconnect;
		$node->start;
	},
	worker => sub {
		my $mark = $dt->log_mark;

		kill('KILL', $_[1]) or return;
		recovers($mark);
	},
	client => sub {
		my $mark = $dt->log_mark;

		kill 'KILL', $_[0];
		recovers($mark);
	},
	'worker, terminated' => sub { $dt->sql("SELECT pg_terminate_backend($_[1])") },
	'worker, canceled' => sub { $dt->sql("SELECT pg_cancel_backend($_[1])") },
	'client, terminated' => sub { $dt->sql("SELECT pg_terminate_backend($_[0])") });

$dt->counted(t => $rows);
my (%done, $resumed);
KILL: foreach my $kill (1 .. $KILLS)
{
	foreach my $way (sort keys %ways)
	{
		my $s = $dt->session;
		my $client = $s->pid;
		my $before = $dt->job('job');

		$runs++ if $before && $before->{state} eq 'finished';
		$resumed++ if $before && $before->{state} ne 'finished';
		$s->send(call());
		# some die before the first batch, and some after many
		poll_until(sub { ($dt->job('job') // {})->{pid} || $s->finished }) or die 'it does not begin';
		sleep rand 0.15 if $kill % 3;
		my $worker = $dt->job('job')->{pid};
		if ($worker)
		{
			$ways{$way}->($client, $worker);
			$done{$way}++;
		}
		$s->quit if $way !~ /client/ || $way =~ /terminated/;
		$s->abandon if $s->can('abandon') && $way eq 'client';
		poll_until(sub { my $job = $dt->job('job'); !$job || !$job->{pid} || $way =~ /client, terminated/ })
		  or die "$way: it still runs";
		if ($way eq 'client, terminated')
		{
			$dt->sql(q{SELECT stop_batches('job')}) if $dt->job('job')->{pid};
			poll_until(sub { !$dt->job('job')->{pid} }) or die 'it is not stopped';
		}

		# nothing says that it runs, and what is counted is what has been changed
		my $job = $dt->job('job') or next;
		my ($state, $changed) = @$job{qw(state rows)};
		my $all = $dt->sql('SELECT sum(n) FROM t');
		if ($state !~ /^(interrupted|stopped|finished)$/ || $changed != $all - ($runs - 1) * $rows)
		{
			# the restart itself may not have been committed
			next if $state eq 'finished' && $all == ($runs - 1) * $rows && --$runs;
			fail("$way, $kill: $state, $changed rows, $all in all, run $runs");
			last KILL;
		}
	}
}
my $s = $dt->session;
$s->query(call()) if $dt->job('job')->{state} ne 'finished';
is($dt->counts('t'), "$runs:$rows", "each row was changed once in each of $runs runs");
cmp_ok($resumed, '>', $KILLS, "it went on in the middle $resumed times");
note join ', ', map { "$_: $done{$_}" } sort keys %done;
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
like($r->{err}, qr/cannot execute start_batches\(\) during recovery/, 'what it says');
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
