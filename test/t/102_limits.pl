# Limits and bursts that change, and pauses that are bounded, to the microsecond,
# on a clock that stands still while statements run.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use Test::More;

# expect-in-log: WARNING:  resource group "h" does not exist

my $dt = DirtyThrottle::Clock->new('limits', conf => q{
dirty_throttle.transaction_grace = 0
max_worker_processes = 8
max_parallel_workers_per_gather = 2
});

$dt->limit(g => 0);
$dt->create_sleep_tables;
$dt->sql('CREATE TABLE t (id int, filler text) WITH (fillfactor = 10)');

my $s = $dt->session(group => 'g');
my @kinds = sort keys %DirtyThrottle::KINDS;

sub rows
{
	my ($n) = @_;
	return "INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

# At 1000 KB/s a byte is a microsecond.
sub debt
{
	my ($session) = @_;
	return sprintf '%.0f', 1000 * $dt->session_row($session // $s)->{dirty_debt};
}

# Put the session to sleep, do something, and it goes on in no time.
sub check_goes_on
{
	my ($name, $kind, $code, %kb) = @_;

	$dt->fresh(g => $kb{wal} ? (wal => 1) : (dirty => 1));
	$s->send($DirtyThrottle::KINDS{$kind}[1]);
	$dt->settle;
	is($dt->state($s), 'sleeps', "$name, $kind: it pauses");
	my $then = $dt->now;
	$code->();
	$dt->settle;
	is($dt->now, $then, "$name, $kind: no time passes");
	ok($s->finished, "$name, $kind: it goes on") or $dt->cancel_ms($s);
	is($s->wait->{sqlstate}, undef, "$name, $kind: without an error");
	is($dt->group_row('g')->{paused}, 0, "$name, $kind: nobody pauses");
}

foreach my $kind (@kinds)
{
	foreach my $what ('dirty', 'wal')
	{
		check_goes_on("$what limit removed", $kind,
			sub { $dt->sql("SELECT set_group_${what}_limit('g', 0)") }, $what => 1);
		check_goes_on("$what limit raised", $kind,
			sub { $dt->sql("SELECT set_group_${what}_limit('g', 16777216)") }, $what => 1);
	}
}
foreach my $kind ('in flight', 'after commit')
{
	check_goes_on('dirty_throttle.enabled = off', $kind,
		sub {
			$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
			$dt->sql('SELECT pg_reload_conf()');
			$s->finished(180);
		});
	poll_until(sub { $dt->sql('SHOW dirty_throttle.enabled') eq 'off' }, 180);
	$dt->sql('ALTER SYSTEM RESET dirty_throttle.enabled');
	$dt->sql('SELECT pg_reload_conf()');
	poll_until(sub { $dt->sql('SHOW dirty_throttle.enabled') eq 'on' }, 180);
}

subtest 'it sleeps on after a small change, and pays the rest at the new rate' => sub {
	foreach my $kb (2000, 700, 333)
	{
		$dt->fresh(g => dirty => 1000);
		$s->send($DirtyThrottle::KINDS{'after commit'}[1]);
		$dt->settle;
		$dt->advance(123_456);
		my $debt = debt();
		my ($used) = $dt->used('g', 'dirty');
		is($debt, $used - 20_000 - 123_456, "$kb: what is owed");
		$dt->limit(g => $kb);
		$dt->settle;
		is($dt->state($s), 'sleeps', "$kb: it sleeps on");
		is(debt(), $debt, "$kb: and owes what it has owed");
		is($dt->run, lone_pause_us($debt, $kb), "$kb: until it is paid");
	}
};

subtest 'who owes for both limits' => sub {
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);
	$dt->fresh(g => dirty => 2000, wal => 2000);
	$s->send(rows(100));
	$dt->settle;
	my $row = $dt->session_row($s);
	is($row->{paused_by}, 'dirty', 'paused_by: the one that takes longer');
	cmp_ok($row->{wal_debt}, '>', 10, 'WAL is owed, too');
	$dt->sql(q{SELECT set_group_wal_limit('g', 100)});
	$dt->settle;
	is($dt->session_row($s)->{paused_by}, 'wal', 'lowered: the other one');
	$dt->sql(q{SELECT set_group_dirty_limit('g', 200), set_group_wal_limit('g', 2)});
	$dt->settle;
	is($dt->session_row($s)->{paused_by}, 'wal', 'both by more than a second: still');
	$dt->limit(g => 0);
	$dt->settle;
	is($dt->state($s), 'sleeps', 'the dirty limit removed: it sleeps on');
	$row = $dt->session_row($s);
	is("$row->{paused_by} $row->{dirty_debt}", 'wal 0', 'for the WAL');
	is($dt->group_row('g')->{wal_debt}, $row->{wal_debt}, 'which the group owes');
	my $then = $dt->now;
	$dt->sql(q{SELECT set_group_wal_limit('g', 0)});
	$dt->settle;
	ok($s->finished && $dt->now == $then, 'no limit any more: it goes on in no time')
	  or $dt->cancel_ms($s);
	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
};

subtest 'a rename, and a forced drop' => sub {
	$dt->fresh(g => dirty => 1000);
	$s->send($DirtyThrottle::KINDS{'after commit'}[1]);
	$dt->settle;
	my $debt = debt();
	$dt->sql(q{SELECT rename_resource_group('g', 'h')});
	$dt->settle;
	is($dt->state($s), 'sleeps', 'it sleeps on after a rename');
	is($dt->session_row($s)->{group_name}, 'h', 'in the renamed group');
	is($dt->group_row('h')->{paused}, 1, 'which counts it');
	is($dt->run, lone_pause_us($debt, 1000), 'for as long as before');
	is($s->query('SHOW dirty_throttle."group"'), 'h', 'it knows the new name');

	foreach my $kind (@kinds)
	{
		my $t = $dt->session(group => 'h');

		$dt->fresh(h => dirty => 1);
		$t->send($DirtyThrottle::KINDS{$kind}[1]);
		$dt->settle;
		is($dt->state($t), 'sleeps', "$kind: it pauses");
		my $then = $dt->now;
		$dt->sql(q{SELECT drop_resource_group('h', force => true)});
		$dt->settle;
		ok($t->finished, "$kind: dropped by force: it goes on") or $dt->cancel_ms($t);
		is($dt->now, $then, "$kind: in no time");
		is($t->wait->{sqlstate}, undef, "$kind: without an error");
		is($dt->session_row($t), undef, "$kind: in no group");
		is($t->query('SHOW dirty_throttle."group"'), '', "$kind: and knows it");
		is($t->run(rows(50))->{sqlstate}, undef, "$kind: and not throttled");
		$t->quit;
		$dt->limit(h => 0);
	}
	$s->quit;
	$dt->sql(q{SELECT drop_resource_group('h', force => true); SELECT set_group_dirty_limit('g', 0)});
	$s = $dt->session(group => 'g');
};

# The group has gone, and another one is in its place, before its sleepers know.
subtest 'what was paused for a group that is dropped' => sub {
	my %sql = map { $_ => $DirtyThrottle::KINDS{$_}[1] } @kinds;

	$sql{'in parallel workers'} = 'SELECT count(*) FROM sleep';
	foreach my $kind (sort keys %sql)
	{
		# one of two workers reads more than what does not make it pause
		$dt->sql("TRUNCATE sleep; ALTER TABLE sleep SET (parallel_workers = 2);
			INSERT INTO sleep SELECT i, repeat('x', 800) FROM generate_series(1, 300) i;
			CHECKPOINT")
		  if $kind =~ /workers/;
		$dt->limit(h => 1);
		my $t = $dt->session(group => 'h');
		my $mark = $dt->log_mark;

		$t->query($_)
		  foreach 'SET dirty_throttle.log_min_pause = 0', 'SET parallel_leader_participation = off',
		  'SET parallel_setup_cost = 0';
		$t->send($sql{$kind});
		$dt->settle;
		my @pids = $t->pid;
		if ($kind =~ /workers/)
		{
			ok( poll_until(
					sub {
						push @pids, split /\n/,
						  $dt->sql('SELECT pid FROM pg_stat_activity WHERE leader_pid <> pid
							AND ' . q{dt_test_state(pid) = 'sleeps'});
						@pids > 1;
					}, 180),
				"$kind: one sleeps");
		}
		$dt->advance(300_000);
		kill STOP => @pids;
		$dt->sql(q{SELECT drop_resource_group('h', force => true)});
		$dt->limit(i => 1);
		kill CONT => @pids;
		$dt->settle;
		is($t->wait->{sqlstate}, undef, "$kind: it goes on");
		is_deeply(
			[ $dt->log_since($mark) =~ /process @{[$t->pid]} paused for (.*)/g ],
			['300.000 ms in resource group "h"'],
			"$kind: the log tells all of it");
		is($dt->group_row('i')->{paused_time}, 0, "$kind: but not of the other group");
		$t->quit;
		$dt->sql(q{SELECT drop_resource_group('i')});
	}
};

# The pause was in the group that the session has left.
subtest 'who is moved while it pauses' => sub {
	foreach my $kind (@kinds)
	{
		$dt->limit($_ => 1) foreach 'h', 'i';
		my $t = $dt->session(group => 'h');

		$t->send($DirtyThrottle::KINDS{$kind}[1]);
		$dt->settle;
		is($dt->state($t), 'sleeps', "$kind: it pauses");
		$dt->advance(300_000);
		$dt->sql('SELECT set_session_group(' . $t->pid . q{, 'i')});
		$dt->settle;
		is($dt->group_row('h')->{paused_time}, 300, "$kind: so long in its old group");
		is($dt->session_row($t)->{paused_time}, 0, "$kind: and not in the new one");
		$dt->limit(i => 0);
		$t->wait;
		$t->quit;
		$dt->sql("SELECT drop_resource_group('$_', force => true)") foreach 'h', 'i';
	}
};

subtest 'what is used while there is no limit is not owed' => sub {
	foreach my $where ('after the transaction', 'in the same one')
	{
		$dt->fresh('g');
		$s->query('BEGIN') if $where =~ /same/;
		$s->query(rows(100));
		is(debt(), 0, "$where: no debt without a limit");
		$dt->fresh(g => dirty => 1000);
		# the next statement counts what has not been counted yet
		$s->query('SELECT 1');
		$dt->sql('SELECT dirty_throttle_reset()');
		$s->send(rows(70) . ($where =~ /same/ ? '; COMMIT' : ''));
		$dt->run;
		my ($used) = $dt->used('g', 'dirty');
		cmp_ok($used, '<', 80 * 8192, "$where: what came then");
		$dt->check_books('g', 'dirty', "$where: is owed");
	}
};

subtest 'while a statement runs' => sub {
	my $allowed = 20_000;

	$dt->fresh(g => dirty => 1000);
	$s->send(rows(5000));
	foreach my $step ([ 1000, 2 ], [ 4000, 1.5 ], [ 500, 3 ], [ 777, 2 ], [ 8000, 0.5 ])
	{
		my ($kb, $seconds) = @$step;

		$dt->limit(g => $kb);
		$dt->advance(1e6 * $seconds);
		is($dt->state($s), 'sleeps', "$kb: it pauses");
		$allowed += 1000 * $kb * $seconds;
		my ($used, $owed) = $dt->used('g', 'dirty');
		ok(abs($used - $allowed - $owed) <= 10,
			sprintf('%d: used %d = allowed %d + owed %d', $kb, $used, $allowed, $owed));
		cmp_ok($owed, '<=', granted(kb => $kb, grace_ms => 0, new => 1) + 8000 * 20,
			"$kb: and that is little");
	}
	my $then = $dt->now;
	$dt->limit(g => 0);
	$dt->settle;
	ok($s->finished, 'no limit any more: it ends') or $dt->cancel_ms($s);
	is($dt->now, $then, 'in no time');
	is($s->wait->{sqlstate}, undef, 'without an error');
	my $row = $dt->group_row('g');
	is("$row->{paused} $row->{members} $row->{dirty_debt}",
		'0 1 0', 'nobody pauses, one member, no debt');
};

subtest 'what has owed more than the grace pauses for less from then on' => sub {
	$dt->set_conf('dirty_throttle.transaction_grace', '200ms', $s);
	$dt->fresh(g => dirty => 1000);
	my $before = $dt->session_row($s)->{pauses};
	$s->send(rows(200));
	$dt->settle;
	cmp_ok(debt(), '>=', 200_000, 'it pauses when it owes as much as the grace');
	$dt->run;
	# 1.6 MB in parts of 200 ms would be eight pauses
	cmp_ok($dt->session_row($s)->{pauses} - $before, '>', 20, 'pauses');
	is($s->wait->{sqlstate}, undef, 'without an error');
	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
};

$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);

subtest 'max_commit_pause bounds the pause, the rest is paid before the next' => sub {
	foreach my $ms (500, 1, 0)
	{
		$dt->fresh(g => dirty => 1000);
		$s->query("SET dirty_throttle.max_commit_pause = $ms");
		$s->send(rows(100));
		is($dt->run, 1000 * $ms, "$ms ms: so long it pauses");
		my $debt = debt();
		my ($used) = $dt->used('g', 'dirty');
		is($debt, $used - 20_000 - 1000 * $ms, "$ms ms: the rest is owed");
		is($dt->group_row('g')->{paused}, 0, "$ms ms: nobody pauses");
		$s->send("$MAY_WRITE; SELECT 1");
		is($dt->run, $debt, "$ms ms: the next transaction pays all of it");
		is($s->wait->{out}, '1', "$ms ms: and does what it does");
		$s->send($MAY_WRITE);
		is($dt->run, 0, "$ms ms: the one after that is free");
	}
	$s->query('RESET dirty_throttle.max_commit_pause');
};

# How long a transaction that uses so many blocks pauses now, and how many bytes
# that it has used it does not pay for.
sub saved
{
	my ($kb, $n) = @_;
	my ($before) = $dt->used('g', 'dirty');

	$s->send(rows($n));
	my $us = $dt->run;
	my ($used, $owed) = $dt->used('g', 'dirty');
	return ($us, $used - $before - $us * $kb / 1000);
}

subtest 'what is saved up' => sub {
	my $kb = 1000;

	foreach my $case (
		# burst, time since the last pause, saved up: all in ms
		[ 20, 60, 60 ], [ 20, 300, 100 ], [ 20, 1000, 100 ], [ 20, 1001, 20 ],
		[ 20, 3_600_000, 20 ], [ 0, 60, 60 ], [ 0, 1001, 0 ],
		[ 50, 400, 100 ], [ 50, 2000, 50 ], [ 500, 400, 400 ], [ 500, 2000, 500 ],
		[ 60_000, 59_000, 59_000 ], [ 60_000, 70_000, 60_000 ])
	{
		my ($burst, $idle, $saved) = @$case;
		my $name = "burst $burst, idle for $idle";

		$dt->fresh(g => dirty => $kb);
		$dt->sql("SELECT alter_resource_group('g', burst => $burst)");
		$s->send(rows(100));
		$dt->run;
		$dt->advance(1000 * $idle);
		my ($us, $bytes) = saved($kb, 100 + $saved / 8);
		is($bytes, 1000 * $saved, "$name: $saved ms of the limit are used at once");
		cmp_ok($us, '>', 0, "$name: then it pauses");
	}
	$dt->sql("SELECT alter_resource_group('g', burst => 20)");
};

subtest 'a burst that changes' => sub {
	my $kb = 1000;
	my $start = sub {
		my ($burst) = @_;
		$dt->fresh(g => dirty => $kb);
		$dt->sql("SELECT alter_resource_group('g', burst => $burst)");
		$s->send(rows(100));
		$dt->run;
	};

	$start->(1500);
	$dt->advance(5_000_000);
	$dt->sql("SELECT alter_resource_group('g', burst => 300)");
	is((saved($kb, 200))[1], 300_000, 'a shorter one takes what is saved up');

	$start->(20);
	$dt->advance(5_000_000);
	$dt->sql("SELECT alter_resource_group('g', burst => 1500)");
	is((saved($kb, 200))[1], 20_000, 'a longer one does not save for the time before');

	$start->(20);
	$dt->advance(5_000_000);
	$dt->sql("SELECT alter_resource_group('g', burst => 1500)");
	$dt->advance(700_000);
	is((saved($kb, 200))[1], 720_000, 'but from then on');

	$start->(1500);
	$dt->advance(5_000_000);
	$dt->limit(g => 500);
	is((saved(500, 200))[1], 750_000, 'at a lower limit the time counts');

	$start->(20);
	$s->send(rows(100));
	$dt->settle;
	my $debt = debt();
	$dt->sql("SELECT alter_resource_group('g', burst => 3600000)");
	$dt->settle;
	is($dt->state($s), 'sleeps', 'who sleeps is not let go by a burst');
	is($dt->run, $debt, 'and pays all');
	$dt->sql("SELECT alter_resource_group('g', burst => 20)");

	# a third of the limit all the time
	$start->(1500);
	my $pauses = $dt->group_row('g')->{pauses};
	foreach (1 .. 30)
	{
		$dt->advance(150_000);
		$s->query(rows(5));
	}
	is($dt->group_row('g')->{pauses}, $pauses, 'part use: no pause');
	my $t = $dt->session(group => 'g');
	$dt->advance(1_500_000);
	my ($before) = $dt->used('g', 'dirty');
	$_->send(rows(60)) foreach $t, $s;
	is($dt->run, 0, 'it is the group\'s: two members use it up');
	my ($used) = $dt->used('g', 'dirty');
	cmp_ok($used - $before, '>', 100 * 8192, 'and that is a lot');
	$t->quit;
};

# Half a second is a bucket of the meter; ten of them and the present one, which
# is over but for a microsecond, count.
subtest 'the rate in the view' => sub {
	my @used;

	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s);
	$dt->fresh(g => dirty => 3000);
	$s->send(rows(6000));
	$dt->advance(499_999 - $dt->now % 500_000);
	foreach my $i (0 .. 15)
	{
		push @used, ($dt->used('g', 'dirty'))[0];
		if ($i >= 11)
		{
			my $row = $dt->group_row('g');
			my $kb = ($used[$i] - $used[ $i - 11 ]) / 5499.999;
			ok(abs($row->{dirty_rate} - $kb) < 0.001,
				sprintf 'dirty_rate %.3f, used in 5.5 s: %.3f KB/s', $row->{dirty_rate}, $kb);
		}
		$dt->advance(500_000);
	}
	$dt->limit(g => 0);
	$s->wait;
	$dt->advance(6_000_000);
	is($dt->group_row('g')->{dirty_rate}, 0, 'and nothing later');
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s);
};

# It pays while it runs as soon as it owes so much, and no sooner.
foreach my $ms (30, 50, 100)
{
	my $owed = 0;

	$dt->set_conf('dirty_throttle.transaction_grace', "${ms}ms", $s);
	$dt->fresh(g => dirty => 1000);
	$s->query('BEGIN');
	foreach (1 .. 100)
	{
		$owed = debt();
		$s->send(rows(1));
		$dt->settle;
		last unless $s->finished;
	}
	cmp_ok($owed, '<', 1000 * $ms, "a grace of $ms ms: less is paid later");
	is($dt->state($s), 'sleeps', "a grace of $ms ms: it pauses");
	cmp_ok(debt(), '>=', 1000 * $ms, "a grace of $ms ms: when it owes that");
	$dt->run;
	$s->wait;
	$s->send('COMMIT');
	$dt->run;
}

$dt->finish;
