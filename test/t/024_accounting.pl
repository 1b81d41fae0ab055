# The books: what a group is charged with is, to the block, what the core's
# own counters say that its members have dirtied.
#
# For one statement, EXPLAIN (ANALYZE, BUFFERS) reports what planning and
# execution have dirtied, and pg_stat_statements (track = all,
# track_planning) the same for statements at top level, utility commands
# included.  Neither sees
#	- what parsing and analysis dirty: hint bits of catalog pages, for
#	  catalog rows that nobody has looked at yet; the same for what parallel
#	  workers dirty before and after they run their part of a plan,
#	- what commit, abort and the exit of a session dirty: with wal_level
#	  minimal the pages of new relations, which are logged then,
#	- statements that fail.
# Dirty_throttle charges these as well.  So here the catalogs are frozen
# first, and then it must be the same number; and where it cannot be, the
# charge is the larger one.
#
# takes-about: 5 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use Test::More;

my $dt = DirtyThrottle->new(
	'accounting',
	no_start => 1,
	# wal_level minimal is another thing, see below
	init => [ allows_streaming => 1 ],
	conf => q{
shared_preload_libraries = 'dirty_throttle, pg_stat_statements'
pg_stat_statements.track = all
pg_stat_statements.track_planning = on
max_worker_processes = 16
max_parallel_workers = 8
parallel_setup_cost = 0
parallel_tuple_cost = 0
min_parallel_table_scan_size = 0
});
chomp(my $libdir = `pg_config --pkglibdir`);
plan skip_all => 'no pg_stat_statements'
  unless -f "$libdir/pg_stat_statements.so";

$dt->node->start;
$dt->sql('CREATE EXTENSION dirty_throttle');
$dt->sql('CREATE EXTENSION pg_stat_statements');
$dt->sql('CREATE ROLE member SUPERUSER LOGIN');
$dt->limit(grp_a => 1000000);

my $s = $dt->session(user => 'member', group => 'grp_a');
my $x = "repeat('x', 800)";
my $n = 150;
my $rows = "SELECT i AS id, $x AS filler FROM generate_series(1, $n) i";
my $columns = '(id int, filler text) WITH (fillfactor = 10)';

# Nothing is left to be done to any catalog row, and no page is dirty.
sub settle
{
	$dt->sql('VACUUM (FREEZE)');
	$dt->sql('CHECKPOINT');
}

sub charged
{
	return $dt->session_row($s)->{blocks_dirtied};
}

