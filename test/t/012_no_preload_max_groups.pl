# A server that has not preloaded the library, and one that has no room for
# another group.
#
# expect-in-log: WARNING:  dirty_throttle must be loaded via "shared_preload_libraries"
# expect-in-log: WARNING:  [0-9]+ is outside the valid range for parameter "dirty_throttle.max_groups"
# expect-in-log: WARNING:  1 resource group or instance is not in force

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Utils;
use Test::More;

my $dt = DirtyThrottle::Life->new(
	'limits',
	no_start => 1,
	conf => "shared_preload_libraries = 'auto_explain'");
my $node = $dt->node;

# dirty_throttle.enabled would be a parameter of nobody, and is ignored.
$node->start;

#
# No preload
#
my $hint =
  qr/HINT:  Add "dirty_throttle" to "shared_preload_libraries" in postgresql.conf and restart the server\./;
my $s = $dt->session;

my $created = $s->run('CREATE EXTENSION dirty_throttle');
is($created->{sqlstate}, undef, 'CREATE EXTENSION succeeds without preload');
like($created->{err},
	qr/WARNING: .*dirty_throttle must be loaded .*HINT:  Write shared_preload_libraries = 'auto_explain, dirty_throttle' into postgresql\.conf, and restart the server\./s,
	'but says at once what is missing, beside what is there');

my @calls = split /\n/, $s->query(
	q{SELECT format(CASE prokind WHEN 'p' THEN 'CALL %s(%s)' ELSE 'SELECT * FROM %s(%s)' END, p.oid::regproc,
	                (SELECT string_agg('NULL::' || t::regtype, ', ')
	                 FROM unnest(p.proargtypes) t))
	  FROM pg_depend d JOIN pg_proc p ON p.oid = d.objid
	  WHERE d.classid = 'pg_proc'::regclass AND d.deptype = 'e'
	    AND d.refclassid = 'pg_extension'::regclass
	    AND d.refobjid = (SELECT oid FROM pg_extension
	                      WHERE extname = 'dirty_throttle')
	    AND proname NOT LIKE 'dirty_throttle_stored_%'
	  ORDER BY 1});
my @views = split /\n/, $s->query(
	q{SELECT 'TABLE ' || c.oid::regclass
	  FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
	  WHERE d.classid = 'pg_class'::regclass AND d.deptype = 'e'
	    AND d.refobjid = (SELECT oid FROM pg_extension
	                      WHERE extname = 'dirty_throttle')
	    AND c.relkind = 'v'
	  ORDER BY 1});

cmp_ok(scalar @calls, '>=', 20, 'all functions are looked at');
is(scalar @views, 6, 'and all views');
foreach my $call (@calls, @views)
{
	my $result = $s->run($call);
	is($result->{sqlstate}, '55000', "without preload: $call")
	  or diag $result->{err};
	like($result->{err}, $hint, 'with the line to add');
}

# The library is in this session now, and does nothing.
$dt->table('t');
foreach my $sql (
	insert_sql('t', 200),
	'UPDATE t SET id = id + 1',
	"COPY t FROM PROGRAM 'seq 1 200 | sed s/\$/,x/' (FORMAT csv)",
	"LOAD 'dirty_throttle'",
	'DELETE FROM t')
{
	is($s->run($sql)->{err}, '', "without preload: $sql");
}
$s->quit;

# It does nothing either where it is loaded for sessions only.
{
	local $ENV{PGOPTIONS} = '-c session_preload_libraries=dirty_throttle';
	my ($ret, $out, $err) = $node->psql('postgres',
		insert_sql('t', 10) . '; SELECT count(*) FROM t');
	is("$ret $out $err", '0 10 ', 'loaded by session_preload_libraries');
	($ret, $out, $err) =
	  $node->psql('postgres', 'TABLE dirty_throttle_groups');
	like($err, $hint, 'which is not enough');
}

#
# max_groups
#
$dt->stop;
$node->append_conf('postgresql.conf',
	"shared_preload_libraries = 'dirty_throttle'\ndirty_throttle.max_groups = 3");
$node->start;
$dt->sql(
	q{SELECT set_group_dirty_limit('a', 100), create_resource_group('b'),
	         set_group_dirty_limit('c', 300)});
