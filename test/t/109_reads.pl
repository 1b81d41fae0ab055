# A statement whose kind reads begins at once and is answered at once, whatever it calls
# and whatever is owed by its session or by others of its role, and also in a suspended
# group: failover tools and monitoring decide by whether there is an answer.  One whose
# kind writes pays first, whatever it is hidden in.  116 has what slips: a function that
# writes in one that reads.  On a clock that stands still while statements run: who
# pauses once, does so for ever.
#
# takes-about: 12 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use DirtyThrottle::Life;
use DirtyThrottle::Wire;
use PostgreSQL::Test::Utils;
use Test::More;

# expect-in-log: WARNING:  there is no transaction in progress

my $dt = DirtyThrottle::Clock->new('reads', conf => 'dirty_throttle.max_commit_pause = 1h');
my $node = $dt->node;

# A member by name of its role, which may also see what a monitoring role sees.
$dt->sql(
	q{CREATE ROLE agent LOGIN IN ROLE pg_monitor;
	ALTER ROLE agent SET dirty_throttle."group" = 'g';
	GRANT CREATE ON SCHEMA public TO agent;
	GRANT pg_checkpoint TO agent;
	GRANT ALTER SYSTEM ON PARAMETER work_mem TO agent;
	CREATE TABLE t AS SELECT i AS id, 'x' AS pad FROM generate_series(1, 100) i;
	CREATE VIEW v AS SELECT id, clock_timestamp() AS at, pg_is_in_recovery() AS standby FROM t;
	CREATE TABLE empty (id int);
	CREATE SEQUENCE seq;
	GRANT ALL ON t, v, empty, seq TO agent;
	SELECT lo_from_bytea(4711, 'large');
	GRANT SELECT ON LARGE OBJECT 4711 TO agent;
	VACUUM (FREEZE, ANALYZE) t;
	CREATE FUNCTION w() RETURNS int LANGUAGE plpgsql AS
		'BEGIN RETURN 1; END';
	CREATE FUNCTION w_stable() RETURNS int LANGUAGE plpgsql STABLE AS
		'BEGIN RETURN 1; END';
	CREATE FUNCTION w_immutable(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
		'BEGIN RETURN $1; END';
	CREATE FUNCTION w_sql(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
	CREATE FUNCTION w_rows() RETURNS SETOF int LANGUAGE plpgsql AS
		'BEGIN RETURN NEXT 1; END';
	CREATE AGGREGATE w_sum(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
	CREATE OPERATOR ### (PROCEDURE = w_immutable, RIGHTARG = int);
	CREATE VIEW v_writes AS SELECT id, w() FROM t;
	CREATE DOMAIN dom AS int CHECK (w_immutable(VALUE) > 0);
	CREATE TABLE with_policy (id int);
	INSERT INTO with_policy VALUES (1);
	ALTER TABLE with_policy ENABLE ROW LEVEL SECURITY;
	CREATE POLICY p ON with_policy USING (w_stable() = 1);
	GRANT ALL ON with_policy, v_writes TO agent;
	CREATE PROCEDURE w_proc() LANGUAGE plpgsql AS 'BEGIN END';
	CREATE MATERIALIZED VIEW m AS SELECT 1;
	ALTER MATERIALIZED VIEW m OWNER TO agent;
	CREATE TABLE own (id int);
	ALTER TABLE own OWNER TO agent;
	SELECT alter_resource_group('g')});

# Citus has a function in C and in pg_catalog, which it calls with the BEGIN on another
# node, where it cannot be canceled.
my $library = compile_library('other_extension');
$dt->sql(
	qq{CREATE FUNCTION pg_catalog.assign_distributed_transaction_id() RETURNS bigint
		LANGUAGE c AS '$library', 'blocks_dirtied';
	CREATE FUNCTION public.assign_distributed_transaction_id() RETURNS bigint
		LANGUAGE c AS '$library', 'blocks_dirtied';
	CREATE FUNCTION pg_catalog.assign_distributed_transaction_id(int) RETURNS int
		LANGUAGE sql AS 'SELECT \$1'}) if $library;

# ----------------------------------------------------- what is owed, and why not

# Each state of a session of that role: what makes it so, given a session that has
# just connected.
my $write = q{BEGIN; DO $$ BEGIN PERFORM pg_logical_emit_message(false, '', repeat('x', 100000)); END $$};
my $owe = "$write; ROLLBACK";
my %states = (
	'it owes' => sub { $_[0]->query($owe) },
	'its role owes' => sub { },
	'suspended' => sub {
		$_[0]->query($write);
		$dt->sql(q{SELECT suspend_group('g')});
		$_[0]->query('ROLLBACK');
	});

# Nothing is owed and nobody suspended.
sub let_go
{
	$dt->sql(q{SELECT set_group_wal_limit('g', 0)});
	$dt->sql(q{SELECT resume_group('g')})
	  if defined $dt->group_row('g')->{suspended_since};
}

# A new session in that state, in which all that it needs to read has been read
# before: hint bits of the catalogs are nobody's business here.
sub session_in
{
	my ($state, $class, @before) = @_;

	let_go();
	if ($state eq 'its role owes')
	{
		$dt->sql(q{SELECT set_group_wal_limit('g', 1)});
		my $other = $dt->session(user => 'agent');
		$other->query($owe);
		$other->quit;
		poll_until(sub { $dt->group_row('g')->{members} == 0 }, 180);
	}
	my $s = $class eq 'wire'
	  ? DirtyThrottle::Wire->new($node, user => 'agent')
	  : $dt->session(user => 'agent');
	if ($state ne 'its role owes')
	{
		ref $_ ? $_->($s) : $s->query($_) foreach @before;
		$dt->sql(q{SELECT set_group_wal_limit('g', 1)}) if $state eq 'it owes';
		$states{$state}->($s);
	}
	return $s;
}

# Since the counters were reset nobody has paused, and what was owed is.
sub check_unpaid
{
	my ($state, $name) = @_;
	my $row = $dt->group_row('g');

	cmp_ok($row->{wal_debt}, '>=', 99, "$name: nothing was paid") if $state =~ /owes/;
	is($row->{pauses}, 0, "$name: nobody has paused");
}

# --------------------------------------------------------------------- what reads

my %tools = (
	Patroni => q{SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0 ELSE
			('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(
				pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END,
		CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0
			ELSE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), '0/0')::bigint END,
		pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_last_wal_replay_lsn(), '0/0')::bigint,
		pg_catalog.pg_wal_lsn_diff(COALESCE(pg_catalog.pg_last_wal_receive_lsn(), '0/0'), '0/0')::bigint,
		pg_catalog.pg_is_in_recovery() AND pg_catalog.pg_is_wal_replay_paused(),
		pg_catalog.pg_last_xact_replay_timestamp(),
		pg_catalog.to_char(pg_catalog.pg_postmaster_start_time(), 'YYYY-MM-DD HH24:MI:SS.MS TZ'),
		(SELECT pg_catalog.json_agg(s.*) FROM (SELECT slot_name, slot_type, plugin, catalog_xmin,
			pg_catalog.pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::bigint, restart_lsn, xmin
			FROM pg_catalog.pg_get_replication_slots()) AS s),
		(SELECT pg_catalog.json_agg(r.*) FROM (SELECT w.pid, application_name, client_addr,
			w.state, sync_state, sync_priority
			FROM pg_catalog.pg_stat_get_wal_senders() w, pg_catalog.pg_stat_get_activity(w.pid)) r),
		pg_catalog.current_setting('synchronous_standby_names')},
	"Patroni's timeline" => q{SELECT timeline_id, system_identifier
		FROM pg_catalog.pg_control_checkpoint(), pg_catalog.pg_control_system()},
	"Patroni's walreceiver" => q{SELECT status, latest_end_lsn, received_tli, conninfo
		FROM pg_catalog.pg_stat_get_wal_receiver()},
	repmgr => q{SELECT pg_catalog.pg_is_in_recovery(), current_setting('wal_level'),
		CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
			ELSE pg_catalog.pg_current_wal_lsn() END,
		CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_get_wal_replay_pause_state() END},
	"repmgr's replication" => q{SELECT pid, application_name, state, sent_lsn
		FROM pg_catalog.pg_stat_replication},
	'an exporter of statistics' => q{SELECT d.datname, pg_database_size(d.datname), s.xact_commit,
			b.buffers_alloc, a.archived_count, age(d.datfrozenxid)
		FROM pg_database d JOIN pg_stat_database s ON d.oid = s.datid,
			pg_stat_bgwriter b, pg_stat_archiver a},
	"an exporter's tables" => q{SELECT relname, seq_scan, n_dead_tup, heap_blks_hit,
			pg_table_size(relid), pg_indexes_size(relid), pg_total_relation_size(relid)
		FROM pg_stat_user_tables JOIN pg_statio_user_tables USING (relid, schemaname, relname)},
	"an exporter's sessions" => q{SELECT state, wait_event_type, count(*),
			max(extract(epoch FROM clock_timestamp() - xact_start))
		FROM pg_stat_activity GROUP BY 1, 2},
	"an exporter's locks" => q{SELECT mode, count(*), bool_or(cardinality(pg_blocking_pids(pid)) > 0)
		FROM pg_locks GROUP BY 1},
	"an exporter's files" => q{SELECT count(*), sum(size) FROM pg_ls_waldir()},
	"an exporter's slots" => q{SELECT slot_name, active,
			pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)
		FROM pg_replication_slots},
	'check_postgres' => q{SELECT version(), pg_size_pretty(pg_database_size(current_database())),
			(SELECT max(age(datfrozenxid)) FROM pg_database),
			(SELECT count(*) FROM pg_prepared_xacts)},
	"check_postgres' bloat" => q{SELECT relname, reltuples, relpages, pg_relation_size(c.oid)
		FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
		WHERE relkind = 'r' AND NOT pg_is_other_temp_schema(n.oid)},
	'parameters' => q{SELECT name, setting FROM pg_settings},
	'resource managers' => q{SELECT count(*) FROM pg_get_wal_resource_managers()},
	'the view of sessions in progress' => q{SELECT * FROM pg_stat_xact_user_tables});