sub statements_total
{
	return $dt->sql('SELECT coalesce(sum(shared_blks_dirtied), 0)
		FROM pg_stat_statements
		WHERE toplevel AND userid = $$member$$::regrole');
}

my $total = 0;

# Run the statement: what is charged is what pg_stat_statements says.  "fresh"
# is a table with rows that nobody has looked at.
sub check
{
	my ($name, $setup, $sql, $least, $runs) = @_;

	$dt->sql("DROP TABLE IF EXISTS t, fresh CASCADE; CREATE TABLE t $columns;
		CREATE TABLE fresh $columns; $setup");
	settle();
	$dt->sql("TRUNCATE fresh; INSERT INTO fresh $rows");
	# The catalog rows that this has changed are looked at here.
	$dt->sql("VACUUM (FREEZE) pg_class; SELECT count(*) FROM pg_class");
	$dt->sql('CHECKPOINT');
	# So that the plans and all they need are in the session's caches.
	$s->query('EXPLAIN SELECT * FROM t, fresh');
	$dt->sql('SELECT pg_stat_statements_reset()');

	my $before = charged();
	my $result = $s->run($sql);
	is($result->{sqlstate}, undef, "$name: no error");
	my $blocks = charged() - $before;
	is($blocks, statements_total(), "$name: blocks");
	ok($blocks >= $least, "$name: and these are many");
	$total += $blocks;
	return $result;
}

# ------------------------------------------------------ kinds of statements

check('INSERT', '', "INSERT INTO t $rows", $n);
check('UPDATE', "INSERT INTO t $rows", "UPDATE t SET filler = 'y'", $n);
check('DELETE', "INSERT INTO t $rows", 'DELETE FROM t', $n);
check('hint bits', '', 'SELECT count(*) FROM fresh', $n);
check('a filter', '', "SELECT * FROM fresh WHERE filler = ''", $n);
check('SELECT FOR UPDATE', "INSERT INTO t $rows",
	'SELECT count(*) FROM (SELECT 1 FROM t FOR UPDATE) l', $n);
check('MERGE', '', 'MERGE INTO t USING fresh ON t.id = fresh.id
	WHEN NOT MATCHED THEN INSERT VALUES (fresh.id, fresh.filler)', 2 * $n);
check('COPY', '', "COPY t (id) FROM PROGRAM 'seq 1 20000'", 100);
check('CREATE TABLE AS', 'DROP TABLE IF EXISTS made',
	'CREATE TABLE made AS SELECT * FROM fresh', $n);
check('CREATE INDEX', '', 'CREATE INDEX ON fresh (id)', $n);
check('CREATE INDEX USING gin', '',
	q{CREATE INDEX ON fresh USING gin (string_to_array(filler, ' '))}, $n);
check('CREATE INDEX CONCURRENTLY', '',
	'CREATE INDEX CONCURRENTLY ON fresh (id)', $n);
check('REINDEX', 'CREATE INDEX ON fresh USING hash (id)',
	'REINDEX TABLE fresh', $n);
check('ALTER TABLE', '', 'ALTER TABLE fresh ALTER id TYPE bigint', $n);
check('VACUUM', "INSERT INTO t $rows; DELETE FROM t WHERE id % 2 = 0",
	'VACUUM fresh', $n);
check('VACUUM FULL', '', 'VACUUM FULL fresh', $n);
check('ANALYZE', '', 'ANALYZE fresh', $n);
check('CLUSTER', 'CREATE INDEX i ON fresh (id)', 'CLUSTER fresh USING i', $n);
check('TRUNCATE', '', 'TRUNCATE fresh', 0);
check('REFRESH', 'CREATE MATERIALIZED VIEW m AS SELECT * FROM fresh',
	'REFRESH MATERIALIZED VIEW m', $n);
check('a DO block', '',
	"DO \$\$ BEGIN FOR i IN 1 .. $n LOOP
		INSERT INTO t VALUES (i, $x); END LOOP; END \$\$", $n);
check('a procedure with COMMIT',
	"CREATE OR REPLACE PROCEDURE put() LANGUAGE plpgsql AS \$\$ BEGIN
		FOR i IN 1 .. $n LOOP
			INSERT INTO t VALUES (i, $x);
			IF i % 100 = 0 THEN COMMIT; END IF;
		END LOOP; END \$\$", 'CALL put()', $n);
check('a caught error', '',
	"DO \$\$ BEGIN
		BEGIN
			INSERT INTO t $rows; RAISE EXCEPTION 'no';
		EXCEPTION WHEN raise_exception THEN
		END;
		PERFORM count(*) FROM fresh; END \$\$", 2 * $n);
check('a cursor', '',
	"BEGIN;\nDECLARE c CURSOR FOR SELECT id FROM fresh;\n"
	  . "FETCH 100 FROM c;\n" x 5
	  . "CLOSE c;\nCOMMIT", $n);
check('a prepared statement', '',
	"PREPARE p (int) AS INSERT INTO t SELECT i, $x
		FROM generate_series(1, \$1) i;\n"
	  . "EXECUTE p (40);\n" x 10
	  . 'DEALLOCATE p', $n);
check('deferred triggers',
	"CREATE OR REPLACE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS
		\$\$ BEGIN INSERT INTO t SELECT NEW.id, $x; RETURN NULL; END \$\$;
	CREATE CONSTRAINT TRIGGER look AFTER INSERT ON fresh
		DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look();
	ALTER TABLE fresh DISABLE TRIGGER look; ALTER TABLE fresh ENABLE TRIGGER USER",
	"BEGIN;\nINSERT INTO fresh SELECT i, $x FROM generate_series(1, 50) i;\nCOMMIT",
	50);
check('PREPARE TRANSACTION', '',
	"BEGIN;\nINSERT INTO t $rows;\nPREPARE TRANSACTION 'p';\nCOMMIT PREPARED 'p'",
	$n);
check('a large object', '', "SELECT lo_from_bytea(0, convert_to(
	(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 20000) i), 'UTF8'))",
	50);
check('a savepoint rolled back', '',
	"BEGIN;\nSAVEPOINT a;\nINSERT INTO t $rows;\nROLLBACK TO a;\nCOMMIT", $n);
check('a transaction rolled back', '',
	"BEGIN;\nINSERT INTO t $rows;\nROLLBACK", $n);

$s->query('SET max_parallel_workers_per_gather = 3;
	SET max_parallel_maintenance_workers = 3;
	SET parallel_leader_participation = off;
	SET min_parallel_index_scan_size = 0');
check('parallel query', '', 'SELECT count(*) FROM fresh', $n);
check('a parallel CREATE INDEX', '', 'CREATE INDEX ON fresh (id)', $n);
check('a parallel CREATE TABLE AS', 'DROP TABLE IF EXISTS made',
	'CREATE TABLE made AS SELECT * FROM fresh', $n);

check('a parallel VACUUM', 'CREATE INDEX ON fresh (id); CREATE INDEX ON fresh (filler)',
	"DELETE FROM fresh WHERE id % 2 = 0;\nVACUUM (PARALLEL 2) fresh", $n / 2);

# To open the table, a worker calls a function that its leader has called long
# ago, and is the first to see that its new catalog row is committed; and that
# the old one, on the same page or another, is not valid any more, which it notes
# in the index by which it has come there, too.  From 19 on the visibility map may
# change with that.
$dt->sql("CREATE FUNCTION handler(internal) RETURNS table_am_handler
		LANGUAGE internal AS 'heap_tableam_handler';
	CREATE ACCESS METHOD other TYPE TABLE HANDLER handler;
	CREATE TABLE by_am USING other AS $rows");
settle();
foreach my $changed (0, 1)
{
	$s->query('SELECT count(*) FROM by_am');
	$dt->sql('ALTER FUNCTION handler COST 2') if $changed;
	$dt->sql('CHECKPOINT');
	$dt->sql('SELECT pg_stat_statements_reset()');
	my $before = charged();
	$s->query('SELECT count(*) FROM by_am');
	between(charged() - $before - statements_total(), $changed, ($dt->node->pg_version->major < 19 ? 3 : 4) * $changed,
		"blocks that parallel workers dirty while they start");
}

# ------------------------------------------------------------------ EXPLAIN

# EXPLAIN sees what planning and execution dirty, of each row-by-row statement.
foreach my $case (
	[ INSERT => "INSERT INTO t $rows" ],
	[ UPDATE => "UPDATE fresh SET filler = 'y'" ],
	[ DELETE => 'DELETE FROM fresh' ],
	[ SELECT => 'SELECT * FROM fresh' ],
	[ 'SELECT, one row' => 'SELECT * FROM fresh LIMIT 1' ],
	[ 'data-modifying WITH' =>
		  'WITH d AS (DELETE FROM fresh RETURNING *) INSERT INTO t SELECT * FROM d' ],
	[ MERGE => 'MERGE INTO t USING fresh ON t.id = fresh.id
		WHEN NOT MATCHED THEN INSERT VALUES (fresh.id, fresh.filler)' ])
{
	my ($name, $sql) = @$case;
	my $before;

	$dt->sql("DROP TABLE IF EXISTS t, fresh CASCADE; CREATE TABLE t $columns;
		CREATE TABLE fresh $columns");
	settle();
	$dt->sql("TRUNCATE t, fresh; INSERT INTO fresh $rows");
	$dt->sql("VACUUM (FREEZE) pg_class; SELECT count(*) FROM pg_class");
	$dt->sql('CHECKPOINT');
	$s->query('EXPLAIN SELECT * FROM t, fresh');
	$before = charged();
	my $out =
	  $s->query("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) $sql");
	my ($execution) = $out =~ /"Shared Dirtied Blocks": (\d+)/;
	my ($planning) =
	  $out =~ /"Planning": \{[^}]*"Shared Dirtied Blocks": (\d+)/;
	my $blocks = charged() - $before;
	is($blocks, $execution + ($planning // 0), "EXPLAIN $name: blocks");
	ok($blocks > 0, "EXPLAIN $name: more than none");
	$total += $blocks;
}

# ---------------------------------------------------------------- the group

# The group's counter is its sessions', those included that have gone.
settle();
$dt->sql('SELECT dirty_throttle_reset()');
$dt->sql('SELECT pg_stat_statements_reset()');
$s->quit;
$dt->sql('DROP TABLE IF EXISTS t, fresh CASCADE');
my $sessions = 4;
$dt->sql("CREATE TABLE t$_ $columns; CREATE TABLE fresh$_ $columns;
	INSERT INTO fresh$_ $rows") foreach 1 .. $sessions;
settle();

# all catalog rows that they need are known to be committed by now
my @members = map { $dt->session(user => 'member') } 1 .. $sessions;
foreach my $i (1 .. $sessions)
{
	$members[ $i - 1 ]->query("EXPLAIN SELECT * FROM t$i, fresh$i;
		SET max_parallel_workers_per_gather = 2");
}
$dt->sql('SELECT pg_stat_statements_reset()');
$dt->sql('SELECT dirty_throttle_reset()');
$_->query(q{SET dirty_throttle."group" = 'grp_a'}) foreach @members;
$dt->sql('SELECT pg_stat_statements_reset()');
$dt->sql('CHECKPOINT');
$dt->limit(grp_a => 20000);
foreach my $i (1 .. $sessions)
{
	$members[ $i - 1 ]->send(
		"INSERT INTO t$i $rows;
		UPDATE t$i SET filler = 'z' WHERE id % 3 = 0;
		SELECT count(*) FROM fresh$i WHERE filler <> '';
		DELETE FROM fresh$i WHERE id % 2 = 0;
		DO \$\$ BEGIN FOR i IN 1 .. 100 LOOP
			BEGIN
				INSERT INTO t$i VALUES (i, $x);
				IF i % 10 = 0 THEN RAISE EXCEPTION 'no'; END IF;
			EXCEPTION WHEN raise_exception THEN
			END; END LOOP; END \$\$;
		VACUUM fresh$i;
		ANALYZE t$i;
		BEGIN;\nDELETE FROM t$i;\nROLLBACK;
		MERGE INTO t$i t USING fresh$i f ON t.id = f.id
			WHEN MATCHED THEN UPDATE SET filler = f.filler
			WHEN NOT MATCHED THEN INSERT VALUES (f.id, f.filler)");
}
foreach my $session (@members)
{
	is($session->wait->{sqlstate}, undef, 'a member of many: no error');
}
my $by_sessions = $dt->sql('SELECT sum(blocks_dirtied) FROM dirty_throttle_sessions');
is($dt->group_row('grp_a')->{blocks_dirtied},
	$by_sessions, 'the group is charged with what its sessions are');
$_->quit foreach @members;
ok( poll_until(
		sub { $dt->group_row('grp_a')->{members} == 0 }),
	'all have gone');
is($dt->group_row('grp_a')->{blocks_dirtied},
	$by_sessions, 'and their exits have dirtied nothing');
my $by_statements = statements_total();
diag("$sessions sessions: $by_sessions blocks charged, $by_statements in pg_stat_statements");
is($by_sessions, $by_statements, 'a mix of many: blocks');
ok($by_sessions > $sessions * 1.5 * $n, 'and these are many');

# What fails is charged, too; pg_stat_statements never hears of it.
$s = $dt->session(user => 'member', group => 'grp_a');
$dt->sql('SELECT pg_stat_statements_reset()');
$dt->sql("DROP TABLE IF EXISTS t; CREATE TABLE t $columns");
my $before = charged();
is($s->run("INSERT INTO t SELECT i, repeat('x', 800 + 0 / (i - $n))
	FROM generate_series(1, $n) i")->{sqlstate}, '22012', 'a statement that fails');
my $blocks = charged() - $before;
ok($blocks > $n * 0.9, 'a statement that fails is charged');

$s->quit;

# With wal_level minimal a commit logs the pages of relations that are new, by
# way of shared buffers: charged, too.
$dt->disconnect;
$dt->node->append_conf('postgresql.conf',
	"wal_level = minimal\nmax_wal_senders = 0");
$dt->node->restart;
$s = $dt->session(user => 'member', group => 'grp_a');
$dt->sql("DROP TABLE IF EXISTS fresh; CREATE TABLE fresh (id int);
	INSERT INTO fresh SELECT generate_series(1, 20000)");
settle();
$s->query('EXPLAIN SELECT * FROM fresh');
$dt->sql('SELECT pg_stat_statements_reset()');
$before = charged();
$s->query('CREATE INDEX by_id ON fresh (id)');
is( charged() - $before - statements_total(),
	$dt->sql("SELECT pg_relation_size('by_id')
		/ current_setting('block_size')::int"),
	'wal_level minimal: the commit dirties the new index, which is charged');

$dt->finish;
