# Signal commit_latency: which commits are counted, and what follows from how
# long they take.  On a clock that stands still while statements run.  The law
# by itself is tested in test/unit.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use PostgreSQL::Test::Utils;
use Test::More;

my $second = 1_000_000;
my $dt = DirtyThrottle::Clock->new('commit_latency',
	conf => "dirty_throttle.transaction_grace = 0\nsynchronous_commit = local\n");

$dt->sql(
	q{SELECT alter_resource_group('batch'), alter_resource_group('other');
	CREATE TABLE t (id int, pad text);
	CREATE PROCEDURE job() LANGUAGE plpgsql AS $$
		BEGIN LOOP
			INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, 200) k;
			COMMIT;
		END LOOP; END $$;
	CREATE PROCEDURE as_member() LANGUAGE sql SET dirty_throttle."group" = 'batch'
		AS 'INSERT INTO t VALUES (1)'});

sub follow
{
	my ($group, $threshold) = @_;
	$dt->sql("SELECT set_group_pressure('$group', 'commit_latency', '$threshold')");
}

# --------------------------------------------------------- what is counted

# How many commits are counted of what a session runs.
sub counted
{
	my ($session, @statements) = @_;
	my $before = $dt->sql('SELECT dt_test_commits()');

	$session->query($_) foreach @statements;
	return $dt->sql('SELECT dt_test_commits()') - $before;
}

my $outsider = $dt->session;
my $member = $dt->session(group => 'batch');
my $other = $dt->session(group => 'other');
my @inserts = ('INSERT INTO t VALUES (1)') x 3;

is(counted($outsider, @inserts), 0, 'nobody follows the signal: nothing is counted');
follow('batch', '20%');
is(counted($outsider, @inserts), 3, 'outsiders are');
is(counted($other, @inserts), 3, 'so are members of a group that does not follow it');
is(counted($member, @inserts), 3, 'and of one that does, as long as they owe nothing');
$dt->sql(q{SELECT set_group_wal_limit('batch', 1000)});
is(counted($member, 'SET dirty_throttle.transaction_grace = $$1d$$', 'SET dirty_throttle.max_commit_pause = 0',
		@inserts), 3, 'also with a limit');
is(counted($member, q{INSERT INTO t SELECT k, repeat('x', 900) FROM generate_series(1, 200) k}), 0,
	'who owes something is not counted');
$dt->advance(10 * $second);
$member->query('RESET dirty_throttle.transaction_grace');
$dt->sql(q{SELECT set_group_wal_limit('batch', 0)});
is(counted($member, 'BEGIN', @inserts, q{SET dirty_throttle."group" = ''}, 'COMMIT'), 0,
	'nor the commit of who has written as one, and left');
is(counted($member, @inserts), 3, 'but those after it');
$member->query(q{SET dirty_throttle."group" = 'batch'});
is(counted($member, 'BEGIN', q{SET LOCAL dirty_throttle."group" = ''}, @inserts, 'COMMIT'), 0,
	'for one transaction');
is(counted($member, @inserts), 3, 'and so on');
is(counted($outsider, 'BEGIN', 'SAVEPOINT s', q{SET LOCAL dirty_throttle."group" = 'batch'}, @inserts,
		'ROLLBACK TO s', @inserts, 'COMMIT'), 0, 'nor of who was one until ROLLBACK TO');
is(counted($outsider, q{CALL as_member()}), 0, 'a procedure that is a member while it runs');
is(counted($outsider, 'BEGIN', @inserts, 'COMMIT'), 1, 'a transaction counts once');
is(counted($outsider, 'BEGIN', @inserts, 'ROLLBACK'), 0, 'if it commits');
is(counted($outsider, 'SELECT 1', 'TABLE t'), 0, 'and writes');
is(counted($outsider, 'SET synchronous_commit = off', @inserts, 'RESET synchronous_commit'),
	0, 'and waits until that is flushed');
is(counted($dt->session, @inserts), 3, 'a new session is an outsider at once');
follow('other', '5ms');
is(counted($other, @inserts), 3, 'the other group follows it, too, and owes nothing');
$dt->sql(q{SELECT set_group_pressure(g, 'commit_latency', NULL) FROM unnest('{batch, other}'::text[]) g});
is(counted($_, @inserts), 0, 'and nobody any more') foreach $outsider, $member, $other;

# A window begins with the look before: none of these is lost.  With few commits it
# lasts 5 s.
$dt->advance(10 * $second);
follow('batch', '5ms');
$dt->sql('SELECT dt_test_advance(0)');
$outsider->query($inserts[0]) foreach 1 .. 20;
$dt->advance(5.4 * $second);
cmp_ok($dt->sql(q{SELECT coalesce(value, 0) FROM dirty_throttle_pressure WHERE signal = 'commit_latency'}), '>', 0,
	'commits right after the first look are in its window');
$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
$dt->advance(10 * $second);
$_->quit foreach $outsider, $member, $other;

# ------------------------------------------------------------ nobody outside