$s = $dt->session(group => 'c');
foreach my $call ("set_group_dirty_limit('d', 400)",
	"create_resource_group('d')")
{
	my $result = $s->run("SELECT $call");
	is($result->{sqlstate}, '53400', "$call: no room");
	like(
		$result->{err},
		qr/cannot define more than 3 resource groups.*HINT:  Drop a resource group with drop_resource_group\(\), or increase dirty_throttle.max_groups and restart the server\./s,
		"$call: the message");
}
is($dt->definitions, 'a=100 b=0 c=300', 'nothing has changed');
$dt->sql(
	q{SELECT set_group_dirty_limit('a', 101), rename_resource_group('b', 'B')});
is($dt->definitions, 'B=0 a=101 c=300', 'groups that exist can be changed');
$dt->sql(
	q{SELECT drop_resource_group('B'), set_group_dirty_limit('d', 400)});
is($dt->definitions, 'a=101 c=300 d=400', 'a dropped group makes room');
$s->quit;
$dt->stop;

# Too few for what is defined: some are not in force, and nothing is lost.
$node->append_conf('postgresql.conf', 'dirty_throttle.max_groups = 2');
$node->start;
like($dt->session->run('SELECT count(*) FROM dirty_throttle_groups')->{err},
	qr/WARNING:  53400: 1 resource group or instance is not in force\n.*HINT:  Increase dirty_throttle.max_groups and restart the server\./s,
	'max_groups = 2: a warning');
is($dt->definitions, 'a=101 c=300', 'max_groups = 2: two are in force');
$dt->stop;
foreach my $max (3, 10000)
{
	$node->append_conf('postgresql.conf', "dirty_throttle.max_groups = $max");
	ok($node->start, "max_groups = $max: start");
	is($dt->definitions, 'a=101 c=300 d=400',
		"max_groups = $max: nothing was lost");
	$dt->stop;
}
# The core takes the default for a value out of range, and says so.
foreach my $max (0, 10001)
{
	my $mark = $dt->log_mark;
	$node->append_conf('postgresql.conf', "dirty_throttle.max_groups = $max");
	$node->start;
	like($dt->log_since($mark),
		qr/$max is outside the valid range for parameter "dirty_throttle.max_groups"/,
		"max_groups = $max: the log says what is wrong");
	is($dt->definitions, 'a=101 c=300 d=400',
		"max_groups = $max: nothing was lost");
	$dt->stop;
}

$node->append_conf('postgresql.conf', 'dirty_throttle.max_groups = 500');
$node->start;
$dt->sql(
	q{SELECT set_group_dirty_limit('g' || i, i) FROM generate_series(1, 497) i});
$dt->stop('immediate');
$node->start;
is( $dt->sql(
		q{SELECT count(*), sum(dirty_limit) FROM dirty_throttle_groups WHERE instance IS NULL}),
	'500|' . (801 + 497 * 498 / 2),
	'500 groups last');

# Instances that differ need room, too, and give way to groups.
$dt->sql(q{SELECT alter_resource_group('g1', scope => 'role'); CREATE ROLE gold});
my $gold = q{SELECT alter_resource_group('g1', wal_limit => 5, instance => 'gold')};
is($dt->session->run($gold)->{sqlstate}, '53400', 'no room for an instance');
$dt->sql(q{SELECT drop_resource_group('g2')});
$dt->sql($gold);
is($dt->sql('SELECT wal_limit FROM dirty_throttle_groups WHERE instance IS NOT NULL'), 5, 'a dropped group makes room');
is($dt->session->run(q{SELECT create_resource_group('g2')})->{sqlstate}, '53400', 'and then there is none for a group');
$dt->stop;
$node->append_conf('postgresql.conf', 'dirty_throttle.max_groups = 499');
$node->start;
like($dt->session->run('SELECT count(*) FROM dirty_throttle_groups')->{err},
	qr/WARNING:  53400: 1 resource group or instance is not in force\n/, 'one less: a warning');
is($dt->sql('SELECT count(*) - count(instance), count(instance) FROM dirty_throttle_groups'),
	'499|0', 'all groups are in force');
$dt->stop;

#
# Another library keeps ours from requesting shared memory.
#
SKIP:
{
	my $library = compile_library('swallows_request')
	  or skip 'the other library cannot be compiled here', 3;
	my $mark = $dt->log_mark;

	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = 'dirty_throttle, $library'");
	is($node->start(fail_ok => 1), 0, 'the server does not start');
	like($dt->log_since($mark),
		qr/FATAL:  another library keeps dirty_throttle from requesting shared memory.*HINT:  Name dirty_throttle last/s,
		'and says what to do');
	$node->append_conf('postgresql.conf',
		"shared_preload_libraries = '$library, dirty_throttle'");
	ok($node->start, 'named last it starts');
	$dt->stop;
}
done_testing();
