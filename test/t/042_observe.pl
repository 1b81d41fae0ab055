# Mode observe: nobody pauses, and the views tell how long members would have
# paused: about as long as they do for the same work when the limit is
# enforced.  And what suggest_group_limits() makes of what it has seen.
#
# takes-about: 36 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use List::Util qw(sum);
use Test::More;
use Time::HiRes qw(sleep time);

my $dt = DirtyThrottle->new(
	'observe',
	# wal_level minimal would spare WAL
	init => [ allows_streaming => 1 ],
	conf => 'max_connections = 30');
my $x = "repeat('x', 800)";

sub mode
{
	my ($group, $mode) = @_;
	$dt->sql("SELECT set_group_mode('$group', '$mode')");
}

sub wal_limit
{
	my ($group, $kb) = @_;
	$dt->sql("SELECT set_group_wal_limit('$group', $kb)");
}

sub fresh_limits
{
	my ($group, $dirty_kb, $wal_kb) = @_;

	$dt->limit($group => 0);
	wal_limit($group => 0);
	$dt->limit($group => $dirty_kb) if $dirty_kb;
	wal_limit($group => $wal_kb) if $wal_kb;
}

sub rows
{
	my ($n) = @_;
	return "SELECT i AS id, $x AS filler FROM generate_series(1, $n) i";
}

