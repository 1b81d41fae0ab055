# Groups by default: of the server, a database or a role.  Who becomes a
# member, who never does, and what happens where the extension is missing.
# 063 has who operates the server.
#
# expect-in-log: WARNING:  resource group "(missing|par)" does not exist

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use Test::More;
use Time::HiRes qw(sleep);

my $dt = DirtyThrottle::Life->new('default');
my $node = $dt->node;
my $members = q{SELECT coalesce(string_agg(DISTINCT backend_type, ', '), '')
	FROM dirty_throttle_sessions JOIN pg_stat_activity USING (pid)};

#
# Server
#
$dt->sql(q{SELECT set_group_dirty_limit('server', 2000),
                  set_group_dirty_limit('other', 0)});
$dt->table('t');
$dt->sql('CREATE ROLE app LOGIN; GRANT ALL ON t TO app');
$node->append_conf('postgresql.conf', "dirty_throttle.group = 'server'\n");
$node->restart;
$dt->disconnect;
my $s = $dt->session(user => 'app');
is($s->query('SHOW dirty_throttle."group"'),
	'server', 'a session is in the group of the server');
$s->send(insert_sql('t', 1000));
ok($dt->wait_paused($s, 'in flight'), 'and is throttled');
$dt->cancel_ms($s);

cmp_ok(
	$dt->sql(q{SELECT count(*) FROM pg_stat_activity
	           WHERE backend_type IN ('checkpointer', 'background writer',
	                                  'walwriter', 'logical replication launcher')}),
	'==', 4, 'server processes are there');
is($dt->sql($members), 'client backend', 'and are not members');
is( $dt->group_row('server')->{members},
	$dt->sql('SELECT count(*) FROM dirty_throttle_sessions'),
	'nor counted as such');

# Another group by a reload, without a restart.
$dt->reload(q{dirty_throttle.group = 'other'});
ok(poll_until(sub {
			$s->query('SHOW dirty_throttle."group"') eq 'other' }),
	'a session moves to the new group of the server');
poll_until(
	sub {
		$dt->sql(q{SELECT reset_val FROM pg_settings WHERE name = 'dirty_throttle.group'}) eq 'other';
	});
is($dt->sql($members), 'client backend',
	'server processes do not join on a reload either');
is($dt->group_row('server')->{members}, 0, 'nobody is left behind');
$s->quit;

# A group that is not there: nobody is refused, everybody is told, once.
$node->append_conf('postgresql.conf', "dirty_throttle.group = 'missing'\n");
foreach my $how (qw(reload restart))
{
	my $mark = $dt->log_mark;
	my $out;
	my $err;

	$node->$how;
	$dt->disconnect if $how eq 'restart';
	ok( poll_until(sub {
				(my $ret, $out, $err) = $node->psql('postgres',
					'SELECT 1; SELECT 2; SHOW dirty_throttle."group"',
					extra_params => [ '-U', 'app' ]);
				$err =~ /missing/ }),
		"unknown group after a $how: a session is told");
	is($out, "1\n2\n", 'unknown group: login and statements work');
	is( (() = $err =~
			/WARNING:  resource group "missing" does not exist\nDETAIL:  This session is not throttled\./g),
		1,
		'unknown group: one warning a session');
	unlike($dt->log_since($mark), qr/PANIC|TRAP|FATAL:  (?!terminating|the database)/,
		'unknown group: nothing else');
	is($dt->sql($members), '', 'unknown group: nobody is a member');
}
$s = $dt->session(user => 'app');
$dt->sql("SELECT set_group_dirty_limit('missing', 2000)");
is($s->run(insert_sql('t', 1))->{err},
	'', 'the group is created: the next statement joins, without a warning');
is($s->query('SHOW dirty_throttle."group"'), 'missing', 'as it should');
$s->quit;

# A name that is too long for one in the configuration file.
{
	my $mark = $dt->log_mark;
	$dt->reload(q{dirty_throttle.group = '} . 'x' x 64 . q{'});
	ok( poll_until(sub {
				$dt->log_since($mark) =~
				  /invalid value for parameter "dirty_throttle.group"/ }),
		'a name that is too long is reported in the log');
	my ($ret) = $node->psql('postgres', 'SELECT 1');
	is($ret, 0, 'and costs nobody the login');
	$dt->reload(q{dirty_throttle.group = ''});
	ok(poll_until(sub {
				$node->safe_psql('postgres', 'SHOW dirty_throttle."group"',
					extra_params => [ '-U', 'app' ]) eq '' }),
		'no default group');
}
$dt->disconnect;

#
# Parallel query: what the workers dirty is charged once, to the leader
#
$dt->sql(q{SELECT set_group_dirty_limit('par', 0)});
$dt->table('par');
$dt->sql(insert_sql('par', 4000));
$dt->sql('CHECKPOINT');    # what is dirty cannot be dirtied
$s = $dt->session(group => 'par');
$s->query(q{SET max_parallel_workers_per_gather = 2;
	SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0;
	SET parallel_tuple_cost = 0});