$tools{'an exporter of I/O'} = 'SELECT * FROM pg_stat_io'
  if $dt->sql(q{SELECT to_regclass('pg_stat_io') IS NOT NULL}) eq 't';

my %queries = (
	%tools,
	'nothing' => '-- ping',
	'SELECT 1' => 'SELECT 1',
	'a table' => 'SELECT count(*) FROM t',
	'a view' => 'SELECT count(*), min(at) FROM v',
	'VALUES' => 'VALUES (1), (2)',
	'WITH' => 'WITH x AS (SELECT max(id) AS m FROM t) SELECT * FROM t WHERE id = (SELECT m FROM x)',
	'a subquery, an aggregate, a window' =>
	  'SELECT sum(id) OVER (), array_agg(id) FROM (SELECT id FROM t LIMIT 3) q GROUP BY id',
	'time, chance, sleep' => 'SELECT clock_timestamp(), random(), gen_random_uuid(), pg_sleep(0)',
	'a large object' => q{SELECT loread(fd, 3), lo_lseek(fd, 1, 0), lo_lseek64(fd, 1, 0),
			lo_tell(fd), lo_tell64(fd), lo_close(fd), lo_get(4711), lo_get(4711, 1, 2)
		FROM (SELECT lo_open(4711, x'40000'::int) AS fd OFFSET 0) o},
	'set_config' => q{SELECT set_config('work_mem', '4MB', false), current_setting('work_mem')},
	'a function' => 'SELECT w()',
	'a STABLE function' => 'SELECT count(*) FROM t WHERE id = w_stable()',
	'an IMMUTABLE function, which the planner executes' => 'SELECT w_immutable(1)',
	'an SQL function, which the planner inlines' => 'SELECT w_sql(id) FROM t',
	'a function of rows' => 'SELECT * FROM w_rows()',
	'an aggregate' => 'SELECT w_sum(id) FROM t',
	'an operator' => 'SELECT ### id FROM t',
	'a function in ORDER BY' => 'SELECT id FROM t ORDER BY w_immutable(id)',
	'a function in a subquery' => 'SELECT (SELECT w()), count(*) FROM t',
	'a function in a view' => 'SELECT * FROM v_writes',
	'a function in a policy' => 'SELECT * FROM with_policy',
	'a function in the CHECK of a domain' => 'SELECT id::dom FROM t',
	'a domain, which the planner executes' => 'SELECT 1::dom');