# What is said when the group "batch" begins to follow the signal, with so many other
# sessions.
sub notice
{
	my ($sessions) = @_;
	my $err;

	poll_until(sub {
		$dt->sql(q{SELECT count(*) FROM pg_stat_activity
			WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()}) == $sessions })
	  or die 'sessions do not end';
	$err = $dt->{admin}->run(q{SELECT set_group_pressure('batch', 'commit_latency', '20%')})->{err};
	$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
	return $err;
}

unlike(notice(0), qr/protects only/, 'no other session: nothing is said');
my @members = map { $dt->session(group => 'batch') } 1 .. 2;
like(notice(2), qr/signal "commit_latency" protects only members that owe nothing at present\nDETAIL:  All 2 other sessions are in groups/,
	'all are in the group: a notice');
my $outside = $dt->session;
unlike(notice(3), qr/protects only/, 'one is not: there is somebody to protect');
$_->quit foreach @members, $outside;

# ------------------------------------------------------------ what follows

# bytes/s; 0: no limit but the fixed one
sub in_force
{
	my $row = $dt->group_row('batch');
	return $row->{effective_wal_limit} == $row->{wal_limit} ? 0 :
	  sprintf '%.0f', 1000 * $row->{effective_wal_limit};
}

# The same after each of so many samples.
sub seen
{
	my ($samples) = @_;
	return map { $dt->advance($second / 5); in_force() } 1 .. $samples;
}