# once on another table for what the first plan of a session dirties
$s->query('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT count(*) FROM t');
{
	my $before = $dt->session_row($s)->{blocks_dirtied};
	my $group_before = $dt->group_row('par')->{blocks_dirtied};
	my $plan =
	  $s->query('EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT count(*) FROM par');
	my ($launched) = $plan =~ /"Workers Launched": (\d+)/;
	my ($dirtied) = $plan =~ /"Shared Dirtied Blocks": (\d+)/;
	my $charged = $dt->session_row($s)->{blocks_dirtied} - $before;

	cmp_ok($launched // 0, '>', 0, 'a parallel plan has workers in a group');
	cmp_ok($dirtied, '>=', 4000, 'and sets hint bits');
	is($charged, $dirtied, 'its blocks are charged to the leader, once');
	is($dt->group_row('par')->{blocks_dirtied} - $group_before,
		$dirtied, 'and to the group');
	is($dt->group_row('par')->{members},
		1, 'workers are not members of their own');
}
# and they are paid for
$dt->limit('par', 8192);
$dt->sql('TRUNCATE par');
$dt->sql(insert_sql('par', 2500));
$dt->sql('CHECKPOINT');
{
	my $r = $dt->measure($s, 'SELECT count(*) FROM par');
	is($r->{out}, 2500, 'a throttled parallel query has all rows');
	cmp_ok($r->{blocks}, '>=', 2500, 'blocks that it dirties');
	cmp_ok($dt->group_row('par')->{pauses}, '>', 0, 'it has paused');
}
# the group is dropped or renamed while the workers start: no matter; if that
# comes before the query, it warns
$s->send('SELECT count(*) FROM generate_series(1, 200) i, LATERAL (SELECT count(*) FROM par WHERE id <> i) x');
$dt->sql("SELECT rename_resource_group('par', 'rap')");
$dt->sql("SELECT drop_resource_group('rap', force => true)");
is($s->wait->{sqlstate}, undef, 'parallel queries survive rename and drop');
$s->quit;

#
# Autovacuum is not throttled by the group of its database
#
$dt->sql('CREATE DATABASE av');
$dt->sql(q{SELECT set_group_dirty_limit('slow', 10)});
$dt->sql(q{ALTER DATABASE av SET dirty_throttle."group" = 'slow'});
$dt->sql(q{CREATE ROLE free LOGIN; GRANT SET ON PARAMETER dirty_throttle."group" TO free});
my $free = $dt->session(dbname => 'av', user => 'free', options => '-c dirty_throttle.group=');
is($free->query(q{SHOW dirty_throttle."group"}), '', 'a session can opt out');
$free->quit;
my $av = $dt->session(dbname => 'av');
$av->query(q{CREATE TABLE v (id int, pad text) WITH (fillfactor = 10,
	autovacuum_vacuum_threshold = 1, autovacuum_vacuum_scale_factor = 0,
	autovacuum_vacuum_cost_delay = 0)});
$av->query(insert_sql('v', 3000));
$av->query('DELETE FROM v WHERE id % 2 = 0');
$av->query('CHECKPOINT; SELECT pg_stat_force_next_flush()');
my $mark = $dt->log_mark;
$dt->reload(q{
autovacuum = on
autovacuum_naptime = 1s
log_autovacuum_min_duration = 0
});
my %types;
ok( poll_until(
		sub {
			$types{$_} = 1 foreach split /, /, $dt->sql($members);
			$dt->log_since($mark) =~ /automatic vacuum of table "av.public.v"/;
		},
		180),
	'autovacuum comes to an end');
my ($vacuum) = $dt->log_since($mark) =~
  /(automatic vacuum of table "av.public.v".*?system usage)/s;
my ($dirtied) = $vacuum =~ /(\d+) dirtied/;
cmp_ok($dirtied, '>', 1000, 'and has dirtied a lot');
is(join(', ', keys %types), '', 'it never was a member');
is($dt->group_row('slow')->{blocks_dirtied}, 0, 'and was charged nothing');
is($dt->session(dbname => 'av', user => 'app')->query('SHOW dirty_throttle."group"'),
	'slow', 'but a session is');
$dt->reload('autovacuum = off');
$av->quit;

#
# The library without the extension in this database
#
my $data = $node->basedir . '/copy.csv';
open my $f, '>', $data or die "$data: $!";
print $f "$_,", 'x' x 900, "\n" foreach 1 .. 1000;
close $f;

$dt->sql(q{CREATE ROLE etl LOGIN;
	GRANT pg_read_server_files TO etl;
	ALTER ROLE etl SET dirty_throttle."group" = 'etl';
	CREATE DATABASE noext; GRANT ALL ON DATABASE noext TO etl});
$dt->limit('etl', 8192);

# COPY in a session; what is charged and how fast it was.
sub check_copy
{
	my ($what, $dbname) = @_;
	my $admin = $dt->session(dbname => $dbname);

	$admin->query(q{DROP TABLE IF EXISTS c;
		CREATE TABLE c (id int, pad text) WITH (fillfactor = 10);
		GRANT ALL ON c TO etl});
	my $s = $dt->session(dbname => $dbname, user => 'etl');
	is($dt->session_row($s)->{group_name}, 'etl', "$what: in its group");
	my $blocks = $dt->session_row($s)->{blocks_dirtied};
	$s->send("COPY c FROM '$data' (FORMAT csv)");
	ok($dt->wait_paused($s, 'in flight'), "$what: COPY is throttled");
	my $r = $s->wait;
	is($r->{err}, '', "$what: no error");
	$blocks = $dt->session_row($s)->{blocks_dirtied} - $blocks;
	between($blocks, 1000, 1100, "$what: blocks that are charged");
	is($admin->query('SELECT count(*) FROM c'), 1000, "$what: all rows are there");

	# what the executor does is paced in flight everywhere
	$s->send(insert_sql('c', 2000));
	ok($dt->wait_paused($s, 'in flight'), "$what: INSERT pauses in flight");
	$dt->cancel_ms($s);
	$_->quit foreach $s, $admin;
}

# Wherever the extension is or is not.
check_copy('no extension', 'noext');
check_copy('with the extension', 'postgres');

is($dt->crashes, '', 'no crash');
$dt->stop;
done_testing();
