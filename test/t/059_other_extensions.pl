# Other extensions that use the same hooks or wrap plans, loaded before
# dirty_throttle and after it: statements give the results that they give
# without it, the other extensions see what they see without it, the books are
# the core's and those of pg_stat_statements to the block, and what is limited
# is at its limit.  And one that runs commands without calling our hook.
#
# Takes those of the list below that the server has; the log names the others.
#
# takes-about: 22 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

chomp(my $libdir = `pg_config --pkglibdir`);
plan skip_all => 'no pg_stat_statements'
  unless -f "$libdir/pg_stat_statements.so";

# In an order in which they can be loaded.
#	create  is there an extension to create?
#	conf    for postgresql.conf
#	seen    what it says of the member's statements; must be the same always
my @others = (
	{
		name => 'timescaledb', create => 1,
		conf => "timescaledb.telemetry_level = off
timescaledb.bgw_launcher_poll_time = 500"
	},
	{
		name => 'pg_stat_statements', create => 1,
		conf => "pg_stat_statements.track = all
pg_stat_statements.track_planning = on",
		seen => q{SELECT string_agg(query || ': ' || calls || ', ' || rows, E'\n'
				ORDER BY query COLLATE "C", toplevel)
			FROM pg_stat_statements WHERE userid = $$member$$::regrole}
	},
	{
		name => 'pg_stat_kcache', create => 1,
		seen => q{SELECT count(*) > 10 FROM pg_stat_kcache()
			WHERE userid = $$member$$::regrole}
	},
	{
		name => 'pg_qualstats', create => 1,
		conf => 'pg_qualstats.sample_rate = 1',
		seen => q{SELECT string_agg(lrelid::regclass || '.' || lattnum || ': ' || n, ' '
				ORDER BY lrelid::regclass::text COLLATE "C", lattnum)
			FROM (SELECT lrelid, lattnum, sum(occurences) AS n FROM pg_qualstats()
				WHERE userid = $$member$$::regrole AND lrelid = 't'::regclass
				GROUP BY 1, 2) q}
	},
	{ name => 'pg_wait_sampling', create => 1 },
	{
		name => 'auto_explain',
		conf => 'auto_explain.log_min_duration = 0
auto_explain.log_analyze = on
auto_explain.log_buffers = on
auto_explain.log_nested_statements = on'
	},
	{ name => 'pgaudit', create => 1, conf => "pgaudit.log = 'write, ddl'" },
	{
		name => 'pgauditlogtofile', create => 1,
		conf => "pgaudit.log_directory = 'audit'
pgaudit.log_filename = 'audit.log'"
	},
	{
		name => 'plpgsql_check', create => 1,
		conf => 'plpgsql_check.profiler = on',
		seen => q{SELECT string_agg(coalesce(exec_stmts::text, ''), ' ' ORDER BY lineno)
			FROM plpgsql_profiler_function_tb('fill(int)')}
	});
my $library = compile_library('other_extension');

my @there = grep { -f "$libdir/$_->{name}.so" } @others;
my %is_there = map { $_->{name} => 1 } @there;
note 'with: ' . join ' ', map { $_->{name} } @there;
note 'not installed: ' . join ' ', grep { !$is_there{$_} } map { $_->{name} } @others;

my $limit = 40000;    # KB/s
my $x = "repeat('x', 800)";
my $rows = "SELECT i AS id, $x AS filler FROM generate_series(1, 400) i";

# ------------------------------------------------------------------ workload