if ($library)
{
	$queries{"Citus' transaction ID"} = 'SELECT assign_distributed_transaction_id()';
	$queries{'a function in C'} = 'SELECT public.assign_distributed_transaction_id()';
}
my %commands = (
	'SET' => q{SET work_mem = '4MB'},
	'RESET' => 'RESET work_mem',
	'SHOW' => 'SHOW work_mem',
	'EXPLAIN' => 'EXPLAIN SELECT * FROM t',
	'EXPLAIN of an INSERT' => 'EXPLAIN INSERT INTO empty VALUES (1)',
	'EXPLAIN ANALYZE' => 'EXPLAIN (ANALYZE, BUFFERS) SELECT count(*) FROM t',
	'a function in COPY' => 'COPY (SELECT w()) TO STDOUT',
	'EXPLAIN ANALYZE of a function' => 'EXPLAIN (ANALYZE) SELECT w()',
	'EXPLAIN of an IMMUTABLE function' => 'EXPLAIN SELECT w_immutable(1)',
	'PREPARE and EXECUTE' => 'PREPARE one AS SELECT * FROM t WHERE id = $1; EXECUTE one (1); DEALLOCATE one',
	'PREPARE of an INSERT' => 'PREPARE two AS INSERT INTO empty VALUES (1); DEALLOCATE two',
	'COPY TO' => 'COPY t TO STDOUT',
	'COPY of a query' => 'COPY (SELECT count(*) FROM t) TO STDOUT',
	'EXECUTE of a function' => 'PREPARE three AS SELECT w(); EXECUTE three; DEALLOCATE three',
	'LISTEN' => 'LISTEN news; UNLISTEN news',
	'CHECKPOINT' => 'CHECKPOINT');
