# Kinds of statements that take other ways through the executor than plain
# INSERTs: each pays at the group's limit, and does what it does without a
# group.
#
# takes-about: 25 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $limit = 20000;    # KB/s
my $n = 500;          # rows, a page each: a fifth of a second's worth

my $dt = DirtyThrottle->new('statement_kinds');
$dt->limit(grp_a => $limit);
my $s = $dt->session(group => 'grp_a');
my $outsider = $dt->session;
my $version = $dt->sql("SELECT current_setting('server_version_num')");

my $x = "repeat('x', 800)";
my $rows = "SELECT i AS id, $x AS filler FROM generate_series(1, $n) i";
my $half = "SELECT i AS id, $x AS filler FROM generate_series(1, $n, 2) i";
my $columns = '(id int, filler text) WITH (fillfactor = 10)';
my $keyed = '(id int PRIMARY KEY, filler text) WITH (fillfactor = 10)';

# The setup, then the statement by a member and by somebody else: what the one
# pays for, and the same data in the tables for both.
sub check
{
	my ($name, $setup, $sql, %opt) = @_;
	my %check = (tables => ['t'], blocks => $n, settings => '', %opt);
	my ($blocks, $settings) = @check{qw(blocks settings)};

	$dt->sql("DROP SCHEMA IF EXISTS $_ CASCADE; CREATE SCHEMA $_;
		SET search_path = $_; $setup; RESET search_path") foreach qw(paced free);
	$s->query("SET search_path = paced; $settings");
	$outsider->query("SET search_path = free; $settings");
	$dt->sql('CHECKPOINT');

	my $r = $dt->check_limit($name, 'grp_a', sub { $s->run($sql) }, limit => $limit);
	die "$name: $r->{result}{err}" if $r->{result}{err} =~ /ERROR|FATAL|PANIC/;
	# and some of the catalogs and the indexes
	between($r->{blocks}, 0.95 * $blocks, 1.35 * $blocks + 40, "$name: blocks");
	my $free = $outsider->run($sql);
	is($free->{err}, $r->{result}{err}, "$name: messages");
	is($r->{result}{out}, $free->{out}, "$name: output");
	foreach my $table (@{ $check{tables} })
	{
		my @digest = map {
			$dt->sql("SELECT count(*),
				md5(coalesce(string_agg(r::text, ',' ORDER BY r::text), ''))
				FROM $_.$table r")
		} qw(paced free);
		is($digest[0], $digest[1], "$name: the rows of $table");
	}
	my $reset = join '; ', 'RESET search_path',
	  map { "RESET $_" } $settings =~ /SET (\w+)/g;
	$_->query($reset) foreach $s, $outsider;
}

# ------------------------------------------------------------ cursors, portals

# "fresh" has rows that nobody has looked at.
my $fresh = "CREATE TABLE t $columns; INSERT INTO t $rows";

check('FETCH in steps', $fresh,
	"BEGIN;\nDECLARE c CURSOR FOR SELECT id FROM t;\n"
	  . "FETCH 100 FROM c;\n" x 5
	  . "MOVE 100 FROM c;\n" x 3
	  . "FETCH ALL FROM c;\nCLOSE c;\nCOMMIT");
check('a scrollable cursor, backward', $fresh,
	"BEGIN;\nDECLARE c SCROLL CURSOR FOR SELECT id FROM t;\n"
	  . "MOVE ALL FROM c;\nFETCH BACKWARD 3 FROM c;\nFETCH ABSOLUTE 7 FROM c;\nCOMMIT");
check('a cursor WITH HOLD', $fresh,
	"BEGIN;\nDECLARE c CURSOR WITH HOLD FOR SELECT id FROM t;\n"
	  . "COMMIT;\nFETCH 3 FROM c;\nFETCH ALL FROM c;\nCLOSE c");
check('UPDATE WHERE CURRENT OF', $fresh,
	'DO $$ DECLARE c CURSOR FOR SELECT id FROM t FOR UPDATE;
	BEGIN
		FOR r IN c LOOP
			UPDATE t SET id = -id WHERE CURRENT OF c;
		END LOOP; END $$');
check('SELECT FOR UPDATE', $fresh,
	'SELECT count(*) FROM (SELECT 1 FROM t FOR UPDATE) l');
check('what psql sends when it has a FETCH_COUNT', $fresh, "BEGIN;
	DECLARE _psql_cursor NO SCROLL CURSOR FOR SELECT id FROM t;\n"
	  . "FETCH FORWARD 50 FROM _psql_cursor;\n" x (1 + $n / 50) . 'CLOSE _psql_cursor; COMMIT');

# ------------------------------------------------------------ SPI, procedures

check('an SQL function', "CREATE TABLE t $columns;
	CREATE FUNCTION put(i int) RETURNS void LANGUAGE sql AS
		\$\$ INSERT INTO t VALUES (i, $x) \$\$",
	"SELECT count(put(i)) FROM generate_series(1, $n) i");
check('a set-returning SQL function', "CREATE TABLE t $columns;
	CREATE FUNCTION put() RETURNS SETOF int LANGUAGE sql AS
		\$\$ INSERT INTO t $rows RETURNING id \$\$",
	'SELECT sum(put) FROM put()');
check('dynamic SQL', "CREATE TABLE t $columns",
	"DO \$do\$ BEGIN FOR i IN 1 .. $n LOOP
		EXECUTE format('INSERT INTO %I VALUES (\$1, $x)'
			, 't') USING i; END LOOP; END \$do\$" =~ s/repeat\('x', 800\)/repeat(''x'', 800)/r);
check('subtransactions', "CREATE TABLE t $columns",
	"DO \$\$ BEGIN FOR i IN 1 .. $n LOOP
		BEGIN
			INSERT INTO t VALUES (i, $x);
			IF i % 7 = 0 THEN RAISE EXCEPTION 'no'; END IF;
		EXCEPTION WHEN raise_exception THEN
		END; END LOOP; END \$\$", blocks => $n);
check('a procedure with COMMIT and ROLLBACK', "CREATE TABLE t $columns;
	CREATE PROCEDURE put() LANGUAGE plpgsql AS \$\$ BEGIN
		FOR i IN 1 .. $n LOOP
			INSERT INTO t VALUES (i, $x);
			IF i % 50 = 0 THEN ROLLBACK; ELSIF i % 10 = 0 THEN COMMIT; END IF;
		END LOOP; END \$\$",
	'CALL put()', blocks => $n);
check('a transaction with savepoints', "CREATE TABLE t $columns",
	"BEGIN;\n"
	  . join(
		'',
		map {
			"SAVEPOINT a;\nINSERT INTO t SELECT $_ * 1000 + i, $x
				FROM generate_series(1, $n / 5) i;\n"
			  . ($_ % 2 ? "ROLLBACK TO a;\n" : "RELEASE a;\n")
		} 1 .. 5)
	  . 'COMMIT');

# ------------------------------------------------------------------ triggers

check('row and statement triggers', "CREATE TABLE t $columns;
	CREATE TABLE log $columns; CREATE TABLE sums (n bigint);
	CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		INSERT INTO log VALUES (NEW.id, NEW.filler); RETURN NEW; END \$\$;
	CREATE FUNCTION sum() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		INSERT INTO sums SELECT sum(id) FROM added; RETURN NULL; END \$\$;
	CREATE TRIGGER log BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION log();
	CREATE TRIGGER sum AFTER INSERT ON t REFERENCING NEW TABLE AS added
		FOR EACH STATEMENT EXECUTE FUNCTION sum()",
	"INSERT INTO t $half", tables => [ 't', 'log', 'sums' ]);
check('deferred constraint triggers', "CREATE TABLE t $columns;
	CREATE TABLE log $columns;
	CREATE FUNCTION log() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		INSERT INTO log VALUES (NEW.id, NEW.filler); RETURN NULL; END \$\$;
	CREATE CONSTRAINT TRIGGER log AFTER INSERT ON t
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log()",
	"BEGIN;\nINSERT INTO t $half;\nCOMMIT", tables => [ 't', 'log' ]);
my $parent_and_child = "CREATE TABLE t $keyed; CREATE TABLE child
		(id int REFERENCES t ON DELETE CASCADE ON UPDATE CASCADE, filler text)
		WITH (fillfactor = 10);
	INSERT INTO t $half; INSERT INTO child $half;
	CREATE INDEX ON child (id)";
check('foreign keys, checked', "CREATE TABLE t $keyed; INSERT INTO t $half;
	CREATE TABLE child (id int REFERENCES t, filler text)
		WITH (fillfactor = 10)",
	"INSERT INTO child $half", tables => [ 't', 'child' ]);
check('foreign keys, ON DELETE CASCADE', $parent_and_child,
	'DELETE FROM t WHERE id > 0', tables => [ 't', 'child' ]);
check('foreign keys, ON UPDATE CASCADE', $parent_and_child,
	'UPDATE t SET id = -id', tables => [ 't', 'child' ], blocks => 1.05 * $n);

# ------------------------------------------------------------ kinds of changes

check('MERGE', "CREATE TABLE t $keyed; INSERT INTO t $half",
	"MERGE INTO t USING ($rows) s ON t.id = s.id
		WHEN MATCHED AND s.id % 3 = 0 THEN DELETE
		WHEN MATCHED THEN UPDATE SET filler = 'y'
		WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.filler)");
check('ON CONFLICT DO UPDATE', "CREATE TABLE t $keyed; INSERT INTO t $half",
	"INSERT INTO t $rows ON CONFLICT (id) DO UPDATE SET filler = 'y'");
check('ON CONFLICT DO NOTHING', "CREATE TABLE t $keyed",
	"INSERT INTO t $rows UNION ALL $half ON CONFLICT DO NOTHING");
check('data-modifying WITH', "CREATE TABLE t $columns; INSERT INTO t $half;
	CREATE TABLE log $columns",
	'WITH gone AS (DELETE FROM t WHERE id > 0 RETURNING *),
		kept AS (INSERT INTO log SELECT * FROM gone RETURNING id)
	 SELECT count(*), sum(id) FROM kept', tables => [ 't', 'log' ]);
check('a data-modifying WITH that nobody reads', "CREATE TABLE t $columns",
	"WITH put AS (INSERT INTO t $rows RETURNING id) SELECT 1");
check('partitions', "CREATE TABLE t (id int, filler text) PARTITION BY RANGE (id);
	CREATE TABLE p1 PARTITION OF t FOR VALUES FROM (0) TO (200)
		WITH (fillfactor = 10);
	CREATE TABLE p2 PARTITION OF t DEFAULT WITH (fillfactor = 10)",
	"INSERT INTO t $rows", tables => [ 't', 'p1', 'p2' ]);
check('rows that change the partition',
	"CREATE TABLE t (id int, filler text) PARTITION BY LIST ((id > 0));
	CREATE TABLE p1 PARTITION OF t FOR VALUES IN (true) WITH (fillfactor = 10);
	CREATE TABLE p2 PARTITION OF t FOR VALUES IN (false) WITH (fillfactor = 10);
	INSERT INTO t $half", 'UPDATE t SET id = -id', tables => [ 't', 'p1', 'p2' ]);
check('inheritance', "CREATE TABLE t $columns;
	CREATE TABLE c1 (x int) INHERITS (t) WITH (fillfactor = 10);
	INSERT INTO t $half; INSERT INTO c1 $half",
	"DELETE FROM t WHERE filler LIKE 'x%'", tables => [ 't', 'c1' ]);
check('a view with INSTEAD OF and RETURNING', "CREATE TABLE t $columns;
	CREATE VIEW v AS SELECT * FROM t;
	CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
		INSERT INTO t VALUES (NEW.id, NEW.filler); RETURN NEW; END \$\$;
	CREATE TRIGGER put INSTEAD OF INSERT ON v
		FOR EACH ROW EXECUTE FUNCTION put()",
	"INSERT INTO v $rows RETURNING id");
check('TOAST', "CREATE TABLE t (id int, filler text);
	ALTER TABLE t ALTER filler SET STORAGE external",
	"INSERT INTO t SELECT i, repeat(md5(i::text), 250)
		FROM generate_series(1, $n) i", blocks => 1.05 * $n);

# ----------------------------------------------------------- prepared, generic

foreach my $mode ('force_generic_plan', 'force_custom_plan')
{
	check("EXECUTE, $mode", "CREATE TABLE t $columns",
		"PREPARE p (int, int) AS INSERT INTO t
			SELECT i, $x FROM generate_series(\$1, \$2) i;\n"
		  . join(";\n", map { 'EXECUTE p (' . ($_ * $n / 10 + 1) . ', '
				  . ($_ + 1) * $n / 10 . ')' } 0 .. 9)
		  . ";\nDEALLOCATE p",
		settings => "SET plan_cache_mode = $mode");
}
check('EXECUTE of a SELECT with INTO', $fresh,
	"PREPARE p AS SELECT * FROM t;\nCREATE TEMP TABLE made AS EXECUTE p;\n"
	  . "SELECT count(*) FROM made;\nDROP TABLE made;\nDEALLOCATE p");

# ------------------------------------------------- filters that reject all rows

my $indexed = "$fresh; CREATE INDEX ON t (id)";
check('a filter of a Seq Scan', $fresh, "DELETE FROM t WHERE filler = 'no'");
check('a filter of a subplan', $fresh,
	"SELECT count(*) FROM t WHERE id < (SELECT -count(*) FROM generate_series(1, 2))");
check('a filter of a TID Range Scan', $fresh,
	"SELECT id FROM t WHERE ctid > '(0,0)' AND filler = 'no'");
check('a filter above an index', $fresh,
	"SELECT id FROM t WHERE id > 0 AND filler = 'no'",
	settings => 'SET enable_seqscan = off; SET enable_bitmapscan = on');
check('joins that find nothing', "$fresh; CREATE TABLE e (id int);
	INSERT INTO e VALUES (-1)",
	'SELECT t.id FROM t JOIN e USING (id)', settings => 'SET enable_nestloop = off');
check('a hash join', $fresh,
	'SELECT count(*) FROM t a JOIN t b USING (id)',
	settings => 'SET enable_mergejoin = off; SET enable_nestloop = off');
check('a merge join', $fresh,
	'SELECT count(*) FROM t a JOIN t b USING (id)',
	settings => 'SET enable_hashjoin = off; SET enable_nestloop = off');
check('UNION, window functions', $fresh,
	'SELECT count(*) FROM (SELECT id, row_number() OVER (ORDER BY id) FROM t
		UNION SELECT id, -1 FROM t) u');
check('EXISTS and NOT IN', $fresh,
	"SELECT count(*) FROM generate_series(1, 3) g
		WHERE g NOT IN (SELECT -id FROM t)");

SKIP:
{
	my $available =
	  $dt->sql('SET jit = on; SELECT pg_jit_available(); RESET jit');
	skip 'no LLVM here', 20 if $available ne 't';

	# without optimization, which takes longer than the statements
	my $jit = 'SET jit = on; SET jit_above_cost = 0;
		SET jit_inline_above_cost = -1; SET jit_optimize_above_cost = -1';
	check('JIT, INSERT', "CREATE TABLE t $columns", "INSERT INTO t $rows",
		settings => $jit);
	check('JIT, UPDATE', $fresh, "UPDATE t SET filler = filler || 'y'
		WHERE id % 2 = 0", settings => $jit);
	check('JIT, hint bits', $fresh, 'SELECT count(*), sum(id) FROM t',
		settings => $jit);
	# a compiled filter is charged live, and paid after
	check('JIT, a filter', $fresh, "SELECT id FROM t WHERE filler = 'no'",
		settings => $jit);
}

# ----------------------------------------------------------- a foreign table

SKIP:
{
	skip 'no postgres_fdw', 10
	  if $dt->sql("SELECT count(*) FROM pg_available_extensions
		WHERE name = 'postgres_fdw'") == 0;

	# local triggers dirty, what is remote is another session's
	$dt->sql('CREATE EXTENSION postgres_fdw;
		CREATE SERVER self FOREIGN DATA WRAPPER postgres_fdw
			OPTIONS (' . join(', ',
		"host '" . $dt->node->host . "'",
		"port '" . $dt->node->port . "'",
		"dbname 'postgres'") . ');
		CREATE USER MAPPING FOR CURRENT_USER SERVER self');
	check('a foreign table, read', "CREATE TABLE r $columns; INSERT INTO r $rows;
		CREATE TABLE t $columns;
		DO \$\$ BEGIN EXECUTE format('CREATE FOREIGN TABLE f
			(id int, filler text) SERVER self
			OPTIONS (schema_name %L, table_name ''r'')', current_schema); END \$\$",
		'INSERT INTO t SELECT * FROM f');
	check('a foreign table, written', "CREATE TABLE r $columns;
		CREATE TABLE t $columns;
		DO \$\$ BEGIN EXECUTE format('CREATE FOREIGN TABLE f
			(id int, filler text) SERVER self
			OPTIONS (schema_name %L, table_name ''r'')', current_schema); END \$\$;
		CREATE FUNCTION put() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
			INSERT INTO t VALUES (NEW.id, NEW.filler); RETURN NEW; END \$\$;
		CREATE TRIGGER put AFTER INSERT ON f
			FOR EACH ROW EXECUTE FUNCTION put()",
		"INSERT INTO f $rows", tables => [ 't', 'r' ]);
	check('UPDATE and DELETE of a foreign table',
		"CREATE TABLE r $columns; INSERT INTO r $rows; $fresh;
		DO \$\$ BEGIN EXECUTE format('CREATE FOREIGN TABLE f
			(id int, filler text) SERVER self
			OPTIONS (schema_name %L, table_name ''r'')', current_schema); END \$\$",
		"UPDATE f SET filler = 'y' FROM t WHERE t.id = f.id AND t.id % 2 = 0;
		DELETE FROM f USING t WHERE t.id = f.id AND t.id % 3 = 0",
		tables => [ 't', 'r' ]);
}

# ------------------------------------------------------------- EvalPlanQual

# Somebody else has changed rows that a member changes, and commits while that
# one waits: it goes on with the new versions.
$dt->sql("DROP TABLE IF EXISTS epq; CREATE TABLE epq $keyed;
	INSERT INTO epq $rows; CHECKPOINT");
$outsider->query('BEGIN; UPDATE epq SET id = id + 100000 WHERE id % 10 = 0;
	UPDATE epq SET filler = NULL WHERE id % 10 = 1');
$dt->sql('CHECKPOINT');
my $r = $dt->check_limit(
	'EvalPlanQual',
	'grp_a',
	sub {
		$s->send('UPDATE epq SET filler = coalesce(filler, $$was null$$) || $$y$$
			WHERE id < 100000');
		ok( poll_until(
				sub {
					$dt->sql("SELECT count(*) FROM pg_locks WHERE NOT granted") > 0;
				}),
			'EvalPlanQual: it waits');
		$outsider->query('COMMIT');
		return $s->wait;
	},
	limit => $limit / 2);
is($r->{result}{sqlstate}, undef, 'EvalPlanQual: no error');
is( $dt->sql("SELECT count(*) FILTER (WHERE id > 100000 AND filler = $x),
		count(*) FILTER (WHERE filler = 'was nully'),
		count(*) FILTER (WHERE filler = $x || 'y'), count(*) FROM epq"),
	join('|', $n / 10, $n / 10, $n * 8 / 10, $n), 'EvalPlanQual: the data');

# And while it pauses in flight: nobody waits for what it has not touched.
$dt->sql("TRUNCATE epq; INSERT INTO epq $rows; CHECKPOINT");
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 10);
$s->send("UPDATE epq SET filler = filler || 'y'");
ok($dt->wait_paused($s, 'in flight'), 'EvalPlanQual: it pauses');
my ($last) = $n;
$outsider->query("UPDATE epq SET filler = 'z' WHERE id = $last");
$dt->limit(grp_a => 0);
is($s->wait->{sqlstate}, undef, 'EvalPlanQual: no error');
is($dt->sql("SELECT filler FROM epq WHERE id = $last"),
	'zy', 'EvalPlanQual: the newest version is changed');

# SERIALIZABLE and REPEATABLE READ members still fail as they must.
$s->query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM epq");
$outsider->query("UPDATE epq SET filler = 'w' WHERE id = 1");
is($s->run('UPDATE epq SET id = -id WHERE id = 1')->{sqlstate},
	'40001', 'REPEATABLE READ: could not serialize');
$s->query('ROLLBACK');

# ------------------------------------------------------ prepared transactions

$dt->limit(grp_a => $limit);
$dt->sql("DROP TABLE IF EXISTS t; CREATE TABLE t $columns");
foreach my $end ('COMMIT', 'ROLLBACK')
{
	$dt->sql('TRUNCATE t') if $end eq 'COMMIT';
	my $r = $dt->check_limit(
		"$end PREPARED", 'grp_a',
		sub {
			$s->query("BEGIN;\nINSERT INTO t $rows;\nPREPARE TRANSACTION 'p';\n"
				  . "$end PREPARED 'p';\n$MAY_WRITE");
		},
		limit => $limit);
	between($r->{blocks}, $n, 1.2 * $n, "$end PREPARED: blocks");
	is($dt->sql('SELECT count(*) FROM t'), $n, "$end PREPARED: rows");
}
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 10);
my $before = $dt->session_row($s)->{pauses};
$s->query(DirtyThrottle::pays_after(
		"BEGIN;\nALTER TABLE t ALTER id TYPE bigint;\nPREPARE TRANSACTION 'p'"));
is($dt->session_row($s)->{pauses},
	$before, 'PREPARE TRANSACTION does not pause');
ok($dt->session_row($s)->{dirty_debt} > 500, 'but owes');
$outsider->query("COMMIT PREPARED 'p'");
$s->send($MAY_WRITE);
ok($dt->wait_paused($s, 'in flight'), 'the next transaction pays first');
$dt->limit(grp_a => 0);
$s->wait;

$dt->finish;
