# How drivers, poolers, failover tools, monitoring and frameworks ask whether a server
# works, statement by statement and by the protocol that they use, over types and
# functions of extensions and of users as well: all are answered at once, in a suspended
# group and with a debt that an INSERT has made, by a session of a pool and by one that
# has just connected.  Then what writes waits, or this would show nothing.  On a clock
# that stands still while statements run: who pauses once, does so for ever.
#
# test/systems/health.pl does it with the programs themselves.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::Clock;
use DirtyThrottle::Wire;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Clock->new('health_checks',
	init => [ no_data_checksums => 1 ],
	conf => q{
shared_preload_libraries = 'dirty_throttle, pg_stat_statements'
});
my $node = $dt->node;
my @extensions = qw(citext hstore pg_trgm pg_stat_statements);
my %there = map { $_ => 1 } split /\n/,
  $dt->sql('SELECT name FROM pg_available_extensions WHERE name IN (' . join(', ', map { "'$_'" } @extensions) . ')');
my @missing = grep { !$there{$_} } @extensions;

if (@missing)
{
	$dt->stop;
	plan skip_all => "extensions that are not installed: @missing";
}
$dt->sql("CREATE EXTENSION $_") foreach @extensions;

$dt->sql(
	q{CREATE ROLE app LOGIN;
	ALTER ROLE app SET dirty_throttle."group" = 'g';
	SELECT alter_resource_group('g');
	CREATE TABLE users (id bigint PRIMARY KEY, email citext UNIQUE, tags hstore, name text);
	INSERT INTO users SELECT i, 'User' || i || '@example.org', hstore('n', i::text), 'name ' || i
		FROM generate_series(1, 100) i;
	CREATE INDEX ON users USING gin (name gin_trgm_ops);
	CREATE TABLE schema_migrations (version varchar PRIMARY KEY);
	INSERT INTO schema_migrations VALUES ('20260101000000');
	CREATE TABLE written (t text);
	GRANT ALL ON users, schema_migrations, written TO app;
	CREATE SCHEMA pgbouncer;
	GRANT USAGE ON SCHEMA pgbouncer TO app;
	CREATE FUNCTION pgbouncer.get_auth(p_usename text) RETURNS TABLE (username text, password text)
		LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $$
		BEGIN
			RETURN QUERY SELECT usename::text, passwd::text FROM pg_catalog.pg_shadow WHERE usename = p_usename;
		END $$;
	CREATE FUNCTION is_healthy() RETURNS boolean LANGUAGE plpgsql AS
		'BEGIN RETURN NOT pg_is_in_recovery() AND EXISTS (SELECT FROM users); END';
	ALTER SYSTEM SET track_io_timing = off});
# so that hint bits and new pages are nobody's business
$dt->sql('VACUUM (FREEZE, ANALYZE)');

my $patroni = q{SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0 ELSE ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8))::bit(32)::int END, CASE WHEN pg_catalog.pg_is_in_recovery() THEN 0 ELSE pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_flush_lsn(), '0/0')::bigint END, pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_last_wal_replay_lsn(), '0/0')::bigint, pg_catalog.pg_wal_lsn_diff(COALESCE(pg_catalog.pg_last_wal_receive_lsn(), '0/0'), '0/0')::bigint, pg_catalog.pg_is_in_recovery() AND pg_catalog.pg_is_wal_replay_paused(), pg_catalog.pg_last_xact_replay_timestamp(), pg_catalog.to_char(pg_catalog.pg_postmaster_start_time(), 'YYYY-MM-DD HH24:MI:SS.MS TZ'), (SELECT pg_catalog.json_agg(s.*) FROM (SELECT slot_name, slot_type, plugin, catalog_xmin, pg_catalog.pg_wal_lsn_diff(confirmed_flush_lsn, '0/0')::bigint, restart_lsn, xmin FROM pg_catalog.pg_get_replication_slots()) AS s)};
my $statements = q{SELECT pg_get_userbyid(userid) as user, pg_database.datname, pg_stat_statements.queryid, pg_stat_statements.calls as calls_total, pg_stat_statements.total_exec_time / 1000.0 as seconds_total, pg_stat_statements.rows as rows_total FROM pg_stat_statements JOIN pg_database ON pg_database.oid = pg_stat_statements.dbid WHERE total_exec_time > (SELECT percentile_cont(0.1) WITHIN GROUP (ORDER BY total_exec_time) FROM pg_stat_statements) ORDER BY seconds_total DESC LIMIT 100};

