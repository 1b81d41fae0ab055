# Bursts: what a group does not use it saves up, as much as its burst allows,
# and uses it at full speed; then its limit is what it was.
#
# takes-about: 25 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;
use Time::HiRes qw(sleep time);

my $dt = DirtyThrottle->new(
	'burst',
	# wal_level minimal would spare WAL
	init => [ allows_streaming => 1 ],
	conf => 'max_connections = 30');
my $limit = 2000;    # KB/s: of blocks, and of WAL

sub set_burst
{
	my ($group, $ms) = @_;
	$dt->sql("SELECT set_group_burst('$group', $ms)");
}

sub wal_limit
{
	my ($group, $kb) = @_;
	$dt->sql("SELECT set_group_wal_limit('$group', $kb)");
}

# ------------------------------------------------------------------ bad input

$dt->limit(grp_a => 0);
is($dt->group_row('grp_a')->{burst}, 20, 'the default');
foreach my $case (
	[ "set_group_burst('grp_a', -1)", '22023' ],
	[ "set_group_burst('grp_a', 3600000.01)", '22023' ],
	[ "set_group_burst('grp_a', 'NaN')", '22023' ],
	[ "set_group_burst('grp_a', 'Infinity')", '22023' ],
	[ "set_group_burst('grp_a', NULL)", '22004' ],
	[ 'set_group_burst(NULL, 20)', '22004' ],
	[ "set_group_burst('nobody', 20)", '42704' ],
	[ "set_group_burst('', 20)", '22023' ],
	[ "set_group_burst(repeat('x', 64), 20)", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
}
is( $dt->sql('SELECT string_agg(group_name || burst, $$ $$)
		FROM dirty_throttle_groups'),
	'grp_a20', 'none of these has changed anything');
foreach my $ms (0, 0.5, 3600000)
{
	set_burst(grp_a => $ms);
	is($dt->group_row('grp_a')->{burst}, $ms, "a burst of $ms ms");
}
$dt->sql('BEGIN');
set_burst(grp_a => 1500);
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{burst}, 3600000, 'ROLLBACK undoes it');
set_burst(grp_a => 1500);
$dt->limit(grp_a => 77);
is($dt->group_row('grp_a')->{burst}, 1500, 'a limit leaves it alone');
set_burst(grp_a => 20);
$dt->sql('CREATE ROLE nobody LOGIN');
is( $dt->session(user => 'nobody')
	  ->run("SELECT set_group_burst('grp_a', 1)")->{sqlstate},
	'42501', 'not for everybody');

# ---------------------------------------------------------------- what it does

# For each limit: what to look at, and rows of a table that need so much of it
# and less of the other.
my %kinds = (
	dirty => {
		set => sub { $dt->limit(@_) },
		used => sub { $_[0]->{blocks_dirtied} * $dt->block_kb },
		debt => 'debt_kb',
		fillfactor => 10,
		row_kb => $dt->block_kb,
	},
	wal => {
		set => \&wal_limit,
		used => sub { $_[0]->{wal_bytes} / 1000 },
		debt => 'wal_debt_kb',
		fillfactor => 100,
		row_kb => 0.87,
	});
my $groups = 0;

# A group of its own, its limit without any credit yet, and one member.
sub new_group
{
	my ($kind, $burst, $kb) = @_;
	my $group = 'g' . ++$groups;

	$dt->limit($group => 0);
	set_burst($group => $burst) if defined $burst;
	my $s = $dt->session(group => $group);
	$dt->sql("CREATE TABLE $group (id int, filler text)
		WITH (fillfactor = $kinds{$kind}{fillfactor})");
	$s->query("INSERT INTO $group SELECT 1, ''");
	$kinds{$kind}{set}->($group => $kb // $limit);
	return ($group, $s);
}

# So many KB.
sub work
{
	my ($kind, $group, $kb) = @_;
	my $n = int($kb / $kinds{$kind}{row_kb} + 0.5);

	return "INSERT INTO $group
		SELECT i, repeat('x', 800) FROM generate_series(1, $n) i";
}

sub used
{
	my ($kind, $group) = @_;
	return $kinds{$kind}{used}->($dt->group_row($group));
}

# Run it, in one or several sessions: pauses, and how many KB more than the
# limit allows in that time.
sub measure_excess
{
	my ($kind, $group, $kb, $sql, @sessions) = @_;
	my $pauses = $dt->group_row($group)->{pauses};
	my $before = used($kind, $group);
	my $start = time;
	my $ms = elapsed_ms(
		sub {
			$_->send($sql) foreach @sessions;
			foreach my $s (@sessions)
			{
				my $result = $s->wait;
				die "$sql: $result->{err}" if defined $result->{sqlstate};
			}
		});
	my $kb_used = used($kind, $group) - $before;

	return {
		start => $start,
		kb => $kb_used,
		pauses => $dt->group_row($group)->{pauses} - $pauses,
		excess => $kb_used - $kb * $ms / 1000,
		percent => 100 * $kb_used / ($ms / 1000) / $kb,
	};
}

# All groups save up at the same time, one or several of each kind, and are
# looked at one after the other.  What is saved up by now, in s of the limit:
sub check_saved
{
	my ($name, $kind, $group, $seconds, $kb, @sessions) = @_;
	my $r = measure_excess($kind, $group, $kb,
		work($kind, $group, $kb * ($seconds + 0.5) / @sessions), @sessions);

	# 100 ms is what any group may have that is in use
	between($r->{excess} / $kb, 0.85 * $seconds, 1.15 * $seconds + 0.02,
		"$name: s of the limit used at once");
	ok($r->{pauses} > 0, "$name: then it pauses");
	return $r;
}

my $burst = 1.5;    # s
foreach my $kind (sort keys %kinds)
{
	my %g;
	foreach my $case (
		[ idle => 1000 * $burst ],
		[ several => 1000 * $burst ],
		[ partly => 1000 * $burst ],
		[ default => undef ],
		[ none => 0 ],
		[ raised => 20 ],
		[ lowered => 1000 * $burst ],
		[ lower_limit => 1000 * $burst ],
		[ sleeper => 1000 * $burst ])
	{
		my ($name, $ms) = @$case;
		my ($group, $s) = new_group($kind, $ms);
		$g{$name} = { group => $group, s => $s };
	}
	my $more = $dt->session(group => $g{several}{group});

	# A limit that is new does not come with a full burst.
	{
		my ($group, $s) = new_group($kind, 60000);
		my $r = measure_excess($kind, $group, $limit,
			work($kind, $group, $limit * 0.5), $s);

		between($r->{excess} / $limit, -0.05, 0.15,
			"$kind: a new limit: s of the limit used at once");
		$s->quit;
	}

	# A member that sleeps is not let go by a burst.
	$g{sleeper}{s}->send(
		work($kind, $g{sleeper}{group}, $limit * 30));
	ok($dt->wait_paused($g{sleeper}{s}), "$kind: a member sleeps");
	set_burst($g{sleeper}{group} => 3600000);
	ok(!$g{sleeper}{s}->finished(0.3), "$kind: a longer burst: it sleeps on");
	set_burst($g{sleeper}{group} => 0);
	ok(!$g{sleeper}{s}->finished(0.3), "$kind: a shorter one: it sleeps on");

	# A third of the limit, all the while; nobody pauses for that.
	my $partly = $g{partly};
	my $before = $dt->group_row($partly->{group})->{pauses};
	my $start = time;
	my $n = 0;
	while (time < $start + 3)
	{
		$partly->{s}->query(
			work($kind, $partly->{group}, $limit / 30));
		$n++;
		my $left = $start + $n / 10 - time;
		sleep $left if $left > 0;
	}
	is($dt->group_row($partly->{group})->{pauses},
		$before, "$kind: a third of the limit: no pause");
	check_saved("$kind, after a time of part use",
		$kind, $partly->{group}, $burst, $limit, $partly->{s});

	# Idle for longer than the burst
	my $idle = $g{idle};
	my $r = measure_excess($kind, $idle->{group}, $limit,
		work($kind, $idle->{group}, $limit * $burst * 0.85), $idle->{s});
	is($r->{pauses}, 0, "$kind, after idle time: no pause within the burst");
	ok($r->{kb} > $limit * $burst * 0.75, "$kind: and that is a lot");
	is($dt->group_row($idle->{group})->{ $kinds{$kind}{debt} },
		0, "$kind: nor a debt");
	at_limit(
		sub {
			# in two, so that what is left of the burst does not count
			measure_excess($kind, $idle->{group}, $limit,
				work($kind, $idle->{group}, $limit / 2), $idle->{s});
			return measure_excess($kind, $idle->{group}, $limit,
				work($kind, $idle->{group}, $limit), $idle->{s})->{percent};
		},
		"$kind, when the burst is used up");

	# It is the group's, not each member's.
	check_saved("$kind, two members", $kind, $g{several}{group}, $burst,
		$limit, $g{several}{s}, $more);

	# The default is next to nothing, 0 is nothing.
	foreach my $name ('default', 'none')
	{
		$r = measure_excess($kind, $g{$name}{group}, $limit,
			work($kind, $g{$name}{group}, $limit * 0.4), $g{$name}{s});
		between($r->{excess} / $limit, -0.05, 0.05,
			"$kind, burst $name: s of the limit used at once");
		ok($r->{pauses} > 0, "$kind, burst $name: it pauses");
	}

	# A longer burst saves from now on, not for the time before.
	my $raised = $g{raised};
	my $raised_at = time;
	set_burst($raised->{group} => 1000 * $burst);
	$r = measure_excess($kind, $raised->{group}, $limit,
		work($kind, $raised->{group}, $limit * 0.4), $raised->{s});
	between($r->{excess} / $limit, -0.05, 0.05 + $r->{start} - $raised_at,
		"$kind, just raised: s of the limit used at once");

	# A shorter one takes what is saved up.
	my $lowered = $g{lowered};
	set_burst($lowered->{group} => 300);
	$r = measure_excess($kind, $lowered->{group}, $limit,
		work($kind, $lowered->{group}, $limit * 0.7), $lowered->{s});
	between($r->{excess} / $limit, 0.24, 0.36,
		"$kind, just lowered to 0.3 s: s of the limit used at once");

	# With a lower limit, the time counts.
	my $lower = $g{lower_limit};
	$kinds{$kind}{set}->($lower->{group} => $limit / 2);
	check_saved("$kind, the limit just lowered", $kind, $lower->{group},
		$burst, $limit / 2, $lower->{s});

	ok(!$g{sleeper}{s}->finished, "$kind: it still sleeps");
	$kinds{$kind}{set}->($g{sleeper}{group} => 0);
	is($g{sleeper}{s}->wait->{sqlstate}, undef, "$kind: until it may go on");
	$_->{s}->quit foreach values %g;
	$more->quit;
}

# Both limits: the one that has saved up less rules.
{
	my ($group, $s) = new_group('dirty', 1000);

	# no WAL limit while what is saved up for blocks is saved up
	sleep 1.3;
	wal_limit($group => 100);
	my $r = measure_excess('wal', $group, 100,
		work('dirty', $group, $limit * 0.8), $s);
	between($r->{excess} / 100, -0.05, 0.25,
		'a new limit beside one with a burst: s of it used at once');
	ok($r->{pauses} > 0, 'it pauses for that one');
}

# Over a restart
{
	set_burst(grp_a => 12345);
	$dt->disconnect;
	$dt->node->restart;
	is($dt->group_row('grp_a')->{burst}, 12345, 'it is there after a restart');
}

$dt->finish;
