# After a start shared memory has no groups until somebody needs them: whoever
# that is, 500 logins at once, a server's own worker, or a session whose group
# comes from the configuration, finds its group.
#
# takes-about: 10 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $GROUPS = 1000;
my $LOGINS = 500;

my $publisher = DirtyThrottle::Life->new('publisher', init => [ allows_streaming => 'logical' ]);
my $dt = DirtyThrottle::Life->new('first', conf => qq{
max_connections = @{[ $LOGINS + 20 ]}
dirty_throttle.max_groups = $GROUPS
wal_retrieve_retry_interval = 100ms
autovacuum_naptime = 1s
log_autovacuum_min_duration = 0
dirty_throttle.autovacuum_group = 'vacuum'
dirty_throttle.apply_group = 'apply'
});
my $node = $dt->node;

sub restart
{
	my ($conf) = @_;

	$dt->disconnect;
	$node->append_conf('postgresql.conf', $conf) if $conf;
	$node->restart;
	return;
}

sub blocks { return $dt->group_row($_[0])->{blocks_dirtied} }

$dt->sql(qq{CREATE ROLE etl LOGIN; ALTER ROLE etl SET dirty_throttle."group" = 'batch';
	SELECT count(alter_resource_group(g)) FROM (SELECT unnest('{batch,vacuum,apply}'::text[]) AS g
		UNION ALL SELECT 'group ' || i FROM generate_series(4, $GROUPS) i) x;
	CREATE TABLE t (id int PRIMARY KEY, filler text);
	CREATE TABLE vacuumed (id int, filler text)});
$publisher->sql('CREATE TABLE t (id int PRIMARY KEY, filler text); CREATE PUBLICATION pub FOR TABLE t');
$dt->sql("CREATE SUBSCRIPTION sub CONNECTION '" . $publisher->node->connstr . " dbname=postgres' PUBLICATION pub");
is($dt->sql('SELECT count(*) FROM dirty_throttle_groups'), $GROUPS, 'groups, in one transaction');

# ------------------------------------------------------------- a login storm

my $script = PostgreSQL::Test::Utils::tempdir() . '/login.sql';
append_to_file($script,
	q{SELECT 1 / count(*) FROM dirty_throttle_sessions() WHERE pid = pg_backend_pid() AND group_name = 'batch';});
restart();
my ($out, $err);
IPC::Run::run(
	[ 'pgbench', '-n', '-C', '-c', $LOGINS, '-j', $LOGINS, '-t', 1, '-f', $script,
		'-d', $node->connstr('postgres') . ' user=etl' ],
	'>', \$out, '2>', \$err);
like($out, qr{actually processed: $LOGINS/$LOGINS}, "$LOGINS logins at once, all into their group")
  or diag $err;
unlike($err, qr/WARNING/, 'without a warning');

# ---------------------------------------------- the group of a configuration

restart();
my $s = $dt->session(options => '-c dirty_throttle.group=batch');
is($s->query('SHOW dirty_throttle."group"'), 'batch', 'PGOPTIONS');
$s->quit;
restart("dirty_throttle.group = 'group 4'");
$dt->sql('CREATE ROLE app LOGIN');
restart();
$s = $dt->session(user => 'app');
is($s->query('SHOW dirty_throttle."group"'), 'group 4', 'postgresql.conf');
$s->quit;

# ----------------------------------------------------------------- an apply worker

restart();
$publisher->sql(q{INSERT INTO t SELECT i, repeat('x', 500) FROM generate_series(1, 1000) i});
ok( poll_until(
		sub {
			$publisher->sql(q{SELECT count(*) FROM pg_stat_replication
				WHERE replay_lsn >= pg_current_wal_lsn()});
		}, 180),
	'an apply worker works, and nobody else has come');
cmp_ok(blocks('apply'), '>', 0, 'it has used its group');
$dt->sql(q{ALTER SUBSCRIPTION sub DISABLE; ALTER SUBSCRIPTION sub SET (slot_name = NONE); DROP SUBSCRIPTION sub});

# ------------------------------------------------------------ an autovacuum worker

$dt->sql(q{INSERT INTO vacuumed SELECT i, repeat('x', 500) FROM generate_series(1, 20000) i;
	DELETE FROM vacuumed WHERE id % 2 = 0});
poll_until(sub { $dt->sql(q{SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'vacuumed'}) > 0 }, 180);
my $mark = $dt->log_mark;
restart("autovacuum = on\nlog_min_messages = log");
ok(poll_until(sub { $dt->log_since($mark) =~ /automatic vacuum of table "postgres.public.vacuumed"/ }, 180),
	'an autovacuum worker works, and nobody else has come');
cmp_ok(blocks('vacuum'), '>', 0, 'it has used its group');

# ------------------------------------------------------------- single-user mode

$dt->disconnect;
$node->stop('fast');
my $sql = q{SELECT set_group_dirty_limit('batch', 7)};
IPC::Run::run([ 'postgres', '--single', '-D', $node->data_dir, 'postgres' ], '<', \$sql, '>', \$out, '2>', \$err);
$node->start;
is($dt->group_row('batch')->{dirty_limit}, 7, 'a change in single-user mode') or diag "$out$err";

is($dt->crashes, '', 'no crash');
$dt->disconnect;
$dt->node->stop('fast');
$publisher->finish;