# What asks, and what it sends: a statement for the simple protocol, or a list of one
# for the extended protocol and its parameters.
my @checks = (
	# BEGIN as its own message; hstore and citext are looked up by name
	[ 'psycopg 3', ['BEGIN'], ['SELECT 1'], ['COMMIT'], [''],
		[ 'SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter
			FROM pg_type t WHERE t.oid = to_regtype($1) ORDER BY t.oid', 'hstore' ],
		['BEGIN'], [ 'SELECT id, tags FROM users WHERE email = $1', 'USER5@example.org' ], ['ROLLBACK'] ],
	[ 'psycopg 2', 'BEGIN', 'SELECT 1', 'ROLLBACK', 'SELECT 1',
		q{SELECT t.oid, typarray FROM pg_type t JOIN pg_namespace ns ON typnamespace = ns.oid WHERE typname = 'hstore'} ],
	# isValid() is an empty statement
	[ 'JDBC', ['SET extra_float_digits = 3'], [q{SET application_name = 'PostgreSQL JDBC Driver'}], [''], ['SELECT 1'],
		['SHOW TRANSACTION ISOLATION LEVEL'], ['BEGIN READ ONLY'],
		[ 'select u.id, u.tags -> $1 from users u where u.email = $2', 'n', 'user5@example.org' ], ['COMMIT'] ],
	[ 'Patroni', $patroni, q{SELECT pg_catalog.pg_is_in_recovery()},
		'SELECT name, setting FROM pg_catalog.pg_settings WHERE pg_catalog.lower(name) = ANY (ARRAY[\'wal_level\', \'max_connections\'])' ],
	[ 'PgBouncer', 'select 1', 'DISCARD ALL', [ 'SELECT username, password FROM pgbouncer.get_auth($1)', 'app' ] ],
	[ 'pgpool', 'SELECT pg_is_in_recovery()', 'SELECT pg_current_wal_lsn()', 'SELECT current_setting(\'transaction_read_only\')',
		q{SELECT count(*) FROM pg_catalog.pg_class AS c WHERE c.oid = pg_catalog.to_regclass('"users"') AND c.relpersistence = 'u'},
		q{SELECT count(*) FROM pg_catalog.pg_proc AS p, pg_catalog.pg_namespace AS n WHERE p.proname = 'is_healthy' AND n.oid = p.pronamespace AND n.nspname ~ '.*' AND p.provolatile = 'v'},
		'DISCARD ALL' ],
	[ 'HAProxy', 'SELECT is_healthy()', 'SELECT pg_is_in_recovery()' ],
	[ 'Prometheus', 'SELECT version()', 'SHOW server_version', $statements,
		'SELECT datname, numbackends, xact_commit, blks_hit FROM pg_stat_database',
		'SELECT current_database() datname, schemaname, relname, seq_scan, n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables',
		q{SELECT slot_name, pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots},
		q{SELECT count(*), COALESCE(MAX(EXTRACT(EPOCH FROM now() - xact_start))::float, 0) FROM pg_stat_activity GROUP BY state} ],
	[ 'Rails', ';', q{SET client_min_messages TO 'warning'}, q{SET standard_conforming_strings = on},
		q{SELECT t.oid, t.typname, t.typelem, t.typdelim, t.typinput, r.rngsubtype, t.typtype, t.typbasetype
			FROM pg_type as t LEFT JOIN pg_range as r ON oid = rngtypid WHERE t.typname IN ('int2', 'text', 'hstore', 'citext')},
		['SELECT "schema_migrations"."version" FROM "schema_migrations" ORDER BY "schema_migrations"."version" ASC'],
		[ 'SELECT "users".* FROM "users" WHERE "users"."email" = $1 LIMIT $2', 'user7@example.org', 1 ],
		[ 'SELECT 1 AS one FROM "users" WHERE "users"."tags" @> $1 LIMIT $2', '"n"=>"7"', 1 ] ],
	[ 'Django', 'SELECT 1', q{SELECT set_config('TimeZone', 'UTC', false)},
		q{SELECT oid, typarray FROM pg_type WHERE typname = 'citext'},
		q{SELECT c.relname, CASE WHEN c.relispartition THEN 'p' WHEN c.relkind IN ('m', 'v') THEN 'v' ELSE 't' END, obj_description(c.oid, 'pg_class')
			FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
			WHERE c.relkind IN ('f', 'm', 'p', 'r', 'v') AND n.nspname NOT IN ('pg_catalog', 'pg_toast') AND pg_catalog.pg_table_is_visible(c.oid)},
		q{SELECT "users"."id", SIMILARITY("users"."name", 'name 7') AS "s" FROM "users" WHERE "users"."email" = 'user7@example.org' ORDER BY "s" DESC LIMIT 21},
		q{SELECT "users"."id" FROM "users" WHERE "users"."name" % 'name 7' LIMIT 21} ]);

# Sends one and waits for its answer: does it pause?
sub pauses
{
	my ($w, $message) = @_;

	if (ref $message)
	{
		my ($sql, @values) = @$message;
		$w->parse('', $sql)->bind('', '', @values)->describe('P', '')->execute->message('S', '');
	}
	else
	{
		$w->simple($message);
	}
	# it has begun, and has ended or sleeps; sync() would have sent it before
	my $activity = 'FROM pg_stat_activity WHERE pid = ' . $w->pid;
	my $before = $dt->sql("SELECT state_change $activity");
	my $state;
	$w->transmit;
	poll_until(
		sub {
			$state = $dt->sql("SELECT CASE WHEN dt_test_state(pid) = 'sleeps' THEN 'sleeps'
				WHEN state_change > '$before' AND state LIKE 'idle%' THEN 'idle' END $activity");
			return $state;
		});
	my $pauses = $state eq 'sleeps';
	$dt->sql('SELECT pg_cancel_backend(' . $w->pid . ')') if $pauses;
	my $r = $w->wait(cancel_every => 1);    # the next statement of a query, too
	is($r->{sqlstate}, undef, 'no error') if !$pauses && $r->{sqlstate};
	return $pauses;
}

sub ask
{
	my ($name, $w) = @_;

	$dt->sql(q{SELECT dirty_throttle_reset('g')});
	foreach (@checks)
	{
		my ($tool, @messages) = @$_;
		my @paused = grep { pauses($w, $_) } @messages;

		ok(!@paused, "$name: $tool has its answers at once")
		  or diag join "\n", 'it pauses:', map { ref $_ ? $_->[0] : $_ } @paused;
	}
	is($dt->group_row('g')->{pauses}, 0, "$name: nobody has paused");
	ok(pauses($w, [ 'INSERT INTO written VALUES ($1)', 'x' ]), "$name: but who writes waits");
}

# What is owed, given the session that is in the pool.
my $insert = q{INSERT INTO written SELECT repeat('x', 900) FROM generate_series(1, 200)};
my %states = (
	'suspended' => sub { $dt->sql(q{SELECT suspend_group('g')}) },
	'a debt of an INSERT' => sub {
		my ($w) = @_;

		$dt->sql(q{SELECT set_group_wal_limit('g', 1)});
		$w->query($_) foreach 'BEGIN', $insert, 'ROLLBACK';
	});

foreach my $state (sort keys %states)
{
	subtest $state => sub {
		my $pooled = DirtyThrottle::Wire->new($node, user => 'app');

		$dt->sql(q{SELECT set_group_wal_limit('g', 0)});
		pauses($pooled, $_) foreach map { my (undef, @messages) = @$_; @messages } @checks;
		$states{$state}->($pooled);
		ask("$state, of a pool", $pooled);
		# it leaves what it owes
		$pooled->terminate;
		ok( poll_until(sub { $dt->group_row('g')->{members} == 0 }), 'it has ended');
		my $new = DirtyThrottle::Wire->new($node, user => 'app');
		ask("$state, connected anew", $new);
		$new->terminate;
		command_ok([ 'pg_isready', '-d', $node->connstr('postgres') . ' user=app' ], "$state: pg_isready");
		# HAProxy's own check is a login that sends nothing
		my $silent = DirtyThrottle::Wire->new($node, user => 'app');
		ok($silent->pid, "$state: a login");
		$silent->terminate;
		$dt->sql(q{SELECT resume_group('g')}) if $state eq 'suspended';
	};
}

$dt->finish;
