# What a statement is by its kind.  One whose kind writes pays before it begins, with
# no snapshot, no transaction ID, and nothing done; everything else begins at once,
# whatever it calls, and is answered at once as long as nothing is written: in a
# suspended group, and with a debt that an INSERT has made.  What slips through, a
# function that writes in a SELECT, is paid in flight or after its transaction; and
# the next statement of that session waits, whatever it is.  On a clock that stands
# still while statements run: who pauses once, does so for ever.
#
# takes-about: 45 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Books;
use DirtyThrottle::Clock;
use DirtyThrottle::Wire;
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: WARNING:  (there is no transaction in progress|SET CONSTRAINTS can only be used)

my $block = 8192;
my $dt = DirtyThrottle::Clock->new('kinds',
	init => [ no_data_checksums => 1 ],
	conf => q{
shared_preload_libraries = 'dirty_throttle, pg_stat_statements'
});
my $node = $dt->node;

# Types and functions as other extensions have them; those of the first are skipped
# where they are not installed.
my %contrib = map { $_ => 1 } split /\n/,
  $dt->sql(q{SELECT name FROM pg_available_extensions
	WHERE name IN ('citext', 'hstore', 'pg_trgm', 'pg_stat_statements')});
$dt->sql("CREATE EXTENSION $_") foreach sort keys %contrib;

