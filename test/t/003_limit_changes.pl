# Limits that change while sessions run or sleep: the change takes effect
# within 100 ms, wherever they sleep.
#
# expect-in-log: WARNING:  resource group "grp_a" does not exist
# takes-about: 13 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep time);

my $dt = DirtyThrottle->new('limit_changes');
$dt->limit(grp_a => 0);
$dt->create_sleep_tables;
my $s = $dt->session(group => 'grp_a');

# Put the session to sleep, do something, and return how long it takes until
# the statement has ended then, in ms.
sub wake_ms
{
	my ($kind, $code) = @_;
	my $result;

	$dt->put_to_sleep($s, 'grp_a', $kind);
	my $ms = elapsed_ms(
		sub {
			$code->();
			$result = $s->wait;
		});
	is($result->{sqlstate}, undef, "no error $kind");
	return $ms;
}

# Milliseconds that it may take, at most.
sub most_ms
{
	my ($kind, @ms) = @_;

	return 100 if median(@ms) <= 100;
	$dt->limit(grp_a => 0);
	return 100 + $dt->free_ms($s, $kind);
}

sub check_wake
{
	my ($name, $kind, $code, $undo) = @_;
	my @ms;

	foreach (1 .. 3)
	{
		push @ms, wake_ms($kind, $code);
		$undo->() if $undo;
	}
	between(median(@ms), 0, most_ms($kind, @ms), "$name while a session sleeps $kind: ms");
}

foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	check_wake('limit removed', $kind, sub { $dt->limit(grp_a => 0) });
	check_wake('limit raised', $kind,
		sub { $dt->limit(grp_a => 16777216) });
	is($dt->group_row('grp_a')->{paused_processes}, 0, 'nobody pauses');
}

# Switched off for everybody, and on again.
foreach my $kind ('in flight', 'after commit')
{
	check_wake(
		'dirty_throttle.enabled = off',
		$kind,
		sub {
			$dt->sql('ALTER SYSTEM SET dirty_throttle.enabled = off');
			$dt->sql('SELECT pg_reload_conf()');
		},
		sub {
			# see the first reload before the second, not an older "on"
			poll_until(
				sub { $dt->sql('SHOW dirty_throttle.enabled') eq 'off' }, 2);
			$dt->sql('ALTER SYSTEM RESET dirty_throttle.enabled');
			$dt->sql('SELECT pg_reload_conf()');
			poll_until(
				sub { $dt->sql('SHOW dirty_throttle.enabled') eq 'on' }, 2);
		});
}

# A limit that is set again counts from the next statement on, also when that
# is charged only once: what was dirtied without a limit is not owed, but what
# is dirtied under one is.
foreach my $round (1, 2)
{
	$dt->limit(grp_a => 0);
	$s->query($DirtyThrottle::KINDS{'after commit'}[1]);
	is($dt->session_row($s)->{debt_kb}, 0, 'no debt without a limit');
	$dt->put_to_sleep($s, 'grp_a', 'after commit');
	between($dt->session_row($s)->{debt_kb},
		300, 800, 'all of the first transaction is owed, no more: KB');
	$dt->limit(grp_a => 0);
	$s->wait;
}

# A small change of the limit, a rename: it sleeps on.
$dt->put_to_sleep($s, 'grp_a', 'in flight');
$dt->limit(grp_a => 2);
ok(!$s->finished(0.2), 'sleeps on after a small change of the limit');
ok($dt->wait_paused($s, 'in flight'), 'and is shown as such');
$dt->sql("SELECT rename_resource_group('grp_a', 'grp_b')");
ok(!$s->finished(0.2), 'sleeps on after a rename');
is($dt->session_row($s)->{group_name}, 'grp_b', 'in the renamed group');
is($dt->group_row('grp_b')->{paused_processes}, 1, 'which counts it');
between(
	elapsed_ms(sub { $dt->limit(grp_b => 0); $s->wait }),
	0, 100, 'limit removed under the new name: ms');
is($s->query('SHOW dirty_throttle."group"'),
	'grp_b', 'the session knows the new name');
$dt->sql("SELECT rename_resource_group('grp_b', 'grp_a')");

# Dropped by force: released wherever it sleeps, and then a session like any
# other without a group.
foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	my @ms;

	foreach my $round (1 .. 3)
	{
		my $t = $dt->session(group => 'grp_a');
		$dt->put_to_sleep($t, 'grp_a', $kind);
		push @ms, elapsed_ms(
			sub {
				$dt->sql("SELECT drop_resource_group('grp_a', force => true)");
				$t->wait;
			});
		next if $round < 3;
		is($t->query('SHOW dirty_throttle."group"'),
			'', "no group after a forced drop $kind");
		is($dt->session_row($t), undef, 'not in the view');
		is($t->run('UPDATE rewrite SET id = 0')->{sqlstate},
			undef, 'usable, and not throttled');
	}
	continue
	{
		$dt->limit(grp_a => 0);
	}
	between(median(@ms), 0, most_ms($kind, @ms),
		"dropped by force while a session sleeps $kind: ms");
}

# While a statement runs.  At the lower of the limits a pause is short, so
# that what is seen is not one long sleep.
my ($high, $low) = (40000, 4000);

sub blocks_now
{
	return (time, $dt->session_row($s)->{blocks_dirtied});
}

# The rate over so many seconds, KB/s.
sub rate
{
	my ($seconds) = @_;
	my ($start, $before) = blocks_now();

	sleep $seconds;
	my ($end, $after) = blocks_now();
	return ($after - $before) * $dt->block_kb / ($end - $start);
}

$s->quit;
$s = $dt->session(group => 'grp_a');
$dt->limit(grp_a => $high);
$s->send("INSERT INTO sleep
	SELECT generate_series(1, 60000), repeat('x', 800)");
ok($dt->wait_paused($s, 'in flight'), 'a statement is throttled');
sleep 0.2;
at_limit(sub { 100 * rate(1) / $high }, 'before');

foreach my $round (1, 2)
{
	$dt->limit(grp_a => $low);
	sleep 0.1;
	between(100 * rate(0.5) / $low,
		30, 200, 'soon after the limit was lowered: % of it');
	at_limit(sub { 100 * rate(1.5) / $low }, 'later');

	$dt->limit(grp_a => $high);
	sleep 0.1;
	at_limit(sub { 100 * rate(1) / $high },
		'soon after the limit was raised');
}

# No limit: as fast as it can, and no pause any more.
$dt->limit(grp_a => 0);
ok($s->finished(30), 'limit removed: the statement ends');
is($s->wait->{sqlstate}, undef, 'without an error');

my $row = $dt->group_row('grp_a');
is($row->{paused_processes}, 0, 'nobody pauses');
is($row->{active_processes}, 1, 'one member');
is($row->{debt_kb}, 0, 'no debt without a limit');

$dt->finish;
