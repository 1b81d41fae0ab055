# Kinds of commands, each under a dirty and under a WAL limit: what they use is
# paid, in the time that this must take, nearly all of it while they run, and in
# no second do they get much more than the limit.  The table that this prints
# is that of the benchmarks, too.
#
# Paid while it runs is what was paid when the last transaction of the command
# had ended, as time: that part of the time which it took in which no process of
# its group was seen from outside to pause after a transaction.
#
# Every command here checks for interrupts all the time.  But it is only then
# asked to pause when a timer has ticked, and while a command uses nothing, that
# is every 10 ms.  What it uses in less time than that at its very end is paid
# after its transaction, and what it uses so at any time comes in one go.  That
# is how some indexes get to the WAL: GIN, GiST with an operator class that
# cannot sort, and SP-GiST log all pages when they are done (log_newpage_range,
# with a check every 32 pages).  For these ("late") less is asked here.
#
# Not checked is, in the core: a write to a large object (inv_write: lo_put(),
# lo_import(), lo_from_bytea()); a WAL record, however big
# (pg_logical_emit_message()); and the pending list of a GIN index, as it is
# moved, for the entries that came meanwhile.  They are paid at the next check.
#
# With DT_BESIDE=1 in the environment each command shares its group with a
# member that inserts rows all the time.  Then the group as a whole gets its
# limit, and the command about half of it.  With DT_ROWS the tables have so many
# rows, and the limits are as much higher; with DT_COMMANDS only those commands
# run whose names match this expression.
#
# INSERT, REFRESH, CREATE TABLE AS and the PL/pgSQL function are paced between
# rows.  The others fail here when dirty_throttle.interrupt_pauses is off.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use List::Util qw(first max);
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $n = $ENV{DT_ROWS} // 50000;    # rows
my $aim = 2;           # s, which a command takes at its limit
my $slots = 8;         # commands at the same time
my $interval = 0.1;    # s, between two looks at all of them
my $allowance = 0.2;   # s, more than a command may take
my $beside = $ENV{DT_BESIDE};
my $wanted = $ENV{DT_COMMANDS} // '.';

my $dt = DirtyThrottle->new(
	'commands',
	init => [ allows_streaming => 'logical' ],
	conf => q{
shared_buffers = 512MB
max_wal_size = 16GB
wal_log_hints = on
allow_in_place_tablespaces = on
max_connections = 30
max_worker_processes = 24
max_parallel_workers = 16
maintenance_work_mem = 64MB
min_parallel_table_scan_size = 0
min_parallel_index_scan_size = 0
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 1000000000
autovacuum_vacuum_insert_threshold = -1
autovacuum_analyze_threshold = 1000000000
autovacuum_vacuum_scale_factor = 0
autovacuum_vacuum_cost_delay = 0
wal_retrieve_retry_interval = 100ms
dirty_throttle.max_groups = 200
});
my $version = $dt->sql('SHOW server_version_num');
my $jit = $dt->sql('SET jit = on; SELECT pg_jit_available(); RESET jit') eq 't';

# ------------------------------------------------------------------ the cases

# Rows that nobody has looked at: to read them sets hint bits, which dirties
# their pages and, with wal_log_hints, writes them to the WAL.
my $fresh = "CREATE TABLE tbl AS SELECT i AS id FROM generate_series(1, $n) i";
my $empty = 'CREATE TABLE tbl (id int)';
my $indexed = "$fresh; CREATE INDEX tbl_idx ON tbl USING";
my $more = $fresh =~ s/, $n/, 2 * $n/r;
my $big = $fresh =~ s/, $n/, 4 * $n/r;
my $dead = "$big; CREATE INDEX ON tbl (id); DELETE FROM tbl WHERE id % 2 = 0";
my $half = $fresh =~ s/, $n/, $n \/ 2/r;
my $view = "$fresh; CREATE MATERIALIZED VIEW tbl_v AS SELECT * FROM tbl WITH NO DATA";
my $rows = "SELECT i FROM generate_series(1, $n) i";

my $directory = $dt->node->data_dir;

# What takes time for each row.
my $slow = "length(repeat(md5(id::text), 20))";

my $slow_id = "((id + 0 * $slow))";
my $rejects = "SELECT count(*) FROM tbl WHERE $slow < 0";

my $checked = "CREATE TABLE tbl (id int CHECK ($slow > 0))";