$dt->sql(
	q{CREATE ROLE agent LOGIN IN ROLE pg_monitor;
	ALTER ROLE agent SET dirty_throttle."group" = 'g';
	GRANT CREATE ON SCHEMA public TO agent;
	GRANT pg_checkpoint, pg_execute_server_program TO agent;
	GRANT ALTER SYSTEM ON PARAMETER work_mem TO agent;
	CREATE ROLE boss SUPERUSER LOGIN;
	ALTER ROLE boss SET dirty_throttle."group" = 'g';
	CREATE TABLE t AS SELECT i AS id, 'x' || i AS pad FROM generate_series(1, 100) i;
	CREATE TABLE empty (id int);
	CREATE TABLE parent (id int PRIMARY KEY);
	CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
	CREATE SEQUENCE seq;
	GRANT ALL ON t, empty, parent, child, seq TO agent;
	SELECT lo_from_bytea(4711, 'large');
	GRANT SELECT ON LARGE OBJECT 4711 TO agent;
	VACUUM (FREEZE, ANALYZE) t;

	-- they read
	CREATE FUNCTION r() RETURNS int LANGUAGE plpgsql AS
		'BEGIN RETURN (SELECT count(*) FROM t); END';
	CREATE FUNCTION r_stable() RETURNS int LANGUAGE plpgsql STABLE AS
		'BEGIN RETURN (SELECT count(*) FROM t); END';
	CREATE FUNCTION r_immutable(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN RETURN $1; END';
	CREATE FUNCTION r_sql() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM t';
	CREATE FUNCTION r_sql_stable(int) RETURNS int LANGUAGE sql STABLE AS 'SELECT max(id) FROM t WHERE id < $1';
	CREATE FUNCTION r_sql_immutable(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	CREATE FUNCTION r_rows() RETURNS SETOF int LANGUAGE plpgsql AS
		'BEGIN RETURN QUERY SELECT id FROM t; END';
	CREATE FUNCTION r_dynamic() RETURNS int LANGUAGE plpgsql AS
		$$ DECLARE n int; BEGIN EXECUTE 'SELECT count(*) FROM t' INTO n; RETURN n; END $$;
	CREATE FUNCTION r_caught() RETURNS int LANGUAGE plpgsql AS
		'BEGIN PERFORM 1 / (SELECT 0); RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END';
	CREATE FUNCTION user_lookup(text) RETURNS TABLE (name text, secret text)
		LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
		AS 'SELECT usename::text, passwd::text FROM pg_shadow WHERE usename = $1';
	CREATE AGGREGATE r_sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
	CREATE OPERATOR ### (PROCEDURE = r_immutable, RIGHTARG = int);
	CREATE VIEW r_view AS SELECT id, r() FROM t;
	CREATE DOMAIN dom AS int CHECK (r_immutable(VALUE) > 0);
	CREATE TABLE with_policy (id int);
	INSERT INTO with_policy VALUES (1);
	ALTER TABLE with_policy ENABLE ROW LEVEL SECURITY;
	CREATE POLICY p ON with_policy USING (r_stable() > 0);
	GRANT ALL ON with_policy, r_view TO agent;

	-- they write
	CREATE TABLE written (id int, pad text) WITH (fillfactor = 10);
	CREATE FUNCTION w(n int DEFAULT 20) RETURNS int LANGUAGE plpgsql AS
		$$ BEGIN INSERT INTO written SELECT i, repeat('x', 900) FROM generate_series(1, n) i; RETURN 1; END $$;
	CREATE FUNCTION w_sql() RETURNS int LANGUAGE sql AS
		$$ INSERT INTO written SELECT i, repeat('x', 900) FROM generate_series(1, 20) i; SELECT 1 $$;
	CREATE VIEW w_view AS SELECT w() AS w FROM t WHERE id = 1;
	GRANT ALL ON written, w_view TO agent;
	CREATE PROCEDURE nothing() LANGUAGE plpgsql AS 'BEGIN END';
	CREATE PROCEDURE reads() LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM t; END';
	CREATE MATERIALIZED VIEW m AS SELECT 1;
	ALTER MATERIALIZED VIEW m OWNER TO agent;
	CREATE TABLE own (id int);
	CREATE TABLE ruled (id int);
	CREATE RULE r AS ON UPDATE TO ruled DO ALSO SELECT 1;
	GRANT ALL ON ruled TO agent;
	ALTER TABLE own OWNER TO agent;
	SELECT alter_resource_group('g')});
$dt->sql(
	q{CREATE TABLE people (name citext, attrs hstore);
	INSERT INTO people VALUES ('Ann', 'a=>1'), ('Bob', 'b=>2');
	GRANT ALL ON people TO agent; VACUUM (FREEZE, ANALYZE) people}) if $contrib{citext} && $contrib{hstore};

# ---------------------------------------------------------------- what is owed, or not

my $insert = q{INSERT INTO written SELECT i, repeat('x', 900) FROM generate_series(1, 100) i};

# Nothing is owed and nobody suspended.
sub let_go
{
	$dt->sql(q{SELECT set_group_wal_limit('g', 0), set_group_dirty_limit('g', 0)});
	$dt->sql(q{SELECT resume_group('g')})
	  if defined $dt->group_row('g')->{suspended_since};
}

# What makes a session be in that state, which has connected and run something.
my %states = (
	'nothing is owed' => sub { },
	'suspended' => sub { $dt->sql(q{SELECT suspend_group('g')}) },
	'an INSERT is owed' => sub {
		my ($s) = @_;

		$dt->sql(q{SELECT set_group_wal_limit('g', 1)});
		$s->query("BEGIN; $insert; ROLLBACK");
	},
	'its role owes an INSERT' => sub {
		my $other = $dt->session(user => 'agent');

		$dt->sql(q{SELECT set_group_wal_limit('g', 1)});
		$other->query("BEGIN; $insert; ROLLBACK");
		$other->quit;
	});

sub session_in
{
	my ($state, $class, @before) = @_;

	let_go();
	my $s = $class eq 'wire'
	  ? DirtyThrottle::Wire->new($node, user => 'agent')
	  : $dt->session(user => 'agent');
	ref $_ ? $_->($s) : $s->query($_) foreach @before;
	$states{$state}->($s);
	if ($state =~ /role/)
	{
		# only who joins takes it over
		$s->quit if $class ne 'wire';
		$s->terminate if $class eq 'wire';
		poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
		$s = $class eq 'wire'
		  ? DirtyThrottle::Wire->new($node, user => 'agent')
		  : $dt->session(user => 'agent');
	}
	return $s;
}

# Where a session pauses: before its statement begins, in flight, after its transaction;
# or it has been answered.
sub place
{
	my ($pid) = @_;
	my $state = $dt->sql("SELECT dt_test_state($pid)");

	return $state ne 'sleeps' ? 'not' : $dt->sql(
		"SELECT CASE WHEN xact_start IS NULL THEN 'after'
				WHEN backend_xid IS NULL AND backend_xmin IS NULL THEN 'before'
				ELSE 'in flight' END
		 FROM pg_stat_activity WHERE pid = $pid");
}

sub wire_place
{
	my ($w) = @_;

	# it has begun, and has ended or sleeps; sync() would have sent it before
	my $activity = 'FROM pg_stat_activity WHERE pid = ' . $w->pid;
	my $before = $dt->sql("SELECT state_change $activity");
	$w->transmit;
	poll_until(
		sub {
			$dt->sql("SELECT dt_test_state(pid) = 'sleeps' OR state_change > '$before' AND state LIKE 'idle%' $activity") eq 't';
		}, 180);
	return place($w->pid);
}

# --------------------------------------------------------------------- what reads

my @reads = (
	[ 'SELECT 1', 'SELECT 1' ],
	[ 'a table', 'SELECT count(*) FROM t' ],
	[ 'WITH', 'WITH x AS (SELECT max(id) AS m FROM t) SELECT * FROM t WHERE id = (SELECT m FROM x)' ],
	[ 'a function', 'SELECT r()' ],
	[ 'a STABLE function', 'SELECT count(*) FROM t WHERE id = r_stable()' ],
	[ 'an IMMUTABLE function', 'SELECT r_immutable(id) FROM t' ],
	[ 'an IMMUTABLE function, which the planner executes', 'SELECT r_immutable(1)' ],
	[ 'an SQL function', 'SELECT r_sql()' ],
	[ 'a STABLE SQL function', 'SELECT r_sql_stable(10)' ],
	[ 'an SQL function, which the planner inlines', 'SELECT r_sql_immutable(id) FROM t' ],
	[ 'a function of rows', 'SELECT * FROM r_rows()' ],
	[ 'a function that runs a dynamic query', 'SELECT r_dynamic()' ],
	[ 'a function that catches an error', 'SELECT r_caught()' ],
	[ 'an aggregate', 'SELECT r_sum(id) FROM t' ],
	[ 'an operator', 'SELECT ### id FROM t' ],
	[ 'a function in ORDER BY', 'SELECT id FROM t ORDER BY r_immutable(id)' ],
	[ 'a function in a subquery', 'SELECT (SELECT r()), count(*) FROM t' ],
	[ 'a function in a view', 'SELECT * FROM r_view' ],
	[ 'a function in a policy', 'SELECT * FROM with_policy' ],
	[ 'a function in the CHECK of a domain', 'SELECT id::dom FROM t' ],
	[ 'the same, which the planner executes', 'SELECT 1::dom' ],
	[ 'auth_query', q{SELECT * FROM user_lookup('agent')} ],
	[ 'large objects', q{SELECT loread(lo_open(4711, x'40000'::int), 3), lo_get(4711)} ],
	[ 'EXPLAIN of an INSERT', 'EXPLAIN INSERT INTO empty VALUES (1)' ],
	[ 'EXPLAIN of an IMMUTABLE function', 'EXPLAIN SELECT r_immutable(1)' ],
	[ 'EXPLAIN ANALYZE of a function', 'EXPLAIN (ANALYZE) SELECT r()' ],
	[ 'COPY TO', 'COPY t TO STDOUT' ],
	[ 'COPY of a function', 'COPY (SELECT r()) TO STDOUT' ],
	$contrib{citext} && $contrib{hstore} ? (
		[ 'citext', q{SELECT * FROM people WHERE name = 'ANN'} ],
		[ 'hstore', q{SELECT attrs -> 'a' FROM people WHERE attrs @> 'a=>1'} ]) : (),
	$contrib{pg_trgm} ? [ 'pg_trgm', q{SELECT similarity(pad, 'x1') FROM t WHERE pad % 'x1'} ] : (),
	$contrib{pg_stat_statements} ?
	  [ 'pg_stat_statements', 'SELECT count(*), sum(calls), sum(wal_bytes) FROM pg_stat_statements' ] : ());

# Commands of this kind, and those that control.
my @commands = (
	[ 'EXECUTE of a SELECT', 'PREPARE p AS SELECT r_immutable(id) FROM t; EXECUTE p; EXPLAIN (ANALYZE) EXECUTE p; DEALLOCATE p' ],
	[ 'PREPARE of an INSERT', 'PREPARE q AS INSERT INTO empty VALUES (1); DEALLOCATE q' ],
	[ 'EXPLAIN EXECUTE of an INSERT', 'PREPARE q AS INSERT INTO empty VALUES (1); EXPLAIN EXECUTE q; DEALLOCATE ALL' ],
	[ 'a cursor', 'BEGIN; DECLARE c CURSOR FOR SELECT r_immutable(id) FROM t; FETCH 10 FROM c; MOVE 5 IN c; CLOSE c; COMMIT' ],
	[ 'a cursor WITH HOLD', 'BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT r(), id FROM t; COMMIT; FETCH h; CLOSE h' ],
	[ 'a cursor with a scroll', 'BEGIN; DECLARE c SCROLL CURSOR FOR SELECT * FROM t; FETCH LAST FROM c; FETCH PRIOR FROM c; CLOSE ALL; COMMIT' ],
	[ 'a block', 'BEGIN; SELECT r(); COMMIT' ],
	[ 'ROLLBACK', 'BEGIN; SELECT r(); ROLLBACK; ROLLBACK' ],
	[ 'a block that is chained', 'BEGIN; SELECT r(); COMMIT AND CHAIN; SELECT r(); ROLLBACK' ],
	[ 'a read-only block', 'START TRANSACTION ISOLATION LEVEL SERIALIZABLE READ ONLY; SELECT r(); COMMIT' ],
	[ 'savepoints', 'BEGIN; SAVEPOINT a; SELECT r(); ROLLBACK TO a; RELEASE a; COMMIT' ],
	[ 'SET, SHOW, RESET', q{SET work_mem = '4MB'; SHOW work_mem; RESET work_mem; RESET ALL} ],
	[ 'SET LOCAL', q{BEGIN; SET LOCAL work_mem = '4MB'; SET TRANSACTION READ ONLY; COMMIT} ],
	[ 'SET SESSION AUTHORIZATION', 'SET ROLE agent; RESET ROLE; RESET SESSION AUTHORIZATION' ],
	[ 'set_config()', q{SELECT set_config('work_mem', '4MB', false)} ],
	[ 'LISTEN', 'LISTEN news; UNLISTEN news; UNLISTEN *' ],
	[ 'CHECKPOINT', 'CHECKPOINT' ],
	[ 'ALTER SYSTEM', q{ALTER SYSTEM SET work_mem = '4MB'} ],
	[ 'a lock for reading', 'BEGIN; LOCK TABLE t IN ACCESS SHARE MODE; COMMIT' ],
	[ 'an advisory lock', 'SELECT pg_advisory_lock(1), pg_advisory_unlock(1)' ],
	[ 'DISCARD', 'DISCARD PLANS; DISCARD SEQUENCES; DISCARD TEMP; DISCARD ALL' ]);

sub is_answered
{
	my ($s, $name) = @_;
	my $place = place($s->pid);

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($s->finished, "$name: it is answered at once") or diag "it pauses: $place";
	# each statement of it may pause
	poll_until(sub { $dt->sql('SELECT pg_cancel_backend(' . $s->pid . ')'); $s->finished }) if !$s->finished;
	is($s->wait->{sqlstate}, undef, "$name: without an error") if $place eq 'not';
}

foreach my $state (sort keys %states)
{
	subtest "$state: what reads is answered" => sub {
		my $then = $dt->now;
		my @all = (@reads, @commands);
		my $s = session_in($state, 'session', map { $_->[1] } @all);

		$dt->sql(q{SELECT dirty_throttle_reset('g')});
		foreach (@all)
		{
			my ($name, $sql) = @$_;

			$s->send($sql);
			$dt->settle;
			is_answered($s, $name);
		}
		is($dt->group_row('g')->{pauses}, 0, 'nobody has paused');
		is($dt->now, $then, 'it has taken no time');
		$s->quit;
		let_go();
	};

	subtest "$state: what reads is answered, by the protocol" => sub {
		my %oid = map { $_ => $dt->sql("SELECT '$_'::regprocedure::oid") }
		  'r()', 'lo_get(oid)', 'lo_open(oid,int)';
		my $w = session_in($state, 'wire', map { $_->[1] } @reads);
		my $n = 0;
		my $answered = sub {
			my ($name) = @_;
			my $place = wire_place($w);

			is($place, 'not', "$name: it is answered at once");
			is($w->wait(cancel_every => 0.1)->{sqlstate}, $place eq 'not' ? undef : '57014', $name);
		};

		$dt->sql(q{SELECT dirty_throttle_reset('g')});
		foreach (@reads)
		{
			my ($name, $sql) = @$_;

			$n++;
			$w->parse("s$n", $sql)->message('S', '');
			$answered->("$name: Parse");
			foreach my $again (1, 2)
			{
				$w->bind('', "s$n")->execute->message('S', '');
				$answered->("$name: Bind, Execute, $again");
			}
			next if $sql !~ /^SELECT/;
			$w->simple('BEGIN');
			$answered->('BEGIN');
			$w->bind('p', "s$n")->describe('P', 'p')->execute('p', 1)->execute('p')->message('S', '');
			$answered->("$name: in a block");
			$w->simple('COMMIT');
			$answered->('COMMIT');
		}
		foreach ([ 'r()' ], [ 'lo_get(oid)', pack('N', 4711) ],
			[ 'lo_open(oid,int)', pack('N', 4711), pack('N', 0x40000) ])
		{
			my ($function, @arguments) = @$_;

			$w->function_call($oid{$function}, @arguments);
			$answered->("function call: $function");
		}
		is($dt->group_row('g')->{pauses}, 0, 'nobody has paused');
		$w->terminate;
		let_go();
	};
}

# It comes into the group while it reads, with locks on shared catalogs, as monitoring has.
subtest 'moved while it reads' => sub {
	my $s = $dt->session;

	$dt->sql(q{SELECT dirty_throttle_reset('g'), suspend_group('g')});
	$s->send('SELECT count(a.pid) FROM pg_stat_activity a, (SELECT pg_sleep(1)) x');
	ok(poll_until(sub { $dt->sql('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid) eq 'PgSleep' }), 'it reads');
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'g')});
	$dt->settle;
	is_answered($s, 'moved');
	is($dt->group_row('g')->{pauses}, 0, 'nor has it paused for a moment');
	$s->quit;
	let_go();
};

# A tick may come at any instruction; of thousands of short statements at each.
subtest 'suspended: at any tick' => sub {
	my $script = PostgreSQL::Test::Utils::tempdir() . '/reads.sql';

	append_to_file($script, "BEGIN;\nSELECT pg_is_in_recovery();\nCOMMIT;\nSELECT 1;\nSHOW work_mem;\n");
	$dt->sql(q{SELECT dirty_throttle_reset('g'), suspend_group('g')});
	local $ENV{PGOPTIONS} = '-c statement_timeout=30s';
	foreach my $protocol ('simple', 'prepared')
	{
		command_ok([ 'pgbench', '-n', '-t', 4000, '-M', $protocol, '-f', $script,
			'-d', $node->connstr('postgres') . ' user=agent' ], "none pauses, protocol $protocol");
	}
	is($dt->group_row('g')->{pauses}, 0, 'nor has one for a moment');
	let_go();
};

# LOAD is for those only who may read any file.
subtest 'LOAD' => sub {
	my $s = $dt->session(user => 'boss');

	let_go();
	$s->query('SELECT 1');
	$dt->sql(q{SELECT suspend_group('g')});
	$s->send(q{LOAD 'plpgsql'});
	$dt->settle;
	is_answered($s, 'LOAD');
	$s->quit;
	let_go();
};

# Who coordinates transactions holds locks on other nodes meanwhile.
subtest 'two-phase commit' => sub {
	foreach my $state (sort grep { !/role/ } keys %states)
	{
		my $s = session_in($state, 'session',
			map { "BEGIN; INSERT INTO empty VALUES (1); PREPARE TRANSACTION 'p$_'" } 1, 2);
		$s->send(q{COMMIT PREPARED 'p1'; ROLLBACK PREPARED 'p2'});
		$dt->settle;
		is_answered($s, "$state: COMMIT PREPARED, ROLLBACK PREPARED");
		$s->send('SELECT 1');
		$dt->settle;
		is_answered($s, "$state: and what reads next");
		$s->quit;
		let_go();
	}
	$dt->sql('TRUNCATE empty');
};

# ----------------------------------------------------------------- what writes

# name, statement; what it holds when it is stopped: 'table' where parse analysis has
# locked one before, and 'snapshot' where only its plan shows that it locks rows
my @writes = (
	[ 'INSERT', 'INSERT INTO empty VALUES (1)', 'table' ],
	[ 'INSERT of no row', 'INSERT INTO empty SELECT 1 WHERE false', 'table' ],
	[ 'UPDATE of nothing', 'UPDATE t SET id = id WHERE id < 0', 'table' ],
	[ 'DELETE of nothing', 'DELETE FROM t WHERE id < 0', 'table' ],
	[ 'MERGE of nothing', 'MERGE INTO t USING empty e ON t.id = e.id WHEN MATCHED THEN DELETE', 'table' ],
	[ 'SELECT FOR UPDATE', 'SELECT * FROM t FOR UPDATE', 'table' ],
	[ 'SELECT FOR KEY SHARE', 'SELECT * FROM t WHERE id = 1 FOR KEY SHARE', 'table' ],
	[ 'rows locked in a subquery', 'SELECT count(*) FROM (SELECT * FROM t FOR SHARE) q', 'snapshot' ],
	[ 'rows locked in WITH', 'WITH q AS (SELECT * FROM t FOR SHARE) SELECT count(*) FROM q', 'snapshot' ],
	[ 'data-modifying WITH', 'WITH x AS (INSERT INTO empty VALUES (1) RETURNING 1) SELECT * FROM x', 'table' ],
	[ 'SELECT INTO', 'SELECT 1 AS x INTO made; DROP TABLE made' ],
	[ 'CREATE TABLE AS', 'CREATE TABLE made AS SELECT 1; DROP TABLE made' ],
	[ 'CREATE TABLE', 'CREATE TABLE made (); DROP TABLE made' ],
	[ 'CREATE FUNCTION', q{CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'; DROP FUNCTION f()} ],
	[ 'ALTER TABLE', 'ALTER TABLE own ALTER id SET DEFAULT 1' ],
	[ 'COMMENT', q{COMMENT ON TABLE own IS 'x'} ],
	[ 'GRANT', 'GRANT SELECT ON own TO PUBLIC' ],
	[ 'TRUNCATE', 'TRUNCATE own' ],
	[ 'ANALYZE', 'ANALYZE own' ],
	[ 'VACUUM', 'VACUUM own', undef, 'not in a block' ],
	[ 'REINDEX', 'REINDEX TABLE own' ],
	[ 'REFRESH MATERIALIZED VIEW', 'REFRESH MATERIALIZED VIEW m' ],
	[ 'LOCK', 'BEGIN; LOCK TABLE own; COMMIT', undef, 'is a block' ],
	[ 'LOCK for row shares', 'BEGIN; LOCK TABLE t IN ROW SHARE MODE; COMMIT', undef, 'is a block' ],
	[ 'NOTIFY', 'NOTIFY news' ],
	[ 'CALL', 'CALL nothing()' ],
	[ 'CALL of a procedure that reads', 'CALL reads()' ],
	[ 'DO', $MAY_WRITE ],
	[ 'COPY FROM', q{COPY empty FROM PROGRAM 'true'} ],
	[ 'COPY of an INSERT', 'COPY (INSERT INTO empty VALUES (1) RETURNING id) TO STDOUT' ],
	[ 'EXECUTE of an INSERT', 'EXECUTE p_insert' ],
	[ 'EXECUTE of a SELECT FOR UPDATE', 'EXECUTE p_lock' ],
	[ 'EXPLAIN ANALYZE of an INSERT', 'EXPLAIN (ANALYZE) INSERT INTO empty VALUES (1)', 'table' ],
	[ 'EXPLAIN ANALYZE of EXECUTE', 'EXPLAIN (ANALYZE) EXECUTE p_insert' ],
	[ 'EXPLAIN ANALYZE of CREATE TABLE AS', 'EXPLAIN (ANALYZE) CREATE TABLE made AS SELECT 1', 'table' ],
	[ 'CREATE TABLE AS EXECUTE', 'CREATE TABLE made AS EXECUTE p_select; DROP TABLE made' ],
	[ 'SET CONSTRAINTS', 'SET CONSTRAINTS ALL IMMEDIATE' ]);
my @prepared = (
	'PREPARE p_select AS SELECT id FROM t',
	'PREPARE p_lock AS SELECT id FROM t FOR UPDATE',
	'PREPARE p_insert AS INSERT INTO empty VALUES (1)');

sub check_writes
{
	my ($state, $in_block) = @_;

	foreach (@writes)
	{
		my ($name, $sql, $locks, $alone) = @$_;
		my @before = $state =~ /role/ ? () : @prepared;

		next if $in_block && $alone;
		next if !@before && $sql =~ /EXECUTE p_/;
		my $s = session_in($state, 'session', @before);
		$s->query('BEGIN; SELECT count(*) FROM pg_class') if $in_block;
		$s->send($sql);
		$dt->settle;
		my $place = place($s->pid);
		ok($place eq 'before' || ($locks // '') eq 'snapshot' && $place eq 'in flight', "$name: it pays first")
		  or diag $place;
		is($dt->sql('SELECT count(*) FROM empty'), 0, "$name: and has done nothing");
		my $mine = 'FROM pg_locks WHERE pid = ' . $s->pid;
		is($dt->sql("SELECT count(*) $mine AND locktype = 'transactionid'"), 0, "$name: no transaction ID");
		# what parse analysis has locked is locked
		is($dt->sql("SELECT coalesce(string_agg(DISTINCT relation::regclass || ' ' || mode, ', '), '')
				$mine AND locktype = 'relation'"), '', "$name: nor a lock on a table")
		  if !$locks && !$in_block;
		let_go();
		$dt->settle;
		$dt->cancel_ms($s) unless ok($s->finished, "$name: then it goes on");
		is($s->wait->{sqlstate}, undef, "$name: without an error") or diag $s->{result}{err};
		$s->query('ROLLBACK') if $in_block;
		$s->quit;
		$dt->sql('TRUNCATE empty; DROP TABLE IF EXISTS made');
	}
}

foreach my $state (sort grep { !/nothing/ } keys %states)
{
	subtest "$state: what writes waits" => sub { check_writes($state) };
	subtest "$state: what writes waits, in a block that has read" => sub { check_writes($state, 1) }
	  unless $state =~ /role/;

	subtest "$state: what writes waits, by the protocol" => sub {
		foreach my $sql ('INSERT INTO empty VALUES (1)', 'SELECT * FROM t FOR UPDATE', $MAY_WRITE, 'NOTIFY news')
		{
			foreach my $way ('', 'after one that reads: ', $state =~ /role/ ? () : 'parsed before: ')
			{
				my $old = $way =~ /before/;
				my $w = session_in($state, 'wire', $old ? sub { $_[0]->parse('old', $sql)->sync->wait } : ());
				my $name = "$way$sql";

				$w->extended('SELECT 1') if $way =~ /reads/;
				$old ? $w->bind('', 'old')->execute->message('S', '') : $w->extended($sql)->message('S', '');
				my $place = wire_place($w);
				# what was parsed earlier keeps the snapshot of its portal
				ok($place eq 'before' || $way ne '' && $place eq 'in flight', "$name: it pays first") or diag $place;
				is($dt->sql('SELECT backend_xid IS NULL FROM pg_stat_activity WHERE pid = ' . $w->pid),
					't', "$name: without a transaction ID");
				is($dt->sql('SELECT count(*) FROM empty'), 0, "$name: and has done nothing");
				let_go();
				is($w->wait->{sqlstate}, undef, "$name: then it goes on");
				$w->terminate;
				$dt->sql('TRUNCATE empty');
			}
		}
	};
}

# --------------------------------------------------------- what slips, and the states

# A table of hint bits: so many blocks of a row each that nobody has looked at.
sub fresh_table
{
	$dt->sql(
		q{DROP TABLE IF EXISTS hints;
		CREATE TABLE hints (id int, pad text) WITH (fillfactor = 10, autovacuum_enabled = off);
		GRANT ALL ON hints TO agent, fast;
		INSERT INTO hints SELECT i, repeat('x', 800) FROM generate_series(1, 100) i});
	$dt->sql('CHECKPOINT');
}

# One that never pauses after its transaction; and one that is in no group at first.
$dt->sql(
	q{CREATE ROLE fast LOGIN IN ROLE agent;
	ALTER ROLE fast SET dirty_throttle."group" = 'g';
	ALTER ROLE fast SET dirty_throttle.max_commit_pause = 0;
	CREATE ROLE outsider LOGIN;
	CREATE TABLE theirs (id int);
	ALTER TABLE theirs OWNER TO outsider;
	CREATE FUNCTION w_twice() RETURNS int LANGUAGE plpgsql AS
		'BEGIN PERFORM w(); PERFORM count(*) FROM t; PERFORM w(); RETURN 1; END';
	CREATE FUNCTION w_immutable() RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		$$ BEGIN RETURN length(lo_from_bytea(0, 'x')::text); END $$;
	CREATE FUNCTION w_caught() RETURNS int LANGUAGE plpgsql AS
		'BEGIN PERFORM w(), 1 / (SELECT 0); RETURN 1; EXCEPTION WHEN division_by_zero THEN RETURN 0; END';
	GRANT ALL ON t, empty, written, seq TO outsider});

my $slips = 'SELECT w()';
my $writes = 'INSERT INTO empty VALUES (1)';
my $writes_much = $insert;
my @slips = (
	[ 'a function', $slips ],
	[ 'an SQL function', 'SELECT w_sql()' ],
	[ 'a function in a view', 'SELECT * FROM w_view' ],
	[ 'an IMMUTABLE function, which the planner executes', 'SELECT w_immutable()' ],
	[ 'a function that writes twice', 'SELECT w_twice()' ],
	[ 'a function that catches an error', 'SELECT w_caught()' ],
	[ 'a function in COPY', 'COPY (SELECT w()) TO STDOUT' ],
	[ 'a function in EXPLAIN ANALYZE', 'EXPLAIN (ANALYZE) SELECT w()' ],
	[ 'a function in a cursor', 'BEGIN; DECLARE c CURSOR FOR SELECT w(); FETCH ALL FROM c; COMMIT' ],
	[ 'a function in a prepared statement', 'PREPARE p AS SELECT w(); EXECUTE p' ],
	[ 'nextval()', q{SELECT nextval('seq')} ],
	[ 'setval()', q{SELECT setval('seq', 10)} ],
	[ 'a message', q{SELECT pg_logical_emit_message(true, '', repeat('x', 10000))} ],
	[ 'lo_from_bytea()', q{SELECT lo_from_bytea(0, 'x')} ],
	[ 'lo_create()', 'SELECT lo_create(0)' ],
	[ 'pg_current_xact_id()', 'SELECT pg_current_xact_id()' ],
	[ 'pg_notify()', q{SELECT pg_notify('news', '')} ]);

# The states of a transaction, and what each event makes of it.  A row is a name, a role
# and steps: a statement that pauses nowhere, or a list of a statement and the place
# where it pauses; or what somebody else does, in angle brackets.  What pauses goes on
# before the next statement.
my %done = (
	'<suspended>' => q{SELECT suspend_group('g')},
	'<resumed>' => q{SELECT resume_group('g')},
	'<limited>' => q{SELECT set_group_wal_limit('g', 1)},
	'<free>' => q{SELECT set_group_wal_limit('g', 0)},
	'<dirty limit>' => q{SELECT set_group_dirty_limit('g', 1)},
	'<moved in>' => q{SELECT set_session_group($PID, 'g')});
my $gated = 'before';
my ($hints_1, $hints_2) = map { "SELECT count(*) FROM hints WHERE ctid $_" } q{< '(40,0)'}, q{>= '(40,0)' AND ctid < '(80,0)'};
my @table = (
	[ 'OUT: reads', 'agent', '<suspended>', 'SELECT 1' ],
	[ 'OUT: writes, suspended', 'agent', '<suspended>', [ $writes => $gated ], '<resumed>', 'SELECT 1' ],
	[ 'OUT: writes, and nothing is owed', 'agent', '<limited>', [ $writes_much => 'after' ], 'SELECT 1' ],
	[ 'OUT: control', 'agent', '<suspended>', 'BEGIN', 'COMMIT', 'BEGIN', 'ROLLBACK' ],
	[ 'OUT, carries a debt: reads', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		'SELECT 1', 'SELECT r()', 'BEGIN; SELECT 1; COMMIT', 'BEGIN; COMMIT' ],
	[ 'OUT, carries a debt: writes', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		[ $writes => $gated ] ],
	[ 'OUT, carries what slipped', 'fast', '<limited>', $slips, 'BEGIN', 'SHOW work_mem', 'SAVEPOINT a', 'ROLLBACK TO a',
		[ 'SELECT 1' => $gated ], 'SELECT 1', 'COMMIT' ],
	[ 'OUT, carries what slipped: control', 'fast', '<limited>', $slips, 'BEGIN; COMMIT', 'BEGIN; ROLLBACK',
		q{SET work_mem = '4MB'}, 'SHOW work_mem', 'PREPARE q AS SELECT 1', 'DEALLOCATE q', 'LISTEN news', 'CHECKPOINT',
		[ 'SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'OUT, carries what slipped: writes', 'fast', '<limited>', $slips, [ $writes => $gated ], 'SELECT 1' ],
	[ 'OUT, carries what slipped: EXPLAIN', 'fast', '<limited>', $slips, [ 'EXPLAIN SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'OUT, carries what slipped: COPY', 'fast', '<limited>', $slips, [ 'COPY t TO STDOUT' => $gated ], 'SELECT 1' ],
	[ 'OUT, carries what slipped: a cursor', 'fast', '<limited>', $slips, 'BEGIN', [ 'DECLARE c CURSOR FOR SELECT 1' => $gated ],
		'FETCH c', 'COMMIT' ],
	[ 'OUT, carries what slipped: a cancel', 'fast', '<limited>', $slips, [ 'SELECT 1' => $gated ], '<canceled>',
		[ 'SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'OUT, carries what slipped, suspended since', 'fast', $slips, '<suspended>', 'SELECT 1' ],
	[ 'OUT, slipped while it was suspended', 'fast', '<suspended>', $slips, [ 'SELECT 1' => $gated ], '<resumed>', 'SELECT 1' ],
	[ 'OUT, slipped while it was suspended: control', 'fast', '<suspended>', $slips, 'BEGIN; COMMIT', 'SHOW work_mem',
		[ 'SELECT 1' => $gated ], '<resumed>', 'SELECT 1' ],
	[ 'OUT, slipped while it was suspended, resumed before', 'fast', '<suspended>', $slips, '<resumed>', 'SELECT 1',
		'<suspended>', 'SELECT 1' ],
	[ 'OUT, slipped in an earlier suspension', 'fast', '<suspended>', $slips, '<resumed>', '<suspended>', 'SELECT 1' ],

	[ 'READING: reads', 'agent', 'BEGIN; SELECT r()', '<suspended>', 'SELECT 1', 'SELECT r()', 'COMMIT' ],
	[ 'READING: writes', 'agent', 'BEGIN; SELECT r()', '<suspended>', [ $writes => $gated ], '<resumed>', 'COMMIT' ],
	[ 'READING: writes, in a subtransaction', 'agent', 'BEGIN; SELECT r(); SAVEPOINT a', '<suspended>', [ $writes => $gated ], '<resumed>', 'COMMIT' ],
	[ 'READING, carries a debt: reads', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		'BEGIN; SELECT r(); SELECT r()', 'COMMIT' ],
	[ 'READING, carries a debt: rolled back', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		'BEGIN; SELECT r()', 'ROLLBACK' ],
	[ 'READING, carries a debt: writes', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		'BEGIN; SELECT r()', [ $writes => $gated ], 'ROLLBACK' ],
	[ 'READING: an error', 'agent', 'BEGIN; SELECT r()', '<suspended>', 'SELECT 1 / 0', 'SELECT 1', 'ROLLBACK', 'SELECT 1' ],

	[ 'SLIPPED, suspended', 'agent', 'BEGIN; SELECT 1', '<suspended>', $slips, 'SELECT 1', $slips, $writes, 'LOCK TABLE t',
		[ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'SLIPPED, suspended: rolled back', 'agent', 'BEGIN; SELECT 1', '<suspended>', $slips, 'ROLLBACK',
		[ 'SELECT 1' => $gated ], '<resumed>', 'SELECT 1' ],
	[ 'SLIPPED, owes less than the grace', 'agent', '<limited>', 'BEGIN', $slips, 'SELECT 1', $writes, [ 'COMMIT' => 'after' ], 'SELECT 1' ],
	[ 'SLIPPED, owes less than the grace: rolled back', 'agent', '<limited>', 'BEGIN', $slips, 'ROLLBACK',
		[ 'SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'SLIPPED, an error', 'agent', '<limited>', 'BEGIN', $slips, 'SELECT 1 / 0', 'SELECT 1', 'ROLLBACK',
		[ 'SELECT 1' => $gated ], 'SELECT 1' ],
	# what it carries may be paid in flight
	[ 'SLIPPED, carries a debt', 'agent', '<limited>', "BEGIN; $writes_much; ROLLBACK",
		[ "BEGIN; $slips; SELECT 1; COMMIT" => 'in flight|after' ], 'SELECT 1' ],
	[ 'SLIPPED, beyond the grace', 'agent, no grace', '<limited>', [ "BEGIN; $slips; SELECT 1" => 'in flight' ], 'ROLLBACK' ],
	[ 'SLIPPED in a subtransaction that is rolled back', 'agent', 'BEGIN; SAVEPOINT a', '<limited>', $slips,
		'ROLLBACK TO a', 'SELECT 1', [ 'COMMIT' => 'after' ], 'SELECT 1' ],
	[ 'SLIPPED in a cursor', 'agent', 'BEGIN; DECLARE c CURSOR FOR SELECT w() FROM t', '<suspended>', 'FETCH c', 'FETCH c', 'CLOSE c',
		[ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'SLIPPED in a cursor WITH HOLD', 'agent', 'BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT w()', '<suspended>',
		[ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'SLIPPED and prepared', 'agent', '<limited>', 'BEGIN', $slips, q{PREPARE TRANSACTION 'p'},
		[ 'SELECT 1' => $gated ], q{ROLLBACK PREPARED 'p'} ],

	[ 'WRITING: reads and writes, suspended', 'agent', "BEGIN; $writes", '<suspended>', 'SELECT 1', $writes, $slips,
		'TRUNCATE own', [ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'WRITING: rolled back, suspended', 'agent', "BEGIN; $writes", '<suspended>', 'ROLLBACK', 'SELECT 1',
		[ $writes => $gated ], '<resumed>', 'SELECT 1' ],
	[ 'WRITING, without an xid: committed, suspended', 'agent', 'BEGIN; UPDATE t SET id = id WHERE id < 0', '<suspended>',
		$writes, [ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'WRITING, owes less than the grace', 'agent', '<limited>', 'BEGIN', $writes_much, $writes_much, 'SELECT 1', $slips,
		[ 'COMMIT' => 'after' ], 'SELECT 1' ],
	[ 'WRITING, beyond the grace', 'agent, no grace', '<limited>', 'BEGIN', [ $writes_much => 'in flight' ], 'ROLLBACK', 'SELECT 1' ],
	[ 'WRITING: rolled back', 'agent', '<limited>', 'BEGIN', $writes_much, 'ROLLBACK', 'SELECT 1', [ $writes => $gated ], 'SELECT 1' ],
	[ 'WRITING: a function slips', 'fast', '<limited>', 'BEGIN', $writes_much, $slips, 'COMMIT', 'SELECT 1', [ $writes => $gated ] ],
	[ 'WRITING: an error', 'agent', '<limited>', 'BEGIN', $writes_much, 'SELECT 1 / 0', 'SELECT 1', 'ROLLBACK', 'SELECT 1',
		[ $writes => $gated ] ],
	[ 'WRITING: chained', 'agent', '<limited>', 'BEGIN', $writes_much, [ 'COMMIT AND CHAIN' => 'after' ], 'SELECT 1', 'COMMIT' ],
	[ 'COMMIT PREPARED within a block', 'agent', 'BEGIN; SAVEPOINT a', q{COMMIT PREPARED 'no'}, 'ROLLBACK TO a', '<suspended>',
		[ $writes => $gated ], '<resumed>', 'COMMIT' ],
	[ 'an UPDATE that a rule adds a SELECT to', 'agent', 'PREPARE p AS UPDATE ruled SET id = 2', '<suspended>', [ 'EXECUTE p' => $gated ], '<resumed>' ],
	[ 'WRITING and prepared', 'agent', '<limited>', 'BEGIN', $writes_much, q{PREPARE TRANSACTION 'p'}, 'SELECT 1',
		q{COMMIT PREPARED 'p'}, 'SELECT 1', [ $writes => $gated ] ],
	[ 'WRITING, and paid after: reads', 'fast', '<limited>', $writes_much, 'SELECT 1', 'SELECT r()', [ $writes => $gated ] ],

	[ 'only hint bits', 'agent', '<hints>', '<dirty limit>', [ 'SELECT count(*) FROM hints' => 'after' ], 'SELECT 1', 'SELECT r()' ],
	[ 'only hint bits, and does not pause after', 'fast', '<hints>', '<dirty limit>', 'SELECT count(*) FROM hints',
		[ 'SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'only a few hint bits', 'fast', '<hints>', '<dirty limit>', $hints_1, 'SELECT 1', 'SELECT r()', [ $writes => $gated ] ],
	[ 'hint bits of 80 blocks', 'agent, no grace', '<hints>', '<dirty limit>', $hints_1,
		[ $hints_2 => 'in flight|after' ] ],
	[ 'hint bits of 40 blocks, and 40 a minute later', 'agent, no grace', '<hints>', '<dirty limit>', $hints_1,
		'<a minute>', $hints_2, 'SELECT 1' ],
	[ 'only hint bits, suspended', 'fast', '<hints>', '<suspended>', 'SELECT count(*) FROM hints', 'SELECT 1' ],

	[ 'moved in: reads', 'outsider', 'BEGIN; SELECT r()', '<suspended>', '<moved in>', 'SELECT 1', 'COMMIT' ],
	[ 'moved in: writes', 'outsider', 'BEGIN; SELECT r()', '<suspended>', '<moved in>', [ $writes => $gated ], '<resumed>', 'COMMIT' ],
	[ 'moved in with an xid', 'outsider', "BEGIN; $writes", '<suspended>', '<moved in>', 'SELECT 1', $writes,
		[ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],
	[ 'moved in with a lock', 'outsider', 'BEGIN; LOCK TABLE theirs IN SHARE MODE', '<suspended>', '<moved in>', 'SELECT 1',
		[ 'INSERT INTO theirs VALUES (1)' => 'not' ], [ 'COMMIT' => 'after' ], '<resumed>', 'SELECT 1' ],

	[ 'joins again by a ROLLBACK', 'boss', '<limited>', 'BEGIN', $slips, q{SET LOCAL dirty_throttle."group" = ''},
		'ROLLBACK', [ 'SELECT 1' => $gated ], 'SELECT 1' ],
	[ 'our own functions: resume_group()', 'boss', '<suspended>', q{SELECT resume_group('g')} ],
	[ 'our own functions: a limit', 'boss', '<suspended>', [ q{SELECT alter_resource_group('g', burst => 30)} => 'after' ] ],

	map { [ "$_->[0] slips, suspended", 'agent', '<suspended>', [ $_->[1] => 'after' ], '<resumed>', 'SELECT 1' ],
		[ "$_->[0] slips, suspended, and does not pause after", 'fast', '<suspended>', $_->[1],
			[ 'SELECT 1' => $gated ], '<resumed>', 'SELECT 1' ] } @slips);

sub check_row
{
	my ($name, $role, @steps) = @_;
	my $no_grace = $role =~ s/, no grace//;
	my ($s, $running);
	my $goes_on = sub {
		return if !$running;
		$dt->sql(q{SELECT resume_group('g')}) if !$s->finished && defined $dt->group_row('g')->{suspended_since};
		$dt->run;
		$s->wait;
		$running = 0;
	};

	let_go();
	$s = $dt->session(user => $role);
	# what the catalogs need is read before
	$s->query('SELECT r(), 1; EXPLAIN SELECT 1; SELECT w(1)');
	$dt->set_conf('dirty_throttle.transaction_grace', '0', $s) if $no_grace;
	foreach my $i (0 .. $#steps)
	{
		my ($sql, $place) = ref $steps[$i] ? @{ $steps[$i] } : ($steps[$i], 'not');

		if ($sql eq '<hints>')
		{
			fresh_table();
		}
		elsif ($sql eq '<canceled>')
		{
			$dt->cancel_ms($s) if !$s->finished;
			$s->wait if $running;
			$running = 0;
		}
		elsif ($sql eq '<a minute>')
		{
			$dt->advance(61_000_000);
		}
		elsif ($sql =~ /^</)
		{
			$dt->sql($done{$sql} =~ s/\$PID/$s->pid/er);
			$dt->settle;
		}
		else
		{
			$goes_on->();
			$s->send($sql);
			$running = 1;
			$dt->settle;
			my $found = place($s->pid);
			# a block has several statements, of which the last is meant
			like($found, qr/^($place)$/, "$name: step " . ($i + 1) . ", $sql") or last;
		}
	}
	$goes_on->();
	$dt->set_conf('dirty_throttle.transaction_grace', '1d', $s) if $no_grace;
	$s->quit;
	let_go();
	$dt->sql(q{ROLLBACK PREPARED 'p'}) if $dt->sql('SELECT count(*) FROM pg_prepared_xacts');
	# so that nextval() writes again
	$dt->sql('TRUNCATE empty, written; ALTER SEQUENCE seq RESTART');
}

subtest 'the states' => sub { check_row(@$_) foreach @table };

# A reader of the catalogs holds back no rows for as long as a statement that slips
# pays for what is nested in it.
subtest 'what is nested is not gated' => sub {
	my $s = session_in('nothing is owed', 'session', $slips);

	$dt->sql(q{SELECT suspend_group('g')});
	$s->send('SELECT w() FROM generate_series(1, 3)');
	$dt->settle;
	is($dt->sql('SELECT backend_xmin IS NULL AND backend_xid IS NULL FROM pg_stat_activity WHERE pid = ' . $s->pid),
		't', 'it has no snapshot and no transaction ID while it waits for the group');
	cmp_ok($dt->sql('SELECT count(*) FROM written'), '>=', 60, 'all of it is committed');
	let_go();
	$dt->settle;
	is($s->wait->{sqlstate}, undef, 'it goes on');
	$s->quit;
};

# A role that has slipped, and owes what is worth a pause, waits in its next session,
# whatever it asks.  Otherwise the storms of 073 and 110, and the sequences of 050, would
# exceed their limit.
subtest 'connecting anew' => sub {
	my $kb = 100;

	# a reader may prune a page of a catalog, which is counted and not owed
	$dt->sql('VACUUM');
	foreach my $case ([ 'next to nothing', 0.02, 'not' ], [ 'a minute', 60, $gated ])
	{
		my ($name, $seconds, $place) = @$case;
		my $s = $dt->session(user => 'fast');

		$s->query('SELECT 1');
		$dt->fresh(g => wal => $kb);
		$s->query("SELECT pg_logical_emit_message(true, '', repeat('x', ($seconds * ${kb}000)::int))");
		$s->quit;
		poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
		cmp_ok(($dt->used('g', 'wal'))[1], '>', 0.5 * $seconds * $kb * 1000, "$name: it is owed") if $seconds > 1;
		my $next = $dt->session(user => 'fast');
		$next->send('SELECT pg_is_in_recovery()');
		$dt->settle;
		is(place($next->pid), $place, "$name: the next session reads");
		$dt->run;
		$next->wait;
		$next->send($writes);
		$dt->run;
		is($next->wait->{sqlstate}, undef, "$name: and writes");
		$dt->check_books('g', 'wal', $name);
		$next->quit;
		let_go();
	}
};

# A group that is suspended may have no limit, so that nothing is owed: what slips once in
# a session must not slip once in each session of a role.
subtest 'connecting anew while it is suspended' => sub {
	my $reads = sub {
		my ($role, $place, $name) = @_;
		my $s = $dt->session(user => $role);

		$s->send('SELECT 1');
		$dt->settle;
		is(place($s->pid), $place, $name);
		return $s;
	};

	$dt->sql(q{SELECT suspend_group('g')});
	my $s = $dt->session(user => 'fast');
	$s->query($slips);
	is(place($s->pid), 'not', 'a session slips');
	$s->quit;
	poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
	my $next = $reads->('fast', $gated, 'the next one of its role waits');
	my $other = $reads->('agent', 'not', 'that of another role does not');
	let_go();
	$dt->settle;
	is($next->wait->{sqlstate}, undef, 'until the group is resumed');
	$other->wait;
	$_->quit foreach $next, $other;
	poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
	$dt->sql(q{SELECT suspend_group('g')});
	$next = $reads->('fast', 'not', 'which is over with that suspension');
	$next->wait;
	$next->quit;
	let_go();
};

$dt->finish;
