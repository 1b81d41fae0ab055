# How it is asked whether a server works: by drivers, poolers, monitoring and
# failover tools, each with a time-out, on which something is decided.  All get
# their answers in a suspended group and with debts of minutes, as members or
# because they are none.
#
# takes-about: 30 s

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::PgBouncer;
use DirtyThrottle::Programs;
use IPC::Run qw(run timeout);
use PostgreSQL::Test::Utils;
use Test::More;

my $exe = need_programs(pgbouncer => 'pgbouncer', python3 => 'python3');
my %modules = (
	psycopg2 => 'python3-psycopg2',
	psycopg => 'python3-psycopg',
	asyncpg => 'python3-asyncpg');
my @missing = grep { system("$exe->{python3} -c 'import $_' 2>/dev/null") } sort keys %modules;
plan skip_all => 'not installed: ' . join(', ', @modules{@missing}) if @missing;

my $dt = DirtyThrottle->new('health', init => [ allows_streaming => 1 ]);
my $node = $dt->node;

$dt->sql(q{SELECT set_group_wal_limit('everyone', 1);
	CREATE ROLE app LOGIN;
	CREATE ROLE mon LOGIN;
	GRANT pg_monitor TO mon;
	CREATE ROLE repl LOGIN REPLICATION;
	CREATE TABLE t (id int);
	GRANT ALL ON t TO app, mon, repl;
	INSERT INTO t VALUES (1);
	ALTER DATABASE postgres SET dirty_throttle."group" = 'everyone';
	ALTER ROLE app SET dirty_throttle.max_commit_pause = 0;
	ALTER ROLE app SET dirty_throttle.transaction_grace = '20d';
	SELECT lo_from_bytea(4711, 'large');
	ALTER LARGE OBJECT 4711 OWNER TO app;
	CREATE ROLE pooler LOGIN;
	ALTER ROLE pooler SET dirty_throttle."group" = '';
	CREATE FUNCTION user_lookup(text) RETURNS TABLE (name text, secret text)
		LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
		AS 'SELECT usename::text, passwd::text FROM pg_shadow WHERE usename = $1';
	CREATE ROLE outsider LOGIN;
	ALTER ROLE outsider SET dirty_throttle."group" = ''});

my $pool = DirtyThrottle::PgBouncer->new(
	$dt,
	roles => ['app'],
	settings => { server_check_query => 'select 1', server_check_delay => 0 });
my $lookup = DirtyThrottle::PgBouncer->new(
	$dt,
	name => 'lookup',
	roles => ['pooler'],
	settings => { auth_user => 'pooler', auth_query => 'SELECT * FROM user_lookup($1)' });
my $listen = 'host=' . $node->host . ' port=' . $node->port . ' dbname=postgres';

# What asks: name to command.  Python's have the connection string as $c.
my @clients = (
	[ 'pg_isready', 'pg_isready', '-d', $listen ],
	[ 'psql', 'psql', '-XAtc', 'SELECT pg_is_in_recovery()', "$listen user=app" ],
	[ 'psql, a list', 'psql', '-XAt', '-c', '\l', '-c', '\d', "$listen user=app" ],
	[ 'PgBouncer', 'psql', '-XAtc', 'SELECT 1', 'host=' . $pool->host . ' port=' . $pool->port . ' dbname=postgres user=app' ],
	[ 'PgBouncer, which asks a function who may log in', 'psql', '-XAtc', 'SELECT 1', 'host=' . $lookup->host . ' port=' . $lookup->port . ' dbname=postgres user=outsider' ],
	[ 'pg_dump, with a large object', 'pg_dump', '-d', "$listen user=app" ],
	[ 'monitoring', 'psql', '-XAtc', 'SELECT count(*) FROM pg_stat_activity, pg_locks', "$listen user=mon" ],
	[ 'replication', 'psql', '-XAtc', 'IDENTIFY_SYSTEM', "$listen user=repl replication=database" ],
	[ 'a backup', 'pg_basebackup', '-c', 'fast', '-Xs', '-D', PostgreSQL::Test::Utils::tempdir() . '/backup', '-d', "$listen user=repl" ],
	map { [ $_->[0], $exe->{python3}, '-c', $_->[1] =~ s/\$c/'$listen user=app'/gr ] } (
		[ 'psycopg2', 'import psycopg2
c = psycopg2.connect($c)
u = c.cursor(); u.execute("SELECT 1"); c.rollback()
u.execute("SELECT count(*) FROM t"); c.commit()' ],
		[ 'psycopg2, autocommit', 'import psycopg2
c = psycopg2.connect($c)
c.autocommit = True
c.cursor().execute("SELECT 1"); c.cursor().execute("SELECT 1")' ],
		[ 'psycopg', 'import psycopg
with psycopg.connect($c) as c:
	c.execute("SELECT 1")
with psycopg.connect($c) as c:
	c.execute("SELECT %s::int", [2], prepare=True)
	c.execute("")' ],
		[ 'asyncpg', 'import asyncio, asyncpg
async def f():
	async with asyncpg.create_pool(dsn="postgres://app@/postgres?host=' . $node->host . '&port=' . $node->port . '", min_size=1, max_size=1) as p:
		for i in range(3):
			async with p.acquire() as c:
				assert await c.fetchval("SELECT $1::int", i) == i
			async with p.acquire() as c:
				async with c.transaction(readonly=True):
					assert await c.fetchval("SELECT count(*) FROM t") == 1
asyncio.run(f())' ]));

sub ask
{
	my ($situation) = @_;
	my $first = 1;

	foreach (@clients)
	{
		my ($name, @command) = @$_;
		my ($out, $err) = ('', '');
		my $done = eval {
			run(\@command, '<', \'', '>', \$out, '2>', \$err, timeout($DirtyThrottle::TIMEOUT));
		};

		ok($done, "$situation: $name has an answer") or diag $@, $err;
		system('rm', '-rf', $command[5]) if $name eq 'a backup';
		return unless $done;
	}
}

# Are they what they are meant to be?
foreach my $role ([ app => 1 ], [ mon => 0 ], [ repl => 0 ])
{
	my $s = $dt->session(user => $role->[0]);

	$s->query('SELECT 1');
	is($dt->sql('SELECT count(*) FROM dirty_throttle_sessions WHERE pid = ' . $s->pid),
		$role->[1], "role $role->[0] is a member, or not");
	$s->quit;
}
ask('no harm');
$dt->sql(q{SELECT suspend_group('everyone')});
ask('suspended');
$dt->sql(q{SELECT resume_group('everyone')});

# Half an hour is owed, by a session that has ended, and by one in the pool.
foreach my $s ($dt->session(user => 'app'), $pool->client('app'))
{
	$s->query(q{DO $$ DECLARE lsn pg_lsn; BEGIN
		lsn := pg_logical_emit_message(true, '', repeat('x', 2000000)); END $$});
	$s->quit;
}
cmp_ok($dt->group_row('everyone')->{wal_debt}, '>', 1800, 'seconds that are owed');
ask('debts');

# To write has to wait, or this would show nothing.
my $s = $dt->session(user => 'app');
$s->send('INSERT INTO t VALUES (2)');
ok($dt->wait_paused($s), 'who writes pays');
$dt->sql(q{SELECT set_group_wal_limit('everyone', 0)});
$s->wait;
$dt->finish;