my %alone = (
	%commands,
	'a block' => 'BEGIN; SELECT 1; COMMIT',
	'ROLLBACK' => 'BEGIN; ROLLBACK; ROLLBACK',
	'a read-only block' => 'START TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM t; COMMIT',
	'subtransactions' => 'BEGIN; SAVEPOINT a; SELECT 1; ROLLBACK TO a; RELEASE a; COMMIT',
	'a cursor' => 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH 10 FROM c; MOVE 5 IN c; CLOSE c; COMMIT',
	'a function in a cursor' => 'BEGIN; DECLARE w CURSOR WITH HOLD FOR SELECT w(); COMMIT; FETCH w; CLOSE w',
	'a cursor WITH HOLD' => 'BEGIN; DECLARE h CURSOR WITH HOLD FOR SELECT * FROM t; COMMIT; FETCH h; CLOSE h',
	'ALTER SYSTEM' => q{ALTER SYSTEM SET work_mem = '4MB'},
	'a lock for reading' => 'BEGIN; LOCK TABLE t IN ACCESS SHARE MODE; COMMIT',
	'DISCARD ALL, as pools do' => 'DISCARD ALL');

# Has it been answered?  Who sleeps would do so for ever.
sub is_answered
{
	my ($s, $name) = @_;
	my $r;

	$dt->settle;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	ok($s->finished, "$name: it is answered at once") or $dt->cancel_ms($s);
	$r = $s->wait;
	is($r->{sqlstate}, undef, "$name: without an error") or diag $r->{err};
}

sub is_answered_wire
{
	my ($w, $name) = @_;
	my $r = $w->wait(
		cancel_when => sub { $dt->sql('SELECT dt_test_state(' . $w->pid . ')') eq 'sleeps' });

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is($r->{sqlstate}, undef, "$name: it is answered at once, without an error")
	  or diag $r->{err};
}

sub all_of { return map { [ $_ => $_[0]{$_} ] } sort keys %{ $_[0] } }

foreach my $state (sort keys %states)
{
	subtest "$state: what only reads" => sub {
		my $then = $dt->now;
		my @read = (all_of(\%queries), all_of(\%alone));
		my $s = session_in($state, 'session', map { $_->[1] } @read);

		$dt->sql(q{SELECT dirty_throttle_reset('g')});
		foreach (@read)
		{
			my ($name, $sql) = @$_;

			$s->send($sql);
			is_answered($s, $name);
		}
		$s->send(join '; ', 'BEGIN', map { $_->[1] } all_of(\%tools), all_of(\%commands));
		is_answered($s, 'all in one block');
		$s->send('COMMIT');
		is_answered($s, 'and its end');
		$s->quit;

		# one that has just connected
		if ($state =~ /suspended/)
		{
			$s = $dt->session(user => 'agent');
			$s->send('SELECT pg_is_in_recovery()');
			is_answered($s, 'the first statement of a new session');
			$s->quit;
		}
		command_ok([ 'pg_isready', '-d', $node->connstr('postgres') . ' user=agent' ], 'pg_isready');
		check_unpaid($state, 'all of these');
		is($dt->now, $then, 'it has taken no time');
	};

	subtest "$state: what only reads, by the extended protocol" => sub {
		my @read = (all_of(\%queries), grep { $_->[1] !~ /; / } all_of(\%commands));
		my $w = session_in($state, 'wire', map { $_->[1] } @read);
		my $n = 0;

		$dt->sql(q{SELECT dirty_throttle_reset('g')});
		foreach (@read)
		{
			my ($name, $sql) = @$_;

			$n++;
			$w->parse("s$n", $sql)->sync;
			is_answered_wire($w, "$name: Parse");
			foreach my $again (1, 2)
			{
				$w->bind('', "s$n")->execute->sync;
				is_answered_wire($w, "$name: Bind, Execute, $again");
			}
			$w->extended($sql)->sync;
			is_answered_wire($w, "$name: Parse, Bind, Execute");
			next if $sql !~ /^SELECT/;
			$w->simple('BEGIN');
			is_answered_wire($w, 'BEGIN');
			$w->bind('p', "s$n")->describe('P', 'p')->execute('p', 1)->execute('p')->sync;
			is_answered_wire($w, "$name: in a block");
			$w->simple('COMMIT');
			is_answered_wire($w, 'COMMIT');
		}
		# the last one as pg_dump and libpq do it
		foreach (
			['pg_is_in_recovery()'],
			['pg_current_wal_lsn()'],
			['w()'],
			[ 'lo_open(oid, int)', pack('N', 4711), pack('N', 0x40000) ])
		{
			my ($function, @arguments) = @$_;

			$w->function_call($dt->sql("SELECT '$function'::regprocedure::oid"), @arguments);
			is_answered_wire($w, "function call: $function");
		}
		check_unpaid($state, 'all of these');
		$w->terminate;
	};
}
let_go();

