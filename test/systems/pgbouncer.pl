# A session pool, pgbouncer in transaction mode: the group comes with the role
# (ALTER ROLE ... SET), so that whichever server connection a client gets is
# throttled, and a client cannot take a group along to the next one.  And in each
# mode in which a client can take one for itself, the next client of the connection
# pays nothing of what that one owes.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::PgBouncer;
use DirtyThrottle::Programs;
use Test::More;
use Time::HiRes qw(time);

need_programs(pgbouncer => 'pgbouncer');

my $limit = 10000;    # KB/s
my $n = 150;          # rows, a page each, for each of eight clients

# A server process learns only so that its client has gone while it is busy,
# and a pause is no exception.
my $dt = DirtyThrottle->new('pgbouncer',
	conf => 'client_connection_check_interval = 500ms');
$dt->limit(grp_a => $limit);
$dt->sql(
	q{CREATE ROLE batch LOGIN;
	CREATE ROLE web LOGIN;
	ALTER ROLE batch SET dirty_throttle."group" = 'grp_a';
	CREATE TABLE t (id int, filler text) WITH (fillfactor = 10);
	GRANT ALL ON t TO batch, web});

my $pool = DirtyThrottle::PgBouncer->new($dt, roles => [ 'batch', 'web' ]);
my @clients = map { $pool->client('batch') } 1 .. 8;
my $insert = "INSERT INTO t SELECT i, repeat('x', 800)
	FROM generate_series(1, $n) i";

# ------------------------------------------------------------------ the rate

my $r = $dt->check_limit(
	'eight clients',
	'grp_a',
	sub {
		$_->send($insert) foreach @clients;
		ok(poll_until(sub { $dt->group_row('grp_a')->{members} == 4 }),
			'four server connections are members');
		is($_->wait->{sqlstate}, undef, 'a client is served') foreach @clients;
	},
	limit => $limit,
	members => 4);
between($r->{blocks}, 8 * $n, 8 * $n * 1.2, 'eight clients: blocks');
is($dt->sql('SELECT count(*) FROM t'), 8 * $n, 'all rows are there');

# many small transactions over changing connections
$dt->check_limit(
	'many small transactions',
	'grp_a',
	sub {
		$_->send(
			join(";\n",
				("INSERT INTO t SELECT i, repeat('x', 800) FROM generate_series(1, 5) i")
				  x 30))
		  foreach @clients;
		$_->wait foreach @clients;
	},
	members => 4);

# ---------------------------------------------------------- clients' settings

is( $clients[0]->query(q{SELECT current_setting('dirty_throttle.group')}),
	'grp_a', 'every connection of the role has the group');
is($clients[0]->run(q{SET dirty_throttle."group" = ''})->{sqlstate},
	'42501', 'a client cannot leave it');
is($clients[0]->run(q{RESET dirty_throttle."group"})->{sqlstate},
	'42501', 'nor by RESET');
$clients[0]->run('RESET ALL');
is($clients[0]->run('DISCARD ALL')->{sqlstate}, undef,
	'DISCARD ALL, as pools do it');
is( $clients[0]->query(q{SELECT current_setting('dirty_throttle.group')}),
	'grp_a', 'keeps the group of the role');
ok($dt->group_row('grp_a')->{members} >= 1, 'and its members');

# another role in the same pool of a database is not throttled
my $web = $pool->client('web');
$dt->limit(grp_a => 1);
$web->query($insert);
is($dt->group_row('grp_a')->{paused}, 0, 'another role does not pause');

# ---------------------------------------------------------------- sleepers

# A client in the middle of a transaction pauses; the others' connections are
# not its business.  It goes away: its connection is freed.
$dt->limit(grp_a => 0);
$dt->limit(grp_a => 1);
$clients[0]->send($insert);
ok( poll_until(
		sub { $dt->group_row('grp_a')->{paused} >= 1 }),
	'a client pauses');
$clients[0]->hang_up;
ok( poll_until(
		sub { $dt->group_row('grp_a')->{paused} == 0 }),
	'a client that goes away pauses no longer');
$dt->limit(grp_a => 0);
is($clients[1]->query('SELECT 1'), '1', 'the others are served');

# An after-commit pause belongs to the client whose transaction it was.
$dt->sql('ALTER TABLE t OWNER TO batch');
$dt->sql(q{GRANT CREATE ON SCHEMA public TO batch});
$dt->limit(grp_a => 10);
$clients[1]->send('ALTER TABLE t ALTER id TYPE bigint');
ok( poll_until(
		sub { $dt->group_row('grp_a')->{paused} >= 1 }),
	'a client pays after its transaction');
is($clients[2]->query('SELECT 1'), '1', 'another client meanwhile');
$dt->limit(grp_a => 0);
is($clients[1]->wait->{sqlstate}, undef, 'it ends well');

# ------------------------------------------------------------- a batch job

# Its client goes away at once, and the connection is another's; the job is in the group
# of the role, or of SET LOCAL, and has left nothing with the connection.
$dt->sql(q{CREATE TABLE counted (id int PRIMARY KEY, n int);
	INSERT INTO counted SELECT i, 0 FROM generate_series(1, 1000) i;
	ANALYZE counted;
	GRANT ALL ON counted TO batch, web;
	GRANT SET ON PARAMETER dirty_throttle."group" TO web});