# A point each, anywhere.
my $point = 'point(hashint4(id), hashint4(id + 1))';

# Each: a name, what is there before, the command ("tbl" is a table of the
# case's own), and what it dirties and writes to the WAL at least, in KB, when
# there are 100000 rows.  Options:
#	any_rows   however many rows there are
#	alone      of those with the same word here one at a time
#	db         the database
#	settings   of the session
#	move       the session is put into the group when the command has run so
#	           many seconds
#	worker     another process does it: the view that tells which, and the group
#	           that it is in; the command only starts it
#	own        it takes time for what is neither dirtied nor written: no more than
#	           all of it does without a limit
#	late       how much of it, in %, has to be paid while it runs, where that is
#	           less than nearly all
#	burst      much of it comes in one go
#	even       no second has much more than its share, although workers have
#	           written what the leader is not charged for
my %late = (late => 35);
my %burst = (burst => 1);
my %even = (even => 1);
my %concurrently = (alone => 'concurrently', db => 'other');
my @cases = (
	[ 'CREATE INDEX btree', $more,
		"CREATE INDEX ON tbl $slow_id", 7200, 11200, %even ],
	[ 'CREATE INDEX hash', $fresh,
		'CREATE INDEX ON tbl USING hash (id)', 7800, 10800 ],
	[ 'CREATE INDEX gin', $fresh,
		'CREATE INDEX ON tbl USING gin ((ARRAY[id]))', 9200, 6400, %late ],
	[ 'CREATE INDEX gist', $half,
		'CREATE INDEX ON tbl USING gist (box(point(id, id), point(id, id)))',
		6800, 4000, %late ],
	[ 'CREATE INDEX gist, sorted', $fresh,
		'CREATE INDEX ON tbl USING gist (point(id, id))', 3600, 8000 ],
	[ 'CREATE INDEX spgist', $half,
		"CREATE INDEX ON tbl USING spgist ($point)", 5000, 4000, %late ],
	[ 'CREATE INDEX brin', $fresh,
		"CREATE INDEX ON tbl USING brin $slow_id WITH (pages_per_range = 1)",
		3600, 3600 ],
	[ 'CREATE INDEX btree, parallel', $more,
		"CREATE INDEX ON tbl $slow_id", 7200, 11200, %even,
		settings => 'SET max_parallel_maintenance_workers = 2' ],
	[ 'CREATE INDEX CONCURRENTLY', $fresh,
		"CREATE INDEX CONCURRENTLY ON tbl $slow_id", 3600, 5600,
		%concurrently ],
	[ 'CREATE INDEX CONCURRENTLY hash', $fresh,
		'CREATE INDEX CONCURRENTLY ON tbl USING hash (id)', 7800, 10800,
		%concurrently ],
	[ 'REINDEX', "$indexed hash (id)", 'REINDEX INDEX tbl_idx',
		4200, 7200, %burst ],
	[ 'REINDEX CONCURRENTLY', "$indexed hash (id)",
		'REINDEX INDEX CONCURRENTLY tbl_idx', 4200, 7200, %burst, %concurrently ],
	[ 'ALTER TABLE, rewrite', $fresh,
		'ALTER TABLE tbl ALTER id TYPE bigint', 7200, 9900 ],
	[ 'ALTER TABLE ADD CHECK', $fresh,
		"ALTER TABLE tbl ADD CHECK ($slow > 0)", 3600, 3600 ],
	[ 'ALTER TABLE ADD FOREIGN KEY', "$fresh;
			CREATE TABLE tbl_p (id int PRIMARY KEY); INSERT INTO tbl_p $rows",
		'ALTER TABLE tbl ADD FOREIGN KEY (id) REFERENCES tbl_p', 7200, 7200 ],
	[ 'ALTER TABLE SET TABLESPACE', $big,
		'ALTER TABLE tbl SET TABLESPACE place', undef, 14400, %late ],
	[ 'CLUSTER', "$empty; CREATE INDEX tbl_idx ON tbl (id);
			INSERT INTO tbl $rows", 'CLUSTER tbl USING tbl_idx', 3600, 9200 ],
	[ 'VACUUM FULL', $big, 'VACUUM FULL tbl', 14400, 29000 ],
	# not CONCURRENTLY: that waits for all transactions of the server, which then
	# do not pause in flight
	$version < 190000 ? () : (
		[ 'REPACK', "$empty; CREATE INDEX tbl_idx ON tbl (id);
			INSERT INTO tbl $rows", 'REPACK tbl USING INDEX tbl_idx', 3600, 9200 ]),
	[ 'VACUUM', $dead, 'VACUUM tbl', 23600, 19600 ],
	[ 'VACUUM (PARALLEL 2)', "$dead; CREATE INDEX ON tbl ((id + 1))",
		'VACUUM (PARALLEL 2) tbl', 23600, 13000 ],
	# from 17 on it has its checks where it holds a page's lock
	[ 'ANALYZE', $big, 'ANALYZE tbl', 14400, 14400,
		$version < 170000 ? () : (%burst, late => 0) ],
	[ 'REFRESH MATERIALIZED VIEW', $view,
		'REFRESH MATERIALIZED VIEW tbl_v', 7200, 9500 ],
	[ 'REFRESH ... CONCURRENTLY', "$view; REFRESH MATERIALIZED VIEW tbl_v;
			CREATE UNIQUE INDEX ON tbl_v (id);
			UPDATE tbl SET id = -id WHERE id % 10 = 0",
		'REFRESH MATERIALIZED VIEW CONCURRENTLY tbl_v', 8000, 9000,
		own => 1 ],
	[ 'CREATE DATABASE', '',
		'CREATE DATABASE tbl STRATEGY wal_log', 7500, 4300, %late,
		any_rows => 1 ],
	[ 'COPY FROM a file', "$checked; COPY ($rows) TO '$directory/tbl.copy'",
		"COPY tbl FROM '$directory/tbl.copy'", 3600, 1200 ],
	[ 'COPY FROM STDIN', $checked,
		join("\n", 'COPY tbl FROM STDIN;', 1 .. $n, "\\.\n"), 3600, 1200 ],
	[ 'CREATE TABLE AS', '', "CREATE TABLE tbl AS $rows", 3600, 5900 ],
	[ 'INSERT ... SELECT', $empty, "INSERT INTO tbl $rows", 3600, 5900 ],
	[ 'a filter that rejects all', $fresh, $rejects, 3600, 3600 ],
	[ 'a filter, compiled', $fresh, $rejects, 3600, 3600,
		settings => 'SET jit = on; SET jit_above_cost = 0;
			SET jit_inline_above_cost = -1; SET jit_optimize_above_cost = -1' ],
	[ 'a PL/pgSQL function', "$empty;
			CREATE FUNCTION tbl_f() RETURNS void LANGUAGE plpgsql AS \$\$ BEGIN
				FOR i IN 1 .. $n LOOP INSERT INTO tbl VALUES (i); END LOOP;
			END \$\$",
		'SELECT tbl_f()', 3600, 5900 ],
	[ 'a SQL function', "$fresh;
			CREATE FUNCTION tbl_f() RETURNS bigint LANGUAGE sql
				AS \$\$ $rejects \$\$",
		'SELECT tbl_f()', 3600, 3600 ],
	[ 'DO', $fresh, "DO \$\$ DECLARE n int; BEGIN n := ($rejects); END \$\$",
		3600, 3600 ],
	[ 'a query, moved', $fresh, $rejects, 3300, 3300, move => 0.02 ],
	[ 'CREATE INDEX, moved', $more, 'CREATE INDEX ON tbl USING hash (id)',
		7400, 16000, move => 0.02 ],
	[ 'autovacuum', "$dead; ALTER TABLE tbl SET (autovacuum_enabled = off,
			autovacuum_vacuum_threshold = 1)",
		'ALTER TABLE tbl SET (autovacuum_enabled = on)', 23600, 19600,
		alone => 'autovacuum', worker => [ 'pg_stat_progress_vacuum', 'autovacuum' ] ],
	[ 'copy of a subscription', $checked, "CREATE SUBSCRIPTION tbl
			CONNECTION '" . $dt->node->connstr . " dbname=other' PUBLICATION tbl
			WITH (create_slot = false)", 3600, 1200,
		alone => 'copy', worker => [ 'pg_stat_progress_copy', 'apply' ],
		publish => "$fresh; CREATE PUBLICATION tbl FOR TABLE tbl;
			SELECT pg_create_logical_replication_slot('tbl', 'pgoutput')" ],
);

$dt->sql("CREATE TABLESPACE place LOCATION ''");
$dt->sql('CREATE DATABASE other');
my %db = (postgres => $dt->session, other => $dt->session(dbname => 'other'));
my $number = 0;

# The cases, once for each limit.
my @todo;
foreach my $case (@cases)
{
	my ($name, $setup, $sql, $dirty_kb, $wal_kb, %opt) = @$case;

	next if $name =~ /compiled/ && !$jit;
	next if $name !~ /$wanted/;
	foreach my $by ('dirty', 'wal')
	{
		my $kb = $by eq 'dirty' ? $dirty_kb : $wal_kb;

		$kb *= $n / 100000 if $kb && !$opt{any_rows};
		push @todo,
		  { name => $name, setup => $setup, sql => $sql, by => $by, least => $kb,
			limit => sprintf('%.0f', $kb / $aim), db => 'postgres', %opt }
		  if $kb;
	}
}

# Make what the case needs, in a new table; in that session, without waiting, if
# one is given.
sub set_up
{
	my ($case, $session) = @_;
	my $table = 't' . ++$number;
	my $of_its_own = sub { $_[0] =~ s/\btbl/$table/gr };

	$case->{group} = $case->{worker} ? $case->{worker}[1] : "grp_$number";
	$case->{table} = $table;
	$case->{command} = $of_its_own->($case->{sql});
	$db{other}->query($of_its_own->($case->{publish})) if $case->{publish};
	if ($case->{setup})
	{
		my $sql = $of_its_own->($case->{setup});

		$session ? $session->send($sql) : $db{ $case->{db} }->query($sql);
	}
	$dt->limit($case->{group} => 0);
	$dt->sql("SELECT set_group_burst('$case->{group}', 0)");
}

# The same for many, two at a time.
sub set_up_all
{
	my @sessions = ($db{postgres}, $dt->session);
	my @busy;

	my $wait = sub {
		my ($case, $s) = @{ shift @busy };
		my $r = $s->wait;

		die "$case->{name}: $r->{err}" if defined $r->{sqlstate};
		push @sessions, $s;
	};
	foreach my $case (@_)
	{
		if ($case->{db} ne 'postgres' || !$case->{setup})
		{
			set_up($case);
			next;
		}
		$wait->() unless @sessions;
		my $s = shift @sessions;
		set_up($case, $s);
		push @busy, [ $case, $s ];
	}
	$wait->() while @busy;
}

# ------------------------------------------------------------------ measuring

# Look at their groups: when, what each has used so far, in KB, and whether a
# member pauses after its transaction.  A worker is found, and seen to have
# gone, by that, too.
sub look
{
	my ($running) = @_;
	my $groups = join ', ', map { "'$_->{group}'" } @$running;
	return unless $groups;
	my $out = $dt->sql(
		"SELECT group_name, extract(epoch FROM clock_timestamp()),
			blocks_dirtied * current_setting('block_size')::int / 1000.0,
			wal_bytes / 1000.0,
			EXISTS (SELECT FROM dirty_throttle_sessions s
				JOIN pg_stat_activity a USING (pid)
				WHERE s.group_name = g.group_name AND paused_since IS NOT NULL
				  AND xact_start IS NULL)
		FROM dirty_throttle_groups g WHERE group_name IN ($groups)");
	my %row = map { my @f = split /\|/; ($f[0] => \@f) } split /\n/, $out;

	foreach my $case (@$running)
	{
		my (undef, $at, $dirty, $wal, $after) = @{ $row{ $case->{group} } };

		push @{ $case->{looks} },
		  { at => $at, kb => $case->{by} eq 'dirty' ? $dirty : $wal,
			after => $after eq 't' };
		look_at_worker($case) if $case->{worker};
	}
}

sub look_at_worker
{
	my ($case) = @_;

	if (!$case->{pid})
	{
		$case->{pid} = $dt->sql("SELECT pid FROM $case->{worker}[0]
			WHERE relid = '$case->{table}'::regclass AND datname = 'postgres'");
		if ($case->{pid})
		{
			my @looks = @{ $case->{looks} };

			# it may have begun right after the look before
			$case->{start} = time;
			$case->{unseen} = $looks[-1]{at} - $looks[ @looks > 1 ? -2 : -1 ]{at};
		}
		elsif (time > ($case->{start} // time) + 8)
		{
			fail("$case->{name}, $case->{by}: the worker is seen");
			$case->{gone} = 1;
		}
	}
	elsif ($dt->sql("SELECT count(*) FROM dirty_throttle_sessions
		WHERE pid = $case->{pid}") == 0)
	{
		$case->{gone} = 1;
	}
}

sub set_limits
{
	my ($case) = @_;
	my ($group, $limit) = @$case{qw(group limit)};

	# what it has used before is not owed, and nothing is saved up
	$dt->sql("SELECT set_group_dirty_limit('$group', 0),
			set_group_wal_limit('$group', 0)");
	$dt->sql("SELECT set_group_$case->{by}_limit('$group', $limit)");
}

sub start
{
	my ($case) = @_;
	my $joins = !$case->{move} && !$case->{worker};
	my $s = $dt->session(
		dbname => $case->{db},
		$joins ? (group => $case->{group}) : ());

	$case->{session} = $s;
	$case->{looks} = [];
	$s->query($case->{settings}) if $case->{settings};
	set_limits($case);
	if ($beside)
	{
		my $b = $case->{beside} = $dt->session(group => $case->{group});
		$b->query("CREATE TABLE beside_$case->{table} (filler text)");
		$b->send("DO \$\$ BEGIN LOOP
			INSERT INTO beside_$case->{table} VALUES (repeat('x', 900)); END LOOP; END \$\$");
		ok($dt->wait_paused($b, 'in flight'),
			"$case->{name}, $case->{by}: somebody inserts beside it");
	}
	look([$case]);
	$case->{other_kb} = used_kb($case, $case->{beside}) if $beside;
	$case->{start} = time;
	$s->send($case->{command});
	if ($case->{move})
	{
		sleep $case->{move};
		$dt->sql('SELECT set_session_group(' . $s->pid . ", '$case->{group}')");
		$case->{start} = time;
	}
}

# What a session has used so far.
sub used_kb
{
	my ($case, $s) = @_;
	my $row = $dt->session_row($s);

	return $case->{by} eq 'dirty'
	  ? $row->{blocks_dirtied} * $dt->block_kb
	  : $row->{wal_bytes} / 1000;
}

sub has_ended
{
	my ($case) = @_;
	return $case->{worker} ? $case->{gone} : $case->{session}->finished;
}

# How long it took, what that comes to in seconds at the limit, how much of the
# limit it has used in its worst second, and how much of its time was over when
# its last transaction was, in %.
sub end
{
	my ($case) = @_;
	my $took = time - $case->{start};

	look([$case]) unless $case->{gone};
	$case->{error} = $case->{session}->wait->{sqlstate};
	if ($beside)
	{
		$case->{other_kb} = used_kb($case, $case->{beside}) - $case->{other_kb};
		$dt->sql('SELECT pg_cancel_backend(' . $case->{beside}->pid . ')');
		$case->{beside}->wait;
		$case->{beside}->quit;
	}
	$case->{session}->quit;

	my @looks = @{ $case->{looks} };
	my $kb = $looks[-1]{kb} - $looks[0]{kb};
	my ($worst, $after) = (0, 0);
	foreach my $i (1 .. $#looks)
	{
		$worst = max($worst,
			map { ($looks[$i]{kb} - $looks[$_]{kb})
				/ max(1, $looks[$i]{at} - $looks[$_]{at}) } 0 .. $i - 1);
		$after += $looks[$i]{at} - $looks[ $i - 1 ]{at}
		  if $looks[ $i - 1 ]{after};
	}
	$case->{kb} = $kb;
	$case->{took} = $took;
	$case->{ideal} = $kb / $case->{limit};
	$case->{worst} = 100 * $worst / $case->{limit};
	$case->{in_flight} = 100 * (1 - $after / $took);
	$case->{share} = 100 * (1 - ($case->{other_kb} // 0) / $kb);
}

# Run the cases, several at a time.
sub run_all
{
	my @waiting = @_;
	my @running;
	my $next = 0;
	my $deadline = time + ($beside ? 180 : 60);

	while (@waiting || @running)
	{
		die 'this takes too long: ' . join ', ', map { $_->{name} } @running
		  if time > $deadline;
		while (@running < $slots)
		{
			my %busy = map { $_->{alone} => 1 } grep { $_->{alone} } @running;
			my $i = first {
				!($waiting[$_]{alone} && $busy{ $waiting[$_]{alone} })
			} 0 .. $#waiting;

			last unless defined $i;
			my ($case) = splice @waiting, $i, 1;
			start($case);
			push @running, $case;
		}
		if (time >= $next)
		{
			look(\@running);
			$next = time + $interval;
		}
		end($_) foreach grep { has_ended($_) } @running;
		@running = grep { !defined $_->{took} } @running;
		sleep 0.003;
	}
}

sub longest
{
	my ($case) = @_;
	my $free_s = $case->{free_s} // 0;

	return 1.1 * $case->{ideal}
	  + ($case->{own} ? $allowance + $free_s : max($allowance, $free_s));
}

# How long it takes without a limit, when the machine is as busy as it is.
sub measure_free
{
	my ($case) = @_;

	set_up($case);
	$dt->sql('CHECKPOINT');
	my $s = $dt->session(dbname => $case->{db});
	$s->query($case->{settings}) if $case->{settings};
	$case->{free_s} = elapsed_ms(sub { $s->query($case->{command}) }) / 1000;
	$s->quit;
}

# A table of what was measured.
sub report
{
	my ($case) = @_;

	diag sprintf '%-30s %-5s %6.0f KB/s %6.0f KB: ideal %5.2f s, took %5.2f s,'
	  . ' worst second %4.0f %%, in flight %4.0f %%'
	  . ($beside ? ', share %3.0f %%' : ''),
	  @$case{qw(name by limit kb ideal took worst in_flight)},
	  $beside ? $case->{share} : ();
}

# A new subscription waits for all transactions that run, which would let them
# go on without pausing.
my @workers = grep { $_->{worker} } @todo;
my @commands = grep { !$_->{worker} } @todo;
if ($beside)
{
	# whoever inserts holds a snapshot for which these would wait
	@commands = grep { $_->{name} !~ /CONCURRENTLY/ } @commands;
	@todo = @commands;
	@workers = ();
}
measure_free($_) foreach grep { $_->{own} } @todo;
set_up_all(@todo);
$dt->sql('CHECKPOINT');

# First those that run one at a time; then, of the others, one of each half of the
# list by turns: those that keep the processor busy are close together in it.  Last
# those that are to be moved soon after they begin, when not so many run.
my @alone = grep { $_->{alone} } @commands;
my @moved = grep { $_->{move} } @commands;
@commands = grep { !$_->{alone} && !$_->{move} } @commands;
my $middle = int((@commands + 1) / 2);
@commands = (@alone,
	(grep { defined } map { @commands[ $_, $_ + $middle ] } 0 .. $middle - 1),
	@moved);
run_all(@commands);

$dt->sql("ALTER SYSTEM SET dirty_throttle.autovacuum_group = 'autovacuum'");
$dt->sql("ALTER SYSTEM SET dirty_throttle.apply_group = 'apply'");
$dt->set_conf('autovacuum', 'on');
run_all(@workers);
$dt->set_conf('autovacuum', 'off');

# What took too long did so by fault of the machine's, perhaps.
foreach my $at_once (3, 1)
{
	my @again = grep { $_->{took} > longest($_) && !$_->{worker} } @todo;

	last unless @again;
	report($_) foreach @again;
	diag 'these are tried again';
	foreach my $case (@again)
	{
		measure_free($case);
		set_up($case);
		delete $case->{took};
	}
	$dt->sql('CHECKPOINT');
	$slots = $at_once;
	run_all(@again);
}

foreach my $case (@todo)
{
	my $name = "$case->{name}, $case->{by}";

	report($case);
	is($case->{error}, undef, "$name: no error");
	if ($beside)
	{
		between($case->{share}, 35, 75, "$name: % of what the group got");
		$case->{least} *= 100 / $case->{share};
	}
	between($case->{kb}, 0.8 * $case->{least}, 2 * $case->{least}, "$name: KB");
	between($case->{took},
		($beside ? 0.9 : 0.95) * $case->{ideal} - 0.02 - ($case->{unseen} // 0),
		longest($case), "$name: s");
	between($case->{worst}, 0,
		$case->{even} ? 130 : $case->{late} || $case->{burst} ? 210 : 150,
		"$name: % of the limit in the worst second");
	between($case->{in_flight}, $case->{late} // 80,
		101, "$name: % paid while it runs");
}
$dt->finish;
