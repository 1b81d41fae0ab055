# A session pool, pgbouncer in transaction mode: the group comes with the role
# (ALTER ROLE ... SET), so that whichever server connection a client gets is
# throttled, and a client cannot take a group along to the next one.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use DirtyThrottle;
use DirtyThrottle::PgBouncer;
use DirtyThrottle::Programs;
use Test::More;

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

$_->quit foreach @clients[ 1 .. 7 ], $web;
$dt->finish;