sub value
{
	return $dt->_row(
		"SELECT * FROM dirty_throttle_pressure WHERE signal = 'commit_latency'
		 ORDER BY pressure DESC NULLS LAST");
}

# As soon as a group follows the signal the base is learned, also while nobody is in it.
sub learns_base
{
	my ($name) = @_;
	my $row;

	$dt->reading(commit_latency => 'measured', 1000);
	$dt->advance(8 * $second);
	$row = value();
	cmp_ok(abs($row->{base} - 1), '<', 0.05, "$name: how long commits take is known before a job begins");
	cmp_ok(abs($row->{threshold_value} - 1.5 * $row->{base}), '<', 0.002, 'and what they may take');
}

follow('batch', '50%');
learns_base('nobody is in the group');
$dt->disconnect;
$dt->node->restart;
learns_base('after a start');
$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
$dt->advance($second);

my $s = $dt->session(group => 'batch');
my $before;

$dt->reading(commit_latency => 'measured', 1000);
follow('batch', '5ms');
$dt->fresh(batch => wal => 4000);
$s->send('CALL job()');
$dt->advance(15 * $second);
is(in_force(), 0, 'commits of 1 ms, where 5 ms are allowed: no limit');
cmp_ok(abs(value()->{value} - 1), '<', 0.05, 'the view has the time, as exactly as it is counted');
is(value()->{unit}, 'ms', 'and its unit');
is(value()->{threshold_value}, 5, 'what is allowed');
is($dt->group_row('batch')->{pressure_reason}, undef, 'and no reason to be slow');
cmp_ok(value()->{pressure}, '<=', 0.21, 'and the pressure');

# somebody else's doing: commits take as long while the group rests, so that is the base
$dt->reading(commit_latency => 'measured', 20_000);
my @reasons;
my @seen = map {
	push @reasons, $dt->group_row('batch')->{pressure_reason} // '';
	seen(1)
} 1 .. 50;
my $floor = 64_000;
ok((grep { /^Nine of ten commits of others take [\d.]+ ms or less, and [\d.]+ ms are allowed\./ } @reasons),
	'20 ms: the reason');
ok((grep { /^Nine of ten commits of others take (\S+ ms) or less, and \S+ ms are allowed: \1 without the group, and a fifth, which is more than 5ms\./ } @reasons),
	'and when it is known that they take as long without the group, why more are allowed');
ok((grep { $_ > $floor && $_ < 4_000_000 } @seen), '20 ms: slower');
ok((grep { $_ == $floor } @seen), 'and, to see how long they take without it, at the floor for a moment');
my ($last) = grep { $_ != $floor } reverse @seen;
ok($last == 0 || $last > 3_000_000, 'as long: as before');
$dt->advance(30 * $second);
ok(in_force() == 0 || in_force() > 3_000_000, 'and so it stays');

# a share of what it is without the group: it rests to find out
$dt->reading(commit_latency => 'measured', 1000);
$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
$dt->advance($second);
follow('batch', '20%');
@seen = ();
foreach (1 .. 300)
{
	my ($rate) = seen(1);

	push @seen, $rate;
	is($dt->group_row('batch')->{pressure_reason},
		'The group rests at its floor, for at most 2.4 s, so that commits of others are measured without it.',
		'the reason to be at the floor')
	  if $rate == $floor;
}
ok((grep { $_ == $floor } @seen), 'a share: at the floor now and then');
is($seen[-1], 0, 'then no limit is needed');
cmp_ok(value()->{base}, '>=', 1, 'the base is known');
cmp_ok(abs(value()->{threshold_value} - 1.2 * value()->{base}), '<', 0.002,
	'and the threshold that and 20 %, in the same unit');
$dt->reading(commit_latency => 'measured', 3000);
@reasons = map {
	$dt->advance($second / 5);
	$dt->group_row('batch')->{pressure_reason} // '';
} 1 .. 50;
my ($reason) = grep { /^Nine/ && !/floor/ } @reasons;
like($reason // 'none',
	qr/^Nine of ten commits of others take [\d.]+ ms or less, and [\d.]+ ms are allowed: [\d.]+ ms without the group, and 20%\.$/,
	'3 ms: the reason');
my ($allowed, $without) = ($reason // '') =~ /and ([\d.]+) ms are allowed: ([\d.]+) ms without/;
cmp_ok(abs($allowed - 1.2 * $without), '<', 0.02, 'whose times are of the same unit, and statistic');

# another threshold is no reason to begin without a limit
$dt->reading(commit_latency => 'measured', 1000);
$dt->advance(60 * $second);
is(in_force(), 0, '1 ms again: no limit');
$dt->reading(commit_latency => 'measured', 3000);
my $limited = 0;
foreach (1 .. 50)
{
	($limited) = seen(1);
	last if $limited > $floor && $limited < 4_000_000;
}
cmp_ok($limited, '>', $floor, '3 ms: limited');
follow('batch', '15%');
my ($then) = seen(1);
cmp_ok($then, '>', 0, 'and at another threshold');
cmp_ok($then, '<=', $limited, 'it goes on from there');
follow('batch', '20%');

# too long, until that is what they take without the group
$dt->reading(commit_latency => 'measured', 1000);
$dt->advance(60 * $second);
$dt->reading(commit_latency => 'measured', 3000);
push @reasons, map {
	$dt->advance($second / 5);
	$dt->group_row('batch')->{pressure_reason} // '';
} 1 .. 150;
$dt->reading(commit_latency => 'measured', 1000);
my %below;
foreach (grep { /^Nine/ } @reasons)
{
	my ($takes, $allowed) = /^Nine of ten commits of others take ([\d.]+) ms or less, and ([\d.]+) ms are allowed/ or next;

	push @{ $below{ $takes <=> $allowed } }, /The signal is below its threshold, so the rate rises/ ? 1 : 0;
}
ok($below{-1} && !(grep { !$_ } @{ $below{-1} }), 'less than is allowed: the reason says that the rate rises');
ok($below{1} && !(grep { $_ } @{ $below{1} }), 'more: it does not');
$dt->advance(120 * $second);    # so that it may rest again

# The sampler has stopped within a probe, so the members end it; another signal that
# leaves the group alone does not make that later.
$dt->sql(q{SELECT set_group_pressure('batch', 'disk_free', '1MB')});
$dt->reading(commit_latency => 'measured', 3000);
foreach (1 .. 300)
{
	$dt->advance($second / 5);
	last if ($dt->group_row('batch')->{pressure_reason} // '') =~ /^The group rests/;
}
is(in_force(), $floor, 'beside another signal: at the floor for a moment');
my $sampler = $dt->sampler;
kill 'STOP', $sampler;
$dt->sql("SELECT dt_test_stopped($sampler)");
$dt->advance(4 * $second);
is(in_force(), 0, 'the sampler has stopped: no longer than for that moment');
$dt->sql('SELECT dt_test_stopped(0)');
kill 'CONT', $sampler;
$dt->sql(q{SELECT set_group_pressure('batch', 'disk_free', NULL)});
$dt->reading(commit_latency => 'measured', 1000);
$dt->advance(120 * $second);

# what is owed from before a probe is owed after it
$dt->cancel_ms($s);
$s->quit;
$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL);
	CREATE TABLE big AS SELECT g, repeat('x', 900) AS pad FROM generate_series(1, 20000) g});
$dt->advance($second);
$s = $dt->session(group => 'batch');
$s->query(q{SET dirty_throttle.transaction_grace = '20d'});
$dt->sql('SELECT dirty_throttle_reset()');
# each page is logged whole
$dt->sql('CHECKPOINT');
$s->send('VACUUM (FREEZE) big');
$dt->wait_paused($s);
my $debt = $dt->group_row('batch')->{wal_debt};
cmp_ok($debt, '>', 10_000, "$debt KB are owed");
my $worker = $dt->session(group => 'batch');
$worker->send('CALL job()');
follow('batch', '20%');
foreach (1 .. 300)
{
	(my $rate) = seen(1);
	last if $rate == $floor;
}
is(in_force(), $floor, 'at the floor for a moment');
is($dt->sql(q{SELECT debt_forgiven FROM dirty_throttle_groups WHERE group_name = 'batch'}),
	0, 'and nothing is forgiven for that');
$dt->cancel_ms($worker);
$worker->quit;
$dt->reading(commit_latency => 'real');
$dt->sql(q{SELECT set_group_pressure('batch', 'commit_latency', NULL)});
$dt->limit(batch => 0);
$dt->cancel_ms($s);
$s->quit;

is($dt->crashes, '', 'no crash');
$dt->finish;
