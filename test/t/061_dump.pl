# pg_dumpall | psql and pg_upgrade bring all groups and grants, with the library
# preloaded where they arrive and without it; pg_upgrade also a job in batches, in
# the middle, which goes on.
#
# expect-in-log: WARNING:  batch job "half" is not throttled, as this session is in no resource group
# takes-about: 2 s

use strict;
use warnings FATAL => 'all';

use FindBin;
use lib "$FindBin::RealBin/../perl";
use DirtyThrottle;
use DirtyThrottle::Life;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $NAME = q{it's "quoted" \ and};
my $ALL = q{SELECT group_name, scope, dirty_limit, wal_limit, burst, mode, floor, weight, allowance,
		(SELECT string_agg(concat_ws(' ', signal, threshold, ignored_standbys), ', ' ORDER BY signal)
		 FROM dirty_throttle_pressure t WHERE t.group_name = g.group_name),
		granted_to,
		(SELECT string_agg(concat_ws(' ', instance, wal_limit, weight), ', ' ORDER BY instance)
		 FROM dirty_throttle_groups i WHERE i.group_name = g.group_name AND i.instance IS NOT NULL)
	FROM dirty_throttle_groups g WHERE instance IS NULL ORDER BY group_name COLLATE "C"};

my $old = DirtyThrottle::Life->new('old', init => [ allows_streaming => 1 ]);
$old->sql(q{CREATE ROLE etl LOGIN; CREATE ROLE "Größe ""1"""; ALTER ROLE etl SET dirty_throttle."group" = 'batch'});
$old->sql(qq{SELECT set_group_dirty_limit('batch', 12288.5), set_group_wal_limit('batch', 0.001);
	SELECT grant_group_use('batch', 'etl'), grant_group_use('batch', 'Größe "1"');
	SELECT alter_resource_group(n, burst => 60000, mode => 'observe', floor => 512, weight => 2.5, allowance => '5 MB'),
		set_group_pressure(n, 'replica_lag', '2s', 1),
		set_group_pressure(n, 'checkpoint', 'on'),
		set_group_pressure(n, 'slot_lag', '10GB'), set_group_pressure(n, 'wal_rate', '50MB'),
		set_group_pressure(n, 'disk_free', '5%'), set_group_pressure(n, 'commit_latency', '20%'),
		report_pressure('queue "length"', 0.5), set_group_pressure(n, 'queue "length"', 'on')
	FROM (SELECT \$\$$NAME\$\$ AS n) x;
	SELECT alter_resource_group('Größe 🐘');
	SELECT alter_resource_group('tenants', wal_limit => '1 MB', scope => 'role'),
		alter_resource_group('tenants', wal_limit => 5000, weight => 2, instance => 'etl'),
		alter_resource_group('tenants', weight => 3, instance => 'Größe "1"')});
$old->sql('CREATE DATABASE shop');
$old->sql(q{SELECT alter_resource_group('databases', wal_limit => '1 MB', scope => 'database'),
		alter_resource_group('databases', wal_limit => '7 MB', instance => 'shop')});
my $expected = $old->sql($ALL);
is(() = $expected =~ /^/gm, 5, 'what there is');
like($expected, qr/^databases\|database\|.*\|shop 7000 1$/m, 'with a database that differs');
like($expected, qr/^tenants\|role\|.*\|Größe "1" 1000 3, etl 5000 2$/m, 'with instances that differ');
like($expected, qr/\|512\|2\.5\|5000\|checkpoint on, commit_latency 20%, disk_free 5%, queue "length" on, replica_lag 2s 1, slot_lag 10GB, wal_rate 50MB\|/m,
	'of the quoted one');

# ------------------------------------------------------------ pg_dumpall | psql

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
command_ok([ 'pg_dumpall', '--globals-only', '-f', $dump, '-d', $old->node->connstr('postgres') ], 'pg_dumpall');
like(slurp_file($dump), qr/^ALTER ROLE dirty_throttle SET "dirty_throttle\.groups" TO E?'batch id=\d+ dirty=12288\.5 wal=0\.001 grant=etl grant=/m,
	'it can be read');

# As it is documented for a server with other roles: one statement, of one line or more.
my $page = slurp_file("$FindBin::RealBin/../../docs/operators.md");
my ($awk) = $page =~ /\| awk '(.*?)'\) \| psql/ or die 'the documented command is gone';
foreach my $text ('batch id=8', "batch id=8\nother id=9")
{
	my $file = PostgreSQL::Test::Utils::tempdir() . '/roles.sql';
	my $statement = qq{ALTER ROLE dirty_throttle SET "dirty_throttle.groups" TO '$text';\n};
	my $found;

	append_to_file($file, "ALTER ROLE a SET work_mem TO '1MB';\n${statement}\n--\n-- Role memberships\n--\n\nGRANT pg_monitor TO bob GRANTED BY postgres;\n");
	($found) = run_command([ 'awk', $awk, $file ]);
	is("$found\n", $statement, 'what the documented command takes: ' . split(/\n/, $text) . ' lines');
	unlink $file;
}