# What the member does: name, statements, and how many blocks they dirty at
# least.  A table t with a row a page, fresh with rows that nobody has seen.
# pg_stat_statements does not see all of what those with a hypertable do, which
# TimescaleDB runs itself, and so it is with any VACUUM.
my @work = (
	[ 'INSERT', "INSERT INTO t $rows", 400 ],
	[ 'UPDATE', "UPDATE t SET filler = 'y' WHERE id % 2 = 0", 200 ],
	[ 'DELETE', 'DELETE FROM t WHERE id <= 100 RETURNING id', 100 ],
	[ 'hint bits', 'SELECT count(*) FROM fresh', 400 ],
	[ 'COPY', "COPY t (id) FROM PROGRAM 'seq 1 40000'", 100 ],
	[ 'a function', 'SELECT fill(100)', 100 ],
	[ 'a procedure with COMMIT', 'CALL fill_and_commit(100)', 100 ],
	[ 'a caught error', "DO \$\$ BEGIN
		BEGIN
			INSERT INTO t $rows; RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN
		END; END \$\$", 400 ],
	[ 'MERGE', 'MERGE INTO t USING fresh ON t.id = fresh.id AND t.id < 0
		WHEN NOT MATCHED THEN INSERT VALUES (fresh.id, fresh.filler)', 400 ],
	[ 'WITH', 'WITH d AS (DELETE FROM fresh RETURNING *)
		INSERT INTO t SELECT * FROM d', 800 ],
	[ 'a cursor', "BEGIN;\nDECLARE c CURSOR FOR SELECT id FROM t ORDER BY id;\n"
		. "FETCH 50 FROM c;\n" x 3 . "CLOSE c;\nCOMMIT", 0 ],
	[ 'EXPLAIN ANALYZE',
		"EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) INSERT INTO t $rows", 400 ],
	[ 'CREATE TABLE AS', 'CREATE TABLE made AS SELECT id, filler FROM t', 100 ],
	[ 'CREATE INDEX', 'CREATE INDEX ON t USING hash (id)', 100 ],
	[ 'CREATE INDEX CONCURRENTLY', 'CREATE INDEX CONCURRENTLY ON t (id)', 0 ],
	[ 'VACUUM', 'VACUUM t', 500 ],
	[ 'parallel query', 'SET max_parallel_workers_per_gather = 2;
		SELECT count(*), sum(id) FROM fresh2 WHERE filler IS NOT NULL;
		RESET max_parallel_workers_per_gather', 400 ],
	[ 'DROP', 'DROP TABLE made', 0 ]);

# The same with a hypertable, and what only those have.
my @hypertable_work = (
	[ 'hypertable: INSERT, many chunks',
		"INSERT INTO h SELECT '2026-01-01'::timestamptz + i * interval '1 hour', i, $x
			FROM generate_series(1, 480) i", 480 ],
	[ 'hypertable: one row', "INSERT INTO h VALUES ('2026-01-05', 5, 'one')", 1 ],
	[ 'hypertable: COPY', "COPY h FROM PROGRAM
		'for i in \$(seq 1 20000); do echo \"2026-02-0\$((i % 5 + 1)),\$i,copied\"; done'
		WITH (FORMAT csv)", 100 ],
	[ 'hypertable: UPDATE', "UPDATE h SET filler = 'y' WHERE device % 3 = 0", 100 ],
	[ 'hypertable: DELETE', 'DELETE FROM h WHERE device BETWEEN 100 AND 200 RETURNING device', 100 ],
	[ 'hypertable: upsert', "INSERT INTO h SELECT time, device, 'again' FROM h WHERE device < 50
		ON CONFLICT (time, device) DO UPDATE SET filler = excluded.filler", 10 ],
	[ 'hypertable: MERGE', "MERGE INTO h USING (SELECT * FROM h WHERE device < 20) s
		ON h.time = s.time AND h.device = s.device
		WHEN MATCHED THEN UPDATE SET filler = 'merged'", 1 ],
	[ 'hypertable: CREATE INDEX', 'CREATE INDEX ON h USING hash (device)', 10 ],
	[ 'hypertable: CREATE INDEX, a transaction a chunk',
		'CREATE INDEX ON h (filler) WITH (timescaledb.transaction_per_chunk)', 0 ],
	[ 'hypertable: ALTER TABLE', 'ALTER TABLE h ADD more int DEFAULT 3;
		ALTER TABLE h ALTER device TYPE bigint', 100 ],
	[ 'hypertable: parallel query', "SET max_parallel_workers_per_gather = 2;
		SELECT time_bucket('1 day', time), count(*), min(device) FROM h
			WHERE filler <> '' GROUP BY 1 ORDER BY 1;
		RESET max_parallel_workers_per_gather", 0 ],
	[ 'hypertable: VACUUM', 'VACUUM ANALYZE h', 10 ],
	[ 'reorder_chunk', "SELECT reorder_chunk(c, 'h_time_device_key')
		FROM (SELECT show_chunks('h') c LIMIT 1) c", 0 ],
	[ 'compression', "ALTER TABLE h SET (timescaledb.compress,
			timescaledb.compress_orderby = 'time', timescaledb.compress_segmentby = 'device');
		SELECT count(compress_chunk(c)) FROM show_chunks('h', older_than => '2026-02-02'::timestamptz) c", 10 ],
	[ 'compressed: SELECT', 'SELECT filler, count(*), sum(device) FROM h GROUP BY 1 ORDER BY 1', 0 ],
	[ 'compressed: UPDATE', "UPDATE h SET filler = 'changed'
		WHERE time BETWEEN '2026-01-03' AND '2026-01-04'", 1 ],
	[ 'compressed: INSERT', "INSERT INTO h SELECT '2026-01-04'::timestamptz + i * interval '1 minute',
		500000 + i, $x FROM generate_series(1, 200) i", 20 ],
	[ 'decompression', "SELECT count(decompress_chunk(c))
		FROM show_chunks('h', older_than => '2026-01-10'::timestamptz) c", 10 ],
	[ 'a continuous aggregate', "CREATE MATERIALIZED VIEW days
			WITH (timescaledb.continuous) AS
			SELECT time_bucket('1 day', time) AS day, filler, count(*) AS n
			FROM h GROUP BY 1, 2 WITH NO DATA;
		CALL refresh_continuous_aggregate('days', NULL, NULL);
		SELECT sum(n) FROM days", 1 ],
	[ 'drop_chunks', "SELECT count(*) FROM drop_chunks('h', older_than => '2026-01-15'::timestamptz)", 0 ],
	[ 'hypertable: TRUNCATE', 'TRUNCATE plain_h', 0 ]);
my %seen_by_statements = map { $_->[0] => 1 } @work;
if ($is_there{timescaledb})
{
	push @work, @hypertable_work;
	delete $seen_by_statements{VACUUM};
}

my @tables = ('t', $is_there{timescaledb} ? ('h', 'days') : ());

# A server; with our library first, last or not at all.
sub start
{
	my ($order) = @_;
	my @libraries = map { $_->{name} } @there;

	unshift @libraries, 'dirty_throttle' if $order eq 'first';
	push @libraries, 'dirty_throttle' if $order eq 'last';
	my $dt = DirtyThrottle::Life->new(
		"other_$order",
		no_start => 1,
		init => [ allows_streaming => 1 ],
		conf => "shared_preload_libraries = '" . join(', ', @libraries) . "'\n"
		  . join("\n", map { $_->{conf} // '' } @there) . q{
max_worker_processes = 24
max_parallel_workers = 4
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
max_locks_per_transaction = 256
timezone = 'UTC'
});
	$dt->node->start;
	# those in the member's statements as well, unlike their conditions
	$dt->sql('CREATE ROLE member SUPERUSER LOGIN;
		ALTER ROLE member SET auto_explain.log_min_duration = 0');
	$dt->sql("CREATE EXTENSION $_ CASCADE") foreach
	  (map { $_->{name} } grep { $_->{create} } @there),
	  ($order eq 'none' ? () : 'dirty_throttle');
	$dt->sql("CREATE FUNCTION blocks_dirtied() RETURNS bigint LANGUAGE c AS '$library';
		CREATE FUNCTION work() RETURNS void LANGUAGE c AS '$library';
		CREATE FUNCTION idle_work() RETURNS void LANGUAGE c AS '$library';
		CREATE FUNCTION launch_work(oid) RETURNS void LANGUAGE c AS '$library'")
	  if $library;
	return $dt;
}

# The tables, as they are before the workload.
sub prepare
{
	my ($dt) = @_;

	$dt->sql('CREATE TABLE t (id int, filler text) WITH (fillfactor = 10)');
	$dt->sql("CREATE TABLE $_ (LIKE t) WITH (fillfactor = 10)")
	  foreach 'fresh', 'fresh2';
	$dt->sql("CREATE FUNCTION fill(n int) RETURNS int LANGUAGE plpgsql AS \$\$
		BEGIN
			FOR i IN 1 .. n LOOP
				INSERT INTO t VALUES (i, $x);
			END LOOP;
			RETURN n;
		END \$\$;
		CREATE PROCEDURE fill_and_commit(n int) LANGUAGE plpgsql AS \$\$
		BEGIN
			FOR i IN 1 .. n LOOP
				INSERT INTO t VALUES (i, $x);
				IF i % 10 = 0 THEN COMMIT; END IF;
			END LOOP;
		END \$\$");
	$dt->sql("CREATE TABLE h (time timestamptz NOT NULL, device int, filler text,
			CONSTRAINT h_time_device_key UNIQUE (time, device)) WITH (fillfactor = 10);
		SELECT create_hypertable('h', 'time', chunk_time_interval => interval '1 day');
		CREATE TABLE plain_h (LIKE h);
		SELECT create_hypertable('plain_h', 'time');
		INSERT INTO plain_h SELECT '2026-01-01'::timestamptz + i * interval '1 day', i, ''
			FROM generate_series(1, 30) i")
	  if $is_there{timescaledb};
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql("INSERT INTO $_ $rows") foreach 'fresh', 'fresh2';
}

sub by_statements
{
	my ($dt) = @_;
	return $dt->sql('SELECT coalesce(sum(shared_blks_dirtied), 0)
		FROM pg_stat_statements WHERE toplevel AND userid = $$member$$::regrole');
}

# The lines of a session in the server log, and in that of pgauditlogtofile,
# that match.
sub count_logged
{
	my ($dt, $pid, $in_log, $in_file) = @_;
	my $file = $dt->node->data_dir . '/audit/audit.log';
	my $n = grep { /\[$pid\].*$in_log/ } split /\n/, $dt->log_since(0);

	$n += grep { /,member,.*,$pid,.*$in_file/ } split /\n/, slurp_file($file)
	  if $in_file && -f $file;
	return $n;
}

# Do the work; what each part answers, and in the end what is in the tables and
# what the others have seen.  Tests the books, if there are any.
sub work
{
	my ($dt, $s, $order) = @_;
	my %answers;

	$dt->sql('SELECT pg_stat_statements_reset()');
	foreach (@work)
	{
		my ($name, $sql, $least) = @$_;
		my ($charged, $counted, $core, $blocks);

		$dt->sql('CHECKPOINT');
		$core = $s->query('SELECT blocks_dirtied()') if $library;
		if ($order ne 'none')
		{
			$charged = $dt->session_row($s)->{blocks_dirtied};
			$counted = by_statements($dt);
		}
		my $r = $s->run($sql);
		is($r->{sqlstate}, undef, "$order: $name: no error") or diag $r->{err};
		$answers{$name} = $r->{out};
		if ($order eq 'none')
		{
			$s->query('SELECT blocks_dirtied()') if $library;
			next;
		}

		$blocks = $dt->session_row($s)->{blocks_dirtied} - $charged;
		$counted = by_statements($dt) - $counted;
		note sprintf '%s: %d blocks (%d by pg_stat_statements) in %d ms, %.1f %% of the limit',
		  $name, $blocks, $counted, $r->{ms},
		  100 * $blocks * $dt->block_kb / $limit / ($r->{ms} / 1000);
		is($blocks, $counted, "$order: $name: blocks by pg_stat_statements")
		  if $seen_by_statements{$name};
		is($blocks, $s->query('SELECT blocks_dirtied()') - $core,
			"$order: $name: blocks by the core")
		  if $library;
		ok($blocks >= $least, "$order: $name: and these are many");
	}
	$answers{"table $_"} = $dt->sql(qq{SELECT count(*),
		md5(string_agg(x::text, ' ' ORDER BY x::text COLLATE "C")) FROM $_ x})
	  foreach @tables;
	$answers{"seen by $_->{name}"} = $dt->sql($_->{seen})
	  foreach grep { $_->{seen} } @there;
	$answers{'seen by pgaudit'} =
	  count_logged($dt, $s->pid, 'AUDIT: SESSION', 'SESSION')
	  if $is_there{pgaudit};
	$answers{'seen by auto_explain'} =
	  count_logged($dt, $s->pid, 'duration: .* plan:')
	  if $is_there{auto_explain};
	return \%answers;
}

# ------------------------------------------------------------ rates and pauses

# A statement in a group that begins without credit: at the limit.
sub check_rate
{
	my ($dt, $s, $name, $before, $sql) = @_;

	$dt->sql("$before; CHECKPOINT");
	$dt->check_limit($name, 'grp_a', sub { $s->query($sql) }, limit => $limit);
}

sub check_pauses
{
	my ($dt, $s, $order) = @_;
	my $many = "SELECT i, $x FROM generate_series(1, 800) i";
	my $rewrite = 'ALTER TABLE t ALTER id TYPE int USING id + 1';

	check_rate($dt, $s, "$order: INSERT", 'TRUNCATE t', "INSERT INTO t $many");
	check_rate($dt, $s, "$order: ALTER TABLE", "TRUNCATE t; INSERT INTO t $many",
		$rewrite);
	if ($is_there{timescaledb})
	{
		my $chunks = "INSERT INTO h SELECT '2027-01-01'::timestamptz
			+ i * interval '5 minutes', i, $x FROM generate_series(1, 800) i";

		# into chunks that are there, since to create them takes longer
		check_rate($dt, $s, "$order: INSERT into a hypertable",
			"TRUNCATE h; $chunks; DELETE FROM h; VACUUM h", $chunks);
		check_rate($dt, $s, "$order: UPDATE of a hypertable",
			"DELETE FROM h; $chunks", "UPDATE h SET filler = 'y'");
		check_rate($dt, $s, "$order: CREATE INDEX on a hypertable",
			"DELETE FROM h; $chunks; DROP INDEX IF EXISTS h_by_filler",
			'CREATE INDEX h_by_filler ON h USING gin (string_to_array(filler, NULL))');
	}

	# in flight, seen and ended
	foreach my $sql ("INSERT INTO t $many", $rewrite)
	{
		my ($kind) = $sql =~ /^(\w+)/;

		$dt->limit(grp_a => 0);
		$dt->limit(grp_a => 2);
		$dt->sql('SELECT pg_wait_sampling_reset_profile()')
		  if $is_there{pg_wait_sampling};
		$s->send($sql);
		ok($dt->wait_paused($s, 'in flight'), "$order: $kind pauses in flight");
		if ($is_there{pg_wait_sampling})
		{
			my $pid = $s->pid;

			ok( poll_until(
					sub {
						$dt->sql("SELECT count(*) FROM pg_wait_sampling_profile
							WHERE pid = $pid AND event_type = 'Extension'") > 0;
					}),
				"$order: $kind: pg_wait_sampling sees the pause");
		}
		$dt->cancel_ms($s);
	}
	$dt->limit(grp_a => 0);
	is($s->query('SELECT 1'), '1', "$order: the session goes on");
	is(count_logged($dt, '\d+', 'LOG:  (logging memory|level: \d|Grand total)'),
		0, "$order: no memory contexts in the server log");
}

# Commands that our ProcessUtility hook never sees.
sub check_unseen
{
	my ($dt, $s, $order) = @_;
	my $many = "SELECT i, $x FROM generate_series(1, 800) i";
	my $fresh = "TRUNCATE t; INSERT INTO t $many";

	# pgaudit 1.7 crashes when it does not see a COPY
	$s->query('SET pgaudit.log = none; SET other_extension.runs_commands = on');
	check_rate($dt, $s, "$order: VACUUM, unseen",
		"$fresh; DELETE FROM t WHERE id % 2 = 0", 'VACUUM t');
	check_rate($dt, $s, "$order: COPY, unseen", 'TRUNCATE t',
		"COPY t (id) FROM PROGRAM 'seq 1 100000'");
	check_rate($dt, $s, "$order: CREATE INDEX, unseen", $fresh,
		'CREATE INDEX ON t USING hash (id)');
	$dt->limit(grp_a => 1);
	$s->send("COPY t (id) FROM PROGRAM 'seq 1 10000000'");
	ok($dt->wait_paused($s, 'in flight'),
		"$order: unseen commands pause while they run");
	$dt->cancel_ms($s);
	$dt->limit(grp_a => 0);

	# pays before, and is suspended
	$dt->sql("SELECT suspend_group('grp_a')");
	$s->send('VACUUM t');
	ok($dt->wait_paused($s), "$order: an unseen command waits in a suspended group");
	$dt->sql("SELECT resume_group('grp_a')");
	is($s->wait->{sqlstate}, undef, "$order: and goes on");
	$s->query('SET other_extension.runs_commands = off');
}

# Plans whose nodes another extension has wrapped before: its wrapper stays.
sub check_wrapped
{
	my ($dt, $s, $order) = @_;

	$s->query('SET other_extension.wraps_node = on;
		SET max_parallel_workers_per_gather = 2');
	check_rate($dt, $s, "$order: INSERT, wrapped", 'TRUNCATE t',
		"INSERT INTO t SELECT i, $x FROM generate_series(1, 800) i");
	is($s->query('SELECT count(*) FROM (SELECT id FROM t OFFSET 0) x'), '800',
		"$order: a parallel plan, wrapped");
	$s->query('SET other_extension.wraps_node = off;
		RESET max_parallel_workers_per_gather');
}

# A background worker that runs no statement, in a database that is in a group.
sub check_worker
{
	my ($dt, $order) = @_;
	my $worker_limit = $limit / 2;
	$dt->limit(jobs => $worker_limit);
	$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'jobs'});
	foreach my $work ('work', 'idle_work')
	{
		my $before = $dt->group_row('jobs');
		my $r = $dt->check_limit("$order: a worker without statements, $work", 'jobs',
			sub { $dt->sql("SELECT launch_work('$work'::regproc)") },
			limit => $worker_limit);
		between($r->{blocks}, 2500, 2520, "$order: $work: its blocks");
		my $row = $dt->group_row('jobs');
		ok($row->{pauses} > $before->{pauses}, "$order: $work: it pauses in flight");
	}
	$dt->sql('ALTER DATABASE postgres RESET dirty_throttle."group"');
}

# A job of TimescaleDB, in a database that is in a group: charged and paced.
sub check_job
{
	my ($dt, $order) = @_;
	my $r = $dt->check_limit(
		"$order: a job", 'jobs', sub {
	$dt->sql(q{ALTER DATABASE postgres SET dirty_throttle."group" = 'jobs';
		CREATE TABLE done (since timestamptz, until timestamptz);
		-- with no room in blocks that are dirty already
		CREATE TABLE filled (id int, filler text) WITH (fillfactor = 10);
		CREATE PROCEDURE job(id int, config jsonb) LANGUAGE plpgsql AS $$
		DECLARE
			began timestamptz := clock_timestamp();
		BEGIN
			FOR n IN 1 .. 5 LOOP
				INSERT INTO filled SELECT i, repeat('x', 800)
					FROM generate_series(1, 400) i;
				COMMIT;
			END LOOP;
			INSERT INTO done VALUES (began, clock_timestamp());
		END $$;
		SELECT add_job('job', '1 h')});
	ok(poll_until(sub { $dt->sql('SELECT count(*) FROM done') > 0 }),
		"$order: a background worker has run a job");
		},
		limit => $limit);
	between($r->{blocks}, 2000, 2400, "$order: its blocks");
	$dt->sql('ALTER DATABASE postgres RESET dirty_throttle."group"');
}

my $expected;
foreach my $order (qw(none first last))
{
	my $dt = start($order);
	my $s;

	prepare($dt);
	$dt->limit(grp_a => $limit) if $order ne 'none';
	$s = $dt->session(user => 'member',
		$order eq 'none' ? () : (group => 'grp_a'));
	my $answers = work($dt, $s, $order);

	if ($order eq 'none')
	{
		$expected = $answers;
		foreach ('pgaudit', 'auto_explain')
		{
			ok($answers->{"seen by $_"} >= 10, "$_ has seen much")
			  if $is_there{$_};
		}
	}
	else
	{
		is($answers->{$_}, $expected->{$_}, "$order: the same as without: $_")
		  foreach sort keys %$expected;
		check_pauses($dt, $s, $order);
		if ($library)
		{
			check_unseen($dt, $s, $order);
			check_wrapped($dt, $s, $order);
			check_worker($dt, $order);
		}
		check_job($dt, $order) if $is_there{timescaledb};
	}
	$s->quit;
	$dt->stop;
	unlike(slurp_file($dt->node->logfile),
		$DirtyThrottle::BAD_LOG, "$order: nothing bad in the server log");
}

done_testing();
