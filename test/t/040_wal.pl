# The WAL limit: what a statement writes of WAL, divided by the time that the
# client waits for it, is the limit, also where it dirties next to nothing.
# Beside a dirty limit the slower of the two rules, and the views say which.
# What is charged is, to the byte, what is found in the WAL.
#
# takes-about: 36 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use List::Util qw(sum);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $limit = 4000;    # KB/s
my $rows = 4000;     # about 0.9 s
my $x = "repeat('x', 800)";

my $dt = DirtyThrottle->new(
	'wal',
	no_start => 1,
	# wal_level minimal would spare much of what is measured here
	init => [ allows_streaming => 1 ],
	conf => q{
shared_preload_libraries = 'dirty_throttle, pg_stat_statements'
pg_stat_statements.track_planning = on
wal_log_hints = on
max_connections = 30
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
chomp(my $libdir = `pg_config --pkglibdir`);
plan skip_all => 'no pg_stat_statements or pg_walinspect'
  unless -f "$libdir/pg_stat_statements.so"
  && -f "$libdir/pg_walinspect.so";

$dt->node->start;
$dt->sql("CREATE EXTENSION $_")
  foreach 'dirty_throttle', 'pg_stat_statements', 'pg_walinspect';
$dt->sql('CREATE ROLE member SUPERUSER LOGIN');
$dt->create_sleep_tables;

sub wal_limit
{
	my ($group, $kb) = @_;
	$dt->sql("SELECT set_group_wal_limit('$group', $kb)");
}

# A new limit starts without the credit that an idle group has.
sub fresh_limits
{
	my ($group, $dirty_kb, $wal_kb) = @_;

	$dt->limit($group => 0);
	wal_limit($group => 0);
	$dt->limit($group => $dirty_kb) if $dirty_kb;
	wal_limit($group => $wal_kb) if $wal_kb;
}

# ------------------------------------------------------------ bad input

foreach my $case (
	[ "set_group_wal_limit('bad', -1)", '22023' ],
	[ "set_group_wal_limit('bad', 'NaN')", '22023' ],
	[ "set_group_wal_limit('bad', 'Infinity')", '22023' ],
	[ "set_group_wal_limit('bad', 16777216.001)", '22023' ],
	[ "set_group_wal_limit('bad', NULL)", '22004' ],
	[ 'set_group_wal_limit(NULL, 1)', '22004' ],
	[ "set_group_wal_limit('', 1)", '22023' ],
	[ "set_group_wal_limit(repeat('x', 64), 1)", '22023' ],
	[ "reset_group_wal_limit('bad')", '42704' ],
	[ 'reset_group_wal_limit(NULL)', '22004' ],
	[ "reset_group_wal_limit('')", '22023' ])
{
	my ($call, $sqlstate) = @$case;
	my $result = $dt->session->run("SELECT $call");

	is($result->{sqlstate}, $sqlstate, "$call: SQLSTATE")
	  or diag $result->{err};
}
is($dt->sql('SELECT count(*) FROM dirty_throttle_groups'),
	0, 'none of these has made a group');
like(
	$dt->session->run("SELECT set_group_wal_limit('grp_a', 16777216)")->{err},
	qr/NOTICE:.*"grp_a" created/,
	'the first limit of a group creates it');
{
	my $row = $dt->group_row('grp_a');

	is("$row->{wal_rate_limit} $row->{dirty_rate_limit}",
		'16777216 0', 'with a WAL limit and no other');
	is("$row->{wal_bytes} $row->{wal_debt_kb} $row->{wal_pauses}",
		'0 0 0', 'nothing is written yet');
}
wal_limit(grp_a => 0.001);
is($dt->group_row('grp_a')->{wal_rate_limit}, 0.001, 'a small limit');
$dt->limit(grp_a => 77);
is($dt->group_row('grp_a')->{wal_rate_limit},
	0.001, 'which setting the dirty limit leaves alone');
$dt->sql("SELECT reset_group_wal_limit('grp_a')");
{
	my $row = $dt->group_row('grp_a');

	is("$row->{wal_rate_limit} $row->{dirty_rate_limit}",
		'0 77', 'and the other way round');
}
$dt->sql('BEGIN');
wal_limit(grp_a => 88);
$dt->sql('ROLLBACK');
is($dt->group_row('grp_a')->{wal_rate_limit}, 0, 'ROLLBACK undoes it');
wal_limit(grp_a => 88);
$dt->sql('CREATE ROLE nobody LOGIN');
{
	my $nobody = $dt->session(user => 'nobody');

	is($nobody->run("SELECT $_")->{sqlstate}, '42501', "$_: not for everybody")
	  foreach "set_group_wal_limit('grp_a', 1)",
	  "reset_group_wal_limit('grp_a')";
}
fresh_limits('grp_a');

# ------------------------------------------------------------------ the rate

my $s = $dt->session(user => 'member', group => 'grp_a');
$s->query('SET max_parallel_maintenance_workers = 0');

sub create_table
{
	my ($name, $fillfactor) = @_;
	$fillfactor //= 100;
	$dt->sql("DROP TABLE IF EXISTS $name CASCADE; CREATE TABLE $name
		(id int, filler text) WITH (fillfactor = $fillfactor)");
}

sub rows
{
	my ($n) = @_;
	return "SELECT i AS id, $x AS filler FROM generate_series(1, $n) i";
}

# A row a page, that nobody has looked at, in clean buffers: the first look
# sets a hint bit and logs the page.
sub create_fresh_rows
{
	my ($name, $n) = @_;
	create_table($name, 10);
	$dt->sql("INSERT INTO $name " . rows($n) . '; CHECKPOINT');
}

# Every other row is dead, in buffers that are dirty and were logged since the
# checkpoint.
sub create_dirty_dead_rows
{
	my ($name, $n) = @_;
	create_table($name, 10);
	$dt->sql("CHECKPOINT; INSERT INTO $name " . rows($n)
		  . "; DELETE FROM $name WHERE id % 2 = 0");
}

# What a session and its group have used so far.
sub used
{
	my ($session) = @_;
	my $row = $dt->session_row($session);
	my $group = $dt->group_row($row->{group_name});

	return {
		wal_kb => $row->{wal_bytes} / 1000,
		dirty_kb => $dt->block_kb * $row->{blocks_dirtied},
		pauses => $group->{pauses},
		wal_pauses => $group->{wal_pauses} };
}

# What sessions have written, and what it took; at the same time, each in a group
# of its own: a list of [session, SQL].
sub measure_wal
{
	my @all = map { { session => $_->[0], sql => $_->[1] } } @_;

	$_->{before} = used($_->{session}) foreach @all;
	foreach my $one (@all)
	{
		$one->{start} = time;
		$one->{session}->send($one->{sql});
	}
	my @running = @all;
	while (@running)
	{
		foreach my $one (grep { $_->{session}->finished } @running)
		{
			$one->{seconds} = time - $one->{start};
		}
		@running = grep { !defined $_->{seconds} } @running;
		die "no end: $running[0]{sql}" if @running && time > $running[0]{start} + 60;
		sleep 0.002 if @running;
	}
	foreach my $one (@all)
	{
		my $result = $one->{session}->wait;
		die "$one->{sql}: $result->{err}" if defined $result->{sqlstate};

		my $after = used($one->{session});
		$one->{$_} = $after->{$_} - $one->{before}{$_} foreach keys %$after;
	}
	return wantarray ? @all : $all[0];
}

# Statements that write at least so many KB of WAL, in the time that they must
# take; "tbl" is a table of each one's own.  Several at the same time.  A rate
# that is too low may be the machine's fault, so that is tried three times.
# Options:
#	kb          the limit, KB/s
#	settings    of the session
#	any_pauses  they need not all be for the WAL
#	dirties     its blocks are so many KB at most, or such a part of the WAL
my @lanes;

sub check_rates
{
	my @cases = map {
		my ($name, $prepare, $sql, $least_kb, %opt) = @$_;
		{ name => $name, prepare => $prepare, sql => $sql, least_kb => $least_kb,
			kb => $limit, %opt }
	} @_;
	my @todo = @cases;

	foreach my $n (0 .. $#cases)
	{
		my $case = $cases[$n];

		$lanes[$n] //= $n == 0 ? $s : $dt->session(user => 'member');
		$case->{session} = $lanes[$n];
		$case->{group} = $n == 0 ? 'grp_a' : "lane$n";
		$case->{table} = $n == 0 ? 't' : "t$n";
		$case->{sql} =~ s/\btbl\b/$case->{table}/g;
		wal_limit($case->{group} => 0);
		$case->{session}->query("SET dirty_throttle.\"group\" = '$case->{group}'; "
			  . ($case->{settings} // ''));
	}
	foreach (1 .. 3)
	{
		$_->{prepare}->($_->{table}) foreach @todo;
		fresh_limits($_->{group}, 0, $_->{kb}) foreach @todo;
		my @measured = measure_wal(map { [ @{$_}{qw(session sql)} ] } @todo);
		foreach my $case (@todo)
		{
			my $r = $case->{r} = shift @measured;

			$case->{percent} = 100 * $r->{wal_kb} / $r->{seconds} / $case->{kb};
			note sprintf '%s: %.0f KB of WAL, %.0f KB dirtied, %.0f KB/s at %d',
			  $case->{name}, $r->{wal_kb}, $r->{dirty_kb},
			  $r->{wal_kb} / $r->{seconds}, $case->{kb};
		}
		@todo = grep { $_->{percent} < 85 } @todo;
		last unless @todo;
	}
	foreach my $case (@cases)
	{
		my ($name, $r, $dirties) = @{$case}{qw(name r dirties)};

		between($case->{percent}, 85, 115, "$name: % of the limit");
		between($r->{wal_kb}, $case->{least_kb}, 2 * $case->{least_kb},
			"$name: KB of WAL");
		is($r->{wal_pauses}, $r->{pauses} || 'some',
			"$name: it pauses, and only for the WAL")
		  unless $case->{any_pauses};
		between($r->{dirty_kb}, 0,
			$dirties < 1 ? $dirties * $r->{wal_kb} : $dirties,
			"$name dirties little: KB of blocks")
		  if $dirties;
		fresh_limits($case->{group});
		$case->{session}->query('RESET max_parallel_workers_per_gather');
	}
}

my $row_kb = 0.85;
my $file = PostgreSQL::Test::Utils::tempdir() . '/copy.data';
append_to_file($file, join('', map { "$_\t" . 'x' x 800 . "\n" } 1 .. $rows));

# The same few rows again and again: it dirties next to nothing.
$dt->sql("CREATE TABLE hot (id int, filler text) WITH (fillfactor = 40);
	INSERT INTO hot " . rows(8) . ';
	CREATE PROCEDURE churn(n int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1..n LOOP
			UPDATE hot SET filler = repeat(chr(97 + i % 26), 800);
			COMMIT;
		END LOOP;
	END $$');

check_rates(
	[ 'INSERT', \&create_table, 'INSERT INTO tbl ' . rows($rows), $rows * $row_kb ],
	[ 'COPY', \&create_table, "COPY tbl FROM '$file'", $rows * 0.8 ],
	[ 'COPY FROM STDIN', \&create_table, "COPY tbl FROM STDIN;\n" . slurp_file($file) . "\\.\n",
		$rows * 0.8 ]);
# beside a long transaction the old versions of hot rows would stay
check_rates(
	[ 'UPDATE of hot rows', sub { $dt->sql('VACUUM hot') },
		'CALL churn(400)', 8 * 400 * $row_kb, dirties => 0.2 ],
	[ 'many small transactions', \&create_table,
		join(";\n", ('INSERT INTO tbl ' . rows(10)) x ($rows / 10)),
		$rows * $row_kb ]);
check_rates(
	[ 'single UPDATEs of hot rows', sub { $dt->sql('VACUUM hot') },
		join(";\n", map { "UPDATE hot SET filler = repeat('" . chr(97 + $_ % 26) . "', 800)" } 1 .. 400),
		8 * 400 * $row_kb, dirties => 0.2 ]);
check_rates(
	[ 'hint bits', sub { create_fresh_rows($_[0], $rows) },
		'SELECT count(*) FROM tbl', $rows * $row_kb ],
	[ 'hint bits in a parallel scan',
		sub {
			create_fresh_rows($_[0], $rows);
			$dt->sql("ALTER TABLE $_[0] SET (parallel_workers = 2)");
		},
		'SELECT count(*) FROM tbl', $rows * $row_kb,
		settings => 'SET max_parallel_workers_per_gather = 2' ]);
$s->query('SET max_parallel_workers_per_gather = 2');
like($s->query('EXPLAIN SELECT count(*) FROM t1'),
	qr/Workers Planned: 2/, 'a parallel plan');
$s->query('RESET max_parallel_workers_per_gather');

# ------------------------------------------------------ paid after the commit

# A command that cannot pause: one pause, after it, and its rate.
sub check_after
{
	my ($name, $prepare, $sql, $least_kb) = @_;
	my $kb = $limit / 2;
	my ($paused, $row, $wal_kb);

	at_limit(
		sub {
			$prepare->();
			fresh_limits('grp_a', 0, $kb);
			my $before = $dt->session_row($s);
			my $result;
			my $ms = elapsed_ms(
				sub {
					$s->send(DirtyThrottle::pays_after($sql));
					$paused = $dt->wait_paused($s, 'after transaction');
					$row = $dt->session_row($s);
					$result = $s->wait;
				});
			die "$sql: $result->{err}" if defined $result->{sqlstate};
			$row->{pauses} -= $before->{pauses};
			$wal_kb = ($dt->session_row($s)->{wal_bytes} - $before->{wal_bytes})
			  / 1000;
			note sprintf('%s: %.0f KB of WAL, %.0f KB/s at %d',
				$name, $wal_kb, $wal_kb / $ms * 1000, $kb);
			return 100 * $wal_kb / ($ms / 1000) / $kb;
		},
		$name);
	ok($paused, "$name: pays after the transaction");
	is($row->{paused_by}, 'wal', "$name: for the WAL");
	is($row->{pauses}, 1, "$name: in one pause");
	between($wal_kb, $least_kb, 2 * $least_kb, "$name: KB of WAL");
}

$dt->sql('CREATE TABLE numbers (id int);
	INSERT INTO numbers SELECT generate_series(1, 100000);
	VACUUM (FREEZE) numbers');
check_after('CREATE INDEX',
	sub { $dt->sql('DROP INDEX IF EXISTS numbers_id; CHECKPOINT') },
	'CREATE INDEX numbers_id ON numbers (id)', 2000);
check_after('REINDEX', sub { $dt->sql('CHECKPOINT') },
	'REINDEX INDEX numbers_id', 2000);

sub settled_rows
{
	create_table('t');
	$dt->sql('INSERT INTO t ' . rows($rows / 2)
		  . '; CREATE INDEX t_id ON t (id)');
	$dt->sql('VACUUM (FREEZE, ANALYZE) t');
	$dt->sql('CHECKPOINT');
}
check_after('VACUUM FULL', \&settled_rows, 'VACUUM FULL t',
	$rows / 2 * $row_kb);
check_after('CLUSTER', \&settled_rows, 'CLUSTER t USING t_id',
	$rows / 2 * $row_kb);
check_after('ALTER TABLE', \&settled_rows,
	'ALTER TABLE t ALTER id TYPE bigint', $rows / 2 * $row_kb);

# --------------------------------------------------------------------- VACUUM

check_rates(
	[ 'VACUUM', sub { create_fresh_rows($_[0], $rows) },
		'VACUUM tbl', $rows * $row_kb, any_pauses => 1 ],
	[ 'VACUUM of dirty buffers', sub { create_dirty_dead_rows($_[0], $rows) },
		'VACUUM tbl', $rows * ($dt->node->pg_version->major < 19 ? 0.08 : 0.06),
		kb => 600, any_pauses => 1, dirties => 800 ]);
$_->quit foreach splice @lanes, 1;

# It pays while it runs, not all of it afterwards.
foreach my $case (
	[ 'VACUUM', sub { create_fresh_rows('t', 10000) }, 2000 ],
	[ 'VACUUM of dirty buffers', sub { create_dirty_dead_rows('t', 10000) }, 250 ])
{
	my ($name, $prepare, $kb) = @$case;

	$prepare->();
	fresh_limits('grp_a', 0, $kb);
	my $before = $dt->session_row($s)->{wal_bytes};
	$s->send('VACUUM t');
	ok( poll_until(
			sub { $dt->session_row($s)->{wal_bytes} > $before || $s->finished },
			5),
		"$name has begun");
	sleep 0.5;
	my $start = time;
	$before = $dt->session_row($s)->{wal_bytes};
	sleep 1.5;
	my $written = $dt->session_row($s)->{wal_bytes} - $before;
	between($written / 1000 / (time - $start) / $kb * 100,
		85, 115, "$name while it runs: % of the low limit");
	fresh_limits('grp_a');
	is($s->wait->{sqlstate}, undef, "$name ends without an error");
}

# ------------------------------------------------------------------- sharing

{
	my @members = map { $dt->session } 1 .. 4;
	my $group = 'share';

	create_table("share$_") foreach 0 .. 3;
	wal_limit($group => $limit);
	$_->query(qq{SET dirty_throttle."group" = '$group'}) foreach @members;
	$members[$_]->send("INSERT INTO share$_ " . rows(100000)) foreach 0 .. 3;
	$dt->wait_paused($_, 'in flight') foreach @members;
	is( $dt->sql("SELECT string_agg(DISTINCT paused_by, ' ')
			FROM dirty_throttle_sessions
			WHERE group_name = '$group' AND paused_since IS NOT NULL"),
		'wal', 'four members pause for the WAL');
	sleep 0.2;

	my $wal_bytes = sub {
		my %row = map { split /\|/ } split /\n/,
		  $dt->sql('SELECT pid, wal_bytes FROM dirty_throttle_sessions');
		return (time, map { $row{ $_->pid } } @members);
	};
	my ($start, @before) = $wal_bytes->();
	sleep 2;
	my ($end, @after) = $wal_bytes->();
	my @shares = map {
		($after[$_] - $before[$_]) / 1000 / ($end - $start) / $limit * 100
	} 0 .. 3;
	between($shares[$_], 18, 32, "member $_ of four: % of the limit")
	  foreach 0 .. 3;
	between(sum(@shares), 85, 115, 'all four: % of the limit');
	between(100 * $dt->group_row($group)->{wal_rate} / $limit,
		85, 115, 'wal_rate: % of the limit');

	# The group has written what its members have; none of them moves now.
	wal_limit($group => 0.001);
	my $sums;
	ok( poll_until(
			sub {
				$sums = $dt->sql("SELECT g.wal_bytes = sum(s.wal_bytes)
					FROM dirty_throttle_groups g
					JOIN dirty_throttle_sessions s USING (group_name)
					WHERE group_name = '$group' GROUP BY g.wal_bytes");
				$sums eq 't';
			},
			5),
		'the group has written what its sessions have');
	wal_limit($group => 0);
	$dt->cancel_ms($_) foreach @members;
	$_->quit foreach @members;
}

# ----------------------------------------------------------- both limits

# A row a page: 8.2 KB dirtied and 0.9 KB of WAL each.
my $r;
foreach my $case (
	[ 'dirty', 12000, 3000 ],
	[ 'wal', 60000, 1200 ])
{
	my ($rules, $dirty_kb, $wal_kb) = @$case;
	my $name = "both limits, $rules is slower";
	my $row;

	at_limit(
		sub {
			create_table('t', 10);
			fresh_limits('grp_a', $dirty_kb, $wal_kb);
			$r = measure_wal([ $s, 'INSERT INTO t ' . rows(1000) ]);
			return $rules eq 'dirty'
			  ? 100 * $r->{dirty_kb} / $r->{seconds} / $dirty_kb
			  : 100 * $r->{wal_kb} / $r->{seconds} / $wal_kb;
		},
		$name);
	ok($r->{pauses} > 5, "$name: it pauses");
	between($r->{pauses} ? 100 * $r->{wal_pauses} / $r->{pauses} : undef,
		$rules eq 'wal' ? (90, 100) : (0, 10),
		"$name: % of the pauses are for the WAL");

	$s->send('INSERT INTO t ' . rows(20000));
	ok($dt->wait_paused($s, 'in flight'), "$name: a long one pauses");
	sleep 0.3;
	my %paused_by = map { ($dt->session_row($s)->{paused_by} // '') => 1 } 1 .. 20;
	delete $paused_by{''};
	is(join(' ', keys %paused_by), $rules, "$name: paused_by");

	# The other one becomes the slower one.
	my $other = $rules eq 'wal' ? 'dirty' : 'wal';
	$rules eq 'wal' ? $dt->limit(grp_a => 2000) : wal_limit(grp_a => 200);
	ok( poll_until(
			sub { ($dt->session_row($s)->{paused_by} // '') eq $other }, 2),
		"$name: the other one is lowered, and it pauses for that");
	fresh_limits('grp_a');
	$s->wait;
	is($dt->session_row($s)->{paused_by}, undef,
		"$name: nothing makes it pause any more");
}

# Who owes for both pays at the same time, not for one after the other.
at_limit(
	sub {
		create_table('t', 10);
		$dt->sql('INSERT INTO t ' . rows(400));
		fresh_limits('grp_a', 10000, 600);
		$r = measure_wal([ $s, 'ALTER TABLE t ALTER id TYPE bigint' ]);
		return 100 * $r->{wal_kb} / $r->{seconds} / 600;
	},
	'both owed after the commit, the WAL for longer');
between($r->{dirty_kb} / 10000 / $r->{seconds},
	0.4, 0.9, 'the blocks would have taken: part of that time');

# ----------------------------------------------- limits change while asleep

# Like put_to_sleep(), with a WAL limit, and perhaps a dirty one.
sub put_to_sleep
{
	my ($kind, $dirty_kb) = @_;
	my ($where, $sql) = @{ $DirtyThrottle::KINDS{$kind} };

	fresh_limits('grp_a', $dirty_kb, 1);
	$s->send($sql);
	return $dt->wait_paused($s, $where);
}

# Do something, and wait for the end of the statement, which must not be there
# before: ms.
sub wake_ms
{
	my ($code) = @_;
	my $result;
	my $asleep = !$s->finished;
	my $ms = elapsed_ms(
		sub {
			$code->();
			$result = $s->wait;
		});

	die $result->{err} if defined $result->{sqlstate};
	return $asleep ? $ms : undef;
}

foreach my $kind (sort keys %DirtyThrottle::KINDS)
{
	foreach my $change (
		[ 'limit removed', sub { wal_limit(grp_a => 0) } ],
		[ 'limit reset',
			sub { $dt->sql("SELECT reset_group_wal_limit('grp_a')") } ],
		[ 'limit raised', sub { wal_limit(grp_a => 16777216) } ])
	{
		my ($name, $code) = @$change;
		my $ms;

		# once more when it took long: the machine's fault, or it does again
		foreach (1 .. 2)
		{
			my @ms;

			foreach (1 .. 3)
			{
				ok(put_to_sleep($kind), "a session pauses $kind");
				push @ms, wake_ms($code) // 'inf';
			}
			$ms = median(@ms);
			last if $ms <= 100;
		}
		my $most = $ms <= 100 ? 100 : 100 + $dt->free_ms($s, $kind);
		between($ms, 0, $most, "$name while a session sleeps $kind: ms");
	}
}

# It sleeps on while the other limit lets it go.
ok(put_to_sleep('after commit', 1), 'a session pauses for both limits');
{
	my $row = $dt->session_row($s);

	is($row->{paused_by}, 'dirty', 'in debt for both: paused_by the longer one');
	between($row->{wal_debt_kb}, 30, 80, 'the WAL that is owed: KB');
	between($row->{debt_kb}, 300, 800, 'the blocks that are owed: KB');
	between($dt->group_row('grp_a')->{wal_debt_kb},
		30, 80, 'the WAL that the group owes: KB');
}
$dt->limit(grp_a => 0);
ok(!$s->finished(0.2), 'the dirty limit removed: it sleeps on');
{
	my $row = $dt->session_row($s);

	is($row->{paused_by}, 'wal', 'for the WAL');
	ok(defined $row->{paused_since}, 'and is shown as such');
	is($row->{debt_kb}, 0, 'and no block is owed');
	is($dt->group_row('grp_a')->{paused_processes}, 1, 'one pauses');
}
wal_limit(grp_a => 2);
ok(!$s->finished(0.2), 'a small change of the WAL limit: it sleeps on');
between(wake_ms(sub { wal_limit(grp_a => 0) }),
	0, 100, 'the WAL limit removed: ms');
is($dt->group_row('grp_a')->{paused_processes}, 0, 'nobody pauses');

# What was written without a limit is not owed.
$s->query($DirtyThrottle::KINDS{'after commit'}[1]);
is($dt->session_row($s)->{wal_debt_kb}, 0, 'no debt without a limit');
ok(put_to_sleep('after commit'), 'it pauses');
# some pages may be logged whole; of both transactions it would be 120
between($dt->session_row($s)->{wal_debt_kb},
	30, 110, 'all of the first transaction is owed, no more: KB');
fresh_limits('grp_a');
$s->wait;

# While a statement runs.
$s->send('INSERT INTO sleep ' . rows(200000));
foreach my $kb ($limit, $limit / 4, $limit)
{
	wal_limit(grp_a => $kb);
	sleep 0.3;
	at_limit(
		sub {
			my $start = time;
			my $before = $dt->session_row($s)->{wal_bytes};
			sleep 0.7;
			return 100 / $kb / 1000 / (time - $start)
			  * ($dt->session_row($s)->{wal_bytes} - $before);
		},
		"while a statement runs, $kb KB/s");
}
wal_limit(grp_a => 0);
$dt->cancel_ms($s);

# ---------------------------------------------------------------- the books

# Where the session's WAL begins and ends is asked in the session, so that
# nobody else's is in between, but for what the background writer logs of
# running transactions.
sub wal_position
{
	return $s->query('SELECT pg_current_wal_insert_lsn()');
}

# Bytes of all records, and of those that end transactions.
sub wal_records
{
	my ($from, $to) = @_;

	return (0, 0) if $from eq $to;
	# a commit that is flushed, and with it all that is before
	$dt->sql(q{SELECT pg_logical_emit_message(true, 'test', '')});
	return split /\|/, $dt->sql(
		"SELECT coalesce(sum(record_length), 0),
			coalesce(sum(record_length) FILTER (WHERE
				resource_manager = 'Transaction'
				AND record_type IN ('COMMIT', 'ABORT', 'PREPARE')), 0)
		 FROM pg_get_wal_records_info('$from', '$to')
		 WHERE record_type <> 'RUNNING_XACTS'");
}

sub statements_wal
{
	return $dt->sql('SELECT coalesce(sum(wal_bytes), 0)
		FROM pg_stat_statements
		WHERE toplevel AND userid = $$member$$::regrole');
}

# Tables t, empty, and fresh, with rows that nobody has looked at; nothing is
# left to be done to any catalog row.
sub prepare_books
{
	my ($setup) = @_;

	create_table('t', 10);
	create_table('fresh', 10);
	$dt->sql($setup) if $setup;
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql('CHECKPOINT');
	$dt->sql('TRUNCATE fresh; INSERT INTO fresh ' . rows(300));
	$dt->sql('VACUUM (FREEZE) pg_class; SELECT count(*) FROM pg_class');
	$dt->sql('CHECKPOINT');
	$s->query('EXPLAIN SELECT * FROM t, fresh; SELECT 1');
	wal_position();
	$dt->sql('SELECT pg_stat_statements_reset()');
}

# Charged is what is in the WAL; and that is what pg_stat_statements has seen,
# which does not see the ends of transactions unless a command makes them.
# Neither sees that the workers of a parallel CREATE INDEX lock the index, which
# they do before they begin to count.
sub check_books
{
	my ($name, $setup, $sql, $least_kb, $books, $sqlstate) = @_;

	prepare_books($setup);
	my $before = $dt->session_row($s)->{wal_bytes};
	my $from = wal_position();
	my $result = $s->run($sql);
	my $to = wal_position();
	my $charged = $dt->session_row($s)->{wal_bytes} - $before;
	my $seen = statements_wal();
	my ($records, $ends) = wal_records($from, $to);

	is($result->{sqlstate}, $sqlstate, "books, $name: the error");
	my $locks = $books eq 'locks' ? 3 * 42 : 0;
	between($records - $charged,
		0, $locks, "books, $name: bytes of all records that are not charged");
	ok($charged >= 1000 * $least_kb, "books, $name: and these are many");
	if ($books eq 'exact' || $books eq 'locks')
	{
		is($charged - $ends, $seen,
			"books, $name: bytes but for the ends of transactions");
	}
	elsif ($books eq 'some')
	{
		between($charged, $seen, $seen + $ends,
			"books, $name: bytes by pg_stat_statements");
	}
	return $result;
}

check_books('INSERT', '', 'INSERT INTO t ' . rows(300), 250, 'exact');
check_books('UPDATE', 'INSERT INTO t ' . rows(300),
	"UPDATE t SET filler = 'y'", 250, 'exact');
check_books('DELETE', 'INSERT INTO t ' . rows(300), 'DELETE FROM t', 250,
	'exact');
check_books('COPY', '', "COPY t (id) FROM PROGRAM 'seq 1 20000'", 200, 'exact');
check_books('hint bits', '', 'SELECT count(*) FROM fresh', 250, 'exact');
check_books('CREATE TABLE AS', 'DROP TABLE IF EXISTS made',
	'CREATE TABLE made AS SELECT * FROM fresh', 500, 'exact');
check_books('CREATE INDEX', '', 'CREATE INDEX ON numbers (id)', 2000, 'exact');
check_books('VACUUM', '', 'VACUUM fresh', 250, 'some');
check_books('VACUUM FULL', '', 'VACUUM FULL fresh', 250, 'some');
check_books('CREATE INDEX CONCURRENTLY', '',
	'CREATE INDEX CONCURRENTLY ON fresh (id)', 250, 'some');
check_books('a procedure with COMMIT', '', 'CALL churn(20)', 100, 'some');
check_books('ROLLBACK', '', 'BEGIN; INSERT INTO t ' . rows(300) . '; ROLLBACK',
	250, 'exact');
check_books('savepoints', '',
	"BEGIN; SAVEPOINT a; INSERT INTO t " . rows(100) . "; ROLLBACK TO a;
	SAVEPOINT b; INSERT INTO t " . rows(200) . '; COMMIT', 250, 'some');
check_books('PREPARE TRANSACTION', '',
	"BEGIN; INSERT INTO t " . rows(300) . "; PREPARE TRANSACTION 'p';
	COMMIT PREPARED 'p'", 250, 'exact');
check_books('a large object', '', "SELECT lo_from_bytea(0, convert_to(
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 10000) i),
	'UTF8'))", 250, 'exact');
check_books('an error', '',
	"INSERT INTO t SELECT i, repeat('x', 800 + 0 / (i - 300))
		FROM generate_series(1, 400) i", 250, 'none', '22012');
check_books('many transactions', '',
	join(";\n", ('INSERT INTO t ' . rows(3)) x 100), 250, 'exact');

# What parallel workers write is charged, once.
$s->query('SET max_parallel_workers_per_gather = 3;
	SET max_parallel_maintenance_workers = 3');
foreach my $leader ('on', 'off')
{
	$s->query("SET parallel_leader_participation = $leader");
	my $result = check_books(
		"a parallel query, leader participation $leader",
		'ALTER TABLE fresh SET (parallel_workers = 3)',
		'EXPLAIN (ANALYZE, WAL, FORMAT JSON) SELECT count(*) FROM fresh',
		250, 'exact');
	like($result->{out}, qr/"Workers Launched": [123]/, 'it has workers');
}
check_books('a parallel CREATE INDEX',
	'ALTER TABLE fresh SET (parallel_workers = 3)',
	'CREATE INDEX ON fresh (id)', 250, 'locks');
# nothing is left that would make the next one free
check_books('the next INSERT', '', 'INSERT INTO t ' . rows(300), 250, 'exact');
$s->query('RESET max_parallel_workers_per_gather;
	RESET parallel_leader_participation');

# Many sessions, with limits, and when they have gone.
{
	my $n = 5;

	create_table("t$_", 10) foreach 1 .. $n;
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql('CHECKPOINT');
	my @members = map { $dt->session(user => 'member') } 1 .. $n;
	$members[ $_ - 1 ]->query("SET max_parallel_maintenance_workers = 0;
		EXPLAIN SELECT * FROM t$_") foreach 1 .. $n;
	$s->quit;
	fresh_limits('grp_a', 50000, 2000);
	$_->query(q{SET dirty_throttle."group" = 'grp_a'}) foreach @members;
	$dt->sql("SELECT dirty_throttle_reset('grp_a')");
	{
		my $row = $dt->group_row('grp_a');
		is("$row->{wal_bytes} $row->{wal_pauses}", '0 0', 'a reset: no WAL');
	}
	my $from = $dt->sql('SELECT pg_current_wal_insert_lsn()');
	$members[ $_ - 1 ]->send("INSERT INTO t$_ " . rows(300) . ";
		UPDATE t$_ SET filler = 'z' WHERE id % 3 = 0;
		BEGIN;\nDELETE FROM t$_;\nROLLBACK;
		CREATE INDEX ON t$_ (id);
		VACUUM t$_") foreach 1 .. $n;
	is($_->wait->{sqlstate}, undef, 'one of many: no error') foreach @members;
	my $to = $dt->sql('SELECT pg_current_wal_insert_lsn()');
	my $row = $dt->group_row('grp_a');
	my $by_sessions =
	  $dt->sql('SELECT sum(wal_bytes) FROM dirty_throttle_sessions');

	is($row->{wal_bytes}, $by_sessions, 'many: the group has what they have');
	is($row->{wal_bytes}, (wal_records($from, $to))[0],
		'many: bytes of all records');
	ok($row->{wal_bytes} > $n * 300 * 1000 * 0.8, 'and these are many');
	ok($row->{wal_pauses} > 0, 'and they have paused');
	is($row->{wal_bytes},
		$dt->sql(q{SELECT sum(wal_bytes) FROM dirty_throttle_sessions()}),
		'the function says the same');
	$_->quit foreach @members;
	poll_until(sub { $dt->group_row('grp_a')->{active_processes} == 0 });
	is($dt->group_row('grp_a')->{wal_bytes},
		$by_sessions, 'they are gone, and it has what they had');
}

$dt->finish;