my $new = DirtyThrottle::Life->new('new');
$new->limit(batch => 1);
$new->limit(own => 2);
my $member = $new->session(group => 'batch');
# the superuser is there already
command_ok([ 'psql', '-X', '-q', '-f', $dump, '-d', $new->node->connstr('postgres') ], 'psql');
# databases come after the globals
$new->sql('CREATE DATABASE shop');
is($new->sql($ALL), $expected, 'restored over other groups: those of the dump');
is($member->query('SHOW dirty_throttle."group"'), 'batch', 'a member of a group of the same name');
my $etl = $new->session(user => 'etl');
is($etl->query('SHOW dirty_throttle."group"'), 'batch', 'a login');
$_->quit foreach $member, $etl;
$new->sql(q{SELECT set_group_dirty_limit('batch', 5)});
is($new->sql(q{SELECT dirty_limit FROM dirty_throttle_groups WHERE group_name = 'batch'}), 5, 'and a change');

# a server that preloads the library only later
my $bare = DirtyThrottle::Life->new('bare', no_extension => 1, conf => q{shared_preload_libraries = ''});
command_ok([ 'psql', '-X', '-q', '-f', $dump, '-d', $bare->node->connstr('postgres') ], 'without the library');
$bare->disconnect;
$bare->node->append_conf('postgresql.conf', q{shared_preload_libraries = 'dirty_throttle'});
$bare->node->restart;
$etl = $bare->session(user => 'etl');
is($etl->query('SHOW dirty_throttle."group"'), 'batch', 'the first login after it is preloaded');
$etl->quit;
$bare->sql('CREATE EXTENSION dirty_throttle');
my $s = $bare->session;
is($s->run(q{BEGIN; SELECT alter_resource_group('databases', instance => 'shop')})->{sqlstate}, undef,
	'an instance of a database that is not there can be removed');
$s->query('ROLLBACK');
$s->quit;
$bare->sql('CREATE DATABASE shop');
is($bare->sql($ALL), $expected, 'all are there');
$_->disconnect, $_->node->stop('fast') foreach $new, $bare;

# ------------------------------------------------------------------ pg_upgrade

# DT_UPGRADE_BIN is the bin directory of a later release for which the library
# is installed, too.
SKIP:
{
	my $bin = $ENV{DT_UPGRADE_BIN};

	skip 'there is no second release: DT_UPGRADE_BIN', 1 unless $bin;
	my $job = q{CALL run_in_batches('half', 'half', 'UPDATE half SET n = n + 1 / (1 - (SELECT count(*)::int FROM bad WHERE bad.id = half.id)) WHERE {batch}', max_rows => 10, unthrottled => true)};
	$old->sql(q{CREATE TABLE half (id int PRIMARY KEY, n int DEFAULT 0); INSERT INTO half SELECT generate_series(1, 1000);
		CREATE TABLE bad (id int); INSERT INTO bad VALUES (505)});
	$etl = $old->session;
	is($etl->run($job)->{sqlstate}, '22012', 'a job in the middle');
	$etl->quit;
	$old->disconnect;
	$old->node->stop('fast');
	foreach my $library ('dirty_throttle', '')
	{
		my $name = $library ? 'with_library' : 'without_library';
		my $dir = PostgreSQL::Test::Utils::tempdir() . "/$name";
		my $checksums = `$bin/initdb --help` =~ /--no-data-checksums/ ? '--no-data-checksums' : '';

		system_or_bail("$bin/initdb -D $dir/data -A trust -N $checksums --encoding UTF8 --no-locale >/dev/null");
		my $node = $old->node;
		append_to_file("$dir/data/postgresql.conf",
			"shared_preload_libraries = '$library'\nfsync = off\nunix_socket_directories = '"
			  . $node->host . "'\nlisten_addresses = ''\nport = " . $node->port . "\n");
		chdir $dir or die;
		command_ok(
			[ "$bin/pg_upgrade", '-b', $node->config_data('--bindir'), '-B', $bin,
				'-d', $node->data_dir, '-D', "$dir/data", '-s', $node->host, '-p', $node->port,
				'-P', $node->port ],
			"pg_upgrade, $name");
		append_to_file("$dir/data/postgresql.conf", "shared_preload_libraries = 'dirty_throttle'\n");
		system_or_bail("$bin/pg_ctl -D $dir/data -l $dir/log -w start >/dev/null");
		is($old->sql($ALL), $expected, "$name: all groups and grants");
		$etl = $old->session(user => 'etl');
		is($etl->query('SHOW dirty_throttle."group"'), 'batch', "$name: a login");
		$etl->quit;
		$etl = $old->session;
		is($etl->query('SELECT state, rows FROM dirty_throttle_batches'), 'failed|495', "$name: the job");
		$etl->query('DELETE FROM bad');
		is($etl->run($job)->{out}, '505|t', "$name: it goes on");
		is($etl->query('SELECT DISTINCT n FROM half'), 1, "$name: each row once");
		$etl->quit;
		$old->disconnect;
		system_or_bail("$bin/pg_ctl -D $dir/data -m immediate -w stop >/dev/null");
	}
	chdir '/';
}
done_testing();