foreach my $case ([ batch => '' ], [ web => q{SET LOCAL dirty_throttle."group" = 'grp_a';} ])
{
	my ($role, $set) = @$case;
	my $client = $pool->client($role);
	my $state = sub { $dt->sql("SELECT state FROM dirty_throttle_batches WHERE name = 'by $role'") };

	$dt->limit(grp_a => 400);
	$client->query("BEGIN; SET LOCAL statement_timeout = '1s'; $set
		SELECT start_batches('by $role', 'counted', 'UPDATE counted SET n = n + 1 WHERE {batch}', max_rows => 20); COMMIT");
	$client->hang_up;
	ok(poll_until(sub { $dt->sql(q{SELECT s.group_name FROM dirty_throttle_batches b
			JOIN dirty_throttle_sessions s USING (pid) WHERE b.name = 'by } . "$role'") eq 'grp_a' }),
		"a job of $role is in the group");
	my $next = $pool->client($role);
	is($next->query(q{SELECT current_setting('dirty_throttle.group')}), $role eq 'batch' ? 'grp_a' : '',
		"$role: the next client is in the group of its role, or in none");
	$next->quit;
	$dt->limit(grp_a => 0);
	ok(poll_until(sub { $state->() eq 'finished' }), "a job of $role ends") or diag $state->();
}
is($dt->sql('SELECT min(n), max(n), count(*) FROM counted'), '2|2|1000', 'each row once by each job');

$_->quit foreach @clients[ 1 .. 7 ], $web;
$pool->stop;

# ------------------------------------------------------- the next client

# One connection.  A client is in the group for a transaction or a session, and has
# used what takes ten minutes or more when it leaves; the next one is in no group.
my $debt = 600;    # s
my $slow = 2;      # KB/s
my $much = sprintf q{SELECT pg_logical_emit_message(false, 'x', repeat('x', %d))},
  1.1 * $debt * $slow * 1000;
my $group = q{dirty_throttle."group" = 'pooled'};

$dt->sql(
	q{CREATE ROLE app LOGIN;
	SELECT alter_resource_group('pooled');
	GRANT SET ON PARAMETER dirty_throttle."group", dirty_throttle.max_commit_pause TO app;
	ALTER ROLE app SET dirty_throttle.transaction_grace = '1d';
	GRANT ALL ON t TO app});

# Each: the pool's settings, and what the client sends before it goes.
my @leaves = (
	[ 'SET LOCAL, ROLLBACK', {}, "BEGIN; SET LOCAL $group; $much; ROLLBACK" ],
	[ 'SET LOCAL, an error', {}, "BEGIN; SET LOCAL $group; $much; SELECT 1/0; COMMIT" ],
	[ 'SET LOCAL, COMMIT without a pause', {},
		"SET dirty_throttle.max_commit_pause = 0; BEGIN; SET LOCAL $group; $much; COMMIT" ],
	[ 'server_reset_query_always', { server_reset_query_always => 1 },
		"BEGIN; SET $group; $much; ROLLBACK" ],
	[ 'session mode, DISCARD ALL',
		{ pool_mode => 'session', server_reset_query => 'DISCARD ALL' },
		"SET dirty_throttle.max_commit_pause = 0; BEGIN; SET $group; $much; COMMIT" ]);

foreach my $i (0 .. $#leaves)
{
	my ($name, $settings, $sql) = @{ $leaves[$i] };
	my $one = DirtyThrottle::PgBouncer->new($dt, name => "pgbouncer_$i", roles => ['app'],
		settings => { default_pool_size => 1, server_reset_query => 'DISCARD ALL', %$settings });

	$dt->sql("SELECT set_group_wal_limit('pooled', $_)") foreach 0, $slow;
	my $job = $one->client('app');
	my $next = $one->client('app') unless ($settings->{pool_mode} // '') eq 'session';
	$job->run($sql);
	cmp_ok($dt->group_row('pooled')->{wal_debt}, '>', $debt * $slow, "$name: much is owed")
	  unless $settings->{pool_mode};
	$job->quit;
	$next //= $one->client('app');
	my $r = $next->run('INSERT INTO t VALUES (1)');
	is($r->{sqlstate}, undef, "$name: the next client writes");
	cmp_ok($r->{ms}, '<', 1000 * $debt / 5, "$name: and does not wait for that");
	is($dt->group_row('pooled')->{members}, 0, "$name: nobody is in the group");
	cmp_ok($dt->group_row('pooled')->{wal_debt}, '>', $debt * $slow / 2,
		"$name: which is still owed to");
	$next->quit;
	$one->stop;
}

# Twenty jobs by SET LOCAL on four connections, half of which are rolled back.  What
# they leave they find again: the group's rate holds, but for what all of them can
# use before they pay.
$dt->sql(q{SELECT set_group_wal_limit('pooled', 0)});
$dt->sql(q{ALTER ROLE app RESET dirty_throttle.transaction_grace});
$pool = DirtyThrottle::PgBouncer->new($dt, name => 'pgbouncer_jobs', roles => ['app']);
my @jobs = map { $pool->client('app') } 1 .. 20;
my $size = 100_000;
my $rate = 2000;

$dt->sql("SELECT set_group_wal_limit('pooled', $rate)");
my $since = time;
my $before = $dt->group_row('pooled')->{wal_bytes};
foreach my $round (1 .. 6)
{
	$_->send("BEGIN; SET LOCAL $group;
		SELECT pg_logical_emit_message(true, 'x', repeat('x', $size)); "
		. ($round % 2 ? 'COMMIT' : 'ROLLBACK'))
	  foreach @jobs;
	is_deeply([ grep { defined $_->wait->{sqlstate} } @jobs ], [], "round $round: no error");
}
my $used = ($dt->group_row('pooled')->{wal_bytes} - $before) / 1000;
cmp_ok($used, '>=', 6 * 20 * $size / 1000, 'all of it was charged');
cmp_ok($used, '<=', $rate * (time - $since) + 20 * 1.2 * $size / 1000 + $rate,
	'in the long run at the limit, KB');
$_->quit foreach @jobs;
$dt->finish;