# It comes into the group while it reads, with locks on shared catalogs, as monitoring has.
subtest 'suspended: moved while it reads' => sub {
	my $s = $dt->session;

	$dt->sql(q{SELECT dirty_throttle_reset('g')});
	$dt->sql(q{SELECT suspend_group('g')});
	$s->send('SELECT count(a.pid) FROM pg_stat_activity a, (SELECT pg_sleep(4)) x');
	ok(poll_until(sub { $dt->sql('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $s->pid) eq 'PgSleep' }), 'it reads');
	$dt->sql('SELECT set_session_group(' . $s->pid . q{, 'g')});
	is_answered($s, 'moved');
	is($dt->group_row('g')->{pauses}, 0, 'nor has it paused for a moment');
	$s->quit;
	let_go();
};

# A tick may come at any instruction; of thousands of short statements at each.
subtest 'suspended: at any tick' => sub {
	my $script = PostgreSQL::Test::Utils::tempdir() . '/reads.sql';

	append_to_file($script, "BEGIN;\nSELECT pg_is_in_recovery();\nCOMMIT;\nSELECT 1;\nSHOW work_mem;\n");
	$dt->sql(q{SELECT dirty_throttle_reset('g')});
	$dt->sql(q{SELECT suspend_group('g')});
	local $ENV{PGOPTIONS} = '-c statement_timeout=30s';
	foreach my $protocol ('simple', 'prepared')
	{
		command_ok([ 'pgbench', '-n', '-T', 3, '-M', $protocol, '-f', $script,
			'-d', $node->connstr('postgres') . ' user=agent' ], "none pauses, protocol $protocol");
	}
	is($dt->group_row('g')->{pauses}, 0, 'nor has one for a moment');
	let_go();
};

# ----------------------------------------------------------------- what writes

my @writes = (
	[ 'SELECT FOR UPDATE', 'SELECT * FROM t FOR UPDATE' ],
	[ 'SELECT FOR KEY SHARE', 'SELECT * FROM t WHERE id = 1 FOR KEY SHARE' ],
	[ 'rows locked in a subquery', 'SELECT count(*) FROM (SELECT * FROM t FOR SHARE) q' ],
	[ 'data-modifying WITH', 'WITH x AS (INSERT INTO empty VALUES (1) RETURNING 1) SELECT * FROM x' ],
	[ 'an INSERT in a prepared statement', 'EXECUTE p_insert' ],
	[ 'an INSERT in COPY', 'COPY (INSERT INTO empty VALUES (1) RETURNING id) TO STDOUT' ],
	[ 'EXPLAIN ANALYZE of an INSERT', 'EXPLAIN (ANALYZE) INSERT INTO empty VALUES (1)' ],
	[ 'EXPLAIN ANALYZE of EXECUTE', 'EXPLAIN (ANALYZE) EXECUTE p_insert' ],
	[ 'INSERT', 'INSERT INTO empty VALUES (1)' ],
	[ 'UPDATE of nothing', 'UPDATE t SET id = id WHERE id < 0' ],
	[ 'DELETE of nothing', 'DELETE FROM t WHERE id < 0' ],
	[ 'COPY FROM', q{COPY empty FROM PROGRAM 'true'} ],
	[ 'DO', $MAY_WRITE ],
	[ 'CALL', 'CALL w_proc()' ],
	[ 'CREATE TABLE', 'CREATE TABLE made (); DROP TABLE made' ],
	[ 'SELECT INTO', 'SELECT 1 AS x INTO made; DROP TABLE made' ],
	[ 'CREATE TEMP TABLE AS', 'CREATE TEMP TABLE made AS SELECT 1; DROP TABLE made' ],
	[ 'REFRESH MATERIALIZED VIEW', 'REFRESH MATERIALIZED VIEW m' ],
	[ 'ALTER TABLE', q{ALTER TABLE own ALTER id SET DEFAULT 1} ],
	[ 'ANALYZE', 'ANALYZE own' ],
	[ 'VACUUM', 'VACUUM own' ],
	[ 'TRUNCATE', 'TRUNCATE own' ],
	[ 'NOTIFY', 'NOTIFY news' ]);
my @prepared = ('PREPARE p_insert AS INSERT INTO empty VALUES (1)');
$dt->sql('GRANT pg_execute_server_program TO agent');

# It sleeps, and has written nothing and locked nothing for writing.
sub check_pays_first
{
	my ($pid, $name) = @_;

	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $state = $dt->sql("SELECT dt_test_state($pid)");
	is($state, 'sleeps', "$name: it pays first") or return 0;
	is( $dt->sql("SELECT backend_xid IS NULL AND NOT EXISTS (SELECT FROM pg_locks
				WHERE pid = $pid AND locktype = 'transactionid')
			FROM pg_stat_activity WHERE pid = $pid"),
		't', "$name: before it has a transaction ID");
	is($dt->sql('SELECT (SELECT count(*) FROM empty) || (SELECT is_called::text FROM seq)'),
		'0false', "$name: and has done nothing");
	return 1;
}

sub check_writes
{
	my ($state, $before, $after) = @_;

	foreach (@writes)
	{
		my ($name, $sql) = @$_;
		my $s = session_in($state, 'session', @prepared);

		next if $state eq 'its role owes' && $sql =~ /EXECUTE/;
		next if $before && $sql =~ /VACUUM|WITH HOLD/;
		$s->query($before) if $before;
		$s->send($sql);
		$dt->settle;
		check_pays_first($s->pid, $name);
		let_go();
		$dt->settle;
		ok($s->finished, "$name: then it goes on") or $dt->cancel_ms($s);
		is($s->wait->{sqlstate}, undef, "$name: without an error") or diag $s->{result}{err};
		$s->query($after) if $after;
		$s->quit;
		$dt->sql('TRUNCATE empty; ALTER SEQUENCE seq RESTART');
	}
}

foreach my $state (sort keys %states)
{
	subtest "$state: what writes" => sub { check_writes($state) };
	subtest "$state: what writes, in a block that has read" => sub {
		check_writes($state, 'BEGIN; SELECT count(*) FROM t', 'ROLLBACK');
	};

	subtest "$state: what writes, by the protocol" => sub {
		my $insert = 'INSERT INTO empty VALUES (1)';

		my @cases = (
			[ 'Parse, Bind, Execute', sub { $_[0]->extended($insert)->sync } ],
			[ 'Execute after one that reads',
				sub { $_[0]->extended('SELECT 1')->extended($insert)->sync } ]);
		# what was parsed before
		push @cases, map {
			[ "Bind, Execute of $_", sub { $_[0]->bind('', 'old')->execute->sync }, $_ ]
		  } 'SELECT * FROM t FOR UPDATE', $insert, $MAY_WRITE
		  if $state ne 'its role owes';

		foreach my $case (@cases)
		{
			my ($name, $do, $sql) = @$case;
			my $w = session_in($state, 'wire',
				$sql ? sub { $_[0]->parse('old', $sql)->sync->wait } : ());

			$do->($w);
			$w->transmit;
			poll_until(
				sub { $dt->sql('SELECT dt_test_state(' . $w->pid . ')') eq 'sleeps' });
			check_pays_first($w->pid, $name);
			let_go();
			is($w->wait->{sqlstate}, undef, "$name: then it goes on");
			$w->terminate;
			$dt->sql('TRUNCATE empty; ALTER SEQUENCE seq RESTART');
		}
	};
}

$dt->finish;