sub create_table
{
	my ($name) = @_;
	$dt->sql("DROP TABLE IF EXISTS $name CASCADE;
		CREATE TABLE $name (id int, filler text) WITH (fillfactor = 10)");
}

# ------------------------------------------------------------------ bad input

$dt->limit(grp_a => 0);
is($dt->group_row('grp_a')->{mode}, 'enforce', 'the default');
foreach my $case (
	[ "set_group_mode('grp_a', 'look')", '22023' ],
	[ "set_group_mode('grp_a', '')", '22023' ],
	[ "set_group_mode('grp_a', NULL)", '22004' ],
	[ "set_group_mode(NULL, 'observe')", '22004' ],
	[ "set_group_mode('', 'observe')", '22023' ],
	[ "set_group_mode('nobody', 'observe')", '42704' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
	like($result->{err}, qr/HINT:.*enforce.*observe/, "$call: a hint")
	  if $call =~ /look/;
}
is( $dt->sql('SELECT string_agg(group_name || mode, $$ $$)
		FROM dirty_throttle_groups'),
	'grp_aenforce', 'none of these has changed anything');
$dt->sql('BEGIN');
mode(grp_a => 'observe');
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{mode}, 'enforce', 'ROLLBACK undoes it');
$dt->sql('CREATE ROLE nobody LOGIN');
{
	my $nobody = $dt->session(user => 'nobody');

	is($nobody->run("SELECT set_group_mode('grp_a', 'observe')")->{sqlstate},
		'42501', 'not for everybody');
	is($nobody->run('SELECT * FROM suggest_group_limits()')->{sqlstate},
		undef, 'everybody may see suggestions');
}

# -------------------------------------------------- suggestions: work for them

# These run beside what comes next, each at a rate that is known.
my %known = (
	sug_dirty => { dirty => 3000 },
	sug_wal => { wal => 700 },
	sug_two => { dirty => 1000 });
foreach my $group (sort keys %known)
{
	create_table($group);
	fresh_limits($group, $known{$group}{dirty}, $known{$group}{wal});
	my $s = $known{$group}{s} = $dt->session(group => $group);
	$s->query("INSERT INTO $group SELECT 1, ''");
}
fresh_limits(sug_none => 1000, 1000);
{
	my $row = $dt->_row(
		"SELECT * FROM suggest_group_limits() WHERE group_name = 'sug_none'");

	is(delete $row->{group_name}, 'sug_none', 'a group that was not used');
	is(delete $row->{mode}, 'enforce', 'its mode');
	ok(defined delete $row->{observed_since}, 'since when it was looked at');
	is(delete $row->{dirty_seconds}, 0, 'seconds in which it dirtied blocks');
	is(delete $row->{wal_seconds}, 0, 'and wrote WAL');
	is(join(' ', map { "$_=$row->{$_}" } grep { defined $row->{$_} } sort keys %$row),
		'', 'all else is NULL');
	is(scalar keys %$row, 8, 'which are eight columns');
}
sleep 1.1;    # what they have done so far is in another second
$dt->sql('SELECT dirty_throttle_reset()');
foreach my $group (sort keys %known)
{
	$known{$group}{s}->send("INSERT INTO $group " . rows(100000));
	$known{$group}{before} = $dt->group_row($group);
	$known{$group}{start} = time;
}

# ----------------------------------------------------------- observe, enforce

# Run the work in this mode, by n sessions that begin together: the seconds
# that they have taken, all added up, and the group's row.
sub run_in_mode
{
	my ($name, $mode, $limits, $n, $prepare, $sql) = @_;
	my $group = 'cmp';

	fresh_limits($group);
	mode($group => $mode);
	$prepare->($_) foreach 1 .. $n;
	my @s = map { $dt->session } 1 .. $n;
	foreach my $s (@s)
	{
		# what a new session dirties is not compared
		$s->query('SELECT count(*) FROM pg_class');
		$s->query(qq{SET dirty_throttle."group" = '$group'});
	}
	fresh_limits($group, @$limits);
	$dt->sql("SELECT dirty_throttle_reset('$group')");

	my $start = time;
	my @end;
	$s[ $_ - 1 ]->send(sprintf $sql, ($_) x ($sql =~ tr/%//)) foreach 1 .. $n;
	poll_until(
		sub {
			foreach my $i (0 .. $n - 1)
			{
				$end[$i] //= time if $s[$i]->finished;
			}
			return !grep { !defined $end[$_] } 0 .. $n - 1;
		},
		60);
	foreach my $s (@s)
	{
		my $result = $s->wait;
		die "$name: $result->{err}" if defined $result->{sqlstate};
	}

	my $row = $dt->group_row($group);
	my $sessions = $dt->_row("SELECT sum(observed_pauses) AS observed_pauses,
		sum(observed_pause_time) AS observed_pause_time
		FROM dirty_throttle_sessions WHERE group_name = '$group'");
	is($sessions->{observed_pauses}, $row->{observed_pauses},
		"$name, $mode: observed_pauses of the sessions");
	between($sessions->{observed_pause_time}, $row->{observed_pause_time} - 0.1,
		$row->{observed_pause_time} + 0.1,
		"$name, $mode: observed_pause_time of the sessions: ms");
	$_->quit foreach @s;
	return (sum(map { $_ - $start } @end), $row);
}

# The same work in both modes.  "Naps" are pauses that are in no counter, so
# only the sessions' times tell of them.  When the machine is busier in one mode
# than in the other, the same work leaves more or less to pause for, and
# sessions that do not run together do not share their pauses, so that is tried
# again.
sub compare
{
	my ($name, @work) = @_;
	my $naps = @work > 4 && pop @work;
	my ($o, $e, $observed, $enforced, $of_time, $of_pauses);

	foreach (1 .. 3)
	{
		($observed, $o) = run_in_mode($name, 'observe', @work);
		($enforced, $e) = run_in_mode($name, 'enforce', @work);
		my $would = $o->{observed_pause_time} / 1000;
		$of_time = $would / ($enforced - $observed);
		$of_pauses = 1000 * $would / ($e->{paused_time} || 1);
		note sprintf('%s: would pause %.3f s (%d), paused %.3f s (%d), took %.3f s and %.3f s',
			$name, $would, $o->{observed_pauses}, $e->{paused_time} / 1000,
			$e->{pauses}, $observed, $enforced);
		last
		  if abs($of_time - 1) < 0.15 && ($naps || abs($of_pauses - 1) < 0.15);
	}
	is("$o->{pauses} $o->{paused_time} $o->{wal_pauses}",
		'0 0 0', "$name: observed, nobody pauses");
	ok($e->{pauses} > 0, "$name: enforced, it pauses");
	is("$e->{observed_pauses} $e->{observed_pause_time}",
		'0 0', "$name: which is not counted as if it were observed");
	between($observed / $enforced, 0, 0.4,
		"$name: observed, it is faster: part of the time");
	ok($o->{observed_pauses} > 0, "$name: it would pause");
	between($of_time, 0.85, 1.15,
		"$name: observed_pause_time, of the difference in time");
	between($of_pauses, 0.85, 1.15, "$name: observed_pause_time, of paused_time")
	  unless $naps;
	return ($o, $e);
}

sub empty
{
	my ($n) = @_;
	create_table("t$n");
}

sub fresh_rows
{
	my ($n) = @_;
	create_table("t$n");
	$dt->sql("INSERT INTO t$n " . rows(3000) . '; CHECKPOINT');
}

sub numbers
{
	my ($n, $rows) = @_;
	$dt->sql("DROP TABLE IF EXISTS t$n; CREATE TABLE t$n (id int);
		INSERT INTO t$n SELECT generate_series(1, $rows)");
	$dt->sql("VACUUM (FREEZE) t$n");
	$dt->sql('CHECKPOINT');
}

sub old_rows
{
	my ($n) = @_;
	create_table("t$n");
	$dt->sql("INSERT INTO t$n " . rows(1500));
	$dt->sql("VACUUM (FREEZE) t$n");
	$dt->sql('CHECKPOINT');
}

my $insert = 'INSERT INTO t%d ' . rows(3000);
my $inserts = join(";\n", ('INSERT INTO t%d ' . rows(20)) x 75);

compare('INSERT', [20000], 1, \&empty, $insert);
compare('INSERT, by its WAL', [ 0, 2000 ], 1, \&empty, $insert);
compare('INSERT, both limits', [ 20000, 2600 ], 1, \&empty, $insert);
compare('two INSERTs', [25000], 2, \&empty, 'INSERT INTO t%d ' . rows(2500));
my ($o, $e) =
  compare('many small transactions', [10000], 1, \&empty, $inserts);
between($o->{observed_pauses} / ($e->{pauses} || 1),
	0.7, 1.4, 'many small transactions: observed_pauses, of pauses');
compare('two of many small transactions', [20000], 2, \&empty, $inserts);
compare('CREATE INDEX', [ 0, 1200 ], 1, sub { numbers($_[0], 60000) },
	'CREATE INDEX ON t%d (id)');
# several, for in company each pause ends early, at random, and the rest is
# paid in the next one
compare('two of several CREATE INDEX', [ 0, 2400 ], 2,
	sub { numbers($_[0], 6000) },
	join(";\n", ('CREATE INDEX ON t%d (id)') x 10));
compare('ALTER TABLE', [10000], 1, \&old_rows,
	'ALTER TABLE t%d ALTER id TYPE bigint');
compare('VACUUM', [20000], 1, \&fresh_rows, 'VACUUM t%d', 'naps');

# ----------------------------------------------------- suggestions: the result

# A lower rate most of the time, then a higher one.
my $high = 10000;
$dt->limit(sug_two => $high);
my $low_seconds = time - $known{sug_two}{start};
sleep 3.6;    # two whole seconds at least
foreach my $group (sort keys %known)
{
	my $k = $known{$group};

	my $now = $dt->group_row($group);
	my $seconds = time - $k->{start};
	$k->{dirty_rate} = ($now->{blocks_dirtied} - $k->{before}{blocks_dirtied})
	  * $dt->block_kb / $seconds;
	$k->{wal_rate} =
	  ($now->{wal_bytes} - $k->{before}{wal_bytes}) / 1000 / $seconds;
	$k->{seconds} = $seconds;
	$dt->cancel_ms($k->{s});
}

sub rounded_up
{
	my ($value) = @_;
	my $unit = 10**(length(int $value) - 2);

	return $unit * int(($value + $unit * 0.999999) / $unit);
}

foreach my $group ('sug_dirty', 'sug_wal', 'sug_two')
{
	my $k = $known{$group};
	my $row = $dt->_row(
		"SELECT * FROM suggest_group_limits() WHERE group_name = '$group'");
	my %p50 = (dirty => $k->{dirty_rate}, wal => $k->{wal_rate});
	my %p95;

	# what is not limited goes with what is, but not as evenly
	$p50{dirty} = $p95{dirty} = $k->{dirty} if $k->{dirty};
	$p50{wal} = $p95{wal} = $k->{wal} if $k->{wal};
	if ($group eq 'sug_two')
	{
		ok($low_seconds > 3.6, 'the lower rate was there for longer');
		$p50{wal} *= $k->{dirty} / $k->{dirty_rate};
		$p95{dirty} = $high;
	}
	foreach my $what ('dirty', 'wal')
	{
		my ($n, $p50, $p95, $max, $suggested) = @$row{
			"${what}_seconds",  "${what}_rate_p50",
			"${what}_rate_p95", "${what}_rate_max",
			"suggested_${what}_limit"
		};
		note "$group, $what: $n s, $p50 $p95 $max, $suggested";
		between($n, $k->{seconds} - 2, $k->{seconds} + 1,
			"$group: ${what}_seconds");
		between($p50 / $p50{$what}, 0.9, 1.1, "$group, $what: p50, of the rate");
		between($p95 / $p95{$what}, 0.9, 1.1, "$group, $what: p95, of the rate")
		  if $p95{$what};
		ok($p50 <= $p95 && $p95 <= $max, "$group, $what: p50, p95 and maximum");
		is($suggested, rounded_up($p95), "$group, $what: suggested");
	}
	is($row->{mode}, 'enforce', "$group: mode");
	is( $dt->sql("SELECT s.observed_since = g.stats_reset
			FROM suggest_group_limits() s
			JOIN dirty_throttle_groups g USING (group_name)
			WHERE group_name = '$group'"),
		't', "$group: since when");
}
$dt->sql("SELECT dirty_throttle_reset('sug_dirty')");
is( $dt->sql("SELECT string_agg((dirty_seconds = 0 AND wal_seconds = 0
				AND dirty_rate_max IS NULL
				AND suggested_wal_limit IS NULL)::text, ' '
			ORDER BY group_name)
		FROM suggest_group_limits()
		WHERE group_name IN ('sug_dirty', 'sug_wal')"),
	'true false', 'a reset forgets what one group did');
mode(sug_dirty => 'observe');
is( $dt->sql("SELECT mode FROM suggest_group_limits()
		WHERE group_name = 'sug_dirty'"),
	'observe', 'the mode');

# What was observed is the rate without the limit, so is the suggestion.
{
	my $s = $known{sug_dirty}{s};

	$dt->limit(sug_dirty => 1);
	$s->query('INSERT INTO sug_dirty ' . rows(2000));
	sleep 1.1;
	my $row = $dt->_row("SELECT * FROM suggest_group_limits()
		WHERE group_name = 'sug_dirty'");
	between($row->{dirty_rate_max}, 5000, 20000,
		'observed: the most dirtied in a second, KB/s');
	between($row->{suggested_dirty_limit}, 5000, 20000,
		'observed: suggested, KB/s');
}

# ------------------------------------------------- the mode while they sleep

$dt->create_sleep_tables;
my $s = $dt->session(group => 'grp_a');

# Milliseconds until the statement ends, which must not be over before.
sub observe_ms
{
	my $asleep = !$s->finished;
	my $result;
	my $ms = elapsed_ms(
		sub {
			mode(grp_a => 'observe');
			$result = $s->wait;
		});

	die $result->{err} if defined $result->{sqlstate};
	return $asleep ? $ms : 'inf';
}

# Three times, and three times more when that took long: it is the machine's
# fault, or it takes long again.
sub check_wake
{
	my ($name, $most, $sleep, $kind) = @_;
	my $ms;

	foreach (1 .. 2)
	{
		$ms = median(map { $sleep->(); observe_ms() } 1 .. 3);
		last if $ms <= $most;
	}
	$most += $dt->free_ms($s, $kind) if $ms > $most && $kind;
	between($ms, 0, $most, "observe while a session sleeps $name: ms");
	is($dt->group_row('grp_a')->{paused_processes}, 0, "$name: nobody pauses");
}

foreach my $what ('dirty', 'wal')
{
	foreach my $kind (sort keys %DirtyThrottle::KINDS)
	{
		my ($where, $sql) = @{ $DirtyThrottle::KINDS{$kind} };

		check_wake(
			"$kind, $what", 100,
			sub {
				mode(grp_a => 'enforce');
				fresh_limits('grp_a', $what eq 'dirty' ? (1, 0) : (0, 1));
				$s->send($sql);
				ok($dt->wait_paused($s, $where),
					"a session pauses $kind, $what");
			},
			$kind);
	}
}

# VACUUM pauses at its checks.
check_wake(
	'in VACUUM', 250,
	sub {
		mode(grp_a => 'enforce');
		create_table('v');
		$dt->sql('INSERT INTO v ' . rows(300) . '; CHECKPOINT');
		fresh_limits('grp_a', 100);
		my $before = $dt->session_row($s)->{blocks_dirtied};
		$s->send('VACUUM v');
		poll_until(
			sub { $dt->session_row($s)->{blocks_dirtied} > $before + 5 }, 5);
	});

# And back: what was done while nobody had to pay is not owed.
my $kb = 100;
fresh_limits('grp_a', $kb);
my $would = $dt->session_row($s)->{observed_pause_time};
$s->query('INSERT INTO sleep ' . rows(200));
$would = $dt->session_row($s)->{observed_pause_time} - $would;
between($would, 0.85 * 200 * $dt->block_kb / $kb * 1000,
	1.15 * 200 * $dt->block_kb / $kb * 1000, 'it would pause for long: ms');
mode(grp_a => 'enforce');
between($dt->group_row('grp_a')->{debt_kb}, 0, 10,
	'enforced again: nothing is owed, KB');
at_limit(
	sub {
		my $r = $dt->measure($s, 'INSERT INTO sleep ' . rows(10));
		return 100 * $r->{kb_per_s} / $kb;
	},
	'but what comes then is paid');

# While a statement runs: it slows down, and speeds up.
$kb = 2000;
mode(grp_a => 'observe');
fresh_limits('grp_a', $kb);
$s->send("INSERT INTO sleep SELECT i, $x || pg_sleep(0.001)::text
	FROM generate_series(1, 2500) i");
mode(grp_a => 'enforce');
ok($dt->wait_paused($s, 'in flight'), 'enforced: a running statement pauses');
sleep 0.2;
at_limit(
	sub {
		my $start = time;
		my $before = $dt->session_row($s)->{blocks_dirtied};
		sleep 1;
		return 100 / $kb / (time - $start) * $dt->block_kb
		  * ($dt->session_row($s)->{blocks_dirtied} - $before);
	},
	'at the limit');
mode(grp_a => 'observe');
ok($s->finished(30), 'observed: it runs to its end');
$s->wait;

# Over a restart
$dt->disconnect;
$s->quit;
$dt->node->restart;
is($dt->group_row('grp_a')->{mode}, 'observe', 'it is there after a restart');

$dt->finish;
